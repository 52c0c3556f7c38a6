"""Applications, a server and clients of the tests of HTTP."""

import asyncio
import contextlib
import socket
import threading
import time

from exaul.serving.http.guard import Guard
from exaul.serving.http.server import BoundedServer, address_of, listen

OPENED = []  # sockets of clients, which are closed after each test


class Recorder:
    """An ASGI application that records what it gets; its path chooses what it does."""

    def __init__(self):
        self.bodies = []
        self.ids = []
        self.events = []
        self.release = asyncio.Event()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await self.live(receive, send)
            return
        self.ids.append(scope["state"]["request_id"])
        message = await receive()
        self.bodies.append(message["body"])
        assert not message["more_body"]
        await getattr(self, scope["path"].strip("/") or "echo")(message["body"], receive, send)

    async def live(self, receive, send):
        await receive()
        self.events.append("start")
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.events.append("end")
        await send({"type": "lifespan.shutdown.complete"})

    async def echo(self, body, receive, send):
        await start(send, [(b"content-length", str(len(body)).encode())])
        await send({"type": "http.response.body", "body": body})

    async def page(self, body, receive, send):
        await start(send, [(b"content-security-policy", b"default-src 'self'")])
        await send({"type": "http.response.body", "body": body})

    async def hold(self, body, receive, send):
        """Reply when the test says so."""
        self.events.append("held")
        while not self.release.is_set():
            await asyncio.sleep(0.01)
        await self.echo(b"held", receive, send)

    async def block(self, body, receive, send):
        """Hold up the event loop."""
        self.events.append("blocked")
        time.sleep(0.5)
        await self.echo(body, receive, send)

    async def forever(self, body, receive, send):
        """Wait until the client is gone."""
        self.events.append((await receive())["type"])

    async def stream(self, body, receive, send):
        """Send parts until the client is gone."""
        await start(send)
        gone = asyncio.ensure_future(receive())
        while not gone.done():
            await send({"type": "http.response.body", "body": b"part\n", "more_body": True})
            await asyncio.sleep(0.01)
        self.events.append(gone.result()["type"])

    async def large(self, body, receive, send):
        """Send 16 MiB."""
        await start(send)
        for _ in range(256):
            await send({"type": "http.response.body", "body": bytes(65536), "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        self.events.append("sent")

    async def fail(self, body, receive, send):
        raise ValueError(f"a secret: {body!r}")

    async def fail_late(self, body, receive, send):
        await start(send)
        await send({"type": "http.response.body", "body": b"part", "more_body": True})
        raise ValueError("a secret")


async def start(send, headers=()):
    await send({"type": "http.response.start", "status": 200, "headers": list(headers)})


@contextlib.contextmanager
def running(application, hosts=None, tokens=None):
    """Run a recorder behind a guard, and return the port."""
    with serving(Guard(application, tokens, hosts)) as port:
        try:
            yield port
        finally:
            application.release.set()


@contextlib.contextmanager
def serving(application, port=0):
    """Run a server in a thread, and return the port; 0: any free one."""
    started = threading.Event()
    with listen("127.0.0.1", port) as listener:
        server = BoundedServer(application, started.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            assert started.wait(10)
            yield int(address_of(listener).rpartition(":")[2])
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()


def connected(port, *parts):
    """Return a socket that has sent something."""
    client = socket.create_connection(("127.0.0.1", port), timeout=10)
    OPENED.append(client)
    with contextlib.suppress(ConnectionError):  # of a server that has refused the first ones
        for part in parts:
            client.sendall(part)
    return client


def received(client):
    """Return all that a server sends until it closes."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := client.recv(65536):
            parts.append(part)
    client.close()
    return b"".join(parts)


def exchange(port, *parts):
    """Send bytes, and return all that the server sends until it closes."""
    return received(connected(port, *parts))


def request(path="/", body=b"", headers=b"", method=b"POST", close=True):
    """Return the bytes of a request."""
    lines = [method + b" " + path.encode() + b" HTTP/1.1", b"Host: 127.0.0.1"]
    if body:
        lines += [b"Content-Type: application/json", b"Content-Length: " + str(len(body)).encode()]
    if close:
        lines.append(b"Connection: close")
    return b"\r\n".join(lines) + b"\r\n" + headers + b"\r\n" + body


def until(condition, seconds=10):
    """Wait until a condition holds, at most so long."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
