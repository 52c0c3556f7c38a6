"""What learners with one moving threshold share: where it starts, and what its steps cannot exceed."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.game import Parameters


def middle(arms: int) -> float:
    """The first threshold, ``z_1 = (H - 1) / 2``, in the middle of the grid (``docs/proofs.md``).

    Args:
        arms: H >= 2.

    Returns:
        z_1.
    """
    return (arms - 1) / 2


def reserve(where: Callable[..., Any], z: Any, waiting: Any, arms: Any, parameters: Parameters) -> Any:
    """The threshold if every answer without a thumb were wrong (``docs/proofs.md``, D2).

    Args:
        z: [B], in arms.
        waiting: [B], answers without a thumb.
        arms: H.
        parameters: eta = mu > 0 and alpha [B] are read.

    Returns:
        ``z + mu H (1 - alpha) waiting``, [B].
    """
    return z + parameters.eta * arms * (1.0 - parameters.alpha) * waiting


def risk_bound(
    eta: ArrayLike, gamma: object, rounds: ArrayLike, t: ArrayLike, answered: ArrayLike, arms: int
) -> NDArray[np.float64]:
    """Bound the FDR risk (eq. 1) on any sequence, for steps that do not grow and a threshold that does not drift.

    ``R_t <= ((H - 1) / H + mu_1) / mu_t - (H - 1) / (2 H mu_1)``. An answer raises z by at least
    ``mu H (e - alpha)``, for the floor at 0 only raises it more; so e - alpha is at most the rise of z over mu H. A
    sum by parts, with z >= 0 and 1 / mu rising, leaves ``z_{t+1} / (H mu_t) - z_1 / (H mu_1)``. A round is answered
    only where z < H - 1, so that z never exceeds ``H - 1 + mu_1 H`` (``docs/proofs.md``, guarantee T1).

    Args:
        eta: [K] > 0, mu by block, non-increasing.
        rounds: [K], lengths of the blocks.
        t: rounds, in 1..T, any shape.
        answered: number of answered rounds up to t, broadcasts; only its shape is read.
        arms: H >= 2.

    Returns:
        The bound, of the broadcast shape of ``t`` and ``answered``.
    """
    eta, ends = np.asarray(eta), np.concatenate([[0], np.cumsum(rounds)])
    top, now = (arms - 1) / arms, eta[np.searchsorted(ends, np.asarray(t)) - 1]
    bound: NDArray[Any] = (top + eta[0]) / now - top / (2 * eta[0])
    return np.broadcast_to(bound, np.broadcast_shapes(bound.shape, np.shape(answered)))
