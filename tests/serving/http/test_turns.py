"""A decision waits for one item of long requests, however many there are."""

import asyncio
import json
import time

import pytest

from exaul.serving.http.application import app


@pytest.fixture
def application(tmp_path):
    application = app(tmp_path / "state", learner="aci-rank")
    for n in range(30):
        application.state.service.decide(0.5, key=str(n))
    yield application
    application.state.service.close()


async def asked(application, method, path, body=None, leaving=None):
    """Return the status of a reply to a client that leaves at an event."""
    raw, status = json.dumps(body).encode() if body else b"", []
    messages, leaving = [{"type": "http.request", "body": raw, "more_body": False}], leaving or asyncio.Event()
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    headers += [(b"content-length", str(len(raw)).encode())] if body else []
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": headers}

    async def receive():
        if not messages:
            await leaving.wait()
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message):
        status.append(message.get("status"))

    await application(scope | {"http_version": "1.1"}, receive, send)
    return status[0]


LONG = pytest.mark.parametrize(
    ("method", "path", "body", "name"),
    [
        ("POST", "/v1/feedback", [{"id": str(n), "thumb": "up"} for n in range(30)], "feedback"),
        ("GET", "/v1/keys", None, "figures"),
    ],
)


@LONG
def test_a_decision_waits_for_one_item_of_long_requests(application, monkeypatch, method, path, body, name):
    service, calls = application.state.service, []

    def recorded(called, function):
        def call(*given):
            calls.append(called)
            time.sleep(0.002)
            return function(*given)

        return call

    for called in (name, "decide"):
        monkeypatch.setattr(service, called, recorded(called, getattr(service, called)))

    async def ask():
        long = [asyncio.ensure_future(asked(application, method, path, body)) for _ in range(20)]
        while not calls:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.03)
        before = len(calls)
        assert await asked(application, "POST", "/v1/decide", {"score": 0.5}) == 200
        assert calls.index("decide") - before <= 5
        assert await asyncio.gather(*long) == [200] * 20

    asyncio.run(ask())
    assert calls.count(name) >= 600


@LONG
def test_long_requests_of_clients_that_are_gone_are_not_served(application, monkeypatch, method, path, body, name):
    service, calls = application.state.service, []
    function = getattr(service, name)

    def call(*given):
        time.sleep(0.002)
        calls.append(given)
        return function(*given)

    monkeypatch.setattr(service, name, call)

    async def ask():
        leaving = asyncio.Event()
        long = [asyncio.ensure_future(asked(application, method, path, body, leaving)) for _ in range(20)]
        while not calls:
            await asyncio.sleep(0.001)
        leaving.set()
        await asyncio.gather(*long)

    asyncio.run(ask())
    assert len(calls) == 30
