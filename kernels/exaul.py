"""``exaul``: Exp3-IX with feedback unlocking (Algorithm "ExAUL")."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from kernels.bounds import MEAN_DELTA, implicit_exploration_regret
from kernels.game import Parameters
from kernels.learner import Learner, Rates


def rule(where: Callable, P: Any, Q: Any, answered: Any, error: Any, parameters: Parameters) -> tuple[Any, Any]:
    """Estimated losses of a round: below the cut if it was answered, above if not.

    ``l(tau) 1{tau in H_t} / (gamma + sum of p over H_t)``, H_t the arms on the drawn arm's side of the score
    (eq. "our unbiased estimator").

    Args:
        where: ``where(condition, x, y)`` of the caller's arrays.
        P: [B] in [0, 1], mass of the arms that answer.
        Q: [B], mass of those that abstain.
        answered: [B] bool.
        error: [B] in [0, 1], zero where not answered.
        parameters: gamma >= 0, and the costs [B].

    Returns:
        What each arm below the cut is charged and what each above it, [B] each.
    """
    below = where(answered, parameters.answer * error / (parameters.gamma + P), 0.0)
    above = where(answered, 0.0, parameters.abstain / (parameters.gamma + Q))
    return below, above


def rates(horizon: int, arms: int) -> Rates:
    """``eta = 2 gamma = sqrt(ln H / T)`` (theorem on the regret of ExAUL)."""
    eta = math.sqrt(math.log(arms) / horizon)
    return Rates(eta, eta / 2)


def anytime(t: int, arms: int) -> Rates:
    """``eta_t = 2 gamma_t = sqrt(ln H / (2 t))``, for a horizon that is not known."""
    return rates(2 * t, arms)


exaul = Learner(
    feedback="bandit",
    kind="sided",
    rule=rule,
    rates=rates,
    anytime=anytime,
    regret_bound=partial(implicit_exploration_regret, observed=2),
    mean_delta=MEAN_DELTA,
)
