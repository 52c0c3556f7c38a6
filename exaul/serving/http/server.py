"""Run an ASGI application with uvicorn, on one address and in one process: a journal has one writer."""

import asyncio
import contextlib
import errno
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from exaul.engine.checks import BadInput, quote
from exaul.serving.http.errors import error_reply

CONNECTIONS = 512  # open at a time; requests on as many further ones get status 503, and more are closed at once
HEAD_BYTES = 16 * 1024  # of the request line and the headers
HEAD_SECONDS = 10  # from the connection or the previous reply until the head is complete
SHUTDOWN_SECONDS = 20  # for requests in progress to finish; Kubernetes kills after 30


class TimedConnection(H11Protocol):
    """Uvicorn's protocol on h11; its timer of idle connections also ends late heads, and its errors are ours."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Start the timer, which uvicorn does after the first reply; of too many connections, refuse this one."""
        super().connection_made(transport)
        with contextlib.suppress(AttributeError):  # of other loops than asyncio's
            transport.max_size = HEAD_BYTES  # type: ignore[attr-defined]  # read at once, and parsed without a pause
        if len(self.connections) > 2 * CONNECTIONS:
            transport.abort()
        elif len(self.connections) > CONNECTIONS:  # uvicorn's own limit refuses requests on all, in plain text
            self.app = error_reply(503, "Too many connections; repeat later.", headers={"Connection": "close"})
        self.timeout_keep_alive_task = self.loop.call_later(HEAD_SECONDS, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        """Parse data. Uvicorn would stop the timer here, though the rest of a head may never come."""
        self.conn.receive_data(data)
        self.handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._unset_keepalive_if_required()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP; uvicorn calls this while it handles h11's error, which has the status."""
        in_progress = self.cycle is not None and not self.cycle.response_complete
        if in_progress and not self.cycle.more_body:  # it follows a complete request, which is answered
            self.cycle.keep_alive = False
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # no reply has started
            status = getattr(sys.exception(), "error_status_hint", 400)
            error = error_reply(status, "The request is not valid HTTP/1.1.", headers={"Connection": "close"})
            head = h11.Response(status_code=status, headers=error.raw_headers, reason=STATUS_PHRASES[status])
            body = b"" if in_progress and self.scope["method"] == "HEAD" else bytes(error.body)
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class BoundedServer(uvicorn.Server):
    """Uvicorn with limits, which calls functions when it accepts requests, and on SIGHUP."""

    def __init__(
        self, application: ASGIApp, on_started: Callable[[], None], on_hangup: Callable[[], None] = lambda: None
    ) -> None:
        config = uvicorn.Config(
            application,
            http=TimedConnection,
            ws="none",
            lifespan="on",  # "auto" would serve an application that failed to start
            log_config=None,
            log_level="error",  # a warning per malformed request would let clients fill the log
            server_header=False,
            backlog=128,  # also how many connections asyncio accepts at once
            h11_max_incomplete_event_size=HEAD_BYTES,
            timeout_keep_alive=HEAD_SECONDS,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        super().__init__(config)
        self._on_started, self._on_hangup = on_started, on_hangup

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then accept requests."""
        _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(ValueError, OSError):  # often 1,024 files may be open, which are too few
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
        await super().startup(sockets)
        if self.started:
            self._on_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM with status 0; uvicorn would raise the signal again."""
        if threading.current_thread() is threading.main_thread():  # no other thread may handle signals
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; port 0 is any that is free. ``BadInput``: it cannot listen."""
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        # With its protocol, which create_server leaves out: asyncio sends at once (TCP_NODELAY) only if it is TCP.
        return socket.socket(fileno=listener.detach())
    except (OSError, UnicodeError) as error:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise BadInput(f"port: {port} is in use on {host}; it must be free, or 0 for any that is") from None
        raise BadInput(f"host: {quote(host)} found; it must be one where this user may open port {port}") from None


def address_of(listener: socket.socket) -> str:
    """Return the address of a listening socket, http://HOST:PORT."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
