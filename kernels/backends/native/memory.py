"""A rule's memory of M numbers: M rows of an array [M, B], whose columns are read as NamedTuples."""

from collections.abc import Callable
from typing import Any

from exaul.kernels.backends.native.compile import compiled


def accessors(kind: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Compile functions that read and write one column.

    Each is a chain of M functions, one per number, because LLVM would not vectorise a loop over columns that has a
    loop over numbers inside.

    Args:
        kind: a NamedTuple of M floats.

    Returns:
        ``read(rows, column)``, the NamedTuple of a column of an array [M, .], and ``write(rows, column, numbers)``.
    """

    @compiled
    def values(rows, column):
        return ()

    @compiled
    def write(rows, column, numbers):
        pass

    for row in range(len(kind._fields)):
        values, write = _one_more(values, write, row)

    @compiled
    def read(rows, column):
        return kind(*values(rows, column))

    return read, write


def _one_more(
    values: Callable[..., Any], write: Callable[..., Any], row: int
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The functions of the first rows, and of one row more."""

    @compiled
    def all_values(rows, column):
        return (*values(rows, column), rows[row, column])

    @compiled
    def write_all(rows, column, numbers):
        write(rows, column, numbers)
        rows[row, column] = numbers[row]

    return all_values, write_all
