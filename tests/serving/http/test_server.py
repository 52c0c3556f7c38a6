"""The server on loopback, with raw sockets: slow, malformed and malicious clients, and its end."""

import asyncio
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exaul.engine.checks import BadInput
from exaul.serving.http import connections, errors, limits, server
from tests.serving.http.apps import OPENED, Recorder, connected, exchange, received, request, running, until

ROOT = Path(__file__).parents[3]
CHUNKED = b"Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n"


@pytest.fixture(autouse=True)
def _closed(monkeypatch):
    """Close all sockets, and do not wait long for clients that got an error."""
    monkeypatch.setattr(limits, "LINGER_SECONDS", 0.2)
    yield
    while OPENED:
        OPENED.pop().close()


@pytest.fixture(scope="module")
def shared():
    """An application and its port; a start and an end take .2 s."""
    recorder = Recorder()
    with running(recorder) as number:
        yield recorder, number


@pytest.fixture
def application(shared):
    shared[0].bodies, shared[0].ids = [], []
    return shared[0]


@pytest.fixture
def port(shared):
    return shared[1]


@pytest.fixture
def fresh():
    """An application of which no server runs yet."""
    return Recorder()


@pytest.fixture
def fresh_port(fresh):
    with running(fresh) as number:
        yield number


@pytest.fixture
def fast(monkeypatch):
    """Times of .2 s."""
    for name in ("HEAD_SECONDS", "BODY_SECONDS", "WRITE_SECONDS", "LINGER_SECONDS", "SHUTDOWN_SECONDS"):
        monkeypatch.setattr(limits, name, 0.2)


@pytest.fixture
def small(monkeypatch):
    """At most 8 connections."""
    monkeypatch.setattr(limits, "CONNECTIONS", 8)


def parsed(reply):
    """Return the status, the headers and the body of a reply."""
    head, _, body = reply.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert len(headers) == len(lines)  # none twice
    return int(first.split()[1]), headers, body


def refusal(reply):
    """Return the status of an error, and check its form."""
    status, headers, body = parsed(reply)
    error = json.loads(body)["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"].endswith(".")
    assert headers["content-type"] == "application/json"
    assert headers["connection"] == "close"
    assert int(headers["content-length"]) == len(body)
    check_headers(headers)
    return status


def check_headers(headers):
    assert "server" not in headers
    assert re.fullmatch("[A-Za-z0-9._-]{1,128}", headers["x-request-id"])
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert not [name for name in headers if name.startswith("access-control")]


def test_a_reply_has_the_body_and_the_headers(application, port):
    status, headers, body = parsed(exchange(port, request(body=b'{"score": 0.5}')))
    assert (status, body) == (200, b'{"score": 0.5}')
    check_headers(headers)
    assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert application.ids == [headers["x-request-id"]]
    assert parsed(exchange(port, request("/page")))[1]["content-security-policy"] == "default-src 'self'"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (404, "not_found_error"),
        (503, "server_error"),
    ],
)
def test_errors_have_openai_s_form(status, kind):
    expected = {"message": "No.", "type": kind, "param": "score", "code": "x"}
    assert json.loads(errors.error_reply(status, "No.", "score", "x").body) == {"error": expected}


@pytest.mark.parametrize("given", [b"abc-1._Z", b"x" * 128])
def test_a_safe_request_id_is_repeated(application, port, given):
    reply = exchange(port, request(headers=b"X-Request-Id: " + given + b"\r\n"))
    assert parsed(reply)[1]["x-request-id"] == given.decode() == application.ids[0]


@pytest.mark.parametrize(
    "lines",
    [
        *(b"x" * 129, b"", b"a b", b"a\tb", b"<script>", b"\xff", b"a\r\n Set-Cookie: x", b"a\nX-Request-Id: b"),
        b"a\r\nX-Request-Id: b",
    ],
)
def test_another_request_id_is_replaced(port, lines):
    status, headers, _ = parsed(exchange(port, request(headers=b"X-Request-Id: " + lines + b"\r\n")))
    assert re.fullmatch("[0-9a-f]{32}", headers["x-request-id"])
    assert "set-cookie" not in headers
    assert status in (200, 400)


MALFORMED = {
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    "random bytes": bytes(range(256)) + b"\r\n\r\n",
    "no request": b"\r\n\r\n",
    "http/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "both lengths": request(headers=CHUNKED + b"Content-Length: 3\r\n")
    + b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "negative length": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    "signed length": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\na",
    "hexadecimal length": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\na",
    "digits": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "space before colon": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 1\r\n\r\na",
    "other coding": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    "hidden coding": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n",
    "null in a header": b"GET / HTTP/1.1\r\nHost: a\r\nA: \0\r\n\r\n",
    "no version": b"GET /\r\nHost: a\r\n\r\n",
    "other version": b"GET / HTTP/3.7\r\nHost: a\r\n\r\n",
    "non-ascii target": b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_requests_are_refused(application, port, name):
    assert refusal(exchange(port, MALFORMED[name])) in (400, 501, 505)
    assert application.bodies == []
    assert parsed(exchange(port, request()))[0] == 200  # others are served


@pytest.mark.parametrize(
    "chunk", [b"x\r\nabc\r\n", b"-1\r\n", b"3\r\nabcd\r\n", b"f" * 30 + b"\r\n", b"3;" + b"a" * 20000]
)
def test_invalid_chunks_are_refused(application, port, chunk):
    assert refusal(exchange(port, request(headers=CHUNKED) + b"2\r\nab\r\n" + chunk)) in (400, 431)
    assert application.bodies == []


def test_http_1_0_is_served(port):
    status, headers, body = parsed(exchange(port, b"GET / HTTP/1.0\r\n\r\n"))
    assert (status, body) == (200, b"")
    check_headers(headers)


@pytest.mark.parametrize(
    "headers",
    [
        *(b"A: " + b"a" * 16400 + b"\r\n", b"A: " + b"a" * 2_000_000, b"a: b\r\n" * 300_000),
        *(b"A: b\r\n" * 100, b"a" * 16400 + b": b\r\n"),
    ],
    ids=["long", "endless", "very many", "many", "long name"],
)
def test_large_heads_are_refused(application, port, headers):
    assert refusal(exchange(port, request(headers=headers))) == 431
    assert application.bodies == []


def test_large_targets_are_refused(port):
    assert refusal(exchange(port, request("/?" + "a" * 16400))) == 431


def test_heads_at_the_limit_are_accepted(port):
    assert parsed(exchange(port, request(headers=b"A: b\r\n" * 98)))[0] == 200
    assert parsed(exchange(port, request(headers=b"A: " + b"a" * 16000 + b"\r\n")))[0] == 200


def test_a_body_at_the_limit_is_accepted_and_a_longer_one_refused(application, port):
    assert parsed(exchange(port, request(body=bytes(limits.BODY_BYTES))))[0] == 200
    assert refusal(exchange(port, request(body=bytes(limits.BODY_BYTES + 1)))) == 413
    assert [len(body) for body in application.bodies] == [limits.BODY_BYTES]


def test_a_long_body_is_refused_before_it_is_sent(port):
    head = b"Content-Type: application/json\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n"
    client = connected(port, request(headers=head))
    assert client.recv(65536).startswith(b"HTTP/1.1 413 ")  # and not 100


def test_chunks_above_the_limit_are_refused(application, port):
    chunk = b"10000\r\n" + bytes(65536) + b"\r\n"
    assert refusal(exchange(port, request(headers=CHUNKED), chunk * 17)) == 413
    assert application.bodies == []


def test_many_small_chunks_are_refused(application, port):
    assert refusal(exchange(port, request(headers=CHUNKED), b"1\r\na\r\n" * 2000)) == 431
    assert refusal(exchange(port, request(headers=CHUNKED) + b"1\r\na\r\n" * 2000)) == 431
    assert application.bodies == []
    lines = b"\r\n" * 5000  # of a body that is not chunked
    assert parsed(exchange(port, request(body=lines)))[0] == 200
    assert parsed(exchange(port, request(headers=CHUNKED) + b"1\r\na\r\n" * 500 + b"0\r\n\r\n"))[0] == 200


def test_lines_are_counted_for_each_request(port):
    client = connected(port)
    for _ in range(4):
        client.sendall(request(headers=CHUNKED, close=False) + b"1\r\na\r\n" * 200 + b"0\r\n\r\n")
        reply = b""
        while not reply.endswith(b"a" * 200):
            part = client.recv(65536)
            assert part
            reply += part
        assert parsed(reply)[0] == 200


def test_the_rest_of_a_refused_body_is_read():
    """Else the system may discard the reply before the client reads it."""
    parts = [{"type": "http.request", "body": b"", "more_body": more} for more in (False, True, True)]
    sent = []

    async def receive():
        return parts.pop()

    async def send(message):
        sent.append((message["type"], len(parts)))

    scope = {"type": "http", "method": "POST", "http_version": "1.1", "query_string": b"", "raw_path": b"/"}
    scope["headers"] = [(b"content-type", b"application/json"), (b"content-length", b"9999999")]
    asyncio.run(limits.Limits(None)(scope, receive, send))
    assert sent == [("http.response.start", 3), ("http.response.body", 3), ("http.response.body", 0)]


def test_chunks_are_one_body(application, port):
    assert parsed(exchange(port, request(headers=CHUNKED), b"2\r\nab\r\n", b"1\r\nc\r\n0\r\n\r\n"))[0] == 200
    assert application.bodies == [b"abc"]


def test_few_long_bodies_at_a_time(monkeypatch, application, port):
    monkeypatch.setattr(limits, "INCOMPLETE_BYTES", 100_000)
    monkeypatch.setattr(limits, "SMALL_BYTES", 50_000)
    part = request(body=bytes(200_000))[:80_000]
    with connected(port, part), connected(port, part) as client:
        status, headers, _ = parsed(received(client))
        assert (status, headers["retry-after"]) == (503, "1")
        whole = request(body=bytes(40_000))
        with connected(port, whole[:30_000]) as client:
            time.sleep(0.05)
            client.sendall(whole[30_000:])
            assert parsed(received(client))[0] == 200
    client = connected(port, request(body=bytes(60_000))[:-1])  # no bytes of the others are left
    time.sleep(0.05)
    client.sendall(b"\0")
    assert parsed(received(client))[0] == 200


@pytest.mark.parametrize("kind", [b"text/plain", b"application/x-www-form-urlencoded", b"application/jsonx", b""])
def test_a_body_is_json(application, port, kind):
    assert (
        refusal(exchange(port, request(headers=b"Content-Type: " + kind + b"\r\nContent-Length: 2\r\n") + b"{}"))
        == 415
    )
    assert (
        refusal(exchange(port, request(body=b"{}", headers=b"Content-Type: " + kind + b"\r\n"))) == 415
    )  # the second one
    assert application.bodies == []


def test_json_may_have_a_charset(port):
    head = b"Content-Type: Application/JSON; charset=utf-8\r\nContent-Length: 2\r\n"
    assert parsed(exchange(port, request(headers=head) + b"{}"))[0] == 200


@pytest.mark.parametrize("host", [b"127.0.0.1", b"127.0.0.1:8321", b"LocalHost:1", b"[::1]:8321"])
def test_loopback_hosts_are_accepted(fresh, host):
    with running(fresh, hosts=limits.LOOPBACK_HOSTS) as port:
        assert (
            parsed(exchange(port, b"GET / HTTP/1.1\r\nConnection: close\r\nHost: " + host + b"\r\n\r\n"))[0] == 200
        )


@pytest.mark.parametrize("host", [b"evil.example", b"127.0.0.1.evil.example", b"localhost:1:2", b"", b"@127.0.0.1"])
def test_other_hosts_are_refused(fresh, host):
    with running(fresh, hosts=limits.LOOPBACK_HOSTS) as port:
        assert refusal(exchange(port, b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")) in (400, 421)
        assert refusal(exchange(port, b"GET / HTTP/1.0\r\n\r\n")) == 421
    assert fresh.bodies == []


def test_a_failure_says_nothing_of_itself(application, port, caplog):
    reply = exchange(port, request("/fail?query=private", body=b'"private"', headers=b"Authorization: private\r\n"))
    assert refusal(reply) == 500
    assert b"secret" not in reply
    assert "ValueError" in caplog.text
    assert "private" not in caplog.text
    assert 'a secret: "' not in caplog.text


def test_a_failure_after_the_start_closes_the_connection(port, caplog):
    reply = exchange(port, request("/fail_late", close=False))
    assert reply.endswith(b"part\r\n")  # no last chunk: the client sees that the reply is incomplete
    assert "a secret" not in caplog.text.replace('ValueError("a secret")', "")


def test_slow_heads(fast, port):
    begun = [connected(port, part) for part in (b"GET / HTTP/1.1\r\n", b"G", request(close=False)[:-2])]
    silent = connected(port)
    assert [refusal(received(client)) for client in begun] == [408] * 3
    assert received(silent) == b""


def drops_until_closed(client):
    """Return how many single bytes a server accepts, one in .02 s, at most 200."""
    for count in range(200):
        try:
            client.sendall(b"a")
        except ConnectionError:
            return count
        time.sleep(0.02)
    return 200


def test_a_head_in_drops(fast, port):
    """Each byte does not give more time."""
    client = connected(port)
    assert drops_until_closed(client) < 100


def test_an_idle_connection_is_closed_after_its_reply(fast, port):
    client = connected(port, request(close=False))
    assert parsed(received(client))[0] == 200


@pytest.mark.parametrize("part", [0, 5])
def test_slow_bodies(fast, application, port, part):
    """Also with a length that is too large."""
    body = request(body=b'{"a": 1}')
    assert refusal(exchange(port, body[: len(body) - 8 + part])) == 408
    assert application.bodies == []


def test_a_body_in_drops(fast, port):
    client = connected(port, request(body=bytes(1000))[:-1000])
    assert drops_until_closed(client) < 100


def test_pipelined_requests_get_their_replies_in_order(port):
    parts = [request(body=b'"%d"' % k, close=k == 20) for k in range(21)]
    reply = exchange(port, b"".join(parts))
    assert re.findall(rb'\r\n\r\n"(\d+)"', reply) == [b"%d" % k for k in range(21)]


def test_too_many_pipelined_requests_are_dropped(fresh, fresh_port):
    client = connected(fresh_port, request("/hold", close=False) + request(close=False) * 2000)
    until(lambda: "held" in fresh.events)
    fresh.release.set()
    assert received(client).count(b"HTTP/1.1 200") == 1
    assert len(fresh.bodies) == 1


def test_what_follows_the_last_request_is_dropped(fresh, fresh_port):
    """After Connection: close, nothing more is allowed; the reply is sent all the same."""
    client = connected(fresh_port, request("/hold", body=b"{}"))
    until(lambda: "held" in fresh.events)
    client.sendall(b"\r\n")
    time.sleep(0.05)
    client.sendall(b"garbage")
    fresh.release.set()
    assert parsed(received(client))[2] == b"held"


def test_replies_without_a_body(port, caplog):
    """Invalid chunks of a HEAD request, whose error has no body, and CONNECT."""
    reply = exchange(port, request(method=b"HEAD", headers=CHUNKED) + b"2\r\nab\r\nx\r\n")
    assert (parsed(reply)[0], parsed(reply)[2]) == (400, b"")
    assert not caplog.records
    assert refusal(exchange(port, b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n")) == 501


def test_a_reply_that_is_not_read(fast, fresh, fresh_port):
    client = connected(fresh_port, request("/large"))
    until(lambda: len(fresh.bodies) == 1)
    time.sleep(0.1)
    assert fresh.events == ["start"]
    assert parsed(exchange(fresh_port, request()))[0] == 200
    time.sleep(0.5)
    assert len(received(client)) < 2**24
    assert fresh.events == ["start", "sent"]  # the fresh went on after the connection was closed


def test_a_reply_that_is_read(application, port):
    assert exchange(port, request("/large")).count(b"\0") == 2**24


def test_disconnects_within_a_body(application, port):
    connected(port, request(body=b"abc")[:-1]).close()
    connected(port, request(headers=CHUNKED) + b"3\r\na").close()
    assert parsed(exchange(port, request()))[0] == 200
    assert application.bodies == [b""]


@pytest.mark.parametrize("path", ["/forever", "/stream"])
def test_disconnects_reach_the_application(fresh, fresh_port, path):
    client = connected(fresh_port, request(path, body=b"{}"))
    until(lambda: fresh.bodies)
    if path == "/stream":
        assert b"part\n" in client.recv(65536) + client.recv(65536)  # not only at the end
    client.close()
    until(lambda: fresh.events == ["start", "http.disconnect"])


def test_connections_that_wait_make_space(small, fresh):
    """Forty connections that send nothing, part of a head, or part of a body."""
    with running(fresh) as port:
        parts = [b"", b"GET / HT", request(body=b"abc")[:-1], request(close=False)]
        with connected(port, request("/hold")) as busy:
            until(lambda: "held" in fresh.events)
            idle = []
            for k in range(40):
                idle.append(connected(port, parts[k % 4]))
                if k % 10 == 0:
                    assert parsed(exchange(port, request()))[0] == 200
            assert parsed(exchange(port, request(body=b'"later"')))[0] == 200
            assert all(received(client)[:15] in (b"", b"HTTP/1.1 200 OK") for client in idle[:30])
            fresh.release.set()
            assert parsed(received(busy))[2] == b"held"


def test_the_connection_that_waits_longest_is_closed_first(small, fresh):
    with running(fresh) as port:
        clients = [connected(port) for _ in range(8)]
        for client in [*clients, clients[0]]:  # each waits from its reply on
            client.sendall(request(close=False))
            assert client.recv(65536).startswith(b"HTTP/1.1 200")
        clients.append(connected(port))
        assert received(clients[1]) == b""
        clients[0].sendall(request())
        assert parsed(received(clients[0]))[0] == 200


def test_at_the_limit_of_requests_others_are_refused(small, fresh):
    with running(fresh) as port:
        clients = [connected(port, request("/hold")) for _ in range(8)]
        until(lambda: fresh.events.count("held") == 8)
        for _ in range(20):
            reply = exchange(port, request())
            assert refusal(reply) == 503
            assert parsed(reply)[1]["retry-after"] == "1"
        fresh.release.set()
        assert [parsed(received(client))[2] for client in clients] == [b"held"] * 8
        assert parsed(exchange(port, request()))[0] == 200


def test_connections_that_arrive_at_once_are_few_at_a_time(monkeypatch, fresh):
    """The process has files for twice the limit; 600 connections arrive while the event loop is busy."""
    monkeypatch.setattr(limits, "CONNECTIONS", 64)
    sockets = []  # number of those open, after each that was accepted
    started, lost = connections.BoundedConnection.__init__, connections.BoundedConnection.connection_lost

    def start(self, *given, **named):
        started(self, *given, **named)
        sockets.append(sockets[-1] + 1 if sockets else 1)

    def lose(self, error):
        lost(self, error)
        sockets.append(sockets[-1] - 1)

    monkeypatch.setattr(connections.BoundedConnection, "__init__", start)
    monkeypatch.setattr(connections.BoundedConnection, "connection_lost", lose)
    with running(fresh) as port:
        first = connected(port, request("/block"))
        until(lambda: "blocked" in fresh.events)
        for _ in range(600):
            connected(port)
        assert parsed(received(first))[0] == 200
        assert parsed(exchange(port, request()))[0] == 200
    assert max(sockets) <= 128


@pytest.mark.slow
def test_two_thousand_idle_connections(application, port):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 8000:
        pytest.skip("too few files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (8000, hard))
    try:
        idle = [connected(port, b"GET / HTTP/1.1\r\n") for _ in range(2000)]
        assert parsed(exchange(port, request()))[0] == 200
        for client in idle:
            client.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_few_files_are_few_connections(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (300, 1256))
    limit = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limit.append(pair))
    assert server.allow_files() == 500
    assert limit == [(1256, 1256)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (300, 100_000))
    assert server.allow_files() == 1024


def test_the_lifespan_starts_and_ends(fresh):
    with running(fresh):
        assert fresh.events == ["start"]
    assert fresh.events == ["start", "end"]


def test_requests_in_progress_are_finished_first(fresh):
    with running(fresh) as port:
        client = connected(port, request("/hold"))
        until(lambda: "held" in fresh.events)
    assert parsed(received(client))[2] == b"held"
    assert fresh.events == ["start", "held", "end"]


def test_incomplete_requests_do_not_delay_the_end(fresh):
    with running(fresh) as port:
        client, other = connected(port, request(body=b"abc")[:-1]), connected(port, b"GET")
        until(lambda: parsed(exchange(port, request()))[0] == 200)
    assert refusal(received(client)) == 503
    assert received(other) == b""
    assert len(fresh.bodies) == 1


def test_requests_that_do_not_end_are_stopped(fast, fresh):
    with running(fresh) as port:
        client = connected(port, request("/forever"))
        until(lambda: fresh.bodies)
    assert refusal(received(client)) == 503
    assert fresh.events[-1] == "end"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_after_the_request(number):
    code = """
from exaul.serving.http.limits import Limits
from exaul.serving.http.server import serve
from tests.serving.http.apps import Recorder
import asyncio
recorder = Recorder()
async def hold(body, receive, send):
    print("held", flush=True)
    await asyncio.sleep(.3)
    await recorder.echo(b"held", receive, send)
recorder.hold = hold
serve(Limits(recorder), "localhost", 0, lambda address: print(address, flush=True))
print(recorder.events)
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            address = process.stdout.readline().strip()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+", address)
            port = int(address.rpartition(":")[2])
            client, idle = connected(port, request("/hold")), connected(port)
            assert process.stdout.readline() == "held\n"
            process.send_signal(number)
            assert parsed(received(client))[2] == b"held"
            assert received(idle) == b""
            assert process.stdout.read() == "['start', 'end']\n"
            assert process.wait(10) == 0
        finally:
            process.kill()


def no_start(address):
    raise AssertionError(address)


def test_a_port_in_use(application):
    with socket.create_server(("127.0.0.1", 0)) as other:
        number = other.getsockname()[1]
        with pytest.raises(BadInput, match=rf"^port: {number} is in use on 127\.0\.0\.1; "):
            server.serve(application, "127.0.0.1", number, no_start)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "", "256.1.1.1", "a" * 70, "8.8.8.8", "a b", "a\0b"])
def test_an_unknown_host(application, host):
    with pytest.raises(BadInput, match=r"^host: "):
        server.serve(application, host, 0, no_start)


@pytest.mark.parametrize("number", [-1, 65536])
def test_an_impossible_port(application, number):
    with pytest.raises(BadInput, match=r"^port: "):
        server.serve(application, "127.0.0.1", number, no_start)


def test_an_application_that_does_not_start(capfd):
    async def broken(scope, receive, send):
        raise OSError("the file is gone")

    with pytest.raises(SystemExit):
        server.serve(limits.Limits(broken), "127.0.0.1", 0, no_start)
