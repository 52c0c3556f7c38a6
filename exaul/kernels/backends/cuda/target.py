"""What the loops of this package are compiled for: the arithmetic of a target, and the lanes that share a copy.

The scalar functions of ``drawn.py``, ``groups.py`` and the others are factories: they take a ``Target`` and return
functions compiled for it. Targets are numba-cuda, Numba and, in tests, plain Python, whose lanes are threads. The
loops are those of the paper's appendix "Algorithms", one copy at a time.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

Function = Callable[..., Any]


class ThreadTeam(NamedTuple):
    """The lanes that simulate one copy together: a single thread, or threads of a warp.

    All lanes call each function but ``lane`` at the same time. ``total``, ``both`` and ``count`` return the same to
    all.

    Attributes:
        lanes: number of lanes, G, a power of two.
        lane: ``lane()`` returns the number of the caller, 0..G-1.
        total: ``total(x)`` returns the sum of x over the lanes.
        both: ``both(x, y, many)`` returns the sums of two numbers over groups of ``many`` neighbouring lanes, a
            power of two, in the time of one.
        scan: ``scan(x)`` returns the sum of x over the lanes up to the caller, inclusive.
        pick: ``pick(x, lane)`` returns the x of a lane, which may differ between callers.
        count: ``count(condition)`` returns the number of lanes in which a condition holds.
        sync: ``sync()`` makes all earlier writes of every lane visible to all.
    """

    lanes: int
    lane: Function
    total: Function
    both: Function
    scan: Function
    pick: Function
    count: Function
    sync: Function


class Target(NamedTuple):
    """What scalar functions are compiled with, and what they call.

    Attributes:
        compiled: makes a function ready to be called by others.
        word: ``word(x)`` returns an integer as a uint32. Loops count in words, because devices compute 64-bit
            integers in two steps, and an unsigned index needs no test for negative ones.
        real: ``real(x)`` returns a number as a float64.
        number: ``number(x)`` returns a number in the precision of weights and their sums.
        exp: ``exp(x)`` of a float64.
        log: ``log(x)`` of a float64.
        reciprocal: ``reciprocal(x)`` returns 1 / x for a float64 from 1e-300 to 1e300, without a branch.
        ones: ``ones(x)`` counts the bits of a uint32 that are 1.
        add: ``add(array, index, x)`` adds x to an element that this copy alone changes.
        set_bits: ``set_bits(words, index, bits)`` sets bits of a uint32 that several lanes may change at once.
        team: the lanes that simulate a copy.
    """

    compiled: Function
    word: Function
    real: Function
    number: Function
    exp: Function
    log: Function
    reciprocal: Function
    ones: Function
    add: Function
    set_bits: Function
    team: ThreadTeam


def single_thread_team(compiled: Function) -> ThreadTeam:
    """Return the team of one lane, in which a sum over lanes is the number itself."""

    @compiled
    def lane():
        return 0

    @compiled
    def same(x):
        return x

    @compiled
    def both(x, y, many):
        return x, y

    @compiled
    def pick(x, lane):
        return x

    @compiled
    def count(condition):
        return 1 if condition else 0

    @compiled
    def sync():
        pass

    return ThreadTeam(1, lane, same, both, same, pick, count, sync)


def make_where(compiled: Function) -> Function:
    """Return the ``where(condition, x, y)`` of rules on scalars."""

    @compiled
    def where(condition, x, y):
        return x if condition else y

    return where
