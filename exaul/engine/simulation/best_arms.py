"""What was done up to each checkpoint, and the arm of least loss of every trial in hindsight."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from exaul.engine.simulation.schedule import Chunk, Schedule, Stream
from exaul.kernels.backends import native
from exaul.kernels.game import ROUNDS
from exaul.kernels.metrics import Floats
from exaul.kernels.records import StreamPlan, Streams, read_block

HALF = 2.0**31  # an error in [0, 1] is counted as two integers of 31 bits, whose sums do not depend on an order


class BestArms(NamedTuple):
    """The arms of least loss in hindsight of B copies, at P checkpoints."""

    loss: Floats  # [P, B], cumulative, on the copy's own sequence
    arm: NDArray[np.int32]  # [B], at the last checkpoint


class Trajectory(NamedTuple):
    """What B copies of a learner did, at P checkpoints."""

    answered: NDArray[np.int64]  # [P, B]
    wrong: Floats  # [P, B], sum of the errors of answered rounds
    best: BestArms
    asked: dict[str, Floats]  # [P, B], how much of each kind was asked, in adaptive environments
    # [B], what was learned from imperfect feedback so far, as ``exaul.kernels.feedback.FeedbackSums``
    feedback_sums: dict[str, Floats]


class Survey:
    """The arm of least loss of every trial, from the records alone, chunk after chunk.

    ``best_loss`` [P, cells, B] is its cumulative loss at each of P checkpoints, ``best_arm`` [cells, B] the arm at
    the last checkpoint that was reached. ``host_memory`` says whether it counts records that the host makes.
    """

    on_host = True

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

    def best(self) -> BestArms:
        """Return the arms of least loss up to the last checkpoint that was reached."""
        return BestArms(self.best_loss[: self.reached].reshape(self.reached, -1), self.best_arm.ravel())

    def count_chunk(self, chunk: Chunk) -> None:
        """Count the records of a chunk."""
        rounds = chunk.on_host()
        self.count_records(chunk.schedule, rounds.cuts, rounds.errors)

    def count_records(self, schedule: Schedule, cuts: NDArray[np.int32], errors: Floats) -> None:
        """Count the records [R, K C or more] of some blocks, in the order of rounds."""
        start = int(schedule.block[0]) * ROUNDS
        checkpoint_rounds = (
            self.checkpoints[(self.checkpoints > start) & (self.checkpoints <= start + schedule.rounds)] - start
        )
        losses, arms = native.find_best_arms(
            cuts, errors, checkpoint_rounds, schedule.rounds, self.costs, self.count, self.wrong
        )
        self.record_best(losses, arms)

    def record_best(self, losses: Floats, arms: NDArray[np.int32]) -> None:
        """Note the least losses and their arms [M, cells, R] at the next M checkpoints."""
        if len(losses):
            rows = slice(self.reached, self.reached + len(losses))
            self.best_loss[rows], self.best_arm[:] = losses[:, :, self.column], arms[-1][:, self.column]
            self.reached = rows.stop


class CutCounts(NamedTuple):
    """The rounds of a stream by cut, as integers: what was played, and its errors to 2**-62."""

    count: Any  # [H] int64
    high: Any  # [H] int64, sums of errors in units of 2**-31
    low: Any  # [H] int64, sums of what is left, in units of 2**-62


class TracedBestArms(Survey):
    """The same on a device, where the records are made and counted."""

    on_host = False

    def __init__(
        self,
        stream: Stream,
        arms: int,
        checkpoints: NDArray[np.int64],
        answer_cost: Floats,
        abstain_cost: Floats,
    ) -> None:
        """Before round 1 of a stream; costs [cells]."""
        super().__init__(stream.record_stream, arms, checkpoints, answer_cost, abstain_cost)
        shape = stream.records.stream_count, arms
        self.counted = CutCounts(*(jnp.zeros(shape, jnp.int64) for _ in range(3)))
        self.records_read = jnp.asarray(stream.records.no_records_read())
        self.waiting: tuple[NDArray[np.bool_], Any] | None = None  # of the chunk that was started last

    def count_chunk(self, chunk: Chunk) -> None:
        """Start to count the records of a chunk."""
        plan, *records = chunk.stream.on_device
        self._collect()
        self.counted, self.records_read, found = _count_blocks(
            plan, self.counted, self.records_read, chunk.schedule, self.costs, tuple(records)
        )
        self.waiting = chunk.schedule.checkpoint_rounds > 0, found

    def _collect(self) -> None:
        if self.waiting is not None:
            real, (losses, arms) = self.waiting
            self.record_best(np.asarray(losses)[real], np.asarray(arms)[real])
            self.waiting = None

    def save(self) -> Any:
        """All that changes as it goes on, as a tree of arrays."""
        self._collect()
        return self.counted, self.records_read, self.best_loss, self.best_arm, self.reached

    def restore(self, tree: Any) -> None:
        """Go on from what ``save`` returned."""
        counted, records_read, self.best_loss, self.best_arm, reached = tree
        self.counted, self.records_read = CutCounts(*map(jnp.asarray, counted)), jnp.asarray(records_read)
        self.reached = int(reached)

    def best(self) -> BestArms:
        """Return the arms of least loss up to the last checkpoint that was reached."""
        self._collect()
        return super().best()


@partial(jax.jit, static_argnames=("plan",), donate_argnames=("counted",))
def _count_blocks(
    plan: StreamPlan,
    counted: CutCounts,
    records_read: Any,
    schedule: Schedule,
    costs: tuple[Any, Any],
    records: tuple[Any, ...],
) -> tuple[CutCounts, Any, tuple[Any, Any]]:
    """Count K blocks; the least loss and its arm [K, S, cells, R] after the rounds of each checkpoint."""
    streams = Streams(plan, *records)
    count = jax.vmap(partial(_count_block, costs), in_axes=(None, None, 0, 1, 1), out_axes=(0, (2, 2)))

    def block(carry: Any, block_schedule: Any) -> Any:
        counted, records_read = carry
        cuts, errors, after = read_block(streams, records_read, block_schedule.block)
        rounds = jnp.sum(block_schedule.active, dtype=jnp.int32)
        counted, found = count(block_schedule.checkpoint_rounds, rounds, counted, cuts, errors)
        return (counted, after), found

    (counted, records_read), found = lax.scan(block, (counted, records_read), schedule)
    return counted, records_read, found


def _count_block(
    costs: tuple[Any, Any], checkpoint_rounds: Any, rounds: Any, counted: CutCounts, cuts: Any, errors: Any
) -> tuple[CutCounts, tuple[Any, Any]]:
    """Count a block of one stream, cuts and errors [C]; the least loss and its arm [S, cells] at each mark."""
    number, high = jnp.arange(ROUNDS, dtype=jnp.int32), jnp.floor(errors * HALF)
    parts = jnp.ones_like(errors), high, jnp.round((errors * HALF - high) * HALF)

    def until(rounds: Any) -> CutCounts:
        seen = (jnp.where(number < rounds, part, 0).astype(jnp.int64) for part in parts)
        return CutCounts(*(x.at[cuts].add(part) for x, part in zip(counted, seen, strict=True)))

    cells = costs[0].shape
    nothing = jnp.zeros(cells), jnp.zeros(cells, jnp.int32)

    def at(checkpoint_round: Any) -> Any:  # marks are shared by all streams: under vmap this stays a branch
        return lax.cond(checkpoint_round > 0, lambda: _best_arm(until(checkpoint_round), *costs), lambda: nothing)

    return until(rounds), lax.map(at, checkpoint_rounds)


def _best_arm(counted: CutCounts, answer_cost: Any, abstain_cost: Any) -> tuple[Any, Any]:
    """The least loss of a stream and its arm [cells] (eq. 3), as ``native.best_arms`` finds them."""
    abstained = jnp.cumsum(counted.count).astype(jnp.float64)
    high, low = (jnp.sum(x) - jnp.cumsum(x) for x in counted[1:])
    missed = (high.astype(jnp.float64) + low.astype(jnp.float64) / HALF) / HALF

    def of_cell(costs: Any) -> tuple[Any, Any]:
        total = costs[0] * missed + costs[1] * abstained
        return jnp.min(total), jnp.argmin(total).astype(jnp.int32)

    return lax.map(of_cell, (answer_cost, abstain_cost))
