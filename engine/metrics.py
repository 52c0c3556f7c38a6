"""What is measured of every trial, from counts and error sums alone, in float64 and one fixed order."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels import native

Floats = NDArray[np.float64]


def loss(answered: ArrayLike, wrong: ArrayLike, t: ArrayLike, answer: ArrayLike, abstain: ArrayLike) -> Floats:
    """Cumulative loss (eq. 3): ``answer * wrong + abstain * (t - answered)``.

    Args:
        answered: count of answered rounds.
        wrong: sum of the errors of the answered rounds.
        t: rounds.
        answer: cost of an answer per unit of error.
        abstain: cost of an abstention; all shapes broadcast.
    """
    return np.asarray(answer) * np.asarray(wrong) + np.asarray(abstain) * (np.asarray(t) - np.asarray(answered))


def fdr(answered: ArrayLike, wrong: ArrayLike, alpha: ArrayLike) -> Floats:
    """False discovery rate ``wrong / answered`` (eq. 2); alpha while nothing was answered. Shapes broadcast."""
    answered, wrong, alpha = np.broadcast_arrays(answered, wrong, alpha)
    return np.where(answered > 0, wrong / np.maximum(answered, 1), alpha)


def fdr_risk(answered: ArrayLike, wrong: ArrayLike, alpha: ArrayLike) -> Floats:
    """``R = sum over answered of (e - alpha)`` (eq. 1). Shapes broadcast."""
    return np.asarray(wrong) - np.asarray(alpha) * np.asarray(answered)


def rise(risk: Floats) -> Floats:
    """Largest rise of the FDR risk over a stretch so far, from its values [P, ...] at checkpoints; R_0 = 0."""
    lowest = np.minimum(np.minimum.accumulate(risk, axis=0), 0.0)
    return np.maximum.accumulate(risk - lowest, axis=0)


class Comparator:
    """Counts and error sums per cut, from which the cumulative loss of every fixed arm follows.

    Arm k answers iff ``k < c``, so it has answered the rounds with larger cuts, and abstained in the others.
    """

    def __init__(self, trials: int, arms: int) -> None:
        """Before round 1, for B trials and H arms."""
        self.count = np.zeros((trials, arms), np.int64)
        self.wrong = np.zeros((trials, arms))

    def add(self, cuts: NDArray[np.int32], errors: Floats) -> None:
        """Play rounds: cuts [R, B] in 1..H-1 and errors [R, B] in [0, 1]. Sums run in the order of rounds."""
        each = np.ascontiguousarray(cuts.T), np.ascontiguousarray(errors.T)
        native.count(*each, self.count, self.wrong)

    def best(self, answer: Floats, abstain: Floats) -> tuple[Floats, NDArray[np.int32]]:
        """Least cumulative loss of a fixed arm so far and that arm, the lowest on a tie.

        Args:
            answer: [cells] cost of an answer per unit of error.
            abstain: [cells] cost of an abstention.

        Returns:
            Losses [cells, B], and arms [cells, B] in 0..H-1.
        """
        trials, arms = self.count.shape
        abstained = np.cumsum(self.count, axis=1)
        wrong = np.zeros((trials, arms))
        wrong[:, :-1] = np.cumsum(self.wrong[:, :0:-1], axis=1)[:, ::-1]
        t = abstained[:, -1:]
        losses, best = np.empty((len(answer), trials)), np.empty((len(answer), trials), np.int32)
        for cell, (a, b) in enumerate(zip(answer, abstain, strict=True)):
            total = loss(t - abstained, wrong, t, a, b)
            best[cell] = np.argmin(total, axis=1)
            losses[cell] = np.take_along_axis(total, best[cell][:, None], axis=1)[:, 0]
        return losses, best
