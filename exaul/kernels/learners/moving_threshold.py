"""Functions shared by learners with one moving threshold: start, reserve, and bound of the FDR risk."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.game import Parameters

START = 0.5


def start(arms: int, best: Any) -> float:
    """Return ``z_1 = (H - 1) / 2``, the middle of the grid (``docs/proofs.md``)."""
    return START * (arms - 1)


def reserve(where: Callable[..., Any], z: Any, waiting: Any, arms: Any, parameters: Parameters) -> Any:
    """Return ``z + mu H (1 - alpha) waiting`` (``docs/proofs.md``, D2)."""
    return z + parameters.eta * arms * (1.0 - parameters.alpha) * waiting


def risk_bound(
    eta: ArrayLike, gamma: object, rounds: ArrayLike, t: ArrayLike, answered: ArrayLike, arms: int
) -> NDArray[np.float64]:
    """Bound the FDR risk (eq. 1) for steps that do not grow and a threshold that does not drift.

    ``R_t <= ((H - 1) / H + mu_1) / mu_t - (H - 1) / (2 H mu_1)`` (``docs/proofs.md``, guarantee T1): an answer
    raises z by at least ``mu H (e - alpha)``, and z never exceeds ``H - 1 + mu_1 H``.
    """
    eta, ends = np.asarray(eta), np.concatenate([[0], np.cumsum(rounds)])
    # mu_t is constant within a block: find the block of round t.
    top, now = (arms - 1) / arms, eta[np.searchsorted(ends, np.asarray(t)) - 1]
    bound: NDArray[Any] = (top + eta[0]) / now - top / (2 * eta[0])  # T1 without the drift
    return np.broadcast_to(bound, np.broadcast_shapes(bound.shape, np.shape(answered)))
