"""``exp3-ix``: Exp3 with implicit exploration (Algorithm "Exp3-IX-CA"), which learns from the drawn arm alone."""

import math
from collections.abc import Callable
from typing import Any

from kernels.bounds import MEAN_DELTA, implicit_exploration_regret
from kernels.game import Parameters
from kernels.learner import Learner, Rates


def rule(where: Callable, p: Any, answered: Any, error: Any, parameters: Parameters) -> Any:
    """Estimated loss of the drawn arm, ``l / (gamma + p)`` (eq. "Exp3-IX unbiased estimator").

    Args:
        where: ``where(condition, x, y)`` of the caller's arrays.
        p: [B] in (0, 1], probability of the drawn arm.
        answered: [B] bool.
        error: [B] in [0, 1], zero where not answered.
        parameters: gamma >= 0, and the costs [B].

    Returns:
        What the drawn arm is charged, [B].
    """
    return where(answered, parameters.answer * error, parameters.abstain) / (parameters.gamma + p)


def rates(horizon: int, arms: int) -> Rates:
    """``eta = 2 gamma = sqrt(2 ln H / (T H))`` (theorem on the regret of Exp3-IX)."""
    eta = math.sqrt(2 * math.log(arms) / (horizon * arms))
    return Rates(eta, eta / 2)


def anytime(t: int, arms: int) -> Rates:
    """``eta_t = 2 gamma_t = sqrt(ln H / (t H))``, for a horizon that is not known."""
    return rates(2 * t, arms)


def regret_bound(eta: Any, gamma: Any, rounds: Any, arms: int, delta: float) -> float:
    """``implicit_exploration_regret`` where a round shows the loss of one arm of H."""
    return implicit_exploration_regret(eta, gamma, rounds, arms, delta, observed=arms)


exp3_ix = Learner(
    feedback="bandit",
    kind="drawn",
    rule=rule,
    rates=rates,
    anytime=anytime,
    regret_bound=regret_bound,
    mean_delta=MEAN_DELTA,
)
