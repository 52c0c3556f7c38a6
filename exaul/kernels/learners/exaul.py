"""``exaul``: Exp3-IX with feedback unlocking, the paper's learner (Algorithm "ExAUL").

The learner keeps a weight for each threshold tau, draws a threshold in proportion to the weights, and answers if
the score is at least tau. Feedback on an answer reveals the loss of every arm that would have answered; an
abstention reveals the loss of every arm that would have abstained. These arms, ``H_t``, are charged their loss
divided by ``gamma + sum of p over H_t`` (eq. 8). Weights fall exponentially with the sum of charges.
"""

import math
from collections.abc import Callable
from typing import Any

from exaul.kernels.bounds import EXAUL_BOUNDS
from exaul.kernels.game import Rates, RuleParams
from exaul.kernels.learners.learner import Learner, Sided, at_double


def charge(
    where: Callable[..., Any], P: Any, Q: Any, answered: Any, error: Any, params: RuleParams
) -> tuple[Any, Any]:
    """Estimate the losses, ``l(tau) 1{tau in H_t} / (gamma + sum of p over H_t)`` (eq. 8).

    The sum is P if the round was answered, and Q if not.
    """
    # H_t (eq. 7) is one whole side of the cut; the arms of the other side are charged nothing.
    # One reciprocal for both sides. On a GPU, 0 / x (after a right answer) would take much longer than 1 / x.
    weight = 1.0 / (params.gamma + where(answered, P, Q))
    below = where(answered, params.answer_cost * error * weight, 0.0)
    above = where(answered, 0.0, params.abstain_cost * weight)
    return below, above


def rates(horizon: int, arms: int) -> Rates:
    """Return the paper's rates, ``eta = 2 gamma = sqrt(ln H / T)`` (theorem on the regret of ExAUL)."""
    eta = math.sqrt(math.log(arms) / horizon)
    return Rates(eta, eta / 2)


exaul = Learner(
    feedback="bandit",
    rule=Sided(charge),
    rates=rates,
    # eta_t = 2 gamma_t = sqrt(ln H / (2 t)), the form of Neu, "Explore no more", 2015, Theorem 1
    anytime=at_double(rates),
    regret_bounds=EXAUL_BOUNDS,
)
