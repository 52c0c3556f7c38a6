"""The loop that plays tiles of copies of a learner whose rounds change the weights on both sides of a cut.

H arms collapse to the groups of a piece of 1,024 rounds (256 unless the backend is ``steady``), those to the groups
of 256 rounds, then of 64, then of 16; rounds are played on the last. Every level's weights are linear, and are
multiplied by the change of their groups when a piece of the next level ends. The inner loops run over the lanes of
a tile, one copy each, so that they vectorise. It is the update of Algorithms "ExAUL" and "EW-CA", 16 rounds at a
time.
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.native.backend import LANES, NativeBackend
from exaul.kernels.backends.native.compile import outermost
from exaul.kernels.backends.native.groups import (
    INNER,
    LEVELS,
    collapse,
    collapse_each,
    copy,
    count_items,
    masses,
    shrink,
    spread,
    spread_each,
)
from exaul.kernels.backends.native.rounds import RecordBlocks
from exaul.kernels.backends.native.tally import CheckpointSums, add_block
from exaul.kernels.backends.native.threads import available, outcome_arrays, pool, scratch
from exaul.kernels.game import ROUNDS, SPAN, Copies, Outcome, Rates

WIDEST = 128  # copies of a tile, at most


class TileRule(NamedTuple):
    """How a type of rule plays in a tile: compiled functions of the tile's state [., L] and L lanes.

    Attributes:
        begin: ``begin(state, eta, room, more_room, number, weights)`` fills the weights [H, L] of a span, and sets
            ``number`` [L], a number of each lane for the functions below; ``room`` and ``more_room`` [L] are for it
            to work in.
        charge: ``charge(state, l0, eta, gamma, copies, u, e, number, low, high)`` plays a round of the copies
            from ``l0`` on, with the uniforms ``u``, the errors ``e``, and the sums of weights ``low`` below the cut
            and ``high`` above it, [L] each. It replaces ``e`` by the probabilities of answering, ``low`` and
            ``high`` by the factors of the weights on their side, and may change ``number``.
        store: ``store(state, cut, lane, number)`` adds the round of one lane to the state.
        end: ``end(state, weights, number)`` replaces the state by the weights at the end of a span. It is called,
            and the weights are brought up to date for it, only if ``spreads``.
        spreads: whether the state is the weights, rather than the sum of all charges.
    """

    begin: Callable[..., Any]
    charge: Callable[..., Any]
    store: Callable[..., Any]
    end: Callable[..., Any]
    spreads: bool


def _compile(sides: TileRule) -> Callable[..., Any]:
    """The loop over the rounds of a tile, with the functions of a learner's rule inlined."""
    begin, charge, store, finish, spreads = sides

    @outermost
    def simulate(shared, l0, state, records, split, rates, copies, tally, out, scratch):
        cuts, errors, uniforms, rounds = records
        sizes, workspaces, members_at, counts_at, members, counts, ranks = split
        etas, gammas = rates
        record, draw = copies.record, copies.draw
        o0, answered, probability = out
        weights, after, before, each, low, high, rank, mine, many, u, e, number = scratch
        chance, factor_below, factor_above = e, low, high  # the same arrays, once ``charge`` has replaced them
        arms, lanes, last = weights.shape[0], low.size, sizes.size - 1
        for lane in range(lanes):
            mine[lane] = record[l0 + lane]
        own = mine[0]

        for first in range(0, rounds, INNER):
            start = first // sizes[0] * sizes[0]
            end = min(start + sizes[0], rounds)
            eta, gamma = etas[start // ROUNDS], gammas[start // ROUNDS]
            if first == start:
                begin(state, eta, u, e, number, weights)
            for level in range(sizes.size):
                if first % sizes[level] == 0:
                    at = members_at[level] + first // sizes[level] * workspaces[level]
                    size = count_items(counts_at, sizes, level, first, counts, mine, arms, many)
                    here, most = after[level], sizes[level] + 1
                    if shared:
                        count, of = counts[own, counts_at[level] + first // sizes[level]], members[own, at:]
                        if level == 0:
                            collapse(weights, of, size, count, here)
                        else:
                            collapse(after[level - 1], of, size, count, here)
                    elif level == 0:
                        collapse_each(weights.T, members, at, many, mine, most, here)
                    else:
                        collapse_each(after[level - 1], members, at, many, mine, most, here)
                    if shared:
                        copy(here[:count], before[level])
                    else:
                        copy(here[:, :most], before[level])
            if shared:
                inner, count = after[last], counts[own, counts_at[last] + first // INNER]
            else:
                inner, count = each, INNER + 1
                copy(after[last, :, :count].T, inner)
            for i in range(first, min(first + INNER, end)):
                for lane in range(lanes):
                    rank[lane] = ranks[mine[lane], i]
                    u[lane] = uniforms[i, draw[l0 + lane]]
                    e[lane] = errors[mine[lane], i]
                masses(inner, count, rank, shared, low, high)
                charge(state, l0, eta, gamma, copies, u, e, number, low, high)
                row, other = i % answered.shape[0], i % probability.shape[0]
                for lane in range(lanes):
                    answered[row, o0 + lane] = u[lane] < chance[lane]
                    probability[other, o0 + lane] = chance[lane]
                if shared:
                    cut = cuts[own, i]
                    for lane in range(lanes):
                        store(state, cut, lane, number)
                else:
                    for lane in range(lanes):
                        store(state, cuts[mine[lane], i], lane, number)
                shrink(inner, count, rank, shared, factor_below, factor_above)
            if not shared:
                copy(inner, after[last].T)
            done = min(first + INNER, end)
            for level in range(last, -1, -1):
                updates = level > 0 and done % sizes[level] == 0
                if done == end:  # of the span: only a state made of weights needs them now
                    updates = spreads
                if updates:
                    at = members_at[level] + first // sizes[level] * workspaces[level]
                    size = count_items(counts_at, sizes, level, first, counts, mine, arms, many)
                    now, then, most = after[level], before[level], sizes[level] + 1
                    if shared:
                        count, of = counts[own, counts_at[level] + first // sizes[level]], members[own, at:]
                        if level == 0:
                            spread(weights, of, size, count, now, then)
                        else:
                            spread(after[level - 1], of, size, count, now, then)
                    elif level == 0:
                        spread_each(weights.T, members, at, many, mine, most, now, then)
                    else:
                        spread_each(after[level - 1], members, at, many, mine, most, now, then)
            if spreads and done == end:
                finish(state, weights, number)
            if done % ROUNDS == 0 or done == rounds:
                block = (done - 1) // ROUNDS
                add_block(answered, errors, block * ROUNDS, done, block, tally, o0, l0, mine)

    return simulate


def _tile_arrays(arms: int, lanes: int, precision: str, shared: bool) -> tuple[Any, ...]:
    """Arrays for ``play`` to work in; rows that are a power of two long would compete for the same cache sets."""
    workspace = SPAN + 16, lanes
    groups = [np.empty((len(LEVELS), *(workspace if shared else workspace[::-1])), precision) for _ in range(2)]
    rows = [np.empty(lanes, kind) for kind in (precision, precision, *3 * [np.int64], *3 * [np.float64])]
    return np.empty((arms, lanes), precision), *groups, np.empty((INNER + 1, lanes), precision), *rows


def make_tiled_backend(
    sides: TileRule,
    precision: str,
    steady: Callable[[NDArray[Any], NDArray[Any]], bool],
    column: Callable[[int], NDArray[np.float64]],
    more: int,
    **fields: Any,
) -> NativeBackend:
    """Make the backend whose state is one float64 array [H + more, L] for each tile of L copies.

    Args:
        sides: how a round is played.
        precision: dtype of the weights and their sums, ``float64`` or ``float32``.
        steady: ``steady(eta, gamma)``, of the rates [K] of some blocks, says whether weights may be computed once
            for 1,024 rounds, rather than once for each block of 256.
        column: ``record_stream(arms)`` is the state of one copy before round 1, [H + more].
        more: the number of rows beyond the arms.
        fields: further fields of ``NativeBackend``.

    Returns:
        The backend.
    """
    tile = _compile(sides)

    def simulate(
        state: Any,
        rounds: RecordBlocks,
        rates: Rates,
        copies: Copies,
        tally: CheckpointSums,
        outcome: Outcome | None = None,
    ) -> list[Future[Any]]:
        arms = len(state[0]) - more
        split = rounds.groups(arms, LEVELS if steady(*rates) else LEVELS[1:])
        records = rounds.arrays  # here, for the pool's threads may not wait for the pool
        first_lanes = np.cumsum([0, *(part.shape[1] for part in state)])

        def simulate_tile(n: int) -> None:
            first, lanes = int(first_lanes[n]), state[n].shape[1]
            shared = np.ptp(copies.record[first : first + lanes]) == 0
            tile(
                bool(shared),
                first,
                state[n],
                records,
                split,
                rates,
                copies,
                tally,
                outcome_arrays(outcome, first, lanes, 1),
                scratch(_tile_arrays, arms, lanes, precision, bool(shared)),
            )

        return [pool().submit(simulate_tile, n) for n in range(len(state))]

    def init(arms: int, best: NDArray[np.int32], streams: int) -> list[NDArray[np.float64]]:
        groups = -(-len(best) // LANES)
        widest = WIDEST // LANES if streams == 1 else 1
        each = max(1, min(widest, -(-groups // available())))
        widths = [LANES * min(each, groups - first) for first in range(0, groups, each)]
        return [np.repeat(column(arms)[:, None], width, axis=1) for width in widths]

    def save(state: Any) -> NDArray[np.float64]:
        return np.concatenate(state, axis=-1)

    def restore(state: Any, saved: NDArray[np.float64]) -> Any:
        parts = np.split(saved, np.cumsum([part.shape[-1] for part in state])[:-1], axis=-1)
        return [np.ascontiguousarray(part) for part in parts]

    return NativeBackend(init, simulate, save=save, restore=restore, **fields)
