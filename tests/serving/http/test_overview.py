"""The overview: computed once for all that wait for it, and not sent again while nothing has changed."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.serving.http.apps import CONFIGURATION, answered


def test_the_overview_is_computed_once_for_all_that_wait(client, monkeypatch):
    service, computed = client.app.state.service, []
    overview = service.overview

    def slow_overview(texts):
        computed.append(service.change_count)
        time.sleep(0.1)
        return overview(texts)

    monkeypatch.setattr(service, "overview", slow_overview)
    with ThreadPoolExecutor(10) as pool:
        replies = pool.map(lambda _: client.get("/v1/overview"), range(10))
    assert [reply.status_code for reply in replies] == [200] * 10
    assert len(computed) == 1


def test_an_overview_that_has_not_changed_is_not_sent_again(opened):
    """Numbers in it that are not defined are null."""
    with opened(**CONFIGURATION) as client:
        tag = ""

        def changed():
            """Whether the overview is sent again to a client that has the latest one."""
            nonlocal tag
            reply = client.get("/v1/overview", headers={"If-None-Match": tag})
            assert (reply.status_code == 304) == (reply.headers["etag"] == tag)
            if reply.status_code == 200:
                json.loads(reply.text, parse_constant=pytest.fail)
            else:
                assert not reply.text
            known, tag = tag, reply.headers["etag"]
            return tag != known

        def outcome(path, **body):
            return client.post(f"/v1/{path}", json=body).json()["reason"]

        assert [changed(), changed()] == [True, False]
        weak = client.get("/v1/overview", headers={"If-None-Match": f"W/{tag}"})  # by a proxy that compresses
        assert (weak.status_code, weak.headers["etag"]) == (304, tag)
        id = answered(client, key="a")
        assert changed()
        client.post("/v1/decide", json={"score": 1, "key": "a", "id": id})  # the same decision again
        assert not changed()
        for expected, changes, path, body in (
            ("unknown", False, "feedback", {"id": "never", "error": 1}),
            ("counted", True, "feedback", {"id": id, "error": 1}),
            ("repeated", False, "feedback", {"id": id, "error": 0}),
            ("withdrawn", True, "withdraw", {"id": id}),
            ("withdrawn", False, "withdraw", {"id": id}),
        ):
            assert (outcome(path, **body), changed()) == (expected, changes)
        withheld = answered(client, answer=False, score=0)
        assert outcome("feedback", id=withheld, error=1) == "withheld"  # kept, but no learner has it
        rows = {row["id"]: row["error"] for row in client.get("/v1/overview").json()["latest"]}
        assert (rows[id], rows[withheld]) == (1.0, None)
    with opened() as client:  # the number of changes begins at 0 again
        assert changed()
