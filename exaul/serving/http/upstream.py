"""The endpoint behind the gateway: its calls, their limit, and its failures as clients see them."""

import asyncio
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from exaul.engine.checks import BadInput, join_lines
from exaul.llm.client import NO_REPLY_IN_TIME, SECRET, CallFailed, RawResponse, exchange, new_session, retry_after
from exaul.llm.replies import Unreadable
from exaul.serving.http.errors import error_body
from exaul.serving.service import without_nan

if TYPE_CHECKING:
    from aiohttp import ClientSession

MOST_CALLS = 256  # to the endpoint at a time
LONGEST_MESSAGE = 2000  # characters of an endpoint's error message that are passed on
CREDENTIALS = "authorization", "openai-organization", "openai-project"  # headers of a client that are passed on
UNAUTHORIZED = 401, 403, 407
ESCAPED = "<>&", "+<>&'`"  # signs that Go and .NET write as \u002b or \u002B
NO_COMPLETION = "the upstream's reply is not a chat completion"


class CompletionFailed(Exception):
    """A request without a completion; nothing was decided."""

    def __init__(self, status: int, message: str, retry_seconds: float = 0, /, **fields: Any) -> None:
        """Take the status and the error of the reply; ``fields`` replace those of ``error_body``."""
        super().__init__(message)
        self.status = status
        self.body = error_body(status, message)
        self.body["error"] |= fields
        self.headers = {"Retry-After": str(math.ceil(retry_seconds))} if 0 < retry_seconds < math.inf else {}

    def reply(self) -> Response:
        """Return the reply."""
        return Response(json.dumps(self.body), self.status, self.headers, "application/json")


class Upstream:
    """Calls to one endpoint. Nothing is retried, and redirects are not followed."""

    def __init__(self, url: str, key_variable: str | None, timeout: float, secured: bool) -> None:
        """Prepare; connect at the first call.

        Args:
            url: address of the endpoint, up to ``/v1``.
            key_variable: environment variable that holds the key, or None.
            timeout: seconds per call.
            secured: whether the clients' credentials are for this service, so that the endpoint must not get them.

        Raises:
            BadInput: the address or the key is invalid.
        """
        from yarl import URL

        try:
            self._completions, self._models = URL(f"{url}/chat/completions"), URL(f"{url}/models")
        except ValueError as error:
            raise BadInput(f"upstream: {url} is not an address ({join_lines(str(error))})") from error
        self._key = os.environ[key_variable] if key_variable else None
        if self._key is not None and not (self._key.isascii() and self._key.isprintable()):  # never print it
            raise BadInput(f"{key_variable}: the key has a character that a header cannot hold")
        self._spellings = _spellings(self._key or "")
        self._timeout, self._secured, self._calls = timeout, secured, 0
        self._session: ClientSession | None = None

    async def complete(
        self, requests: Sequence[Mapping[str, Any]], headers: Mapping[str, str]
    ) -> list[RawResponse]:
        """Return the replies to several requests, sent at the same time; the first failure ends all.

        Args:
            requests: the bodies.
            headers: of the client, of which only credentials are passed on.

        Raises:
            CompletionFailed: a request has no reply, or there are too many calls.
        """
        with self._calling(len(requests)):
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(self._send("POST", self._completions, headers, json=request))
                        for request in requests
                    ]
            except ExceptionGroup as failures:  # those of ``_send``
                raise failures.exceptions[0] from None
            return [task.result() for task in tasks]

    async def models(self, headers: Mapping[str, str]) -> Any:
        """Return the endpoint's list of models. ``CompletionFailed``: there is none."""
        with self._calling(1):
            return _parsed(await self._send("GET", self._models, headers))

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    @contextmanager
    def _calling(self, count: int) -> Iterator[None]:
        if self._calls + count > MOST_CALLS:
            raise CompletionFailed(503, f"{MOST_CALLS} calls to the upstream are in progress", 1)
        self._calls += count
        try:
            yield
        finally:
            self._calls -= count

    async def _send(self, method: str, address: Any, headers: Mapping[str, str], **options: Any) -> RawResponse:
        if self._session is None:
            self._session = new_session(self._timeout)
        try:
            response = await exchange(self._session, method, address, headers=self._credentials(headers), **options)
        except CallFailed as error:
            status = 504 if str(error) == NO_REPLY_IN_TIME else 502
            raise CompletionFailed(status, f"the upstream did not reply: {error}") from None
        except Unreadable as error:
            raise CompletionFailed(502, f"the upstream's reply cannot be read: {error}") from None
        body = response.body
        for spelling in self._spellings:  # some endpoints repeat it
            body = body.replace(spelling, b"[key]")
        response = response._replace(body=body)
        if not 200 <= response.status < 300:
            raise self._failure(response)
        return response

    def _credentials(self, headers: Mapping[str, str]) -> dict[str, str]:
        if self._key is not None:
            return {"Authorization": f"Bearer {self._key}"}
        return {} if self._secured else {name: headers[name] for name in CREDENTIALS if name in headers}

    def _failure(self, response: RawResponse) -> CompletionFailed:
        """Return the failure of a response, with the endpoint's error where it is in OpenAI's form."""
        status, message = response.status, f"the upstream replied with status {response.status}"
        if status in UNAUTHORIZED and (self._key is not None or self._secured):
            # the client has no part in it; messages may quote parts of the key
            return CompletionFailed(502, f"{message}: it refused the gateway's key")
        status = status if 400 <= status < 600 else 502
        wait = retry_after(response.headers.get("Retry-After", ""))
        return CompletionFailed(status, message, wait, **_error_fields(response.body))


def _spellings(key: str) -> set[bytes]:
    """Return how JSON may write a key; none for a short one, which is no secret. Some programs escape signs."""
    plain = json.dumps(key)[1:-1]
    escaped = {
        "".join(form % ord(sign) if sign in signs else sign for sign in plain)
        for signs in ESCAPED
        for form in (r"\u%04x", r"\u%04X")
    }
    spellings = {key, plain, plain.replace("/", r"\/")} | escaped
    return {text.encode() for text in spellings} if len(key) >= SECRET else set()


def completion_of(response: RawResponse) -> dict[str, Any]:
    """Return the chat completion in a reply; each of its choices has a message.

    Raises:
        CompletionFailed: there is none.
    """
    completion = _parsed(response)
    choices = completion.get("choices") if isinstance(completion, dict) else None
    if (
        isinstance(choices, list)
        and choices
        and all(isinstance(choice, dict) and isinstance(choice.get("message"), dict) for choice in choices)
    ):
        return dict(completion)
    raise CompletionFailed(502, NO_COMPLETION, **_error_fields(response.body))


def _parsed(response: RawResponse) -> Any:
    """Return the JSON of a response, without NaN, which JSON has not."""
    try:
        return without_nan(json.loads(response.body))
    except (ValueError, RecursionError):
        raise CompletionFailed(502, "the upstream's reply is not JSON") from None


def _error_fields(body: bytes) -> dict[str, Any]:
    """Return the fields of an error in OpenAI's form; nothing if it is in another form."""
    try:
        error = json.loads(body)["error"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return {}
    fields = error if isinstance(error, dict) else {"message": error}
    return {
        name: value[:LONGEST_MESSAGE]
        for name in ("message", "type", "param", "code")
        if isinstance(value := fields.get(name), str)
    }
