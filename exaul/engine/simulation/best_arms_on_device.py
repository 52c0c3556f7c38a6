"""The best fixed arm of every trial in hindsight, counted on a device, which makes the records itself."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from exaul.engine.simulation.best_arms import BestArmCounter, BestArms
from exaul.engine.simulation.schedule import Chunk, TrialRecords
from exaul.kernels.game import ROUNDS
from exaul.kernels.metrics import Floats
from exaul.kernels.records import StreamPlan, Streams, read_block

# An error in [0, 1] is split into two integers of 31 bits, because integer sums do not depend on their order.
HALF = 2.0**31


class CutCounts(NamedTuple):
    """Rounds and errors of R streams by cut, as integers; errors are exact to 2**-62."""

    count: Any  # [R, H] int64, rounds
    high: Any  # [R, H] int64, sums of the errors' upper halves, in units of 2**-31
    low: Any  # [R, H] int64, sums of their lower halves, in units of 2**-62


class TracedBestArmCounter(BestArmCounter):
    """The search on a device, which makes and counts the records itself."""

    on_host = False

    def __init__(
        self,
        trial_records: TrialRecords,
        arms: int,
        checkpoints: NDArray[np.int64],
        answer_cost: Floats,
        abstain_cost: Floats,
    ) -> None:
        """Prepare round 1 of some trials; costs are [cells]."""
        super().__init__(trial_records.record_stream, arms, checkpoints, answer_cost, abstain_cost)
        shape = trial_records.records.stream_count, arms
        self.counted = CutCounts(*(jnp.zeros(shape, jnp.int64) for _ in range(3)))
        self.records_read = jnp.asarray(trial_records.records.no_records_read())
        self.costs = jax.device_put(self.costs)
        # of the last chunk's blocks with checkpoints: the slots used, and the results in all slots
        self.waiting: list[tuple[Any, Any]] = []

    def count_chunk(self, chunk: Chunk) -> None:
        """Start to count the records of a chunk."""
        assert chunk.trial_records is not None
        plan, *records = chunk.trial_records.on_device
        self._collect()  # of the previous chunk, which is usually done by now
        # One program per block, with or without the S slots for checkpoints: the host knows which blocks have some.
        # A branch on the device would make the host wait for it.
        for block, active, checkpoint_rounds in zip(*chunk.schedule, strict=True):
            used = checkpoint_rounds > 0
            slots = checkpoint_rounds[: len(used) if used.any() else 0]
            self.counted, self.records_read, best = _count_block(
                plan, self.counted, self.records_read, block, active.sum(dtype=np.int32), slots, self.costs, records
            )
            if used.any():
                self.waiting.append((used, best))

    def _collect(self) -> None:
        for used, (losses, arms) in jax.device_get(self.waiting):
            self.record_best(losses[used], arms[used])
        self.waiting = []

    def save(self) -> Any:
        """Return all that changes, as a tree of arrays; counting more records invalidates it."""
        self._collect()
        return self.counted, self.records_read, self.best_loss, self.best_arm, self.reached

    def restore(self, tree: Any) -> None:
        """Continue from what ``save`` returned."""
        counted, records_read, self.best_loss, self.best_arm, reached = tree
        self.counted, self.records_read = CutCounts(*map(jnp.asarray, counted)), jnp.asarray(records_read)
        self.reached = int(reached)

    def best(self) -> BestArms:
        """Return the arms of least loss up to the last checkpoint reached."""
        self._collect()
        return super().best()


# ``counted`` is donated: a block is counted in the buffers of the block before.
@partial(jax.jit, static_argnames=("plan",), donate_argnames=("counted",))
def _count_block(
    plan: StreamPlan,
    counted: CutCounts,
    records_read: Any,
    block: Any,
    rounds: Any,
    checkpoint_rounds: Any,
    costs: tuple[Any, Any],
    records: Sequence[Any],
) -> tuple[CutCounts, Any, tuple[Any, Any]]:
    """Count the first ``rounds`` rounds of a block.

    Also return the number of records read after the whole block [P, R], and the least losses and their arms after
    the first ``checkpoint_rounds`` [S] rounds, [S, cells, R] each.
    """
    cuts, errors, after = read_block(Streams(plan, *records), records_read, block)
    # error = high / 2**31 + low / 2**62. The upper half is exact; only the lower one is rounded.
    number, high = jnp.arange(ROUNDS, dtype=jnp.int32)[:, None], jnp.floor(errors * HALF)
    parts = jnp.ones_like(errors), high, jnp.round((errors * HALF - high) * HALF)
    entries = jnp.arange(cuts.shape[1])[None], cuts  # [C, R], stream and cut

    def until(rounds: Any) -> CutCounts:
        seen = (jnp.where(number < rounds, part, 0).astype(jnp.int64) for part in parts)
        return CutCounts(*(x.at[entries].add(part) for x, part in zip(counted, seen, strict=True)))

    return until(rounds), after, lax.map(lambda rounds: _best_arms(until(rounds), costs), checkpoint_rounds)


def _best_arms(counted: CutCounts, costs: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the least losses and their arms, [cells, R] each (eq. 3), as ``native.find_best_arms`` does."""
    # Arm k abstains on the cuts up to k, and answers (and errs) on the others. Subtracting integers is exact.
    abstained = jnp.cumsum(counted.count, axis=1).astype(jnp.float64)
    high, low = (jnp.sum(x, axis=1, keepdims=True) - jnp.cumsum(x, axis=1) for x in counted[1:])
    missed = (high.astype(jnp.float64) + low.astype(jnp.float64) / HALF) / HALF

    def of_cell(costs: Any) -> tuple[Any, Any]:
        total = costs[0] * missed + costs[1] * abstained
        return jnp.min(total, axis=1), jnp.argmin(total, axis=1).astype(jnp.int32)

    return lax.map(of_cell, costs)  # one cell at a time, to save memory
