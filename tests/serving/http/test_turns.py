"""A decision waits for one item of each long request, however long they are."""

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


async def asked(application, method, path, body=None):
    """Return the status of a reply."""
    raw, status = json.dumps(body).encode() if body else b"", []
    messages = [{"type": "http.request", "body": raw, "more_body": False}]
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    headers += [(b"content-length", str(len(raw)).encode())] if body else []
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": headers}

    async def receive():
        return messages.pop()

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
def test_a_decision_waits_for_one_item_of_each_long_request(application, monkeypatch, method, path, body, name):
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
        assert calls.index("decide") - before <= 25
        assert await asyncio.gather(*long) == [200] * 20

    asyncio.run(ask())
    assert calls.count(name) >= 600
