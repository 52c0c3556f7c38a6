"""The blocks of a game in chunks, and the records of a world that does not react."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine.environments.oblivious import Stream
from exaul.kernels.backends import native
from exaul.kernels.game import ROUNDS, SPAN

CHUNK = 2**19  # rounds x trials that are made on the host at a time, in whole spans


class Schedule(NamedTuple):
    """K blocks of C rounds, and which of their rounds are checkpoints."""

    block: NDArray[np.uint32]  # [K], its number
    active: NDArray[np.bool_]  # [K, C], False on the rounds that only fill up the last chunk
    marks: NDArray[np.int32]  # [K, S], rounds of the block up to each checkpoint in it, 0 where there is none

    @property
    def rounds(self) -> int:
        """How many rounds are played."""
        return int(self.active.sum())


@dataclass(frozen=True)
class Chunk:
    """K blocks of C rounds with their records: R sequences of records, and the keys of the trials' draws."""

    when: Schedule
    cuts: NDArray[np.int32]  # [K, C, R]
    errors: NDArray[np.float64]  # [K, C, R]
    keys: tuple[NDArray[np.uint32], NDArray[np.uint32]]  # [U] each

    @cached_property
    def compiled(self) -> Any:
        """The same for compiled code, made once for all learners that play there."""
        draw = partial(native.uniforms, self.keys, self.when.block)  # without self: no cycle
        return native.Rounds(self.cuts, self.errors, self.when.active, draw)


def schedule(horizon: int, width: int, checkpoints: NDArray[np.int64], start: int = 0) -> Iterator[Schedule]:
    """The chunks of a game: whole spans of blocks, as many in each chunk.

    Args:
        horizon: T.
        width: trials or copies that are played side by side.
        checkpoints: [P] rounds.
        start: number of the first block.
    """
    whole = SPAN // ROUNDS
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
        cuts = np.ones((stream.columns, when.active.size), np.int32)
        errors = np.zeros(cuts.shape)
        first, rounds = int(when.block[0]) * ROUNDS, when.rounds
        cuts[:, :rounds], errors[:, :rounds] = stream.take(first, rounds)
        shape = *when.active.shape, stream.columns
        yield Chunk(when, cuts.T.reshape(shape), errors.T.reshape(shape), stream.draws)
