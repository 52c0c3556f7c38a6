"""Coverage and FDR of fixed thresholds on a log of scores and errors.

This is the risk-coverage curve of selective prediction (El-Yaniv and Wiener, "On the foundations of noise-free
selective classification", 2010; Geifman and El-Yaniv, "Selective classification for deep neural networks", 2017),
with the FDR (eq. 2) as the risk.
"""

import numpy as np

from exaul.kernels.game import GRIDS, compute_cuts
from exaul.kernels.metrics import Floats


def every_threshold(scores: Floats) -> Floats:
    """Return all thresholds that make different decisions on the scores [N] in [0, 1].

    Returns:
        [at most N + 2], non-decreasing: 0, the distinct scores, and 1, which always abstains.
    """
    return np.concatenate([[0.0], np.unique(scores), [1.0]])


def risk_coverage(grid: Floats, scores: Floats, errors: Floats) -> tuple[Floats, Floats]:
    """Compute coverage and FDR of every fixed threshold on a log.

    Args:
        grid: [H] non-decreasing thresholds; the first is 0, the last is 1 and always abstains.
        scores: [N] in [0, 1].
        errors: [N] in [0, 1].

    Returns:
        The share of records that each threshold answers [H], and the FDR of these answers [H], NaN if there are
        none.
    """
    # Arm k answers the records with cut > k: counts come from cumulative sums of a histogram of cuts.
    place = compute_cuts(grid, scores)
    answered = len(scores) - np.cumsum(np.bincount(place, minlength=len(grid)))
    # Summed from high cuts to low ones: no subtraction, so a rounding error cannot leave a negative sum.
    wrong = np.append(np.cumsum(np.bincount(place, errors, len(grid))[:0:-1])[::-1], 0.0)
    with np.errstate(invalid="ignore"):
        return answered / len(scores), wrong / answered


def best_coverage(grid: Floats, scores: Floats, errors: Floats, alpha: float) -> float:
    """Return the largest coverage of a threshold whose FDR is at most alpha.

    Args:
        grid: [H] thresholds, as in ``risk_coverage``.
        scores: [N] in [0, 1].
        errors: [N] in [0, 1].
        alpha: target FDR in (0, 1).

    Returns:
        In [0, 1]; 0 if no threshold has such an FDR.
    """
    coverage, risk = risk_coverage(grid, scores, errors)
    return float(coverage[risk <= alpha].max(initial=0.0))


def separation(scores: Floats, errors: Floats) -> float:
    """Compute the probability that a right answer scores above a wrong one.

    This is the area under the ROC curve (Hanley and McNeil, "The meaning and use of the area under a receiver
    operating characteristic (ROC) curve", 1982). Ties count half; an error of e counts as e wrong and 1 - e right
    answers.

    Args:
        scores: [N] in [0, 1].
        errors: [N] in [0, 1].

    Returns:
        In [0, 1]; 1/2 for uninformative scores, NaN if all answers are right or all are wrong.
    """
    _, level = np.unique(scores, return_inverse=True)
    wrong, right = np.bincount(level, errors), np.bincount(level, 1 - errors)
    below = np.cumsum(wrong) - wrong / 2  # wrong answers with a lower score, ties half
    with np.errstate(invalid="ignore"):
        return float((right * below).sum() / (wrong.sum() * right.sum()))


def coverage_by_grid(arms: int, scores: Floats, errors: Floats, alpha: float) -> dict[str, float]:
    """Compute ``best_coverage`` on each named grid and on all distinct thresholds.

    Args:
        arms: H >= 2, of the named grids.
        scores: [N] in [0, 1].
        errors: [N] in [0, 1].
        alpha: target FDR in (0, 1).

    Returns:
        Coverage in [0, 1] by name of the grid; the first name is ``all thresholds``.
    """
    every = {"all thresholds": every_threshold(scores)}
    named = {name: make(arms, scores) for name, make in GRIDS.items()}
    return {name: best_coverage(grid, scores, errors, alpha) for name, grid in (every | named).items()}
