"""The only loop: learners play the rounds of a stream, block by block, and leave marks at checkpoints."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from engine.environments.oblivious import Stream
from engine.metrics import Comparator, Floats
from kernels import native, uniforms
from kernels.game import ROUNDS, Array, Block, Outcome, Parameters
from kernels.learner import Backend

TILE = 32  # the batch axis is padded to multiples of this, so that no lane's arithmetic depends on the others
CHUNK = 2**18  # records (rounds x columns) that are made on the host at a time, at most, in whole blocks


class Totals(NamedTuple):
    """Sums over rounds, all that is ever reported of B copies."""

    answered: Array  # int64
    wrong: Array  # float64, sum of the errors of answered rounds


class Chunk(NamedTuple):
    """K blocks of C rounds."""

    block: NDArray[np.uint32]  # [K], its number
    cuts: NDArray[np.int32]  # [K, C, R]
    errors: NDArray[np.float64]  # [K, C, R]
    active: NDArray[np.bool_]  # [K, C]
    marks: NDArray[np.int32]  # [K, S] rounds of the block before each checkpoint in it, 0 where there is none


class Copies(NamedTuple):
    """B copies of one learner: a backend, rates by block, and the numbers that tell copies apart."""

    backend: Backend
    eta: NDArray[np.float64]  # [K of the whole horizon]
    gamma: NDArray[np.float64]  # [K of the whole horizon]
    answer: NDArray[np.float64]  # [B]
    abstain: NDArray[np.float64]  # [B]
    trial: NDArray[np.int32]  # [B], place of each copy's trial among the stream's
    best: NDArray[np.int32]  # [B], best fixed arm in hindsight


@partial(jax.jit, static_argnames=("advance",), donate_argnames=("state", "totals"))
def play(
    advance: Callable,
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
        state: of the learner's backend, for B copies.
        totals: [B] so far.
        chunk: the records.
        rates: eta [K] and gamma [K].
        copies: the fields of ``Parameters`` that tell copies apart, [B] each.
        keys: two uint32 [U] of the trials' draws.

    Returns:
        State and totals after the chunk, and the totals [K, S, B] at its marks.
    """
    rounds = jnp.arange(ROUNDS, dtype=jnp.uint32)[:, None]

    def block(carry: tuple[Any, Totals], x: Any) -> tuple[tuple[Any, Totals], Totals]:
        (state, totals), (records, eta, gamma) = carry, x
        draws = uniforms.uniforms((keys[0][None], keys[1][None]), records.block, rounds)
        game = Block(records.cuts, records.errors, draws, records.active)
        state, outcome = advance(state, game, Parameters(eta, gamma, **copies))
        wrong = jnp.where(outcome.answered, records.errors[:, copies["record"]], 0.0)
        running = Totals(
            totals.answered[None] + jnp.cumsum(outcome.answered, axis=0, dtype=jnp.int64),
            totals.wrong[None] + jnp.cumsum(wrong, axis=0),
        )
        at_marks = jax.tree.map(lambda x: x[records.marks - 1], running)
        return (state, jax.tree.map(lambda x: x[-1], running)), at_marks

    (state, totals), marked = lax.scan(block, (state, totals), (chunk, *rates))
    return state, totals, marked


def play_on_host(
    advance: Callable,
    state: Any,
    totals: Totals,
    chunk: Chunk,
    rates: tuple[Any, Any],
    copies: Mapping[str, Any],
    keys: tuple[Any, Any],
) -> tuple[Any, Totals, Totals]:
    """``play`` for a backend that takes NumPy arrays."""
    shape = *chunk.marks.shape, len(copies["record"])
    marked = Totals(np.zeros(shape, np.int64), np.zeros(shape))
    for k, number in enumerate(chunk.block):
        if not chunk.active[k].any():
            break
        draws = native.uniforms(keys, int(number))
        game = Block(chunk.cuts[k], chunk.errors[k], draws, chunk.active[k])
        parameters = Parameters(rates[0][k], rates[1][k], **copies)
        state, outcome = advance(state, game, parameters)
        marked.answered[k], marked.wrong[k] = native.tally(
            game, parameters, outcome.answered, chunk.marks[k], *totals
        )
    return state, totals, marked


@partial(jax.jit, static_argnames=("advance",))
def _traced(advance: Callable, state: Any, block: Block, parameters: Parameters) -> tuple[Any, Outcome]:
    return advance(state, block, parameters)


def advance_block(backend: Backend, state: Any, block: Block, parameters: Parameters) -> tuple[Any, Outcome]:
    """Play one block on any backend, and keep all that it says of it."""
    if backend.host:
        return backend.advance(state, block, parameters)
    return _traced(backend.advance, state, block, parameters)


def chunks(stream: Stream, checkpoints: NDArray[np.int64]) -> Iterator[Chunk]:
    """The records of a whole stream, in chunks of one shape; the last is filled up with inactive rounds."""
    horizon = stream.horizon
    blocks = -(-horizon // ROUNDS)
    per_chunk = max(1, min(blocks, CHUNK // (ROUNDS * stream.columns)))
    home = (checkpoints - 1) // ROUNDS
    slots = int(np.bincount(home).max())
    for first in range(0, blocks, per_chunk):
        start = first * ROUNDS
        rounds = min(per_chunk * ROUNDS, horizon - start)
        cuts = np.ones((per_chunk * ROUNDS, stream.columns), np.int32)
        errors = np.zeros((per_chunk * ROUNDS, stream.columns))
        cuts[:rounds], errors[:rounds] = stream.take(start, rounds)
        marks = np.zeros((per_chunk, slots), np.int32)
        for k in np.unique(home[(home >= first) & (home < first + per_chunk)]):
            here = checkpoints[home == k] - k * ROUNDS
            marks[k - first, : len(here)] = here
        shape = per_chunk, ROUNDS
        yield Chunk(
            np.arange(first, first + per_chunk, dtype=np.uint32),
            cuts.reshape(*shape, -1),
            errors.reshape(*shape, -1),
            (np.arange(per_chunk * ROUNDS) < rounds).reshape(shape),
            marks,
        )


class Rollout:
    """One learner's copies on their way through a stream."""

    def __init__(self, copies: Copies, stream: Stream, arms: int, checkpoints: int) -> None:
        """Before round 1; ``checkpoints`` is how many marks [P] there will be."""
        self.rates, self.backend = (copies.eta, copies.gamma), copies.backend
        count = len(copies.trial)
        lanes = np.arange(-(-count // TILE) * TILE) % count
        trial = copies.trial[lanes]
        self.copies: dict[str, Any] = {
            "answer": copies.answer[lanes],
            "abstain": copies.abstain[lanes],
            "record": stream.column[trial],
            "draw": trial,
        }
        self.keys = uniforms.trial_keys(stream.seed, uniforms.LEARNER, stream.trials)
        self.state = self.backend.init(arms, copies.best[lanes], stream.columns)
        self.totals = Totals(np.zeros(len(lanes), np.int64), np.zeros(len(lanes)))
        self.answered = np.zeros((checkpoints, count), np.int64)
        self.wrong = np.zeros((checkpoints, count))
        self.marked = 0

    def play(self, chunk: Chunk) -> None:
        """Play a chunk and keep the totals at its checkpoints."""
        last = len(self.rates[0]) - 1
        eta, gamma = (np.nan_to_num(x[np.minimum(chunk.block, last)]) for x in self.rates)
        how = play_on_host if self.backend.host else play
        self.state, self.totals, marked = how(
            self.backend.advance, self.state, self.totals, chunk, (eta, gamma), self.copies, self.keys
        )
        real = chunk.marks > 0
        rows = slice(self.marked, self.marked + int(real.sum()))
        self.answered[rows] = np.asarray(marked.answered)[real][:, : self.answered.shape[1]]
        self.wrong[rows] = np.asarray(marked.wrong)[real][:, : self.wrong.shape[1]]
        self.marked = rows.stop


def survey(
    stream: Stream, arms: int, checkpoints: NDArray[np.int64], answer: Floats, abstain: Floats
) -> tuple[Floats, NDArray[np.int32]]:
    """The best fixed arm of every trial in hindsight, from the records alone.

    Args:
        stream: of B trials, before round 1.
        arms: H.
        checkpoints: [P] rounds, the last the horizon.
        answer: [cells] cost of an answer per unit of error.
        abstain: [cells] cost of an abstention.

    Returns:
        Its cumulative loss [P, cells, B] at each checkpoint, and the arm [cells, B] at the last.
    """
    comparator = Comparator(stream.columns, arms)
    least = np.empty((len(checkpoints), len(answer), stream.columns))
    reached = 0
    for chunk in chunks(stream, checkpoints):
        cuts = chunk.cuts.reshape(-1, stream.columns)
        errors = chunk.errors.reshape(cuts.shape)
        start = int(chunk.block[0]) * ROUNDS
        end = start + int(chunk.active.sum())
        inside = checkpoints[(checkpoints > start) & (checkpoints <= end)]
        for first, last in pairwise([start, *inside, end]):
            comparator.add(cuts[first - start : last - start], errors[first - start : last - start])
            if last in inside and first < last:
                least[reached], best = comparator.best(answer, abstain)
                reached += 1
    return least[:, :, stream.column], best[:, stream.column]


def play_all(
    rollouts: Mapping[str, Rollout],
    stream: Stream,
    checkpoints: NDArray[np.int64],
    progress: Callable[[int], object],
) -> None:
    """Every learner plays every chunk; ``progress`` is told the rounds of each chunk once all have.

    Learners on the host play side by side, since few copies of one leave cores idle.
    """
    on_host = [rollout for rollout in rollouts.values() if rollout.backend.host]
    with ThreadPoolExecutor(max(1, len(on_host))) as pool:
        for chunk in chunks(stream, checkpoints):
            playing = [pool.submit(rollout.play, chunk) for rollout in on_host]
            for rollout in rollouts.values():
                if not rollout.backend.host:
                    rollout.play(chunk)
            for done in playing:
                done.result()
            progress(int(chunk.active.sum()))
