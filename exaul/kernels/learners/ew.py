"""``ew``: exponential weights with full feedback, an upper bound on performance (Algorithm "EW-CA").

It keeps a weight for each threshold, draws one in proportion to the weights, and sees the error of every round,
answered or not. So it charges each arm its true loss.
"""

import math
from collections.abc import Callable
from typing import Any

from exaul.kernels.bounds import EW_BOUNDS
from exaul.kernels.game import Rates, RuleParams
from exaul.kernels.learners.learner import Learner, Sided, at_double


def charge(
    where: Callable[..., Any], P: Any, Q: Any, answered: Any, error: Any, params: RuleParams
) -> tuple[Any, Any]:
    """Return the true losses of the arms that answer and of those that abstain (eq. 4)."""
    return params.answer_cost * error, params.abstain_cost


def rates(horizon: int, arms: int) -> Rates:
    """Return the paper's rate, ``eta = sqrt(8 ln H / T)`` (theorem on the regret of EW)."""
    return Rates(math.sqrt(8 * math.log(arms) / horizon), None)


ew = Learner(
    feedback="full",
    rule=Sided(charge),
    rates=rates,
    # eta_t = 2 sqrt(ln H / t), the form of Cesa-Bianchi and Lugosi, "Prediction, Learning, and Games", 2006,
    # Theorem 2.3
    anytime=at_double(rates),
    regret_bounds=EW_BOUNDS,
)
