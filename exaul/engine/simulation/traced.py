"""Simulate copies on backends that JAX traces: a chunk is one compiled program, on all devices.

simulate_chunk     jit: compiled once per learner; copies divided over the devices
  scan             K blocks: records and uniforms of the block are made here
    vmap           B copies
      advance      256 rounds of one copy, by the learner's backend
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from exaul.engine import machine
from exaul.engine.simulation.best_arms import BestArmCounter, BestArms
from exaul.engine.simulation.schedule import Chunk, Schedule, TrialRecords
from exaul.engine.simulation.simulation import Totals, allocate
from exaul.kernels import uniforms
from exaul.kernels.backends.backend import COPY_AXES, Backend, initial_states, vmap_copies
from exaul.kernels.game import ROUNDS, Array, Block, Copies, Outcome, Rates, SharedParameters, Start
from exaul.kernels.metrics import Floats
from exaul.kernels.records import StreamPlan, Streams, read_block
from exaul.kernels.uniforms import Draws

UNCOMPILED_ARRAYS = 6  # estimated arrays of the size of the weights in a program that is not compiled yet


class Position(NamedTuple):
    """All that changes while B copies are simulated."""

    state: Any  # of the learner's backend, [B, ...]
    totals: Totals  # [B]
    records_read: Any  # [P, R], number of records of each pool that were read so far


def add_to_totals(totals: Totals, answered: Array, wrong: Array, checkpoint_rounds: Array) -> tuple[Totals, Totals]:
    """Add the rounds of a block to the totals [B].

    ``answered`` is [C, B] bool, ``wrong`` [C, B] float64 the errors of answered rounds, else 0.
    ``checkpoint_rounds`` [S] are in 1..C, or 0 for an unused slot. Return the totals after the block, and those at
    the checkpoints, [S, B].
    """
    # Errors are summed within the block first, then added to the totals. The bits depend on this grouping, which is
    # the same for all chunks, checkpoints and numbers of devices.
    running = Totals(
        totals.answered[None] + jnp.cumsum(answered, axis=0, dtype=jnp.int64),
        totals.wrong[None] + jnp.cumsum(wrong, axis=0),
    )
    return jax.tree.map(lambda x: x[-1], running), jax.tree.map(lambda x: x[checkpoint_rounds - 1], running)


def select_streams(block: Block, copies: Copies) -> Block:
    """Select each copy's records and uniforms, from R and U streams.

    Return cuts and errors [C, B], or [C] if all copies share one stream (R = 1), and draws [C, B].
    """
    shared = block.cuts.shape[1] == 1  # then the records are not repeated for every copy
    cuts, errors = (x[:, 0] if shared else x[:, copies.record_stream] for x in (block.cuts, block.errors))
    return Block(cuts, errors, jax.tree.map(lambda x: x[:, copies.draw_stream], block.draws), block.active)


def simulate_block(
    advance: Callable[..., Any], state: Any, block: Block, rates: Rates, copies: Copies, shared: SharedParameters
) -> tuple[Any, Outcome, Array]:
    """Simulate a block of B copies, from R streams of records and U streams of uniforms.

    Return the state [B, ...], the outcome [C, B], and the errors of the copies' rounds: [C, B], or [C, 1] if
    shared.
    """
    rounds = select_streams(block, copies)
    state, outcome = vmap_copies(advance, rounds.cuts.ndim == 1)(state, rounds, copies.parameters(rates, shared))
    return state, outcome, rounds.errors.reshape(len(rounds.active), -1)


# ``now`` is donated: the new position is written into the buffers of the old one, so that the weights exist once.
# The caller must not use the old position again.
@partial(jax.jit, static_argnames=("advance", "plan"), donate_argnames=("now",))
def simulate_chunk(
    advance: Callable[..., Any],
    plan: StreamPlan,
    now: Position,
    schedule: Schedule,
    rates: Rates,
    copies: Copies,
    keys: Draws,
    records: tuple[Any, ...],
    shared: SharedParameters,
) -> tuple[Position, Totals]:
    """Simulate K blocks: the one compiled program of a learner.

    Only the kernel ``advance`` and the ``plan`` of the streams are static; ``records`` are the other fields of the
    streams. ``rates`` are [K], ``copies`` [B], ``keys`` [U]. Return the new position, and the totals [K, S, B] at
    the checkpoints.
    """
    # [C, 1] counters and [1, U] keys broadcast to uniforms [C, U]
    numbers = jnp.arange(ROUNDS, dtype=jnp.uint32)[:, None]

    def on_device(now: Any, schedule: Any, rates: Any, copies: Any, keys: Any, records: Any, shared: Any) -> Any:
        keys, streams = jax.tree.map(lambda x: x[None], keys), Streams(plan, *records)

        def block(now: Position, x: tuple[Schedule, Rates]) -> tuple[Position, Totals]:
            block_schedule, rates = x
            cuts, errors, records_read = read_block(streams, now.records_read, block_schedule.block)
            rounds = Block(cuts, errors, uniforms.draws(keys, block_schedule.block, numbers), block_schedule.active)
            block_shared = shared._replace(block=block_schedule.block)
            state, outcome, errors_of_copies = simulate_block(
                advance, now.state, rounds, rates, copies, block_shared
            )
            wrong = jnp.where(outcome.answered, errors_of_copies, 0.0)
            totals, at_checkpoints = add_to_totals(
                now.totals, outcome.answered, wrong, block_schedule.checkpoint_rounds
            )
            return Position(state, totals, records_read), at_checkpoints

        return lax.scan(block, now, (schedule, rates))

    # Axes of copies, as of ``shard_over_devices``. Every device gets all keys and pools and makes all records, so
    # that devices need no communication.
    changes = Position(0, 0, -1)  # type: ignore[arg-type]
    taken, returned = (changes, -1, -1, 0, -1, -1, -1), (changes, 2)
    sharded = machine.shard_over_devices(on_device, taken, returned)
    return sharded(now, schedule, rates, copies, keys, records, shared)


@partial(jax.jit, static_argnames=("advance",))
def _advance_blocks(
    advance: Callable[..., Any],
    state: Any,
    blocks: Block,
    rates: Rates,
    copies: Copies,
    shared: SharedParameters,
    first: Any,
) -> tuple[Any, Outcome]:
    def block(state: Any, x: tuple[Block, Rates, Array]) -> tuple[Any, Outcome]:
        rounds, rates, number = x
        return simulate_block(advance, state, rounds, rates, copies, shared._replace(block=number))[:2]

    numbers = first + jnp.arange(len(blocks.active), dtype=jnp.uint32)
    state, outcome = lax.scan(block, state, (blocks, rates, numbers))
    return state, jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), outcome)


class TracedSimulation:
    """B copies on a backend that JAX traces, by the protocol ``Simulation``."""

    on_host = False

    def __init__(
        self,
        kernels: Backend,
        copies: Copies,
        start: Start,
        arms: int,
        trial_records: TrialRecords,
        make: Callable[..., Any] = allocate,
    ) -> None:
        """Prepare round 1 of some trials; ``make=jax.eval_shape`` allocates nothing, for ``lowered``."""
        self.kernels, self.trial_records = kernels, trial_records
        self.copies = Copies(*map(jnp.asarray, copies))
        totals = Totals(np.zeros(len(start.best), np.int64), np.zeros(len(start.best)))
        first = make(partial(initial_states, kernels.init, arms), start)
        self.now = Position(first, totals, jnp.asarray(trial_records.records.no_records_read()))
        self.at_checkpoints: Any = None
        self.advanced = 0  # number of blocks that ``advance`` simulated

    @property
    def state(self) -> Any:
        """The state of the backend, [B, ...]; ``start`` invalidates it."""
        return self.now.state

    @state.setter
    def state(self, state: Any) -> None:
        """Replace the state, [B, ...]."""
        self.now = self.now._replace(state=state)

    def _arguments(self, schedule: Schedule, rates: Rates) -> tuple[Any, ...]:
        plan, *records = self.trial_records.on_device
        keys = self.trial_records.draws_on_device
        inputs = self.copies, keys, tuple(records), self.kernels.shared
        return self.kernels.advance, plan, self.now, schedule, rates, *inputs

    def start(self, chunk: Chunk, rates: Rates) -> None:
        """Start to simulate a chunk."""
        self.now, self.at_checkpoints = simulate_chunk(*self._arguments(chunk.schedule, rates))

    def lowered(self, schedule: Schedule, rates: Rates) -> Any:
        """Lower the program of a chunk, for its memory analysis."""
        return simulate_chunk.lower(*self._arguments(schedule, rates))

    def collect(self) -> Totals:
        """Wait for the chunk."""
        return Totals(*(np.asarray(x) for x in self.at_checkpoints))

    def save(self) -> Any:
        """Return the position, whose buffers ``start`` donates."""
        return self.now

    def restore(self, tree: Any) -> None:
        """Continue from what ``save`` returned."""
        state, totals, records_read = jax.tree.map(jnp.asarray, tree)
        self.now = Position(state, Totals(*totals), records_read)

    def advance(self, blocks: Block, rates: Rates, copies: Copies) -> Outcome:
        """Simulate given blocks, and return every decision."""
        further = rates, copies, self.kernels.shared, np.uint32(self.advanced)
        self.state, outcome = _advance_blocks(self.kernels.advance, self.state, blocks, *further)
        self.advanced += len(blocks.active)
        return outcome

    def dense_state(self, rates: Rates, copies: Copies) -> Any:
        """Return the state that the dense backend would have."""
        assert self.kernels.dense_state is not None
        return jax.vmap(self.kernels.dense_state, in_axes=(0, COPY_AXES))(self.state, copies.parameters(rates))

    @staticmethod
    def memory(state_bytes: int, totals_bytes: int, program: Callable[[], int] | None) -> tuple[int, int]:
        """Count the program, all on the devices; the size of a compiled one includes the totals."""
        if program is not None:
            return 0, program()
        return 0, (UNCOMPILED_ARRAYS * state_bytes + totals_bytes) // len(jax.local_devices())


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
