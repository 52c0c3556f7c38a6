"""Advice: the learner to use, or none; for data that the sweep has not seen, from the spread of its trials."""

import numpy as np
import pytest

from exaul import Sweep, run
from exaul.engine import registry
from exaul.engine.data.records import Records
from exaul.engine.data.tables import frame, load
from exaul.engine.results.advice import NEAR, advice_table, describe, least_alpha

FEEDBACK = {"a": "bandit", "b": "bandit", "sees": "full", "never": "none"}


def cell(name, share, fdr, bound=np.nan, alpha=0.1, lam=1.0):
    """Two trials of a learner that answered a share of 1,000 rounds, with an FDR; or two of each."""
    answered = np.round(1000 * np.broadcast_to(share, 2)).astype(int)
    rows = {"learner": name, "alpha": alpha, "lambda": lam, "horizon": 1000, "answered": answered}
    return frame(rows | {"fdr": fdr, "fdr_risk": answered * (fdr - alpha), "risk_bound": bound})


def advised(*cells, in_order=None, by_answers=()):
    players = [
        {"learner": name, "feedback": kind, "bound_by_answers": name in by_answers}
        for name, kind in FEEDBACK.items()
    ]
    return advice_table(stacked(cells), players, None if in_order is None else stacked(in_order))


def stacked(cells):
    return frame({name: np.concatenate([each[name] for each in cells]) for name in cells[0]})


def said(*cells, answerable=None, least=None, **given):
    return describe(advised(*cells, **given), 1000, answerable or {}, least).splitlines()


def test_the_learner_to_use_answers_most_of_those_that_promise_and_hold_alpha():
    cells = [
        cell("a", 0.4, 0.09, 20.2),
        cell("b", 0.5, 0.109, 30.5),
        cell("sees", 0.9, 0.1),
        cell("never", 0, 0.1, 0.0),
    ]
    first, compared = said(*cells, answerable={0.1: 0.625})
    assert first == (
        "at alpha = 0.1 use b: it answers at least 50.0% (80% of answerable) at an FDR of at most 0.1090; on any "
        "1,000 questions it promises at most 31 wrong answers above alpha"
    )
    assert compared == (
        "compared: a, b in 2 trials. A learner qualifies with an FDR of at most alpha + 0.01, or 1.5 alpha if that "
        "is less (confidence 95%)."
    )
    cells[1] = cell("b", 0.5, 0.111, 30.5)
    assert said(*cells)[0].startswith("at alpha = 0.1 use a: it answers at least 40.0% at an")


def test_a_learner_at_the_edge_qualifies_only_if_its_trials_agree():
    """1.645 x .0028 / sqrt(2) is .0033: the mean FDR .108 may be .1113."""
    steady, unsteady = cell("a", 0.5, 0.108, 9.0), cell("a", 0.5, np.array([0.106, 0.110]), 9.0)
    assert advised(steady)["qualifies"].tolist() == [1]
    (row,) = advised(unsteady).to_dict("records")
    assert row["fdr"] == pytest.approx(0.108)
    assert row["fdr_most"] == pytest.approx(0.108 + 1.645 * 0.002)
    assert row["qualifies"] == (row["fdr_most"] <= 0.1 + NEAR) == 0


def test_at_a_small_alpha_the_tolerance_is_half_of_it():
    table = advised(cell("a", 0.5, 0.0015, 9.0, alpha=0.001), cell("b", 0.6, 0.0016, 9.0, alpha=0.001))
    assert table["qualifies"].tolist() == [1, 0]


def test_the_lower_bound_of_the_answers_decides():
    """On average b answers more, but a always does."""
    table = advised(cell("a", 0.5, 0.09, 9.0), cell("b", np.array([0.3, 0.8]), 0.09, 9.0))
    assert table.loc[table["advised"] == 1, "learner"].tolist() == ["a"]


def test_the_order_of_the_log_counts_as_much_as_the_trials():
    cells = [cell("a", 0.5, 0.09, 9.0), cell("b", 0.4, 0.09, 9.0)]
    in_order = [cell("a", 0.5, 0.12, 9.0)[:1], cell("b", 0.3, 0.05, 9.0)[:1]]
    table = advised(*cells, in_order=in_order).set_index("learner")
    assert table["advised"].to_dict() == {"a": 0, "b": 1}
    assert table["fdr_most"].to_dict() == {"a": 0.12, "b": 0.09}
    assert table["answered_least"].to_dict() == {"a": 0.5, "b": 0.3}
    assert ", and each in the order of the log." in said(*cells, in_order=in_order)[-1]


def test_a_learner_that_promises_nothing_is_not_used_where_one_does():
    cells = [cell("a", 0.9, 0.05), cell("b", 0.2, 0.05, np.array([30.0, 31.0]))]
    assert said(*cells)[0].endswith(
        "use b: it answers at least 20.0% at an FDR of at most 0.0500; on any 1,000 questions it promises at most "
        "31 wrong answers above alpha"
    )
    assert said(cells[0], answerable={0.1: 0.5})[0] == (
        "at alpha = 0.1 the best of these is a: it answers at least 90.0% (100% of answerable) at an FDR of at "
        "most 0.0500"
    )


def test_a_bound_that_depends_on_the_answers_names_the_fewest():
    text = said(cell("a", np.array([0.41, 0.4]), 0.05, 20.0), by_answers=("a",))[0]
    assert "on any 1,000 questions of which it answers at least 400 it promises at most 20" in text


def test_a_bound_that_depends_on_the_answers_says_so_even_in_a_single_trial():
    easy = Records("easy", np.full(6000, 0.99), np.zeros(6000), 0, None)
    learners = ("tests.constant:bounded_by_answers",)
    result = run(Sweep(environment="replay", trials=1, learners=learners, alphas=(0.1,)), [easy])
    assert "on any 6,000 questions of which it answers at least 6,000 it promises at most 6,000" in result.summary()


def test_where_none_holds_alpha_none_is_to_be_used():
    cells = [cell("a", 0.4, 0.2, 90.0), cell("b", 0.01, 0.9, 90.0), cell("never", 0, 0.1, 0.0)]
    nearest = "at alpha = 0.1 use none of these learners: a comes nearest, with an FDR of 0.2000"
    assert said(*cells)[0] == nearest
    least = f"{nearest}; 0.15 is the least alpha at which a fixed threshold answers 5%"
    assert said(*cells, answerable={0.1: 0.01}, least=0.15)[0] == least
    few = f"{nearest}; a fixed threshold answers 30.0%, but the rounds are too few to learn it"
    assert said(*cells, answerable={0.1: 0.3}, least=0.02)[0] == few


def test_a_learner_that_answers_nothing_does_not_qualify():
    assert advised(cell("a", 0.0, 0.1, 9.0))["qualifies"].tolist() == [0]


def test_each_alpha_has_its_sentence_and_lambda_is_named_where_it_matters():
    cells = [cell("a", share, 0.05, alpha=0.1, lam=lam) for share, lam in ((0.3, 1.0), (0.5, 7.0))]
    first, second, _ = said(*cells, cell("a", 0.2, 0.05, alpha=0.2))
    assert first.startswith("at alpha = 0.1 the best of these is a (lambda = 7): it")
    assert second.startswith("at alpha = 0.2 the best of these is a: it")


def test_a_learner_with_full_feedback_or_none_is_no_candidate():
    table = advised(cell("sees", 0.9, 0.05), cell("never", 0, 0.1, 0.0))
    assert table.empty
    assert describe(table, 1000, {}, None) == ""


def test_the_least_alpha_is_that_of_the_hardest_source():
    """The upper tenth of a source has an error rate of .13, or is always right."""
    scores = np.repeat([0.9, 0.1], [100, 900])
    hard = Records("hard", scores, np.repeat([1.0, 0.0, 1.0], [13, 87, 900]), 0, None)
    easy = hard._replace(errors=np.repeat([0.0, 1.0], [100, 900]))
    assert least_alpha([easy], "uniform", 20) == 0.0
    assert least_alpha([easy, hard], "uniform", 20) == 0.13


def test_a_sweep_compares_what_was_not_asked_for_and_repeats_none_of_it(tmp_path):
    """20 trials of the others and one of each in order are less than a third of 6 learners in 100 trials."""
    rng = np.random.default_rng(0)
    scores = rng.random(400)
    log = Records("log", scores, (rng.random(400) > scores).astype(float), 0, None)
    game = {"alphas": (0.3,), "arms": 20, "checkpoints": 1, "out": str(tmp_path / "out")}
    result = run(Sweep(**game, learners=registry.PAPER_LEARNERS), [log])
    table = result.advice.set_index("learner")
    assert set(table.index) == set(registry.advisable())
    assert set(table["trials"]) == {20}
    assert table["fdr_in_order"].notna().all()
    assert set(result.trials["learner"]) == set(registry.PAPER_LEARNERS)
    alone = run(Sweep(alphas=(0.3,), arms=20, learners=("aci-rank",), trials=20), [log]).trials
    assert table.loc["aci-rank", "answered"] == (alone["answered"] / alone["horizon"]).mean()
    assert load(tmp_path / "out" / "advice.csv")["advised"].sum() == 1


def test_a_sweep_longer_than_its_log_is_compared_with_the_log_once():
    """The default lambda is that of the sweep's rounds."""
    log = Records("log", np.repeat([0.9, 0.1], 50), np.repeat([0.0, 1.0], 50), 0, None)
    result = run(Sweep(alphas=(0.3,), horizon=300, arms=20, checkpoints=1), [log])
    assert result.advice["fdr_in_order"].notna().all()
    assert result.advice["lambda"].unique().tolist() == [300**0.5]


def test_learners_without_a_bound_are_compared_in_the_order_of_the_log_if_none_has_one():
    """Missing feedback leaves no bound of R_T for all answers."""
    log = Records("log", np.repeat([0.9, 0.1], 50), np.repeat([0.0, 1.0], 50), 0, None)
    learners = ("exaul", *registry.advisable())
    game = {"alphas": (0.3,), "arms": 20, "checkpoints": 1, "learners": learners}
    table = run(Sweep(**game, feedback_rate=0.5, trials=4), [log]).advice
    assert table["risk_bound"].isna().all()
    assert table["learner"].tolist() == list(learners)
    assert table["fdr_in_order"].notna().all()


def test_a_learner_of_the_user_is_compared_in_the_order_of_the_log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "compared_learner.py").write_text("from exaul.kernels.learners.aci_rank import aci_rank as own\n")
    log = Records("log", np.repeat([0.9, 0.1], 50), np.repeat([0.0, 1.0], 50), 0, None)
    learners = (
        "compared_learner:own",
        "aci-rank",
        "no-abstention",
        "always-abstain",
        "best-fixed",
        "exaul",
    )
    table = run(Sweep(alphas=(0.3,), arms=20, checkpoints=1, learners=learners), [log]).advice
    assert set(table["learner"]) == {*registry.advisable(), "compared_learner:own"}
    assert table["fdr_in_order"].notna().all()


@pytest.mark.parametrize(
    "fields",
    [{"learners": ("aci-rank",)}, {"shard": "1/2"}, {"environment": "always-wrong", "checkpoints": 1}],
    ids=["more than a third", "a shard", "an adaptive environment"],
)
def test_a_sweep_compares_only_what_was_asked_for_if_the_others_would_take_long(fields):
    result = run(Sweep(horizon=300, arms=20, trials=2 if "learners" in fields else 100, **fields))
    assert result.advice["learner"].tolist() == ["aci-rank"]
    assert result.advice["fdr_in_order"].isna().all()


def test_by_default_the_summary_names_a_learner_beyond_the_paper():
    text = run(Sweep(horizon=3000, arms=100, alphas=(0.1,))).summary()
    assert "at alpha = 0.1 use " in text
    assert "compared: aci-rank in 100 trials" in text
