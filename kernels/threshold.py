"""``threshold``: one number, moved by gradient steps on the FDR risk; deterministic, O(1) a round.

``z`` in arms; a round is answered where z lies below its cut. An answer moves z by ``mu H (e - alpha)``, up where
it was wrong; an abstention by ``-nu H``, so that it comes back after a hopeless stretch; z never falls below 0. It
is online gradient descent (adaptive conformal inference, Gibbs and Candes 2021) with feedback on answers alone.
``eta`` is mu, the step, and ``gamma`` is nu, the drift. What is proved of it stands in ``docs/beyond.md``.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.bounds import unbounded
from kernels.game import Parameters
from kernels.learner import Descent, Learner, Rates

STEP, DRIFT = 0.02, 5e-5


def start(arms: int) -> float:
    """``z_1 = (H - 1) / 2``."""
    return (arms - 1) / 2


def gradient(where: Callable, answered: Any, error: Any, arms: Any, parameters: Parameters) -> Any:
    """What a round's step, of size mu, goes against.

    Args:
        where: ``where(condition, x, y)`` of the caller's arrays.
        answered: [B] bool.
        error: [B] in [0, 1], read where the round is answered.
        arms: H.
        parameters: eta = mu > 0, gamma = nu >= 0, and alpha.

    Returns:
        ``H (alpha - e)`` of an answer, ``H nu / mu`` of an abstention, [B].
    """
    return where(answered, parameters.alpha - error, parameters.gamma / parameters.eta) * arms


def rates(horizon: int, arms: int) -> Rates:
    """The step and the drift, whatever the horizon."""
    return Rates(STEP, DRIFT)


def risk_bound(
    eta: ArrayLike, gamma: ArrayLike, rounds: ArrayLike, t: ArrayLike, answered: ArrayLike, arms: int
) -> NDArray[np.float64]:
    """``R_t <= ((H - 1) / H + mu_1) / mu_t - (H - 1) / (2 H mu_1) + sum over abstained rounds of nu / mu``.

    Pathwise, on any sequence, for steps that do not grow. The last sum is bounded by that of as many of the first
    rounds, or of the last, whichever is larger, which it cannot exceed while nu / mu rises or falls throughout.
    Arguments as of ``Learner.risk_bound``.
    """
    eta, gamma, ends = np.asarray(eta), np.asarray(gamma), np.concatenate([[0], np.cumsum(rounds)])
    t, answered = np.asarray(t), np.asarray(answered)
    drifts = np.concatenate([[0.0], np.cumsum(gamma / eta * np.asarray(rounds))])

    def up_to(t: NDArray) -> NDArray[np.float64]:
        return np.interp(t, ends, drifts)

    drift = np.maximum(up_to(t - answered), up_to(t) - up_to(answered))
    top, now = (arms - 1) / arms, eta[np.searchsorted(ends, t) - 1]
    return (top + eta[0]) / now - top / (2 * eta[0]) + drift


threshold = Learner(
    feedback="bandit",
    kind="descent",
    rule=Descent(start, gradient),
    rates=rates,
    anytime=None,
    regret_bound=unbounded,
    risk_bound=risk_bound,
)
