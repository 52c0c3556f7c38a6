"""``exaul``: Exp3-IX with feedback unlocking (Algorithm "ExAUL"), the paper's learner.

It keeps a weight for each threshold tau of the grid, draws one with probability in proportion to the weights, and
answers if the score is at least tau. The feedback then shows the loss of every arm on the drawn arm's side of the
score, ``H_t``: all that answer, if it answered, and all that abstain, if it abstained. Each of them is charged its
loss divided by ``gamma + sum of p over H_t``, and weights fall exponentially with what they were charged.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from exaul.kernels.bounds import MEAN_DELTA, implicit_exploration_regret
from exaul.kernels.game import Parameters
from exaul.kernels.learners.learner import Learner, Rates, Sided


def rule(
    where: Callable[..., Any], P: Any, Q: Any, answered: Any, error: Any, parameters: Parameters
) -> tuple[Any, Any]:
    """Estimate the losses of a round, on the side of the score whose feedback is unlocked.

    ``l(tau) 1{tau in H_t} / (gamma + sum of p over H_t)`` (eq. 8, the estimator with feedback unlocking). The sum
    is P where the round was answered, and Q where not.

    Args:
        where: ``where(condition, x, y)`` of the caller's arrays.
        P: [B] in [0, 1], probability of the arms that answer.
        Q: [B] in [0, 1], probability of the arms that abstain.
        answered: [B] bool, whether the drawn arm answers.
        error: [B] in [0, 1], zero where not answered.
        parameters: gamma >= 0, answer_cost [B] and abstain_cost [B] are read.

    Returns:
        The charge of every arm below the cut and that of every arm above it, [B] each, >= 0.
    """
    below = where(answered, parameters.answer_cost * error / (parameters.gamma + P), 0.0)
    above = where(answered, 0.0, parameters.abstain_cost / (parameters.gamma + Q))
    return below, above


def rates(horizon: int, arms: int) -> Rates:
    """The paper's rates, ``eta = 2 gamma = sqrt(ln H / T)`` (theorem on the regret of ExAUL).

    Args:
        horizon: T >= 1.
        arms: H >= 2.

    Returns:
        eta and gamma.
    """
    eta = math.sqrt(math.log(arms) / horizon)
    return Rates(eta, eta / 2)


def anytime(t: int, arms: int) -> Rates:
    """Rates for an unknown horizon, ``eta_t = 2 gamma_t = sqrt(ln H / (2 t))``.

    They are ``rates`` at twice the rounds so far; rates that fall as 1 / sqrt(t) are those of Neu, "Explore no
    more", 2015, Theorem 1.

    Args:
        t: the round, >= 1.
        arms: H >= 2.

    Returns:
        eta_t and gamma_t.
    """
    return rates(2 * t, arms)


exaul = Learner(
    feedback="bandit",
    rule=Sided(rule),
    rates=rates,
    anytime=anytime,
    regret_bound=partial(implicit_exploration_regret, observed=2),
    mean_delta=MEAN_DELTA,
)
