"""What is measured of every trial, from counts and sums of errors alone, in float64 and one fixed order."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def loss(
    answered: ArrayLike, wrong: ArrayLike, t: ArrayLike, answer_cost: ArrayLike, abstain_cost: ArrayLike
) -> Floats:
    """Compute the cumulative loss, ``answer_cost wrong + abstain_cost (t - answered)`` (eq. 4, summed).

    Args:
        answered: number of answered rounds, any shape.
        wrong: sum of the errors of the answered rounds, broadcasts.
        t: number of rounds, broadcasts.
        answer_cost: cost of an answer per unit of error, in [0, 1], broadcasts.
        abstain_cost: cost of an abstention, in [0, 1], broadcasts.

    Returns:
        The loss, of the broadcast shape.
    """
    abstained = np.asarray(t) - np.asarray(answered)
    return np.asarray(answer_cost) * np.asarray(wrong) + np.asarray(abstain_cost) * abstained


def fdr(answered: ArrayLike, wrong: ArrayLike, alpha: ArrayLike) -> Floats:
    """Compute the false discovery rate, ``wrong / answered``, or alpha while nothing was answered (eq. 2).

    Args:
        answered: number of answered rounds, any shape.
        wrong: sum of their errors, broadcasts.
        alpha: target FDR in (0, 1), broadcasts.

    Returns:
        The FDR in [0, 1], of the broadcast shape.
    """
    answered, wrong, alpha = np.broadcast_arrays(answered, wrong, alpha)
    return np.where(answered > 0, wrong / np.maximum(answered, 1), alpha)


def inefficiency(answered: ArrayLike, t: ArrayLike) -> Floats:
    """Inefficiency, the share of rounds that were not answered: ``(t - answered) / t`` (section "Problem").

    Args:
        answered: count of answered rounds, any shape.
        t: rounds >= 1, broadcasts with answered.

    Returns:
        The inefficiency in [0, 1], of the broadcast shape.
    """
    return (np.asarray(t) - np.asarray(answered)) / np.asarray(t)


def fdr_risk(answered: ArrayLike, wrong: ArrayLike, alpha: ArrayLike) -> Floats:
    """Compute the FDR risk, ``R = sum over answered rounds of (e - alpha)`` (eq. 1).

    Args:
        answered: number of answered rounds, any shape.
        wrong: sum of their errors, broadcasts.
        alpha: target FDR in (0, 1), broadcasts.

    Returns:
        R, in errors, of the broadcast shape.
    """
    return np.asarray(wrong) - np.asarray(alpha) * np.asarray(answered)


def rise(risk: Floats) -> Floats:
    """Compute the largest rise of the FDR risk (eq. 1) over any stretch of rounds so far, seen at checkpoints.

    ``max over s <= u <= t of (R_u - R_s)``, where ``R_0 = 0``.

    Args:
        risk: [P, ...], R at P checkpoints.

    Returns:
        [P, ...] >= 0.
    """
    lowest = np.minimum(np.minimum.accumulate(risk, axis=0), 0.0)
    return np.maximum.accumulate(risk - lowest, axis=0)
