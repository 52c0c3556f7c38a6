"""The only loop: learners play the rounds of a stream, block by block, and leave marks at checkpoints."""

from collections.abc import Callable, Iterator, Mapping
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
from kernels import uniforms
from kernels.game import ROUNDS, Block, Parameters
from kernels.learner import Backend

TILE = 128  # the batch axis is padded to multiples of this, so that no lane's arithmetic depends on the others
CHUNK = 2**18  # records (rounds x trials) that are made on the host at a time, at most, in whole blocks


class Totals(NamedTuple):
    """Sums over rounds, all that is ever reported of B copies."""

    answered: jax.Array  # int64
    wrong: jax.Array  # float64, sum of the errors of answered rounds


class Chunk(NamedTuple):
    """K blocks of C rounds for all trials."""

    block: NDArray[np.uint32]  # [K], its number
    cuts: NDArray[np.int32]  # [K, C, trials]
    errors: NDArray[np.float64]  # [K, C, trials]
    active: NDArray[np.bool_]  # [K, C]
    marks: NDArray[np.int32]  # [K, S] rounds of the block before each checkpoint in it, 0 where there is none


class Copies(NamedTuple):
    """B copies of one learner: a backend, and the real numbers of each."""

    backend: Backend
    trials: NDArray[np.int32]  # [B], place of each copy's trial among the stream's
    eta: NDArray[np.float64]  # [K of the whole horizon]
    gamma: NDArray[np.float64]  # [K of the whole horizon]
    answer: NDArray[np.float64]  # [B]
    abstain: NDArray[np.float64]  # [B]
    best: NDArray[np.int32]  # [B], best fixed arm in hindsight


@partial(jax.jit, static_argnames=("advance",), donate_argnames=("state", "totals"))
def play(
    advance: Callable,
    state: Any,
    totals: Totals,
    chunk: Chunk,
    rates: tuple[jax.Array, jax.Array],
    costs: tuple[jax.Array, jax.Array],
    keys: tuple[jax.Array, jax.Array],
    trials: jax.Array,
) -> tuple[Any, Totals, Totals]:
    """Play K blocks: the one compiled program of a learner.

    Args:
        advance: of the learner's backend.
        state: of the learner's backend, for B copies.
        totals: [B] so far.
        chunk: the records.
        rates: eta [K] and gamma [K].
        costs: of an answer [B] and of an abstention [B].
        keys: two uint32 [1, B] of the copies' draws.
        trials: [B], place of each copy's trial in the chunk.

    Returns:
        State and totals after the chunk, and the totals [K, S, B] at its marks.
    """
    rounds = jnp.arange(ROUNDS, dtype=jnp.uint32)[:, None]

    def block(carry: tuple[Any, Totals], x: Any) -> tuple[tuple[Any, Totals], Totals]:
        (state, totals), (records, eta, gamma) = carry, x
        cuts, errors = records.cuts[:, trials], records.errors[:, trials]
        draws = uniforms.uniforms(keys, records.block, rounds)
        game = Block(cuts, errors, draws, records.active)
        state, outcome = advance(state, game, Parameters(eta, gamma, *costs))
        running = Totals(
            totals.answered[None] + jnp.cumsum(outcome.answered, axis=0, dtype=jnp.int64),
            totals.wrong[None] + jnp.cumsum(jnp.where(outcome.answered, errors, 0.0), axis=0),
        )
        at_marks = jax.tree.map(lambda x: x[records.marks - 1], running)
        return (state, jax.tree.map(lambda x: x[-1], running)), at_marks

    (state, totals), marked = lax.scan(block, (state, totals), (chunk, *rates))
    return state, totals, marked


def chunks(stream: Stream, checkpoints: NDArray[np.int64]) -> Iterator[Chunk]:
    """The records of a whole stream, in chunks of one shape; the last is filled up with inactive rounds."""
    horizon, trials = stream.horizon, len(stream.trials)
    blocks = -(-horizon // ROUNDS)
    per_chunk = max(1, min(blocks, CHUNK // (ROUNDS * trials)))
    home = (checkpoints - 1) // ROUNDS
    slots = int(np.bincount(home).max())
    for first in range(0, blocks, per_chunk):
        index = np.arange(first, first + per_chunk)
        start = first * ROUNDS
        rounds = min(per_chunk * ROUNDS, horizon - start)
        cuts = np.ones((per_chunk * ROUNDS, trials), np.int32)
        errors = np.zeros((per_chunk * ROUNDS, trials))
        cuts[:rounds], errors[:rounds] = stream.take(start, rounds)
        marks = np.zeros((per_chunk, slots), np.int32)
        for k in np.unique(home[(home >= first) & (home < first + per_chunk)]):
            here = checkpoints[home == k] - k * ROUNDS
            marks[k - first, : len(here)] = here
        shape = per_chunk, ROUNDS
        active = (np.arange(per_chunk * ROUNDS) < rounds).reshape(shape)
        yield Chunk(index.astype(np.uint32), cuts.reshape(*shape, -1), errors.reshape(*shape, -1), active, marks)


class Rollout:
    """One learner's copies on their way through a stream."""

    def __init__(self, copies: Copies, stream: Stream, arms: int, checkpoints: int) -> None:
        """Before round 1; ``checkpoints`` is how many marks [P] there will be."""
        self.copies = copies
        self.lanes = np.arange(-(-len(copies.trials) // TILE) * TILE) % len(copies.trials)
        self.trials = copies.trials[self.lanes]
        self.costs = copies.answer[self.lanes], copies.abstain[self.lanes]
        keys = uniforms.trial_keys(stream.seed, uniforms.LEARNER, stream.trials)
        self.keys = keys[0][self.trials][None], keys[1][self.trials][None]
        self.state = copies.backend.init(arms, copies.best[self.lanes])
        self.totals = Totals(jnp.zeros(len(self.lanes), jnp.int64), jnp.zeros(len(self.lanes)))
        self.answered = np.zeros((checkpoints, len(copies.trials)), np.int64)
        self.wrong = np.zeros((checkpoints, len(copies.trials)))
        self.marked = 0

    def play(self, chunk: Chunk) -> None:
        """Play a chunk and keep the totals at its checkpoints."""
        eta, gamma = np.zeros(len(chunk.block)), np.zeros(len(chunk.block))
        known = chunk.block < len(self.copies.eta)
        eta[known] = self.copies.eta[chunk.block[known]]
        gamma[known] = np.nan_to_num(self.copies.gamma[chunk.block[known]])
        self.state, self.totals, marked = play(
            self.copies.backend.advance,
            self.state,
            self.totals,
            chunk,
            (eta, gamma),
            self.costs,
            self.keys,
            self.trials,
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
    comparator = Comparator(len(stream.trials), arms)
    least = np.empty((len(checkpoints), len(answer), len(stream.trials)))
    reached = 0
    for chunk in chunks(stream, checkpoints):
        cuts = chunk.cuts.reshape(-1, len(stream.trials))
        errors = chunk.errors.reshape(cuts.shape)
        start = int(chunk.block[0]) * ROUNDS
        end = start + int(chunk.active.sum())
        inside = checkpoints[(checkpoints > start) & (checkpoints <= end)]
        for first, last in pairwise([start, *inside, end]):
            comparator.add(cuts[first - start : last - start], errors[first - start : last - start])
            if last in inside and first < last:
                least[reached], best = comparator.best(answer, abstain)
                reached += 1
    return least, best


def play_all(
    rollouts: Mapping[str, Rollout],
    stream: Stream,
    checkpoints: NDArray[np.int64],
    progress: Callable[[int], object],
) -> None:
    """Every learner plays every chunk; ``progress`` is told the rounds of each chunk once all have."""
    for chunk in chunks(stream, checkpoints):
        for rollout in rollouts.values():
            rollout.play(chunk)
        progress(int(chunk.active.sum()))
