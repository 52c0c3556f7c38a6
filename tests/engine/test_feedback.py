"""Delayed, missing, biased or flipped feedback: decisions are those of the transcription, and bounds hold."""

import numpy as np
import pytest

from exaul import Sweep, run
from exaul.engine.logs.log import Records
from exaul.kernels import uniforms
from exaul.kernels.game import BLOCK, GRIDS
from exaul.kernels.learners.learner import rates_of_horizon
from tests import reference
from tests.games import LEARN_LATE, LEARNERS, coins, of_each_rule
from tests.processes import output_of

PROMISING = tuple(name for name in LEARN_LATE if LEARNERS[name].risk_bound is not None)
TYPES = of_each_rule(LEARN_LATE)  # the others are slow tests, for each compiles for seconds
FEW = "exaul", "aci-rank"
DRAWING = "late", "expired", "no exploration"  # cases with a learner that reveals the loss of the drawn arm alone
SMALL = {"arms": 40, "grid": "logit", "alphas": (0.1,), "checkpoints": 5}
STREAMS = uniforms.LEARNER_STREAM, uniforms.FEEDBACK_STREAM, uniforms.DELAYS_STREAM
WRONG = {"feedback_rate": 0.4, "delay": 37, "missing": "wrong", "expires": 60}
CASES = {  # of few delays and times to expire, for each is a program of its own
    "rare, at falling rates": {"feedback_rate": 0.3, "anytime": True},
    "late": {"delay": 37},
    "rare, late and lying": {"feedback_rate": 0.5, "delay": 37, "flips": (0.05, 0.2)},
    "biased": {"feedback_rate": 0.7, "bias": 3.0, "delay": 37},
    "biased the other way": {"feedback_rate": 0.7, "bias": 0.25, "delay": 37, "uncorrected": True},
    "expired": {"delay": 37, "expires": 30},
    "taken for wrong": WRONG,
    "taken for right": WRONG | {"missing": "right"},
    "reserved": {"delay": 37, "reserve": True},
    "reserved, taken for wrong": WRONG | {"reserve": True},
    "ratings": {"feedback_rate": 0.5, "delay": 37, "flips": (0.1, 0.2)},
    "no exploration": {"feedback_rate": 0.8, "delay": 37, "gamma_scales": (0.0,)},
}
LYING = "rare, late and lying"  # on ``dense``, which compiles longer; on ``rows`` it is the program of ``ratings``
BOUNDED = ("late", "taken for wrong", "reserved", "reserved, taken for wrong")  # of all answers


def log_of(rounds, ratings=False):
    """A log whose right answers score higher, and that is harder in every second fifth."""
    rng = np.random.default_rng(0)
    scores = np.round(rng.random(rounds), 3)
    hard = np.arange(rounds) * 5 // rounds % 2
    errors = (rng.random(rounds) > (0.3 + 0.7 * scores) * (1 - hard / 2)).astype(float)
    return Records("log", scores, np.round(errors * rng.random(rounds), 2) if ratings else errors, 0, None)


def transcribe(name, grid, records, sweep, fields, trial=0, log=None):
    """What ``reference.simulate_feedback`` makes of a trial of a replay of records, at alpha = .1."""
    rounds = len(records.scores)
    eta, gamma = rates_of_horizon(LEARNERS[name], rounds, len(grid), sweep.anytime, None, None)
    rates = (np.repeat(x, BLOCK) for x in (eta, gamma * sweep.gamma_scales[0]))
    draws = (coins(x, np.array([trial]), rounds, seed=sweep.seed)[:, 0, 0] for x in STREAMS)
    numbers = sweep.feedback.aim(0.1), np.sqrt(rounds), *rates, fields
    return reference.simulate_feedback(name, grid, records.scores, records.errors, *draws, *numbers, log=log)


@pytest.mark.parametrize(
    ("case", "backend", "names"),
    [(case, "rows", TYPES if case in DRAWING else FEW) for case in CASES if case != LYING]
    + [(case, "dense", FEW) for case in (LYING, "no exploration")]
    + [pytest.param(case, on, LEARN_LATE, marks=pytest.mark.slow) for case in CASES for on in ("rows", "dense")],
)
def test_decisions_are_those_of_the_transcription(case, backend, names):
    """Decision for decision as plain NumPy, each learner, 1,500 rounds; and the same feedback is learned.

    There are the bounds of the feedback (M1) and, where none is taken for better than it was, of all answers (D1,
    D2, N2), with which ``tests/conftest.py`` compares each sweep.
    """
    fields, rounds, trial = CASES[case], 1500, 1
    learners = [name for name in names if name in PROMISING or not fields.get("reserve")]
    records = log_of(rounds, case == "ratings")
    sweep = Sweep(environment="replay", learners=learners, trials=2, backend=backend, **SMALL, **fields)
    result = run(sweep, [records])
    table, printed, grid = result.trials, result.summary(), GRIDS["logit"](40, ())
    assert "above aim" in printed
    assert "FDR observed" in printed
    aim = sweep.feedback.aim(0.1)
    for name in learners:
        decisions, learned, count, since = transcribe(name, grid, records, sweep, fields, trial)
        row = table[(table["learner"] == name) & (table["trial"] == trial)].iloc[0]
        said = np.array([feedback for _, _, feedback in learned])
        real = np.array([rated for _, rated, _ in learned])
        assert row["answered"] == decisions.sum()
        assert row["fdr"] == pytest.approx((records.errors * decisions).sum() / decisions.sum())
        assert row["aim"] == pytest.approx(aim)
        assert row["observed"] == real.sum()
        assert row["fdr_observed"] == pytest.approx(said[real].mean())
        assert row["feedback_risk"] == pytest.approx((said - aim).sum(), abs=1e-6)
        if name in PROMISING:
            late = 0 if sweep.reserve else max(since - 1, 0)
            t, state = min(count + 1, rounds), LEARNERS[name].rule.start
            rates = rates_of_horizon(LEARNERS[name], rounds, 40, sweep.anytime, None, None)
            bound = LEARNERS[name].risk_bound(rates.eta, t, len(said), aim, state)
            assert row["feedback_risk_bound"] == pytest.approx(bound + late * (1 - aim))
            assert np.isfinite(row["risk_bound"]) == (case in BOUNDED)


def test_rows_decide_as_dense_against_an_adversary():
    """With gamma = 0, too, with which a round that is not learned would divide by 0."""
    sweep = {"environment": "adversary-history", "horizon": 600, "trials": 3, "delay": 20, "learners": "exaul"}
    rows, dense = (
        run(Sweep(**sweep, gamma_scales=(0.0, 1.0), backend=on, **SMALL)).trials for on in ("rows", "dense")
    )
    assert (rows["answered"] == dense["answered"]).all()
    assert (rows["answered"] > 60).all()


def test_feedback_that_is_never_late_changes_no_decision():
    """With all feedback at once, imperfect feedback makes the decisions of a sweep without it."""
    sweep, records = {"environment": "replay", "learners": FEW, "trials": 2, **SMALL}, log_of(1500)
    plain, late = (run(Sweep(**sweep, **more), [records]).trials for more in ({}, {"feedback_rate": 1 - 1e-15}))
    assert (plain["answered"] == late["answered"]).all()
    assert plain["observed"].isna().all()
    assert (late["observed"] == late["answered"]).all()
    np.testing.assert_allclose(late["feedback_risk"], late["fdr_risk"], atol=1e-9)


def test_without_a_reserve_its_bound_is_broken():
    """The impostor of D2: the same feedback, most of which never comes, and learners that keep nothing back."""
    fields = {"environment": "always-wrong", "learners": PROMISING, "trials": 1, "horizon": 600, "delay": 599}
    reserved, unreserved = (run(Sweep(**fields, **SMALL, reserve=r)).trials for r in (True, False))
    assert reserved["feedback_risk_bound"].notna().all()
    assert (reserved["fdr_risk"] <= reserved["risk_bound"]).all()
    assert (unreserved["fdr_risk"] > reserved["risk_bound"]).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "case"), [("adversary-omniscient", "taken for wrong"), ("adversary-history", "biased")]
)
def test_no_adversary_breaks_a_bound(environment, case):
    """``tests/conftest.py`` compares each sweep with its bounds; here it is seen that there are some."""
    sweep = Sweep(environment=environment, learners=PROMISING, trials=2, horizon=900, **SMALL, **CASES[case])
    table = run(sweep).trials
    assert table["feedback_risk_bound"].notna().all()
    assert table["risk_bound"].notna().all() == (case in BOUNDED)


@pytest.mark.parametrize(("bias", "flips"), [(3.0, (0.0, 0.0)), (1.0, (0.05, 0.2)), (1 / 3, (0.1, 0.0))])
def test_the_aim_makes_up_for_bias_and_lies(bias, flips):
    """N1: it is the share of negative feedback if the FDR is alpha; by hand."""
    fields = {"feedback_rate": 0.5, "bias": bias, "flips": flips}
    wrong, right = 0.1 * min(1, bias), 0.9 * min(1, 1 / bias)  # of all answers: those that get feedback
    negative = wrong * (1 - flips[1]) + right * flips[0]
    assert Sweep(**fields).feedback.aim(0.1) == pytest.approx(negative / (wrong + right))
    assert Sweep(**fields, uncorrected=True).feedback.aim(0.1) == 0.1


def test_the_plan_says_what_is_proved_of_all_answers(capsys):
    """Perfect feedback and a reserve have the best bound, a delay a weaker one, missing feedback a probable one."""
    learning, rate = [], "--feedback-rate"
    flags = "", "--open 50 --reserve", "--open 50", f"{rate} 0.1", f"{rate} 0.1 --missing right"
    for given in (*flags, f"{rate} 1 --uncorrected --bias 3", f"{rate} 1 --uncorrected --flips 0 0.1"):
        printed = output_of(["plan", "--horizon", "100000", *given.split()], capsys)
        (line,) = (x for x in printed.splitlines() if x.startswith("aci-rank  "))
        learning.append(float(line.split()[-1].replace("none", "inf").rstrip("%")))
        assert ("on every sequence" in line) == (rate not in given)
    perfect, reserved, late, rare, *none = learning
    assert perfect == reserved < late < rare < min(none) == np.inf


def test_imperfect_feedback_does_not_concern_fixed_arms_or_learners_with_full_feedback():
    sweep = {"learners": ("ew", "no-abstention", "best-fixed"), "trials": 2, "horizon": 600, **SMALL}
    with_, without = (run(Sweep(**sweep, **fields)).trials for fields in ({"feedback_rate": 0.1, "delay": 9}, {}))
    columns = ["learner", "trial", "answered", "fdr", "regret"]
    assert with_[columns].equals(without[columns])
    assert with_[with_["learner"] != "no-abstention"]["observed"].isna().all()
