"""Connections of the server: their number, the time of a head, and of a reply that is not read.

A connection waits while it has no complete request in progress: it is idle, or its head or body is incomplete, or
its last reply was an error. Only such connections are closed to make space for others; the longest wait ends first.
"""

import contextlib
import sys
import time
from asyncio import Transport
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol
from uvicorn.server import ServerState

from exaul.serving.http import limits
from exaul.serving.http.errors import error_reply


class Connections(ServerState):
    """The open connections, and those that wait, with the time since which they do, longest first."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.waiting: dict[BoundedConnection, float] = {}

    def close_late(self) -> None:
        """Close the connections whose head or reader is late."""
        now = time.monotonic()
        for connection in list(self.connections):
            connection.close_if_late(now)  # type: ignore[union-attr]  # all are of the class below


class BoundedConnection(H11Protocol):
    """Uvicorn's protocol on h11 with limits; uvicorn has none of the head's time nor of a reply's reader."""

    server_state: Connections

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.dropping = False  # the reply was an error: what still arrives is dropped
        self.lines = 0  # of the head and of the chunks of a request
        self.unread_since: float | None = None  # when the system first did not take a reply

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Accept a connection; at the limit, close the one that waits longest, or refuse this one."""
        super().connection_made(transport)
        self._wait()
        while len(self.connections) > self.server_state.limit:
            longest = next(iter(self.server_state.waiting))
            if longest is self:  # all others have a request in progress
                self.refuse(503, "The server is at its limit of connections; try again.")
                return
            longest.drop()

    def drop(self) -> None:
        """Close the connection at once."""
        self.connections.discard(self)  # it counts no longer, before the event loop says that it is lost
        self.server_state.waiting.pop(self, None)
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.server_state.waiting.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what arrived: a head by itself, so that its lines are counted before they are parsed."""
        if not self.dropping and self.conn.their_state is h11.IDLE:
            head, blank, data = data.partition(b"\r\n\r\n")
            self._parse(head + blank)
        if not self.dropping and data:
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        """Parse bytes, unless they have too many lines: h11 takes some microseconds for a header or a chunk."""
        chunked = any(name == b"transfer-encoding" for name, _ in self.headers or [])
        if chunked or self.conn.their_state is h11.IDLE:
            self.lines += data.count(b"\n")
        if self.lines > limits.LINES:
            self.refuse(431, f"At most {limits.LINES} lines of headers and chunks are allowed.")
        else:
            super().data_received(data)

    def handle_events(self) -> None:
        """Start the requests that arrived; a connection with a complete request waits no longer."""
        super().handle_events()
        if self._in_progress() and not self.cycle.more_body and not self.cycle.disconnected:
            self.server_state.waiting.pop(self, None)
            ahead = self.conn.trailing_data[0]  # requests that do not wait for this reply
            if len(ahead) > limits.HEAD_BYTES or ahead.count(b"\n") > limits.LINES:
                self._drop_more()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._wait()
        self.lines = 0
        super().on_response_complete()

    def close_if_late(self, now: float) -> None:
        """Close the connection if the reply is not read, or the head does not arrive."""
        if self.transport.get_write_buffer_size() == 0:
            self.unread_since = None
        elif self.unread_since is None:
            self.unread_since = now
        elif now - self.unread_since > limits.WRITE_SECONDS:
            self.transport.abort()
        if self.transport.is_closing():
            return
        since = self.server_state.waiting.get(self, now)
        if self.dropping:
            if now - since > limits.LINGER_SECONDS:
                self.transport.close()
        elif now - since > limits.HEAD_SECONDS and not self._in_progress():
            if self.conn.trailing_data[0]:
                self.refuse(408, f"The headers did not arrive within {limits.HEAD_SECONDS:g} seconds.")
            else:
                self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP; uvicorn calls this while it handles h11's error, which has the status."""
        if self._in_progress() and not self.cycle.more_body:  # it follows a complete request, which is answered
            self._drop_more()
            return
        status = getattr(sys.exception(), "error_status_hint", 400)
        if status == 431:
            self.refuse(431, f"At most {limits.HEAD_BYTES} bytes of headers are allowed.")
        else:
            self.refuse(status, "The request is not valid HTTP/1.1.")

    def refuse(self, status: int, message: str) -> None:
        """Reply with an error if no reply has started, tell the application that the client is gone, and close."""
        if self._in_progress():
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.dropping = True
        self._wait()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        error = error_reply(status, message, headers={"connection": "close"})
        headers = limits.complete_headers(
            [*self.server_state.default_headers, *error.raw_headers], limits.random_id()
        )
        head = h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status])
        without_body = self._in_progress() and self.scope["method"] == "HEAD"
        for event in (head, h11.Data(data=b"" if without_body else bytes(error.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        with contextlib.suppress(OSError):  # the client is gone
            self.transport.write_eof()  # it sees the end; closing now could discard the reply
        self.flow.resume_reading()

    def shutdown(self) -> None:
        """Close the connection, after the reply if a complete request is in progress."""
        if self._in_progress() and self.cycle.more_body:  # its client may be slow
            self.refuse(503, "The server is stopping.")
        if self.dropping:
            self.transport.close()
        else:
            super().shutdown()

    def _drop_more(self) -> None:
        """Drop what arrives from now on, and close after the reply."""
        self.dropping = True
        self.cycle.keep_alive = False

    def _in_progress(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        self.server_state.waiting.pop(self, None)  # to the end of the order
        self.server_state.waiting[self] = time.monotonic()
