"""``exaul``: Exp3-IX with feedback unlocking, the paper's learner (Algorithm "ExAUL").

The learner keeps a weight for each threshold tau, draws a threshold in proportion to the weights, and answers if
the score is at least tau. Feedback on an answer reveals the loss of every arm that would have answered; an
abstention reveals the loss of every arm that would have abstained. These arms, ``H_t``, are charged their loss
divided by ``gamma + sum of p over H_t`` (eq. 8). Weights fall exponentially with the sum of charges.
"""

from collections.abc import Callable
from typing import Any

from exaul.kernels.game import Parameters
from exaul.kernels.learners.learner import Learner, Sided
from exaul.kernels.learners.rates import anytime, rates
from exaul.kernels.regret_bounds import EXAUL_BOUNDS


def charge(
    where: Callable[..., Any], P: Any, Q: Any, answered: Any, error: Any, parameters: Parameters
) -> tuple[Any, Any]:
    """Estimate the losses, ``l(tau) 1{tau in H_t} / (gamma + sum of p over H_t)`` (eq. 8).

    The sum is P if the round was answered, and Q if not.
    """
    # H_t (eq. 7) is one whole side of the cut; the arms of the other side are charged nothing.
    # One reciprocal for both sides. On a GPU, 0 / x (after a right answer) would take much longer than 1 / x.
    weight = 1.0 / (parameters.gamma + where(answered, P, Q))
    below = where(answered, parameters.answer_cost * error * weight, 0.0)
    above = where(answered, 0.0, parameters.abstain_cost * weight)
    return below, above


exaul = Learner(
    feedback="bandit",
    rule=Sided(charge),
    rates=rates,
    anytime=anytime,
    regret_bounds=EXAUL_BOUNDS,
)
