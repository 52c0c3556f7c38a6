"""The loop of rules that change the weights on both sides of a cut, for one copy.

H arms collapse to the groups that 256 rounds tell apart, those to the groups of 64, and those to the groups of 16,
on which rounds are played. It is the update of Algorithms "ExAUL" and "EW-CA", 16 rounds at a time.
"""

from collections.abc import Callable
from typing import NamedTuple

from exaul.kernels.backends.cuda import groups
from exaul.kernels.backends.cuda.copies import StepKernel, WorkspaceSizes
from exaul.kernels.backends.cuda.target import Function, Target
from exaul.kernels.game import ROUNDS

MIDDLE, INNER = 64, 16
WORD = 32  # arms of a word
# Numbers of a room, one part after the other: the sums of the groups of 256 rounds now, of 64 now and then, of 16
# now, then heads of words, and the sums of 256 as they were, for rules whose state is the weights.
OUTER_AT = 0
MIDDLE_AT = OUTER_AT + ROUNDS + 1
MIDDLE_THEN_AT = MIDDLE_AT + MIDDLE + 1
INNER_AT = MIDDLE_THEN_AT + MIDDLE + 1
HEADS_AT = INNER_AT + INNER + 1


class SidedRule(NamedTuple):
    """How a type of rule plays on groups.

    Attributes:
        start: as of ``groups.written_for``, where the items are the state of a copy.
        step: likewise.
        begin: ``begin(own, arms)`` returns the carry of a block.
        charge: ``charge(own, cut, u, e, low, high, carry, parameters)`` plays a round, with the sums of weights
            below the cut and above it. It returns the carry, whether it answered, the probability of answering, and
            the factors of the weights below and above.
        end: ``end(own, arms, eta, total, carry)`` brings the state up to date, if the weights of a block sum to
            ``total`` now; it returns the factor and the addend of every weight of the state.
        weights: whether the state is the weights, so that they are brought up to date at the end of a block.
    """

    start: Function
    step: Function
    begin: Function
    charge: Function
    end: Function
    weights: bool


def words_of(items: int, width: int) -> int:
    """Count the words of some items.

    Args:
        items: a number of arms or groups, at least 1.
        width: items of a word.

    Returns:
        At least 1.
    """
    return -(-items // width)


def inner_width(lanes: int) -> int:
    """Find how many groups a word has: few where lanes share the words of a copy.

    Args:
        lanes: G, of a copy.

    Returns:
        8 or 32.
    """
    return WORD if lanes == 1 else 8


def sizes(weights: bool) -> Callable[[int], WorkspaceSizes]:
    """Find the sizes of the workspace, which has at most one group more than rounds.

    Args:
        weights: as of ``SidedRule``.

    Returns:
        ``sizes(lanes)``, as of ``RuleKernel``.
    """

    def of(lanes: int) -> WorkspaceSizes:
        heads = words_of(ROUNDS + 1, inner_width(lanes))
        words = heads + words_of(MIDDLE + 1, inner_width(lanes))
        numbers = HEADS_AT + heads + weights * (ROUNDS + 1)
        wide = lambda arms: words_of(arms, WORD)  # noqa: E731
        return WorkspaceSizes(ROUNDS, words, numbers, words_of(INNER + 1, lanes), wide, wide)

    return of


def compile_for(target: Target, sides: SidedRule) -> StepKernel:
    """Write the loop for a target.

    Args:
        target: what it is compiled for.
        sides: how a round changes weights.

    Returns:
        The loop.
    """
    compiled, number = target.compiled, target.number
    lanes, lane, sum_over, sync = target.team.lanes, target.team.lane, target.team.total, target.team.sync
    both = target.team.both
    begin_block, charge, finish, is_state = sides.begin, sides.charge, sides.end, sides.weights

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
    heads = words_of(ROUNDS + 1, inner_width(lanes))  # words of the groups of 256 rounds
    then_at = HEADS_AT + heads
    inner_each = words_of(INNER + 1, lanes)

    @compiled
    def begin(own, arms, workspace, rounds, eta):
        for i in range(lane(), rounds, lanes):
            workspace.ranks[i] = workspace.cuts[i]
        sync()
        outer = split_arms(workspace.ranks, 0, rounds, arms, workspace.wide_words, workspace.wide_counts_before)
        sums = workspace.sums
        collapse_arms(own, eta, arms, workspace.wide_words, workspace.wide_counts_before, workspace.wide_sums, sums)
        if is_state:
            for g in range(lane(), outer, lanes):
                sums[then_at + g] = sums[g]
        return outer, 0, 0, begin_block(own, arms)

    @compiled
    def open_piece(workspace, i, rounds, outer, middle):
        """Collapse the groups of 256 rounds to those of 64, and those to the groups of 16, where they begin."""
        sums, words, befores = workspace.sums, workspace.words, workspace.counts_before
        mid, then, small = sums[MIDDLE_AT:], sums[MIDDLE_THEN_AT:], sums[INNER_AT:]
        if i % MIDDLE == 0:
            middle = split(workspace.ranks, i, min(i + MIDDLE, rounds), outer, words, befores)
            collapse(sums, 0.0, outer, words, befores, sums[HEADS_AT:], mid)
            for g in range(lane(), middle, lanes):
                then[g] = mid[g]
        more, more_befores = words[heads:], befores[heads:]
        inner = split(workspace.ranks, i, min(i + INNER, rounds), middle, more, more_befores)
        collapse(mid, 0.0, middle, more, more_befores, sums[HEADS_AT:], small)
        for j in range(inner_each):
            g = lane() + j * lanes
            workspace.lane_sums[j] = small[g] if g < inner else number(0.0)
        return middle, inner

    @compiled
    def close_piece(workspace, done, last, outer, middle, inner):
        """Bring the groups of 64 rounds up to date, and where those end the groups of 256."""
        sums, words, befores = workspace.sums, workspace.words, workspace.counts_before
        mid, then, small = sums[MIDDLE_AT:], sums[MIDDLE_THEN_AT:], sums[INNER_AT:]
        for j in range(inner_each):
            g = lane() + j * lanes
            if g < inner:
                small[g] = workspace.lane_sums[j] / small[g] if small[g] > number(0.0) else small[g]
        sync()
        spread(mid, middle, words[heads:], befores[heads:], small)
        if done % MIDDLE == 0 or last:
            ratios(mid, then, middle)
            spread(sums, outer, words, befores, then)

    @compiled
    def step(own, arms, workspace, i, rounds, u, carry, parameters):
        outer, middle, inner, more = carry
        if i & (INNER - 1) == 0:
            if i > 0:
                close_piece(workspace, i, False, outer, middle, inner)
            middle, inner = open_piece(workspace, i, rounds, outer, middle)
        rank, mine = workspace.ranks[i], workspace.lane_sums
        low, high = number(0.0), number(0.0)
        for j in range(inner_each):
            below = lane() + j * lanes < rank
            low += mine[j] if below else number(0.0)
            high += number(0.0) if below else mine[j]
        low, high = both(low, high)
        more, answers, P, under, over = charge(
            own, workspace.cuts[i], u, workspace.errors[i], low, high, more, parameters
        )
        for j in range(inner_each):
            mine[j] *= under if lane() + j * lanes < rank else over
        return (outer, middle, inner, more), answers, P, 0.0

    @compiled
    def end(own, arms, workspace, rounds, eta, carry):
        outer, middle, inner, more = carry
        total = number(0.0)
        for j in range(inner_each):
            total += workspace.lane_sums[j]
        total = sum_over(total)
        sync()
        factor, addend = finish(own, arms, eta, total, more)
        if is_state:
            close_piece(workspace, rounds, True, outer, middle, inner)
            then = workspace.sums[then_at:]
            ratios(workspace.sums, then, outer)
            for w in range(lane(), words_of_arms(arms), lanes):
                marks, group = workspace.wide_words[w], workspace.wide_counts_before[w]
                ratio = then[group] * factor
                for k in range(w * WORD, min(w * WORD + WORD, arms - 1)):
                    if target_word(marks >> target_word(k - w * WORD)) & target_word(1):
                        group += 1
                        ratio = then[group] * factor
                    own[k] = own[k] * ratio + addend
        sync()

    target_word = target.word

    @compiled
    def words_of_arms(arms):
        return (arms + (WORD - 1)) // WORD

    return StepKernel(begin, step, end)
