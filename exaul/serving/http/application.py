"""The ASGI application: decisions, feedback, figures and the page, for the Abstainers of one file."""

import asyncio
import json
import logging
import math
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    WithJsonSchema,
    model_validator,
)
from pydantic.config import JsonDict
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException as StarletteException

from exaul import __version__
from exaul.engine.checks import BadInput, check_holds, check_known, quote
from exaul.serving.abstainer import as_error, as_score, as_text
from exaul.serving.http.errors import ErrorBody, error_reply, error_responses
from exaul.serving.http.limits import Limits
from exaul.serving.http.page import read_page
from exaul.serving.http.tokens import Tokens
from exaul.serving.journal import FEEDBACK, WITHDRAW
from exaul.serving.service import ACCEPTED, Conflict, Service, without_nan
from exaul.serving.settings import ON_ERROR

MOST_FEEDBACK = 1000  # items of one request
MOST_FIELDS = 16  # of an object in a request
MOST_KEYS = 100  # keys in one reply
LONGEST_TEXT = 256  # characters of an id or a key
ITEM, LIST = "item", "list"  # forms of the body with feedback

SENTENCES = {  # for Starlette's and FastAPI's own words
    "Not Found": "no such path",
    "Method Not Allowed": "the path does not allow this method",
    "There was an error parsing the body": "the body is not JSON",
}

log = logging.getLogger("exaul.serving")
Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def _check_error(value: Any) -> float:
    check_holds("error", value, not isinstance(value, str), "a number in [0, 1], true or false")
    return as_error(value)


def _check_key(value: Any) -> str:
    check_holds("key", value, len(as_text("key", value)) <= LONGEST_TEXT, f"at most {LONGEST_TEXT} characters long")
    return str(value)


def _check_id(value: Any) -> str:
    # an empty id is a variable that was not set: the decision of another answer would be returned
    fits = 0 < len(as_text("id", value)) <= LONGEST_TEXT
    check_holds("id", value, fits, f"1 to {LONGEST_TEXT} characters long")
    return str(value)


_TEXT = {"type": "string", "maxLength": LONGEST_TEXT}
Key = Annotated[str, PlainValidator(_check_key), WithJsonSchema(_TEXT)]
Id = Annotated[str, PlainValidator(_check_id), WithJsonSchema(_TEXT | {"minLength": 1})]
Score = Annotated[float, PlainValidator(as_score), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})]
Error = Annotated[
    float,
    PlainValidator(_check_error),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "boolean"}]}),
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _check_number(cls, value: Any) -> Any:
        # pydantic describes each unknown field: for 1 MiB of them that takes most of a second
        if isinstance(value, dict) and len(value) > MOST_FIELDS:
            raise ValueError(f"fields: {len(value)} found; there must be at most {MOST_FIELDS}")
        return value


class DecideBody(_Body):
    """An answer with a score."""

    score: Score
    key: Key = ""
    id: Id | None = None


class DecideReply(BaseModel):
    """The decision. ``id`` and ``probability`` are null only if the journal failed and ``error`` says so."""

    id: str | None
    answer: bool
    probability: float | None
    audit: bool
    error: str | None = None


_EITHER: JsonDict = {  # for the description of the API, as ``FeedbackBody._check``
    "oneOf": [
        {
            "required": ["error"],
            "properties": {"error": {"type": ["number", "boolean"]}, "thumb": {"type": "null"}},
        },
        {"required": ["thumb"], "properties": {"error": {"type": "null"}, "thumb": {"type": "string"}}},
    ]
}


class FeedbackBody(_Body):
    """Feedback on a decision: an error or a thumb."""

    model_config = ConfigDict(json_schema_extra=_EITHER)

    id: Id
    error: Error | None = None
    thumb: Literal["up", "down"] | None = None

    @model_validator(mode="after")
    def _check(self) -> "FeedbackBody":
        if (self.error is None) == (self.thumb is None):
            raise ValueError("error, thumb: one of the two is needed, and not both")
        return self


class WithdrawBody(_Body):
    """The decision whose answer was not shown."""

    id: Id


class Accepted(BaseModel):
    """Whether feedback or a withdrawal changed something, and the outcome as of ``Abstainers.feedback``."""

    accepted: bool
    reason: str


def app(
    path: str | Path,
    *,
    tokens: str | None = None,
    on_error: str = "refuse",
    hosts: Collection[str] | None = None,
    **configuration: Any,
) -> FastAPI:
    """Return an application for uvicorn, or to mount in an application of your own.

    A mounted application is not told when its parent ends; call ``application.state.service.close()`` then.

    Args:
        path: file of the Abstainers; only one process can open it, so run one worker.
        tokens: file of bearer tokens, or ``env:NAME``, as ``Tokens.read``; None: every request may do everything.
        on_error: what ``/v1/decide`` replies if the journal cannot be written: ``refuse`` (status 503), ``abstain``
            or ``answer``, each without an id.
        hosts: names that the Host header may have, as ``Limits``; None: any.
        configuration: fields of ``AbstainersConfiguration``.

    Raises:
        BadInput: an argument is invalid, or the file is in use.
    """
    check_known("on_error", (on_error,), ON_ERROR)
    known_tokens = None if tokens is None else Tokens.read(tokens)
    service = Service(path, **configuration)
    # One thread: the file commits one call after the other, and the event loop never waits for a disk.
    thread = ThreadPoolExecutor(1, "exaul")

    async def call(function: Callable[Given, Returned], *given: Given.args, **named: Given.kwargs) -> Returned:
        return await asyncio.get_running_loop().run_in_executor(thread, partial(function, *given, **named))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for close in application.state.closing:
            await close()
        service.close()

    application = FastAPI(
        title="exaul",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        # "default" also keeps FastAPI from describing a status 422, which never occurs
        responses=error_responses(400, 401, 403, 503) | {"default": {"model": ErrorBody}},
    )
    application.add_middleware(Limits, hosts=hosts)
    application.state.service, application.state.call = service, call
    application.state.on_error, application.state.secured = on_error, known_tokens is not None
    application.state.closing = list[Callable[[], Awaitable[None]]]()  # called before the service is closed
    application.state.require = partial(_require, known_tokens)
    application.state.metrics = service.metrics
    _handle_errors(application)
    _add_decisions(application, on_error)
    _add_figures(application)
    _add_page(application)
    return application


def _require(tokens: Tokens | None, scope: str) -> Any:
    """Return a dependency that checks the bearer token of a request."""
    if tokens is None:
        return Depends(lambda: None)
    bearer = HTTPBearer(auto_error=False, description=f"a token with the scope {scope}")

    def check(credentials: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)]) -> None:
        scopes = None if credentials is None else tokens.scopes_of(credentials.credentials)
        if scopes is None:
            raise HTTPException(
                401, "a valid bearer token is needed: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"}
            )
        if scope not in scopes:
            raise HTTPException(403, f"the token lacks the scope {scope}")

    return Depends(check)


def _handle_errors(application: FastAPI) -> None:
    @application.exception_handler(StarletteException)
    async def refuse(_: Request, error: StarletteException) -> Response:
        return error_reply(error.status_code, SENTENCES.get(error.detail, error.detail), headers=error.headers)

    @application.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return error_reply(400, "the body is not JSON")
        field = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", ITEM, LIST)) or None
        return error_reply(400, _sentence_of(first, field or "the body"), field)

    @application.exception_handler(BadInput)
    async def bad(_: Request, error: BadInput) -> Response:
        return error_reply(400, str(error), str(error).partition(":")[0])

    @application.exception_handler(Conflict)
    async def conflict(_: Request, error: Conflict) -> Response:
        return error_reply(409, str(error), "id")

    @application.exception_handler(OSError)
    async def unusable(_: Request, error: OSError) -> Response:
        log.error("the journal cannot be used: %s", error.strerror)
        application.state.metrics.count_failure("refuse")
        return error_reply(503, "the journal cannot be used; repeat the request later")


def _sentence_of(error: Mapping[str, Any], field: str) -> str:
    """Return one sentence about an error of pydantic."""
    match error["type"]:
        case "missing":
            return f"{field}: missing; it is required"
        case "extra_forbidden":
            return f"{field}: unknown; it must be a field of the API (/openapi.json)"
        case "value_error":  # of our own checks
            name, _, sentence = str(error["ctx"]["error"]).partition(": ")
            position = f"{field}." if field.isdecimal() else ""  # in a list of feedback
            return f"{field if field.endswith(name) else position + name}: {sentence}"
        case "too_long":
            return f"{field}: {error['ctx']['actual_length']} items found; it must have at most {MOST_FEEDBACK}"
        case "model_attributes_type":
            return f"{field}: {quote(error['input'])} found; it must be an object"
    rule = str(error["msg"]).removeprefix("Input should be ")
    return f"{field}: {quote(error['input'])} found; it must be {rule}"


def _add_decisions(application: FastAPI, on_error: str) -> None:
    state = application.state
    service: Service = state.service
    list_in_turn = asyncio.Lock()

    @application.post(
        "/v1/decide", dependencies=[state.require("decide")], responses=error_responses(409, 413, 415)
    )
    async def decide(body: DecideBody) -> DecideReply:
        """Decide whether to show an answer. Repeat a request with the same id to get the same decision."""
        try:
            with state.metrics.decide_seconds.time():
                decision = await state.call(service.decide, body.score, body.key, body.id)
        except OSError as error:
            if on_error == "refuse":
                raise
            log.error("decided without the journal: %s", error.strerror)
            state.metrics.count_failure(on_error)
            return DecideReply(id=None, answer=on_error == "answer", probability=None, audit=False, error="journal")
        return DecideReply(
            id=decision.id, answer=decision.answer, probability=decision.probability, audit=decision.audit
        )

    @application.post("/v1/feedback", dependencies=[state.require("feedback")], responses=error_responses(413, 415))
    async def feedback(
        request: Request,
        body: Annotated[
            Annotated[FeedbackBody, Tag(ITEM)]
            | Annotated[list[FeedbackBody], Field(max_length=MOST_FEEDBACK, fail_fast=True), Tag(LIST)],
            Discriminator(lambda body: LIST if isinstance(body, list) else ITEM),
        ],
    ) -> Accepted | list[Accepted]:
        """Learn from feedback on an answer, or on several in order. A repeated item changes nothing."""

        async def learn(item: FeedbackBody) -> Accepted:
            error = item.thumb if item.error is None else item.error
            return _accepted(FEEDBACK, await state.call(service.feedback, item.id, error))

        if not isinstance(body, list):
            return await learn(body)
        async with list_in_turn:  # so that decisions wait for one item, and not for one of each list
            if await _is_gone(request):  # else the lists of clients that are gone would heap up
                return []
            return [await learn(item) for item in body]

    @application.post("/v1/withdraw", dependencies=[state.require("decide")], responses=error_responses(413, 415))
    async def withdraw(body: WithdrawBody) -> Accepted:
        """Record that an answer was not shown."""
        return _accepted(WITHDRAW, await state.call(service.withdraw, body.id))


async def _is_gone(request: Request) -> bool:
    """Return whether the client has disconnected."""
    await request.body()  # it comes first
    return await request.is_disconnected()


def _accepted(kind: str, outcome: str) -> Accepted:
    return Accepted(accepted=outcome == ACCEPTED[kind], reason=outcome)


class TextConvertor(PathConvertor):
    """The rest of a path. That of Starlette ends before a line break, and would find another key."""

    regex = "(?s:.*)"


register_url_convertor("text", TextConvertor())


def _add_figures(application: FastAPI) -> None:
    state = application.state
    service: Service = state.service
    page_in_turn = asyncio.Lock()

    @application.get("/v1/keys", dependencies=[state.require("read")])
    async def keys(
        request: Request,
        limit: Annotated[int, Query(ge=1, le=MOST_KEYS)] = MOST_KEYS,
        offset: Annotated[int, Query(ge=0)] = 0,
    ) -> dict[str, Any]:
        """Return the figures of keys in the order of first use, and the number of all keys."""
        async with page_in_turn:  # as lists of feedback
            if await _is_gone(request):
                return {}
            page = await state.call(service.all_keys, limit, min(offset, 2**32))  # SQLite's integers end
            figures = [{"key": key} | await state.call(service.figures, key) for key in page]
        return {"total": await state.call(service.count_keys), "keys": without_nan(figures)}

    @application.get("/v1/keys/{key:text}", dependencies=[state.require("read")], responses=error_responses(404))
    async def key_figures(key: str) -> dict[str, Any]:
        """Return the figures of a key, as ``Abstainer.figures``."""
        try:
            figures = await state.call(service.figures, key)
        except BadInput as error:
            raise HTTPException(404, str(error)) from error
        return {"key": key} | without_nan(figures)

    @application.get(
        "/metrics",
        dependencies=[state.require("read")],
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics() -> Response:
        """Return metrics for Prometheus. If the journal cannot be used, the limits are missing."""
        try:
            state.metrics.free_bytes.set(service.free_bytes())
            if service.configuration["audit"] is not None:
                keys = {key: await state.call(service.figures, key) for key in list(state.metrics.keys)}
                limits = {key: figures["fdr_limit"] for key, figures in keys.items()}
                state.metrics.set_limits(limits, await state.call(service.fdr_limit))
        except OSError:
            state.metrics.set_limits({}, math.nan)
        return Response(state.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @application.get("/healthz")
    async def healthy() -> dict[str, str]:
        """Reply if the process runs."""
        return {"status": "ok"}

    @application.get("/readyz")
    async def ready() -> dict[str, str]:
        """Reply with 503 if the journal cannot be written."""
        await state.call(service.check_usable)
        return {"status": "ok"}


def _add_page(application: FastAPI) -> None:
    state = application.state
    service: Service = state.service
    page, headers = read_page()
    start, latest, computing = secrets.token_hex(8), ("", ""), asyncio.Lock()

    @application.get("/", include_in_schema=False)
    async def show_page() -> HTMLResponse:
        return HTMLResponse(page, headers=headers)

    @application.get("/v1/overview", dependencies=[state.require("read")])
    async def overview(request: Request) -> Response:
        """Return what the page shows: the keys used last, and the latest decisions. Its ETag changes with it."""
        nonlocal latest
        async with computing:  # once for all that wait for it
            tag = f'"{start}-{service.changes}"'
            if tag in request.headers.get("if-none-match", ""):
                return Response(status_code=304, headers={"ETag": tag})
            if latest[0] != tag:
                latest = tag, json.dumps(without_nan(await state.call(service.overview)))
            return Response(latest[1], media_type="application/json", headers={"ETag": tag})
