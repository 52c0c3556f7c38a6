"""``aci-score``: adaptive conformal inference on the score, a widely known baseline.

Gibbs and Candes, "Adaptive conformal inference under distribution shift", 2021, with feedback on answers only. The
threshold z is measured in arms, and a round is answered if z lies below its cut. An answer moves z by
``mu H (e - alpha)``: up if it was wrong, down if it was right. An abstention moves nothing, so the learner stays
silent if no score reaches z. A step is a share mu = .005 of the grid: on the uniform grid z / (H - 1) is the score
itself, on other grids the place in the grid. ``eta`` is mu; there is no gamma.
"""

from collections.abc import Callable
from typing import Any

from exaul.kernels.game import Parameters, Rates
from exaul.kernels.learners.learner import Descent, Learner
from exaul.kernels.learners.moving_threshold import reserve, risk_bound, start

STEP = 0.005


def gradient(where: Callable[..., Any], answered: Any, error: Any, arms: Any, parameters: Parameters) -> Any:
    """Return ``H (alpha - e)`` for an answer and 0 for an abstention; a step is -mu times this."""
    return where(answered, parameters.alpha - error, 0.0) * arms


def rates(horizon: int, arms: int) -> Rates:
    """Return the constant mu, as eta."""
    return Rates(STEP, None)


aci_score = Learner(
    feedback="bandit",
    rule=Descent(start, gradient, reserve),
    rates=rates,
    risk_bound=risk_bound,
    manual_rates=("step", "drift"),
)
