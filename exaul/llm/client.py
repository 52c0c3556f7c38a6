"""HTTP client of an OpenAI-compatible endpoint, with retries."""

import asyncio
import json
import os
import random
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time
from typing import TYPE_CHECKING, Any

from exaul.engine.checks import BadInput, join_lines, shorten

if TYPE_CHECKING:
    from aiohttp import ClientSession

REFUSED = 400, 413, 422  # statuses that depend on the request alone: never retried, and stored as refusals
TEMPORARY = 408, 409, 425, 429  # statuses worth a retry, besides 5xx
FIRST, MOST = 0.5, 8.0  # seconds before the first retry, doubled for each further one up to MOST
PATIENCE = 120.0  # longest Retry-After that is obeyed, in seconds; after a longer one the call fails


class CallFailed(Exception):
    """A call without a reply after all retries."""

    def __init__(self, what: str, reply_text: str = "", status: int = 0, temporary: bool = False) -> None:
        """Store the failure, the endpoint's message, the HTTP status (0: none) and whether a retry may help."""
        super().__init__(what)
        self.reply_text, self.status, self.temporary = reply_text, status, temporary


class CallRefused(CallFailed):
    """A call that the endpoint refuses permanently."""


class Client:
    """Send requests to one endpoint. After ``closing`` is set, nothing is retried."""

    def __init__(self, url: str, key: str, retries: int, timeout: float) -> None:
        """Prepare a client; send nothing yet.

        Args:
            url: address of the endpoint, up to ``/v1``.
            key: environment variable that holds the key.
            retries: maximum retries of a temporary failure.
            timeout: seconds per try.

        Raises:
            BadInput: the address is invalid.
        """
        from yarl import URL

        try:
            self._address = URL(f"{url}/chat/completions")
        except ValueError as error:
            raise BadInput(f"endpoint: {url} is not an address ({join_lines(str(error))})") from error
        # Local servers need no key, but the header must not be empty.
        self._key, self._retries, self._timeout = os.environ.get(key) or "none", retries, timeout
        self._session: ClientSession | None = None
        self.closing = False

    async def send(self, request: Mapping[str, Any]) -> tuple[bytes, int]:
        """Return the body of the response and the number of retries; raise CallFailed after the last one."""
        import aiohttp

        for tries in range(self._retries + 1):
            # The jitter keeps concurrent calls that failed together from retrying together.
            wait = min(FIRST * 2**tries, MOST) * random.uniform(0.75, 1.0)
            try:
                async with self._connected().post(self._address, json=request) as response:
                    raw = await response.read()  # inside the timeout, which covers the whole response
                    if response.ok:
                        return raw, tries
                    failed = _failure(response.status, raw)
                    wait = retry_after(response.headers.get("Retry-After", "")) or wait
            except TimeoutError:  # before ClientError: some timeouts of aiohttp are both
                failed = CallFailed("no reply in time", temporary=True)
            except aiohttp.ClientError:
                failed = CallFailed("no connection", temporary=True)
            if tries == self._retries or not failed.temporary or wait > PATIENCE or self.closing:
                break
            await asyncio.sleep(wait)
        raise failed

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    def _connected(self) -> "ClientSession":
        # A session must be created inside the running event loop, so the first request creates it.
        if self._session is None:
            import aiohttp

            self._session = aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {self._key}"},
                timeout=aiohttp.ClientTimeout(total=self._timeout),
                connector=aiohttp.TCPConnector(limit=0),  # ConcurrencyLimit bounds concurrency
                trust_env=True,  # use the proxies of the environment
            )
        return self._session


def _failure(status: int, raw: bytes) -> CallFailed:
    """Extract the error message from a failed response."""
    text = raw.decode(errors="replace")
    try:
        error = json.loads(text)["error"]
        text = error["message"] if isinstance(error, dict) else str(error)
    except (ValueError, KeyError, TypeError):
        pass
    reply_text = shorten(join_lines(str(text).strip()))
    if status in REFUSED:
        return CallRefused(f"status {status}", reply_text, status)
    return CallFailed(f"status {status}", reply_text, status, status in TEMPORARY or status >= 500)


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
