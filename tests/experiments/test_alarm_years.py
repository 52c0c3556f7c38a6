"""The experiment ``alarms``: that it simulates what an Abstainer does, and counts alarms as it says."""

import io

import numpy as np
import pandas as pd
import pytest

from exaul import Abstainer
from exaul.engine.checks import BadInput
from exaul.engine.logs.profiles import load_profile
from exaul.serving.alarms import DECISIONS, Alarms
from experiments import alarms
from experiments.__main__ import main
from experiments.alarms import AlarmYears, Poll, decisions, draw_stream, episodes, poll


@pytest.fixture
def stream():
    return draw_stream(load_profile("nq-like"), 2000, 0.2, np.random.default_rng(0))


@pytest.mark.parametrize("learner", ["aci-rank", "exaul-known"])
def test_decisions_are_those_of_an_abstainer(learner, stream):
    abstainer, expected = Abstainer(alpha=0.2, learner=learner, lam=0, seed=0, key=7), []
    for score, error, rater in zip(*stream, strict=True):
        decision = abstainer.decide(score)
        expected.append(decision.answer)
        if decision.answer and rater:
            assert abstainer.feedback(decision.id, error) == "counted"
    assert 0 < sum(expected) < len(expected)
    assert decisions(learner, 0.2, stream, 7).tolist() == expected


def test_polls_are_those_of_alarms_that_see_the_stream(stream):
    answered = np.arange(2000) < 900
    seen = list(poll(0.1, stream, answered, 500, 100))
    assert [each.questions for each in seen] == list(range(100, 1501, 100))
    assert [each.feedbacks for each in seen][:4] == [
        int((answered & stream.raters)[500:n].sum()) for n in (600, 700, 800, 900)
    ]
    assert seen[-1].feedbacks == seen[3].feedbacks
    assert ["silent" in each.active for each in seen] == [500 + each.questions >= 1900 for each in seen]
    watched = Alarms(0.1)
    for score, error, rater, shown in zip(*stream, answered, strict=True):
        watched.add_decision(score, shown)
        if shown and rater:
            watched.add_feedback(error)
    assert watched.active().keys() == seen[-1].active


def test_an_episode_begins_after_a_pause():
    times = [100, 200, 300, 300 + DECISIONS - 1, 300 + 3 * DECISIONS]
    polls = [
        Poll(t, 0, frozenset({"wrong"} if t in times else ())) for t in sorted({*range(0, 40_000, 50), *times})
    ]
    assert episodes(polls, "wrong") == [100, 300 + 3 * DECISIONS]
    assert episodes(polls, "drift") == []


def test_cases_and_changes_keep_the_share_of_raters():
    rng = np.random.default_rng(0)
    first, other = (
        draw_stream(load_profile(name), 14 * alarms.DAY, 0.02, rng) for name in ("nq-like", "triviaqa-like")
    )
    shares = {name: case(first, other, rng).raters.mean() for name, case in alarms.CASES.items()}
    expected = [0.02, 0.02 * 2 / 3, 0.02 * 5 / 7, 0.02, 0.02]
    assert list(shares.values()) == pytest.approx(
        expected, abs=0.003
    )  # 38,360 draws: six standard errors are .0043
    rates = {
        name: change(first, rng).errors.mean() - first.errors.mean() for name, change in alarms.CHANGES.items()
    }
    assert rates["error rate + .2, same scores"] == pytest.approx(0.2, abs=0.02)
    assert alarms.CHANGES["feedback stops"](first, rng).raters.sum() == 0


def test_bad_input_names_the_field():
    for field, value in (
        ("trials", 0),
        ("learners", ("no",)),
        ("sources", ("no",)),
        ("alphas", (1.0,)),
        ("feedback_rate", 0.0),
    ):
        with pytest.raises(BadInput, match=f"^{field}"):
            AlarmYears(**{field: value})


@pytest.mark.slow
def test_each_change_is_found_by_its_alarm(monkeypatch, capsys):
    monkeypatch.setattr(alarms, "YEAR", alarms.YEAR // 10)
    flags = ["--trials", "4", "--learners", "aci-rank", "--alphas", "0.1", "--sources", "nq-like"]
    assert main(["alarms", *flags]) == 0
    table = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert set(table["case"]) == {*alarms.CASES, *alarms.CHANGES}
    changes = table[table["phase"] == "change"].set_index(["case", "alarm"])["rate"]
    for change, alarm in {
        "error rate + .2, same scores": "wrong",
        "scores squared": "drift",
        "square roots of scores": "drift",
        "feedback stops": "unrated",
        "feedback inverted": "wrong",
    }.items():
        assert changes[change, alarm] == 1
    assert changes["none"].sum() == 0
