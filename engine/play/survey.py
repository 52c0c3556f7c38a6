"""What was done up to each checkpoint, and the best fixed arm of every trial in hindsight."""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine.play.schedule import Schedule
from exaul.kernels.backends import native
from exaul.kernels.game import ROUNDS
from exaul.kernels.metrics import Floats, best_fixed


class Trajectory(NamedTuple):
    """What B copies of a learner did, at P checkpoints."""

    answered: NDArray[np.int64]  # [P, B]
    wrong: Floats  # [P, B], sum of the errors of answered rounds
    best_loss: Floats  # [P, B], of the best fixed arm on the copy's own sequence
    best_arm: NDArray[np.int32]  # [B], at the last checkpoint
    asked: dict[str, Floats]  # [P, B], how much of each kind was asked, in worlds that answer back


class Survey:
    """The best fixed arm of every trial, from the records alone, chunk after chunk.

    ``best_loss`` [P, cells, B] is its cumulative loss at each of P checkpoints, ``best_arm`` [cells, B] the arm at
    the last checkpoint that was reached.
    """

    def __init__(
        self,
        column: NDArray[np.integer],
        arms: int,
        checkpoints: NDArray[np.int64],
        answer_cost: Floats,
        abstain_cost: Floats,
    ) -> None:
        """Before round 1, for trials that meet some columns [B] of records; costs [cells]."""
        columns = int(column.max()) + 1
        self.count, self.wrong = np.zeros((columns, arms), np.int64), np.zeros((columns, arms))
        self.column, self.checkpoints, self.costs = column, checkpoints, (answer_cost, abstain_cost)
        shape = len(answer_cost), len(column)
        self.best_loss, self.best_arm = np.empty((len(checkpoints), *shape)), np.empty(shape, np.int32)
        self.reached = 0

    def save(self) -> Any:
        """All that changes as it goes on, as a tree of arrays."""
        return self.count, self.wrong, self.best_loss, self.best_arm, self.reached

    def restore(self, tree: Any) -> None:
        """Go on from what ``save`` returned."""
        self.count, self.wrong, self.best_loss, self.best_arm, reached = tree
        self.reached = int(reached)

    def trajectory(self) -> Trajectory:
        """The best fixed arms up to the last checkpoint that was reached, with no decisions."""
        nothing = np.zeros((self.reached, 0))
        best_loss = self.best_loss[: self.reached].reshape(self.reached, -1)
        return Trajectory(nothing.astype(np.int64), nothing, best_loss, self.best_arm.ravel(), {})

    def add(self, when: Schedule, cuts: NDArray[np.int32], errors: Floats) -> None:
        """Count the records [K C, R] of some blocks, in the order of rounds."""
        start = int(when.block[0]) * ROUNDS
        end = start + when.rounds
        inside = self.checkpoints[(self.checkpoints > start) & (self.checkpoints <= end)]
        for first, last in pairwise([start, *inside, end]):
            here = slice(first - start, last - start)
            each = np.ascontiguousarray(cuts[here].T), np.ascontiguousarray(errors[here].T)
            native.count(*each, self.count, self.wrong)
            if last in inside and first < last:
                loss, arm = best_fixed(self.count, self.wrong, *self.costs)
                self.best_loss[self.reached], self.best_arm = loss[:, self.column], arm[:, self.column]
                self.reached += 1
