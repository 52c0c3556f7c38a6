"""The state of a rule, M numbers: stored in an array, and read and written as a NamedTuple by compiled code."""

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


def accessors(kind: Any, compiled: Function, index: Function) -> tuple[Function, Function]:
    """Compile functions that read and write the numbers of one copy.

    Args:
        kind: a NamedTuple of M floats.
        compiled: decorator that compiles a function.
        index: ``index(number, at)`` returns the place of the n-th number of the copy at ``at`` in the array.

    Returns:
        ``read(array, at)``, which returns the NamedTuple, and ``write(array, at, numbers)``.
    """
    # A chain of M functions, one per number: with a loop over numbers inside, LLVM would not vectorise the
    # loop over copies.
    where = compiled(index)

    @compiled
    def values(array, at):  # type: ignore[no-untyped-def]
        return ()

    @compiled
    def write(array, at, numbers):  # type: ignore[no-untyped-def]
        pass

    for number in range(len(kind._fields)):
        values, write = _one_more(values, write, number, compiled, where)

    @compiled
    def read(array, at):  # type: ignore[no-untyped-def]
        return kind(*values(array, at))

    return read, write


def _one_more(
    values: Function, write: Function, number: int, compiled: Function, where: Function
) -> tuple[Function, Function]:
    """Extend the functions for the first numbers by one number."""

    @compiled
    def all_values(array, at):  # type: ignore[no-untyped-def]
        return (*values(array, at), array[where(number, at)])

    @compiled
    def write_all(array, at, numbers):  # type: ignore[no-untyped-def]
        write(array, at, numbers)
        array[where(number, at)] = numbers[number]

    return all_values, write_all
