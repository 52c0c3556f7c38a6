"""Groups of arms that keep their ratios over some rounds, for one copy, found and summed by the lanes of a team.

A round multiplies the weights of all arms below its cut by one number and of all others by another (line "Update"
of Algorithm "ExAUL"). So over some rounds the arms between two neighbouring cuts keep their ratios, and their
weights can be replaced by their sum, without loss. Items, which are arms or groups, are marked in words of some
bits where a group begins; a word is walked by one lane, and what a group has in later words is added in order.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from exaul.kernels.backends.cuda.target import Function, Target


class GroupLevel(NamedTuple):
    """The functions of one level of groups.

    Attributes:
        split: ``split(values, first, last, size, bits, counts)`` splits the items 0..size-1 at the values [C]
            first..last-1, each in 1..size-1. It marks them in ``bits``, sets ``counts`` of each word to the number
            of marks before it, replaces each value by the number of groups below it, and returns the number of
            groups.
        collapse: ``collapse(items, eta, size, bits, counts, heads, sums)`` fills ``sums`` with the weights of
            items, summed over groups; ``heads`` has a number for each word to work in.
        spread: ``spread(weights, size, bits, counts, ratios)`` multiplies weights by the ratios of their groups.
        ratios: ``ratios(now, then, count)`` replaces sums of groups, as they were then, by what they are now in
            units of it.
    """

    split: Function
    collapse: Function
    spread: Function
    ratios: Function


def compile_for(target: Target, width: int, start: Callable[..., Any], step: Callable[..., Any]) -> GroupLevel:
    """Write the functions for one level.

    Args:
        target: what they are compiled for; their arrays are [.] of items, words or rounds.
        width: items of a word, a power of two, at most 32.
        start: ``initial_states(items, first, last, base)`` returns the carry before item ``first`` of a word, and
            the base of the next words; a lane alone goes on from the carry. All lanes call it, each for its own
            word.
        step: ``step(items, k, size, carry, eta)`` returns the carry after item k, and its weight.

    Returns:
        The functions.
    """
    compiled, word, number, ones, mark = target.compiled, target.word, target.number, target.ones, target.set_bits
    lanes, lane, scan, pick, sync = *target.team[:2], target.team.scan, target.team.pick, target.team.sync
    shift, within = width.bit_length() - 1, width - 1

    @compiled
    def split(values, first, last, size, bits, counts):
        words = (size + within) >> shift
        for w in range(lane(), words, lanes):
            bits[w] = word(0)
        sync()
        for i in range(first + lane(), last, lanes):
            mark(bits, values[i] >> shift, word(word(1) << word(values[i] & within)))
        sync()
        before = 0
        for w0 in range(0, words, lanes):
            w = w0 + lane()
            own = ones(bits[w]) if w < words else 0
            up_to = scan(own)
            if w < words:
                counts[w] = before + up_to - own
            before += pick(up_to, lanes - 1)
        sync()
        for i in range(first + lane(), last, lanes):
            w = values[i] >> shift
            up_to_it = word(word(0xFFFFFFFF) >> word(31 - (values[i] & within)))
            values[i] = counts[w] + ones(word(bits[w] & up_to_it))
        sync()
        return before + 1

    @compiled
    def collapse(items, eta, size, bits, counts, heads, sums):
        words = (size + within) >> shift
        base = 0.0
        for w0 in range(0, words, lanes):
            w = w0 + lane()
            first, last = w << shift, min((w + 1) << shift, size)
            carry, base = start(items, first, last, base)
            if w < words:
                marks, group, total = bits[w], counts[w], number(0.0)
                begun = w == 0  # whether the group of the item began in this word
                for k in range(first, last):
                    if word(marks >> word(k - first)) & word(1):
                        if begun:
                            sums[group] = total
                        else:
                            heads[w] = total
                        begun = True
                        group += 1
                        total = number(0.0)
                    carry, weight = step(items, k, size, carry, eta)
                    total += weight
                if begun:
                    sums[group] = total
                else:
                    heads[w] = total
            if lanes == 1:
                base = carry
        sync()
        for w in range(lane(), words, lanes):
            if w == 0 or bits[w] != word(0):
                group = counts[w] + ones(bits[w])
                total = sums[group]
                after = w + 1
                while after < words:
                    total += heads[after]
                    if bits[after] != word(0):
                        break
                    after += 1
                sums[group] = total
        sync()

    @compiled
    def spread(weights, size, bits, counts, ratios):
        words = (size + within) >> shift
        for w in range(lane(), words, lanes):
            marks, group, first = bits[w], counts[w], w << shift
            ratio = ratios[group]
            for k in range(first, min(first + width, size)):
                if word(marks >> word(k - first)) & word(1):
                    group += 1
                    ratio = ratios[group]
                weights[k] *= ratio
        sync()

    @compiled
    def ratios(now, then, count):
        for g in range(lane(), count, lanes):
            old = then[g]
            then[g] = now[g] / old if old > number(0.0) else old
        sync()

    return GroupLevel(split, collapse, spread, ratios)
