"""Applications, a server and clients of the tests of HTTP."""

import asyncio
import contextlib
import http.client
import json
import re
import socket
import threading
import time
from functools import partial
from urllib.parse import unquote

from anyio.from_thread import start_blocking_portal
from starlette.responses import JSONResponse

from exaul.serving.http.application import app
from exaul.serving.http.gateway import add_gateway
from exaul.serving.http.guard import REQUEST_ID, Guard
from exaul.serving.http.server import BoundedServer, address_of, listen
from exaul.serving.http.settings import GatewayFlags

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
        self.ids.append(REQUEST_ID.get())
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


EASY = ([0.5] * 50, [0] * 50)  # a log after which all is answered
CONFIGURATION = {"learner": "aci-rank", "seed": 1}
SECRET = "Secretville"
KEY = "sk-upstream-0123456789"
ANSWER, ABSTAIN = "tests.constant:answers", "tests.constant:abstains"
QUESTION = {"model": "m", "messages": [{"role": "user", "content": "Which town?"}]}


def blocks(page, title, language):
    """The blocks of code of a section of a page in a language, in order."""
    section = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)[1]
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.DOTALL | re.MULTILINE)


def asked(port, method, path, body=None, headers=()):
    """Return the status, the headers and the text of a reply."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request(method, path, body, {"content-type": "application/json"} | dict(headers))
        reply = connection.getresponse()
        return reply.status, {name.lower(): value for name, value in reply.headers.items()}, reply.read().decode()


def answered(client, answer=True, **fields):
    """Decide until an answer is shown, or withheld; return its id."""
    replies = (client.post("/v1/decide", json={"score": 1} | fields).json() for _ in range(1000))
    return next(reply["id"] for reply in replies if reply["answer"] == answer)


class Exchange:
    """One request to an application without a server, whose client leaves when a test says so."""

    def __init__(self, body=b"", on_send=lambda message: None):
        self.sent, self._on_send, self._gone = [], on_send, asyncio.Event()
        self._messages = [{"type": "http.request", "body": body}]
        self._length = str(len(body))

    async def run(self, application, method, target, headers=()):
        self._loop, (path, _, query) = asyncio.get_running_loop(), target.partition("?")
        fields = {"host": "h", "content-type": "application/json", "content-length": self._length} | dict(headers)
        encoded = [(name.encode(), as_bytes(value)) for name, value in fields.items()]
        scope = {"type": "http", "http_version": "1.1", "method": method, "scheme": "http", "root_path": ""}
        scope |= {"path": unquote(path), "raw_path": path.encode(), "query_string": query.encode()}
        scope |= {"headers": encoded, "server": ("h", 1), "state": {}, "asgi": {"spec_version": "2.3"}}
        await application(scope, self.receive, self.send)

    async def receive(self):
        if not self._messages:
            await self._gone.wait()
            return {"type": "http.disconnect"}
        return self._messages.pop()

    async def send(self, message):
        self.sent.append(message)
        self._on_send(message)

    def leave(self):
        """Disconnect, from any thread."""
        self._loop.call_soon_threadsafe(self._gone.set)

    @property
    def body(self):
        return b"".join(message.get("body", b"") for message in self.sent)


def as_bytes(value):
    return value if isinstance(value, bytes) else value.encode("latin-1")


async def exchanged(application, method, path, body=b"", headers=()):
    """Return what ``asked`` does, of an application without a server."""
    exchange = Exchange(body)
    await exchange.run(application, method, path, headers)
    fields = {name.decode().lower(): value.decode("latin-1") for name, value in exchange.sent[0]["headers"]}
    return exchange.sent[0]["status"], fields, exchange.body.decode()


class Client:
    """A client of a gateway, which ``send`` reaches."""

    def __init__(self, application, send, port=None):
        self.service, self.port, self._send = application.state.service, port, send

    def ask(self, body=QUESTION, path="/v1/chat/completions", method="POST", **headers):
        """Return the status, the headers and the text of a reply; other bodies than bytes are sent as JSON."""
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._send(method, path, payload, named)

    def json(self, **fields):
        status, _, raw = self.ask(QUESTION | fields)
        assert status == 200, raw
        return json.loads(raw)

    def refusal(self, *given, **headers):
        """The status of an error, and the field that it names."""
        status, _, raw = self.ask(*given, **headers)
        return status, json.loads(raw)["error"]["param"]

    def metric(self, name):
        """A value of /metrics; None if it is missing."""
        lines = self.ask(b"", "/metrics", "GET")[2].splitlines()
        return next((float(line.split()[-1]) for line in lines if line.startswith(f"{name} ")), None)

    def questions(self):
        """The number of decisions."""
        return sum(self.service.figures(key)["questions"] for key in self.service.all_keys())


@contextlib.contextmanager
def gateway(path, url, learner=ANSWER, tokens=None, on_error="refuse", shadow=False, port=0, **flags):
    """Run a gateway on a port; None: in this process alone, which takes a third of the time."""
    of_service = {"tokens": tokens, "on_error": on_error, "learner": learner, "shadow": shadow}
    of_service |= {name: flags.pop(name, None) for name in ("keys", "audit", "warm_start")}
    flags = GatewayFlags(**{"upstream": url} | flags)
    with contextlib.ExitStack() as stack:
        application = app(path / "state.sqlite", **of_service)
        stack.callback(application.state.service.close)
        add_gateway(application, flags)
        if port is None:
            portal = stack.enter_context(start_blocking_portal())
            lifespan = application.router.lifespan_context(application)
            stack.enter_context(portal.wrap_async_context_manager(lifespan))
            yield Client(application, partial(portal.call, exchanged, application))
        else:
            port = stack.enter_context(serving(application, port))
            yield Client(application, partial(asked, port), port)
    closed = [getattr(close.__self__, "_program", close.__self__) for close in application.state.closing]
    assert all(upstream._client.is_closed for upstream in closed)


def events(raw):
    """The data of a stream's events, without the last, which is [DONE]."""
    parts = [part for part in raw.split("\n\n") if part and not part.startswith(":")]
    assert all(part.startswith("data: ") for part in parts)
    assert parts[-1] == "data: [DONE]"
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-1]]


def error(status, **headers):
    """A reply with an error in OpenAI's form."""
    fields = {"type": "some_error", "param": "model", "code": "some_code", "more": 1}
    fields["message"] = f"no: {KEY}{' and more' * 50}"
    return JSONResponse({"error": fields}, status, headers)
