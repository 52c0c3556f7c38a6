"""Chunks of rounds: their records, their simulation in compiled loops, and what the host counts in them."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine.environments.adaptive import Adaptive, AdaptivePool, Objective
from exaul.kernels import native, uniforms
from exaul.kernels.game import BLOCK, SPAN, Copies, Rates, Start, Sums
from exaul.kernels.metrics import Floats
from exaul.kernels.native import CheckpointSums, NativeBackend
from exaul.kernels.records import Streams

BestArms = tuple[Floats, NDArray[np.int32]]  # least losses [P, pairs x trials], and their arms at the end
ASKED = ("hard", "overconfident", "underconfident")  # kinds of records, in adaptive environments
CHUNK = 2**19  # rounds x trials of a chunk (measured); rounded to whole spans
DEVICE_CHUNK = 2**25  # likewise on a device, which waits for the host between chunks (chosen)
# Copies are simulated in multiples of TILE: XLA vectorises small or odd shapes differently, and a copy's bits must
# not depend on the number of copies.
TILE = 32


class Chunk(NamedTuple):
    """K blocks of C rounds, and which rounds are checkpoints; a single block, as in a scan, has no axis K."""

    block_numbers: NDArray[np.uint32]  # [K]
    active: NDArray[np.bool_]  # [K, C], False for the padding rounds of the last chunk
    # [K, S], number of rounds of the block up to each of its checkpoints, 0 for unused slots
    checkpoint_rounds: NDArray[np.int32]

    @property
    def round_count(self) -> int:
        """The number of active rounds."""
        return int(self.active.sum())

    @property
    def first_round(self) -> int:
        """The number of rounds before the chunk."""
        return int(self.block_numbers[0]) * BLOCK

    def checkpoint_slice(self, checkpoints: NDArray[np.int64]) -> slice:
        """Return which of all checkpoints [P] are in the chunk."""
        ends = self.first_round, self.first_round + self.round_count
        first, last = np.searchsorted(checkpoints, ends, side="right")
        return slice(int(first), int(last))


class TrialRecords:
    """The records of each trial in an oblivious environment, and the keys of its learners' draws.

    ``record_stream`` [trials] is the stream of records of each trial: its own, or the single one that all share
    without shuffling.
    """

    def __init__(
        self, streams: Streams, seed: int, trials: NDArray[np.integer], is_imperfect: bool = False
    ) -> None:
        """Prepare round 1 of some trials, by number; ``is_imperfect`` adds draws of feedback."""
        self.streams, self.trials = streams, trials
        self.record_stream = np.arange(len(trials), dtype=np.int32) % streams.stream_count
        self.draw_keys = uniforms.draw_keys(seed, trials, is_imperfect)
        self.records_read = streams.no_records_read().astype(np.int64)  # of each pool, by the host

    def make(self, chunk: Chunk) -> native.RecordBlocks:
        """Make the records of the next chunk for compiled code; devices make their own."""
        shape = self.streams.stream_count, chunk.active.size + native.PADDING
        cuts, errors = np.ones(shape, np.int32), np.zeros(shape)
        draws = native.draw_uniforms(self.draw_keys.decision, chunk.block_numbers)
        native.fill_records(self.streams, self.records_read, chunk.first_round, chunk.round_count, cuts, errors)
        return native.RecordBlocks(chunk.round_count, cuts, errors, draws)

    @cached_property
    def on_device(self) -> tuple[tuple[Any, ...], uniforms.Draws]:
        """The fields of ``streams`` but the plan, and the keys of draws, copied once for all simulations there."""
        import jax

        return jax.device_put((self.streams[1:], self.draw_keys))


class AdaptiveGames(NamedTuple):
    """An adaptive environment with what it reads, and the keys of all draws."""

    environment: Adaptive
    pool: AdaptivePool
    objective: Objective  # [B, ...], but ``choices`` [tunables]
    keys: Any  # of the environment's draws, two uint32 [trials]
    draw_keys: uniforms.Draws


def padded_indices(copy_count: int) -> NDArray[np.intp]:
    """Return the indices of B copies, repeated from the first on to whole tiles."""
    return np.arange(-(-copy_count // TILE) * TILE) % copy_count


def select_rates(rates: Rates, blocks: NDArray[np.uint32]) -> Rates:
    """Select the rates of blocks, by number [K], from those of the horizon; gamma is 0 if there is eta alone."""
    # the last chunk may have blocks past the horizon, whose rounds are inactive: any rate will do
    eta, gamma = (x[np.minimum(blocks, len(x) - 1)] for x in rates)
    return Rates(eta, np.where(np.isnan(eta), gamma, np.nan_to_num(gamma)))


def blocks_per_chunk(game_count: int, on_host: bool = True) -> int:
    """Return the number of blocks of a chunk, in whole spans.

    ``game_count`` is the number of trials or, in an adaptive environment, of a learner's copies. ``on_host`` says
    whether the host makes records or counts what was asked.
    """
    span_blocks = SPAN // BLOCK
    rounds = (CHUNK if on_host else DEVICE_CHUNK) // game_count
    return max(span_blocks, rounds // SPAN * span_blocks)


def make_chunks(
    checkpoints: NDArray[np.int64], game_count: int, first_block: int = 0, on_host: bool = True
) -> Iterator[Chunk]:
    """Yield the chunks of the rounds up to the last checkpoint, from block ``first_block`` on.

    All have the same shape, so that a program compiles once; the last one is padded with inactive rounds.
    ``game_count`` and ``on_host`` are as in ``blocks_per_chunk``.
    """
    horizon = int(checkpoints[-1])
    blocks = -(-horizon // BLOCK)
    block_of = (checkpoints - 1) // BLOCK  # block of each checkpoint
    slots = int(np.bincount(block_of).max())
    count = min(blocks, blocks_per_chunk(game_count, on_host))
    for first in range(first_block, blocks, count):
        checkpoint_rounds = np.zeros((count, slots), np.int32)
        for k in np.unique(block_of[(block_of >= first) & (block_of < first + count)]):
            rounds = checkpoints[block_of == k] - k * BLOCK
            checkpoint_rounds[k - first, : len(rounds)] = rounds
        active = np.arange(count * BLOCK).reshape(count, BLOCK) < horizon - first * BLOCK
        yield Chunk(np.arange(first, first + count, dtype=np.uint32), active, checkpoint_rounds)


class NativeSimulation:
    """B copies of a learner on the backend ``native``; ``JaxSimulation`` has the same methods.

    B is a multiple of ``TILE``. ``state`` is the state [B, ...], perhaps with counts of streams [R, H];
    ``submit`` may invalidate it. It does not depend on threads.
    """

    def __init__(self, backend: NativeBackend, copies: Copies, start: Start, arms: int, stream_count: int) -> None:
        self.backend, self.copies = backend, copies
        self.state = backend.init(arms, start, stream_count)
        self.sums = Sums(np.zeros(len(start.arm), np.int64), np.zeros(len(start.arm)))
        self.questions: tuple[NDArray[Any], ...] = ()  # as in ``JaxSimulation``; an oblivious environment has none

    def saved_arrays(self) -> list[NDArray[Any]]:
        """Return the arrays that a save has, in order; it is restored by writing to them."""
        return [*(self.state if isinstance(self.state, tuple) else (self.state,)), *self.sums]

    def submit(self, chunk: Chunk, rates: Rates, records: native.RecordBlocks | None) -> None:
        """Begin to simulate a chunk at the rates [K] of its blocks, on its records, which the host made."""
        # kept until ``collect``: the threads write into it and into ``sums`` and ``state``
        self.checkpoint_sums = CheckpointSums.starting_from(self.sums, chunk.checkpoint_rounds)
        self.futures = self.backend.simulate(self.state, records, rates, self.copies, self.checkpoint_sums)

    def collect(self) -> Sums:
        """Wait for the chunk, and return the sums [K, S, B] at its checkpoints."""
        for future in self.futures:
            future.result()
        return self.checkpoint_sums.at_checkpoints


class BestArmCounter:
    """The arm of least loss of every trial, counted from the records on the host, chunk after chunk.

    ``best_loss`` [P, pairs, trials] is its cumulative loss at each of P checkpoints that was reached, ``best_arm``
    [pairs, trials] the arm at the last of these; a pair is an alpha with a lambda.
    """

    def __init__(
        self,
        record_stream: NDArray[np.integer],
        arms: int,
        checkpoints: NDArray[np.int64],
        answer_cost: Floats,
        abstain_cost: Floats,
    ) -> None:
        """Prepare round 1.

        Args:
            record_stream: [trials], the stream of records of each trial, in 0..R-1.
            arms, checkpoints: H, and rounds [P].
            answer_cost, abstain_cost: [pairs, 1], or [pairs, R] if they differ by stream.
        """
        self.by_cut = np.zeros((2, int(record_stream.max()) + 1, arms))  # number of rounds, sum of their errors
        self.record_stream, self.checkpoints = record_stream, checkpoints
        self.costs = answer_cost, abstain_cost
        shape = len(answer_cost), len(record_stream)
        self.best_loss, self.best_arm = np.empty((len(checkpoints), *shape)), np.empty(shape, np.int32)

    def saved_arrays(self) -> list[NDArray[Any]]:
        """Return the arrays that a save has."""
        return [self.by_cut, self.best_loss, self.best_arm]

    def best(self) -> BestArms:
        """Return the least losses and the arms after the last checkpoint, of all pairs x trials."""
        return self.best_loss.reshape(len(self.checkpoints), -1), self.best_arm.ravel()

    def submit(self, chunk: Chunk, records: native.RecordBlocks | None) -> None:
        """Take a chunk and its records, whose draws are not read."""
        assert records is not None
        self.chunk, self.cuts, self.errors = chunk, records.cuts, records.errors

    def collect(self) -> None:
        """Count the cuts and errors of the chunk in the order of rounds."""
        ends = self.checkpoints[self.chunk.checkpoint_slice(self.checkpoints)] - self.chunk.first_round
        arguments = self.cuts, self.errors, ends, self.chunk.round_count, self.costs, *self.by_cut
        self.keep(self.chunk, *native.find_best_arms(*arguments))

    def keep(self, chunk: Chunk, losses: Floats, arms: NDArray[np.int32]) -> None:
        """Keep the least losses and their arms at the checkpoints of a chunk, of each stream [..., R]."""
        if len(losses):
            self.best_loss[chunk.checkpoint_slice(self.checkpoints)] = losses[:, :, self.record_stream]
            self.best_arm[:] = arms[-1][:, self.record_stream]


class AskedCounter:
    """The best arms in hindsight of B copies, and sums by kind over the records that they were asked.

    They are counted on the host, since a program of JAX that also counts is many times slower (measured). Every
    copy is asked other records.
    """

    def __init__(self, copies: Copies, pool: AdaptivePool, checkpoints: NDArray[np.int64]) -> None:
        """Prepare round 1."""
        count, costs = len(copies.alpha), (copies.answer_cost[None], copies.abstain_cost[None])
        self.counter = BestArmCounter(np.arange(count), len(pool.grid), checkpoints, *costs)
        self.sums = {kind: np.zeros((len(checkpoints), count)) for kind in ASKED}  # at the checkpoints reached
        self.so_far = {kind: np.zeros(count) for kind in ASKED}
        self.middle = float(np.repeat(pool.cuts, pool.counts).mean())

    def saved_arrays(self) -> list[NDArray[Any]]:
        """Return the arrays that a save has."""
        return [*self.sums.values(), *self.so_far.values(), *self.counter.saved_arrays()]

    def count(self, chunk: Chunk, cut: NDArray[np.int32], error: Floats) -> None:
        """Count the cuts and errors [K C, B] of a chunk."""
        by_copy = np.ascontiguousarray(cut.T), np.ascontiguousarray(error.T)
        self.counter.submit(chunk, native.RecordBlocks(chunk.round_count, *by_copy, np.empty((0, 0))))
        self.counter.collect()
        rows = chunk.checkpoint_slice(self.counter.checkpoints)
        last = self.counter.checkpoints[rows] - chunk.first_round - 1  # rounds of the chunk that are checkpoints
        high = cut >= self.middle
        for kind, amount in zip(ASKED, (error, error * high, (1 - error) * ~high), strict=True):
            cumulative = self.so_far[kind] + np.cumsum(amount, axis=0)
            self.sums[kind][rows], self.so_far[kind] = cumulative[last], cumulative[-1]
