"""What fixed thresholds can do on a log of scores and errors: how much they answer, and how often they are wrong.

It is the risk-coverage curve of selective prediction (El-Yaniv and Wiener, "On the foundations of noise-free
selective classification", 2010; Geifman and El-Yaniv, "Selective classification for deep neural networks", 2017),
with the FDR (eq. 2) as the risk.
"""

import numpy as np

from exaul.kernels.game import GRIDS, compute_cuts
from exaul.kernels.metrics import Floats


def every_threshold(scores: Floats) -> Floats:
    """List all thresholds that make different decisions on some scores.

    Args:
        scores: [N] in [0, 1].

    Returns:
        [at most N + 2], non-decreasing: 0, the distinct scores, and 1, which always abstains.
    """
    return np.concatenate([[0.0], np.unique(scores), [1.0]])


def risk_coverage(grid: Floats, scores: Floats, errors: Floats) -> tuple[Floats, Floats]:
    """Compute coverage and FDR of every fixed threshold on a log.

    Args:
        grid: [H] non-decreasing thresholds, the first 0 and the last 1, which abstains always.
        scores: [N] in [0, 1].
        errors: [N] in [0, 1].

    Returns:
        The share of records answered [H], and the share of wrong among them [H], NaN where none is answered.
    """
    place = compute_cuts(grid, scores)
    answered = len(scores) - np.cumsum(np.bincount(place, minlength=len(grid)))
    wrong = np.append(np.cumsum(np.bincount(place, errors, len(grid))[:0:-1])[::-1], 0.0)
    with np.errstate(invalid="ignore"):
        return answered / len(scores), wrong / answered


def best_coverage(grid: Floats, scores: Floats, errors: Floats, alpha: float) -> float:
    """Find the share of a log that the best threshold that holds alpha answers: the largest of FDR at most alpha.

    Args:
        grid: [H] thresholds, as of ``risk_coverage``.
        scores: [N] in [0, 1].
        errors: [N] in [0, 1].
        alpha: target FDR in (0, 1).

    Returns:
        In [0, 1]; 0 where there is no such threshold.
    """
    coverage, risk = risk_coverage(grid, scores, errors)
    return float(coverage[risk <= alpha].max(initial=0.0))


def separation(scores: Floats, errors: Floats) -> float:
    """Compute how well scores separate right from wrong: how probably a right answer scores above a wrong one.

    It is the area under the ROC curve (Hanley and McNeil, "The meaning and use of the area under a receiver
    operating characteristic (ROC) curve", 1982). Ties count half; an error of e is e wrong and 1 - e right answers.

    Args:
        scores: [N] in [0, 1].
        errors: [N] in [0, 1].

    Returns:
        In [0, 1], 1/2 for scores that say nothing; NaN where all are right, or all wrong.
    """
    _, level = np.unique(scores, return_inverse=True)
    wrong, right = np.bincount(level, errors), np.bincount(level, 1 - errors)
    below = np.cumsum(wrong) - wrong / 2
    with np.errstate(invalid="ignore"):
        return float((right * below).sum() / (wrong.sum() * right.sum()))


def coverage_by_grid(arms: int, scores: Floats, errors: Floats, alpha: float) -> dict[str, float]:
    """Compute ``best_coverage`` for each named grid, and for all thresholds that differ.

    Args:
        arms: H >= 2, of the named grids.
        scores: [N] in [0, 1].
        errors: [N] in [0, 1].
        alpha: target FDR in (0, 1).

    Returns:
        Coverage in [0, 1] by name of the grid; the name of the last is ``all thresholds``.
    """
    every = {"all thresholds": every_threshold(scores)}
    named = {name: make(arms, scores) for name, make in GRIDS.items()}
    return {name: best_coverage(grid, scores, errors, alpha) for name, grid in (every | named).items()}
