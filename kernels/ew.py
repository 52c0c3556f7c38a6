"""``ew``: exponential weights with full feedback (Algorithm "EW-CA"), an upper bound on performance."""

import math
from collections.abc import Callable
from typing import Any

from kernels.bounds import exponential_weights_regret
from kernels.game import Parameters
from kernels.learner import Learner, Rates


def rule(where: Callable, P: Any, Q: Any, answered: Any, error: Any, parameters: Parameters) -> tuple[Any, Any]:
    """True losses of a round on both sides of the cut, whatever was drawn (eq. 3).

    Args:
        where: not read, nor are P, Q and answered.
        P: [B] in [0, 1], mass of the arms that answer.
        Q: [B], mass of those that abstain.
        answered: [B] bool.
        error: [B] in [0, 1], of every round.
        parameters: the costs [B].

    Returns:
        What each arm below the cut is charged and what each above it, [B] each.
    """
    return parameters.answer * error, parameters.abstain


def rates(horizon: int, arms: int) -> Rates:
    """``eta = sqrt(8 ln H / T)`` (theorem on the regret of EW)."""
    return Rates(math.sqrt(8 * math.log(arms) / horizon), None)


def anytime(t: int, arms: int) -> Rates:
    """``eta_t = 2 sqrt(ln H / t)``, for a horizon that is not known."""
    return rates(2 * t, arms)


ew = Learner(
    feedback="full",
    kind="sided",
    rule=rule,
    rates=rates,
    anytime=anytime,
    regret_bound=exponential_weights_regret,
    mean_delta=1.0,  # the theorem's ln(1 / delta) is 0
)
