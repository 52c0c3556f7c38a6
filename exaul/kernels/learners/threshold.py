"""``threshold``: a single threshold, moved by gradient steps on the FDR risk; deterministic, O(1) a round.

The threshold z is measured in arms, and a round is answered if z lies below its cut. An answer moves z by
``mu H (e - alpha)``: up if it was wrong, down if it was right. An abstention moves z by ``-nu H``, so that the
learner begins to answer again after a stretch in which nothing could be answered. z never falls below 0. It is
online gradient descent on the FDR risk, as adaptive conformal inference (Gibbs and Candes, "Adaptive conformal
inference under distribution shift", 2021), with feedback on answers alone. The rate ``eta`` is mu, the step, and
``gamma`` is nu, the drift. What is proved of it stands in ``docs/proofs.md``.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.bounds import unbounded
from exaul.kernels.game import Parameters, Rates
from exaul.kernels.learners.descent import middle, reserve
from exaul.kernels.learners.descent import risk_bound as without_drift
from exaul.kernels.learners.learner import Descent, Learner

STEP, DRIFT = 0.02, 5e-5


def gradient(where: Callable[..., Any], answered: Any, error: Any, arms: Any, parameters: Parameters) -> Any:
    """The gradient that a step of size mu goes against: ``H (alpha - e)`` or, of an abstention, ``H nu / mu``.

    Args:
        where: ``where(condition, x, y)`` of the caller's arrays.
        answered: [B] bool.
        error: [B] in [0, 1], read where the round is answered.
        arms: H.
        parameters: eta = mu > 0, gamma = nu >= 0 and alpha [B] are read.

    Returns:
        [B], in arms.
    """
    return where(answered, parameters.alpha - error, parameters.gamma / parameters.eta) * arms


def rates(horizon: int, arms: int) -> Rates:
    """The step mu and the drift nu, constants.

    Returns:
        mu as eta, nu as gamma.
    """
    return Rates(STEP, DRIFT)


def risk_bound(
    eta: ArrayLike, gamma: ArrayLike, rounds: ArrayLike, t: ArrayLike, answered: ArrayLike, arms: int
) -> NDArray[np.float64]:
    """Bound the FDR risk (eq. 1) on any sequence, for steps that do not grow.

    The bound without a drift, plus the sum over abstained rounds of ``nu / mu`` (``docs/proofs.md``, guarantee T1).
    The sum depends on which rounds were abstained. It is at most what as many of the first rounds, or as many
    of the last, would give, whichever is more, provided that nu / mu rises throughout or falls throughout.

    Args:
        eta: [K] > 0, mu by block, non-increasing.
        gamma: [K] >= 0, nu by block.
        rounds: [K], lengths of the blocks.
        t: rounds, in 1..T, any shape.
        answered: number of answered rounds up to t, broadcasts.
        arms: H >= 2.

    Returns:
        The bound, of the broadcast shape of ``t`` and ``answered``.
    """
    ends = np.concatenate([[0], np.cumsum(rounds)])
    drifts = np.concatenate([[0.0], np.cumsum(np.asarray(gamma) / np.asarray(eta) * np.asarray(rounds))])

    def up_to(t: NDArray[Any]) -> NDArray[np.float64]:
        return np.interp(t, ends, drifts)

    t, answered = np.asarray(t), np.asarray(answered)
    drift = np.maximum(up_to(t - answered), up_to(t) - up_to(answered))
    return without_drift(eta, gamma, rounds, t, answered, arms) + drift


threshold = Learner(
    feedback="bandit",
    rule=Descent(middle, gradient, reserve),
    rates=rates,
    anytime=None,
    regret_bound=unbounded,
    risk_bound=risk_bound,
    manual_rates=("step", "drift"),
)
