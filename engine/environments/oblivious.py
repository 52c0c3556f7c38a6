"""Environments that do not react: the order of records is data, made on the host for each trial."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.kernels import uniforms
from exaul.kernels.game import ROUNDS

Pools = NDArray[np.int64]
Draw = Callable[[], NDArray[np.float64]]


class Oblivious(NamedTuple):
    """A rule that says from which pool of records each round comes.

    ``pool(t, horizon, uniforms)`` takes rounds t [R, 1] from 1 to the horizon, and returns pool numbers
    [R, 1] or [R, trials]; ``uniforms()`` draws one number a round and trial [R, trials] in [0, 1) for those
    that need it. Each trial plays each pool in its own shuffled order, reshuffled when spent, or in the
    pool's own order if not ``shuffled``. ``parts`` is how many segments of one pool each the rounds fall into.
    """

    sources: int
    shuffled: bool
    pool: Callable[[Pools, int, Draw], Pools]
    parts: int = 1


class Pool(NamedTuple):
    """N records as the game sees them."""

    cuts: NDArray[np.int32]  # [N]
    errors: NDArray[np.float64]  # [N]


def in_turn(parts: int, shuffled: bool = True) -> Oblivious:
    """Pools in turn over equal segments: segment j of n holds rounds floor(j T / n) + 1 to floor((j + 1) T / n)."""

    def pool(t: Pools, horizon: int, uniforms: Draw) -> Pools:
        return np.searchsorted(ends(parts, horizon), t, side="left") % 2

    return Oblivious(min(parts, 2), shuffled, pool, parts)


def ends(parts: int, horizon: int) -> Pools:
    """The last round [parts] of each of some equal segments of T rounds."""
    return np.arange(1, parts + 1) * horizon // parts


class Stream:
    """The records that each trial meets, chunk after chunk, a function of (seed, trial) alone.

    ``column`` [B] says which column of records each trial meets: its own, or the one that all share where nothing
    is shuffled.
    """

    def __init__(
        self,
        environment: Oblivious,
        pools: Sequence[Pool],
        horizon: int,
        seed: int,
        trials: NDArray[np.integer],
    ) -> None:
        """Start before round 1 for some trials [B], by number."""
        self.environment, self.pools, self.horizon = environment, pools, horizon
        self.seed, self.trials = seed, trials
        self.column = np.arange(len(trials), dtype=np.int32) * environment.shuffled
        self.columns = len(np.unique(self.column))
        self.keys = uniforms.trial_keys(seed, uniforms.RECORDS, trials[: self.columns])
        self.draws = uniforms.trial_keys(seed, uniforms.LEARNER, trials)  # of the learners, [B] each
        self.played = np.zeros((self.columns, len(pools)), np.int64)  # records used so far
        self.orders: dict[tuple[int, int], tuple[int, NDArray[np.int32]]] = {}

    def save(self) -> tuple[NDArray[np.int64]]:
        """All that changes as it is played: the records used so far."""
        return (self.played,)

    def restore(self, tree: tuple[NDArray[np.int64]]) -> None:
        """Go on from what ``save`` returned."""
        (self.played,) = tree

    def take(self, start: int, rounds: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The next rounds: cuts [columns, R] and errors [columns, R].

        Args:
            start: rounds played so far, a multiple of 256.
            rounds: R, how many to play.
        """

        def draw() -> NDArray[np.float64]:
            place = np.arange(start, start + rounds, dtype=np.uint32)[:, None]
            return uniforms.uniforms(self.keys, place // np.uint32(ROUNDS), place % np.uint32(ROUNDS))

        t = np.arange(start + 1, start + rounds + 1)[:, None]
        chosen = self.environment.pool(t, self.horizon, draw)
        where = [
            [np.flatnonzero(chosen[:, i] == p) for p in range(len(self.pools))] for i in range(chosen.shape[1])
        ]
        cuts = np.empty((self.columns, rounds), np.int32)
        errors = np.empty((self.columns, rounds))
        for i in range(self.columns):
            for p, here in enumerate(where[i % len(where)]):
                if not len(here):
                    continue
                records = self._next(i, p, len(here))
                place = slice(None) if len(here) == rounds else here
                cuts[i, place] = self.pools[p].cuts[records]
                errors[i, place] = self.pools[p].errors[records]
        return cuts, errors

    def _next(self, i: int, p: int, count: int) -> NDArray[np.int32]:
        """The next records of pool p for the i-th trial, across as many laps of the pool as it takes."""
        size, first = len(self.pools[p].cuts), self.played[i, p]
        self.played[i, p] += count
        pieces = []
        for lap in range(first // size, (first + count - 1) // size + 1):
            low, high = max(first - lap * size, 0), min(first + count - lap * size, size)
            pieces.append(self._order(i, p, lap)[low:high])
        return np.concatenate(pieces)

    def _order(self, i: int, p: int, lap: int) -> NDArray[np.int32]:
        saved, order = self.orders.get((i, p), (-1, None))
        if order is None or saved != lap:
            size = len(self.pools[p].cuts)
            order = np.arange(size, dtype=np.int32)
            if self.environment.shuffled:
                key = (uniforms.RECORDS, int(self.trials[i]), int(p), int(lap))
                np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=key)).shuffle(order)
            self.orders[i, p] = lap, order
        return order
