"""Metrics: what they count, that any key survives their text, and that their number is bounded."""

import math
import sqlite3

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from exaul.serving.http import metrics
from exaul.serving.http.application import app

TEXTS = "a\nb", 'a"b\\', "a\\nb", "é\u2028\r\x85", "{}=,", "", "other", "k" * 256


@pytest.fixture
def client(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "SCRAPE_EVERY", 0.0)
    with TestClient(app(tmp_path / "state", learner="aci-rank", arms=10, seed=1)) as client:
        yield client


def samples(client):
    """All samples by name and labels; no pair occurs twice."""
    reply = client.get("/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == metrics.CONTENT_TYPE_LATEST
    values = {}
    for family in text_string_to_metric_families(reply.text):
        assert family.documentation
        for sample in family.samples:
            labels = sample.name, *sorted(sample.labels.items())
            assert labels not in values
            values[labels] = sample.value
    return values


def decide(client, score=1.0, **fields):
    reply = client.post("/v1/decide", json={"score": score} | fields)
    assert reply.status_code == 200
    return reply.json()


def answered(client, **fields):
    """An id that was answered."""
    while True:
        decision = decide(client, **fields)
        if decision["answer"]:
            return decision["id"]


def report(client, id, error):
    return client.post("/v1/feedback", json={"id": id, "error": error}).json()["reason"]


def test_events_are_counted_by_outcome(client):
    before = samples(client)
    first, second = answered(client, key="a"), answered(client, key="b")
    decide(client, id="again")
    decide(client, id="again")
    given = [report(client, first, error) for error in (1, 1, 0)] + [report(client, "never", 0)]
    assert given == ["counted", "repeated", "repeated", "unknown"]
    for _ in range(2):
        assert client.post("/v1/withdraw", json={"id": second}).json() == {"accepted": True, "reason": "withdrawn"}
    assert client.post("/v1/feedback", json={"id": second, "error": 1}).json()["accepted"] is False
    after = samples(client)

    def added(name, **labels):
        labels = name, *sorted(labels.items())
        return after[labels] - before[labels]

    assert added("exaul_feedback_total", outcome="counted") == 1
    assert added("exaul_feedback_total", outcome="repeated") == 1
    assert added("exaul_feedback_total", outcome="changed") == 1
    assert added("exaul_feedback_total", outcome="unknown") == 1
    assert added("exaul_feedback_total", outcome="withdrawn") == 1
    assert added("exaul_withdrawals_total", outcome="withdrawn") == 1
    assert added("exaul_withdrawals_total", outcome="repeated") == 1
    decisions = sum(added("exaul_decisions_total", decision=each) for each in ("answered", "withheld"))
    with sqlite3.connect(client.app.state.service._abstainers.path) as file:
        (journaled,) = file.execute("SELECT count(*) FROM journal WHERE kind = 'decide'").fetchone()
    file.close()
    assert decisions == journaled
    assert added("exaul_decide_seconds_count") == journaled + 1  # the repeated one took its time, too


def test_figures_of_keys_are_those_of_the_service(client):
    ids = [answered(client, key="a") for _ in range(6)]
    for n, id in enumerate(ids[:4]):
        report(client, id, float(n == 0))
    values, figures = samples(client), client.app.state.service.figures("a")
    assert figures["open"] == 2
    for figure, (name, _) in metrics.FIGURES.items():
        if math.isfinite(figures[figure]):
            assert values[f"exaul_key_{name}", ("key", "a")] == figures[figure]
        else:
            assert (f"exaul_key_{name}", ("key", "a")) not in values


@pytest.mark.parametrize("key", TEXTS)
def test_any_key_is_one_label(client, key):
    decide(client, key=key)
    decide(client, key="next")
    keys = {dict(labels[1:])["key"] for labels in samples(client) if labels[0] == "exaul_key_answers"}
    assert keys == {key, "next", "other"}


def test_keys_beyond_the_busiest_are_summed(client, monkeypatch):
    monkeypatch.setattr(metrics, "BUSIEST", 3)
    answers = {}
    for n in range(8):
        for _ in range(n + 3):
            id = answered(client, key=str(n))
            assert report(client, id, 1 / 4) == "counted"
        answers[str(n)] = client.app.state.service.figures(str(n))["answers"]
    values = samples(client)
    keys = {labels[1][1] for labels in values if labels[0] == "exaul_key_answers"}
    assert len(keys) == 4
    for key in keys - {"other"}:
        assert values["exaul_key_answers", ("key", key)] == answers.pop(key)
    assert values["exaul_key_answers", ("key", "other")] == sum(answers.values())
    assert values["exaul_key_wrong_answers", ("key", "other")] == sum(answers.values()) / 4


def test_a_key_named_other_has_no_label_of_its_own(client):
    for _ in range(5):
        answered(client, key="other")
    answered(client, key="a")
    values = samples(client)
    assert values["exaul_key_answers", ("key", "other")] == 5
    assert ("exaul_key_open_answers", ("key", "other")) not in values


def test_the_limit_over_all_keys(tmp_path):
    with TestClient(app(tmp_path / "state", learner="aci-rank", arms=10, seed=1, audit=0.5)) as client:
        answered(client)
        limit = client.app.state.service.fdr_limit()
        assert samples(client)["exaul_fdr_limit_ratio",] == limit


def test_scrapes_share_what_was_read(client, monkeypatch):
    decide(client, key="a")
    samples(client)
    monkeypatch.setattr(metrics, "SCRAPE_EVERY", 1e9)
    monkeypatch.setattr(client.app.state.service, "figures", None)
    decide(client, key="a")
    values = samples(client)
    assert sum(values["exaul_decisions_total", ("decision", each)] for each in ("answered", "withheld")) == 2


def test_two_applications_count_apart(tmp_path):
    configuration = {"learner": "aci-rank", "arms": 10}
    with (
        TestClient(app(tmp_path / "first", **configuration)) as first,
        TestClient(app(tmp_path / "second", **configuration)) as second,
    ):
        decide(first)
        assert samples(first)["exaul_decide_seconds_count",] == 1
        assert samples(second)["exaul_decide_seconds_count",] == 0


def test_without_the_journal_the_counters_remain(client):
    decide(client, key="a")
    client.app.state.service.close()
    assert client.post("/v1/decide", json={"score": 1}).status_code == 503
    values = samples(client)
    assert values["exaul_journal_failures_total", ("reply", "refuse")] == 1
    assert not [labels for labels in values if labels[0].startswith("exaul_key")]


def test_undecided_replies_are_counted_by_reason(client):
    client.app.state.metrics.count_undecided("tools")
    assert samples(client)["exaul_undecided_replies_total", ("reason", "tools")] == 1


def test_each_key_of_a_scrape_is_a_call_of_its_own(client, monkeypatch):
    """So a decision waits for one key at most: the thread of the file takes calls in their order."""
    for key in "abc":
        decide(client, key=key)
    call, calls = client.app.state.call, []

    async def recorded(function, *arguments):
        calls.append((function.__name__, *arguments))
        return await call(function, *arguments)

    monkeypatch.setattr(client.app.state, "call", recorded)
    samples(client)
    assert [call for call in calls if call[0] == "figures"] == [("figures", key) for key in "abc"]


def test_a_scope_is_needed(tmp_path):
    (tmp_path / "tokens").write_text("decide,feedback 0123456789abcdef\nread fedcba9876543210\n")
    with TestClient(app(tmp_path / "state", tokens=str(tmp_path / "tokens"))) as client:
        assert client.get("/metrics").status_code == 401
        for token, status in (("0123456789abcdef", 403), ("fedcba9876543210", 200)):
            assert client.get("/metrics", headers={"Authorization": f"Bearer {token}"}).status_code == status
