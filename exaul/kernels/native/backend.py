"""What all compiled loops share: threads, tiles of copies, the loop over rounds, and the sums of their answers.

The FDR (eq. 2), the FDR risk (eq. 1) and the cumulative loss (eq. 4) are computed from the sums.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.game import BLOCK, LARGEST_STEP, SPAN, Copies, Rates, RuleParams, Start, Sums
from exaul.kernels.native.compile import compiled, outermost

SHARED = 4  # copies of one stream from which a shared path is faster than separate paths (measured)
SMALLEST_TILE = 8  # smallest number of copies of a tile with own records (chosen)
LARGEST_TILES = 32, 64  # largest number of copies of a tile, if ``by_arm`` is False and if it is True (measured)
BIT = np.array([0.0, 1.0])  # a product with a bit in place of a branch
TASK_STREAMS = 8  # streams of a task for one thread (chosen)
PADDING = 16  # columns (chosen): rows that are a power of two long compete for the same cache sets


def processor_count() -> int:
    """Return the number of usable processors, at most OMP_NUM_THREADS, which clusters set; at least 1."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(processors, int(limit))) if limit.isdecimal() else processors


@cache
def threads() -> ThreadPoolExecutor:
    """Return the threads of this process, started at the first call: compiled loops release Python's lock."""
    return ThreadPoolExecutor(processor_count())


def run_in_tasks(count: int, task: Callable[[int, int], object]) -> None:
    """Call ``task(first, last)`` on threads, each for some of the streams 0..``count`` - 1."""
    firsts = range(0, count, TASK_STREAMS)
    list(threads().map(lambda first: task(first, min(first + TASK_STREAMS, count)), firsts))


class RecordBlocks(NamedTuple):
    """The rounds of R streams, in N >= ``round_count`` columns; ``TrialRecords.make`` pads them."""

    round_count: int  # number of rounds to simulate, the first columns
    cuts: NDArray[np.int32]  # [R, N] in 1..H-1: arms k < cut answer
    errors: NDArray[np.float64]  # [R, N] in [0, 1]
    draws: NDArray[np.float64]  # [U, N], uniforms of decisions in [0, 1), which counters do not read


class NativeBackend(NamedTuple):
    """A learner in compiled loops.

    Attributes:
        init: ``init(arms, start, streams)`` returns the state before round 1, a tree of arrays, of B copies
            from their ``Start``. ``streams`` is the number of streams of records.
        simulate: ``simulate(state, records, rates, copies, sums)`` starts to simulate the K blocks of
            ``records``, a ``RecordBlocks``, with rates [K], and returns futures. When all are done, the state and
            the ``CheckpointSums`` are updated in place.
    """

    init: Callable[[int, Start, int], Any]
    simulate: Callable[..., list[Future[Any]]]


class CheckpointSums(NamedTuple):
    """Sums of B copies, updated in place while K blocks are simulated, and their values at checkpoints."""

    # [K, S], after how many rounds of a block the sums are copied, in rising order; then zeros
    checkpoint_rounds: NDArray[np.int32]
    so_far: Sums  # [B]
    at_checkpoints: Sums  # [K, S, B]

    @staticmethod
    def starting_from(so_far: Sums, checkpoint_rounds: NDArray[np.int32]) -> "CheckpointSums":
        """Return these sums, before the first of K blocks."""
        shape = *checkpoint_rounds.shape, len(so_far.wrong)
        return CheckpointSums(checkpoint_rounds, so_far, Sums(np.zeros(shape, np.int64), np.zeros(shape)))


class Loop(NamedTuple):
    """A compiled loop over the rounds of L copies.

    Attributes:
        advance: from ``compile_loop``.
        workspace: ``workspace(size, count, precision)`` allocates its arrays, a tuple, for L = ``count``.
        by_arm: whether its state is [size, L], or [L, size].
    """

    advance: Callable[..., None]
    workspace: Callable[[int, int, str], tuple[Any, ...]]
    by_arm: bool = False


@compiled
def read_rounds(rows, streams, first, count, out):
    """Fill ``out`` [count, L] with the rounds from ``first`` on of the streams [L] among ``rows`` [R, N]."""
    for i in range(count):
        for c in range(streams.size):
            out[i, c] = rows[streams[c], first + i]


def compile_loop(advance_block: Callable[..., None]) -> Callable[..., None]:
    """Return the loop over the blocks of L copies.

    ``advance_block(first, count, period, state, cut, error, u, eta, gamma, copies, inputs, workspace, answered)``
    decides ``count`` records from round ``first`` on, with cut, error and u [256, L], fills ``answered`` [256, L],
    and learns; it computes weights anew every ``period`` rounds.
    """

    @outermost
    def advance(state, records, rates, copies, sums, periods, inputs, workspace, block_arrays):
        round_count, cuts, errors, uniforms = records
        cut, error, u, answered = block_arrays  # [256, L]
        answers, wrong = sums.so_far
        checkpoint_answers, checkpoint_wrong = sums.at_checkpoints
        copy_count = answers.size
        for block in range(periods.size):
            first = block * BLOCK
            count = min(BLOCK, round_count - first)
            read_rounds(cuts, copies.record_stream, first, count, cut)
            read_rounds(errors, copies.record_stream, first, count, error)
            read_rounds(uniforms, copies.draw_stream, first, count, u)
            advance_block(
                *(first, count, periods[block], state, cut, error, u, rates.eta[block], rates.gamma[block], copies),
                *(inputs, workspace, answered),
            )
            done, checkpoints = 0, sums.checkpoint_rounds.shape[1]
            for s in range(checkpoints + 1):
                end = min(count, sums.checkpoint_rounds[block, s]) if s < checkpoints else count
                for i in range(done, end):
                    for c in range(copy_count):
                        answers[c] += answered[i, c]
                        wrong[c] += error[i, c] if answered[i, c] else 0.0
                done = max(done, end)
                if s < checkpoints:
                    for c in range(copy_count):
                        checkpoint_answers[block, s, c], checkpoint_wrong[block, s, c] = answers[c], wrong[c]

    return advance


@compiled
def rule_params(copies, c, eta, gamma):
    """Return the numbers that a rule reads, of one copy at the learner's rates."""
    rates = eta * copies.eta_scale[c], gamma * copies.gamma_scale[c]
    return RuleParams(rates[0], rates[1], copies.alpha[c], copies.answer_cost[c], copies.abstain_cost[c], 1.0)


def no_losses(arms: int, start: Start, streams: int) -> NDArray[np.float64]:
    """Return the losses [B, H] before round 1."""
    return np.zeros((len(start.arm), arms))


class Tile(NamedTuple):
    """Copies that one task of a thread simulates."""

    numbers: NDArray[np.intp]  # [L]
    is_shared: bool  # whether they read one stream of records
    period_row: int  # of all its copies, in the periods of ``reweigh_periods``


def tree_sizes(arms: int) -> tuple[int, int]:
    """Return the number of leaves, a power of two, and the depth of the tree."""
    depth = max(1, (arms - 1).bit_length())
    return 1 << depth, depth


def tiles(record_stream: NDArray[np.integer], period_row: NDArray[np.intp], largest: Sequence[int]) -> list[Tile]:
    """Divide copies among tiles. At least ``SHARED`` copies of one stream get tiles of this stream alone.

    All copies of a tile have the same ``period_row`` [B]: their weights are computed anew in the same rounds. The
    largest number of copies of a tile is ``largest``: one number, or two, for own and for shared records.
    """
    result = []
    # sorted, so that the copies of a tile read few streams, and each stream is a slice
    by_stream = np.argsort(record_stream, kind="stable")
    for number in np.unique(period_row):
        copies = by_stream[period_row[by_stream] == number]
        stream = record_stream[copies]
        is_shared = (len(largest) > 1) & (np.bincount(stream)[stream] >= SHARED)
        separate, shared = copies[~is_shared], copies[is_shared]
        size = min(largest[0], max(SMALLEST_TILE, -(-len(separate) // processor_count())))
        result += [Tile(separate[n : n + size], False, int(number)) for n in range(0, len(separate), size)]
        streams = np.split(shared, np.flatnonzero(np.diff(record_stream[shared])) + 1) if shared.size else []
        for members in streams:
            size = min(largest[-1], -(-len(members) // (processor_count() if len(streams) == 1 else 1)))
            result += [Tile(members[n : n + size], True, int(number)) for n in range(0, len(members), size)]
    return result


def simulate_tiles(
    loops: Sequence[Loop],
    precision: str,
    inputs: tuple[Any, ...],
    state: NDArray[Any],
    records: RecordBlocks,
    rates: Rates,
    copies: Copies,
    sums: CheckpointSums,
) -> list[Future[Any]]:
    """Start to simulate B copies with states [B, size], as in ``NativeBackend.simulate``.

    Args:
        loops: one; or two, for own and for shared records, if the copies of a stream can share a path.
        precision: dtype of the weights and their sums.
        inputs: what ``advance_block`` reads beside the records: numbers of the rule, or the ranks of all records.
        state, records, rates, copies, sums: as in ``NativeBackend.simulate``.
    """
    periods, period_row = reweigh_periods(rates, copies.eta_scale, precision)

    def run(tile: Tile) -> None:
        numbers, loop = tile.numbers, loops[tile.is_shared]
        tile_state = np.ascontiguousarray(state[numbers].T) if loop.by_arm else state[numbers]
        tile_sums = CheckpointSums.starting_from(Sums(*(x[numbers] for x in sums.so_far)), sums.checkpoint_rounds)
        workspace, shape = loop.workspace(state.shape[1], len(numbers), precision), (BLOCK, len(numbers))
        block_arrays = tuple(np.zeros(shape, dtype) for dtype in (np.int32, float, float, bool))
        arguments = copies.take(numbers), tile_sums, periods[tile.period_row], inputs
        loop.advance(tile_state, records, rates, *arguments, workspace, block_arrays)
        state[numbers] = tile_state.T if loop.by_arm else tile_state
        for array, part in zip(
            (*sums.so_far, *sums.at_checkpoints), (*tile_sums.so_far, *tile_sums.at_checkpoints), strict=True
        ):
            array[..., numbers] = part

    largest = [LARGEST_TILES[x.by_arm] for x in loops]
    return [threads().submit(run, tile) for tile in tiles(copies.record_stream, period_row, largest)]


def reweigh_periods(
    rates: Rates, eta_scale: NDArray[np.float64], precision: str
) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Return after how many rounds weights are computed anew in each block, [rows, K], and each copy's row [B].

    It is 1,024 in float64 where eta is constant over a span, else 256, and less where a weight could underflow in
    between: always a power of two, which depends on a copy's rates alone.
    """
    scales, scale_index = np.unique(eta_scale, return_inverse=True)
    eta, blocks = np.nan_to_num(rates.eta), np.arange(len(rates.eta))
    spans = blocks // (SPAN // BLOCK)  # chunks begin with a whole span
    is_constant = np.bincount(spans, eta != eta[spans * (SPAN // BLOCK)])[spans] == 0
    with np.errstate(over="ignore", divide="ignore"):  # eta is unlimited
        limit = LARGEST_STEP[precision] / (eta * scales[:, None])
    longest = np.where(is_constant & (precision == "float64"), SPAN, BLOCK)
    periods = 2.0 ** np.floor(np.log2(np.clip(limit, 1, longest)))
    rows, row_of_scale = np.unique(periods.astype(np.int64), axis=0, return_inverse=True)
    return rows, row_of_scale.reshape(-1)[scale_index]
