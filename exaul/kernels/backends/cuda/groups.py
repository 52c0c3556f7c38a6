"""Find groups of arms that keep their ratios over some rounds, for one copy, by the lanes of a team.

``exaul.kernels.backends.native.groups`` explains the groups, which follow from line "Update" of Algorithm "ExAUL".
Here the items (arms, or groups of the level before) are divided into words. A set bit marks an item that begins a
group, and each lane walks whole words. A group may continue in later words:

    word           0                 1                 2                3
    items    . . . . . . . .   . . . . . . . .   . . . . . . . .   . . . . . . . .
    bits     0 0 0 1 0 0 1 0   0 0 0 0 0 1 0 0   0 0 0 0 0 0 0 0   0 1 0 0 0 0 0 0
    groups   0 0 0 1 1 1 2 2   2 2 2 2 2 3 3 3   3 3 3 3 3 3 3 3   3 4 4 4 4 4 4 4
                               heads[1]-         ----heads[2]---   heads[3]

The items before the first bit of a word belong to a group of an earlier word. Their sum is the head of the word,
which is added to that group once all words are walked.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from exaul.kernels.backends.cuda.target import Function, Target


class GroupLevel(NamedTuple):
    """The functions of one level of groups.

    Attributes:
        split: ``split(values, first, last, size, bits, counts)`` splits the items 0..size-1 at the values [C]
            first..last-1, each in 1..size-1. It fills ``bits`` and, for each word, ``counts`` with the number of
            bits before it, replaces each value by the number of groups below it, and returns the number of groups.
        collapse: ``collapse(items, eta, size, bits, counts, heads, sums)`` fills ``sums`` with the weights of
            items, summed over groups; ``heads`` is a workspace of one number per word.
        spread: ``spread(weights, size, bits, counts, ratios)`` multiplies weights by the ratios of their groups.
        ratios: ``ratios(now, then, count)`` replaces earlier sums of groups, ``then``, by ``now / then``.
    """

    split: Function
    collapse: Function
    spread: Function
    ratios: Function


def compile_for(target: Target, width: int, start: Callable[..., Any], step: Callable[..., Any]) -> GroupLevel:
    """Return the functions of one level.

    Args:
        target: what they are compiled for; their arrays are [.] of items, words or rounds.
        width: items of a word, a power of two, at most 32.
        start: ``start(items, first, last, base)`` returns the carry before item ``first`` of a word, and the base
            of the next words. All lanes call it, each for its own word; a single lane continues from the carry
            instead.
        step: ``step(items, k, size, carry, eta)`` returns the carry after item k, and its weight.
    """
    reciprocal, real = target.reciprocal, target.real
    compiled, word, number, ones, mark = target.compiled, target.word, target.number, target.ones, target.set_bits
    lanes, lane, sync = target.team.lanes, target.team.lane, target.team.sync
    scan, pick = target.team.scan, target.team.pick
    shift, within = width.bit_length() - 1, width - 1

    @compiled
    def split(values, first, last, size, bits, counts):
        words = word((size + within) >> shift)
        w = word(lane())
        while w < words:
            bits[w] = word(0)
            w = word(w + lanes)
        sync()
        i = word(first + lane())
        while i < last:
            # Several lanes may set bits of one word, so ``mark`` is atomic for teams. Equal values set the same
            # bit.
            value = word(values[i])
            mark(bits, word(value >> shift), word(word(1) << word(value & within)))
            i = word(i + lanes)
        sync()
        before, w0 = word(0), word(0)
        while w0 < words:
            w = word(w0 + lane())
            # Lanes beyond the last word take part with 0: ``scan`` and ``pick`` exchange numbers between all lanes.
            own = int(ones(bits[w])) if w < words else 0
            up_to = scan(own)
            if w < words:
                counts[w] = word(before + up_to - own)
            before = word(before + pick(up_to, lanes - 1))
            w0 = word(w0 + lanes)
        sync()
        i = word(first + lane())
        while i < last:
            value = word(values[i])
            w = word(value >> shift)
            # Bits 0 to value: as group 0 has no bit, their number is that of the groups below the value.
            up_to_it = word(word(0xFFFFFFFF) >> word(31 - word(value & within)))
            values[i] = counts[w] + ones(word(bits[w] & up_to_it))
            i = word(i + lanes)
        sync()
        return word(before + 1)

    @compiled
    def collapse(items, eta, size, bits, counts, heads, sums):
        words = word((size + within) >> shift)
        base, w0 = 0.0, word(0)
        while w0 < words:
            w = word(w0 + lane())
            first, last = word(w << shift), word(min(word((w + 1) << shift), word(size)))
            # All lanes call ``start``, even those without a word, because it may exchange numbers between lanes.
            carry, base = start(items, first, last, base)
            if w < words:
                marks, group, total = word(bits[w]), word(counts[w]), number(0.0)
                begun = w == 0  # whether the group of the item began in this word
                k = first
                while k < last:
                    if marks & word(1):
                        if begun:
                            sums[group] = total
                        else:
                            heads[w] = total
                        begun = True
                        group = word(group + 1)
                        total = number(0.0)
                    carry, weight = step(items, k, size, carry, eta)
                    total += weight
                    marks = word(marks >> word(1))
                    k = word(k + 1)
                if begun:
                    sums[group] = total
                else:
                    heads[w] = total
            if lanes == 1:
                base = carry
            w0 = word(w0 + lanes)
        sync()
        w = word(lane())
        while w < words:
            # Add the heads to the last group that begins in this word, up to the next word in which a group begins.
            # Words are added from low to high by one lane, so bits do not depend on the order in which lanes run.
            if w == 0 or bits[w] != word(0):
                group = word(counts[w] + ones(bits[w]))
                total = sums[group]
                after = word(w + 1)
                while after < words:
                    total += heads[after]
                    if bits[after] != word(0):
                        break
                    after = word(after + 1)
                sums[group] = total
            w = word(w + lanes)
        sync()

    @compiled
    def spread(weights, size, bits, counts, ratios):
        words = word((size + within) >> shift)
        w = word(lane())
        while w < words:
            marks, group, k = word(bits[w]), word(counts[w]), word(w << shift)
            last = word(min(word(k + width), word(size)))
            ratio = ratios[group]
            while k < last:
                if marks & word(1):
                    group = word(group + 1)
                    ratio = ratios[group]
                weights[k] *= ratio
                marks = word(marks >> word(1))
                k = word(k + 1)
            w = word(w + lanes)
        sync()

    @compiled
    def ratios(now, then, count):
        g = word(lane())
        while g < count:
            old = real(then[g])
            # A sum that has nearly underflowed is out of the range of ``reciprocal``: its ratio is 0.
            then[g] = number(real(now[g]) * reciprocal(old)) if old > 1e-300 else number(0.0)
            g = word(g + lanes)
        sync()

    return GroupLevel(split, collapse, spread, ratios)
