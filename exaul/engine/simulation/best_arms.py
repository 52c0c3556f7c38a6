"""The best fixed arm of every trial in hindsight, at every checkpoint."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.engine.simulation.schedule import Chunk, Schedule
from exaul.kernels import native
from exaul.kernels.game import ROUNDS
from exaul.kernels.metrics import Floats

BestArms = tuple[Floats, NDArray[np.int32]]  # least losses in hindsight [P, B], and their arms at the end [B]
ASKED = ("hard", "overconfident", "underconfident")  # kinds of records, in adaptive environments


class BestArmCounter:
    """The arm of least loss of every trial, counted from the records on the host, chunk after chunk.

    ``best_loss`` [P, cells, B] is its cumulative loss at each of P checkpoints, ``best_arm`` [cells, B] the arm at
    the last checkpoint reached.
    """

    def __init__(
        self,
        record_stream: NDArray[np.integer],
        arms: int,
        checkpoints: NDArray[np.int64],
        answer_cost: Floats,
        abstain_cost: Floats,
    ) -> None:
        """Prepare round 1; ``record_stream`` [B] is the stream of records of each trial, costs are [cells]."""
        streams = int(record_stream.max()) + 1
        self.count, self.wrong = np.zeros((streams, arms), np.int64), np.zeros((streams, arms))
        self.record_stream, self.checkpoints = record_stream, checkpoints
        self.costs = answer_cost, abstain_cost
        shape = len(answer_cost), len(record_stream)
        self.best_loss, self.best_arm = np.empty((len(checkpoints), *shape)), np.empty(shape, np.int32)
        self.reached = 0

    def save(self) -> Any:
        """Return all that changes, as a tree of arrays; counting more records invalidates it."""
        return self.count, self.wrong, self.best_loss, self.best_arm, self.reached

    def restore(self, tree: Any) -> None:
        """Continue from what ``save`` returned."""
        self.count, self.wrong, self.best_loss, self.best_arm, reached = tree
        self.reached = int(reached)

    def best(self) -> BestArms:
        """Return the arms of least loss up to the last checkpoint reached, of all cells x B copies."""
        return self.best_loss[: self.reached].reshape(self.reached, -1), self.best_arm.ravel()

    def count_chunk(self, chunk: Chunk) -> None:
        """Count the records of a chunk."""
        rounds = chunk.host_records()
        self.count_records(chunk.schedule, rounds.cuts, rounds.errors)

    def count_records(self, schedule: Schedule, cuts: NDArray[np.int32], errors: Floats) -> None:
        """Count the records [R, at least K C] of the blocks of a schedule, in the order of rounds."""
        start = int(schedule.block[0]) * ROUNDS
        ends = self.checkpoints[(self.checkpoints > start) & (self.checkpoints <= start + schedule.rounds)] - start
        losses, arms = native.find_best_arms(
            cuts, errors, ends, schedule.rounds, self.costs, self.count, self.wrong
        )
        if len(losses):
            rows = slice(self.reached, self.reached + len(losses))
            self.best_loss[rows], self.best_arm[:] = (
                losses[:, :, self.record_stream],
                arms[-1][:, self.record_stream],
            )
            self.reached = rows.stop
