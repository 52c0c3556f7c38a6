"""What the loops of this package are compiled for: the arithmetic of a target, and the lanes that share a copy.

The scalar functions of ``drawn.py``, ``groups.py`` and the others are factories: they take a ``Target`` and return
functions compiled for it. numba-cuda, Numba and plain Python (whose lanes are threads, in tests) are targets. The
loops are those of the algorithms of the paper's appendix "Algorithms", a copy at a time.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

Function = Callable[..., Any]


class ThreadTeam(NamedTuple):
    """The lanes that play one copy together: a thread alone, or the threads of a warp.

    All lanes call each function at the same time, but for ``lane``; ``total``, ``both`` and ``check_count`` return
    the same to all.

    Attributes:
        lanes: how many there are, G, a power of two.
        lane: ``lane()`` is the number of the caller, 0..G-1.
        total: ``total(x)`` is the sum of x over the lanes.
        both: ``both(x, y)`` is the sums of two numbers over the lanes, which takes no longer.
        scan: ``scan(x)`` is the sum of x over the lanes up to the caller, itself included.
        pick: ``draw_index(x, lane)`` is the x of a lane, which callers may choose differently.
        count: ``check_count(condition)`` is in how many lanes a condition holds.
        sync: ``sync()`` lets every lane read what the others wrote before.
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
        word: ``word(x)`` is an integer as a uint32.
        real: ``real(x)`` is a number as a float64.
        number: ``number(x)`` is a number in the precision of weights and their sums.
        exp: ``exp(x)`` of a float64.
        log: ``log(x)`` of a float64.
        ones: ``ones(x)`` is how many bits of a uint32 are 1.
        add: ``add(array, index, x)`` adds x to an element that this copy alone changes.
        set_bits: ``set_bits(words, index, bits)`` sets bits of a uint32 that several lanes may change at once.
        team: the lanes that play a copy.
    """

    compiled: Function
    word: Function
    real: Function
    number: Function
    exp: Function
    log: Function
    ones: Function
    add: Function
    set_bits: Function
    team: ThreadTeam


def single_thread_team(compiled: Function) -> ThreadTeam:
    """Make the team of one lane, for which sums over lanes are the number itself.

    Args:
        compiled: as of ``Target``.

    Returns:
        The team.
    """

    @compiled
    def lane():
        return 0

    @compiled
    def same(x):
        return x

    @compiled
    def both(x, y):
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
    """Make the ``where`` of rules on scalars.

    Args:
        compiled: as of ``Target``.

    Returns:
        ``where(condition, x, y)``.
    """

    @compiled
    def where(condition, x, y):
        return x if condition else y

    return where
