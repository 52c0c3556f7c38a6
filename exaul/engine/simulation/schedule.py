"""Divide the rounds of a game into blocks and chunks, make the records of a chunk, and save what changes."""

from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine.environments.adaptive import Adaptive, AdaptivePool, Objective
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


class Saved:
    """A part of a batch that a save between two chunks contains.

    ``changing`` names all attributes that change: trees of arrays, numbers, parts, and lists of parts.
    """

    changing: tuple[str, ...]


def save(part: Any) -> Any:
    """Return all that changes in a part, as a tree of arrays, which the next chunk changes."""
    if isinstance(part, Saved):
        return [save(getattr(part, name)) for name in part.changing]
    return [save(each) for each in part] if isinstance(part, list) else part


def restore(part: Any, tree: Any) -> Any:
    """Return a part as it was when ``save`` returned the tree."""
    if isinstance(part, Saved):
        for name, saved in zip(part.changing, tree, strict=True):
            setattr(part, name, restore(getattr(part, name), saved))
        return part
    if isinstance(part, list):
        return [restore(each, saved) for each, saved in zip(part, tree, strict=True)]
    return int(tree) if isinstance(part, int) else tree


class TrialRecords(Saved):
    """The records of each trial in an oblivious environment, and the keys of its learners' draws.

    ``record_stream`` [trials] is the stream of records of each trial: its own, or the single one that all share
    without shuffling.
    """

    changing = ("records_read",)

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


class Questions(NamedTuple):
    """An adaptive environment with what it reads, and the keys of all draws."""

    environment: Adaptive
    pool: AdaptivePool
    objective: Objective  # [B, ...], but ``choices`` [tunables]
    keys: Any  # of the environment's draws, two uint32 [trials]
    draws: uniforms.Draws  # keys of the learner's draws


class Chunk:
    """K blocks of C rounds of some trials. Devices make their own records; the host makes them on first use."""

    def __init__(self, schedule: Schedule, trial_records: TrialRecords | None) -> None:
        """Take the next blocks; without records if the environment is adaptive."""
        self.schedule, self.trial_records = schedule, trial_records
        self._host_records: native.RecordBlocks | None = None

    def host_records(self) -> native.RecordBlocks:
        """Return the records for compiled code; the first call makes them."""
        if self._host_records is None:
            schedule, trials = self.schedule, self.trial_records
            assert trials is not None
            # without a reference to self: a cycle would delay freeing the arrays
            draw = partial(native.draws, trials.draws, schedule.block)
            made = native.RecordBlocks(trials.records.stream_count, schedule.active.size, schedule.rounds, draw)
            first_round = int(schedule.block[0]) * ROUNDS
            native.fill(trials.records, trials.records_read, first_round, made.rounds, made.cuts, made.errors)
            self._host_records = made
        return self._host_records


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
    trial_records: TrialRecords | None, checkpoints: NDArray[np.int64], width: int, first_block: int = 0
) -> Iterator[Chunk]:
    """Yield the chunks of the rounds up to the last checkpoint, from block ``first_block`` on.

    All have the same shape, so that a program compiles once; the last one is padded with inactive rounds. ``width``
    is as of ``blocks_per_chunk``.
    """
    horizon = int(checkpoints[-1])
    blocks = -(-horizon // ROUNDS)
    home = (checkpoints - 1) // ROUNDS  # block of each checkpoint
    slots = int(np.bincount(home).max())
    count = min(blocks, blocks_per_chunk(width))
    for first in range(first_block, blocks, count):
        checkpoint_rounds = np.zeros((count, slots), np.int32)
        for k in np.unique(home[(home >= first) & (home < first + count)]):
            of_block = checkpoints[home == k] - k * ROUNDS
            checkpoint_rounds[k - first, : len(of_block)] = of_block
        active = np.arange(count * ROUNDS).reshape(count, ROUNDS) < horizon - first * ROUNDS
        schedule = Schedule(np.arange(first, first + count, dtype=np.uint32), active, checkpoint_rounds)
        yield Chunk(schedule, trial_records)
