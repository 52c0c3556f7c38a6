"""The loop of worlds that do not react: learners play a stream, block by block, and leave marks at checkpoints."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from engine import devices
from engine.environments.oblivious import Stream
from engine.metrics import Comparator, Floats
from kernels import native, uniforms
from kernels.game import ROUNDS, Array, Block, Outcome, Parameters
from kernels.learner import Backend, HostBackend

CHUNK = 2**19  # rounds x trials that are made on the host at a time, in whole spans


class Totals(NamedTuple):
    """Sums over rounds, all that is ever reported of B copies."""

    answered: Array  # int64
    wrong: Array  # float64, sum of the errors of answered rounds


class Schedule(NamedTuple):
    """K blocks of C rounds, and which of their rounds are checkpoints."""

    block: NDArray[np.uint32]  # [K], its number
    active: NDArray[np.bool_]  # [K, C]
    marks: NDArray[np.int32]  # [K, S] rounds of the block before each checkpoint in it, 0 where there is none


class Chunk(NamedTuple):
    """K blocks of C rounds, with their records."""

    block: NDArray[np.uint32]  # [K], its number
    cuts: NDArray[np.int32]  # [K, C, R]
    errors: NDArray[np.float64]  # [K, C, R]
    active: NDArray[np.bool_]  # [K, C]
    marks: NDArray[np.int32]  # [K, S] rounds of the block before each checkpoint in it, 0 where there is none


class Copies(NamedTuple):
    """B copies of one learner: a backend, rates by block, and the numbers that tell copies apart."""

    backend: Backend | HostBackend
    eta: NDArray[np.float64]  # [K of the whole horizon]
    gamma: NDArray[np.float64]  # [K of the whole horizon]
    alpha: NDArray[np.float64]  # [B]
    answer: NDArray[np.float64]  # [B]
    abstain: NDArray[np.float64]  # [B]
    trial: NDArray[np.int32]  # [B], place of each copy's trial among the stream's
    best: NDArray[np.int32]  # [B], best fixed arm in hindsight


def rates_at(rates: tuple[Floats, Floats], blocks: NDArray[np.uint32]) -> tuple[Floats, Floats]:
    """Eta and gamma [K] of some blocks [K], from those of the whole horizon; 0 where there is none."""
    eta, gamma = (np.nan_to_num(x[np.minimum(blocks, len(x) - 1)]) for x in rates)
    return eta, gamma


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


def axes_of(backend: Backend, arms: int, columns: int) -> tuple[int, ...]:
    """The axis of copies in each leaf of a backend's state, for some columns of records."""
    return devices.axes(lambda many: backend.init(arms, np.zeros(many, np.int32), columns))


@partial(jax.jit, static_argnames=("advance", "axes"), donate_argnames=("state", "totals"))
def play(
    advance: Callable,
    axes: tuple[int, ...],
    state: Any,
    totals: Totals,
    chunk: Chunk,
    rates: tuple[Any, Any],
    copies: Mapping[str, Any],
    keys: tuple[Any, Any],
) -> tuple[Any, Totals, Totals]:
    """Play K blocks: the one compiled program of a learner.

    Args:
        advance: of the learner's backend.
        axes: of copies, in each leaf of the state.
        state: of the learner's backend, for B copies.
        totals: [B] so far.
        chunk: the records.
        rates: eta [K] and gamma [K].
        copies: the fields of ``Parameters`` that tell copies apart, [B] each.
        keys: two uint32 [U] of the trials' draws.

    Returns:
        State and totals after the chunk, and the totals [K, S, B] at its marks.
    """
    taken = axes, 0, -1, -1, 0, -1
    given = state, totals, chunk, rates, copies, keys
    return devices.spread(partial(_play, advance), taken, lambda of: (of[0], of[1], Totals(2, 2)))(*given)


def _play(advance: Callable, state: Any, totals: Totals, chunk: Chunk, rates: Any, copies: Any, keys: Any) -> Any:
    rounds = jnp.arange(ROUNDS, dtype=jnp.uint32)[:, None]

    def block(carry: tuple[Any, Totals], x: Any) -> tuple[tuple[Any, Totals], Totals]:
        (state, totals), (records, eta, gamma) = carry, x
        draws = uniforms.uniforms((keys[0][None], keys[1][None]), records.block, rounds)
        game = Block(records.cuts, records.errors, draws, records.active)
        state, outcome = advance(state, game, Parameters(eta, gamma, **copies))
        wrong = jnp.where(outcome.answered, records.errors[:, copies["record"]], 0.0)
        totals, at_marks = add_up(totals, outcome.answered, wrong, records.marks)
        return (state, totals), at_marks

    (state, totals), marked = lax.scan(block, (state, totals), (chunk, *rates))
    return state, totals, marked


@partial(jax.jit, static_argnames=("advance",))
def _traced(advance: Callable, state: Any, blocks: Block, parameters: Parameters) -> tuple[Any, Outcome]:
    def block(state: Any, x: Any) -> tuple[Any, Outcome]:
        one, eta, gamma = x
        return advance(state, one, parameters._replace(eta=eta, gamma=gamma))

    state, outcome = lax.scan(block, state, (blocks, parameters.eta, parameters.gamma))
    return state, jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), outcome)


def advance_blocks(
    backend: Backend | HostBackend, state: Any, blocks: Block, parameters: Parameters
) -> tuple[Any, Outcome]:
    """Play up to ``native.SPAN`` rounds on any backend, and keep all that it says of them.

    Args:
        backend: whose.
        state: before the first round.
        blocks: cuts and errors [K, C, R], uniforms [K, C, U], active [K, C].
        parameters: with eta and gamma [K].

    Returns:
        The state after the last round, and the outcome [K C, B].
    """
    if isinstance(backend, Backend):
        return _traced(backend.advance, state, blocks, parameters)
    shape = blocks.active.size, len(parameters.record)
    outcome = Outcome(np.zeros(shape, np.bool_), np.zeros(shape), np.zeros(shape) if backend.middles else None)
    nothing = Totals(np.zeros(shape[1], np.int64), np.zeros(shape[1]))
    tally = _tally(np.zeros((len(blocks.active), 0), np.int32), nothing)
    for done in backend.play(state, native.Records(blocks), parameters, tally, outcome):
        done.result()
    return state, outcome


def _tally(marks: NDArray[np.int32], totals: Totals) -> native.Tally:
    shape = *marks.shape, len(totals.wrong)
    return native.Tally(marks, *totals, np.zeros(shape, np.int64), np.zeros(shape))


def schedule(horizon: int, width: int, checkpoints: NDArray[np.int64], start: int = 0) -> Iterator[Schedule]:
    """The blocks of a game of some width (trials or copies) from one on, in whole spans of one number of blocks."""
    whole = native.SPAN // ROUNDS
    blocks = -(-horizon // ROUNDS)
    count = min(blocks, max(whole, CHUNK // (ROUNDS * width) // whole * whole))
    home = (checkpoints - 1) // ROUNDS
    slots = int(np.bincount(home).max())
    for first in range(start, blocks, count):
        marks = np.zeros((count, slots), np.int32)
        for k in np.unique(home[(home >= first) & (home < first + count)]):
            here = checkpoints[home == k] - k * ROUNDS
            marks[k - first, : len(here)] = here
        active = np.arange(count * ROUNDS).reshape(count, ROUNDS) < horizon - first * ROUNDS
        yield Schedule(np.arange(first, first + count, dtype=np.uint32), active, marks)


def chunks(stream: Stream, checkpoints: NDArray[np.int64], start: int = 0) -> Iterator[Chunk]:
    """The records of a stream from a block on, in chunks of one shape, the last filled up with inactive rounds."""
    for when in schedule(stream.horizon, len(stream.trials), checkpoints, start):
        rounds = int(when.active.sum())
        cuts = np.ones((stream.columns, when.active.size), np.int32)
        errors = np.zeros(cuts.shape)
        cuts[:, :rounds], errors[:, :rounds] = stream.take(int(when.block[0]) * ROUNDS, rounds)
        shape = *when.active.shape, stream.columns
        yield Chunk(when.block, cuts.T.reshape(shape), errors.T.reshape(shape), when.active, when.marks)


class Met(NamedTuple):
    """What B copies of a learner did, at P checkpoints."""

    answered: NDArray[np.int64]  # [P, B]
    wrong: Floats  # [P, B], sum of the errors of answered rounds
    best_loss: Floats  # [P, B], of the best fixed arm on the copy's own sequence
    best_arm: NDArray[np.int32]  # [B], at the last
    asked: dict[str, Floats]  # [P, B], how much of each kind was asked, in worlds that answer back


class Keeper(NamedTuple):
    """How a unit of play is saved at the edges of chunks, and resumed.

    ``kept(like)`` is how many blocks were played at the last save, and what was held then, a tree like the given
    one, which is returned with 0 if nothing was saved; ``keep(blocks, tree)`` saves, where it is ``due()``.
    """

    kept: Callable[[Any], tuple[int, Any]]
    due: Callable[[], bool]
    keep: Callable[[int, Any], object]


NOTHING_KEPT = Keeper(lambda like: (0, like), lambda: False, lambda blocks, tree: None)


class Rollout:
    """One learner's copies on their way through a stream."""

    def __init__(self, copies: Copies, stream: Stream, arms: int, checkpoints: int) -> None:
        """Before round 1; ``checkpoints`` is how many marks [P] there will be."""
        self.rates, self.backend = (copies.eta, copies.gamma), copies.backend
        count = len(copies.trial)
        lanes = devices.padded(count)
        trial = copies.trial[lanes]
        self.copies: dict[str, Any] = {
            "alpha": copies.alpha[lanes],
            "answer": copies.answer[lanes],
            "abstain": copies.abstain[lanes],
            "record": stream.column[trial],
            "draw": trial,
        }
        self.keys = stream.keys_of(uniforms.LEARNER)
        self.state = self.backend.init(arms, copies.best[lanes], stream.columns)
        self.totals = Totals(np.zeros(len(lanes), np.int64), np.zeros(len(lanes)))
        if isinstance(self.backend, Backend):
            self.axes = axes_of(self.backend, arms, stream.columns)
        self.answered = np.zeros((checkpoints, count), np.int64)
        self.wrong = np.zeros((checkpoints, count))
        self.marked = 0
        self.playing: list[Future] = []

    def play(self, chunk: Chunk, records: native.Records | None = None) -> None:
        """Start to play a chunk; ``records`` are the same on the host, for backends that play there."""
        rates = rates_at(self.rates, chunk.block)
        self.real = chunk.marks > 0
        if isinstance(self.backend, Backend):
            given = self.state, self.totals, chunk, rates, self.copies, self.keys
            self.state, self.totals, self.at_marks = play(self.backend.advance, self.axes, *given)
            return
        tally = _tally(chunk.marks, self.totals)
        self.at_marks = Totals(tally.marked_answered, tally.marked_wrong)
        self.playing = self.backend.play(self.state, records, Parameters(*rates, **self.copies), tally)

    def held(self) -> Any:
        """All that changes as it plays, as a tree of arrays that does not depend on the number of threads."""
        state = np.concatenate(self.state, axis=-1) if isinstance(self.state, list) else self.state
        return state, self.totals, self.answered, self.wrong, self.marked

    def hold(self, tree: Any) -> None:
        """Go on from what another held."""
        state, totals, self.answered, self.wrong, marked = tree
        if isinstance(self.state, list):
            state = np.split(state, np.cumsum([part.shape[-1] for part in self.state])[:-1], axis=-1)
            state = [np.ascontiguousarray(part) for part in state]
        if isinstance(self.backend, Backend):
            state, totals = jax.tree.map(jnp.asarray, (state, totals))
        self.state, self.totals, self.marked = state, Totals(*totals), int(marked)

    def met(self, best: Met) -> Met:
        """What was done up to the last checkpoint that was reached, beside the best fixed arms."""
        rows = slice(self.marked)
        return Met(self.answered[rows], self.wrong[rows], best.best_loss[rows], best.best_arm, {})

    def collect(self) -> None:
        """Wait for the chunk that was started, and keep the totals at its checkpoints."""
        for done in self.playing:
            done.result()
        rows = slice(self.marked, self.marked + int(self.real.sum()))
        self.answered[rows] = np.asarray(self.at_marks.answered)[self.real][:, : self.answered.shape[1]]
        self.wrong[rows] = np.asarray(self.at_marks.wrong)[self.real][:, : self.wrong.shape[1]]
        self.marked = rows.stop


class Survey:
    """The best fixed arm of every trial in hindsight, from the records alone, played like a learner.

    ``best_loss`` [P, cells, B] is its cumulative loss at each of P checkpoints, ``best_arm`` [cells, B] the arm at
    the last of them that was reached.
    """

    def __init__(
        self,
        column: NDArray[np.integer],
        arms: int,
        checkpoints: NDArray[np.int64],
        answer: Floats,
        abstain: Floats,
    ) -> None:
        """Before round 1, for trials that meet some columns [B] of records; costs [cells]."""
        self.comparator = Comparator(int(column.max()) + 1, arms)
        self.column, self.checkpoints, self.costs = column, checkpoints, (answer, abstain)
        shape = len(answer), len(column)
        self.best_loss, self.best_arm = np.empty((len(checkpoints), *shape)), np.empty(shape, np.int32)
        self.reached = 0

    def held(self) -> Any:
        """All that changes as it is played, as a tree of arrays."""
        return self.comparator.count, self.comparator.wrong, self.best_loss, self.best_arm, self.reached

    def hold(self, tree: Any) -> None:
        """Go on from what another held."""
        self.comparator.count, self.comparator.wrong, self.best_loss, self.best_arm, reached = tree
        self.reached = int(reached)

    def met(self) -> Met:
        """The best fixed arms up to the last checkpoint that was reached; they did nothing of their own."""
        nothing = np.zeros((self.reached, 0))
        best_loss = self.best_loss[: self.reached].reshape(self.reached, -1)
        return Met(nothing.astype(np.int64), nothing, best_loss, self.best_arm.ravel(), {})

    def add(self, when: Schedule | Chunk, cuts: NDArray[np.int32], errors: Floats) -> None:
        """Take in the records [K C, R] of some blocks."""
        start = int(when.block[0]) * ROUNDS
        end = start + int(when.active.sum())
        inside = self.checkpoints[(self.checkpoints > start) & (self.checkpoints <= end)]
        for first, last in pairwise([start, *inside, end]):
            self.comparator.add(cuts[first - start : last - start], errors[first - start : last - start])
            if last in inside and first < last:
                loss, arm = self.comparator.best(*self.costs)
                self.best_loss[self.reached], self.best_arm = loss[:, self.column], arm[:, self.column]
                self.reached += 1


def made_ready(chunk: Chunk, rollouts: Sequence[Rollout]) -> native.Records | None:
    """A chunk for those of some rollouts of one stream that play on the host, if any does."""
    backends = [rollout.backend for rollout in rollouts if isinstance(rollout.backend, HostBackend)]
    if not backends:
        return None
    drawn = any(backend.draws for backend in backends)
    draws = native.uniforms(rollouts[0].keys, chunk.block) if drawn else np.zeros((*chunk.active.shape, 1))
    return native.Records(Block(chunk.cuts, chunk.errors, draws, chunk.active))


def play_all(
    rollouts: Sequence[Rollout],
    stream: Stream,
    checkpoints: NDArray[np.int64],
    progress: Callable[[int], object],
    survey: Survey | None = None,
    keeper: Keeper = NOTHING_KEPT,
) -> None:
    """Every learner plays every chunk while the next is made; ``progress`` is told the rounds of each."""
    parts: list[Rollout | Survey | Stream] = [*rollouts, stream, *([] if survey is None else [survey])]
    start, trees = keeper.kept([part.held() for part in parts])
    for part, tree in zip(parts, trees, strict=True):
        part.hold(tree)
    progress(min(start * ROUNDS, stream.horizon))
    played = 0
    for chunk in chunks(stream, checkpoints, start):
        records = made_ready(chunk, rollouts)
        if survey is not None:
            cuts = chunk.cuts.reshape(-1, stream.columns)
            survey.add(chunk, cuts, chunk.errors.reshape(cuts.shape))
        for rollout in rollouts:
            if played:
                rollout.collect()
            rollout.play(chunk, records)
        progress(played)
        played = int(chunk.active.sum())
        if keeper.due():
            for rollout in rollouts:
                rollout.collect()
            progress(played)
            played = 0
            keeper.keep(int(chunk.block[-1]) + 1, [part.held() for part in parts])
    for rollout in rollouts:
        if played:
            rollout.collect()
    progress(played)
