"""One request to an OpenAI-compatible endpoint, and again where that may help."""

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

REFUSED = 400, 413, 422  # statuses of a request that no second try will change
PASSING = 408, 409, 425, 429  # those after which one may help, besides all of a server that failed
FIRST, MOST = 0.5, 8.0  # seconds before the second try, then twice as long each time; at most
PATIENCE = 120.0  # seconds that an endpoint may ask to be left alone


class CallFailed(Exception):
    """A call that got no reply, whatever was tried."""

    def __init__(self, what: str, reply_text: str = "", status: int = 0, passing: bool = False) -> None:
        """Say why.

        Args:
            what: went wrong, in a few words.
            reply_text: by the endpoint.
            status: that it replied with, 0 if it did not reply.
            passing: whether another try might have helped.
        """
        super().__init__(what)
        self.said, self.status, self.passing = reply_text, status, passing


class CallRefused(CallFailed):
    """A call to which the endpoint will never reply."""


class Client:
    """Sends requests to one endpoint; where it is ``closing``, none is sent again."""

    def __init__(self, url: str, key: str, retries: int, timeout: float) -> None:
        """Reach an endpoint; nothing is asked yet.

        Args:
            url: of the endpoint, up to ``/v1``.
            key: environment variable that holds the key.
            retries: of a request that the endpoint refuses for now, that takes too long, or that breaks off.
            timeout: seconds of a try.

        Raises:
            BadInput: the address is none.
        """
        from yarl import URL

        try:
            self._address = URL(f"{url}/chat/completions")
        except ValueError as error:
            raise BadInput(f"endpoint: {url} is no address ({join_lines(str(error))})") from error
        self._key, self._retries, self._timeout = os.environ.get(key) or "none", retries, timeout
        self._session: ClientSession | None = None
        self.closing = False

    async def send(self, request: Mapping[str, Any]) -> tuple[bytes, int]:
        """The reply to a request, and how many tries there were before it.

        Raises:
            Failed: there is none, after all retries.
        """
        import aiohttp

        for tries in range(self._retries + 1):
            wait = min(FIRST * 2**tries, MOST) * random.uniform(0.75, 1.0)
            try:
                async with self._connected().post(self._address, json=request) as response:
                    raw = await response.read()
                    if response.ok:
                        return raw, tries
                    failed = _failure(response.status, raw)
                    wait = request_call(response.headers.get("Retry-After", "")) or wait
            except TimeoutError:
                failed = CallFailed("no reply in time", passing=True)
            except aiohttp.ClientError:
                failed = CallFailed("no connection", passing=True)
            if tries == self._retries or not failed.passing or wait > PATIENCE or self.closing:
                break
            await asyncio.sleep(wait)
        raise failed

    async def close(self) -> None:
        """Leave the endpoint."""
        if self._session is not None:
            await self._session.close()

    def _connected(self) -> "ClientSession":
        if self._session is None:
            import aiohttp

            self._session = aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {self._key}"},
                timeout=aiohttp.ClientTimeout(total=self._timeout),
                connector=aiohttp.TCPConnector(limit=0),  # the gate before it has a limit
                trust_env=True,  # proxies, as other programs take them
            )
        return self._session


def _failure(status: int, raw: bytes) -> CallFailed:
    """What a reply that is none says: the message of the protocol, or all that there is."""
    text = raw.decode(errors="replace")
    try:
        error = json.loads(text)["error"]
        text = error["message"] if isinstance(error, dict) else str(error)
    except (ValueError, KeyError, TypeError):
        pass
    reply_text = shorten(join_lines(str(text).strip()))
    if status in REFUSED:
        return CallRefused(f"status {status}", reply_text, status)
    return CallFailed(f"status {status}", reply_text, status, status in PASSING or status >= 500)


def request_call(header: str) -> float:
    """Seconds that a Retry-After asks for, by a number or a date; 0 where it is neither."""
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time())
    except (ValueError, OverflowError):
        return 0.0
