"""A rule's memory of M numbers in the state of one copy, read as a NamedTuple."""

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


def accessors(kind: Any, compiled: Function) -> tuple[Function, Function]:
    """Compile functions that read and write the numbers, each a chain of M functions, one for each number.

    Args:
        kind: a NamedTuple of M floats.
        compiled: as of ``Target``.

    Returns:
        ``read(own, first)``, the NamedTuple of the numbers from row ``first`` on of a state [rows], and
        ``write(own, first, numbers)``.
    """

    @compiled
    def values(own, first):
        return ()

    @compiled
    def write(own, first, numbers):
        pass

    for row in range(len(kind._fields)):
        values, write = _one_more(values, write, row, compiled)

    @compiled
    def read(own, first):
        return kind(*values(own, first))

    return read, write


def _one_more(values: Function, write: Function, row: int, compiled: Function) -> tuple[Function, Function]:
    """The functions of the first numbers, and of one more."""

    @compiled
    def all_values(own, first):
        return (*values(own, first), own[first + row])

    @compiled
    def write_all(own, first, numbers):
        write(own, first, numbers)
        own[first + row] = numbers[row]

    return all_values, write_all
