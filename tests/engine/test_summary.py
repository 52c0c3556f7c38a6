"""The summary: what was answered of what can be, which learner to use, and a table that fits the terminal."""

import numpy as np
import pytest

from exaul import Sweep, run
from exaul.engine.data.records import Records
from exaul.engine.data.tables import frame
from exaul.engine.results.summary import advise, describe_backends, shares_answerable, summarize

SMALL = {"trials": 2, "horizon": 600, "arms": 20}
EASY = Records("easy", np.repeat([0.9, 0.1], 50), np.repeat([0.0, 1.0], 50), 0, None)  # half can be answered
HARD = Records("hard", np.repeat([0.9, 0.1], [10, 90]), np.repeat([0.0, 1.0], [10, 90]), 0, None)  # a tenth
HOPELESS = HARD._replace(errors=np.ones(100))
FEEDBACK = {"a": "bandit", "b": "bandit", "sees": "full", "never": "none"}


def cell(name, share, fdr, bound=np.nan, alpha=0.1, lam=1.0):
    """Two trials of a learner that answered a share of 1,000 rounds; or as many shares."""
    answered = np.round(1000 * np.broadcast_to(share, 2)).astype(int)
    rows = {"learner": name, "alpha": alpha, "lambda": lam, "horizon": 1000, "answered": answered}
    return frame(rows | {"fdr": fdr, "fdr_risk": answered * (fdr - alpha), "risk_bound": bound})


def table(*cells):
    return frame({name: np.concatenate([one[name] for one in cells]) for name in cells[0]})


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
    found = shares_answerable(records, "uniform", 20, segments, [0.1])
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
    assert result._reached()[0].errors.tolist() == [0.0] * 50
    assert of_answerable(result) == ["100%"]


def test_the_table_fits_150_columns():
    result = run(Sweep(**SMALL, alphas=(0.05, 0.123)))
    head, *rows = summarize(result.trials, {0.05: 0.3}).splitlines()
    assert len(head) == 150
    assert {len(row) for row in rows} == {150}
    assert [title in head for title in ("inefficiency", " answered", " of answerable")] == [True] * 3


def test_the_learner_to_use_answers_most_of_those_that_promise_and_hold_alpha():
    trials = table(
        cell("a", 0.4, 0.09, 20.2), cell("b", 0.5, 0.109, 30.5), cell("sees", 0.9, 0.1), cell("never", 0, 0.1, 0.0)
    )
    assert advise(trials, {0.1: 0.625}, FEEDBACK, ()) == (
        "at alpha = 0.1 use b: in this simulation it answered 50.0% (80% of answerable) at an FDR of 0.1090; on "
        "any 1,000 questions it promises at most 31 wrong answers above alpha"
    )
    trials.loc[trials["learner"] == "b", "fdr"] = 0.111
    assert advise(trials, {}, FEEDBACK, ()).startswith(
        "at alpha = 0.1 use a: in this simulation it answered 40.0% at an"
    )


def test_a_learner_that_promises_nothing_is_not_used_where_one_does():
    trials = table(cell("a", 0.9, 0.05), cell("b", 0.2, 0.05, [30.0, 31.0]))
    assert advise(trials, {}, FEEDBACK, ()).endswith(
        "use b: in this simulation it answered 20.0% at an FDR of 0.0500; on any 1,000 questions it promises at "
        "most 31 wrong answers above alpha"
    )
    alone = trials[trials["learner"] == "a"]
    assert advise(alone, {0.1: 0.5}, FEEDBACK, ()) == (
        "at alpha = 0.1 the best of these is a: in this simulation it answered 90.0% (100% of answerable) at an "
        "FDR of 0.0500"
    )


def test_a_bound_that_depends_on_the_answers_says_so_even_in_a_single_trial():
    """6,000 wrong answers of score 1 break a bound that holds only on sequences with as many answers."""
    easy = Records("easy", np.full(6000, 0.99), np.zeros(6000), 0, None)
    given = {"environment": "replay", "trials": 1, "learners": ("threshold",), "alphas": (0.1,)}
    result = run(Sweep(**given), [easy])
    (row,) = result.trials.itertuples()
    assert (
        f"on any 6,000 questions of which it answers at least {row.answered:,} it promises at most"
        in result.summary()
    )
    (hostile,) = run(
        Sweep(**given), [Records("hostile", np.ones(6000), np.ones(6000), 0, None)]
    ).trials.itertuples()
    assert row.risk_bound < hostile.fdr_risk <= hostile.risk_bound
    assert hostile.answered < row.answered


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
    said = run(Sweep(**SMALL, learners=("ranked-threshold",), **flags)).summary()
    assert f"at most this on any sequence{limits} (of threshold" in said


def test_where_none_holds_alpha_the_least_wrong_answers_above_it_decide():
    trials = table(cell("a", 0.4, 0.2, 90.0), cell("b", 0.01, 0.9, 90.0))
    said = "use b: in this simulation it answered 1.0% at an FDR of 0.9000, above alpha; on any 1,000 questions"
    assert said in advise(trials, {0.1: 0.5}, FEEDBACK, ())
    nothing = f"at alpha = 0.1 on this grid a learner should mostly abstain; {said}"
    assert nothing in advise(trials, {0.1: 0.0}, FEEDBACK, ())


def test_each_alpha_has_its_sentence_and_lambda_is_named_where_it_matters():
    cells = [cell("a", share, 0.05, alpha=0.1, lam=lam) for share, lam in ((0.3, 1.0), (0.5, 7.0))]
    cells += [cell("a", 0.2, 0.05, alpha=0.2, lam=lam) for lam in (1.0, 7.0)]
    first, second = advise(table(*cells), {}, FEEDBACK, ()).splitlines()
    assert first.startswith("at alpha = 0.1 the best of these is a (lambda = 7): in")
    assert second.startswith("at alpha = 0.2 the best of these is a: in")


def test_a_learner_with_full_feedback_or_none_is_not_recommended():
    assert advise(table(cell("sees", 0.9, 0.05), cell("never", 0, 0.1, 0.0)), {}, FEEDBACK, ()) == ""


def test_by_default_the_summary_names_the_learner_beyond_the_paper():
    said = run(Sweep(trials=3, horizon=3000, arms=100, alphas=(0.1,))).summary()
    assert "at alpha = 0.1 use ranked-threshold: in this simulation it answered" in said
    assert "on any 3,000 questions it promises at most 103 wrong answers above alpha" in said


def test_the_last_line_says_where_and_on_what():
    players = [("exaul", "cuda-warps"), ("threshold", "cuda"), ("ew", "cuda-warps")]
    manifest = {"device": "gpu: NVIDIA H100 80GB HBM3", "precision": "float64"}
    manifest["players"] = [{"learner": name, "backend": where} for name, where in players]
    said = "simulated on gpu: NVIDIA H100 80GB HBM3, float64: exaul, ew on cuda-warps; threshold on cuda"
    assert describe_backends(manifest) == said
