"""Copies on a backend that JAX traces: a chunk is one compiled program, on all devices."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from exaul.engine.machine import devices
from exaul.engine.play.schedule import Chunk, Schedule, Stream
from exaul.engine.play.simulation import Copies, Floats, Totals
from exaul.kernels import uniforms
from exaul.kernels.backends.backend import Backend
from exaul.kernels.game import ROUNDS, Array, Block, Outcome, Parameters
from exaul.kernels.records import Plan, Streams, block_of

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


@cache
def axes_of(init: Callable[..., Any], arms: int, columns: int) -> tuple[int, ...]:
    """The axis of copies in each leaf of a backend's state, for some columns of records."""
    return devices.axes(lambda many: init(arms, np.zeros(many, np.int32), columns))


@partial(jax.jit, static_argnames=("advance", "axes", "plan"), donate_argnames=("state", "totals"))
def play(
    advance: Callable[..., Any],
    axes: tuple[int, ...],
    plan: Plan,
    state: Any,
    totals: Totals,
    played: Any,
    when: Schedule,
    rates: tuple[Any, Any],
    copies: tuple[Any, ...],
    keys: tuple[Any, Any],
    records: tuple[Any, ...],
) -> tuple[Any, Totals, Any, Totals]:
    """Play K blocks: the one compiled program of a learner.

    Args:
        advance: of the learner's backend.
        axes: of copies, in each leaf of the state.
        plan: of the streams of records.
        state: of the learner's backend, for B copies.
        totals: [B] so far.
        played: [P, R], how many records of each pool were played so far.
        when: the blocks.
        rates: eta [K] and gamma [K].
        copies: the last fields of ``Parameters``, in which copies differ, [B] each.
        keys: two uint32 [U] of the trials' draws.
        records: fields of the streams beside their plan.

    Returns:
        State, totals and ``played`` after the chunk, and the totals [K, S, B] at its marks.
    """
    taken = axes, 0, -1, -1, -1, 0, -1, -1
    arguments = state, totals, played, when, rates, copies, keys, records
    played_by = partial(_play, advance, plan)
    return devices.spread(played_by, taken, lambda of: (*of[:3], Totals(2, 2)))(*arguments)


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
) -> Any:
    rounds = jnp.arange(ROUNDS, dtype=jnp.uint32)[:, None]
    streams = Streams(plan, *records)

    def block(carry: tuple[Any, Totals, Any], x: Any) -> tuple[tuple[Any, Totals, Any], Totals]:
        (state, totals, played), (when, eta, gamma) = carry, x
        cuts, errors, played = block_of(streams, played, when.block)
        parameters = Parameters(eta, gamma, *copies)
        draws = uniforms.uniforms((keys[0][None], keys[1][None]), when.block, rounds)
        state, outcome = advance(state, Block(cuts, errors, draws, when.active), parameters)
        wrong = jnp.where(outcome.answered, errors[:, parameters.record], 0.0)
        totals, at_marks = add_up(totals, outcome.answered, wrong, when.marks)
        return (state, totals, played), at_marks

    (state, totals, played), marked = lax.scan(block, (state, totals, played), (when, *rates))
    return state, totals, played, marked


@partial(jax.jit, static_argnames=("advance",))
def _advance(advance: Callable[..., Any], state: Any, blocks: Block, parameters: Parameters) -> tuple[Any, Outcome]:
    def block(state: Any, x: Any) -> tuple[Any, Outcome]:
        one, eta, gamma = x
        return advance(state, one, parameters._replace(eta=eta, gamma=gamma))

    state, outcome = lax.scan(block, state, (blocks, parameters.eta, parameters.gamma))
    return state, jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), outcome)


class TracedSimulation:
    """B copies on a backend that JAX traces; see ``Simulation``."""

    on_host = False

    def __init__(self, backend: Backend, copies: Copies, arms: int, stream: Stream) -> None:
        """Before round 1 of a stream."""
        self.backend, columns = backend, stream.records.columns
        self.copies = tuple(jnp.asarray(x) for x in copies[:5])
        self.axes = axes_of(backend.init, arms, columns)
        self.state, self.played = (
            backend.init(arms, copies.best, columns),
            jnp.asarray(stream.records.none_played()),
        )
        self.totals = Totals(np.zeros(len(copies.draw), np.int64), np.zeros(len(copies.draw)))
        self.at_marks: Any = None

    def prepare(self, chunk: Chunk) -> None:
        """Nothing is needed."""

    def start(self, chunk: Chunk, rates: tuple[Floats, Floats]) -> None:
        """Start to play a chunk."""
        stream = chunk.stream
        plan, *records = stream.on_device
        how, now = (self.backend.advance, self.axes, plan), (self.state, self.totals, self.played)
        self.state, self.totals, self.played, self.at_marks = play(
            *how, *now, chunk.when, rates, self.copies, stream.draws_on_device, tuple(records)
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
        parameters = Parameters(*rates, *copies[:5])
        self.state, outcome = _advance(self.backend.advance, self.state, blocks, parameters)
        return outcome

    @staticmethod
    def memory(numbers: int, program: Callable[[], int] | None) -> tuple[int, int]:
        """Bytes of the program, all on the device."""
        return 0, UNSEEN * numbers // len(jax.local_devices()) if program is None else program()
