"""``exaul``: Exp3-IX with feedback unlocking (Algorithm "ExAUL"), the paper's learner.

It keeps a weight for each threshold tau of the grid, draws one with probability in proportion to the weights, and
answers if the score is at least tau. The feedback then shows the loss of every arm on the drawn arm's side of the
score, ``H_t``: all that answer, if it answered, and all that abstain, if it abstained. Each of them is charged its
loss divided by ``gamma + sum of p over H_t``, and weights fall exponentially with what they were charged.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from exaul.kernels.bounds import MEAN_DELTA, implicit_exploration_regret
from exaul.kernels.game import Parameters
from exaul.kernels.learners.learner import Learner, Sided
from exaul.kernels.learners.rates import anytime, rates


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


exaul = Learner(
    feedback="bandit",
    rule=Sided(rule),
    rates=rates,
    anytime=anytime,
    regret_bound=partial(implicit_exploration_regret, observed=2),
    mean_delta=MEAN_DELTA,
)
