"""What is counted of the records: the best fixed arm of every trial in hindsight, and kinds of records."""

import numpy as np
from numpy.typing import NDArray

from exaul.engine.environments.adaptive import AdaptivePool
from exaul.engine.simulation.schedule import Chunk, Saved, Schedule
from exaul.kernels import native
from exaul.kernels.game import ROUNDS, Copies
from exaul.kernels.metrics import Floats

BestArms = tuple[Floats, NDArray[np.int32]]  # least losses in hindsight [P, B], and their arms at the end [B]
ASKED = ("hard", "overconfident", "underconfident")  # kinds of records, in adaptive environments


class BestArmCounter(Saved):
    """The arm of least loss of every trial, counted from the records on the host, chunk after chunk.

    ``best_loss`` [P, cells, B] is its cumulative loss at each of P checkpoints, ``best_arm`` [cells, B] the arm at
    the last checkpoint reached.
    """

    changing = "count", "wrong", "best_loss", "best_arm", "reached"

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

    def best(self) -> BestArms:
        """Return the arms of least loss up to the last checkpoint reached, of all cells x B copies."""
        return self.best_loss[: self.reached].reshape(self.reached, -1), self.best_arm.ravel()

    def count_chunk(self, chunk: Chunk) -> None:
        """Count the records of a chunk."""
        records = chunk.host_records()
        self.count_records(chunk.schedule, records.cuts, records.errors)

    def count_records(self, schedule: Schedule, cuts: NDArray[np.int32], errors: Floats) -> None:
        """Count the records [R, at least K C] of the blocks of a schedule, in the order of rounds."""
        since = self.checkpoints - int(schedule.block[0]) * ROUNDS  # the beginning of the blocks
        ends = since[(since > 0) & (since <= schedule.rounds)]
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


class AskedRecords(Saved):
    """The best arms in hindsight of B copies, and sums over the records that they were asked, by kind.

    Every copy is asked records of its own, so each cell has its own best arms, counted with the costs of the cell.
    """

    changing = "sums", "running", "counters"

    def __init__(self, copies: Copies, trials: int, pool: AdaptivePool, checkpoints: NDArray[np.int64]) -> None:
        """Prepare round 1 of copies that are all trials of the first cell, then of the next."""
        count = len(copies.draw_stream)
        self.cells = [slice(first, first + trials) for first in range(0, count, trials)]
        self.counters = [
            BestArmCounter(
                np.arange(trials),
                len(pool.grid),
                checkpoints,
                copies.answer_cost[x][:1],
                copies.abstain_cost[x][:1],
            )
            for x in self.cells
        ]
        self.checkpoints = checkpoints
        self.sums = {kind: np.zeros((len(checkpoints), count)) for kind in ASKED}  # at the checkpoints reached
        self.running = {kind: np.zeros(count) for kind in ASKED}
        self.middle = float(np.repeat(pool.cuts, pool.counts).mean())

    def count(self, schedule: Schedule, rows: slice, cut: NDArray[np.int32], error: Floats) -> None:
        """Count the cuts and errors [K C, B] of a chunk; ``rows`` are its checkpoints among all."""
        for counter, cell in zip(self.counters, self.cells, strict=True):
            counter.count_records(
                schedule, np.ascontiguousarray(cut[:, cell].T), np.ascontiguousarray(error[:, cell].T)
            )
        # rows of the chunk at which its checkpoints are
        last = self.checkpoints[rows] - int(schedule.block[0]) * ROUNDS - 1
        high = cut >= self.middle
        for kind, amount in zip(ASKED, (error, error * high, (1 - error) * ~high), strict=True):
            running = self.running[kind] + np.cumsum(amount, axis=0)
            self.sums[kind][rows], self.running[kind] = running[last], running[-1]

    def best(self) -> BestArms:
        """Return the arms of least loss up to the last checkpoint reached."""
        return (
            np.concatenate([counter.best_loss[:, 0] for counter in self.counters], axis=1),
            np.concatenate([counter.best_arm[0] for counter in self.counters]),
        )
