"""``exp3-ix``: Exp3 with implicit exploration (Algorithm "Exp3-IX-CA"), which learns from the drawn arm alone.

It plays as ``exaul`` does, but does not unlock feedback: only the drawn arm is charged, its loss divided by
``gamma + p``, where p is the probability with which it was drawn (Neu, "Explore no more", 2015).
"""

import math
from collections.abc import Callable
from typing import Any

from exaul.kernels.bounds import MEAN_DELTA, implicit_exploration_regret
from exaul.kernels.game import Parameters, Rates
from exaul.kernels.learners.learner import Drawn, Learner


def rule(where: Callable[..., Any], p: Any, answered: Any, error: Any, parameters: Parameters) -> Any:
    """Estimate the loss of the drawn arm, ``l / (gamma + p)`` (appendix, the estimator of Exp3-IX).

    Args:
        where: ``where(condition, x, y)`` of the caller's arrays.
        p: [B] in (0, 1], probability of the drawn arm.
        answered: [B] bool, whether the drawn arm answers.
        error: [B] in [0, 1], zero where not answered.
        parameters: gamma >= 0, answer_cost [B] and abstain_cost [B] are read.

    Returns:
        The charge of the drawn arm, [B], >= 0.
    """
    return where(answered, parameters.answer_cost * error, parameters.abstain_cost) / (parameters.gamma + p)


def rates(horizon: int, arms: int) -> Rates:
    """The paper's rates, ``eta = 2 gamma = sqrt(2 ln H / (T H))`` (theorem on the regret of Exp3-IX).

    Args:
        horizon: T >= 1.
        arms: H >= 2.

    Returns:
        eta and gamma.
    """
    eta = math.sqrt(2 * math.log(arms) / (horizon * arms))
    return Rates(eta, eta / 2)


def anytime(t: int, arms: int) -> Rates:
    """Rates for an unknown horizon, ``eta_t = 2 gamma_t = sqrt(ln H / (t H))`` (Neu 2015, Theorem 1).

    Args:
        t: the round, >= 1.
        arms: H >= 2.

    Returns:
        eta_t and gamma_t.
    """
    return rates(2 * t, arms)


def regret_bound(eta: Any, gamma: Any, rounds: Any, arms: int, delta: float, alpha: Any, lam: Any) -> float:
    """Bound the regret of a learner to whom a round shows the loss of one arm of H.

    Arguments as of ``implicit_exploration_regret``, [K] by block, with ``observed = H``.

    Returns:
        The bound, or NaN where nothing is proved.
    """
    return implicit_exploration_regret(eta, gamma, rounds, arms, delta, alpha, lam, observed=arms)


exp3_ix = Learner(
    feedback="bandit",
    rule=Drawn(rule),
    rates=rates,
    anytime=anytime,
    regret_bound=regret_bound,
    mean_delta=MEAN_DELTA,
)
