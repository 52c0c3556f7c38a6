"""The gateway: chat completions of a model, of which the service decides which are shown.

The endpoint is asked without a stream, also for clients that want one: a decision needs the whole answer. If a
client disconnects before its answer is sent, the call is cancelled, and a decision that was made is withdrawn.
"""

import asyncio
import json
import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

from fastapi import Body, FastAPI, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from exaul.engine.checks import BadInput, check_holds
from exaul.llm.client import RawResponse
from exaul.llm.matching import matches
from exaul.llm.replies import score_of, text_of
from exaul.serving.abstainer import AbstainerDecision, as_text
from exaul.serving.http.bodies import LONGEST_TEXT
from exaul.serving.http.completions import chunks, question_of, undecided_reason, withheld, without_logprobs
from exaul.serving.http.gateway_flags import GatewayFlags
from exaul.serving.http.upstream import NO_COMPLETION, CompletionFailed, Upstream, completion_of
from exaul.serving.metrics import ServiceMetrics
from exaul.serving.service import Service

COMMENT_SECONDS = 5.0  # between comments in a stream that waits, so that proxies and clients keep it open
LONGEST_SHOWN = 2000  # characters of a question and an answer that the page shows
SHORT_REPLIES = 64 * 1024  # bytes that are read in some milliseconds
SAMPLE_TEMPERATURE = 1.0  # of samples, as in ``exaul collect``
KEY_HEADER = "x-exaul-key"

log = logging.getLogger("exaul.serving")


class UpstreamAnswer(NamedTuple):
    """A completion before the decision."""

    completion: dict[str, Any]
    reason: str | None  # why it cannot be decided, else None
    score: float  # in [0, 1]; NaN if it has none
    text: str  # empty if it cannot be decided


def add_gateway(application: FastAPI, flags: GatewayFlags) -> None:
    """Add the routes of the gateway to an application of ``app``.

    Raises:
        BadInput: the address or the key of the endpoint is invalid.
    """
    state = application.state
    upstream = Upstream(flags.upstream, flags.upstream_key_variable, flags.upstream_timeout, state.secured)
    gateway = Gateway(application, flags, upstream)
    state.closing.append(upstream.close)

    @application.post("/v1/chat/completions", dependencies=[state.require("decide")])
    async def complete(request: Request, body: Annotated[dict[str, Any], Body()]) -> Response:
        """Ask the model, and decide whether its answer is shown. Takes and returns what the model does."""
        stream = body.get("stream")
        check_holds("stream", stream, stream is None or isinstance(stream, bool), "true or false")
        return GatedReply(gateway, body, request.headers, _key_of(request))

    @application.get("/v1/models", dependencies=[state.require("decide")])
    async def models(request: Request) -> Response:
        """Return the models of the endpoint."""
        asking = asyncio.ensure_future(upstream.models(request.headers))
        leaving = asyncio.ensure_future(_wait_for_disconnect(request.receive))
        try:
            await asyncio.wait((asking, leaving), return_when=asyncio.FIRST_COMPLETED)
            names = await asking if asking.done() else None  # else nobody reads the reply
            return Response(json.dumps(names), media_type="application/json")
        except CompletionFailed as failure:
            return failure.reply()
        finally:
            asking.cancel()
            leaving.cancel()
            await asyncio.gather(asking, leaving, return_exceptions=True)


def _key_of(request: Request) -> str:
    try:
        key = request.headers.get(KEY_HEADER, "").encode("latin-1").decode()  # Starlette decodes headers as Latin-1
    except UnicodeDecodeError:
        raise BadInput(f"{KEY_HEADER}: it must be UTF-8") from None
    check_holds(KEY_HEADER, key, len(key) <= LONGEST_TEXT, f"at most {LONGEST_TEXT} characters long")
    return as_text(KEY_HEADER, key)


class Gateway:
    """Asks the endpoint and decides on its answers."""

    def __init__(self, application: FastAPI, flags: GatewayFlags, upstream: Upstream) -> None:
        """Take the application, whose service decides."""
        self._flags, self._upstream, self._state = flags, upstream, application.state
        self._service: Service = application.state.service
        self._metrics: ServiceMetrics = application.state.metrics
        self._reading = asyncio.Lock()

    async def ask(self, request: Mapping[str, Any], headers: Mapping[str, str]) -> UpstreamAnswer:
        """Return the endpoint's answer to a request, with its score.

        Raises:
            CompletionFailed: there is none.
        """
        request = dict(request)
        if request.get("stream"):
            del request["stream"]
            request.pop("stream_options", None)
        decided, count = request.get("n") in (None, 1), self._flags.samples
        scored = decided and count == 0 and not request.get("logprobs")  # by logprobs that the client does not want
        sample = {name: value for name, value in request.items() if name != "seed"}
        samples = [sample | {"temperature": SAMPLE_TEMPERATURE}] * (count if decided else 0)
        first = request | {"logprobs": True} if scored else request
        with self._metrics.upstream_seconds.time():
            replies = await self._upstream.complete([first, *samples], headers)
        if sum(len(reply.body) for reply in replies) <= SHORT_REPLIES:
            answer = _answer_of(replies, count > 0)
        else:  # in a thread, since it would hold up all other clients; several threads together would do so, too
            async with self._reading:
                answer = await asyncio.to_thread(_answer_of, replies, count > 0)
        return answer._replace(completion=without_logprobs(answer.completion)) if scored else answer

    async def decide(self, answer: UpstreamAnswer, question: str, key: str) -> tuple[dict[str, Any], str | None]:
        """Return the completion for the client, and the id of the decision, None if there is none.

        Raises:
            CompletionFailed: the answer has no score, or the journal cannot be written.
        """
        shadow = self._flags.shadow
        if answer.reason is not None:
            return self._undecided(answer, answer.reason, show=True), None
        if math.isnan(answer.score):
            rule = "answer" if shadow else self._flags.without_score
            if rule == "error":
                raise CompletionFailed(
                    502, "the upstream returned no usable logprobs of its answer; see --samples and --without-score"
                )
            return self._undecided(answer, "no_score", rule == "answer"), None
        try:
            decision = await self._decide(answer, question, key)
        except OSError as error:
            log.error("the journal cannot be used: %s", error.strerror)
            on_error = "answer" if shadow else self._state.on_error
            self._metrics.count_failure(on_error)
            if on_error == "refuse":
                raise CompletionFailed(503, "the journal cannot be used; repeat the request later", 1) from None
            return self._undecided(answer, "journal", on_error == "answer"), None
        result = {"id": decision.id, "answer": decision.answer, "probability": decision.probability}
        result |= {"audit": True} if decision.audit else {}
        result |= {"shadow": True} if shadow else {}
        return self._shown(answer, shadow or decision.answer) | {"exaul": result}, decision.id

    async def withdraw(self, id: str) -> None:
        """Record that an answer was not sent."""
        try:
            await self._state.call(self._service.withdraw, id)
        except OSError as error:
            log.error("a decision could not be withdrawn: %s", error.strerror)

    async def _decide(self, answer: UpstreamAnswer, question: str, key: str) -> AbstainerDecision:
        deciding = asyncio.ensure_future(
            self._state.call(
                self._service.decide,
                answer.score,
                key,
                question=question[:LONGEST_SHOWN],
                text=answer.text[:LONGEST_SHOWN],
            )
        )
        try:
            with self._metrics.decide_seconds.time():
                return await asyncio.shield(deciding)
        except asyncio.CancelledError:  # the server stops
            with suppress(OSError):  # then nothing was decided
                await self.withdraw((await deciding).id)
            raise

    def _undecided(self, answer: UpstreamAnswer, reason: str, show: bool) -> dict[str, Any]:
        self._metrics.count_undecided(reason)
        return self._shown(answer, show) | {"exaul": {"decided": False, "answer": show, "reason": reason}}

    def _shown(self, answer: UpstreamAnswer, show: bool) -> dict[str, Any]:
        return answer.completion if show else withheld(answer.completion, self._flags.abstention)


def _answer_of(replies: Sequence[RawResponse], by_samples: bool) -> UpstreamAnswer:
    """Return the answer in the first of several replies; the others are samples.

    Raises:
        CompletionFailed: a reply is not a chat completion.
    """
    completion, *samples = map(completion_of, replies)
    choice = completion["choices"][0]
    try:
        reason = undecided_reason(completion)
        # content in parts, or a thought without an answer, has no score
        text = text_of(choice) if not reason and isinstance(choice["message"].get("content"), str) else ""
        if not text:
            score = math.nan
        elif by_samples:
            score = math.fsum(matches(text_of(each["choices"][0]), [text]) for each in samples) / len(samples)
        else:
            score = _likelihood(choice)
    except (ValueError, LookupError, TypeError, AttributeError):
        raise CompletionFailed(502, NO_COMPLETION) from None
    return UpstreamAnswer(completion, reason, score, text)


def _likelihood(choice: Mapping[str, Any]) -> float:
    try:
        return score_of(choice)
    except (ValueError, LookupError, TypeError, AttributeError):  # of unusable logprobs
        return math.nan


class GatedReply(Response):
    """The reply to one request. The endpoint is asked when the reply is sent, so that a disconnect is noticed."""

    def __init__(self, gateway: Gateway, request: dict[str, Any], headers: Mapping[str, str], key: str) -> None:
        super().__init__()
        self._gateway, self._request, self._client_headers, self._key = gateway, request, headers, key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reply with the completion, or with an error."""
        stream = EventStream(send) if self._request.get("stream") else None
        asking = asyncio.ensure_future(self._gateway.ask(self._request, self._client_headers))
        leaving = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            while not (asking.done() or leaving.done()):
                await asyncio.wait((asking, leaving), timeout=COMMENT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if stream is not None and not (asking.done() or leaving.done()):
                    await stream.send(": waiting\n\n")
            if leaving.done():
                return
            completion, id = await self._gateway.decide(asking.result(), question_of(self._request), self._key)
            if leaving.done():
                if id is not None:
                    await self._gateway.withdraw(id)
                return
        except CompletionFailed as failure:
            if stream is not None and stream.started:
                await stream.send(f"data: {json.dumps(failure.body)}\n\n", last=True)
            else:
                await failure.reply()(scope, receive, send)
            return
        finally:
            asking.cancel()
            leaving.cancel()
            await asyncio.gather(asking, leaving, return_exceptions=True)
        if stream is None:
            await Response(json.dumps(completion), media_type="application/json")(scope, receive, send)
            return
        options = self._request.get("stream_options")
        with_usage = isinstance(options, dict) and options.get("include_usage") is True
        for chunk in chunks(completion, with_usage):
            await stream.send(f"data: {json.dumps(chunk)}\n\n")
        await stream.send("data: [DONE]\n\n", last=True)


class EventStream:
    """Server-sent events of one reply."""

    def __init__(self, send: Send) -> None:
        """Take ASGI's function; send nothing yet."""
        self._send, self.started = send, False

    async def send(self, text: str, last: bool = False) -> None:
        """Send events or a comment."""
        if not self.started:
            self.started = True
            headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": text.encode(), "more_body": not last})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
