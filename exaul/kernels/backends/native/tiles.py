"""Simulate tiles of copies whose rounds change the weights on both sides of a cut.

This is the update of Algorithms "ExAUL" and "EW-CA", 16 rounds at a time. The inner loops run over the lanes of a
tile, one copy per lane, so that they vectorise.

Arms collapse to groups, level by level (``groups.py`` shows why nothing is lost). A level starts a new piece
whenever its number of rounds has passed, and rounds are computed on the groups of the last level:

    weights of arms    ........................................   H
       | collapse every 1,024 rounds                ^ spread (only if the state is the weights)
    groups, level 0    |....|..|.....|...|......|..|......|...|   at most 1,025
       | collapse every 256 rounds                  ^ spread
    groups, level 1    |.......|.........|......|.........|...|   at most 257
       | collapse every 64 rounds                   ^ spread
    groups, level 2    |.......|................|.........|...|   at most 65
       | collapse every 16 rounds                   ^ spread
    groups, level 3    |.......|................|.............|   at most 17
       every round: sum both sides of the cut, draw, multiply each side by its factor

"Collapse" sums the items of a group. "Spread" multiplies every item by the change of its group during the piece.
The level of 1,024 rounds is used only if the backend is ``steady``; otherwise arms collapse every 256 rounds.
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

WIDEST = 128  # largest number of copies of a tile; a wide one amortises what is done once per round


class TileRule(NamedTuple):
    """The step of one type of rule: compiled functions on a tile's state [., L], with L lanes.

    Attributes:
        begin: ``begin(state, eta, workspace, more_workspace, number, weights)`` fills the weights [H, L] of a span
            and ``number`` [L], one number per lane for the functions below. The workspaces [L] are overwritten.
        charge: ``charge(state, l0, eta, gamma, copies, u, e, number, low, high)`` computes a round of the copies
            from ``l0`` on, from the uniforms ``u``, the errors ``e``, and the sums of weights ``low`` below the cut
            and ``high`` above it, [L] each. It overwrites ``e`` with the probabilities of answering, and ``low``
            and ``high`` with the factors of the weights on their side. It may change ``number``.
        store: ``store(state, cut, lane, number)`` adds the round of one lane to the state.
        end: ``end(state, weights, number)`` replaces the state by the weights at the end of a span. Called only if
            ``spreads``.
        spreads: whether the state is the weights, rather than the sum of all charges.
    """

    begin: Callable[..., Any]
    charge: Callable[..., Any]
    store: Callable[..., Any]
    end: Callable[..., Any]
    spreads: bool


def _compile(sides: TileRule) -> Callable[..., Any]:
    """Return the loop over the rounds of a tile, with the functions of a rule inlined."""
    begin, charge, store, finish, spreads = sides

    @outermost
    def simulate(shared, l0, state, records, split, rates, copies, tally, out, scratch):
        cuts, errors, uniforms, rounds = records
        sizes, workspaces, members_at, counts_at, members, counts, ranks = split
        etas, gammas = rates
        record, draw = copies.record_stream, copies.draw_stream
        o0, answered, probability = out
        weights, after, before, each, low, high, rank, mine, many, u, e, number = scratch
        # Aliases: ``charge`` overwrites its inputs (errors, sums) with its results, which saves three arrays in the
        # innermost loops.
        chance, factor_below, factor_above = e, low, high
        arms, lanes, last = weights.shape[0], low.size, sizes.size - 1
        for lane in range(lanes):
            mine[lane] = record[l0 + lane]
        own = mine[0]

        for first in range(0, rounds, INNER):
            start = first // sizes[0] * sizes[0]
            end = min(start + sizes[0], rounds)
            # Constant over a span: it is one block, or ``steady`` has found the same rates in all blocks.
            eta, gamma = etas[start // ROUNDS], gammas[start // ROUNDS]
            if first == start:
                begin(state, eta, u, e, number, weights)
            # Collapse from the arms down: the level before is up to date when a level collapses it.
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
                        copy(here[:count], before[level])  # the sums at the start, for ``spread``
                    else:
                        copy(here[:, :most], before[level])
            if shared:
                inner, count = after[last], counts[own, counts_at[last] + first // INNER]
            else:
                # Lanes have different numbers of groups. Groups beyond a lane's last are 0 and change no sum. The
                # transposed copy puts lanes side by side in memory, so that the loops below vectorise.
                inner, count = each, INNER + 1
                copy(after[last, :, :count].T, inner)
            for i in range(first, min(first + INNER, end)):
                for lane in range(lanes):
                    rank[lane] = ranks[mine[lane], i]
                    u[lane] = uniforms[i, draw[l0 + lane]]
                    e[lane] = errors[mine[lane], i]
                masses(inner, count, rank, shared, low, high)
                charge(state, l0, eta, gamma, copies, u, e, number, low, high)
                # Without an outcome, these arrays hold one block and one row, which later rounds overwrite.
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
                # ``inner`` is a view of ``after[last]`` if the tile is shared, so this updates the last level in
                # place.
                shrink(inner, count, rank, shared, factor_below, factor_above)
            if not shared:
                copy(inner, after[last].T)
            done = min(first + INNER, end)
            # Spread from the last level up, the reverse of collapsing: a level's sums must be final before they are
            # compared with ``before``. At the end of a span, nothing is spread unless the state is the weights:
            # other states contain every charge already, and the next span computes its weights from them.
            for level in range(last, -1, -1):
                updates = level > 0 and done % sizes[level] == 0
                if done == end:  # of the span
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
    """Allocate the workspace of ``simulate``."""
    # At most SPAN + 1 groups, padded to SPAN + 16: rows of a power of two compete for the same cache sets.
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
    """Return the backend whose state is one float64 array [H + more, L] for each tile of L copies.

    Args:
        sides: the step of the rule.
        precision: dtype of the weights and their sums, ``float64`` or ``float32``.
        steady: ``steady(eta, gamma)``, of the rates [K] of some blocks, returns whether the weights may be computed
            once per 1,024 rounds instead of once per block of 256.
        column: ``column(arms)`` returns the state of one copy before round 1, [H + more].
        more: number of rows beyond the arms.
        fields: further fields of ``NativeBackend``.
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
        records = rounds.arrays  # drawn here: a thread of the pool that waited for the pool would deadlock
        first_lanes = np.cumsum([0, *(part.shape[1] for part in state)])

        def simulate_tile(n: int) -> None:
            first, lanes = int(first_lanes[n]), state[n].shape[1]
            shared = np.ptp(copies.record_stream[first : first + lanes]) == 0
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
        # The loops for lanes with different records are slower, so tiles are wide only if all copies read one
        # stream. They are narrower again if some threads would have no tile.
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
