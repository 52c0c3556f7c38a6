"""``exaul plan``: what theory promises before anything is played, and how long it takes to promise more."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from exaul.engine import registry
from exaul.engine.checks import MOST, BadInput, check_holds, setting
from exaul.engine.feedback import FeedbackFlags
from exaul.kernels.bounds import fdr_bound, risk_from_feedback, unbounded
from exaul.kernels.feedback import PERFECT_FEEDBACK
from exaul.kernels.game import Rates
from exaul.kernels.learners.learner import Learner

LONGEST = 2**62  # rounds beyond which no horizon is sought


@dataclass(frozen=True, kw_only=True)
class Plan(FeedbackFlags):
    """What to plan for. Every field is a flag of ``exaul plan``.

    Raises:
        BadInput: a field is out of its range; the sentence names it.
    """

    alpha: float = setting(0.05, "target FDR in (0, 1)", "ALPHA")
    horizon: int = setting(30_000, "rounds T", "T")
    arms: int = setting(1000, "thresholds H of the grid, at least 2", "H")
    delta: float = setting(0.05, "the promise holds with probability 1 - delta", "DELTA")
    coverage: float = setting(0.5, "share of rounds that are answered, in (0, 1]", "SHARE")
    slack: float | None = setting(None, "find the T from which at most alpha + SLACK is promised", "SLACK")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_holds("alpha", self.alpha, 0 < self.alpha < 1, "in (0, 1)")
        check_holds("horizon", self.horizon, 1 <= self.horizon <= LONGEST, "from 1 to 2**62")
        check_holds("arms", self.arms, 2 <= self.arms < MOST, f"from 2 to {MOST - 1}")
        check_holds("delta", self.delta, 0 < self.delta < 1, "in (0, 1)")
        check_holds("coverage", self.coverage, 0 < self.coverage <= 1, "in (0, 1]")
        if self.slack is not None:
            check_holds("slack", self.slack, 0 < self.slack < math.inf, "a finite number > 0")


class FdrBound(NamedTuple):
    """The FDR that is promised at T: ``alpha + abstaining + learning``.

    With probability 1 - delta and lambda = sqrt(T) by the paper's learners; with certainty, on every sequence, by
    those whose FDR risk has a bound, unless it is known from some thumbs alone (``docs/proofs.md``).
    """

    fdr: float
    abstaining: float  # 1 / lambda: what the weight of abstaining costs
    learning: float  # (1 + lambda) Reg / (lambda answered), or the bound of R_T / answered

    @property
    def larger(self) -> str:
        """Which of the two terms is larger."""
        return "learning" if self.learning > self.abstaining else "abstaining"


def learners() -> dict[str, Learner[Any]]:
    """The learners that learn and promise something, by name."""
    found = {name: registry.load_object(place) for name, place in registry.LEARNERS.items()}
    return {name: one for name, one in found.items() if one.feedback != "none" and (_risks(one) or _proved(one))}


def _proved(learner: Learner[Any]) -> bool:
    return learner.rates is not None and learner.regret_bound is not unbounded


def _risks(learner: Learner[Any]) -> bool:
    """Whether it is the FDR risk that has a bound."""
    return learner.risk_bound is not None


def regret(learner: Learner[Any], horizon: int, arms: int, delta: float | None, alpha: float, lam: float) -> float:
    """Bound of the regret at T with the paper's rates, with probability 1 - delta; of the mean where delta is None.

    Args:
        learner: one with a regret bound.
        horizon: T >= 1.
        arms: H >= 2.
        delta: in (0, 1), or None.
        alpha: target FDR in (0, 1).
        lam: >= 0, weight of the FDR in the loss.
    """
    assert learner.rates is not None
    eta, gamma = learner.rates(horizon, arms)
    rates = np.array([eta]), np.array([np.nan if gamma is None else gamma])
    risk = learner.mean_delta if delta is None else delta
    return float(learner.regret_bound(*rates, np.array([horizon]), arms, risk, alpha, lam))


def promise(learner: Learner[Any], plan: Plan) -> FdrBound:
    """What a learner promises: its bound of R_T, or eq. 6 with the paper's rates (Lemma 1 and its theorem).

    Args:
        learner: one of ``learners``.
        plan: alpha, T, H, delta and the share answered.
    """
    answered = plan.coverage * plan.horizon
    if learner.risk_bound is not None:
        rates = learner.rates or learner.anytime or (lambda horizon, arms: Rates(np.nan, None))
        each = (np.array([np.nan if x is None else x]) for x in rates(plan.horizon, plan.arms))
        risk = float(learner.risk_bound(*each, np.array([plan.horizon]), plan.horizon, answered, plan.arms))
        risk = risk_of_all(plan, risk)
        return FdrBound(plan.alpha + risk / answered, 0.0, risk / answered)
    lam = math.sqrt(plan.horizon)
    bound = regret(learner, plan.horizon, plan.arms, plan.delta, plan.alpha, lam)
    fdr = float(fdr_bound(answered, bound, plan.alpha, lam))
    return FdrBound(fdr, 1 / lam, fdr - plan.alpha - 1 / lam)


def risk_of_all(plan: Plan, bound: float) -> float:
    """What R_T of all answers cannot exceed, where a bound holds for perfect feedback (``docs/proofs.md``).

    Args:
        plan: the share answered, and how answers are rated.
        bound: of R_T.
    """
    feedback = plan.feedback
    pending = 0 if feedback.reserve else feedback.delay
    if feedback.bounds_risk:
        return bound + pending * (1 - plan.alpha)
    if (feedback.may_be_missing and feedback.missing != "skip") or (feedback.uncorrected and feedback.is_biased):
        return math.inf
    answered = plan.coverage * plan.horizon
    return float(risk_from_feedback(bound, answered, min(pending, answered), plan.alpha, plan.delta, feedback))


def shortest(learner: Learner[Any], plan: Plan) -> int | None:
    """The smallest T from which at most alpha + slack is promised; None where 2^62 rounds do not do."""
    assert plan.slack is not None
    most = plan.alpha + plan.slack

    def holds(horizon: int) -> bool:
        return promise(learner, replace(plan, horizon=horizon)).fdr <= most

    if not holds(LONGEST):
        return None
    low, high = 0, LONGEST  # the promise improves with T: it fails at low, and holds at high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


CONFIGURATIONS = (Plan,)


def main(given: Mapping[str, Any]) -> int:
    """Print what each learner promises, and from which T on what is wanted."""
    config = Plan(**given)
    if config.slack is not None and config.alpha + config.slack >= 1:
        raise BadInput(f"slack: {config.slack} found; alpha + slack must be below 1, or nothing is promised")
    print(
        f"at T = {config.horizon:,}, H = {config.arms:,}, {config.coverage:.0%} answered: "
        "FDR at most alpha + abstaining + learning"
    )
    chance = f"with probability {1 - config.delta:g}"
    perfect = config.feedback == PERFECT_FEEDBACK
    wanted = "" if config.slack is None else f"   T for alpha + {config.slack:g}"
    head = f"{'learner':<18}{'alpha':>8}{'abstaining':>12}{'learning':>10}{'FDR at most':>13}"
    print(f"\n{head}  {'larger term':<11}  {'holds':<20}{wanted}")
    for name, learner in learners().items():
        if not (perfect or _risks(learner)):  # nothing is proved, or it sees every label
            continue
        found = promise(learner, config)
        line = f"{name:<18}{config.alpha:>8g}{found.abstaining:>12.4f}{found.learning:>10.4f}{found.fdr:>13.4f}"
        holds = "on every sequence" if _risks(learner) and config.feedback.bounds_risk else chance
        line += f"  {found.larger:<11}  {holds:<20}"
        if config.slack is not None:
            horizon = shortest(learner, config)
            line += f"{'none' if horizon is None else format(horizon, ','):>{len(wanted)}}"
        print(line.rstrip())
    if not perfect:
        print("\nOf the learners of the paper nothing is proved where thumbs are imperfect (docs/online.md).")
    print(
        "\nA promise of 1 or more says nothing. It is a worst case over all sequences; what is seen is far smaller."
    )
    return 0
