"""HTTP client of an OpenAI-compatible endpoint, with retries."""

import asyncio
import json
import os
import random
from collections.abc import Awaitable, Mapping
from email.utils import parsedate_to_datetime
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple

from exaul.engine.checks import BadInput, join_lines, shorten
from exaul.llm.replies import Unreadable

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from yarl import URL

REFUSED = 400, 413, 422  # statuses that depend on the request alone: never retried, and stored as refusals
TEMPORARY = 408, 409, 425, 429  # statuses worth a retry, besides 5xx
FIRST, MOST = 0.5, 8.0  # seconds before the first retry, doubled for each further one up to MOST
LARGEST = 2**24  # bytes of a response that are read, after decompression
SECRET = 8  # characters from which on a key is removed from texts; keyless servers get words such as EMPTY
NO_REPLY_IN_TIME = "no reply in time"
PATIENCE = 120.0  # longest Retry-After that is obeyed, in seconds; after a longer one the call fails


class RawResponse(NamedTuple):
    """A response of any status."""

    status: int
    headers: Mapping[str, str]
    body: bytes  # at most LARGEST


class CallFailed(Exception):
    """A call without a reply after all retries."""

    def __init__(self, what: str, reply_text: str = "", status: int = 0, temporary: bool = False) -> None:
        """Store the failure, the endpoint's message, the HTTP status (0: none) and whether a retry may help."""
        super().__init__(what)
        self.reply_text, self.status, self.temporary = reply_text, status, temporary


class CallRefused(CallFailed):
    """A call that the endpoint refuses permanently."""


class Client:
    """Send requests to one endpoint. After ``closing`` is set, nothing waits and nothing is retried."""

    def __init__(self, url: str, key: str, retries: int, timeout: float) -> None:
        """Prepare a client; send nothing yet.

        Args:
            url: address of the endpoint, up to ``/v1``.
            key: environment variable that holds the key.
            retries: maximum retries of a temporary failure.
            timeout: seconds per try.

        Raises:
            BadInput: the address or the key is invalid.
        """
        from yarl import URL

        try:
            self._address = URL(f"{url}/chat/completions")
        except ValueError as error:
            raise BadInput(f"endpoint: {url} is not an address ({join_lines(str(error))})") from error
        # Local servers need no key, but the header must not be empty.
        self._key, self._retries, self._timeout = os.environ.get(key) or "none", retries, timeout
        if not (self._key.isascii() and self._key.isprintable()):  # never print it
            raise BadInput(f"{key}: the key has a line break or another character that a header cannot hold")
        self._session: ClientSession | None = None
        self.closing = asyncio.Event()

    def redact(self, text: str) -> str:
        """Remove the key from a text: some endpoints repeat it."""
        return text.replace(self._key, "[key]") if len(self._key) >= SECRET else text

    async def wait_for(self, event: Awaitable[Any]) -> None:
        """Wait for an event, or until ``closing`` is set."""
        tasks = [asyncio.ensure_future(each) for each in (event, self.closing.wait())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()

    async def send(self, request: Mapping[str, Any]) -> tuple[bytes, int]:
        """Return the body of the response and the number of retries.

        Raises:
            CallFailed: there is no response after the last retry.
            Unreadable: the response is too large, or its HTTP or its compression is broken.
        """
        for tries in range(self._retries + 1):
            # The jitter keeps concurrent calls that failed together from retrying together.
            wait = min(FIRST * 2**tries, MOST) * random.uniform(0.75, 1.0)
            try:
                response = await exchange(self._connected(), "POST", self._address, json=request)
                if 200 <= response.status < 300:
                    return response.body, tries
                failed = self._failure(response)
                wait = retry_after(response.headers.get("Retry-After", "")) or wait
            except CallFailed as error:
                failed = error
            if tries == self._retries or not failed.temporary or wait > PATIENCE:
                break
            await self.wait_for(asyncio.sleep(wait))
            if self.closing.is_set():
                break
        raise failed

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    def _connected(self) -> "ClientSession":
        if self._session is None:
            self._session = new_session(self._timeout, {"Authorization": f"Bearer {self._key}"})
        return self._session

    def _failure(self, response: RawResponse) -> CallFailed:
        """Return the failure of a response, with its error message or the address to which it redirects."""
        status, headers, raw = response
        text = raw.decode(errors="replace")
        try:
            error = json.loads(text)["error"]
            text = str(error["message"] if isinstance(error, dict) else error)
        except (ValueError, LookupError, TypeError, RecursionError):
            pass
        if 300 <= status < 400:
            text = f"it redirects to {headers.get('Location', 'nowhere')}"
        reply_text = join_lines(shorten(self.redact(text).strip()))
        if status in REFUSED:
            return CallRefused(f"status {status}", reply_text, status)
        return CallFailed(f"status {status}", reply_text, status, status in TEMPORARY or status >= 500)


def new_session(timeout: float, headers: Mapping[str, str] | None = None) -> "ClientSession":
    """Return a session for ``exchange``; ``timeout`` is that of a whole exchange, in seconds.

    It must be created inside the running event loop.
    """
    import aiohttp

    return aiohttp.ClientSession(
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=timeout),
        cookie_jar=aiohttp.DummyCookieJar(),  # cookies are not sent back, and bad ones not logged
        connector=aiohttp.TCPConnector(limit=0),  # the callers bound concurrency
        trust_env=True,  # use the proxies of the environment
    )


async def exchange(session: "ClientSession", method: str, address: "URL", **options: Any) -> RawResponse:
    """Send a request once, and return its response whatever the status is.

    Args:
        session: as of ``new_session``.
        method: GET or POST.
        address: where to send it.
        options: ``json`` and ``headers``, as aiohttp takes them.

    Raises:
        CallFailed: there is no response.
        Unreadable: the response is too large, or its HTTP or its compression is broken.
    """
    import aiohttp
    from aiohttp.http_exceptions import ContentEncodingError

    try:
        # A redirect would turn the request into a GET, or send prompts to an address that nobody named.
        async with session.request(method, address, allow_redirects=False, **options) as response:
            body = await _body(response)  # inside the timeout, which covers the whole response
            return RawResponse(response.status, response.headers, body)
    except TimeoutError as error:  # before ClientError: some timeouts of aiohttp are both
        raise CallFailed(NO_REPLY_IN_TIME, temporary=True) from error
    except Unreadable:
        raise
    except ValueError as error:  # not printed: the address of a proxy may hold a password
        raise CallFailed("no connection", "the address or that of a proxy is invalid") from error
    except aiohttp.ClientError as error:
        bad_http = type(error) is aiohttp.ClientResponseError  # its subclasses are failures of proxies
        if bad_http or isinstance(error.__cause__, ContentEncodingError):
            raise Unreadable("its HTTP or its compression is broken") from error
        raise CallFailed("no connection", temporary=True) from error


async def _body(response: "ClientResponse") -> bytes:
    """Return the body of a response; raise Unreadable if it is longer than LARGEST."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > LARGEST:
            raise Unreadable(f"it has more than {LARGEST >> 20} MiB")
    return bytes(body)


def retry_after(header: str) -> float:
    """Return the seconds of a Retry-After header, a number or a date; 0 if it is neither."""
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time())
    except (ValueError, OverflowError):
        return 0.0
