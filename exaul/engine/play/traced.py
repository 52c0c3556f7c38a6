"""Copies on a backend that JAX traces: a chunk is one compiled program, on all devices."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from exaul.engine.machine import devices
from exaul.engine.play.schedule import Chunk, Schedule, Stream
from exaul.engine.play.simulation import Totals
from exaul.kernels import uniforms
from exaul.kernels.backends.backend import OF_COPIES, Backend, batched, start
from exaul.kernels.game import ROUNDS, Array, Block, Copies, Outcome, Rates, Shared
from exaul.kernels.records import Plan, Streams, block_of
from exaul.kernels.uniforms import Draws

UNSEEN = 6  # arrays of the size of the weights that a program is estimated to take before it is compiled


class Position(NamedTuple):
    """All that changes while B copies are simulated."""

    state: Any  # of the learner's backend, [B, ...]
    totals: Totals  # [B]
    met: Any  # [P, R], how many records of each pool were met so far


def add_up(totals: Totals, answered: Array, wrong: Array, marks: Array) -> tuple[Totals, Totals]:
    """Add the rounds of a block to the totals.

    Args:
        totals: [B] before the block.
        answered: [C, B] bool.
        wrong: [C, B] float64, errors of the answered rounds, else 0.
        marks: [S] in 1..C; what is returned for 0 has no meaning.

    Returns:
        The totals [B] after the block, and those after ``marks`` of its rounds, [S, B].
    """
    running = Totals(
        totals.answered[None] + jnp.cumsum(answered, axis=0, dtype=jnp.int64),
        totals.wrong[None] + jnp.cumsum(wrong, axis=0),
    )
    return jax.tree.map(lambda x: x[-1], running), jax.tree.map(lambda x: x[marks - 1], running)


def by_copy(block: Block, copies: Copies) -> Block:
    """Give each copy its records and uniforms.

    Args:
        block: C rounds of R streams of records, [C, R], and of U streams of draws, [C, U].
        copies: B of them.

    Returns:
        Cuts and errors [C, B], or [C] if there is one stream, which all copies meet; draws [C, B].
    """
    shared = block.cuts.shape[1] == 1
    cuts, errors = (x[:, 0] if shared else x[:, copies.record] for x in (block.cuts, block.errors))
    return Block(cuts, errors, jax.tree.map(lambda x: x[:, copies.draw], block.draws), block.active)


def simulate_block(
    advance: Callable[..., Any], state: Any, block: Block, rates: Rates, copies: Copies, shared: Shared
) -> tuple[Any, Outcome, Array]:
    """Simulate a block of B copies.

    Args:
        advance: of the learner's backend, for one copy.
        state: of the backend, [B, ...].
        block: as of ``by_copy``.
        rates: [].
        copies: B of them.
        shared: what all copies share.

    Returns:
        The state, the outcome [C, B], and the errors of each copy's rounds, [C, B] or [C, 1].
    """
    rounds = by_copy(block, copies)
    state, outcome = batched(advance, rounds.cuts.ndim == 1)(state, rounds, copies.parameters(rates, shared))
    return state, outcome, rounds.errors.reshape(len(rounds.active), -1)


@partial(jax.jit, static_argnames=("advance", "plan"), donate_argnames=("now",))
def simulate_chunk(
    advance: Callable[..., Any],
    plan: Plan,
    now: Position,
    when: Schedule,
    rates: Rates,
    copies: Copies,
    keys: Draws,
    records: tuple[Any, ...],
    shared: Shared,
) -> tuple[Position, Totals]:
    """Simulate K blocks: the one compiled program of a learner.

    Args:
        advance: of the learner's backend, for one copy.
        plan: of the streams of records.
        now: before the chunk.
        when: the blocks.
        rates: [K].
        copies: B of them.
        keys: of the trials' draws, [U] each.
        records: the fields of the streams other than their plan.
        shared: of the backend.

    Returns:
        The position after the chunk, and the totals [K, S, B] at its checkpoints.
    """
    changes = Position(0, 0, -1)  # type: ignore[arg-type]  # axes of copies
    taken = changes, -1, -1, 0, -1, -1, -1
    arguments = now, when, rates, copies, keys, records, shared
    return devices.spread(partial(_simulate_chunk, advance, plan), taken, (changes, 2))(*arguments)


def _simulate_chunk(
    advance: Callable[..., Any],
    plan: Plan,
    now: Position,
    when: Schedule,
    rates: Rates,
    copies: Copies,
    keys: Draws,
    records: tuple[Any, ...],
    shared: Shared,
) -> Any:
    numbers = jnp.arange(ROUNDS, dtype=jnp.uint32)[:, None]
    keys, streams = jax.tree.map(lambda x: x[None], keys), Streams(plan, *records)

    def block(now: Position, x: tuple[Schedule, Rates]) -> tuple[Position, Totals]:
        when, rates = x
        cuts, errors, met = block_of(streams, now.met, when.block)
        rounds = Block(cuts, errors, uniforms.draws(keys, when.block, numbers), when.active)
        here = shared._replace(block=when.block)
        state, outcome, own = simulate_block(advance, now.state, rounds, rates, copies, here)
        wrong = jnp.where(outcome.answered, own, 0.0)
        totals, at_checkpoints = add_up(now.totals, outcome.answered, wrong, when.marks)
        return Position(state, totals, met), at_checkpoints

    return lax.scan(block, now, (when, rates))


@partial(jax.jit, static_argnames=("advance",))
def _advance(
    advance: Callable[..., Any], state: Any, blocks: Block, rates: Rates, copies: Copies, shared: Shared, first: Any
) -> tuple[Any, Outcome]:
    def block(state: Any, x: tuple[Block, Rates, Array]) -> tuple[Any, Outcome]:
        rounds, rates, number = x
        return simulate_block(advance, state, rounds, rates, copies, shared._replace(block=number))[:2]

    numbers = first + jnp.arange(len(blocks.active), dtype=jnp.uint32)
    state, outcome = lax.scan(block, state, (blocks, rates, numbers))
    return state, jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), outcome)


class TracedSimulation:
    """B copies on a backend that JAX traces; methods as of ``Simulation``."""

    on_host = False

    def __init__(
        self,
        kernels: Backend,
        copies: Copies,
        best: NDArray[np.int32],
        arms: int,
        stream: Stream,
        make: Callable[..., Any] = lambda function, *arguments: function(*arguments),
    ) -> None:
        """Prepare round 1 of a stream; ``make=jax.eval_shape`` allocates nothing, for ``lowered``."""
        self.kernels, self.stream = kernels, stream
        self.copies = Copies(*map(jnp.asarray, copies))
        totals = Totals(np.zeros(len(best), np.int64), np.zeros(len(best)))
        first = make(partial(start, kernels.init, arms), best)
        self.now = Position(first, totals, jnp.asarray(stream.records.none_played()))
        self.at_checkpoints: Any = None
        self.advanced = 0  # blocks, by ``advance``

    @property
    def state(self) -> Any:
        """The state of the backend, [B, ...]."""
        return self.now.state

    @state.setter
    def state(self, state: Any) -> None:
        """Replace the state, [B, ...]."""
        self.now = self.now._replace(state=state)

    def _arguments(self, when: Schedule, rates: Rates) -> tuple[Any, ...]:
        plan, *records = self.stream.on_device
        keys = self.stream.draws_on_device
        return (
            self.kernels.advance,
            plan,
            self.now,
            when,
            rates,
            self.copies,
            keys,
            tuple(records),
            self.kernels.shared,
        )

    def prepare(self, chunk: Chunk) -> None:
        """Do nothing: the program makes its records."""

    def start(self, chunk: Chunk, rates: Rates) -> None:
        """Start to simulate a chunk."""
        self.now, self.at_checkpoints = simulate_chunk(*self._arguments(chunk.when, rates))

    def lowered(self, when: Schedule, rates: Rates) -> Any:
        """Lower the program of a chunk, to see how much memory it takes."""
        return simulate_chunk.lower(*self._arguments(when, rates))

    def collect(self) -> Totals:
        """Wait for the chunk."""
        return Totals(*(np.asarray(x) for x in self.at_checkpoints))

    def save(self) -> Any:
        """Return state, totals, and the records met."""
        return self.now

    def restore(self, tree: Any) -> None:
        """Continue from what ``save`` returned."""
        state, totals, met = jax.tree.map(jnp.asarray, tree)
        self.now = Position(state, Totals(*totals), met)

    def advance(self, blocks: Block, rates: Rates, copies: Copies) -> Outcome:
        """Simulate given blocks, and return every decision."""
        more = rates, copies, self.kernels.shared, np.uint32(self.advanced)
        self.state, outcome = _advance(self.kernels.advance, self.state, blocks, *more)
        self.advanced += len(blocks.active)
        return outcome

    def dense_state(self, rates: Rates, copies: Copies) -> Any:
        """Return the state that the dense backend would have."""
        assert self.kernels.dense_state is not None
        return jax.vmap(self.kernels.dense_state, in_axes=(0, OF_COPIES))(self.state, copies.parameters(rates))

    @staticmethod
    def memory(numbers: int, program: Callable[[], int] | None) -> tuple[int, int]:
        """Count the program, all of it on the devices."""
        return 0, UNSEEN * numbers // len(jax.local_devices()) if program is None else program()
