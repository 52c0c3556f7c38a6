"""``threshold``: one threshold, moved by gradient steps on the FDR risk; deterministic, O(1) per round.

The threshold z is measured in arms, and a round is answered if z lies below its cut. An answer moves z by
``mu H (e - alpha)``: up if it was wrong, down if it was right. An abstention moves z by ``-nu H``, so that the
learner starts to answer again after a stretch of abstentions. z never falls below 0. This is online gradient
descent on the FDR risk, like adaptive conformal inference (Gibbs and Candes, "Adaptive conformal inference under
distribution shift", 2021), with feedback on answers only. ``eta`` is mu, the step; ``gamma`` is nu, the drift.
``docs/proofs.md`` states what is proved.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.game import Parameters, Rates
from exaul.kernels.learners.learner import Descent, Learner
from exaul.kernels.learners.moving_threshold import reserve, start
from exaul.kernels.learners.moving_threshold import risk_bound as without_drift

STEP, DRIFT = 0.02, 5e-5


def gradient(where: Callable[..., Any], answered: Any, error: Any, arms: Any, parameters: Parameters) -> Any:
    """Return ``H (alpha - e)`` for an answer and ``H nu / mu`` for an abstention; a step is -mu times this."""
    return where(answered, parameters.alpha - error, parameters.gamma / parameters.eta) * arms


def rates(horizon: int, arms: int) -> Rates:
    """Return the constants mu, as eta, and nu, as gamma."""
    return Rates(STEP, DRIFT)


def risk_bound(
    eta: ArrayLike, gamma: ArrayLike, rounds: ArrayLike, t: ArrayLike, answered: ArrayLike, arms: int
) -> NDArray[np.float64]:
    """Bound the FDR risk (eq. 1) for steps that do not grow (``docs/proofs.md``, guarantee T1).

    This is the bound without a drift, plus the sum of ``nu / mu`` over the abstentions. Only their number n is
    known. If nu / mu only rises or only falls, the sum is largest over the last n rounds or over the first n
    rounds.
    """
    ends = np.concatenate([[0], np.cumsum(rounds)])
    drifts = np.concatenate([[0.0], np.cumsum(np.asarray(gamma) / np.asarray(eta) * np.asarray(rounds))])

    def up_to(t: NDArray[Any]) -> NDArray[np.float64]:
        return np.interp(t, ends, drifts)

    t, answered = np.asarray(t), np.asarray(answered)
    # n = t - answered abstentions: as the first n rounds, or as the last n
    drift = np.maximum(up_to(t - answered), up_to(t) - up_to(answered))
    return without_drift(eta, gamma, rounds, t, answered, arms) + drift


threshold = Learner(
    feedback="bandit",
    rule=Descent(start, gradient, reserve),
    rates=rates,
    risk_bound=risk_bound,
    manual_rates=("step", "drift"),
)
