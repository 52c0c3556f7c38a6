"""The gateway: chat completions of a model, of which the service decides which are shown.

The endpoint is asked without a stream, also for clients that want one: a decision needs the whole answer. If a
client disconnects before its answer is sent, the call is cancelled, and a decision that was made is withdrawn.
"""

import asyncio
import json
import math
import secrets
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, NamedTuple

from fastapi import Body, FastAPI, Request
from starlette.datastructures import State
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from exaul.engine.checks import BadInput, check_holds, check_known, join_lines, quote, shorten
from exaul.llm.replies import Reply, logprobs_fault, scored_reply
from exaul.llm.scores import PROBE, scorer_of
from exaul.serving.abstainer import AbstainerDecision, as_score, as_text
from exaul.serving.http import completions
from exaul.serving.http.application import require
from exaul.serving.http.bodies import COMPLETION_PREFIX, check_text
from exaul.serving.http.errors import RequestFailed, error_reply, error_responses
from exaul.serving.http.handover import Handover
from exaul.serving.http.settings import FALLBACK, WITHHELD_FORMS, GatewayFlags, logger
from exaul.serving.http.upstream import BodyRefused, ClientHeaders, Upstream
from exaul.serving.service import UNSCORED, Service

COMMENT_SECONDS = 5.0  # between comments in a stream that waits, so that proxies and clients keep it open
PROBE_SECONDS = 20.0  # for the question at the start
MOST_MESSAGES = 4096  # of a request: a thousand bytes of memory may belong to each
KEY_HEADER, REF_HEADER, WITHHELD_HEADER = "x-exaul-key", "x-exaul-ref", "x-exaul-withheld"
REF = "exaul_ref"  # in ``metadata``
NOT_GATED = "/v1/completions", "/v1/embeddings", "/v1/responses"  # routes of OpenAI
# of OpenAI's chat completions; others may change what a proxy such as LiteLLM does
FIELDS = """audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens
messages metadata modalities model moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key
prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier
stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity
web_search_options"""


# a completion of a model, and what the client is told of the decision: at least ``answer``, whether it is shown
Gated = tuple[dict[str, Any], dict[str, Any]]


class ChatRequest(NamedTuple):
    """A request of a client, checked."""

    body: dict[str, Any]
    headers: ClientHeaders
    key: str  # selects the Abstainer
    id: str  # of the completion and of its decision
    ref: str | None  # the client's own id
    form: str  # of a withheld answer: text, refusal, json or error


def add_gateway(application: FastAPI, flags: GatewayFlags) -> None:
    """Add the routes of the gateway to an application. ``BadInput``: a key is invalid, or --key needs tokens."""
    state = application.state
    if flags.key == "token" and state.tokens is None:
        raise BadInput("tokens: missing; --key token requires them, with a key for each")
    if flags.key == "header" and not state.keys:
        raise BadInput("keys: missing; --key header requires --keys, a file of those that clients may name")
    gateway = Gateway(state, flags)
    upstream, allowed, failures = gateway.upstream, [require("ask", "decide")], error_responses(502, 504)

    @application.post("/v1/chat/completions", dependencies=allowed, responses=error_responses(409) | failures)
    async def complete(request: Request, body: Annotated[dict[str, Any], Body()]) -> Response:
        """Ask the model, and decide whether its answer is shown. Takes and returns what the model does."""
        return GatedReply(gateway, checked_request(body, request.headers, flags, state.keys, request.state.key))

    @application.get("/v1/models", dependencies=allowed, responses=failures)
    @application.get("/v1/models/{name:path}", dependencies=allowed, responses=failures)
    async def models(request: Request, name: str = "") -> Response:
        """Return the models of the endpoint, or what it says of one."""
        reply, _ = await _unless_left(upstream.models(request.headers, name), request.receive)
        match reply:
            case {"data": [*items]} if flags.models and not name:
                reply["data"] = [x for x in items if isinstance(x, dict) and x.get("id") in flags.models]
        return Response(json.dumps(reply), media_type="application/json")

    async def refuse(request: Request) -> Response:
        """Refuse a route of OpenAI whose answers are not decided."""
        return error_reply(404, f"{request.url.path} is not gated; ask /v1/chat/completions")

    async def forward(request: Request, path: str) -> Response:
        """Pass a request on, and its reply, undecided."""
        state.service.count_undecided("", "passed", "answer")
        content = await request.body()
        forwarding = upstream.forward(request.method, path, request.url.query, request.headers, content)
        reply, _ = await _unless_left(forwarding, request.receive)
        return reply or Response(status_code=499)  # nobody reads it

    if flags.pass_routes:  # the last of all routes: it takes what no other one does
        trusted = [require("pass")]
        application.add_api_route(
            "/v1/{path:path}", forward, methods=["GET", "POST"], dependencies=trusted, include_in_schema=False
        )
    else:
        for path in NOT_GATED:
            application.add_api_route(path, refuse, methods=["POST"], dependencies=allowed, include_in_schema=False)


async def ask_model(flags: GatewayFlags, service: Service) -> None:
    """Ask the model a first question. Log a sentence: its score beside those of the log, or why there is none."""
    outcomes = {"answer": "shown undecided", "abstain": "withheld", "error": "refused with status 502"}
    upstream, headers = Upstream(flags.upstream, flags.upstream_key_variable, PROBE_SECONDS, True), dict[str, str]()
    model, answered = "".join(flags.models[:1]), ""
    fate = "such answers are "
    fate += "shown (shadow mode)" if service.shadow else f"{outcomes[flags.without_score]} (--without-score)"
    replies = list[Reply]()  # to the calls of the score

    async def ask(body: Mapping[str, Any], sample: int = 0) -> Reply:
        replies.append(await upstream.reply(headers, body, sample))
        return replies[-1]

    try:
        async with asyncio.timeout(PROBE_SECONDS):
            model = model or (await upstream.models(headers))["data"][0]["id"]
            scorer = scorer_of(flags.score, flags.score_model, flags.samples)
            request = {"model": model, "messages": [{"role": "user", "content": PROBE}], **scorer.fields}
            completion = await upstream.complete(request, headers)
            answered = join_lines(model)
            score = await scorer.score(request, scored_reply(completion), ask)
            if not math.isnan(score):
                said = f"first question to {answered}: answered, with a score of {as_score(score):.4g}"
                if len(service.log_scores):
                    said += f" ({(service.log_scores < score).mean():.0%} of the log's scores are lower)"
                logger.warning(said)
                return
        fault = f": the reply has {logprobs_fault(completion)}" if scorer.fields else ""
        if replies:  # about the fixed question: they quote no user
            fault = f": asked for it, a model replied {quote(replies[-1].text)}"
            fault += " without log-probabilities" * (flags.score == "p-true" and not replies[-1].first)
        trouble = f"an answer of {answered} has none{fault}; {fate}; another --score may have one"
    except Exception as error:  # of a user's scorer, too
        reason = shorten(join_lines(str(error))) or type(error).__name__
        checks = "is the model running, are --upstream (most end in /v1) and --upstream-key-variable right"
        trouble = f"a first question to {flags.upstream} failed ({reason}); {checks}, does --models name a model?"
        if not model:
            trouble = f"GET {flags.upstream}/models named no model ({reason}), so no first question was asked; "
            trouble += f"{checks}? Without such a list, name models with --models"
        if answered:
            trouble = f"{answered} answered a first question, but its answer could not be scored ({reason}); {fate}"
    finally:
        await upstream.close()
    logger.warning("%s%s", f"--score {flags.score}: " * bool(answered), trouble)


def checked_request(
    body: dict[str, Any],
    headers: ClientHeaders,
    flags: GatewayFlags,
    keys: Collection[str],
    token_key: str | None = None,
) -> ChatRequest:
    """Return a request of a client whose answer can be decided. ``BadInput``: a field or a header is invalid.

    Args:
        body: of the request.
        headers: of the request.
        flags: of the gateway.
        keys: those that a client may name. With each new key a client would get a new budget of wrong answers.
        token_key: the key of the request's token, if it has one.
    """
    for name in () if "any" in flags.pass_fields else body.keys() - {*FIELDS.split(), *flags.pass_fields}:
        raise BadInput(f"{shorten(join_lines(name))}: unknown; it must be a field of OpenAI's or of --pass-fields")
    for name in ("model", "messages"):
        if name not in body:
            raise BadInput(f"{name}: missing; it is required")
    model, n, metadata = body["model"], body.get("n"), body.get("metadata")
    # LiteLLM would ask each of several models, and return a list
    check_holds("model", model, isinstance(model, str) and "," not in model, "one name, without a comma")
    check_known("model", (str(model),), flags.models or (str(model),))
    check_holds("n", n, n is None or (type(n) is int and n == 1), "1, since one choice is decided")
    for name in ("stream", "logprobs"):
        check_holds(name, body.get(name), isinstance(body.get(name), bool | None), "true or false")
    count = len(messages) if isinstance(messages := body.get("messages"), list) else 0
    check_holds("messages", count, count <= MOST_MESSAGES, f"at most {MOST_MESSAGES}")
    check_holds("metadata", metadata, metadata is None or isinstance(metadata, dict), "an object")
    key, ref = _header_text(headers, KEY_HEADER, ""), _header_text(headers, REF_HEADER, (metadata or {}).get(REF))
    if flags.key == "header":
        check_holds(KEY_HEADER, key, as_text(KEY_HEADER, key) in keys, "a header with one of the service's keys")
    elif key:
        raise BadInput(f"{KEY_HEADER}: given; this service does not let clients choose a key (--key header)")
    elif flags.key == "model":
        key = str(model)
    elif flags.key == "token":
        if token_key is None:
            raise BadInput("key: this token has none; its line in --tokens must name one")
        key = token_key
    if token_key not in (None, key):  # it could ask, and not rate
        raise RequestFailed(403, f"key: {key!r} decides here; the token is for {token_key!r} (--key token)")
    if ref is not None:
        check_text(REF, 1, ref)
    mode = headers.get(WITHHELD_HEADER, flags.withheld)
    check_known(WITHHELD_HEADER, (mode,), WITHHELD_FORMS)
    if mode == "json" and not flags.withheld_json:
        raise BadInput(f"{WITHHELD_HEADER}: 'json' found; this service has no JSON to reply with (--withheld-json)")
    id = COMPLETION_PREFIX + secrets.token_hex(16)
    return ChatRequest(body, headers, key, id, ref, completions.form_of(mode, body, flags.withheld_value))


def _header_text(headers: ClientHeaders, name: str, default: Any) -> Any:
    try:
        return headers[name].encode("latin-1").decode() if name in headers else default  # as Starlette decoded it
    except UnicodeDecodeError:
        raise BadInput(f"{name}: it must be UTF-8") from None


def _refused_ref() -> RequestFailed:
    return RequestFailed(409, f"{REF}: it was used before; it must be new", param=REF)


class Gateway:
    """Ask the endpoint, and decide on its answers."""

    def __init__(self, state: State, flags: GatewayFlags) -> None:
        """Take the state of the application, whose service decides. ``BadInput`` as in ``add_gateway``."""
        self._flags, self._state, is_secured = flags, state, state.tokens is not None
        self.upstream = Upstream(flags.upstream, flags.upstream_key_variable, flags.upstream_timeout, is_secured)
        self._scorer = scorer_of(flags.score, flags.score_model, flags.samples)
        self._shadow: bool = state.service.shadow
        self._refs_in_progress, self._is_score_noted = set[str](), False
        self.second_model, address = flags.fallback_target
        self._fallback, self._handover = self.upstream, None
        state.closing.append(self.upstream.close)
        if address and self.second_model:  # which has a key apart from the clients'
            self._fallback = Upstream(address, flags.fallback_key_variable, flags.upstream_timeout, True)
            state.closing.append(self._fallback.close)
        elif address:
            self._handover = Handover(address, flags.fallback_key_variable)
            state.closing.append(self._handover.close)

    async def complete(self, chat: ChatRequest) -> dict[str, Any]:
        """Return the completion that the client gets. ``RequestFailed``: it gets an error instead."""
        if chat.ref is None:
            return await self._complete_or_fall_back(chat)
        if chat.ref in self._refs_in_progress:
            raise _refused_ref()
        self._refs_in_progress.add(chat.ref)
        try:
            with suppress(OSError):  # then the decision will fail, too
                if await self._state.call(self._state.service.entries_of, chat.ref):
                    raise _refused_ref()
            return await self._complete_or_fall_back(chat)
        finally:
            self._refs_in_progress.remove(chat.ref)

    async def _complete_or_fall_back(self, chat: ChatRequest) -> dict[str, Any]:
        """Return the completion: the second model's if the first model's answer alone is withheld."""
        flags = self._flags
        completion, report = await self._ask_and_decide(chat, self.upstream)
        hands_over = not report["answer"] and report.get("decided", True)
        if self.second_model and hands_over:
            body, key = chat.body | {"model": self.second_model}, f"{chat.key}{FALLBACK}"
            second_chat = chat._replace(body=body, key=key, id=COMPLETION_PREFIX + secrets.token_hex(16))
            with suppress(RequestFailed):  # the abstention stays
                reply, decision = await self._ask_and_decide(second_chat, self._fallback)
                if decision["answer"]:
                    chat, completion, report = second_chat, reply, decision | {"fallback": self.second_model}
        report = {"id": chat.id, "ref": chat.ref} | report
        if self._handover and hands_over:
            text = completion["choices"][0]["message"]["content"]
            fields = {"question": completions.conversation_of(chat.body), "answer": text, "score": report["score"]}
            report["fallback"] = self._handover.add({"id": chat.id, "ref": chat.ref, "key": chat.key} | fields)
        if not report["answer"]:
            if chat.form == "error":
                raise RequestFailed(400, flags.abstention, report=report, code="content_policy_violation")
            completion = completions.withheld(completion, chat.form, flags.abstention, flags.withheld_value)
        return completion | {"id": chat.id, "exaul": report}

    async def _call(self, call: str, upstream: Upstream, request: Any, headers: ClientHeaders) -> dict[str, Any]:
        """Return the completion for a request. The call is for an answer or a score; it is timed and counted."""
        metrics = self._state.metrics
        try:
            with metrics.upstream_seconds.labels(call).time():
                return await upstream.complete(request, headers, may_wait=call == "score")
        except RequestFailed as failure:
            metrics.upstream_failures.labels(call, failure.status).inc()
            if not isinstance(failure, BodyRefused):  # else it is the client's request, or a scorer tries another
                model = shorten(join_lines(str(request["model"])))
                logger.warning("model %s: %s (%s)", model, failure, upstream.url)
            raise

    async def _ask_and_decide(self, chat: ChatRequest, upstream: Upstream) -> Gated:
        """Ask a model, and decide on its answer. ``RequestFailed``: the client gets an error instead."""
        wants_logprobs, flags = chat.body.get("logprobs") is True, self._flags
        dropped = "stream", "stream_options", *(() if wants_logprobs else ("logprobs", "top_logprobs"))
        request = {name: value for name, value in chat.body.items() if name not in dropped} | self._scorer.fields
        if REF in (request.get("metadata") or {}):  # OpenAI takes metadata only of completions that it stores
            request["metadata"] = {name: x for name, x in request["metadata"].items() if name != REF} or None
        completion = await self._call("answer", upstream, request, chat.headers)
        text, reason = completions.answer_of(completion)
        if not reason:  # the shown text is the scored one, without thoughts
            message = completion["choices"][0]["message"] | {"content": text}
            completion["choices"] = [completion["choices"][0] | {"message": message}]
        score, reason = (math.nan, reason) if reason else await self._score(chat, request, completion, upstream)
        if not wants_logprobs:
            completion["choices"] = [completion["choices"][0] | {"logprobs": None}]
        if reason is not None:
            rules = dict.fromkeys(UNSCORED, flags.without_score) | {"tool_calls": flags.tools}
            return self._undecided(chat, completion, reason, rules.get(reason, flags.undecided))
        try:
            decision = await self._decide(chat, score, text)
        except BadInput:  # somebody used the id or the ref while the model was asked
            raise _refused_ref() from None
        except OSError as error:
            logger.error("the journal cannot be used: %s", error)
            on_error = "answer" if self._shadow else self._state.on_error
            self._state.metrics.failures.labels(on_error).inc()
            if on_error == "refuse":
                raise RequestFailed(503, "the journal cannot be used; repeat the request later", "1") from None
            return self._undecided(chat, completion, "journal", on_error)
        report = {"score": score} | decision._asdict()
        return completion, report | ({"shadow": True} if self._shadow else {})

    async def _score(
        self, chat: ChatRequest, request: Any, completion: Any, upstream: Upstream
    ) -> tuple[float, str | None]:
        """Return the score of an answer and None, or NaN and the reason."""
        try:
            async with asyncio.timeout(self._flags.upstream_timeout):

                async def ask(body: Mapping[str, Any], sample: int = 0) -> Reply:
                    # --score-model is a model of the first endpoint
                    target = upstream if body["model"] == request["model"] else self.upstream
                    return scored_reply(await self._call("score", target, body, chat.headers))

                score = await self._scorer.score(request, scored_reply(completion), ask)
            if not math.isnan(score):
                return as_score(score), None
            reason, trouble = "no_score", "the program of --score returned NaN"
            if self._scorer.fields:
                trouble = f"the reply has {logprobs_fault(completion)}"
            elif self._scorer.sought:  # the reply itself may quote the answer
                model = shorten(join_lines(str(self._flags.score_model or request["model"])))
                trouble = f"the reply of model {model}, which --score asked, lacks {self._scorer.sought}"
        except TimeoutError:
            reason, trouble = "score_timeout", f"it took {self._flags.upstream_timeout:g} s (--upstream-timeout)"
            self._state.metrics.upstream_failures.labels("score", 504).inc()
        except RequestFailed as failure:
            reason, trouble = "score_failed", f"a call for it failed: {failure}"
        except Exception as error:  # of a user's scorer, too; its text may quote the answer
            reason, trouble = "score_failed", type(error).__name__
        logger.warning("an answer has no score: %s (%s)", trouble, chat.id)
        return math.nan, reason

    async def _decide(self, chat: ChatRequest, score: float, text: str) -> AbstainerDecision:
        """Return the decision, and withdraw it on cancellation: nobody will read the answer."""
        service, call, question = self._state.service, self._state.call, completions.conversation_of(chat.body)
        if not self._is_score_noted:  # at the start it may be another by mistake
            await call(service.note, "score", self._flags.score)
            self._is_score_noted = True
        only_shown = bool(self.second_model)  # of two answers, ref names the shown one
        arguments = score, chat.key, chat.id, chat.ref, only_shown, question, text
        task = asyncio.ensure_future(call(service.decide, *arguments))
        try:
            with self._state.metrics.decide_seconds.time():
                return await asyncio.shield(task)
        except asyncio.CancelledError:
            with suppress(OSError):  # then nothing was decided
                await self.withdraw((await task).id)
            raise

    async def withdraw(self, id: str) -> None:
        """Record that an answer was not sent, if there was a decision."""
        try:
            await self._state.call(self._state.service.withdraw, id)
        except OSError as error:
            logger.error("a decision could not be withdrawn: %s", error)

    def _undecided(self, chat: ChatRequest, completion: Any, reason: str, rule: str) -> Gated:
        is_shown = self._shadow or rule == "answer"
        self._state.service.count_undecided(chat.key, reason, "answer" if is_shown else rule)
        report = {"decided": False, "answer": is_shown, "reason": reason}
        if rule == "error" and not is_shown:
            status, flag = (502, "--without-score") if reason in UNSCORED else (400, "--undecided")
            message = f"the upstream's reply cannot be decided ({reason}); {flag} says what is done then"
            details = {"id": chat.id, "ref": chat.ref} | report
            raise RequestFailed(status, message, report=details, code="undecided")
        return completion, report


class GatedReply(Response):
    """The reply to one request. The endpoint is asked when the reply is sent, so that a disconnect is noticed."""

    def __init__(self, gateway: Gateway, chat: ChatRequest) -> None:
        super().__init__()
        self._gateway, self._chat, self._has_started = gateway, chat, False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reply with the completion, or with an error."""
        chat, streams = self._chat, self._chat.body.get("stream") is True
        try:
            wait = partial(self._send_event, send, ": waiting\n\n") if streams else None
            completion, has_left = await _unless_left(self._gateway.complete(chat), receive, wait)
        except RequestFailed as failure:
            failure.headers |= self._decision_headers(failure.body)
            if not self._has_started:
                raise
            await self._send_event(send, f"data: {json.dumps(failure.body)}\n\n", is_last=True)
            return
        if has_left:
            if completion is not None and completion["exaul"].get("decided", True):
                await self._gateway.withdraw(completion["id"])
        elif streams:
            options = chat.body.get("stream_options")
            with_usage = isinstance(options, dict) and options.get("include_usage") is True
            for chunk in completions.chunks(completion, with_usage):
                await self._send_event(send, f"data: {json.dumps(chunk)}\n\n")
            await self._send_event(send, "data: [DONE]\n\n", is_last=True)
        else:
            reply = Response(json.dumps(completion), 200, self._decision_headers(completion), "application/json")
            await reply(scope, receive, send)

    async def _send_event(self, send: Send, text: str, is_last: bool = False) -> None:
        if not self._has_started:  # the head may go out before the decision, and has the id alone
            self._has_started = True
            headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
            if not self._gateway.second_model:  # else the id may be that of the second answer
                headers.append((b"x-exaul-id", self._chat.id.encode()))
            await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text.encode(), "more_body": not is_last})

    def _decision_headers(self, body: Mapping[str, Any]) -> dict[str, str]:
        """Return the headers that say what was decided."""
        report = body.get("exaul", {})
        values = {name: json.dumps(report[name]) for name in ("answer", "score") if name in report}
        key = self._chat.key.encode().decode("latin-1")  # as Starlette encodes it
        values |= {"id": report.get("id", self._chat.id), "key": key}
        return {f"x-exaul-{name}": value for name, value in values.items()}


async def _unless_left(
    work: Coroutine[Any, Any, Any], receive: Receive, wait: Callable[[], Awaitable[None]] | None = None
) -> tuple[Any, bool]:
    """Return a result and False; or, if the client leaves, the result if there is one, and True.

    ``wait`` is called every COMMENT_SECONDS until then; work that is not done is cancelled.
    """

    async def leave() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    work_task, departure = asyncio.ensure_future(work), asyncio.ensure_future(leave())
    try:
        while not (work_task.done() or departure.done()):
            await asyncio.wait((work_task, departure), timeout=COMMENT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if wait is not None and not (work_task.done() or departure.done()):
                await wait()
        return work_task.result() if work_task.done() else None, departure.done()
    finally:
        work_task.cancel()
        departure.cancel()
        await asyncio.gather(work_task, departure, return_exceptions=True)
