"""``exaul plan``: what theory promises before anything is played, and how long it takes to promise more."""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from engine.errors import BadInput
from engine.flags import setting, within
from engine.learners import LEARNERS
from kernels.bounds import fdr_bound

LONGEST = 2**62  # rounds beyond which no horizon is sought


@dataclass(frozen=True, kw_only=True)
class Plan:
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
        within("alpha", self.alpha, 0 < self.alpha < 1, "in (0, 1)")
        within("horizon", self.horizon, 1 <= self.horizon <= LONGEST, "at least 1")
        within("arms", self.arms, self.arms >= 2, "at least 2")
        within("delta", self.delta, 0 < self.delta < 1, "in (0, 1)")
        within("coverage", self.coverage, 0 < self.coverage <= 1, "in (0, 1]")
        if self.slack is not None:
            within("slack", self.slack, 0 < self.slack < math.inf, "a finite number > 0")


class Promise(NamedTuple):
    """The FDR that is promised at T with lambda = sqrt(T): ``alpha + abstaining + regret``."""

    fdr: float
    abstaining: float  # 1 / lambda: what the weight of abstaining costs
    regret: float  # (1 + lambda) Reg / (lambda answered): what learning costs


def regret(learner: str, horizon: int, arms: int, delta: float | None) -> float:
    """Bound of the regret at T with the paper's rates, with probability 1 - delta; of the mean where delta is None.

    Args:
        learner: a name among those with a regret bound.
        horizon: T >= 1.
        arms: H >= 2.
        delta: in (0, 1), or None.
    """
    one = LEARNERS[learner]
    assert one.rates is not None
    eta, gamma = one.rates(horizon, arms)
    rates = np.array([eta]), np.array([np.nan if gamma is None else gamma])
    return one.regret_bound(*rates, np.array([horizon]), arms, one.mean_delta if delta is None else delta)


def promise(learner: str, plan: Plan) -> Promise:
    """What a learner with the paper's rates promises (eq. 5, by Lemma 1 and the learner's theorem).

    Args:
        learner: a name among those with a regret bound.
        plan: alpha, T, H, delta and the share answered.
    """
    bound = regret(learner, plan.horizon, plan.arms, plan.delta)
    lam, answered = math.sqrt(plan.horizon), plan.coverage * plan.horizon
    fdr = float(fdr_bound(answered, bound, plan.alpha, lam))
    return Promise(fdr, 1 / lam, fdr - plan.alpha - 1 / lam)


def shortest(learner: str, plan: Plan) -> int | None:
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


def plan(config: Plan) -> int:
    """Print what each learner promises, and from which T on what is wanted."""
    if config.slack is not None and config.alpha + config.slack >= 1:
        raise BadInput(f"slack: {config.slack} found; alpha + slack must be below 1, or nothing is promised")
    names = [name for name, learner in LEARNERS.items() if learner.rates is not None]
    print(
        f"with probability {1 - config.delta:g}, at T = {config.horizon:,}, H = {config.arms:,}, lambda = sqrt(T), "
        f"{config.coverage:.0%} answered: FDR at most alpha + abstaining + regret"
    )
    wanted = "" if config.slack is None else f"   T for alpha + {config.slack:g}"
    print(f"\n{'learner':<10}{'alpha':>8}{'abstaining':>12}{'regret':>10}{'FDR at most':>13}  larger term{wanted}")
    for name in names:
        found = promise(name, config)
        larger = "regret" if found.regret > found.abstaining else "abstaining"
        line = f"{name:<10}{config.alpha:>8g}{found.abstaining:>12.4f}{found.regret:>10.4f}{found.fdr:>13.4f}"
        line += f"  {larger}"
        if config.slack is not None:
            horizon = shortest(name, config)
            line += f"{'none' if horizon is None else format(horizon, ','):>{len(wanted) + 11 - len(larger)}}"
        print(line)
    print(
        "\nA promise of 1 or more says nothing. It is a worst case over all sequences; what is seen is far smaller."
    )
    return 0
