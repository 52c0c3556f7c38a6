"""The blocks of a game in chunks, and the records of an oblivious environment."""

from collections.abc import Iterator
from functools import cached_property, partial
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from exaul.kernels import uniforms
from exaul.kernels.backends import native
from exaul.kernels.game import ROUNDS, SPAN
from exaul.kernels.records import Streams

CHUNK = 2**19  # rounds x trials that are played at a time, in whole spans
# rounds x copies, and rounds, of a launch on a device: some seconds at most
LAUNCH_ROUNDS, LONGEST_LAUNCH = 2**28, 2**17
CHECKPOINT_ROUNDS = 16  # a checkpoint counts as so many rounds of a launch, whose totals then take 256 MiB at most


class Schedule(NamedTuple):
    """K blocks of C rounds, and which of their rounds are checkpoints."""

    block: NDArray[np.uint32]  # [K], its number
    active: NDArray[np.bool_]  # [K, C], False on the rounds that only fill up the last chunk
    # [K, S], rounds of the block up to each checkpoint in it, 0 where there is none
    checkpoint_rounds: NDArray[np.int32]

    @property
    def rounds(self) -> int:
        """How many rounds are played."""
        return int(self.active.sum())


class Stream:
    """The records that each trial meets in an oblivious environment, and the draws of its learners.

    ``record_stream`` [B] says which stream of records each trial meets: its own, or the one that all share where
    nothing is shuffled.
    """

    def __init__(
        self, records: Streams, horizon: int, seed: int, trials: NDArray[np.integer], imperfect: bool = False
    ) -> None:
        """Prepare round 1 of some trials [B], by number; ``imperfect`` says whether feedback is."""
        self.records, self.horizon, self.trials = records, horizon, trials
        self.record_stream = np.arange(len(trials), dtype=np.int32) % records.stream_count
        self.draws = uniforms.draw_keys(seed, trials, imperfect)
        self.records_read = records.no_records_read().astype(np.int64)  # of those that the host made

    @cached_property
    def on_device(self) -> Streams:
        """The records on the device, for all that play there."""
        return Streams(self.records.plan, *jax.device_put(self.records[1:]))

    @cached_property
    def draws_on_device(self) -> uniforms.Draws:
        """The keys of the draws on the device, likewise."""
        return uniforms.Draws(*jax.device_put(self.draws))

    def save(self) -> tuple[NDArray[np.int64]]:
        """All that changes as the host makes records: how many of each pool were played."""
        return (self.records_read,)

    def restore(self, tree: tuple[NDArray[np.int64]]) -> None:
        """Go on from what ``save`` returned."""
        (self.records_read,) = tree


class Chunk:
    """K blocks of C rounds of a stream. Devices make their own records; the host makes them once for all."""

    def __init__(self, schedule: Schedule, stream: Stream) -> None:
        """Take the next blocks of the stream."""
        self.schedule, self.stream = schedule, stream
        self._rounds: native.RecordBlocks | None = None

    def on_host(self) -> native.RecordBlocks:
        """Make the records for compiled code; the first call makes them, later calls return the same."""
        if self._rounds is None:
            draw = partial(native.draws, self.stream.draws, self.schedule.block)  # without self: no cycle
            rounds = native.RecordBlocks(
                self.stream.records.stream_count, self.schedule.active.size, self.schedule.rounds, draw
            )
            start = int(self.schedule.block[0]) * ROUNDS
            native.fill(
                self.stream.records, self.stream.records_read, start, rounds.rounds, rounds.cuts, rounds.errors
            )
            self._rounds = rounds
        return self._rounds


def blocks_per_chunk(width: int, slots: int, on_host: bool) -> int:
    """How many blocks are played at a time, in whole spans.

    Args:
        width: trials where the host makes the records, copies of a learner on a device.
        slots: S, marks of a block at most.
        on_host: whether the host makes or gets the records.
    """
    whole = SPAN // ROUNDS
    if on_host:
        count = CHUNK // (ROUNDS * width)
    else:
        count = min(LONGEST_LAUNCH // ROUNDS, LAUNCH_ROUNDS // (max(ROUNDS, CHECKPOINT_ROUNDS * slots) * width))
    return max(whole, count // whole * whole)


def make_schedules(
    horizon: int, width: int, checkpoints: NDArray[np.int64], start: int = 0, on_host: bool = True
) -> Iterator[Schedule]:
    """The chunks of a game: whole spans of blocks, as many in each chunk.

    Args:
        horizon: T.
        width: as of ``blocks_per_chunk``.
        checkpoints: [P] rounds.
        start: number of the first block.
        on_host: whether the host makes or gets the records.
    """
    blocks = -(-horizon // ROUNDS)
    home = (checkpoints - 1) // ROUNDS
    slots = int(np.bincount(home).max())
    count = min(blocks, blocks_per_chunk(width, slots, on_host))
    for first in range(start, blocks, count):
        checkpoint_rounds = np.zeros((count, slots), np.int32)
        for k in np.unique(home[(home >= first) & (home < first + count)]):
            here = checkpoints[home == k] - k * ROUNDS
            checkpoint_rounds[k - first, : len(here)] = here
        active = np.arange(count * ROUNDS).reshape(count, ROUNDS) < horizon - first * ROUNDS
        yield Schedule(np.arange(first, first + count, dtype=np.uint32), active, checkpoint_rounds)


def make_chunks(
    stream: Stream, checkpoints: NDArray[np.int64], start: int = 0, copies: int | None = None
) -> Iterator[Chunk]:
    """A stream from a block on, in chunks of one shape, the last filled up with inactive rounds.

    Args:
        stream: of records.
        checkpoints: [P] rounds.
        start: number of the first block.
        copies: of a learner, where all play on a device; None where the host makes the records.
    """
    width, on_host = (len(stream.trials), True) if copies is None else (copies, False)
    for schedule in make_schedules(stream.horizon, width, checkpoints, start, on_host):
        yield Chunk(schedule, stream)
