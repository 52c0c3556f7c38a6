"""The ASGI application: decisions, feedback, figures and the page, for the Abstainers of one file."""

import asyncio
import json
import math
import re
import secrets
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Security
from fastapi.responses import HTMLResponse, Response
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.convertors import PathConvertor, register_url_convertor

from exaul import __version__
from exaul.engine.checks import BadInput, check_known, quote
from exaul.serving.entries import Outcome
from exaul.serving.http.bodies import Accepted, DecideBody, DecideReply, FeedbackBodies, FeedbackBody, WithdrawBody
from exaul.serving.http.errors import HANDLED, ErrorBody, RequestFailed, error_responses, reply_to_error
from exaul.serving.http.guard import Guard
from exaul.serving.http.settings import FALLBACK, Tokens, logger
from exaul.serving.prometheus import ON_ERROR
from exaul.serving.service import Service, decision_of, for_json

PAGE = 100  # keys, or audits, in one reply
Limit = Annotated[int, Query(ge=1, le=PAGE)]
Offset = Annotated[int, Query(ge=0, le=2**32)]  # SQLite's integers end
TEXT_SECONDS = 3600.0  # between deletions of old texts
TEXT_REPLY: dict[str, Any] = {"content": {"text/plain": {"schema": {"type": "string"}}}}  # a reply that is not JSON


class TextConvertor(PathConvertor):
    """The rest of a path. Starlette's ends before a line break, and would find another key."""

    regex = "(?s:.*)"


register_url_convertor("text", TextConvertor())


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
        tokens: file of bearer tokens, or ``env:NAME`` (``docs/operations.md``); None: any request may do all.
        on_error: what ``/v1/decide`` replies if the journal cannot be written: ``refuse`` (status 503), ``abstain``
            or ``answer``, each without an id.
        hosts: names (in lower case, without a port) that the Host header may have, else status 421; None: any.
        configuration: ``shadow`` (False), show every answer; ``texts`` (``audited``, ``none`` or ``all``), of which
            answers texts are kept; ``retain_days`` (30.0), for how many days after the verdict; and the arguments
            of ``Abstainers`` other than ``path``.

    Raises:
        BadInput: an argument is invalid, or the file is in use.
    """
    check_known("on_error", (on_error,), ON_ERROR)
    known_tokens = None if tokens is None else Tokens(tokens)
    service = Service(path, **configuration)
    # One thread: the file commits one call after the other, and the event loop never waits for a disk.
    thread = ThreadPoolExecutor(1, "exaul")

    async def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        work = partial(copy_context().run, function, *args, **kwargs)  # with the id of the request
        return await asyncio.get_running_loop().run_in_executor(thread, work)

    async def delete_old_texts() -> None:
        while True:
            await asyncio.sleep(TEXT_SECONDS)
            await call(service.delete_old_texts)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        deletion = asyncio.create_task(delete_old_texts())
        yield
        deletion.cancel()
        for close in state.closing:
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
    application.add_middleware(Guard, tokens=known_tokens, hosts=hosts)
    state = application.state
    state.service, state.call, state.metrics = service, call, service.metrics
    state.keys = frozenset(configuration.get("keys") or ())  # that clients of a gateway may name
    state.on_error, state.tokens = on_error, known_tokens
    state.closing = list[Callable[[], Awaitable[None]]]()  # called before the service is closed
    for kind in HANDLED:
        application.add_exception_handler(kind, reply_to_error)
    _add_deciding_routes(application, service)
    _add_reading_routes(application, service)
    return application


def require(*scopes: str) -> Any:
    """Return a dependency that requires one of these scopes. The Guard has found those of the token."""
    bearer = HTTPBearer(auto_error=False, description=f"a token with the scope {' or '.join(scopes)}")

    def check(request: Request, _: Annotated[Any, Security(bearer)]) -> None:
        if request.state.scopes.isdisjoint(scopes):
            raise HTTPException(403, f"the token lacks the scope {scopes[0]}")

    return Depends(check)


def _accepted(outcome: Outcome, success: Outcome = "counted") -> Accepted:
    return Accepted(accepted=outcome == success, reason=outcome)


def _may_use(request: Request, key: str) -> bool:
    """Return whether the token of a request is for a key: all are, unless its line in the file names one."""
    token_key = request.state.key
    return token_key is None or key in (token_key, f"{token_key}{FALLBACK}")


def _add_deciding_routes(application: FastAPI, service: Service) -> None:
    state = application.state

    def decide_or_repeat(body: DecideBody) -> DecideReply:  # in the thread of the file: nothing comes in between
        for entry in service.entries_of(body.id)[:1] if body.id is not None else ():
            if (entry.score, entry.key) != (body.score, body.key):  # another client's: they are not named
                conflict = f"id: {quote(body.id)} was decided with another score or key; it must be new"
                raise RequestFailed(409, conflict, param="id")
            return DecideReply(**decision_of(entry)._asdict(), repeated=True)
        return DecideReply(**service.decide(body.score, body.key, body.id)._asdict())

    def close(request: Request, method: Callable[..., Outcome], id: str, *arguments: Any) -> Outcome:
        """Call ``feedback`` or ``withdraw``; an answer of another key than the token's is unknown to it."""
        if request.state.key is not None and not all(_may_use(request, x.key) for x in service.entries_of(id)):
            return "unknown"
        return method(id, *arguments)

    @application.post("/v1/decide", dependencies=[require("decide")], responses=error_responses(409, 413, 415))
    async def decide(request: Request, body: DecideBody) -> DecideReply:
        """Decide whether to show an answer. Repeat a request with the same id to get the same decision."""
        if not _may_use(request, body.key):
            raise HTTPException(403, f"key: {quote(body.key)} found; the token is for {quote(request.state.key)}")
        try:
            may_be_new = not body.key or "keys" in request.state.scopes
            if not may_be_new and not await state.call(service.latest_entries, 1, key=body.key):
                raise HTTPException(403, f"key: {quote(body.key)} is new; the token lacks the scope keys")
            with state.metrics.decide_seconds.time():
                return await state.call(decide_or_repeat, body)
        except OSError as error:
            if state.on_error == "refuse":
                raise
            logger.error("decided without the journal: %s", error)
            state.metrics.failures.labels(state.on_error).inc()
            answer = state.on_error == "answer"
            return DecideReply(id=None, answer=answer, probability=None, audit=False, error="journal")

    @application.post("/v1/feedback", dependencies=[require("feedback")], responses=error_responses(413, 415))
    async def feedback(request: Request, body: FeedbackBodies) -> Accepted | list[Accepted]:
        """Learn from feedback on an answer, or on several in order. A repeated item changes nothing."""
        judges = "audit" in request.state.scopes  # else whoever rates first would give the verdict
        items, rate = body if isinstance(body, list) else [body], partial(close, request, service.feedback)
        # one by one: decisions go in between
        replies = [_accepted(await state.call(rate, item.id, item.rating, judges)) for item in items]
        return replies if isinstance(body, list) else replies[0]

    @application.post("/v1/withdraw", dependencies=[require("decide")], responses=error_responses(413, 415))
    async def withdraw(request: Request, body: WithdrawBody) -> Accepted:
        """Record that an answer was not shown."""
        return _accepted(await state.call(close, request, service.withdraw, body.id), "withdrawn")


def _add_reading_routes(application: FastAPI, service: Service) -> None:
    state, (page, policy) = application.state, read_page()
    tag_prefix, latest_overview, lock = secrets.token_hex(8), ("", ""), asyncio.Lock()

    @application.get("/", include_in_schema=False)
    async def show_page() -> HTMLResponse:
        # no-cache: the page of a new version belongs to its API
        return HTMLResponse(page, headers={"Content-Security-Policy": policy, "Cache-Control": "no-cache"})

    @application.get("/v1/keys", dependencies=[require("read")])
    async def keys(limit: Limit = PAGE, offset: Offset = 0) -> dict[str, Any]:
        """Return the figures of keys in the order of first use, and the number of all keys."""
        listed_keys = await state.call(service.all_keys, limit, offset)
        figures = [{"key": key} | await state.call(service.figures, key) for key in listed_keys]
        return {"total": await state.call(service.count_keys), "keys": for_json(figures)}

    @application.get("/v1/keys/{key:text}", dependencies=[require("read")], responses=error_responses(404))
    async def key_figures(key: str) -> dict[str, Any]:
        """Return the figures of a key, as ``Abstainers.figures``."""
        try:
            return {"key": key} | for_json(await state.call(service.figures, key))
        except BadInput as error:
            raise HTTPException(404, str(error)) from error

    @application.get("/v1/audits", dependencies=[require("audit")])
    async def audits(limit: Limit = PAGE, offset: Offset = 0, id: str | None = None) -> dict[str, Any]:
        """Return the oldest audited answers without a verdict, or that of an id, and the number of the former."""
        total, rows = await state.call(service.audits, limit, offset, id)
        return {"total": total, "audits": for_json(rows)}

    @application.post("/v1/audits", dependencies=[require("audit")], responses=error_responses(413, 415))
    async def judge(body: FeedbackBody) -> Accepted:
        """Give one verdict on an answer, in the form of one item of ``/v1/feedback``."""
        return _accepted(await state.call(service.feedback, body.id, body.rating))

    @application.get("/v1/overview", dependencies=[require("read")])
    async def overview(request: Request) -> Response:
        """Return what the page shows: the keys used last, and the latest decisions. Its ETag changes with it."""
        nonlocal latest_overview
        async with lock:  # once for all that wait for it
            texts = "audit" in request.state.scopes
            tag = f'"{tag_prefix}-{service.change_count}-{int(texts)}"'
            if tag in request.headers.get("if-none-match", ""):
                return Response(status_code=304, headers={"ETag": tag})
            if latest_overview[0] != tag:
                latest_overview = tag, json.dumps(for_json(await state.call(service.overview, texts)))
            return Response(latest_overview[1], media_type="application/json", headers={"ETag": tag})

    @application.get("/metrics", dependencies=[require("metrics", "read")], responses={200: TEXT_REPLY})
    async def metrics() -> Response:
        """Return metrics for Prometheus. If the journal cannot be used, targets and limits are missing."""
        try:
            state.metrics.free_bytes.set(service.free_bytes())
            state.metrics.audits_open.set((await state.call(service.open_audits, 0))[0])
            figures = {key: await state.call(service.figures, key) for key in list(state.metrics.keys)}
            state.metrics.set_figures(figures, await state.call(service.fdr_limit))
        except OSError:
            state.metrics.set_figures({}, math.nan)
        return Response(state.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @application.get("/healthz")
    @application.head("/healthz", include_in_schema=False)
    async def healthy() -> dict[str, str]:
        """Reply if the process runs."""
        return {"status": "ok"}

    @application.get("/readyz")
    async def ready() -> dict[str, str]:
        """Reply with 503 if the journal cannot be written, or its disk is almost full."""
        await state.call(service.check_ready)
        return {"status": "ok"}


def read_page() -> tuple[str, str]:
    """Return the page and its Content-Security-Policy.

    The policy allows the script and the style in the file by their hashes, and connections to this service. Trusted
    Types forbid to make HTML from strings.
    """
    page = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    script, style = (
        b64encode(sha256(re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[0].encode()).digest()).decode()
        for tag in ("script", "style")
    )
    return page, (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
