"""The summary: what was answered of what can be, which learner to use, and a table that fits the terminal."""

import re
from dataclasses import replace

import numpy as np
import pytest

from exaul import Sweep, run
from exaul.engine.logs.log import Records
from exaul.engine.results.summary import (
    describe_backends,
    describe_checks,
    shares_answerable,
    summarize,
    summarize_theory,
)
from exaul.kernels.game import GRIDS

SMALL = {"trials": 2, "horizon": 600, "arms": 20}
EASY = Records("easy", np.repeat([0.9, 0.1], 50), np.repeat([0.0, 1.0], 50), 0, None)  # half can be answered
HARD = Records("hard", np.repeat([0.9, 0.1], [10, 90]), np.repeat([0.0, 1.0], [10, 90]), 0, None)  # a tenth
HOPELESS = HARD._replace(errors=np.ones(100))


@pytest.mark.parametrize(
    ("records", "segments", "expected"),
    [
        ((EASY,), 1, {0.1: 0.5}),
        ((EASY, HARD), 2, {0.1: 0.3}),
        ((EASY, HARD), 10, {0.1: 0.3}),
        ((EASY, HARD), 1, {}),  # every round may be of either
        ((), 1, {}),
        ((), 2, {}),
    ],
)
def test_answerable_is_the_mean_over_segments(records, segments, expected):
    found = shares_answerable(records, GRIDS["uniform"](20, ()), segments, [0.1])
    assert found == pytest.approx(expected)


def of_answerable(result):
    lines = result.summary().splitlines()
    place = lines[0].index("of answerable") + len("of answerable")
    return [line[:place].split()[-1] for line in lines[1 : 1 + result.trials["learner"].nunique()]]


def test_a_trial_that_answers_more_than_can_be_counts_as_all():
    result = run(Sweep(**SMALL, learners=("no-abstention", "always-abstain")), [EASY])
    assert of_answerable(result) == ["100%", "0%"]


@pytest.mark.parametrize(
    ("environment", "records"),
    [
        ("gradual-shift", [EASY, HARD]),
        ("always-wrong", [EASY]),
        ("stochastic", [HOPELESS]),
    ],
)
def test_the_share_of_answerable_is_empty_if_zero_or_unknown(environment, records):
    result = run(Sweep(**SMALL, environment=environment, learners=("always-abstain",)), records)
    assert of_answerable(result) == ["-"]


def test_of_a_log_that_is_replayed_only_the_rounds_count_that_are_reached():
    result = run(Sweep(trials=1, arms=20, horizon=50, environment="replay", learners=("no-abstention",)), [EASY])
    assert EASY.errors.mean() > 0
    assert of_answerable(result) == ["100%"]


def table_of(text):
    """Return the cells of a table by title, and the line that each is in; no cell may be empty."""
    head, *rows = text.split("\n\n")[0].splitlines()
    titles = re.split(r"  +", head.strip())
    cells = [re.split(r"  +", row.removeprefix("* ").strip()) for row in rows]
    return {title: [row[n] for row in cells] for n, title in enumerate(titles)}


def test_the_default_table_fits_100_columns_and_its_numbers_align():
    result = run(Sweep(**SMALL, alphas=(0.05, 0.123)))
    text = summarize(result.trials, {0.05: 0.3}, advised={0.05: "aci-rank"})
    head, *rows = text.split("\n\n")[0].splitlines()
    assert max(map(len, [head, *rows])) <= 100
    assert {len(row) for row in rows} == {len(head)}
    table = table_of(text)
    titles = ["learner", "alpha", "FDR", "answered", "R_T", "at most", "FDR<=alpha", "of answerable"]
    assert list(table) == titles
    assert set(table["alpha"]) == {"0.050", "0.123"}
    assert [row.split()[1:3] for row in rows if row.startswith("* ")] == [["aci-rank", "0.050"]]
    for title in titles[1:]:
        decimals = {len(re.sub(r"[^.\d].*", "", cell).partition(".")[2]) for cell in table[title] if cell != "-"}
        assert len(decimals) <= 1, title


def test_theory_is_printed_on_request_and_lambda_if_there_are_several():
    sweep = Sweep(**SMALL, lambdas=(3, 20))
    result = run(sweep)
    plain, theory = result.summary(), result.summary(theory=True)
    assert "lambda" in table_of(plain)
    assert "lambda" not in table_of(run(Sweep(**SMALL, learners=("exaul",))).summary())
    assert "more: --theory" in plain
    assert "more: --theory" not in theory
    added = [part for part in theory.split("\n\n") if part not in plain]
    table = table_of(added[0])
    trials = result.trials
    means = trials.groupby(["learner", "alpha", "lambda"], sort=False)["regret"].mean()
    assert [float(cell) for cell in table["regret"]] == [round(x, 1) for x in means]
    assert set(table["Lemma 1"]) == {"held"}
    assert dict(zip(table["learner"], table["limit of R_T"], strict=True)) == {
        name: "-" if trials[trials["learner"] == name]["risk_bound"].isna().all() else "held"
        for name in table["learner"]
    }


def test_a_broken_bound_is_counted_and_printed_without_theory():
    result = run(Sweep(**SMALL, learners=("exaul", "aci-rank")))
    trials, known = result.trials.copy(), result.trials["learner"] == "exaul"
    line = describe_checks(trials, 0.05)
    assert line == (
        "trials of all learners: Lemma 1 held in all 4, the limit of R_T held in all 2, "
        "the bound of the regret (probability 1 - 0.05) held in all 2"
    )
    trials.loc[0, "regret"] = 2 * trials.loc[0, "regret_bound"]  # a larger regret cannot break the lemma
    trials.loc[~known, "fdr_risk"] = 600
    broken = replace(result, trials=trials).summary(80)
    text = " ".join(broken.split())
    assert "the limit of R_T is BROKEN in 2 of 2" in text
    assert "the bound of the regret (probability 1 - 0.05) is BROKEN in 1 of 2" in text
    trials["lambda"], trials["fdr_risk"] = 1e9, 600.0
    trials.loc[0, "regret"] = 0.0
    assert "Lemma 1 is BROKEN in" in describe_checks(trials, 0.05)
    assert "BROKEN" in table_of(summarize_theory(trials, 0.05))["Lemma 1"]


@pytest.mark.parametrize(
    ("flags", "limits"),
    [
        ({}, ""),
        (
            {"delay": 20},
            ", while at most 20 answers wait for feedback and no feedback is more than 100,000 questions late",
        ),
        ({"delay": 20, "reserve": True}, ", while no feedback is more than 100,000 questions late"),
        ({"delay": 20, "missing": "wrong"}, ", while at most 20 answers wait for feedback"),
        ({"delay": 20, "reserve": True, "missing": "wrong"}, ""),
        ({"feedback_rate": 0.5, "missing": "wrong"}, ", while at most 600 answers wait for feedback"),
    ],
)
def test_a_bound_says_which_late_feedback_it_covers(flags, limits):
    """A mean delay limits nothing: 300 wrong answers whose feedback takes 2,000 questions, all others at once."""
    said = run(Sweep(**SMALL, learners=("aci-rank",), **flags)).summary()
    assert f"proven limit of R_T on any sequence{limits} (of aci-rank: on any with as many answers)\n" in said


def test_a_bound_that_depends_on_the_answers_says_so():
    name = "tests.constant:bounded_by_answers"
    said = run(Sweep(**SMALL, learners=("always-abstain", name))).summary()
    assert f"limit of R_T on any sequence (of {name}: on any with as many answers)\n" in said


def test_the_last_line_says_where_and_on_what():
    learners = [("exaul", "blocks"), ("exp3-ix", "rows"), ("ew", "blocks")]
    manifest = {"device": "gpu: NVIDIA H100 80GB HBM3", "precision": "float64"}
    listed = [{"learner": name, "backend": where} for name, where in learners]
    said = "simulated on gpu: NVIDIA H100 80GB HBM3, float64: exaul, ew on blocks; exp3-ix on rows"
    assert describe_backends(manifest, listed) == said


@pytest.mark.parametrize(
    ("horizon", "times"), [(None, "once"), (40, "at most once"), (250, "2.5 times")], ids=["all", "few", "many"]
)
def test_the_summary_says_how_often_a_record_is_used(horizon, times):
    result = run(Sweep(trials=1, arms=20, horizon=horizon, learners=("aci-rank",)), [EASY])
    rounds = horizon or 100
    assert result.manifest["sources"][0]["horizon"] == rounds
    said = f"a trial has {rounds} rounds (--horizon) and uses each of the 100 records {times}"
    assert said in result.summary().splitlines()
    assert "a trial has" not in run(Sweep(trials=1, horizon=20, learners=("aci-rank",))).summary()


def test_the_default_rounds_of_a_shift_use_no_record_twice():
    short = EASY._replace(scores=EASY.scores[:30], errors=EASY.errors[:30])
    given = {"trials": 1, "arms": 20, "learners": ("aci-rank",), "environment": "single-shift"}
    assert run(Sweep(**given), [EASY, short]).manifest["sources"][0]["horizon"] == 60


def test_a_table_for_a_paper():
    text = run(Sweep(**SMALL, learners=("aci-rank", "always-abstain"), lambdas=(1, 2))).to_latex()
    lines = text.splitlines()
    assert lines[2] == r"learner & $\alpha$ & $\lambda$ & FDR & answered & $R_T$ & at most \\"
    assert [line.count(" & ") for line in lines[4:-2]] == [6] * 4
    assert [r"$\pm$" in text, r"0.0\%" in text, "$-$" in text, "±" in text] == [True, True, True, False]
