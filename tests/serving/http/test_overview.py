"""The overview: computed once for all that wait for it, and not sent again while nothing has changed."""

import asyncio
import time

import httpx2
from starlette.testclient import TestClient

from exaul.serving.http.application import app


def test_the_overview_is_computed_once_for_all_that_wait(tmp_path, monkeypatch):
    application = app(tmp_path / "state", learner="aci-rank")
    service, computed = application.state.service, []
    overview = service.overview

    def slow_overview(texts):
        computed.append(service.changes)
        time.sleep(0.1)
        return overview(texts)

    monkeypatch.setattr(service, "overview", slow_overview)

    async def ask_ten():
        transport = httpx2.ASGITransport(application)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await asyncio.gather(*(client.get("/v1/overview") for _ in range(10)))

    assert [reply.status_code for reply in asyncio.run(ask_ten())] == [200] * 10
    assert len(computed) == 1
    service.close()


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
