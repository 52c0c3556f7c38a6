"""Metrics: what they count, that any key survives their text, that their number is bounded, and the alert rules."""

import math
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from exaul.kernels.fdr_limit import fdr_limit
from exaul.serving import prometheus
from tests.serving.http.apps import CONFIGURATION, answered

PAGE = Path(__file__).parents[3] / "docs" / "rules.yml"
RULES = [rule for group in yaml.safe_load(PAGE.read_text())["groups"] for rule in group["rules"]]


def samples(client):
    """All samples by name and labels; no pair occurs twice."""
    reply = client.get("/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain; version=")
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


def test_counters_of_a_key_are_its_figures(client, opened):
    """All since the start of the file, which is also that of the process; each application counts its own."""
    ids = [answered(client, key="a") for _ in range(6)]
    answered(client, key="b")
    items = [{"id": id, "error": n % 4 == 0} for n, id in enumerate([*ids[:4], ids[0], "never"])]
    given = client.post("/v1/feedback", json=items).json()
    assert [reply["reason"] for reply in given] == ["counted"] * 4 + ["repeated", "unknown"]
    decide(client, score=0.25, key="a", id="again")
    decide(client, score=0.25, key="a", id="again")
    values, figures = samples(client), client.app.state.service.figures("a")
    a = "key", "a"
    assert values["exaul_questions_total", a] == values["exaul_score_count", a] == figures["questions"]
    assert values["exaul_score_sum", a] == figures["questions"] - 0.75
    assert values["exaul_answers_total", a] == figures["answers"]
    assert values["exaul_feedback_total", a, ("outcome", "counted")] == figures["observed"] == 4
    assert values["exaul_feedback_total", a, ("outcome", "repeated")] == 1
    assert values["exaul_feedback_total", ("key", "other"), ("outcome", "unknown")] == 1
    assert values["exaul_wrong_total", a] == figures["wrong"] == 1
    assert values["exaul_wrong_total", ("key", "b")] == 0  # before its first feedback
    decided = figures["questions"] + values["exaul_questions_total", ("key", "b")]
    assert values["exaul_decide_seconds_count",] == decided + 1  # the repeated one took its time, too
    with opened("second", **CONFIGURATION) as second:
        assert samples(second)["exaul_decide_seconds_count",] == 0


def test_any_key_is_one_label(client):
    keys = "a\nb", 'a"b\\', "a\\nb", "é\u2028\r\x85", "{}=,", "", "k" * 256
    for key in keys:
        decide(client, key=key)
    labels = [dict(labels)["key"] for name, *labels in samples(client) if name == "exaul_questions_total"]
    assert sorted(labels) == sorted(keys)


def test_keys_beyond_the_first_are_counted_together_also_after_a_restart(opened, monkeypatch):
    monkeypatch.setattr(prometheus, "MOST_KEYS", 2)
    for keys in "abbcccd", "dcccbba":
        with opened(**CONFIGURATION) as client:
            for key in keys:
                decide(client, key=key)
            values = samples(client)
            for key in "ac":
                client.app.state.service.count_undecided(key, "no_score", "abstain")
            undecided = {dict(x)["key"] for name, *x in samples(client) if name == "exaul_undecided_replies_total"}
        counted = {labels[1][1]: value for labels, value in values.items() if labels[0] == "exaul_questions_total"}
        assert counted == {"a": 1, "b": 2, "other": 4}
        assert undecided == {"a", "other"}


def test_limits_and_targets_are_those_of_the_keys(opened, monkeypatch):
    """Each is a call of its own, so a decision waits for one key at most: the thread takes calls in their order."""
    with opened(audit=0.5, flips=(0.1, 0.1), keys={"strict": {"alpha": 0.02}}, **CONFIGURATION) as client:
        answered(client, key="a")
        decide(client, key="strict")
        state, calls = client.app.state, []
        call, service = state.call, state.service
        monkeypatch.setattr(state, "call", lambda *given: calls.append(given) or call(*given))
        values = samples(client)
        assert [given for given in calls if given[0] == service.figures] == [
            (service.figures, key) for key in ("a", "strict")
        ]
        for key, alpha, aim in (("a", 0.1, 0.18), ("strict", 0.02, 0.116)):
            assert values["exaul_key_alpha_ratio", ("key", key)] == alpha
            assert values["exaul_key_aim_ratio", ("key", key)] == pytest.approx(aim)
            assert values["exaul_key_fdr_limit_ratio", ("key", key)] == pytest.approx(
                service.figures(key)["fdr_limit"], nan_ok=True
            )
            assert values["exaul_key_expected_ratio", ("key", key)] == pytest.approx(math.nan, nan_ok=True)
            assert values["exaul_key_threshold", ("key", key)] == service.figures(key)["threshold"]
            assert values["exaul_key_audits", ("key", key)] == service.figures(key)["audited"]
        assert values["exaul_fdr_limit_ratio",] == service.fdr_limit() > 0
        service.begin("a", alpha=0.2, abandon_audits=True)
        figures = service.figures("a")
        begun = samples(client)  # it has answered nothing since
        assert figures["audited"] > figures["audited_since_start"] == 0 == begun["exaul_key_audits", ("key", "a")]
        assert begun["exaul_key_alpha_ratio", ("key", "a")] == 0.2
        assert begun["exaul_key_fdr_limit_ratio", ("key", "a")] == pytest.approx(math.nan, nan_ok=True)
        free = values["exaul_free_bytes",]
        assert 0 < free == pytest.approx(service.free_bytes(), rel=0.5)


def test_without_the_journal_the_counters_remain(client):
    """What cannot be read is not repeated."""
    decide(client, key="a")
    assert ("exaul_key_alpha_ratio", ("key", "a")) in samples(client)
    client.app.state.service.close()
    assert client.post("/v1/decide", json={"score": 1}).status_code == 503
    values = samples(client)
    assert values["exaul_journal_failures_total", ("reply", "refuse")] == 1
    assert values["exaul_questions_total", ("key", "a")] == 1
    assert not [labels for labels in values if labels[0].startswith("exaul_key_")]


def test_the_alert_rules_name_metrics_and_labels_that_are_exported(opened):
    assert {rule["alert"] for rule in RULES} == {
        *("ExaulLimit", "ExaulWrong", "ExaulSilent", "ExaulUnrated", "ExaulScoresMoved"),
        *("ExaulModelFails", "ExaulWithoutScore"),  # of the gateway
        *("ExaulJournalFails", "ExaulDisk", "ExaulDown", "ExaulUnjudged"),
    }
    assert {rule["labels"]["severity"] for rule in RULES} == {"page", "warning"}
    with opened(audit=0.5, **CONFIGURATION) as client:
        client.post("/v1/feedback", json={"id": answered(client, key="a"), "error": 1})
        client.app.state.metrics.undecided.labels("a", "no_score").inc()
        values = samples(client)
    values_by_name = {name: dict(labels) for name, *labels in values}
    of_key = {labels[0] for labels in values if ("key", "a") in labels}
    (of_ratings,) = [rule["expr"] for rule in RULES if rule["alert"] == "ExaulWrong"]
    assert "1.5 * exaul_key_aim_ratio" in of_ratings  # not alpha: ratings may be flipped
    (of_calls,) = [rule["expr"] for rule in RULES if rule["alert"] == "ExaulModelFails"]
    assert of_calls.count("sum by (job, instance, call)") == 3  # else scores that all fail are half of the calls
    for rule in RULES:
        named = set(re.findall(r"exaul_\w+", rule["expr"]))
        assert named or rule["expr"] == 'up{job="exaul"} == 0'  # a metric of Prometheus itself
        assert named <= (of_key if "$labels.key" in rule["annotations"]["summary"] else {*values_by_name})
        known_labels = {"job", *(label for name in named for label in values_by_name[name])}
        assert set(re.findall(r'(\w+)[!=]~?"', rule["expr"])) <= known_labels
        assert set(re.findall(r'outcome="(\w+)"', rule["expr"])) <= {"counted"}


@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.2])
def test_the_alert_of_the_limit_is_quiet_until_a_service_at_its_target_could_be_below_it(alpha):
    """Its expression is one of Python, too."""
    (expression,) = [rule["expr"] for rule in RULES if rule["alert"] == "ExaulLimit"]
    cases = (20, 20, False), (99, 99, False), (101, 101, False), (101, 180, True), (101, 40, False)
    for audits, wrong, fires in cases:  # both times alpha
        answers = audits / alpha / 0.02
        limit = fdr_limit(wrong, answers, answers, 0.02, (0.0, 0.0), 0.05)
        values = {"alpha_ratio": alpha, "audits": audits / alpha, "fdr_limit_ratio": limit}
        names = {f"exaul_key_{name}": value for name, value in values.items()}
        assert eval(" ".join(expression.split()), names) == fires


@pytest.mark.parametrize(
    ("unscored", "decided", "fires"),
    [(4, 0, False), (5, 0, True), (5, math.nan, True), (5, 44, True), (5, 45, False), (100, 10_000, False)],
)
def test_the_alert_of_answers_without_score_is_of_their_share(unscored, decided, fires):
    """NaN stands for a key of which none was decided, and which has no such series. ``unless`` is then true."""
    (expression,) = [rule["expr"] for rule in RULES if rule["alert"] == "ExaulWithoutScore"]
    named = re.sub(
        r"sum by \(job, instance, key\) \(increase\((\w+).*?\[6h]\)\)", r"\1", " ".join(expression.split())
    )
    values = {"exaul_undecided_replies_total": unscored, "exaul_questions_total": decided}
    assert eval(named.replace("unless", "and not"), values) == fires
