"""``exaul plan``: print the guarantees of each learner, and the horizon that a better one needs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from exaul.engine import registry
from exaul.engine.checks import MOST, BadInput, check_count, check_holds, setting
from exaul.engine.feedback import RatingFlags, check_audit
from exaul.kernels.bounds import fdr_bound, learned_at_most, risk_from_feedback
from exaul.kernels.feedback import PERFECT_FEEDBACK, Feedback
from exaul.kernels.game import Rates
from exaul.kernels.learners.learner import Learner

LONGEST = 2**62  # longest horizon that is searched
COUNTED = 0.05  # the share of delta for the numbers of learned rounds


@dataclass(frozen=True, kw_only=True)
class Plan(RatingFlags):
    """The setting of the guarantees. Every field is a flag of ``exaul plan``."""

    alpha: float = setting(0.05, "target FDR in (0, 1)", "ALPHA")
    horizon: int = setting(30_000, "rounds T", "T")
    arms: int = setting(1000, "number H of thresholds of the grid, at least 2", "H")
    delta: float = setting(0.05, "guarantees hold with probability 1 - delta, in (0, 1)", "DELTA")
    coverage: float = setting(0.5, "share of rounds that are answered, in (0, 1]", "SHARE")
    open: int = setting(0, "largest number of answers that wait for feedback at a time", "N")
    audit: float | None = setting(
        None, "probability of auditing an answer, in (0, 1]; then only audited answers are learned", "P"
    )
    slack: float | None = setting(None, "find the horizon that guarantees an FDR of at most alpha + SLACK", "SLACK")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_holds("alpha", self.alpha, 0 < self.alpha < 1, "in (0, 1)")
        check_holds("horizon", self.horizon, 1 <= self.horizon <= LONGEST, "from 1 to 2**62")
        check_holds("arms", self.arms, 2 <= self.arms < MOST, f"from 2 to {MOST - 1}")
        check_holds("delta", self.delta, 0 < self.delta < 1, "in (0, 1)")
        check_count("open", self.open, 0)
        check_audit(self.audit, self.bias, self.missing)
        if self.audit is not None and self.feedback_rate != 1:
            raise BadInput(f"feedback_rate: {self.feedback_rate} given; with audits it must be 1")
        check_holds("coverage", self.coverage, 0 < self.coverage <= 1, "in (0, 1]")
        if self.slack is not None:
            check_holds("slack", self.slack, 0 < self.slack < math.inf, "a finite number > 0")

    @property
    def feedback(self) -> Feedback:
        """The fields as the kernels' ``Feedback``; audits are feedback at their rate."""
        return super().feedback._replace(rate=self.feedback_rate if self.audit is None else self.audit)


class FdrBound(NamedTuple):
    """The guaranteed FDR at T: ``alpha + abstaining + learning``.

    For the paper's learners it holds with probability 1 - delta, at lambda = sqrt(T). For learners with a bound of
    R_T it holds on every sequence; if only some answers get feedback, with probability 1 - delta
    (``docs/proofs.md``).
    """

    fdr: float
    abstaining: float  # 1 / lambda: cost of the weight of abstaining (eq. 6)
    learning: float  # (1 + lambda) Reg / (lambda answered), or the bound of R_T / answered

    @property
    def larger(self) -> str:
        """The name of the larger term."""
        return "learning" if self.learning > self.abstaining else "abstaining"


def learners() -> dict[str, Learner[Any]]:
    """Return the learners that learn and have a guarantee, by name."""
    found = {name: registry.load_object(place) for name, place in registry.LEARNERS.items()}
    return {name: one for name, one in found.items() if one.feedback != "none" and (_risks(one) or _proved(one))}


def _proved(learner: Learner[Any]) -> bool:
    return learner.rates is not None and learner.regret_bounds is not None


def _risks(learner: Learner[Any]) -> bool:
    return learner.risk_bound is not None


def regret(
    learner: Learner[Any], bound: str, horizon: int, arms: int, delta: float, alpha: float, lam: float
) -> float:
    """Return a bound of the regret at T with the learner's rates; ``bound`` is a field of ``RegretBounds``."""
    assert learner.rates is not None
    eta, gamma = learner.rates(horizon, arms)
    rates = np.array([eta]), np.array([np.nan if gamma is None else gamma])
    return float(getattr(learner.regret_bounds, bound)(*rates, np.array([horizon]), arms, delta, alpha, lam))


def promise(learner: Learner[Any], plan: Plan) -> FdrBound:
    """Return the guarantee of a learner: from its bound of R_T, else from its bound of the regret."""
    answered = plan.coverage * plan.horizon
    if learner.risk_bound is not None:
        rates = learner.rates or learner.anytime or (lambda horizon, arms: Rates(np.nan, None))
        each = [np.array([np.nan if x is None else x]) for x in rates(plan.horizon, plan.arms)]
        learned, settled, delta = _learned_rounds(plan)
        bound = float(learner.risk_bound(*each, np.array([plan.horizon]), learned, settled, plan.arms))
        risk = risk_of_all(plan, bound, delta)
        return FdrBound(plan.alpha + risk / answered, 0.0, risk / answered)
    lam = math.sqrt(plan.horizon)
    bound = regret(learner, "abstaining", plan.horizon, plan.arms, plan.delta, plan.alpha, lam)
    fdr = float(fdr_bound(answered, bound, plan.alpha, lam))
    return FdrBound(fdr, 1 / lam, fdr - plan.alpha - 1 / lam)


def _learned_rounds(plan: Plan) -> tuple[int, int, float]:
    """Return the largest numbers of rounds and of answers that may be learned, and the delta that is left.

    Their difference is the largest number of learned abstentions. The share of abstentions that are learned is
    known only if answers are audited; otherwise it is an estimate, and all rounds may be learned.
    """
    answered = plan.coverage * plan.horizon
    if plan.audit is None or plan.audit == 1:
        return plan.horizon, math.ceil(answered), plan.delta
    rounds, abstentions = (
        math.ceil(learned_at_most(most, plan.audit, plan.delta * COUNTED / 2))
        for most in (plan.horizon, plan.horizon - answered)
    )
    return rounds, rounds - abstentions, plan.delta * (1 - COUNTED)


def risk_of_all(plan: Plan, bound: float, delta: float) -> float:
    """Return the bound of R_T of all answers, from that of the learned feedback if none is delayed."""
    feedback = plan.feedback
    pending = 0 if feedback.reserve else plan.open  # answers without feedback, each at most 1 - alpha
    if feedback.bounds_risk(plan.horizon):
        return bound + pending * (1 - plan.alpha)
    if (feedback.may_be_missing and feedback.missing != "skip") or (feedback.uncorrected and feedback.is_biased):
        return math.inf
    # only some answers get feedback: the bound holds with probability 1 - delta
    answered = plan.coverage * plan.horizon
    return float(risk_from_feedback(bound, answered, min(pending, answered), plan.alpha, delta, feedback))


def shortest(learner: Learner[Any], plan: Plan) -> int | None:
    """Return the smallest T whose guarantee is at most alpha + slack; None if it exceeds LONGEST."""
    assert plan.slack is not None
    most = plan.alpha + plan.slack

    def holds(horizon: int) -> bool:
        return promise(learner, replace(plan, horizon=horizon)).fdr <= most

    if not holds(LONGEST):
        return None
    low, high = 0, LONGEST  # the guarantee improves with T: it fails at low and holds at high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


CONFIGURATIONS = (Plan,)


def main(given: Mapping[str, Any]) -> int:
    """Print the guarantee of each learner and, with ``slack``, the horizon that it needs."""
    config = Plan(**given)
    if config.slack is not None and config.alpha + config.slack >= 1:
        raise BadInput(f"slack: {config.slack} found; alpha + slack must be below 1")
    print(
        f"at T = {config.horizon:,}, H = {config.arms:,}, {config.coverage:.0%} answered: "
        "FDR at most alpha + abstaining + learning"
    )
    chance = f"with probability {1 - config.delta:g}"
    perfect = config.feedback == PERFECT_FEEDBACK and config.open == 0
    always = config.feedback.bounds_risk(config.horizon)
    wanted = "" if config.slack is None else f"   T for alpha + {config.slack:g}"
    head = f"{'learner':<18}{'alpha':>8}{'abstaining':>12}{'learning':>10}{'FDR at most':>13}"
    print(f"\n{head}  {'larger term':<11}  {'holds':<20}{wanted}")
    for name, learner in learners().items():
        if not (perfect or _risks(learner)):  # nothing is proved for imperfect feedback
            continue
        found = promise(learner, config)
        line = f"{name:<18}{config.alpha:>8g}{found.abstaining:>12.4f}{found.learning:>10.4f}{found.fdr:>13.4f}"
        holds = "on every sequence" if _risks(learner) and always else chance
        line += f"  {found.larger:<11}  {holds:<20}"
        if config.slack is not None:
            horizon = shortest(learner, config)
            line += f"{'none' if horizon is None else format(horizon, ','):>{len(wanted)}}"
        print(line.rstrip())
    if not perfect:
        print("\nNothing is proved for the learners of the paper under imperfect feedback (docs/online.md).")
    waits = f", while at most {config.open:,} answers wait for feedback at a time" if config.open else ""
    print(
        f"\nEach guarantee holds if at least {config.coverage:.0%} of the rounds are answered{waits}.\n"
        "A guarantee of 1 or more is empty. It covers the worst sequence; the FDR in practice is far smaller."
    )
    return 0
