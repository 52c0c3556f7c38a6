"""Metrics of a trial, and of fixed thresholds on a log, computed in float64.

Of a trial, ``answered`` is the number of answered rounds, ``wrong`` the sum of their errors, ``t`` >= 1 the number
of rounds, and ``alpha`` the target FDR in (0, 1); all broadcast. A log has scores and errors, [N] in [0, 1] each; a
grid has non-decreasing thresholds [H], of which the first is 0, and the last is 1 and always abstains.

The metrics of all thresholds are the risk-coverage curve of selective prediction (El-Yaniv and Wiener, "On the
foundations of noise-free selective classification", 2010; Geifman and El-Yaniv, "Selective classification for deep
neural networks", 2017), with the FDR (eq. 2) as the risk.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.game import compute_cuts

Floats = NDArray[np.float64]  # a NumPy array
Z = 1.959964  # quantile of the normal distribution for 95% intervals
FEASIBLE = 0.05  # a threshold that answers a smaller share is not useful (chosen)


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

    ``unanswered`` is the value if nothing was answered: alpha in the paper, NaN in tables of whole trials.
    """
    answered, wrong, unanswered = np.broadcast_arrays(answered, wrong, unanswered)
    return np.where(answered > 0, wrong / np.maximum(answered, 1), unanswered)


def inefficiency(answered: ArrayLike, t: ArrayLike) -> Floats:
    """Compute the inefficiency in [0, 1], the share of abstentions: ``(t - answered) / t`` (section "Problem")."""
    return (np.asarray(t) - np.asarray(answered)) / np.asarray(t)


def fdr_risk(answered: ArrayLike, wrong: ArrayLike, alpha: ArrayLike) -> Floats:
    """Compute the FDR risk in errors, ``R_t = wrong - alpha answered`` (eq. 1), the sum of ``e - alpha``."""
    return np.asarray(wrong) - np.asarray(alpha) * np.asarray(answered)


def rise(risk: Floats) -> Floats:
    """Compute the largest rise of the FDR risk (eq. 1) over any stretch of rounds between checkpoints so far.

    It is ``max over s <= u <= t of (R_u - R_s)`` with ``R_0 = 0``, where R is the FDR risk at P checkpoints.
    ``risk`` and the result are [P, ...], the result >= 0.
    """
    lowest = np.minimum(np.minimum.accumulate(risk, axis=0), 0.0)
    return np.maximum.accumulate(risk - lowest, axis=0)


def every_threshold(scores: Floats) -> Floats:
    """Return the grid of all thresholds that decide differently on scores [N]: 0, the distinct scores, and 1."""
    return np.concatenate([[0.0], np.unique(scores), [1.0]])


def risk_coverage(grid: Floats, scores: Floats, errors: Floats) -> tuple[Floats, Floats]:
    """Compute coverage and FDR of every fixed threshold on a log.

    Args:
        grid: [H] thresholds, as above.
        scores, errors: [N] each, in [0, 1].

    Returns:
        The share of records that each threshold answers [H], and the FDR of these answers [H], NaN if there are
        none.
    """
    # Arm k answers the records with cut > k, so cumulative sums of a histogram of cuts count them.
    cuts = compute_cuts(grid, scores)
    answered = len(scores) - np.cumsum(np.bincount(cuts, minlength=len(grid)))
    # Sum from high cuts to low ones: without a subtraction, no rounding error makes a sum negative.
    wrong = np.append(np.cumsum(np.bincount(cuts, errors, len(grid))[:0:-1])[::-1], 0.0)
    with np.errstate(invalid="ignore"):
        return answered / len(scores), wrong / answered


def best_coverage(grid: Floats, scores: Floats, errors: Floats, alpha: float) -> float:
    """Return the largest coverage, in [0, 1], of a threshold whose FDR is at most alpha; 0 if there is none."""
    coverage, risk = risk_coverage(grid, scores, errors)
    return float(coverage[risk <= alpha].max(initial=0.0))


def answerable(scores: Floats, errors: Floats, alpha: float) -> float:
    """Return the largest share of records [N] that a threshold answers with an FDR of at most alpha."""
    return best_coverage(every_threshold(scores), scores, errors, alpha)


def lowest_threshold(scores: Floats, errors: Floats, alpha: float) -> float:
    """Return the lowest threshold with an FDR of at most alpha on records [N]; infinity if there is none."""
    grid = every_threshold(scores)
    (reached,) = np.nonzero(risk_coverage(grid, scores, errors)[1] <= alpha)
    return float(grid[reached[0]]) if len(reached) else np.inf


def separation(scores: Floats, errors: Floats) -> float:
    """Compute the probability that a right answer scores above a wrong one, from scores [N] and errors [N].

    This is the area under the ROC curve (Hanley and McNeil, "The meaning and use of the area under a receiver
    operating characteristic (ROC) curve", 1982). Ties count half; an error of e counts as e wrong and 1 - e right
    answers. It is 1/2 for uninformative scores, and NaN if all answers are right or all are wrong.
    """
    _, level = np.unique(scores, return_inverse=True)
    wrong, right = np.bincount(level, errors), np.bincount(level, 1 - errors)
    below = np.cumsum(wrong) - wrong / 2  # wrong answers with a lower score, ties half
    with np.errstate(invalid="ignore"):
        return float((right * below).sum() / (wrong.sum() * right.sum()))


def wilson_interval(share: float, count: float) -> list[float]:
    """Return the 95% Wilson score interval of a share of ``count`` random events, ``[low, high]``.

    Both are NaN if there are no events.
    """
    if not count:
        return [np.nan, np.nan]
    weight = Z * Z / count
    center = (share + weight / 2) / (1 + weight)
    half = Z / (1 + weight) * np.sqrt((share * (1 - share) + weight / 4) / count)
    return [max(0.0, center - half), min(1.0, center + half)]
