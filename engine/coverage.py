"""What fixed thresholds can do on a log: how much they answer, and how often they are wrong."""

import numpy as np
from numpy.typing import NDArray

from kernels.game import GRIDS, cuts

Floats = NDArray[np.float64]


def every_threshold(scores: Floats) -> Floats:
    """The grid of all thresholds that differ on these scores [N], with 0, and 1 to abstain."""
    return np.concatenate([[0.0], np.unique(scores), [1.0]])


def risk_coverage(grid: Floats, scores: Floats, errors: Floats) -> tuple[Floats, Floats]:
    """Coverage and risk of every threshold.

    Args:
        grid: [H] thresholds, as in the game: the last abstains always.
        scores: [N] in [0, 1].
        errors: [N] in [0, 1].

    Returns:
        Share of records answered [H], and the share of wrong among them [H] (NaN where none is answered).
    """
    place = cuts(grid, scores)
    answered = len(scores) - np.cumsum(np.bincount(place, minlength=len(grid)))
    wrong = np.append(np.cumsum(np.bincount(place, errors, len(grid))[:0:-1])[::-1], 0.0)
    with np.errstate(invalid="ignore"):
        return answered / len(scores), wrong / answered


def best_coverage(grid: Floats, scores: Floats, errors: Floats, alpha: float) -> float:
    """Largest share answered by a threshold whose FDR is at most alpha, 0 if there is none."""
    coverage, risk = risk_coverage(grid, scores, errors)
    return float(coverage[risk <= alpha].max(initial=0.0))


def mixed_coverage(
    grid: Floats, first: tuple[Floats, Floats], second: tuple[Floats, Floats], shares: Floats, alpha: float
) -> Floats:
    """Largest share answered, as above, where a record comes from the second log with a probability.

    Args:
        grid: [H] thresholds.
        first: scores and errors [N] of a log.
        second: the same of another.
        shares: [S] of the second, in [0, 1].
        alpha: the target.

    Returns:
        [S], in [0, 1].
    """
    answered, wrong = np.zeros((2, len(shares), len(grid)))
    for weights, (scores, errors) in ((1 - shares, first), (shares, second)):
        coverage, risk = risk_coverage(grid, scores, errors)
        answered += np.outer(weights, coverage)
        wrong += np.outer(weights, coverage * np.nan_to_num(risk))
    held = wrong <= alpha * answered + 1e-12  # weights are rounded
    return np.where(held, answered, 0.0).max(axis=1)


def coverage_by_grid(arms: int, scores: Floats, errors: Floats, alpha: float) -> dict[str, float]:
    """Best coverage at alpha of each named grid of H arms, and of ``all thresholds``."""
    every = {"all thresholds": every_threshold(scores)}
    named = {name: make(arms, scores) for name, make in GRIDS.items()}
    return {name: best_coverage(grid, scores, errors, alpha) for name, grid in (every | named).items()}
