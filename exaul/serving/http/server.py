"""Run an ASGI application with uvicorn, on one address and in one process."""

import contextlib
import errno
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator

import uvicorn

from exaul.engine.checks import BadInput, check_holds, quote
from exaul.serving.http import limits
from exaul.serving.http.connections import BoundedConnection, Connections

STARTUP_FAILURE = 3  # exit status, as uvicorn's
SPARE_FILES = 256  # of the process, beside those of connections


def serve(
    application: limits.Application,
    host: str,
    port: int,
    on_started: Callable[[str], None],
) -> None:
    """Serve an application until SIGINT or SIGTERM, then finish the requests in progress and end its lifespan.

    There is one process on purpose: a journal has one writer.

    Args:
        application: ASGI, with lifespan; ``Limits(...)`` keeps the limits of a request.
        host: a name or an address of this machine.
        port: 0 for any that is free.
        on_started: gets the address, such as http://127.0.0.1:8321, when the server accepts requests.

    Raises:
        BadInput: the host is unknown, or the port is in use or not allowed.
        SystemExit: the application did not start; the log says why.
    """
    with listen(host, port) as listener:
        server = BoundedServer(application, lambda: on_started(address_of(listener)))
        with handled_signals(server):
            server.run(sockets=[listener])
        if not server.started:
            sys.exit(STARTUP_FAILURE)


class BoundedServer(uvicorn.Server):
    """Uvicorn with limits of connections; ``on_started`` is called when requests are accepted."""

    server_state: Connections

    def __init__(self, application: limits.Application, on_started: Callable[[], None]) -> None:
        connections = allow_files()
        config = uvicorn.Config(
            application,
            http=BoundedConnection,
            loop="asyncio",
            ws="none",
            lifespan="on",  # "auto" would serve an application that failed to start
            interface="asgi3",
            log_config=None,
            log_level="error",  # a warning per malformed request would let clients fill the log
            access_log=False,
            server_header=False,
            proxy_headers=False,
            workers=1,
            # How many asyncio accepts at once. It takes some rounds of the loop until one over the limit is closed,
            # and each round accepts so many more: with all at once, the process would run out of files.
            backlog=max(1, connections // 8),
            h11_max_incomplete_event_size=limits.HEAD_BYTES,
            timeout_keep_alive=limits.HEAD_SECONDS,  # type: ignore[arg-type]  # a float will do
            timeout_graceful_shutdown=limits.SHUTDOWN_SECONDS,
        )
        super().__init__(config)
        self.server_state = Connections(connections)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then accept requests."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(limits.BACKLOG)  # asyncio's own is also how many are accepted at once
        if self.started:
            self._on_started()

    async def on_tick(self, counter: int) -> bool:
        """Close late connections, ten times a second."""
        self.server_state.close_late()
        return await super().on_tick(counter)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the first address of a host, IPv4 before IPv6.

    Raises:
        BadInput: as ``serve``.
    """
    check_holds("port", port, 0 <= port <= 65535, "from 0 to 65535")
    check_holds("host", host, bool(host), "a name or an address of this machine")
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise BadInput(f"host: {quote(host)} is unknown; it must be a name or an address of this machine") from None
    family, kind, protocol, _, address = min(addresses, key=lambda each: each[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        if sys.platform != "win32":  # there it would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # connections inherit these sizes: they bound the system's memory, and what is parsed at once
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.SOCKET_BYTES)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.SOCKET_BYTES)
        listener.bind(address)
        listener.listen(limits.BACKLOG)
    except OSError as error:
        listener.close()
        reasons = {
            errno.EADDRINUSE: f"port: {port} is in use on {host}; choose another, or 0 for any that is free",
            errno.EADDRNOTAVAIL: f"host: {quote(host)} found; it must be a name or an address of this machine",
            errno.EACCES: f"port: {port} found; this user may not open it, but ports above 1023",
        }
        raise BadInput(reasons.get(error.errno or 0, f"port: {port} on {host}: {error.strerror}")) from None
    return listener


def address_of(listener: socket.socket) -> str:
    """Return the address of a listening socket, http://HOST:PORT."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def allow_files() -> int:
    """Let the process open enough files, and return how many connections may be open."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return limits.CONNECTIONS
    needed = 2 * limits.CONNECTIONS + SPARE_FILES  # open ones, and those accepted before others are closed
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return limits.CONNECTIONS
    return max(1, (soft - SPARE_FILES) // 2)


@contextlib.contextmanager
def handled_signals(server: uvicorn.Server) -> Iterator[None]:
    """Stop the server on SIGINT and SIGTERM.

    Uvicorn raises the signal again after it stopped; with its own handler around it, the status is 0.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.signal(number, server.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
