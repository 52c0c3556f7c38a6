"""Divide the rounds of a game into blocks and chunks, and make the records of oblivious environments."""

from collections.abc import Iterator
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.kernels import native, uniforms
from exaul.kernels.game import ROUNDS, SPAN, Rates
from exaul.kernels.records import Streams

CHUNK = 2**19  # rounds x trials of a chunk (measured); rounded to whole spans


class Schedule(NamedTuple):
    """K blocks of C rounds, and which of their rounds are checkpoints."""

    block: NDArray[np.uint32]  # [K], numbers of the blocks
    active: NDArray[np.bool_]  # [K, C], False for the padding rounds of the last chunk
    # [K, S], number of rounds of the block up to each of its checkpoints, 0 for unused slots
    checkpoint_rounds: NDArray[np.int32]

    @property
    def rounds(self) -> int:
        """The number of active rounds."""
        return int(self.active.sum())


class TrialRecords:
    """The records of each trial in an oblivious environment, and the keys of its learners' draws.

    ``record_stream`` [trials] is the stream of records of each trial: its own, or the single one that all share
    without shuffling.
    """

    def __init__(
        self, records: Streams, horizon: int, seed: int, trials: NDArray[np.integer], imperfect: bool = False
    ) -> None:
        """Prepare round 1 of some trials, by number; ``imperfect`` adds draws of feedback."""
        self.records, self.horizon, self.trials = records, horizon, trials
        self.record_stream = np.arange(len(trials), dtype=np.int32) % records.stream_count
        self.draws = uniforms.draw_keys(seed, trials, imperfect)
        self.records_read = records.no_records_read().astype(np.int64)  # of each pool, by the host

    @cached_property
    def on_device(self) -> Streams:
        """The records on the device, copied once for all simulations there."""
        import jax

        return Streams(self.records.plan, *jax.device_put(self.records[1:]))

    @cached_property
    def draws_on_device(self) -> uniforms.Draws:
        """The keys of the draws on the device."""
        import jax

        return uniforms.Draws(*jax.device_put(self.draws))

    def save(self) -> tuple[NDArray[np.int64]]:
        """Return all that changes as the host makes records, as a tree of arrays."""
        return (self.records_read,)

    def restore(self, tree: tuple[NDArray[np.int64]]) -> None:
        """Continue from what ``save`` returned."""
        (self.records_read,) = tree


class Chunk:
    """K blocks of C rounds of some trials. Devices make their own records; the host makes them on first use."""

    def __init__(self, schedule: Schedule, trial_records: TrialRecords | None) -> None:
        """Take the next blocks; without records if the environment is adaptive."""
        self.schedule, self.trial_records = schedule, trial_records
        self._rounds: native.RecordBlocks | None = None

    def host_records(self) -> native.RecordBlocks:
        """Return the records for compiled code; the first call makes them."""
        if self._rounds is None:
            assert self.trial_records is not None
            # without a reference to self: a cycle would delay freeing the arrays
            draw = partial(native.draws, self.trial_records.draws, self.schedule.block)
            rounds = native.RecordBlocks(
                self.trial_records.records.stream_count, self.schedule.active.size, self.schedule.rounds, draw
            )
            start = int(self.schedule.block[0]) * ROUNDS
            native.fill(
                self.trial_records.records,
                self.trial_records.records_read,
                start,
                rounds.rounds,
                rounds.cuts,
                rounds.errors,
            )
            self._rounds = rounds
        return self._rounds


def rates_of_blocks(rates: Rates, blocks: NDArray[np.uint32]) -> Rates:
    """Select the rates of blocks [K] from those of the horizon; a missing rate becomes 0."""
    # the last chunk may have blocks past the horizon, whose rounds are inactive: any rate will do
    return Rates(*(np.nan_to_num(x[np.minimum(blocks, len(x) - 1)]) for x in rates))


def blocks_per_chunk(width: int) -> int:
    """Return the number of blocks of a chunk, in whole spans.

    ``width`` is the number of trials or, in an adaptive environment, of a learner's copies.
    """
    whole = SPAN // ROUNDS
    return max(whole, CHUNK // (ROUNDS * width) // whole * whole)


def make_chunks(
    trial_records: TrialRecords | None, checkpoints: NDArray[np.int64], width: int, start: int = 0
) -> Iterator[Chunk]:
    """Yield the chunks of the rounds up to the last checkpoint, from block ``start`` on.

    All have the same shape, so that a program compiles once; the last one is padded with inactive rounds. ``width``
    is as of ``blocks_per_chunk``.
    """
    horizon = int(checkpoints[-1])
    blocks = -(-horizon // ROUNDS)
    home = (checkpoints - 1) // ROUNDS  # block of each checkpoint
    slots = int(np.bincount(home).max())
    count = min(blocks, blocks_per_chunk(width))
    for first in range(start, blocks, count):
        checkpoint_rounds = np.zeros((count, slots), np.int32)
        for k in np.unique(home[(home >= first) & (home < first + count)]):
            rounds_in_block = checkpoints[home == k] - k * ROUNDS
            checkpoint_rounds[k - first, : len(rounds_in_block)] = rounds_in_block
        active = np.arange(count * ROUNDS).reshape(count, ROUNDS) < horizon - first * ROUNDS
        schedule = Schedule(np.arange(first, first + count, dtype=np.uint32), active, checkpoint_rounds)
        yield Chunk(schedule, trial_records)
