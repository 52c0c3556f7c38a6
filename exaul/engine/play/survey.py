"""What was done up to each checkpoint, and the arm of least loss of every trial in hindsight."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from exaul.engine.play.schedule import Chunk, Schedule, Stream
from exaul.kernels.backends import native
from exaul.kernels.game import ROUNDS
from exaul.kernels.metrics import Floats
from exaul.kernels.records import Plan, Streams, block_of

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
    asked: dict[str, Floats]  # [P, B], how much of each kind was asked, in worlds that answer back
    heard: dict[str, Floats]  # [B], what was learned from imperfect thumbs so far, as ``exaul.kernels.thumbs.Sums``


class Survey:
    """The arm of least loss of every trial, from the records alone, chunk after chunk.

    ``best_loss`` [P, cells, B] is its cumulative loss at each of P checkpoints, ``best_arm`` [cells, B] the arm at
    the last checkpoint that was reached. ``on_host`` says whether it counts records that the host makes.
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

    def add(self, chunk: Chunk) -> None:
        """Count the records of a chunk."""
        rounds = chunk.on_host()
        self.count_records(chunk.when, rounds.cuts, rounds.errors)

    def count_records(self, when: Schedule, cuts: NDArray[np.int32], errors: Floats) -> None:
        """Count the records [R, K C or more] of some blocks, in the order of rounds."""
        start = int(when.block[0]) * ROUNDS
        marks = self.checkpoints[(self.checkpoints > start) & (self.checkpoints <= start + when.rounds)] - start
        losses, arms = native.survey(cuts, errors, marks, when.rounds, self.costs, self.count, self.wrong)
        self.reach(losses, arms)

    def reach(self, losses: Floats, arms: NDArray[np.int32]) -> None:
        """Note the least losses and their arms [M, cells, R] at the next M checkpoints."""
        if len(losses):
            rows = slice(self.reached, self.reached + len(losses))
            self.best_loss[rows], self.best_arm[:] = losses[:, :, self.column], arms[-1][:, self.column]
            self.reached = rows.stop


class Counted(NamedTuple):
    """The rounds of a stream by cut, as integers: what was played, and its errors to 2**-62."""

    count: Any  # [H] int64
    high: Any  # [H] int64, sums of errors in units of 2**-31
    low: Any  # [H] int64, sums of what is left, in units of 2**-62


class TracedSurvey(Survey):
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
        super().__init__(stream.column, arms, checkpoints, answer_cost, abstain_cost)
        shape = stream.records.columns, arms
        self.counted = Counted(*(jnp.zeros(shape, jnp.int64) for _ in range(3)))
        self.played = jnp.asarray(stream.records.none_played())
        self.waiting: tuple[NDArray[np.bool_], Any] | None = None  # of the chunk that was started last

    def add(self, chunk: Chunk) -> None:
        """Start to count the records of a chunk."""
        plan, *records = chunk.stream.on_device
        self._collect()
        self.counted, self.played, found = _survey(
            plan, self.counted, self.played, chunk.when, self.costs, tuple(records)
        )
        self.waiting = chunk.when.marks > 0, found

    def _collect(self) -> None:
        if self.waiting is not None:
            real, (losses, arms) = self.waiting
            self.reach(np.asarray(losses)[real], np.asarray(arms)[real])
            self.waiting = None

    def save(self) -> Any:
        """All that changes as it goes on, as a tree of arrays."""
        self._collect()
        return self.counted, self.played, self.best_loss, self.best_arm, self.reached

    def restore(self, tree: Any) -> None:
        """Go on from what ``save`` returned."""
        counted, played, self.best_loss, self.best_arm, reached = tree
        self.counted, self.played = Counted(*map(jnp.asarray, counted)), jnp.asarray(played)
        self.reached = int(reached)

    def best(self) -> BestArms:
        """Return the arms of least loss up to the last checkpoint that was reached."""
        self._collect()
        return super().best()


@partial(jax.jit, static_argnames=("plan",), donate_argnames=("counted",))
def _survey(
    plan: Plan, counted: Counted, played: Any, when: Schedule, costs: tuple[Any, Any], records: tuple[Any, ...]
) -> tuple[Counted, Any, tuple[Any, Any]]:
    """Count K blocks; the least loss and its arm [K, S, cells, R] after the rounds of each mark."""
    streams = Streams(plan, *records)
    count = jax.vmap(partial(_count, costs), in_axes=(None, None, 0, 1, 1), out_axes=(0, (2, 2)))

    def block(carry: Any, now: Any) -> Any:
        counted, played = carry
        cuts, errors, after = block_of(streams, played, now.block)
        rounds = jnp.sum(now.active, dtype=jnp.int32)
        counted, found = count(now.marks, rounds, counted, cuts, errors)
        return (counted, after), found

    (counted, played), found = lax.scan(block, (counted, played), when)
    return counted, played, found


def _count(
    costs: tuple[Any, Any], marks: Any, rounds: Any, counted: Counted, cuts: Any, errors: Any
) -> tuple[Counted, tuple[Any, Any]]:
    """Count a block of one stream, cuts and errors [C]; the least loss and its arm [S, cells] at each mark."""
    number, high = jnp.arange(ROUNDS, dtype=jnp.int32), jnp.floor(errors * HALF)
    parts = jnp.ones_like(errors), high, jnp.round((errors * HALF - high) * HALF)

    def until(rounds: Any) -> Counted:
        seen = (jnp.where(number < rounds, part, 0).astype(jnp.int64) for part in parts)
        return Counted(*(x.at[cuts].add(part) for x, part in zip(counted, seen, strict=True)))

    cells = costs[0].shape
    nothing = jnp.zeros(cells), jnp.zeros(cells, jnp.int32)

    def at(mark: Any) -> Any:  # marks are shared by all streams: under vmap this stays a branch
        return lax.cond(mark > 0, lambda: _best(until(mark), *costs), lambda: nothing)

    return until(rounds), lax.map(at, marks)


def _best(counted: Counted, answer_cost: Any, abstain_cost: Any) -> tuple[Any, Any]:
    """The least loss of a stream and its arm [cells] (eq. 3), as ``native.survey`` finds them."""
    abstained = jnp.cumsum(counted.count).astype(jnp.float64)
    high, low = (jnp.sum(x) - jnp.cumsum(x) for x in counted[1:])
    missed = (high.astype(jnp.float64) + low.astype(jnp.float64) / HALF) / HALF

    def of_cell(costs: Any) -> tuple[Any, Any]:
        total = costs[0] * missed + costs[1] * abstained
        return jnp.min(total), jnp.argmin(total).astype(jnp.int32)

    return lax.map(of_cell, (answer_cost, abstain_cost))
