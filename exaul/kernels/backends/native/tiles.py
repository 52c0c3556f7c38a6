"""Simulate tiles of copies whose rounds change the weights on both sides of a cut.

This is the update of Algorithms "ExAUL" and "EW-CA", 16 rounds at a time. The inner loops run over the lanes of a
tile, one copy per lane, so that they vectorise.

Arms collapse to groups, level by level (``groups.py`` shows why nothing is lost). A level starts a new piece
whenever its number of rounds has passed, and rounds are computed on the groups of the last level:

    weights of arms    ........................................   H
       | collapse every 1,024 rounds
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
from exaul.kernels.game import ROUNDS, SPAN, Copies, Outcome, Rates, Start

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
    """

    begin: Callable[..., Any]
    charge: Callable[..., Any]
    store: Callable[..., Any]


class TileWorkspace(NamedTuple):
    """Workspace arrays of a tile of L copies. Dtypes are the precision of the weights unless stated."""

    weights: Any  # [H, L], of the arms
    # Sums of the groups of each level, now and when they were collapsed: [levels, SPAN + 16, L] if the lanes share
    # their records, else [levels, L, SPAN + 16], so that the groups of a lane are contiguous (``groups.py``).
    after: Any
    before: Any
    last_level: Any  # [17, L], the sums of the last level if lanes do not share records, with lanes side by side
    low: Any  # [L], sum of the weights below the cut; then their factor
    high: Any  # [L], sum of the weights above the cut; then their factor
    rank: Any  # [L] int64, number of groups below the cut
    stream_of_lane: Any  # [L] int64, the stream of records
    item_counts: Any  # [L] int64, number of items of a piece
    u: Any  # [L] float64, uniforms of a round
    e: Any  # [L] float64, errors of a round; then probabilities of answering
    number: Any  # [L] float64, as of ``TileRule``


def _compile(sides: TileRule) -> Callable[..., Any]:
    """Return the loop over the rounds of a tile, with the functions of a rule inlined."""
    begin, charge, store = sides

    @outermost
    def simulate(shared, l0, state, records, levels, rates, copies, tally, out, workspace):
        cuts, errors, uniforms, rounds = records
        piece_rounds, most_items, members_at, counts_at, members, group_counts, ranks = levels
        draw_stream, answered, probability = copies.draw_stream, out.answered, out.probability
        weights, after, before, number = workspace.weights, workspace.after, workspace.before, workspace.number
        low, high, rank, u, e = workspace.low, workspace.high, workspace.rank, workspace.u, workspace.e
        stream_of_lane, item_counts = workspace.stream_of_lane, workspace.item_counts
        # Aliases: ``charge`` overwrites its inputs (errors, sums) with its results, which saves three arrays in the
        # innermost loops.
        chance, factor_below, factor_above = e, low, high
        arms, lanes, last = weights.shape[0], low.size, piece_rounds.size - 1
        for lane in range(lanes):
            stream_of_lane[lane] = copies.record_stream[l0 + lane]
        stream = stream_of_lane[0]  # that of all lanes, if shared

        for first in range(0, rounds, INNER):
            start = first // piece_rounds[0] * piece_rounds[0]
            end = min(start + piece_rounds[0], rounds)
            # Constant over a span: it is one block, or ``steady`` has found the same rates in all blocks.
            eta, gamma = rates.eta[start // ROUNDS], rates.gamma[start // ROUNDS]
            if first == start:
                begin(state, eta, u, e, number, weights)
            # Collapse from the arms down: the level before is up to date when a level collapses it.
            for level in range(piece_rounds.size):
                if first % piece_rounds[level] == 0:
                    piece = first // piece_rounds[level]
                    first_member = members_at[level] + piece * most_items[level]
                    items = count_items(levels, level, first, arms, stream_of_lane, item_counts)
                    sums, most_groups = after[level], piece_rounds[level] + 1
                    if shared:
                        count = group_counts[stream, counts_at[level] + piece]
                        group_of_item = members[stream, first_member:]
                        if level == 0:
                            collapse(weights, group_of_item, items, count, sums)
                        else:
                            collapse(after[level - 1], group_of_item, items, count, sums)
                    elif level == 0:
                        collapse_each(
                            weights.T, members, first_member, item_counts, stream_of_lane, most_groups, sums
                        )
                    else:
                        collapse_each(
                            after[level - 1], members, first_member, item_counts, stream_of_lane, most_groups, sums
                        )
                    if shared:
                        copy(sums[:count], before[level])  # the sums at the start, for ``spread``
                    else:
                        copy(sums[:, :most_groups], before[level])
            if shared:
                inner, count = after[last], group_counts[stream, counts_at[last] + first // INNER]
            else:
                # Lanes have different numbers of groups. Groups beyond a lane's last are 0 and change no sum. The
                # transposed copy puts lanes side by side in memory, so that the loops below vectorise.
                inner, count = workspace.last_level, INNER + 1
                copy(after[last, :, :count].T, inner)
            for i in range(first, min(first + INNER, end)):
                for lane in range(lanes):
                    rank[lane] = ranks[stream_of_lane[lane], i]
                    u[lane] = uniforms[i, draw_stream[l0 + lane]]
                    e[lane] = errors[stream_of_lane[lane], i]
                masses(inner, count, rank, shared, low, high)
                charge(state, l0, eta, gamma, copies, u, e, number, low, high)
                # Without an outcome, these arrays hold one block and one row, which later rounds overwrite.
                row, other = i % answered.shape[0], i % probability.shape[0]
                for lane in range(lanes):
                    answered[row, out.first + lane] = u[lane] < chance[lane]
                    probability[other, out.first + lane] = chance[lane]
                if shared:
                    cut = cuts[stream, i]
                    for lane in range(lanes):
                        store(state, cut, lane, number)
                else:
                    for lane in range(lanes):
                        store(state, cuts[stream_of_lane[lane], i], lane, number)
                # ``inner`` is a view of ``after[last]`` if the tile is shared, so this updates the last level in
                # place.
                shrink(inner, count, rank, shared, factor_below, factor_above)
            if not shared:
                copy(inner, after[last].T)
            done = min(first + INNER, end)
            # Spread from the last level up, the reverse of collapsing: a level's sums must be final before they are
            # compared with ``before``. At the end of a span, nothing is spread: the state contains every charge
            # already, and the next span computes its weights from it.
            for level in range(last, 0, -1):
                if done % piece_rounds[level] == 0 and done != end:  # of the span
                    piece = first // piece_rounds[level]
                    first_member = members_at[level] + piece * most_items[level]
                    items = count_items(levels, level, first, arms, stream_of_lane, item_counts)
                    now, then, most_groups = after[level], before[level], piece_rounds[level] + 1
                    if shared:
                        count = group_counts[stream, counts_at[level] + piece]
                        spread(after[level - 1], members[stream, first_member:], items, count, now, then)
                    else:
                        spread_each(
                            after[level - 1],
                            members,
                            first_member,
                            item_counts,
                            stream_of_lane,
                            most_groups,
                            now,
                            then,
                        )
            if done % ROUNDS == 0 or done == rounds:
                block = (done - 1) // ROUNDS
                add_block(answered, errors, block * ROUNDS, done, block, tally, out.first, l0, stream_of_lane)

    return simulate


def _allocate_workspace(arms: int, lanes: int, precision: str, shared: bool) -> TileWorkspace:
    # At most SPAN + 1 groups, padded to SPAN + 16: rows of a power of two compete for the same cache sets.
    shape = (SPAN + 16, lanes) if shared else (lanes, SPAN + 16)
    after, before = (np.empty((len(LEVELS), *shape), precision) for _ in range(2))
    rows = [np.empty(lanes, kind) for kind in (precision, precision, *3 * [np.int64], *3 * [np.float64])]
    weights, last_level = np.empty((arms, lanes), precision), np.empty((INNER + 1, lanes), precision)
    return TileWorkspace(weights, after, before, last_level, *rows)


def make_tiled_backend(
    sides: TileRule,
    precision: str,
    steady: Callable[[NDArray[Any], NDArray[Any]], bool],
    **fields: Any,
) -> NativeBackend:
    """Return the backend whose state is one float64 array [H, L], at first of zeros, for each tile of L copies.

    Args:
        sides: the step of the rule.
        precision: dtype of the weights and their sums, ``float64`` or ``float32``.
        steady: ``steady(eta, gamma)``, of the rates [K] of some blocks, returns whether the weights may be computed
            once per 1,024 rounds instead of once per block of 256.
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
        arms = len(state[0])
        levels = rounds.groups(arms, LEVELS if steady(*rates) else LEVELS[1:])
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
                levels,
                rates,
                copies,
                tally,
                outcome_arrays(outcome, first, lanes, 1),
                scratch(_allocate_workspace, arms, lanes, precision, bool(shared)),
            )

        return [pool().submit(simulate_tile, n) for n in range(len(state))]

    def init(arms: int, start: Start, streams: int) -> list[NDArray[np.float64]]:
        # The loops for lanes with different records are slower, so tiles are wide only if all copies read one
        # stream. They are narrower again if some threads would have no tile.
        groups = -(-len(start.best) // LANES)
        widest = WIDEST // LANES if streams == 1 else 1
        each = max(1, min(widest, -(-groups // available())))
        widths = [LANES * min(each, groups - first) for first in range(0, groups, each)]
        return [np.zeros((arms, width)) for width in widths]

    def save(state: Any) -> NDArray[np.float64]:
        return np.concatenate(state, axis=-1)

    def restore(state: Any, saved: NDArray[np.float64]) -> Any:
        parts = np.split(saved, np.cumsum([part.shape[-1] for part in state])[:-1], axis=-1)
        return [np.ascontiguousarray(part) for part in parts]

    return NativeBackend(init, simulate, save=save, restore=restore, **fields)
