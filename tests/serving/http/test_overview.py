"""The overview: computed once for all that wait for it, and not sent again while nothing has changed."""

import asyncio
import json
import time

import pytest
from starlette.testclient import TestClient

from exaul.serving.http.application import app


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


@pytest.fixture
def application(tmp_path):
    application = app(tmp_path / "state", learner="aci-rank")
    yield application
    application.state.service.close()


def test_the_overview_is_computed_once_for_all_that_wait(application, monkeypatch):
    service, computed = application.state.service, []
    overview = service.overview

    def slow_overview(texts):
        computed.append(service.changes)
        time.sleep(0.1)
        return overview(texts)

    monkeypatch.setattr(service, "overview", slow_overview)

    async def ask_ten():
        assert await asyncio.gather(*(asked(application, "GET", "/v1/overview") for _ in range(10))) == [200] * 10

    asyncio.run(ask_ten())
    assert len(computed) == 1


def test_an_overview_that_has_not_changed_is_not_sent_again(tmp_path):
    with TestClient(app(tmp_path / "state", learner="aci-rank")) as client:

        def ask(tag):
            reply = client.get("/v1/overview", headers={"If-None-Match": tag})
            assert (reply.status_code == 304) == (reply.headers["etag"] == tag.removeprefix("W/"))
            assert bool(reply.text) == (reply.status_code == 200)
            return reply.headers["etag"]

        tag = ask("")
        assert ask(tag) == ask(f"W/{tag}") == tag  # a proxy that compresses makes it weak
        id = client.post("/v1/decide", json={"score": 0.5}).json()["id"]
        changed = ask(tag)
        assert changed != tag
        client.post("/v1/decide", json={"score": 0.5, "id": id})
        client.post("/v1/feedback", json={"id": "never", "error": 1})
        assert ask(changed) == changed
    with TestClient(app(tmp_path / "state")) as client:  # the number of changes begins at 0 again
        assert ask(changed) not in (tag, changed)
