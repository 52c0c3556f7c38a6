"""Limits of connections, requests and replies, and the middleware that keeps those of a single request.

A request reaches the application when all of it has arrived, so the application never waits for a slow client.
The limits of connections, heads and unread replies are kept in ``connections.py``.
"""

import asyncio
import logging
import re
import secrets
import traceback
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from exaul.serving.http.errors import SECURITY_HEADERS, error_reply

CONNECTIONS = 1024  # open at a time
BACKLOG = 4096  # that the system keeps until they are accepted; a client beyond it tries again after a second
HEAD_BYTES = 16 * 1024  # of the request line and the headers
HEADERS = 100  # of a request
LINES = 1024  # of a head, of the chunks of a body (two each), and of requests that are sent before a reply
HEAD_SECONDS = 10.0  # from the connection or the previous reply until the head is complete
BODY_BYTES = 1024 * 1024  # of a request
BODY_SECONDS = 10.0  # from the head until the body is complete
WRITE_SECONDS = 30.0  # until a reply is read
SHUTDOWN_SECONDS = 25  # for requests in progress to finish; Kubernetes kills after 30
LINGER_SECONDS = 2.0  # after an error, what the client still sends is read and dropped, so that it gets the reply
INCOMPLETE_BYTES = 64 * 1024 * 1024  # of all incomplete bodies; above it, bodies of over SMALL_BYTES are refused
SMALL_BYTES = 64 * 1024
SOCKET_BYTES = 64 * 1024  # that the system keeps for a connection, in each direction

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
SAFE_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

logger = logging.getLogger(__name__)


class RefusedRequest(Exception):
    """A request that gets an error: its status and one sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Limits:
    """ASGI middleware: checks a request, reads its body, and adds the headers of every reply.

    ``scope["state"]["request_id"]`` is the id of the request.

    Args:
        application: gets requests whose body has arrived; it is one message.
        hosts: the names that the Host header may have, without port; any if None. LOOPBACK_HOSTS stops pages of
            other sites whose name was changed to a loopback address (DNS rebinding).
    """

    def __init__(self, application: Application, hosts: Collection[str] | None = None) -> None:
        self.application = application
        self.hosts = hosts
        self.incomplete = 0  # bytes of all incomplete bodies

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Pass a request on, or reply with an error."""
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        request_id = safe_id(scope["headers"])
        scope.setdefault("state", {})["request_id"] = request_id.decode()
        reply = BoundedReply(send, request_id)
        try:
            check_head(scope, self.hosts)
            body = await self._read(receive)
        except RefusedRequest as refused:
            await reply.refuse(refused.status, refused.message, receive)
            return
        if body is None:  # the client is gone
            return
        try:
            await self.application(scope, complete(body, receive), reply.send)
        except asyncio.CancelledError:  # SHUTDOWN_SECONDS are over
            await reply.refuse(503, "The server was stopped before the reply was complete.")
            raise
        except Exception as error:
            _log(error)
            await reply.refuse(500, "The server failed; its log has the details.")

    async def _read(self, receive: Receive) -> bytes | None:
        """Return the body, or None if the client disconnects.

        Raises:
            RefusedRequest: the body is too long or too slow.
        """
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return None
                    part = message.get("body", b"")
                    body += part
                    self.incomplete += len(part)
                    if len(body) > BODY_BYTES:
                        raise RefusedRequest(413, f"The body is too long: at most {BODY_BYTES} bytes are allowed.")
                    if not message.get("more_body", False):
                        return bytes(body)
                    if self.incomplete > INCOMPLETE_BYTES and len(body) > SMALL_BYTES:
                        raise RefusedRequest(503, "The server is receiving too many long requests; try again.")
        except TimeoutError:
            raise RefusedRequest(408, f"The body did not arrive within {BODY_SECONDS:g} seconds.") from None
        finally:
            self.incomplete -= len(body)


class BoundedReply:
    """The reply to a request: adds its id and the security headers, and knows whether it has started."""

    def __init__(self, send: Send, request_id: bytes) -> None:
        self._send = send
        self._request_id = request_id
        self._started = False

    async def send(self, message: Message) -> None:
        """Send a message of the application."""
        if message["type"] == "http.response.start":
            self._started = True
            headers = [(name.lower(), value) for name, value in message.get("headers", [])]
            message = {**message, "headers": complete_headers(headers, self._request_id)}
        await self._send(message)
        if message.get("more_body", False):
            await asyncio.sleep(0)  # a long stream lets others run, and a disconnect is seen

    async def refuse(self, status: int, message: str, receive: Receive | None = None) -> None:
        """Reply with an error, then drop what the client still sends for LINGER_SECONDS.

        If a reply has started, nothing is sent: the server closes a connection whose reply is incomplete.
        """
        if self._started:
            return
        error = error_reply(status, message, headers={"connection": "close"})
        await self.send({"type": "http.response.start", "status": status, "headers": error.raw_headers})
        await self.send({"type": "http.response.body", "body": error.body, "more_body": True})
        if receive is not None:
            await _drop(receive)
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})


def check_head(scope: MutableMapping[str, Any], hosts: Collection[str] | None) -> None:
    """Raise RefusedRequest unless headers, version, method, host and announced body are allowed."""
    headers = scope["headers"]
    size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    size += sum(len(name) + len(value) + 4 for name, value in headers)
    if size > HEAD_BYTES or len(headers) > HEADERS:
        raise RefusedRequest(431, f"At most {HEADERS} headers and {HEAD_BYTES} bytes of headers are allowed.")
    if scope["http_version"] not in ("1.0", "1.1"):
        raise RefusedRequest(505, "The protocol must be HTTP/1.1 or HTTP/1.0.")
    if scope["method"] == "CONNECT":  # for proxies; its reply would have no body
        raise RefusedRequest(501, "The method CONNECT is not supported.")
    if hosts is not None and host_of(headers) not in hosts:
        allowed = " or ".join(sorted(hosts))
        raise RefusedRequest(421, f"The Host header must be {allowed}.")
    lengths = [value for name, value in headers if name == b"content-length"]
    chunked = any(name == b"transfer-encoding" for name, _ in headers)
    if chunked and lengths:  # a proxy in front could see another end of the body (request smuggling)
        raise RefusedRequest(400, "A request has a Content-Length or a Transfer-Encoding, not both.")
    if (chunked or lengths not in ([], [b"0"])) and not is_json(headers):
        raise RefusedRequest(415, "The Content-Type of a body must be application/json.")
    if lengths and int(lengths[0]) > BODY_BYTES:  # the parser has checked that it is a number
        raise RefusedRequest(413, f"The body is too long: at most {BODY_BYTES} bytes are allowed.")


def host_of(headers: list[tuple[bytes, bytes]]) -> str:
    """Return the Host header in lower case without port, or an empty text if there is none."""
    host = next((value for name, value in headers if name == b"host"), b"").decode("latin-1").lower()
    return re.sub(r":\d*$", "", host)


def is_json(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether there is one Content-Type, and it is JSON."""
    types = [value for name, value in headers if name == b"content-type"]
    return len(types) == 1 and types[0].partition(b";")[0].strip().lower() == b"application/json"


def safe_id(headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return the request's own id if it is safe to repeat, else a random one."""
    given = [value for name, value in headers if name == b"x-request-id"]
    return given[0] if len(given) == 1 and SAFE_ID.fullmatch(given[0]) else random_id()


def random_id() -> bytes:
    """Return an id for a request without one."""
    return secrets.token_hex(16).encode()


def complete_headers(headers: list[tuple[bytes, bytes]], request_id: bytes) -> list[tuple[bytes, bytes]]:
    """Add the request's id, and the security headers that are not set."""
    names = {name for name, _ in headers}
    kept = [(name, value) for name, value in headers if name not in (b"server", b"x-request-id")]
    added = [(name, value) for name, value in SECURITY_HEADERS.items() if name not in names]
    return [*kept, *added, (b"x-request-id", request_id)]


def complete(body: bytes, receive: Receive) -> Receive:
    """Return a function that gives the body at its first call, and then waits for the client to disconnect."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return messages.pop() if messages else await receive()

    return next_message


async def _drop(receive: Receive) -> None:
    try:
        async with asyncio.timeout(LINGER_SECONDS):
            while (await receive()).get("more_body", False):
                pass
    except TimeoutError:
        pass


def _log(error: Exception) -> None:
    """Log where an exception comes from, without its text, which may quote a body."""
    stack = "".join(traceback.format_tb(error.__traceback__))
    logger.error("%s in the application; its text is left out:\n%s", type(error).__name__, stack)
