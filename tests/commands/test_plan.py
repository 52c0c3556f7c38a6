"""The bounds of ``plan`` are those of a sweep and of the paper's formulas."""

import math

import numpy as np
import pytest

from exaul import Sweep, run
from exaul.commands.main import main
from exaul.commands.plan import Plan, learners, promise, shortest
from exaul.kernels.bounds import learned_at_most
from tests.games import LEARNERS, LEARNING


def test_a_sweep_that_answers_the_planned_share_promises_the_same():
    result = run(Sweep(horizon=700, trials=2, arms=20, alphas=[0.1], learners=LEARNING))
    for row in result.trials.itertuples():
        plan = Plan(alpha=0.1, horizon=700, arms=20, coverage=row.answered / 700)
        assert promise(LEARNERS[row.learner], plan).fdr == pytest.approx(row.fdr_bound, rel=1e-12)


def test_terms_add_up_to_the_formula():
    T, H, delta, share = 30_000, 1000, 0.05, 0.5
    eta = np.sqrt(np.log(H) / T)
    s = T**0.5 / (1 + T**0.5)
    r = 1 - s + 0.05 * s
    bound = np.log(H) / eta + T * eta * (s**2 + r**2 + s) / 2
    bound += np.log(1 / delta) * max(r / eta + r / 2 + r**2 / 2, s / 2 + s**2 / 2)
    found = promise(LEARNERS["exaul"], Plan(alpha=0.05))
    assert found.abstaining == pytest.approx(T**-0.5)
    assert found.learning == pytest.approx((1 + T**0.5) * bound / (T**0.5 * share * T))
    assert found.fdr == pytest.approx(0.05 + 0.0673, abs=1e-4)
    assert found.fdr == pytest.approx(0.05 + found.abstaining + found.learning)
    assert delta == Plan().delta


@pytest.mark.parametrize("name", LEARNING)
@pytest.mark.parametrize("slack", [0.01, 0.1, 0.5])
def test_the_shortest_horizon_keeps_the_promise_and_one_less_does_not(name, slack):
    learner = LEARNERS[name]
    horizon = shortest(learner, Plan(slack=slack))
    assert promise(learner, Plan(horizon=horizon)).fdr <= 0.05 + slack
    assert promise(learner, Plan(horizon=horizon - 1)).fdr > 0.05 + slack


def test_the_command(capsys):
    assert main(["plan", "--alpha", "0.1", "--slack", "0.05"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "T for alpha + 0.05" in lines[2]
    assert [line.split()[0] for line in lines[3 : 3 + len(learners())]] == list(learners())
    assert f"{shortest(LEARNERS['exaul'], Plan(alpha=0.1, slack=0.05)):,}" in lines[3]


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        (["--alpha", "1"], "alpha"),
        (["--coverage", "0"], "coverage"),
        (["--slack", "0"], "slack"),
        (["--slack", "0.99"], "slack"),
        (["--horizon", "0"], "horizon"),
        (["--arms", "1"], "arms"),
        (["--delta", "nan"], "delta"),
        (["--audit", "0"], "audit"),
        (["--audit", "0.1", "--feedback-rate", "0.5"], "feedback_rate"),
        (["--open", "-1"], "open"),
    ],
)
def test_bad_input(flags, field, capsys):
    assert main(["plan", *flags]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"exaul: {field}: ")
    assert err.count("\n") == 1


def test_audits_promise_what_was_computed_by_hand():
    """Alpha .1, T = 300,000, half answered: excesses of the FDR that an independent program found."""
    for name, audit, excess in (
        ("aci-rank", 0.05, 0.0155),
        ("ranked-threshold", 0.05, 0.0266),
        ("threshold", 0.02, 0.0259),
    ):
        found = promise(LEARNERS[name], Plan(alpha=0.1, horizon=300_000, audit=audit))
        assert found.learning == pytest.approx(excess, abs=2e-4)
        rated = promise(LEARNERS[name], Plan(alpha=0.1, horizon=300_000, feedback_rate=audit))
        assert rated.learning > found.learning or name == "aci-rank"  # whose bound does not grow with T


def test_at_most_as_many_rounds_are_learned_as_planned():
    """Largest numbers of 2,000 games, of which 5% may be above; a limit for ten times as many is exceeded."""
    counts = np.random.default_rng(0).binomial(30_000, 0.02, 2000)
    assert (
        (counts > learned_at_most(30_000, 0.02, 0.05)).mean()
        < 0.05
        < (counts > learned_at_most(30_000, 0.02, 0.5)).mean()
    )
    assert learned_at_most(30, 1.0, 0.05) == learned_at_most(30, 0.99, 0.05) == 30
    for share in (1e-9, 0.01, 0.5):  # nearly normal
        deviation = math.sqrt(2 * math.log(20) * 2**62 * share * (1 - share))
        assert learned_at_most(2**62, share, 0.05) - 2**62 * share == pytest.approx(deviation, rel=1e-3)
