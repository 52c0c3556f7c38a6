"""``ew``: exponential weights with full feedback (Algorithm "EW-CA"), an upper bound on performance.

It keeps a weight for each threshold, draws one in proportion to the weights, and sees after every round, answered
or not, whether the answer was wrong. So it charges each arm its true loss, and weights fall exponentially with it.
"""

import math
from collections.abc import Callable
from typing import Any

from exaul.kernels.bounds import exponential_weights_regret
from exaul.kernels.game import Parameters, Rates
from exaul.kernels.learners.learner import Learner, Sided


def rule(
    where: Callable[..., Any], P: Any, Q: Any, answered: Any, error: Any, parameters: Parameters
) -> tuple[Any, Any]:
    """Compute the true losses of a round, whichever arm was drawn (eq. 4, the loss).

    Args:
        error: [B] in [0, 1], of every round.
        parameters: answer_cost [B] and abstain_cost [B] are read.

    Returns:
        The charge of every arm below the cut and that of every arm above it, [B] each, in [0, 1].
    """
    return parameters.answer_cost * error, parameters.abstain_cost


def rates(horizon: int, arms: int) -> Rates:
    """The paper's rate, ``eta = sqrt(8 ln H / T)`` (theorem on the regret of EW).

    Args:
        horizon: T >= 1.
        arms: H >= 2.

    Returns:
        eta; there is no gamma.
    """
    return Rates(math.sqrt(8 * math.log(arms) / horizon), None)


def anytime(t: int, arms: int) -> Rates:
    """The rate for an unknown horizon, ``eta_t = 2 sqrt(ln H / t)``.

    It is ``rates`` at twice the rounds so far; rates that fall as 1 / sqrt(t) are those of Cesa-Bianchi and Lugosi,
    "Prediction, Learning, and Games", 2006, Theorem 2.3.

    Args:
        t: the round, >= 1.
        arms: H >= 2.

    Returns:
        eta_t; there is no gamma.
    """
    return rates(2 * t, arms)


ew = Learner(
    feedback="full",
    rule=Sided(rule),
    rates=rates,
    anytime=anytime,
    regret_bound=exponential_weights_regret,
    mean_delta=1.0,  # the theorem's ln(1 / delta) is 0
)
