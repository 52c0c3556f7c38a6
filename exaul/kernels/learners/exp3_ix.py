"""``exp3-ix``: Exp3 with implicit exploration, which learns from the drawn arm only (Algorithm "Exp3-IX-CA").

It decides like ``exaul`` but does not unlock feedback: only the drawn arm is charged, its loss divided by
``gamma + p``, where p is its probability (Neu, "Explore no more", 2015).
"""

import math
from collections.abc import Callable
from typing import Any

from exaul.kernels.bounds import EXP3_IX_BOUNDS
from exaul.kernels.game import Rates, RuleParams
from exaul.kernels.learners.learner import Drawn, Learner, at_double


def charge(where: Callable[..., Any], p: Any, answered: Any, error: Any, params: RuleParams) -> Any:
    """Estimate the loss of the drawn arm, ``l / (gamma + p)`` (appendix, estimator of Exp3-IX)."""
    loss = where(answered, params.answer_cost * error, params.abstain_cost)
    return loss * (1.0 / (params.gamma + p))  # not ``loss / ...``, which is slow on a GPU if the loss is 0


def rates(horizon: int, arms: int) -> Rates:
    """Return the paper's rates, ``eta = 2 gamma = sqrt(2 ln H / (T H))`` (theorem on the regret of Exp3-IX)."""
    eta = math.sqrt(2 * math.log(arms) / (horizon * arms))
    return Rates(eta, eta / 2)


exp3_ix = Learner(
    feedback="bandit",
    rule=Drawn(charge),
    rates=rates,
    anytime=at_double(rates),  # eta_t = 2 gamma_t = sqrt(ln H / (t H)) (Neu 2015, Theorem 1)
    regret_bounds=EXP3_IX_BOUNDS,
)
