"""Records as a function: the record of each stream in each round, from integers alone.

A stream is the sequence of records of a trial in an oblivious environment, such as the stochastic and the shifting
ones of the paper's section "Experiments". The environment chooses a pool of records for each round. A stream visits
each pool lap after lap, in its own order or in the pool's order. So a record depends on the seed, the trial, the
round, and the number of records that the stream has read from each pool.

A lap visits each of N records once. Its order is a Feistel network (Luby and Rackoff, "How to construct
pseudorandom permutations from pseudorandom functions", 1988) on the positions of a table of about sqrt(N) rows, of
which the last may be shorter:

    columns    0   1   2   3
    row 0      0   1   2   3     A pass rotates each row by a hash of its number,
    row 1      4   5   6   7     then each column by a hash of its number.
    row 2      8   9             N = 10: row 2 has 2 positions, and columns 2 and 3 have height 2.

A pass rotates each row and each column within its length, so it is a bijection of N positions for every N. Other
methods permute a power of two and repeat until the result is below N (Mitchell et al., "Bandwidth-optimal random
shuffling for GPUs", 2021).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.kernels import uniforms
from exaul.kernels.game import BLOCK

Function = Callable[..., Any]

SMALL = 1024  # records: smaller pools need more passes until their orders look uniform
PASSES, MORE_PASSES = 6, 24  # ``tests/kernels/test_orders.py`` rejects 1 to 4 passes at some sizes
_WORD = 0xFFFFFFFF
_GOLDEN = 0x9E3779B9  # 2**32 over the golden ratio
_FACTOR_1, _FACTOR_2 = 0x7FEB352D, 0x846CA68B  # of C. Wellons' hash "lowbias32", which is ``mix``


class OrderShape(NamedTuple):
    """The table of N positions, row after row, and the number of passes."""

    size: int  # N in 1..2**31
    shift: int  # a whole row has 2**shift positions
    passes: int


def order_shape(size: int) -> OrderShape:
    """Return the table of N in 1..2**31 records; a row has about sqrt(N) positions, a power of two up to 2**16."""
    return OrderShape(size, size.bit_length() // 2, MORE_PASSES if size < SMALL else PASSES)


def compile_orders(compiled: Function, where: Function, word: Function) -> tuple[Function, Function, Function]:
    """Build the functions of an order for NumPy, JAX or Numba, with the same bits, on arrays or scalars.

    ``compiled`` decorates a function, the identity for arrays; ``where(condition, x, y)`` is of arrays or scalars;
    ``word(x)`` casts x to uint32.

    Returns:
        Three functions, whose arguments except ``shape`` and ``number`` are uint32:

        - ``order(key, lap, shape, index)`` returns the record in 0..N-1 at an index 0..N-1 of a lap, under the key
          of a trial and a pool. It is a bijection of indices to records.
        - ``lap_key(key, lap)`` returns the key of a lap, two words, from the key of a trial and a pool.
        - ``one_pass(position, key, number, size, shift)`` returns the position (row, column) after pass
          ``number``, under the key of a lap.
    """
    # Arrays of uint32 wrap around by themselves. Numba widens uint32 to 64 bits in every operation, so each
    # result is cast back with ``word``.

    @compiled
    def mix(x: Any) -> Any:
        x = word(word(x ^ (x >> word(16))) * word(_FACTOR_1))
        x = word(word(x ^ (x >> word(15))) * word(_FACTOR_2))
        return word(x ^ (x >> word(16)))

    @compiled
    def rotate(index: Any, line: Any, length: Any, first: Any, second: Any) -> Any:
        """Rotate indices 0..length-1 of a line by an amount that depends on the line and on two words."""
        x = word(word(line + first) * word(_FACTOR_1))
        x = word(word(word(x ^ (x >> word(15))) + second) * word(_FACTOR_2))
        # Multiply-shift maps the upper 16 bits to 0..length-1 without a division. length <= 2**16: no overflow.
        index = word(index + word(word(word(x >> word(16)) * length) >> word(16)))
        return where(index < length, index, word(index - length))  # index < 2 length, so this is the remainder

    @compiled
    def lap_key(key: tuple[Any, Any], lap: Any) -> tuple[Any, Any]:
        first = mix(word(mix(word(key[0] ^ word(lap * word(_GOLDEN)))) + key[1]))
        return first, mix(word(key[1] + first))

    @compiled
    def one_pass(position: tuple[Any, Any], key: tuple[Any, Any], number: int, size: Any, shift: Any) -> Any:
        row, column = position
        full, last = word(word(1) << shift), word(word(size - word(1)) >> shift)  # positions of a row; the last row
        last_length = word(size - word(last << shift))  # positions of the last row, 1..full
        # Each half of a pass adds another multiple of _GOLDEN to the key: even ones for rows, odd ones for columns.
        first, golden = word(key[0] + word(2 * number * _GOLDEN & _WORD)), word(_GOLDEN)
        column = rotate(column, row, where(row == last, last_length, full), first, key[1])
        # The column rotation must use the height of the new column, to which the row rotation has moved it.
        height = where(column < last_length, word(last + word(1)), last)
        return rotate(row, column, height, word(first + golden), key[1]), column

    @compiled
    def order(key: tuple[Any, Any], lap: Any, shape: OrderShape, index: Any) -> Any:
        subkey, size, shift = lap_key(key, lap), word(shape.size), word(shape.shift)
        position = word(index >> shift), word(index & word(word(word(1) << shift) - word(1)))
        for number in range(shape.passes):
            position = one_pass(position, subkey, number, size, shift)
        return word(word(position[0] << shift) | position[1])

    return order, lap_key, one_pass


class Pool(NamedTuple):
    """N records: their cuts and errors."""

    cuts: NDArray[np.int32]  # [N] in 1..H-1
    errors: NDArray[np.float64]  # [N] in [0, 1]


class StreamPlan(NamedTuple):
    """The static part of all streams, which is compiled into a program.

    ``choose_pool(where, t, horizon, u)`` returns the number, in 0..P-1, of the pool of round t. It uses ``where``
    and operators only, on arrays or scalars: t counts from 1 to the horizon, and u in [0, 1) is a uniform of the
    round and the stream.
    """

    choose_pool: Callable[..., Any]
    shapes: tuple[OrderShape, ...]  # of the P pools
    shuffled: bool  # whether each stream visits each pool in its own order, or all in the pool's order


class Streams(NamedTuple):
    """R streams of records."""

    plan: StreamPlan
    cuts: NDArray[np.int32]  # [sum of N], pool after pool
    errors: NDArray[np.float64]  # [sum of N]
    horizon: NDArray[np.int64]  # []
    uniform_keys: tuple[NDArray[np.uint32], NDArray[np.uint32]]  # [R] each, of the environment's uniforms
    order_keys: tuple[NDArray[np.uint32], NDArray[np.uint32]]  # [P, R] each

    @property
    def stream_count(self) -> int:
        """The number R."""
        return len(self.uniform_keys[0])

    def no_records_read(self) -> NDArray[np.uint32]:
        """Return the number of records read before round 1: zeros [P, R]."""
        return np.zeros(self.order_keys[0].shape, np.uint32)


def make_streams(
    choose_pool: Callable[..., Any],
    shuffled: bool,
    pools: Sequence[Pool],
    horizon: int,
    seed: int,
    trials: NDArray[np.integer],
) -> Streams:
    """Make the streams of some trials. A trial's stream is a function of the seed and the trial's number.

    Args:
        choose_pool, shuffled: as in ``StreamPlan``.
        pools: P pools of 1 to 2**31 records.
        horizon: T < 2**31.
        seed: in 0..2**64-1.
        trials: [R] trial numbers, from 0.
    """
    plan = StreamPlan(choose_pool, tuple(order_shape(len(pool.cuts)) for pool in pools), shuffled)
    cuts, errors = (np.concatenate(arrays) for arrays in zip(*pools, strict=True))
    return with_keys(plan, cuts, errors, horizon, uniforms.trial_keys(seed, uniforms.RECORDS_STREAM, trials))


def with_keys(plan: StreamPlan, cuts: Any, errors: Any, horizon: int, keys: tuple[Any, Any]) -> Streams:
    """Make the streams with these keys, two uint32 [R]; the other arguments are as in ``Streams``."""
    # Pool p gets its key from counter (0, 256 + p). Uniforms under the same keys use second words below 256, so no
    # counter is used twice.
    number = np.arange(BLOCK, BLOCK + len(plan.shapes), dtype=np.uint32)[:, None]
    orders = uniforms.threefry((keys[0][None], keys[1][None]), (np.zeros_like(number), number))
    return Streams(plan, cuts, errors, np.array(horizon, np.int64), keys, orders)


def read_block(streams: Streams, records_read: Any, block_number: Any) -> tuple[Any, Any, Any]:
    """Compute the records of one block of 256 rounds of R streams, in JAX; also of rounds after the horizon.

    ``records_read`` [P, R] uint32 is the number of records read from each pool before the block. Return cuts [C, R]
    int32, errors [C, R] float64, and the number of records read after the block.
    """
    import jax.numpy as jnp  # imported here because the Numba programs import this file and need no JAX
    from jax import lax

    order, *_ = compile_orders(lambda function: function, jnp.where, jnp.uint32)
    plan, number = streams.plan, jnp.arange(BLOCK, dtype=jnp.uint32)[:, None]
    t = jnp.int64(block_number) * BLOCK + number.astype(jnp.int64) + 1
    u = uniforms.uniform((streams.uniform_keys[0][None], streams.uniform_keys[1][None]), block_number, number)
    # [C, R], or [C, 1] if no stream's uniform is used: XLA computes running sums of constants as it compiles, and
    # would need seconds for [C, R].
    chosen = jnp.asarray(plan.choose_pool(jnp.where, t, streams.horizon, u), jnp.int32)
    chosen = jnp.broadcast_to(chosen, jnp.broadcast_shapes(chosen.shape, number.shape))
    cuts, errors = jnp.ones(u.shape, jnp.int32), jnp.zeros(u.shape)
    # Every pool is evaluated for every round, and ``is_chosen`` selects: shapes are static, and pools are few.
    start = 0
    for p, shape in enumerate(plan.shapes):
        is_chosen = chosen == p
        counts = jnp.cumsum(is_chosen, axis=0, dtype=jnp.uint32)  # records read up to and including each round
        earlier = records_read[p][None] + counts - is_chosen.astype(jnp.uint32)
        # ``earlier`` records of this pool were read before: ``lap`` whole laps, and ``index`` records of the next.
        lap, index = earlier // np.uint32(shape.size), earlier % np.uint32(shape.size)
        if plan.shuffled:
            # If XLA knows a size, it may compile the order for minutes. A barrier hides it if unknown numbers are
            # beside it (jax 0.11).
            constants = np.uint32(shape.size), np.uint32(shape.shift)
            lap, index, size, shift = lax.optimization_barrier((lap, index, *constants))
            hidden = shape._replace(size=size, shift=shift)
            index = order((streams.order_keys[0][p][None], streams.order_keys[1][p][None]), lap, hidden, index)
        end = start + shape.size
        # In rounds of other pools ``index`` is valid, and its record is discarded.
        cuts = jnp.where(is_chosen, streams.cuts[start:end][index], cuts)
        errors = jnp.where(is_chosen, streams.errors[start:end][index], errors)
        records_read = records_read.at[p].add(counts[-1])
        start = end
    return cuts, errors, records_read
