"""Orders of records as a function: which record of a pool comes at which place of which lap, from integers alone.

A lap plays each of N records once. Its order is a Feistel network (Luby and Rackoff, "How to construct pseudorandom
permutations from pseudorandom functions", 1988) on the N cells of a table of about sqrt(N) rows: a pass moves each
cell along its row by a number that depends on the row, and then along its column by one that depends on the column.
The last row may be shorter, and so may be columns; each is a cycle of its own length. So a pass is a bijection of N
cells for every N, where others walk a power of two until they are below N (Mitchell et al., "Bandwidth-optimal
random shuffling for GPUs", 2021).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

Function = Callable[..., Any]

SMALL = 1024  # records: a smaller pool takes more passes until its orders look uniform
PASSES, MORE_PASSES = 6, 24
_WORD = 0xFFFFFFFF
_GOLDEN = 0x9E3779B9  # 2**32 over the golden ratio
_FIRST, _SECOND = 0x7FEB352D, 0x846CA68B  # multipliers of C. Wellons' hash "lowbias32"


class OrderShape(NamedTuple):
    """The table of N cells, row after row, and how often its cells move."""

    size: int  # N in 1..2**31
    shift: int  # a whole row has 2**shift cells
    passes: int


def shape(size: int) -> OrderShape:
    """Find the shape of the table of a pool.

    Args:
        size: N in 1..2**31.

    Returns:
        Rows of about the square root of N cells, by a power of two.
    """
    return OrderShape(size, size.bit_length() // 2, MORE_PASSES if size < SMALL else PASSES)


class Orders(NamedTuple):
    """The functions of an order, of arrays or of numbers; each argument but ``shape`` and ``number`` is a uint32.

    Attributes:
        lap_key: ``lap_key(key, lap)`` is the key of a lap, two words, from those of a trial and a pool.
        cell_of: ``cell_of(place, shift)`` is the cell (row, column) of a place, and ``number_of(cell, shift)`` the
            place of a cell.
        one_pass: ``one_pass(cell, key, number, size, shift)`` is the cell (row, column) after the pass of a number,
            under the key of a lap.
        in_lap: ``in_lap(key, shape, place)`` is the record in 0..N-1 at a place 0..N-1, under the key of a lap.
        order: ``order(key, lap, shape, place)`` is the record in 0..N-1 at a place 0..N-1 of a lap, under the key
            of a trial and a pool. Over all places it is a bijection.
    """

    lap_key: Function
    cell_of: Function
    number_of: Function
    one_pass: Function
    in_lap: Function
    order: Function


def compile_for(compiled: Function, where: Function, word: Function) -> Orders:
    """Write the functions for NumPy, JAX or Numba, from one source and with the same bits.

    Args:
        compiled: makes each function ready to be called by others: a decorator of Numba, or nothing for arrays.
        where: ``where(condition, x, y)`` of arrays or of numbers.
        word: ``word(x)`` is x as a uint32.

    Returns:
        The functions.
    """

    @compiled
    def mixed(x: Any) -> Any:
        x = word(word(x ^ (x >> word(16))) * word(_FIRST))
        x = word(word(x ^ (x >> word(15))) * word(_SECOND))
        return word(x ^ (x >> word(16)))

    @compiled
    def moved(place: Any, line: Any, length: Any, first: Any, second: Any) -> Any:
        """Places 0..length-1, moved on in a circle by a number that depends on their line and on two words."""
        x = word(word(line + first) * word(_FIRST))
        x = word(word(word(x ^ (x >> word(15))) + second) * word(_SECOND))
        place = word(place + word(word(word(x >> word(16)) * length) >> word(16)))
        return where(place < length, place, word(place - length))

    @compiled
    def lap_key(key: tuple[Any, Any], lap: Any) -> tuple[Any, Any]:
        first = mixed(word(mixed(word(key[0] ^ word(lap * word(_GOLDEN)))) + key[1]))
        return first, mixed(word(key[1] + first))

    @compiled
    def one_pass(cell: tuple[Any, Any], key: tuple[Any, Any], number: int, size: Any, shift: Any) -> Any:
        row, column = cell
        full, last = word(word(1) << shift), word(word(size - word(1)) >> shift)  # cells of a row; the last row
        rest = word(size - word(last << shift))  # its cells, 1..full
        first, then = word(key[0] + word(2 * number * _GOLDEN & _WORD)), word(_GOLDEN)
        column = moved(column, row, where(row == last, rest, full), first, key[1])
        height = where(column < rest, word(last + word(1)), last)
        return moved(row, column, height, word(first + then), key[1]), column

    @compiled
    def cell_of(place: Any, shift: Any) -> tuple[Any, Any]:
        return word(place >> shift), word(place & word(word(word(1) << shift) - word(1)))

    @compiled
    def number_of(cell: tuple[Any, Any], shift: Any) -> Any:
        return word(word(cell[0] << shift) | cell[1])

    @compiled
    def in_lap(key: tuple[Any, Any], shape: OrderShape, place: Any) -> Any:
        size, shift = word(shape.size), word(shape.shift)
        cell = cell_of(place, shift)
        for number in range(shape.passes):
            cell = one_pass(cell, key, number, size, shift)
        return number_of(cell, shift)

    @compiled
    def order(key: tuple[Any, Any], lap: Any, shape: OrderShape, place: Any) -> Any:
        return in_lap(lap_key(key, lap), shape, place)

    return Orders(lap_key, cell_of, number_of, one_pass, in_lap, order)
