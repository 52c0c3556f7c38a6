"""Metrics of a trial, computed in float64 from counts of answers and sums of errors.

All arguments and results broadcast. ``answered`` is the number of answered rounds, ``wrong`` the sum of their
errors, ``t`` >= 1 the number of rounds, and ``alpha`` the target FDR in (0, 1).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def loss(
    answered: ArrayLike, wrong: ArrayLike, t: ArrayLike, answer_cost: ArrayLike, abstain_cost: ArrayLike
) -> Floats:
    """Compute the cumulative loss, ``answer_cost wrong + abstain_cost (t - answered)`` (eq. 4, summed).

    The costs, of an answer per unit of error and of an abstention, are those of ``compute_costs``.
    """
    abstained = np.asarray(t) - np.asarray(answered)
    return np.asarray(answer_cost) * np.asarray(wrong) + np.asarray(abstain_cost) * abstained


def fdr(answered: ArrayLike, wrong: ArrayLike, unanswered: ArrayLike) -> Floats:
    """Compute the FDR in [0, 1], ``wrong / answered`` (eq. 2).

    ``unanswered`` is what it is if nothing was answered: alpha in the paper, NaN in tables of whole trials.
    """
    answered, wrong, unanswered = np.broadcast_arrays(answered, wrong, unanswered)
    return np.where(answered > 0, wrong / np.maximum(answered, 1), unanswered)


def inefficiency(answered: ArrayLike, t: ArrayLike) -> Floats:
    """Compute the inefficiency in [0, 1], the share of abstentions: ``(t - answered) / t`` (section "Problem")."""
    return (np.asarray(t) - np.asarray(answered)) / np.asarray(t)


def fdr_risk(answered: ArrayLike, wrong: ArrayLike, alpha: ArrayLike) -> Floats:
    """Compute the FDR risk in errors, ``R = sum over answered rounds of (e - alpha)`` (eq. 1)."""
    return np.asarray(wrong) - np.asarray(alpha) * np.asarray(answered)


def rise(risk: Floats) -> Floats:
    """Compute the largest rise of the FDR risk (eq. 1) over any stretch of rounds so far, as seen at checkpoints.

    ``max over s <= u <= t of (R_u - R_s)``, where ``R_0 = 0``.

    Args:
        risk: [P, ...], R at P checkpoints.

    Returns:
        [P, ...] >= 0.
    """
    lowest = np.minimum(np.minimum.accumulate(risk, axis=0), 0.0)
    return np.maximum.accumulate(risk - lowest, axis=0)
