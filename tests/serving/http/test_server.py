"""The server on loopback, with raw sockets: slow, malformed and malicious clients, and its end."""

import contextlib
import json
import re
import threading
import time

import pytest

from exaul.engine.checks import BadInput
from exaul.serving.http import guard, server
from exaul.serving.http.settings import LOOPBACK_HOSTS
from tests.serving.http.apps import (
    OPENED,
    Recorder,
    connected,
    exchange,
    received,
    request,
    running,
    serving,
    until,
)

CHUNKED = b"Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n"


@pytest.fixture(autouse=True)
def _closed(monkeypatch):
    """Close all sockets, and do not wait long for clients that got an error."""
    monkeypatch.setattr(guard, "LINGER_SECONDS", 0.2)
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
    shared[0].__init__()
    return shared[0]


@pytest.fixture
def port(shared):
    return shared[1]


@pytest.fixture
def fresh():
    """An application of which no server runs yet."""
    return Recorder()


@pytest.fixture
def fast(monkeypatch):
    """Times of .2 s."""
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(server, "SHUTDOWN_SECONDS", 0.2)
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.2)


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
    assert re.fullmatch("[A-Za-z0-9._-]{1,128}", headers.get("x-request-id", "none"))
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert not [name for name in headers if name.startswith("access-control")]


def test_a_page_has_a_policy_of_its_own(port):
    assert parsed(exchange(port, request("/page")))[1]["content-security-policy"] == "default-src 'self'"


SAFE_IDS = b"abc-1._Z", b"x" * 128
OTHER_IDS = b"x" * 129, b"", b"a b", b"<script>", b"\xff", b"a\r\n Set-Cookie: x"


@pytest.mark.parametrize("given", SAFE_IDS + OTHER_IDS)
def test_a_safe_request_id_is_repeated_and_another_one_replaced(application, port, given):
    status, headers, _ = parsed(exchange(port, request(headers=b"X-Request-Id: " + given + b"\r\n")))
    assert (status, "set-cookie" in headers, [headers["x-request-id"]]) == (200, False, application.ids)
    expected = re.escape(given.decode()) if given in SAFE_IDS else "[0-9a-f]{32}"
    assert re.fullmatch(expected, headers["x-request-id"])


HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"
MALFORMED = {
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "both lengths": request(headers=CHUNKED + b"Content-Length: 3\r\n") + b"0\r\n\r\n" + request("/smuggled"),
    "two lengths": HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "signed length": HEAD + b"Content-Length: +1\r\n\r\na",
    "digits": HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "hidden coding": HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n",
}
BAD_CHUNKS = b"x\r\nabc\r\n", b"3;" + b"a" * 20000
KINDS = b"application/x-www-form-urlencoded", b"application/jsonx", b""
REFUSED = {  # what is sent, and the statuses with which it may be refused
    **dict.fromkeys(MALFORMED.values(), (400, 501)),
    **{request(headers=CHUNKED) + b"2\r\nab\r\n" + each: (400, 431) for each in BAD_CHUNKS},
    request(headers=CHUNKED) + (b"10000\r\n" + bytes(65536) + b"\r\n") * 17: (413,),
    **{request(headers=b"Content-Type: %b\r\nContent-Length: 2\r\n" % kind) + b"{}": (415,) for kind in KINDS},
    **{request(body=b"{}", headers=b"Content-Type: %b\r\n" % kind): (415,) for kind in KINDS},  # the second one
}


@pytest.mark.parametrize("sent", REFUSED, ids=[*MALFORMED, *range(len(REFUSED) - len(MALFORMED))])
def test_bad_requests_are_refused(application, port, sent):
    assert refusal(exchange(port, sent)) in REFUSED[sent]
    assert application.bodies == []
    assert parsed(exchange(port, request()))[0] == 200  # others are served


JSON_HEAD = b"Content-Type: Application/JSON; charset=utf-8\r\nContent-Length: 2\r\n"


@pytest.mark.parametrize(
    ("parts", "body"),
    [
        ([b"GET / HTTP/1.0\r\n\r\n"], b""),
        ([request(headers=b"A: b\r\n" * 98)], b""),  # heads at the limit
        ([request(headers=b"A: " + b"a" * 16000 + b"\r\n")], b""),
        ([request(headers=JSON_HEAD) + b"{}"], b"{}"),
        ([request(headers=CHUNKED), b"2\r\nab\r\n", b"1\r\nc\r\n0\r\n\r\n"], b"abc"),
    ],
)
def test_unusual_requests_are_served(application, port, parts, body):
    status, headers, replied = parsed(exchange(port, *parts))
    assert (status, replied, application.bodies) == (200, body, [body])
    check_headers(headers)


@pytest.mark.parametrize("headers", [b"A: " + b"a" * 2_000_000, b"a: b\r\n" * 300_000], ids=["endless", "many"])
def test_large_heads_are_refused(application, port, headers):
    """The limit is 16 KiB, and what arrives at once, which is at most 256 KiB."""
    with contextlib.suppress(ConnectionError):
        reply = exchange(port, request(headers=headers))
        assert not reply or refusal(reply) == 431
    assert application.bodies == []


def test_a_body_at_the_limit_is_accepted_and_a_longer_one_refused_before_it_is_sent(application, port):
    head = b"Content-Type: application/json\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n"
    assert connected(port, request(headers=head)).recv(65536).startswith(b"HTTP/1.1 413 ")  # and not 100
    assert parsed(exchange(port, request(body=bytes(guard.BODY_BYTES))))[0] == 200
    assert refusal(exchange(port, request(body=bytes(guard.BODY_BYTES + 1)))) == 413
    assert [len(body) for body in application.bodies] == [guard.BODY_BYTES]


def test_loopback_hosts_are_accepted_and_others_refused(fresh):
    request = b"GET / HTTP/1.1\r\nConnection: close\r\nHost: %b\r\n\r\n"
    with running(fresh, hosts=LOOPBACK_HOSTS) as port:
        for host in (b"evil.example", b"127.0.0.1.evil.example", b"localhost:1:2", b"", b"@127.0.0.1"):
            assert refusal(exchange(port, request % host)) in (400, 421)
        assert refusal(exchange(port, b"GET / HTTP/1.0\r\n\r\n")) == 421
        assert fresh.bodies == []
        for host in (b"127.0.0.1", b"127.0.0.1:8321", b"LocalHost:1", b"[::1]:8321"):
            assert parsed(exchange(port, request % host))[0] == 200


def test_a_failure_says_nothing_of_itself(port, caplog):
    """After the start of a reply the client sees that it is incomplete: it has no last chunk."""
    reply = exchange(port, request("/fail?query=private", body=b'"private"', headers=b"Authorization: private\r\n"))
    assert refusal(reply) == 500
    assert exchange(port, request("/fail_late", close=False)).endswith(b"part\r\n")
    assert b"secret" not in reply
    assert "ValueError" in caplog.text
    assert "private" not in caplog.text
    assert "a secret" not in caplog.text.replace('ValueError("a secret")', "").replace('ValueError(f"a secret', "")


def bytes_until_closed(client):
    """Return how many bytes a server accepts of a client, one in .02 s, at most 200."""
    count = 0
    with contextlib.suppress(ConnectionError):
        while count < 200:
            client.sendall(b"a")
            time.sleep(0.02)
            count += 1
    return count


def test_slow_clients(fast, fresh):
    """A head and a body have .2 s from their start, or from the reply before, and no byte gives more time.

    A request in progress is not slow, though its reply is.
    """
    with running(fresh) as port:
        held, again, idle = (connected(port, request(path, close=False)) for path in ("/hold", "/", "/"))
        heads = [connected(port, part) for part in (b"GET / HTTP/1.1\r\n", b"G", request(close=False)[:-2], b"")]
        bodies = [connected(port, request(body=b'{"a": 1}')[:-left]) for left in (8, 3)]
        assert again.recv(65536).startswith(b"HTTP/1.1 200")
        again.sendall(b"GET")
        for sent in (), (request(body=bytes(1000))[:-1000],):
            assert bytes_until_closed(connected(port, *sent)) < 100
        assert [received(client) for client in (*heads, again)] == [b""] * 5
        assert [refusal(received(client)) for client in bodies] == [408] * 2
        assert parsed(received(idle))[0] == 200
        assert fresh.bodies == [b""] * 3
        fresh.release.set()
        assert parsed(received(held))[2] == b"held"


def test_pipelined_requests_get_their_replies_in_order(port):
    parts = [request(body=b'"%d"' % k, close=k == 20) for k in range(21)]
    reply = exchange(port, b"".join(parts))
    assert re.findall(rb'\r\n\r\n"(\d+)"', reply) == [b"%d" % k for k in range(21)]


def test_what_follows_the_last_request_is_dropped(application, port):
    """After Connection: close, nothing more is allowed; the reply is sent all the same."""
    client = connected(port, request("/hold", body=b"{}"))
    until(lambda: "held" in application.events)
    client.sendall(b"\r\n")
    time.sleep(0.05)
    client.sendall(b"garbage")
    application.release.set()
    assert parsed(received(client))[2] == b"held"


def test_replies_without_a_body(port, caplog):
    """Invalid chunks of a HEAD request, whose error has no body."""
    reply = exchange(port, request(method=b"HEAD", headers=CHUNKED) + b"2\r\nab\r\nx\r\n")
    assert (parsed(reply)[0], parsed(reply)[2]) == (400, b"")
    assert not caplog.records


def test_disconnects(application, port):
    """Within a body nothing reaches the application; later it is told."""
    connected(port, request(body=b"abc")[:-1]).close()
    connected(port, request(headers=CHUNKED) + b"3\r\na").close()
    for path in ("/forever", "/stream"):
        client = connected(port, request(path, body=b"{}"))
        until(lambda: application.bodies)
        if path == "/stream":
            assert b"part\n" in client.recv(65536) + client.recv(65536)  # not only at the end
        client.close()
        until(lambda: application.events)
        assert application.bodies.pop() == b"{}"
        assert (application.events.pop(), application.events, application.bodies) == ("http.disconnect", [], [])


def test_requests_in_progress_are_finished_first(fresh):
    with serving(guard.Guard(fresh, None, None)) as port:
        client, idle = connected(port, request("/hold")), connected(port)
        until(lambda: "held" in fresh.events)
        threading.Timer(0.3, fresh.release.set).start()
    assert (parsed(received(client))[2], received(idle)) == (b"held", b"")
    assert fresh.events == ["start", "held", "end"]  # the lifespan is around all requests


def test_requests_that_do_not_end_are_stopped_and_incomplete_ones_do_not_delay_the_end(fast, fresh):
    with running(fresh) as port:
        endless = connected(port, request("/forever"))
        until(lambda: fresh.bodies)
        incomplete, other = connected(port, request(body=b"abc")[:-1]), connected(port, b"GET")
        until(lambda: parsed(exchange(port, request()))[0] == 200)
    assert refusal(received(endless)) == 503
    assert refusal(received(incomplete)) in (408, 503)
    assert received(other) == b""
    assert (len(fresh.bodies), fresh.events[-1]) == (2, "end")


@pytest.mark.parametrize("host", ["a" * 70, "8.8.8.8"])
def test_an_unknown_host(host):
    with pytest.raises(BadInput, match=r"^host: "):
        server.listen(host, 0)


def test_an_application_that_does_not_start():
    async def broken(scope, receive, send):
        raise OSError("the file is gone")

    with server.listen("127.0.0.1", 0) as listener:
        bounded = server.BoundedServer(broken, pytest.fail)
        with contextlib.suppress(SystemExit):  # of newer versions of uvicorn
            bounded.run(sockets=[listener])
    assert not bounded.started


def test_with_too_many_connections_requests_get_503(monkeypatch, fresh):
    monkeypatch.setattr(server, "CONNECTIONS", 8)
    with running(fresh) as port:
        clients = [connected(port, request("/hold")) for _ in range(8)]
        until(lambda: fresh.events.count("held") == 8)
        assert refusal(exchange(port, request())) == 503
        idle = [connected(port) for _ in range(8)]
        assert exchange(port, request()) == b""  # closed at once
        for client in idle:
            client.close()
        fresh.release.set()
        assert [parsed(received(client))[2] for client in clients] == [b"held"] * 8
        assert parsed(exchange(port, request()))[0] == 200
