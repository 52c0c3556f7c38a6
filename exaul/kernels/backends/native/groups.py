"""Find groups of arms that keep their ratios over some rounds, and sum weights over them.

A round multiplies the weights of all arms below its cut by one number and of all others by another (line "Update"
of Algorithm "ExAUL"). Over some rounds, the arms between two neighbouring cuts therefore keep their ratios, and one
sum replaces their weights without loss:

    cuts of 4 rounds          5       9           16              (5 twice)
    arms             0 1 2 3 4|5 6 7 8|9 10 ... 15|16 17 18 19
    groups               0    |   1   |     2     |     3
    ranks of cuts             1       2           3               number of groups below a cut

Items are arms, or the groups of the level before (``tiles.py``). Sums run from low items to high ones; results
depend on this order in their last bits.

Weights are [., L] if the L lanes of a tile share their records, and so their groups. If each lane reads its own
records, they are [L, .], so that the items of one lane are contiguous in memory.
"""

from typing import Any, NamedTuple

import numpy as np

from exaul.kernels.backends.native.arithmetic import exp, ones
from exaul.kernels.backends.native.compile import compiled, outermost
from exaul.kernels.game import SPAN

LEVELS = (SPAN, 256, 64, 16)  # rounds of a piece of each level
INNER = LEVELS[-1]


class LevelGroups(NamedTuple):
    """The groups of every level for R streams of N rounds, level after level.

    A level divides the rounds into pieces of equal length. Each piece has its own groups: of arms at the first
    level, of the groups of the level before at later ones.
    """

    rounds: Any  # [levels] int64, rounds of a piece, each a multiple of the next
    most_items: Any  # [levels] int64, the largest number of items that a piece divides into groups
    members_at: Any  # [levels] int64, the level's first column of ``members``, which has ``most_items`` a piece
    counts_at: Any  # [levels] int64, the level's first column of ``group_counts``, which has one a piece
    members: Any  # [R, .] uint16, the group of each item
    group_counts: Any  # [R, .] int32, the number of groups of each piece
    ranks: Any  # [R, N] int32, the number of groups of the last level below each round's cut


@compiled
def _split(values, size, members, ranks, bits, before):
    """Split 0..size-1 into groups at the distinct values of some rounds, and return the number of groups.

    Values are in 1..size-1. ``members[k]`` becomes the group of k, and ``ranks[i]`` the number of groups below the
    value of round i. ``ranks`` may be ``values``. ``bits`` and ``before`` are overwritten.
    """
    words = (size + 63) // 64
    for w in range(words):
        bits[w] = 0
    # One bit per item: a group begins at every cut. Equal cuts set the same bit, so nothing is sorted or
    # deduplicated.
    for value in values:
        bits[value >> 6] |= np.int64(1) << (value & 63)
    group = 0
    for w in range(words):
        before[w] = group
        for k in range(w * 64, min(w * 64 + 64, size)):
            group += (bits[w] >> (k & 63)) & 1
            members[k] = group
    for i in range(values.size):
        value = values[i]
        # Bits 0 to value: as group 0 has no bit, their number is that of the groups below the value. For bit 63 the
        # shift overflows to 0, and 0 - 1 sets all bits, as it should.
        up_to = (np.int64(2) << (value & 63)) - 1
        ranks[i] = before[value >> 6] + ones(bits[value >> 6] & up_to)
    return group + 1


@outermost
def split_streams(cuts, arms, rounds, levels):
    """Find the groups of every level for some streams of records.

    Args:
        cuts: [R, N] int32, each in 1..H-1.
        arms: [] H.
        rounds: [] number of rounds that are simulated, at most N.
        levels: a ``LevelGroups``, of which ``members``, ``group_counts`` and ``ranks`` are filled.
    """
    ranks, counts = levels.ranks, levels.group_counts
    bits, before = np.empty((2, max(arms, levels.rounds[0] + 1) // 64 + 1), np.int64)
    for s in range(cuts.shape[0]):
        for level in range(levels.rounds.size):
            length = levels.rounds[level]
            for first in range(0, rounds, length):
                here, piece = slice(first, min(first + length, rounds)), first // length
                members = levels.members[s, levels.members_at[level] + piece * levels.most_items[level] :]
                if level == 0:
                    count = _split(cuts[s, here], arms, members, ranks[s, here], bits, before)
                else:
                    whole = counts[s, levels.counts_at[level - 1] + first // levels.rounds[level - 1]]
                    # Ranks in, ranks out: this level's values are the ranks in the groups of the level before.
                    count = _split(ranks[s, here], whole, members, ranks[s, here], bits, before)
                counts[s, levels.counts_at[level] + piece] = count


@compiled
def collapse(weights, members, size, count, groups):
    """Sum weights over groups that all lanes share.

    Args:
        weights: [., L] of the items.
        members: [.], the group of each item.
        size: [] number of items.
        count: [] number of groups.
        groups: [., L], filled: the sums.
    """
    for g in range(count):
        for lane in range(groups.shape[1]):
            groups[g, lane] = 0
    for k in range(size):
        g = members[k]
        for lane in range(groups.shape[1]):
            groups[g, lane] += weights[k, lane]


@compiled
def spread(weights, members, size, count, after, before):
    """Multiply weights [., L] in place by the change of their groups, which all lanes share.

    ``after`` [., L] are the current sums of the groups, ``before`` [., L] those when the weights were collapsed;
    ``before`` is overwritten. The other arguments are as of ``collapse``.
    """
    for g in range(count):
        for lane in range(weights.shape[1]):
            # A sum that has underflowed to 0 stays 0; 0 / 0 would be NaN.
            then = before[g, lane]
            before[g, lane] = after[g, lane] / then if then > 0 else then
    for k in range(size):
        g = members[k]
        for lane in range(weights.shape[1]):
            weights[k, lane] *= before[g, lane]


@compiled
def collapse_each(weights, members, first_member, item_counts, stream_of_lane, most_groups, groups):
    """Sum weights over each lane's own groups.

    Args:
        weights: [L, .] of the items.
        members: [R, .], the group of each item of each stream.
        first_member: [] first column of ``members`` for this piece.
        item_counts: [L], number of items of each lane.
        stream_of_lane: [L], the stream of each lane.
        most_groups: [] largest number of groups.
        groups: [L, .], filled up to ``most_groups``: the sums, 0 after a lane's last group.
    """
    for lane in range(groups.shape[0]):
        stream = stream_of_lane[lane]
        for g in range(most_groups):
            groups[lane, g] = 0
        for k in range(item_counts[lane]):
            groups[lane, members[stream, first_member + k]] += weights[lane, k]


@compiled
def spread_each(weights, members, first_member, item_counts, stream_of_lane, most_groups, after, before):
    """Multiply weights [L, .] in place by the change of each lane's own groups.

    ``after`` and ``before`` are as of ``spread``, but [L, .]; the other arguments are as of ``collapse_each``.
    """
    for lane in range(weights.shape[0]):
        stream = stream_of_lane[lane]
        for g in range(most_groups):
            then = before[lane, g]
            before[lane, g] = after[lane, g] / then if then > 0 else then
        for k in range(item_counts[lane]):
            weights[lane, k] *= before[lane, members[stream, first_member + k]]


@compiled
def count_items(levels, level, first, arms, stream_of_lane, item_counts):
    """Fill ``item_counts`` [L] with the numbers of items that a piece divides into groups; return the first lane's.

    Args:
        levels: a ``LevelGroups``.
        level: [] the level of the piece.
        first: [] first round of the piece.
        arms: [] H.
        stream_of_lane: [L], the stream of each lane.
        item_counts: [L], filled.
    """
    for lane in range(stream_of_lane.size):
        if level == 0:
            item_counts[lane] = arms
        else:
            piece = levels.counts_at[level - 1] + first // levels.rounds[level - 1]
            item_counts[lane] = levels.group_counts[stream_of_lane[lane], piece]
    return item_counts[0]


@compiled
def copy(values, into):
    """Copy ``values`` [M, N] into a larger array element by element: less code than a slice assignment."""
    for k in range(values.shape[0]):
        for j in range(values.shape[1]):
            into[k, j] = values[k, j]


@compiled
def masses(groups, count, rank, shared, low, high):
    """Sum the weights of the groups below each lane's cut, and those of the others.

    Args:
        groups: [., L] weights of the groups.
        count: [] number of groups.
        rank: [L], number of groups below each lane's cut.
        shared: [] bool, whether all lanes have the same rank.
        low: [L], filled: the sum below the cut.
        high: [L], filled: the sum above it.
    """
    for lane in range(low.size):
        low[lane] = 0
        high[lane] = 0
    if shared:
        for g in range(rank[0]):
            for lane in range(low.size):
                low[lane] += groups[g, lane]
        for g in range(rank[0], count):
            for lane in range(low.size):
                high[lane] += groups[g, lane]
    else:
        for g in range(count):
            for lane in range(low.size):
                # Select instead of branching, so that lanes with different ranks stay in one vector.
                weight = groups[g, lane]
                below = g < rank[lane]
                low[lane] += weight if below else 0
                high[lane] += 0 if below else weight


@compiled
def shrink(groups, count, rank, shared, low, high):
    """Multiply the weights of the groups in place: by ``low`` [L] below each lane's cut, by ``high`` [L] above it.

    The other arguments are as of ``masses``.
    """
    if shared:
        for g in range(rank[0]):
            for lane in range(low.size):
                groups[g, lane] *= low[lane]
        for g in range(rank[0], count):
            for lane in range(low.size):
                groups[g, lane] *= high[lane]
    else:
        for g in range(count):
            for lane in range(low.size):
                below, above = low[lane], high[lane]
                groups[g, lane] *= below if g < rank[lane] else above


@compiled
def weigh(differences, eta, total, least, weights):
    """Fill ``weights`` [H, L] with ``w_k = exp(-eta (L_k - min L))``, in [0, 1], from ``differences`` [H, L].

    ``differences[k]`` is ``L_k - L_{k-1}``, float64; row 0 is ignored, as if L_0 = 0. ``total`` and ``least`` [L]
    are overwritten; eta [] > 0.
    """
    for lane in range(total.size):
        total[lane] = 0
        least[lane] = 0
    for k in range(1, differences.shape[0]):
        for lane in range(total.size):
            total[lane] += differences[k, lane]
            least[lane] = min(least[lane], total[lane])
    for lane in range(total.size):
        total[lane] = 0
        # The largest weight is exp(0) = 1, so no weight overflows, however large the losses are.
        weights[0, lane] = exp(eta * least[lane])
    for k in range(1, differences.shape[0]):
        for lane in range(total.size):
            total[lane] += differences[k, lane]
            weights[k, lane] = exp(eta * (least[lane] - total[lane]))
