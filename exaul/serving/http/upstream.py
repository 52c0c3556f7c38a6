"""The endpoint behind the gateway: its calls, their limit, and its failures as clients see them."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import httpx2
from starlette.responses import Response

from exaul.llm.calls import CallRefused
from exaul.llm.endpoint import MIN_KEY, NO_REPLY_IN_TIME, REFUSALS, read_key
from exaul.llm.http import BoundedClient
from exaul.llm.replies import Reply, Unreadable, check_size, scored_reply
from exaul.llm.scores import Body
from exaul.serving.http.errors import RequestFailed
from exaul.serving.service import for_json

MOST_CALLS = 256  # to the endpoint at a time
LONGEST_MESSAGE = 200  # characters of an endpoint's error message that are passed on
SHORT_REPLY = 64 * 1024  # bytes that are read in some milliseconds
ClientHeaders = Mapping[str, str]  # of a request; CREDENTIALS alone are passed on
CREDENTIALS = "authorization", "openai-organization", "openai-project"
UNAUTHORIZED = 401, 403, 407


class BodyRefused(RequestFailed, CallRefused):
    """The endpoint does not take the body of a request; a scorer may try another."""


class Upstream:
    """Calls to one endpoint. Nothing is retried, and redirects are not followed."""

    def __init__(self, url: str, key_variable: str | None, timeout: float, is_secured: bool) -> None:
        """Prepare; connect at the first call.

        Args:
            url: address of the endpoint, up to ``/v1``.
            key_variable: environment variable that holds the key, or None.
            timeout: seconds per call.
            is_secured: whether clients' credentials are for this service, so that the endpoint must not get them.

        Raises:
            BadInput: the key or a proxy of the environment is invalid.
        """
        self.url, self._key = url, read_key(key_variable)
        self._secret = self._key if self._key and len(self._key) >= MIN_KEY else ""  # which some endpoints repeat
        self._is_secured, self._client = is_secured, BoundedClient(timeout)
        self._calls, self._json_lock = asyncio.Semaphore(MOST_CALLS), asyncio.Lock()

    async def complete(self, request: Body, headers: ClientHeaders, may_wait: bool = False) -> dict[str, Any]:
        """Return the completion for a request. It has one choice, whose message has a text, parts or no content.

        Args:
            request: the body.
            headers: of the client.
            may_wait: wait if there are too many calls, as for a request that was accepted.

        Raises:
            RequestFailed: there is no completion, or there are too many calls.
        """
        completion = await self._send("/chat/completions", headers, may_wait, request)
        match completion:  # of several choices, only one would be decided
            case {"choices": [{"message": {**message}}]} if isinstance(message.get("content") or "", str | list):
                return dict(completion)
        trouble = "the upstream's reply is not a chat completion with one choice"
        raise RequestFailed(502, trouble, **_error_fields(completion))

    async def reply(self, headers: ClientHeaders, body: Body, sample: int = 0) -> Reply:
        """Return the reply to a scorer's body. Each call is a new one, whatever ``sample`` is."""
        return scored_reply(await self.complete(body, headers, may_wait=True))

    async def models(self, headers: ClientHeaders, name: str = "") -> Any:
        """Return the endpoint's list of models, or what it says of one. ``RequestFailed``: there is no reply."""
        return await self._send(f"/models/{quote(name)}" if name else "/models", headers)

    async def forward(self, method: str, path: str, query: str, headers: ClientHeaders, content: bytes) -> Response:
        """Return the reply to a request for another route, whatever its status. ``RequestFailed``: no reply."""
        target = f"/{quote(path)}?{query}" if query else f"/{quote(path)}"
        response = await self.exchange(method, target, headers, content=content or None)
        kind = response.headers.get("content-type")
        if response.status_code >= 600 or not (kind or "").isascii():  # no server may send these
            raise RequestFailed(502, "the upstream's reply has an invalid status or Content-Type")
        body, secret = response.content, self._secret.encode()
        body = body.replace(secret, b"[key]") if secret else body
        return Response(body, response.status_code, media_type=kind)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _send(self, path: str, headers: ClientHeaders, may_wait: bool = False, body: Any = None) -> Any:
        """Return the value in a reply that is a success."""
        # not by httpx2, which refuses NaN and lone surrogates
        method, content = ("GET", None) if body is None else ("POST", json.dumps(body).encode())
        response = await self.exchange(method, path, headers, may_wait, content)
        raw = response.content
        if not response.is_success:
            raise self._failure(response.status_code, response.headers.get("Retry-After", ""), raw)
        try:
            if len(raw) <= SHORT_REPLY:
                return self._parsed(raw)
            async with self._json_lock:  # in a thread, and one at a time: else all clients would wait
                return await asyncio.to_thread(self._parsed, raw)
        except (ValueError, RecursionError):
            raise RequestFailed(502, "the upstream's reply is not JSON") from None

    async def exchange(
        self, method: str, path: str, headers: ClientHeaders, may_wait: bool = False, content: bytes | None = None
    ) -> httpx2.Response:
        """Return the response to a request, whatever its status is; ``content`` is JSON."""
        if {".", ".."} & set(path.partition("?")[0].split("/")):
            raise RequestFailed(404, "no such path")
        if self._calls.locked() and not may_wait:
            raise RequestFailed(503, f"{MOST_CALLS} calls to the upstream are in progress", "1")
        fields: dict[str, Any] = {} if content is None else {"Content-Type": "application/json"}
        if self._key is not None:
            fields["Authorization"] = f"Bearer {self._key}"
        elif not self._is_secured:
            fields |= {name: headers[name].encode("latin-1") for name in CREDENTIALS if name in headers}
        try:
            async with self._calls:
                response = await self._client.request(method, f"{self.url}{path}", headers=fields, content=content)
            check_size(response.content)
            return response
        except httpx2.TimeoutException:
            raise RequestFailed(504, f"the upstream did not reply: {NO_REPLY_IN_TIME}") from None
        except Unreadable as error:
            raise RequestFailed(502, f"the upstream's reply cannot be read: {error}") from None
        except httpx2.HTTPError:
            raise RequestFailed(502, "the upstream did not reply: no connection") from None

    def _failure(self, status: int, retry_header: str, body: bytes) -> RequestFailed:
        """Return the failure of a reply, with the endpoint's error where it is in OpenAI's form."""
        message, fields = f"the upstream replied with status {status}", dict[str, Any]()
        if status in UNAUTHORIZED and (self._key is not None or self._is_secured):
            # the client has no part in it; messages may quote parts of the key
            return RequestFailed(502, f"{message}: it refused the gateway's key")
        with suppress(ValueError, RecursionError):  # a long one would hold up all clients
            fields = _error_fields(self._parsed(body[:SHORT_REPLY]))
        if not 400 <= status < 600:
            return RequestFailed(502, message, **fields)
        kind = BodyRefused if status in REFUSALS else RequestFailed
        retry_header = retry_header if retry_header.isascii() else ""
        return kind(status, message, retry_header, False, **fields)

    def _parsed(self, body: bytes) -> Any:
        """Return the JSON of a body; ``ValueError``, ``RecursionError``: it is not JSON."""
        return for_json(json.loads(body), self._secret)


def _error_fields(value: Any) -> dict[str, Any]:
    """Return the fields of an error in OpenAI's form; nothing if it is in another form."""
    error = value.get("error") if isinstance(value, dict) else None
    fields: dict[str, Any] = error if isinstance(error, dict) else {"message": error}
    names = "message", "type", "param", "code"
    return {name: fields[name][:LONGEST_MESSAGE] for name in names if isinstance(fields.get(name), str)}
