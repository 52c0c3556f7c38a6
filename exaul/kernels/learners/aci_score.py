"""``aci-score``: adaptive conformal inference on the score, a rival that anyone can name.

Gibbs and Candes, "Adaptive conformal inference under distribution shift", 2021, with feedback on answers alone: the
threshold z is measured in arms, a round is answered if z lies below its cut, and an answer moves z by
``mu H (e - alpha)``, up if it was wrong, down if it was right. Nothing else moves it. One step is a share mu = .005
of the grid, whatever its thresholds: on the uniform grid z / (H - 1) is the score itself; on the others it is the
place in the grid. The rate ``eta`` is mu; there is no gamma.

After a stretch in which no score reaches z it stays where it is, for an abstention moves nothing.
"""

from collections.abc import Callable
from typing import Any

from exaul.kernels.bounds import unbounded
from exaul.kernels.game import Parameters, Rates
from exaul.kernels.learners.descent import middle, reserve, risk_bound
from exaul.kernels.learners.learner import Descent, Learner

STEP = 0.005


def gradient(where: Callable[..., Any], answered: Any, error: Any, arms: Any, parameters: Parameters) -> Any:
    """The gradient that a step of size mu goes against: ``H (alpha - e)``, of an abstention 0.

    Args:
        where: ``where(condition, x, y)`` of the caller's arrays.
        answered: [B] bool.
        error: [B] in [0, 1], read where the round is answered.
        arms: H.
        parameters: alpha [B] is read.

    Returns:
        [B], in arms.
    """
    return where(answered, parameters.alpha - error, 0.0) * arms


def rates(horizon: int, arms: int) -> Rates:
    """The step mu, a constant.

    Returns:
        mu as eta; there is no gamma.
    """
    return Rates(STEP, None)


aci_score = Learner(
    feedback="bandit",
    rule=Descent(middle, gradient, reserve),
    rates=rates,
    anytime=None,
    regret_bound=unbounded,
    risk_bound=risk_bound,
    manual_rates=("step", "drift"),
)
