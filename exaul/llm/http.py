"""HTTP without redirects and cookies, with replies of bounded size and time."""

import asyncio
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import anyio
import httpx2

from exaul.engine.checks import BadInput
from exaul.llm.replies import LARGEST_REPLY

_certificates = cache(httpx2.create_ssl_context)  # takes 15 ms


class BoundedClient(httpx2.AsyncClient):
    """A client that reads each reply, whatever its status is; one above LARGEST_REPLY not to its end.

    It uses the proxies of the environment. Callers bound how many requests there are at a time.
    """

    def __init__(self, timeout: float) -> None:
        """Prepare; connect at the first request. ``timeout`` bounds a whole exchange, in seconds.

        Raises:
            BadInput: the environment names a proxy that cannot be used.
        """
        no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))
        try:
            super().__init__(verify=_certificates(), cookies=no_cookies, timeout=timeout, limits=httpx2.Limits())
        except (ValueError, ImportError, httpx2.InvalidURL):  # not printed: it may hold a password
            raise BadInput("proxy: the address in the environment (http_proxy, ...) cannot be used") from None
        self._seconds = timeout
        self.sending = set[asyncio.Task[Any] | None]()  # the tasks whose request is on its way

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Send a request, and return the response with its body; a body that cannot be unpacked is empty.

        Raises:
            httpx2.TimeoutException: the exchange took too long.
            httpx2.HTTPError: there is no response.
        """
        task, body = asyncio.current_task(), bytearray()
        self.sending.add(task)
        try:
            async with asyncio.timeout(self._seconds):  # httpx2 limits each step alone
                response = await super().send(request, stream=True, **options)
                try:
                    packed_twice = "," in response.headers.get("content-encoding", "")  # can grow a million-fold
                    async for piece in response.aiter_raw() if packed_twice else response.aiter_bytes():
                        body += piece
                        if len(body) > LARGEST_REPLY:
                            break
                except httpx2.DecodingError:
                    body.clear()
                finally:
                    await response.aclose()
        except TimeoutError as error:
            raise httpx2.ReadTimeout("no reply in time", request=request) from error
        except (OSError, anyio.EndOfStream) as error:  # of TLS
            raise httpx2.ReadError("no connection", request=request) from error
        finally:
            self.sending.discard(task)
        headers = response.headers.copy()
        for name in ("content-encoding", "content-length", "transfer-encoding"):  # of the body as it was sent
            headers.pop(name, None)
        result = httpx2.Response(response.status_code, headers=headers, content=bytes(body), request=request)
        result.encoding = "utf-8"  # whatever the response says: some of Python's encodings are not of texts
        return result
