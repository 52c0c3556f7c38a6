"""Orders of records as a function: the record at each place of each lap through a pool, from integers alone.

A lap visits each of N records once. Its order is a Feistel network (Luby and Rackoff, "How to construct
pseudorandom permutations from pseudorandom functions", 1988) on the cells of a table of about sqrt(N) rows, of
which the last may be shorter:

    columns    0   1   2   3
    row 0      0   1   2   3     A pass rotates each row by a hash of its number,
    row 1      4   5   6   7     then each column by a hash of its number.
    row 2      8   9             N = 10: row 2 has 2 cells, and columns 2 and 3 have height 2.

Each row and each column is a cycle of its own length, so a pass is a bijection of N cells for every N. Other
methods permute a power of two and repeat until the result is below N (Mitchell et al., "Bandwidth-optimal random
shuffling for GPUs", 2021).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

Function = Callable[..., Any]

SMALL = 1024  # records: smaller pools need more passes until their orders look uniform
PASSES, MORE_PASSES = 6, 24  # ``tests/kernels/test_orders.py`` rejects 1 to 4 passes at some sizes
_WORD = 0xFFFFFFFF
_GOLDEN = 0x9E3779B9  # 2**32 over the golden ratio
_FIRST, _SECOND = 0x7FEB352D, 0x846CA68B  # multipliers of the hash "lowbias32" of C. Wellons, computed by ``mixed``


class OrderShape(NamedTuple):
    """The table of N cells, row after row, and the number of passes."""

    size: int  # N in 1..2**31
    shift: int  # a whole row has 2**shift cells
    passes: int


def shape(size: int) -> OrderShape:
    """Return the table of a pool of N in 1..2**31 records.

    A row has a power of two of cells, about sqrt(N) and at most 2**16.
    """
    return OrderShape(size, size.bit_length() // 2, MORE_PASSES if size < SMALL else PASSES)


class Orders(NamedTuple):
    """The functions of an order, on arrays or scalars. All arguments except ``shape`` and ``number`` are uint32.

    Attributes:
        lap_key: ``lap_key(key, lap)`` returns the key of a lap, two words, from the key of a trial and a pool.
        cell_of: ``cell_of(place, shift)`` returns the cell (row, column) of a place.
        number_of: ``number_of(cell, shift)`` returns the place of a cell.
        one_pass: ``one_pass(cell, key, number, size, shift)`` returns the cell after pass ``number``, under the key
            of a lap.
        order: ``order(key, lap, shape, place)`` returns the record in 0..N-1 at a place 0..N-1 of a lap, under the
            key of a trial and a pool. It is a bijection of places to records.
    """

    lap_key: Function
    cell_of: Function
    number_of: Function
    one_pass: Function
    order: Function


def compile_for(compiled: Function, where: Function, word: Function) -> Orders:
    """Build the functions for NumPy, JAX or Numba, with the same bits.

    Args:
        compiled: decorator that compiles a function; the identity for arrays.
        where: ``where(condition, x, y)`` of arrays or scalars.
        word: ``word(x)`` casts x to uint32.
    """
    # Arrays of uint32 wrap around by themselves. Numba widens uint32 to 64 bits in every operation, so each
    # result is cast back with ``word``.

    @compiled
    def mixed(x: Any) -> Any:
        x = word(word(x ^ (x >> word(16))) * word(_FIRST))
        x = word(word(x ^ (x >> word(15))) * word(_SECOND))
        return word(x ^ (x >> word(16)))

    @compiled
    def moved(place: Any, line: Any, length: Any, first: Any, second: Any) -> Any:
        """Rotate places 0..length-1 of a line by an amount that depends on the line and on two words."""
        x = word(word(line + first) * word(_FIRST))
        x = word(word(word(x ^ (x >> word(15))) + second) * word(_SECOND))
        # Multiply-shift maps the upper 16 bits to 0..length-1 without a division. length <= 2**16: no overflow.
        place = word(place + word(word(word(x >> word(16)) * length) >> word(16)))
        return where(place < length, place, word(place - length))  # place < 2 length, so this is the remainder

    @compiled
    def lap_key(key: tuple[Any, Any], lap: Any) -> tuple[Any, Any]:
        first = mixed(word(mixed(word(key[0] ^ word(lap * word(_GOLDEN)))) + key[1]))
        return first, mixed(word(key[1] + first))

    @compiled
    def one_pass(cell: tuple[Any, Any], key: tuple[Any, Any], number: int, size: Any, shift: Any) -> Any:
        row, column = cell
        full, last = word(word(1) << shift), word(word(size - word(1)) >> shift)  # cells of a row; the last row
        rest = word(size - word(last << shift))  # cells of the last row, 1..full
        # Each half of a pass has a round key of its own: even multiples of _GOLDEN for rows, odd ones for columns.
        first, then = word(key[0] + word(2 * number * _GOLDEN & _WORD)), word(_GOLDEN)
        column = moved(column, row, where(row == last, rest, full), first, key[1])
        # The column rotation must use the new column's height, which the row rotation has just determined.
        height = where(column < rest, word(last + word(1)), last)
        return moved(row, column, height, word(first + then), key[1]), column

    @compiled
    def cell_of(place: Any, shift: Any) -> tuple[Any, Any]:
        return word(place >> shift), word(place & word(word(word(1) << shift) - word(1)))

    @compiled
    def number_of(cell: tuple[Any, Any], shift: Any) -> Any:
        return word(word(cell[0] << shift) | cell[1])

    @compiled
    def order(key: tuple[Any, Any], lap: Any, shape: OrderShape, place: Any) -> Any:
        own, size, shift = lap_key(key, lap), word(shape.size), word(shape.shift)
        cell = cell_of(place, shift)
        for number in range(shape.passes):
            cell = one_pass(cell, own, number, size, shift)
        return number_of(cell, shift)

    return Orders(lap_key, cell_of, number_of, one_pass, order)
