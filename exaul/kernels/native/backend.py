"""What all native backends share: sums over rounds, tiles of copies, and the protocol of the engine.

The FDR (eq. 2), the FDR risk (eq. 1) and the cumulative loss (eq. 4) are computed from the sums.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.game import LARGEST_STEP, ROUNDS, SPAN, Copies, Rates, Start
from exaul.kernels.native.compile import compiled, disjoint
from exaul.kernels.native.records import RecordBlocks
from exaul.kernels.native.threads import available, pool, scratch

SHARED = 4  # copies of one stream from which a shared path is faster than paths of their own (measured)
NARROWEST = 8  # copies of a tile with own records, at least (chosen)
WIDEST = 32, 64  # copies of a tile with own and with shared records (measured)
BIT = np.array([0.0, 1.0])  # a product with a bit in place of a branch


class NativeBackend(NamedTuple):
    """A way to store the weights of B copies of a learner, and to simulate blocks of rounds with them on the CPU.

    Attributes:
        init: ``init(arms, start, streams)`` returns the state before round 1, a tree of arrays, of B copies
            from their ``Start``. ``streams`` is the number of streams of records.
        simulate: ``simulate(state, rounds, rates, copies, tally)`` starts to simulate the K blocks of
            ``rounds``, a ``RecordBlocks``, with rates [K], and returns futures. When all are done, the state and
            the ``CheckpointSums`` are updated in place.
    """

    init: Callable[[int, Start, int], Any]
    simulate: Callable[..., list[Future[Any]]]


class CheckpointSums(NamedTuple):
    """Sums over the answered rounds of B copies, updated in place while K blocks are simulated.

    The sums so far are copied at up to S checkpoints of each block.
    """

    # [K, S], after how many rounds of a block the sums are copied; 0: never
    checkpoint_rounds: NDArray[np.int32]
    answered: NDArray[np.int64]  # [B], number of answered rounds so far
    wrong: NDArray[np.float64]  # [B], sum of the errors of answered rounds so far
    answered_at_checkpoints: NDArray[np.int64]  # [K, S, B], copies of ``answered``
    wrong_at_checkpoints: NDArray[np.float64]  # [K, S, B], copies of ``wrong``


@compiled
def keep_one(i, copy, tally, answered, wrong):
    """After round i of a chunk, from 0, copy the sums so far of one copy if it is a checkpoint."""
    block = i // ROUNDS
    for s in range(tally.checkpoint_rounds.shape[1]):
        if tally.checkpoint_rounds[block, s] == i % ROUNDS + 1:
            tally.answered_at_checkpoints[block, s, copy] = answered
            tally.wrong_at_checkpoints[block, s, copy] = wrong


@disjoint
def load_sums(numbers, tally, totals, wrong):
    """Copy the sums so far of some copies, by number [L], to ``totals`` and ``wrong`` [L]."""
    for c in range(numbers.size):
        totals[c], wrong[c] = tally.answered[numbers[c]], tally.wrong[numbers[c]]


@disjoint
def store_sums(numbers, tally, totals, wrong):
    """Undo ``load_sums``."""
    for c in range(numbers.size):
        tally.answered[numbers[c]], tally.wrong[numbers[c]] = totals[c], wrong[c]


@disjoint
def add_round(answered, error, totals, wrong):
    """Add the answers of a round and their errors to the sums of L copies."""
    for c in range(totals.size):
        totals[c] += answered[c]
        wrong[c] += error[c] if answered[c] else 0.0


@disjoint
def keep_sums(i, block, numbers, tally, totals, wrong):
    """After round i of a block, from 0, copy the sums so far if it is a checkpoint."""
    for s in range(tally.checkpoint_rounds.shape[1]):
        if tally.checkpoint_rounds[block, s] == i + 1:
            for c in range(numbers.size):
                tally.answered_at_checkpoints[block, s, numbers[c]] = totals[c]
                tally.wrong_at_checkpoints[block, s, numbers[c]] = wrong[c]


class Tile(NamedTuple):
    """Copies that one task of a thread simulates."""

    copies: NDArray[np.int64]  # [L], their numbers
    is_shared: bool  # whether they read one stream of records
    group: int  # of ``rounds_between``


def tree_sizes(arms: int) -> tuple[int, int]:
    """Return the number of leaves, a power of two, and the depth of the tree."""
    depth = max(1, (arms - 1).bit_length())
    return 1 << depth, depth


def tiles(record_stream: NDArray[np.integer], group: NDArray[np.intp], can_share: bool) -> list[Tile]:
    """Divide copies among tiles: those of a stream together if it has enough of them, the others as they come.

    All copies of a tile have the same ``group`` [B], in which weights are computed anew in the same rounds.
    """
    made = []
    for number in np.unique(group):
        copies = np.flatnonzero(group == number)
        order = copies[np.argsort(record_stream[copies], kind="stable")]
        streams = np.split(order, np.flatnonzero(np.diff(record_stream[order])) + 1)
        together = [x for x in streams if can_share and len(x) >= SHARED]
        others = np.sort(np.concatenate([order[:0], *(x for x in streams if not (can_share and len(x) >= SHARED))]))
        width = min(WIDEST[0], max(NARROWEST, -(-len(others) // available())))
        made += [Tile(others[n : n + width], False, int(number)) for n in range(0, len(others), width)]
        for x in together:
            width = min(WIDEST[1], -(-len(x) // (available() if len(together) == 1 else 1)))
            made += [Tile(x[n : n + width], True, int(number)) for n in range(0, len(x), width)]
    return made


def make_backend(
    loops: Sequence[tuple[Callable[..., Any], Callable[..., Any]]],
    precision: str,
    how: Callable[[int], tuple[Any, ...]],
) -> NativeBackend:
    """Return the backend whose loops, with a function for their workspace, are for own and for shared records.

    Args:
        loops: one, or two if the copies of a stream can share a path.
        precision: dtype of the weights and their sums.
        how: ``how(arms)`` returns further arguments of the loops.
    """
    plans: list[tuple[Copies, NDArray[np.intp], list[Tile]]] = []  # one entry, of the copies of the last call

    def tiles_of(copies: Copies, group: NDArray[np.intp]) -> list[Tile]:
        if not plans or plans[0][0] is not copies or (plans[0][1] != group).any():
            plans[:] = [(copies, group, tiles(copies.record_stream, group, len(loops) > 1))]
        return plans[0][2]

    def simulate(
        losses: NDArray[np.float64],
        rounds: RecordBlocks,
        rates: Rates,
        copies: Copies,
        tally: CheckpointSums,
    ) -> list[Future[Any]]:
        arms = losses.shape[1]
        records = rounds.arrays  # drawn here: a thread of the pool that waited for the pool would deadlock
        every, group = rounds_between(rates, copies.eta_scale, precision)

        def run(tile: Tile) -> None:
            loop, arrays = loops[tile.is_shared]
            given = every[tile.group], *how(arms), tree_sizes(arms)
            workspace = scratch(arrays, arms, len(tile.copies), precision)
            loop(tile.copies, losses, records, rates, copies, tally, *given, workspace)

        return [pool().submit(run, tile) for tile in tiles_of(copies, group)]

    def init(arms: int, start: Start, streams: int) -> NDArray[np.float64]:
        return np.zeros((len(start.arm), arms))

    return NativeBackend(init, simulate)


def rounds_between(
    rates: Rates, eta_scale: NDArray[np.float64], precision: str
) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Return after how many rounds weights are computed anew in each block, [groups, K], and each copy's group [B].

    In float64 it is every 1,024 where eta is constant over a span, else every 256, and more often where a weight
    could underflow in between: always a power of two, which depends on nothing but a copy's own rates.
    """
    scales, of_scale = np.unique(eta_scale, return_inverse=True)
    eta, blocks = np.nan_to_num(rates.eta), np.arange(len(rates.eta))
    spans = blocks // (SPAN // ROUNDS)  # chunks begin with a whole span
    constant = np.bincount(spans, eta != eta[spans * (SPAN // ROUNDS)])[spans] == 0
    with np.errstate(over="ignore", divide="ignore"):  # eta is unlimited
        most = LARGEST_STEP[precision] / (eta * scales[:, None])
    longest = np.where(constant & (precision == "float64"), SPAN, ROUNDS)
    every = 2.0 ** np.floor(np.log2(np.clip(most, 1, longest)))
    groups, of_group = np.unique(every.astype(np.int64), axis=0, return_inverse=True)
    return groups, of_group.reshape(-1)[of_scale]
