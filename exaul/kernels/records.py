"""Records as a function: the record of each stream in each round, from integers alone.

A stream is the sequence of records of a trial in an oblivious environment, such as the stochastic and the shifting
ones of the paper's section "Experiments". The environment chooses a pool of records for each round. A stream visits
each pool lap after lap, in an order of its own (``orders.py``) or in the pool's order. So a record depends on the
seed, the trial, the round, and the number of records that the stream has read from each pool.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.kernels import orders, uniforms
from exaul.kernels.game import ROUNDS


class Pool(NamedTuple):
    """N records: their cuts and errors."""

    cuts: NDArray[np.int32]  # [N]
    errors: NDArray[np.float64]  # [N]


class StreamPlan(NamedTuple):
    """The static part of all streams, which is compiled into a program.

    ``choose_pool(where, t, horizon, u)`` returns the number, in 0..P-1, of the pool of round t. It uses ``where``
    and operators only, on arrays or scalars: t counts from 1 to the horizon, and u in [0, 1) is a uniform of the
    round and the stream.
    """

    choose_pool: Callable[..., Any]
    shapes: tuple[orders.OrderShape, ...]  # of the P pools
    shuffled: bool


class Streams(NamedTuple):
    """R streams of records."""

    plan: StreamPlan
    cuts: NDArray[np.int32]  # [sum of N], pool after pool
    errors: NDArray[np.float64]  # [sum of N]
    horizon: NDArray[np.int64]  # []
    draws: tuple[NDArray[np.uint32], NDArray[np.uint32]]  # [R] each: keys of the environment's uniforms
    orders: tuple[NDArray[np.uint32], NDArray[np.uint32]]  # [P, R] each: keys of the orders

    @property
    def stream_count(self) -> int:
        """R, the number of streams."""
        return len(self.draws[0])

    def no_records_read(self) -> NDArray[np.uint32]:
        """Return the number of records read before round 1: zeros [P, R]."""
        return np.zeros(self.orders[0].shape, np.uint32)


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
        choose_pool: see ``StreamPlan``.
        shuffled: whether each stream visits each pool in an order of its own.
        pools: P pools of 1 to 2**31 records.
        horizon: T < 2**31.
        seed: in 0..2**64-1.
        trials: [R] trial numbers, from 0.
    """
    keys = uniforms.trial_keys(seed, uniforms.RECORDS, trials)
    # Pool p gets its key from counter (0, 256 + p). Uniforms under the same keys use second words below 256, so no
    # counter is used twice.
    number = np.arange(ROUNDS, ROUNDS + len(pools), dtype=np.uint32)[:, None]
    shapes = tuple(orders.shape(len(pool.cuts)) for pool in pools)
    return Streams(
        StreamPlan(choose_pool, shapes, shuffled),
        np.concatenate([pool.cuts for pool in pools]),
        np.concatenate([pool.errors for pool in pools]),
        np.array(horizon, np.int64),
        keys,
        uniforms.threefry(keys, (np.zeros_like(number), number)),
    )


def read_block(streams: Streams, records_read: Any, block: Any) -> tuple[Any, Any, Any]:
    """Compute the records of one block of 256 rounds, in JAX. Rounds after the horizon have records, too.

    Args:
        streams: R streams.
        records_read: [P, R] uint32, the number of records read from each pool before the block.
        block: [] uint32, the number of the block.

    Returns:
        Cuts [C, R] int32, errors [C, R] float64, and the number of records read after the block, [P, R] uint32.
    """
    import jax.numpy as jnp  # imported here because the Numba programs import this file and need no JAX
    from jax import lax

    order = orders.compile_for(lambda function: function, jnp.where, jnp.uint32).order
    plan, number = streams.plan, jnp.arange(ROUNDS, dtype=jnp.uint32)[:, None]
    t = jnp.int64(block) * ROUNDS + number.astype(jnp.int64) + 1
    u = uniforms.uniforms((streams.draws[0][None], streams.draws[1][None]), block, number)
    # [C, R], or [C, 1] if no stream's uniform is used: XLA computes running sums of constants as it compiles, and
    # would need seconds for [C, R].
    chosen = jnp.asarray(plan.choose_pool(jnp.where, t, streams.horizon, u), jnp.int32)
    chosen = jnp.broadcast_to(chosen, jnp.broadcast_shapes(chosen.shape, number.shape))
    cuts, errors = jnp.ones(u.shape, jnp.int32), jnp.zeros(u.shape)
    # Every pool is evaluated for every round, and ``here`` selects: shapes are static, and pools are few.
    start = 0
    for p, shape in enumerate(plan.shapes):
        here = chosen == p
        many = jnp.cumsum(here, axis=0, dtype=jnp.uint32)  # records read up to and including each round
        before = records_read[p][None] + many - here.astype(jnp.uint32)
        # ``before`` records of this pool came earlier in the stream: they fill ``lap`` laps and ``place`` places.
        lap, place = before // np.uint32(shape.size), before % np.uint32(shape.size)
        if plan.shuffled:
            # If XLA knows a size of 3 to 8 records, it compiles the order for minutes; the barrier hides the size.
            size, shift = lax.optimization_barrier((np.uint32(shape.size), np.uint32(shape.shift)))
            unknown = shape._replace(size=size, shift=shift)
            place = order((streams.orders[0][p][None], streams.orders[1][p][None]), lap, unknown, place)
        end = start + shape.size
        # In rounds of other pools ``place`` is a valid index whose record is discarded.
        cuts = jnp.where(here, streams.cuts[start:end][place], cuts)
        errors = jnp.where(here, streams.errors[start:end][place], errors)
        records_read = records_read.at[p].add(many[-1])
        start = end
    return cuts, errors, records_read
