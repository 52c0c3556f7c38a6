"""A rule's memory of M numbers in an array, read and written as a NamedTuple by compiled code."""

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


def accessors(kind: Any, compiled: Function, index: Function) -> tuple[Function, Function]:
    """Compile functions that read and write the numbers of one copy.

    Each is a chain of M functions, one per number, because LLVM would not vectorise a loop over copies that has a
    loop over numbers inside.

    Args:
        kind: a NamedTuple of M floats.
        compiled: makes a function ready to be called by others.
        index: ``index(number, at)`` says where the n-th number of the copy at ``at`` is in the array.

    Returns:
        ``read(array, at)``, the NamedTuple, and ``write(array, at, numbers)``.
    """
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
    """The functions of the first numbers, and of one more."""

    @compiled
    def all_values(array, at):  # type: ignore[no-untyped-def]
        return (*values(array, at), array[where(number, at)])

    @compiled
    def write_all(array, at, numbers):  # type: ignore[no-untyped-def]
        write(array, at, numbers)
        array[where(number, at)] = numbers[number]

    return all_values, write_all
