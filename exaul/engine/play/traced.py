"""Copies on a backend that JAX traces: a chunk is one compiled program, on all devices."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from exaul.engine.machine import devices
from exaul.engine.play.schedule import Chunk, Schedule, Stream
from exaul.engine.play.simulation import Copies, Floats, Totals
from exaul.kernels import uniforms
from exaul.kernels.backends.backend import OF_COPIES, Backend, batched, start
from exaul.kernels.game import ROUNDS, Array, Block, Outcome, Parameters, Shared
from exaul.kernels.records import Plan, Streams, block_of
from exaul.kernels.uniforms import IMPERFECT

UNSEEN = 6  # arrays of the size of the weights that a program takes, where it is not compiled to see


def add_up(totals: Totals, answered: Array, wrong: Array, marks: Array) -> tuple[Totals, Totals]:
    """The totals after a block, and those after ``marks`` [S] of its rounds, [S, B].

    Args:
        totals: [B] before the block.
        answered: [C, B] bool.
        wrong: [C, B] float64, errors of the answered rounds, else 0.
        marks: [S] in 1..C; what is found at 0 has no meaning.
    """
    running = Totals(
        totals.answered[None] + jnp.cumsum(answered, axis=0, dtype=jnp.int64),
        totals.wrong[None] + jnp.cumsum(wrong, axis=0),
    )
    return jax.tree.map(lambda x: x[-1], running), jax.tree.map(lambda x: x[marks - 1], running)


def by_copy(block: Block, record: Array, draw: Array, imperfect: bool) -> Block:
    """Give each copy its records and uniforms.

    Args:
        block: C rounds of R streams of records and U streams of uniforms, or 3 U where feedback is imperfect: those
            of decisions, then those of feedback and of its delays.
        record: [B] int32 in 0..R-1.
        draw: [B] int32 in 0..U-1.
        imperfect: whether feedback is.

    Returns:
        Cuts and errors [C, B], or [C] if there is one stream, which all copies meet; uniforms [C, B] or [C, B, 3].
    """
    streams, uniforms = block.cuts.shape[1], block.uniforms
    if imperfect:
        each = uniforms.shape[1] // len(IMPERFECT)
        uniforms = jnp.stack([uniforms[:, draw + n * each] for n in range(len(IMPERFECT))], axis=-1)
    else:
        uniforms = uniforms[:, draw]
    cuts, errors = (x[:, 0] if streams == 1 else x[:, record] for x in block[:2])
    return Block(cuts, errors, uniforms, block.active)


def of_copies(
    advance: Callable[..., Any], block: Block, copies: tuple[Any, ...], rates: Any, shared: Shared
) -> Any:
    """Make B copies play a block of records and uniforms by stream.

    Args:
        advance: of the learner's backend, which plays one copy.
        block: as of ``by_copy``.
        copies: alpha, the costs, and which stream of records and of uniforms a copy meets, [B] each.
        rates: eta and gamma [].
        shared: what all copies share beside.

    Returns:
        A function of the state, and the errors of each copy's rounds, [C, B] or [C, 1].
    """
    alpha, answer_cost, abstain_cost, record, draw = copies
    rounds = by_copy(block, record, draw, not isinstance(shared.feedback, tuple))
    eta, gamma = rates
    parameters = Parameters(eta, gamma, alpha, answer_cost, abstain_cost, (), (), shared)
    play_all = batched(advance, rounds.cuts.ndim == 1)
    return lambda state: play_all(state, rounds, parameters), rounds.errors.reshape(len(rounds.active), -1)


@partial(jax.jit, static_argnames=("advance", "plan"), donate_argnames=("state", "totals"))
def play(
    advance: Callable[..., Any],
    plan: Plan,
    state: Any,
    totals: Totals,
    played: Any,
    when: Schedule,
    rates: tuple[Any, Any],
    copies: tuple[Any, ...],
    keys: tuple[Any, Any],
    records: tuple[Any, ...],
    shared: Shared,
) -> tuple[Any, Totals, Any, Totals]:
    """Play K blocks: the one compiled program of a learner.

    Args:
        advance: of the learner's backend.
        plan: of the streams of records.
        state: of the learner's backend, for B copies, which come first.
        totals: [B] so far.
        played: [P, R], how many records of each pool were played so far.
        when: the blocks.
        rates: eta [K] and gamma [K].
        copies: as of ``of_copies``.
        keys: two uint32 [U] of the trials' draws.
        records: fields of the streams beside their plan.
        shared: of the backend.

    Returns:
        State, totals and ``played`` after the chunk, and the totals [K, S, B] at its marks.
    """
    taken = 0, 0, -1, -1, -1, 0, -1, -1, -1
    arguments = state, totals, played, when, rates, copies, keys, records, shared
    return devices.spread(partial(_play, advance, plan), taken, (0, 0, -1, 2))(*arguments)


def _play(
    advance: Callable[..., Any],
    plan: Plan,
    state: Any,
    totals: Totals,
    played: Any,
    when: Schedule,
    rates: Any,
    copies: Any,
    keys: Any,
    records: Any,
    shared: Shared,
) -> Any:
    rounds = jnp.arange(ROUNDS, dtype=jnp.uint32)[:, None]
    streams = Streams(plan, *records)

    def block(carry: tuple[Any, Totals, Any], x: Any) -> tuple[tuple[Any, Totals, Any], Totals]:
        (state, totals, played), (when, *now) = carry, x
        cuts, errors, played = block_of(streams, played, when.block)
        draws = uniforms.uniforms((keys[0][None], keys[1][None]), when.block, rounds)
        one, here = Block(cuts, errors, draws, when.active), shared._replace(block=when.block)
        play_block, own = of_copies(advance, one, copies, now, here)
        state, outcome = play_block(state)
        totals, at_marks = add_up(totals, outcome.answered, jnp.where(outcome.answered, own, 0.0), when.marks)
        return (state, totals, played), at_marks

    (state, totals, played), marked = lax.scan(block, (state, totals, played), (when, *rates))
    return state, totals, played, marked


@partial(jax.jit, static_argnames=("advance",))
def _advance(
    advance: Callable[..., Any],
    state: Any,
    blocks: Block,
    rates: tuple[Any, Any],
    copies: tuple[Any, ...],
    shared: Shared,
    first: Any,
) -> tuple[Any, Outcome]:
    def block(state: Any, x: Any) -> tuple[Any, Outcome]:
        one, number, *now = x
        return of_copies(advance, one, copies, now, shared._replace(block=number))[0](state)

    numbers = first + jnp.arange(len(blocks.active), dtype=jnp.uint32)
    state, outcome = lax.scan(block, state, (blocks, numbers, *rates))
    return state, jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), outcome)


class TracedSimulation:
    """B copies on a backend that JAX traces; see ``Simulation``."""

    on_host = False

    def __init__(self, backend: Backend, copies: Copies, arms: int, stream: Stream) -> None:
        """Before round 1 of a stream."""
        self.backend = backend
        self.copies = tuple(jnp.asarray(x) for x in copies[:5])
        self.state = start(backend.init, arms, copies.best)
        self.played = jnp.asarray(stream.records.none_played())
        self.totals = Totals(np.zeros(len(copies.draw), np.int64), np.zeros(len(copies.draw)))
        self.at_marks: Any = None
        self.advanced = 0  # blocks, by ``advance``

    def prepare(self, chunk: Chunk) -> None:
        """Nothing is needed."""

    def start(self, chunk: Chunk, rates: tuple[Floats, Floats]) -> None:
        """Start to play a chunk."""
        stream = chunk.stream
        plan, *records = stream.on_device
        how, now = (self.backend.advance, plan), (self.state, self.totals, self.played)
        more = stream.draws_on_device, tuple(records), self.backend.shared
        self.state, self.totals, self.played, self.at_marks = play(
            *how, *now, chunk.when, rates, self.copies, *more
        )

    def collect(self) -> Totals:
        """Wait for the chunk; the totals at its marks."""
        return Totals(*(np.asarray(x) for x in self.at_marks))

    def save(self) -> Any:
        """State, totals, and the records that were played."""
        return self.state, self.totals, self.played

    def restore(self, tree: Any) -> None:
        """Go on from what ``save`` returned."""
        self.state, totals, self.played = jax.tree.map(jnp.asarray, tree)
        self.totals = Totals(*totals)

    def advance(self, blocks: Block, rates: tuple[Floats, Floats], copies: Copies) -> Outcome:
        """Play blocks, and return all that was done."""
        more = rates, tuple(copies[:5]), self.backend.shared, np.uint32(self.advanced)
        self.state, outcome = _advance(self.backend.advance, self.state, blocks, *more)
        self.advanced += len(blocks.active)
        return outcome

    def dense_state(self, rates: tuple[Floats, Floats], copies: Copies) -> Any:
        """The state that the dense backend would have."""
        assert self.backend.dense_state is not None
        parameters = Parameters(*rates, *copies[:3])
        return jax.vmap(self.backend.dense_state, in_axes=(0, OF_COPIES))(self.state, parameters)

    @staticmethod
    def memory(numbers: int, program: Callable[[], int] | None) -> tuple[int, int]:
        """Bytes of the program, all on the device."""
        return 0, UNSEEN * numbers // len(jax.local_devices()) if program is None else program()
