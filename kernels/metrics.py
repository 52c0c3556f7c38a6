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


def best_fixed(
    count: NDArray[np.int64], wrong: Floats, answer_cost: Floats, abstain_cost: Floats
) -> tuple[Floats, NDArray[np.int32]]:
    """Find the fixed arm of least cumulative loss, the comparator of the regret (eq. 3); on a tie, the lowest.

    Arm k answers iff ``k < c``. So it has answered the rounds whose cut is larger than k, and abstained in the
    others, and its loss is ``answer_cost * sum of E_c over c > k + abstain_cost * sum of N_c over c <= k``.

    Args:
        count: N, [B, H], number of rounds by cut.
        wrong: E, [B, H], sum of the errors of those rounds.
        answer_cost: [cells] cost of an answer per unit of error, in [0, 1].
        abstain_cost: [cells] cost of an abstention, in [0, 1].

    Returns:
        Losses [cells, B], and arms [cells, B] in 0..H-1.
    """
    trials, arms = count.shape
    abstained = np.cumsum(count, axis=1)
    missed = np.zeros((trials, arms))
    missed[:, :-1] = np.cumsum(wrong[:, :0:-1], axis=1)[:, ::-1]
    t = abstained[:, -1:]
    cells = len(answer_cost)
    losses, best = np.empty((cells, trials)), np.empty((cells, trials), np.int32)
    for cell, (a, b) in enumerate(zip(answer_cost, abstain_cost, strict=True)):
        total = loss(t - abstained, missed, t, a, b)
        best[cell] = np.argmin(total, axis=1)
        losses[cell] = np.take_along_axis(total, best[cell][:, None], axis=1)[:, 0]
    return losses, best
