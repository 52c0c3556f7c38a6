"""Simulate one copy of a rule that changes the weights on both sides of a cut.

This is the update of Algorithms "ExAUL" and "EW-CA", 16 rounds at a time, on groups (``groups.py``):

    H arms -> at most 257 groups, for 256 rounds -> at most 65, for 64 rounds -> at most 17, for 16 rounds

Every round multiplies the 17 sums by two factors. After 16 and after 64 rounds, each sum of the level before is
multiplied by the change of its group. ``native/tiles.py`` draws these levels.
"""

from typing import NamedTuple

from exaul.kernels.backends.cuda import groups
from exaul.kernels.backends.cuda.loops import StepKernel, WorkspaceSizes
from exaul.kernels.backends.cuda.target import Function, Target
from exaul.kernels.game import ROUNDS

MIDDLE, INNER = 64, 16
WORD = 32  # arms of a word
SUMMING = 4  # lanes over which the sums of 16 rounds are divided: fewer exchanges, and more additions in each lane
# Offsets in ``Workspace.sums``: current sums of the groups of 256 rounds; of 64 rounds, now and at their start; the
# same of 16 rounds; and heads of words.
OUTER_AT = 0
MIDDLE_AT = OUTER_AT + ROUNDS + 1
MIDDLE_THEN_AT = MIDDLE_AT + MIDDLE + 1
INNER_AT = MIDDLE_THEN_AT + MIDDLE + 1
INNER_THEN_AT = INNER_AT + INNER + 1
HEADS_AT = INNER_THEN_AT + INNER + 1


class TwoSidedStep(NamedTuple):
    """The functions of one type of rule on groups.

    Attributes:
        start: as of ``groups.compile_for``, where the items are the state of a copy.
        step: as of ``groups.compile_for``.
        begin: ``begin(own, arms)`` returns the carry of a block.
        charge: ``charge(own, cut, u, e, low, high, carry, parameters)`` computes a round from the sums of weights
            below the cut and above it. It returns the carry, whether the copy answered, the probability of
            answering, and the factors of the weights below and above.
        end: ``end(own, arms, eta, total, carry)`` updates the state after a block, at whose end the weights sum to
            ``total``.
    """

    start: Function
    step: Function
    begin: Function
    charge: Function
    end: Function


def ceil_div(items: int, width: int) -> int:
    """Return ``items / width``, rounded up."""
    return -(-items // width)


def inner_width(lanes: int) -> int:
    """Return the number of groups per word, 8 or 32: few if the lanes of a team share the words of a copy."""
    return WORD if lanes == 1 else 8


def sizes(lanes: int) -> WorkspaceSizes:
    """Return the sizes as of ``RuleKernel``."""
    heads = ceil_div(ROUNDS + 1, inner_width(lanes))
    words = heads + ceil_div(MIDDLE + 1, inner_width(lanes))
    wide = lambda arms: ceil_div(arms, WORD)  # noqa: E731
    each = ceil_div(INNER + 1, min(lanes, SUMMING))
    return WorkspaceSizes(ROUNDS, words, HEADS_AT + heads, each, wide, wide)


def compile_for(target: Target, sides: TwoSidedStep) -> StepKernel:
    """Return the functions of a round for a target, with those of a rule inlined (line "Update" of "ExAUL").

    The carry is the numbers of groups of 256, of 64 and of 16 rounds, the rank of the round, and the rule's own
    carry. The lanes of a copy share all levels but the last. Of the sums of 16 rounds, every S-th is in
    ``lane_sums`` of a lane, where S is ``SUMMING`` or the number of lanes if that is less. Lanes with the same
    number modulo S hold the same sums.
    """
    compiled, number, word = target.compiled, target.number, target.word
    lanes, lane, sync, both = target.team.lanes, target.team.lane, target.team.sync, target.team.both
    begin_block, charge, finish = sides.begin, sides.charge, sides.end
    summing = min(lanes, SUMMING)

    @compiled
    def no_start(items, first, last, base):
        return 0.0, 0.0

    @compiled
    def itself(items, k, size, carry, eta):
        return carry, items[k]

    wide = groups.compile_for(target, WORD, sides.start, sides.step)
    narrow = groups.compile_for(target, inner_width(lanes), no_start, itself)
    split_arms, collapse_arms = wide.split, wide.collapse
    split, collapse, spread, ratios = narrow
    heads = ceil_div(ROUNDS + 1, inner_width(lanes))  # words of the groups of 256 rounds
    inner_each = ceil_div(INNER + 1, summing)

    @compiled
    def own_group(j):
        """Return the number of the group whose sum is ``lane_sums[j]`` of the caller."""
        return word((lane() & (summing - 1)) + j * summing)

    @compiled
    def begin(own, arms, workspace, rounds, eta):
        # ``split`` replaces cuts by ranks in place: from here on, ranks count groups of 256 rounds, then of 64,
        # then of 16.
        outer = split_arms(workspace.ranks, 0, rounds, arms, workspace.wide_words, workspace.wide_counts_before)
        sums = workspace.sums
        collapse_arms(own, eta, arms, workspace.wide_words, workspace.wide_counts_before, workspace.wide_sums, sums)
        return outer, word(0), word(0), word(0), begin_block(own, arms)

    @compiled
    def begin_piece(workspace, first, last, rounds, carry):
        """Collapse the groups of 256 rounds to those of 64, where these begin, and those to the groups of 16."""
        outer, middle, _, _, more = carry
        sums, words, befores = workspace.sums, workspace.words, workspace.counts_before
        mid, then, small = sums[MIDDLE_AT:], sums[MIDDLE_THEN_AT:], sums[INNER_THEN_AT:]
        if first & (MIDDLE - 1) == 0:
            end = word(min(word(first + MIDDLE), rounds))
            middle = split(workspace.ranks, first, end, outer, words, befores)
            collapse(sums, 0.0, outer, words, befores, sums[HEADS_AT:], mid)
            g = word(lane())
            while g < middle:
                then[g] = mid[g]
                g = word(g + lanes)
        inner_words, inner_befores = words[heads:], befores[heads:]
        inner = split(workspace.ranks, first, last, middle, inner_words, inner_befores)
        collapse(mid, 0.0, middle, inner_words, inner_befores, sums[HEADS_AT:], small)
        for j in range(inner_each):
            # A lane multiplies its own sums without waiting for others. Groups beyond the last are 0 and change no
            # sum.
            g = own_group(j)
            workspace.lane_sums[j] = small[g] if g < inner else number(0.0)
        return outer, middle, inner, word(workspace.ranks[first]), more

    @compiled
    def end_piece(workspace, last, rounds, carry):
        """Update the groups of 64 rounds and, at the end of their rounds, the groups of 256."""
        if last == rounds:
            return  # nothing reads the groups any more
        outer, middle, inner, _, _ = carry
        sums, words, befores = workspace.sums, workspace.words, workspace.counts_before
        mid, then, small = sums[MIDDLE_AT:], sums[MIDDLE_THEN_AT:], sums[INNER_THEN_AT:]
        for j in range(inner_each):
            g = own_group(j)
            if g < inner:  # lanes with the same sums write the same
                sums[word(INNER_AT + g)] = workspace.lane_sums[j]
        sync()
        ratios(sums[INNER_AT:], small, inner)
        spread(mid, middle, words[heads:], befores[heads:], small)
        # "then" are the sums of 64 rounds at their start, "mid" those now.
        if last & (MIDDLE - 1) == 0:
            ratios(mid, then, middle)
            spread(sums, outer, words, befores, then)

    @compiled
    def step(own, arms, workspace, i, cut, u, e, carry, parameters):
        outer, middle, inner, rank, more = carry
        # Read now, so that the next round need not wait. After the last round of a piece it is not used.
        next_rank = word(workspace.ranks[word(min(word(i + 1), word(ROUNDS - 1)))])
        mine, low, high = workspace.lane_sums, number(0.0), number(0.0)
        for j in range(inner_each):
            below = own_group(j) < rank
            low += mine[j] if below else number(0.0)
            high += number(0.0) if below else mine[j]
        # Both sums over lanes at once: the latencies of the exchanges overlap.
        low, high = both(low, high, summing)
        more, answers, P, under, over = charge(own, cut, u, e, low, high, more, parameters)
        for j in range(inner_each):
            mine[j] *= under if own_group(j) < rank else over
        return (outer, middle, inner, next_rank, more), answers, P, 0.0

    @compiled
    def end(own, arms, workspace, rounds, eta, carry):
        _, _, _, _, more = carry
        # The weights' sum at the end of the block; the state is normalised by it.
        total = number(0.0)
        for j in range(inner_each):
            total += workspace.lane_sums[j]
        total, _ = both(total, total, summing)
        sync()
        finish(own, arms, eta, total, more)
        sync()

    return StepKernel(begin, begin_piece, step, end_piece, end)
