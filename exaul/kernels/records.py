"""Records as a function: what each of R streams meets in each round, from integers alone.

A stream is what a trial meets in an oblivious environment, such as the stochastic and the shifting ones of the
paper's section "Experiments". An environment says from which pool of records a round comes, and a stream plays each
pool in its own order (``orders.py``), lap after lap, or in the pool's own. So a record depends on the seed, the
trial, the round, and on how many of each pool were played before it.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.kernels import orders, uniforms
from exaul.kernels.game import ROUNDS


class Pool(NamedTuple):
    """N records as the game sees them."""

    cuts: NDArray[np.int32]  # [N]
    errors: NDArray[np.float64]  # [N]


class StreamPlan(NamedTuple):
    """What is the same for all streams, and compiled into a program.

    ``make_backend(where, t, horizon, u)`` is the number of the pool from which round t comes, in 0..P-1. It is
    written with ``where`` and operators, on arrays or on numbers: t counts from 1 to the horizon, and u is a
    uniform of the round and the stream in [0, 1).
    """

    choose: Callable[..., Any]
    shapes: tuple[orders.OrderShape, ...]  # of P pools
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
        """R, of arrays [., R]."""
        return len(self.draws[0])

    def no_records_read(self) -> NDArray[np.uint32]:
        """Count the records that were played before round 1.

        Returns:
            Zeros [P, R].
        """
        return np.zeros(self.orders[0].shape, np.uint32)


def make_streams(
    choose: Callable[..., Any],
    shuffled: bool,
    pools: Sequence[Pool],
    horizon: int,
    seed: int,
    trials: NDArray[np.integer],
) -> Streams:
    """Make the streams of some trials.

    Args:
        choose: as of ``StreamPlan``.
        shuffled: whether each stream plays each pool in its own orders.
        pools: P of them, of 1 to 2**31 records.
        horizon: T < 2**31.
        seed: in 0..2**64-1.
        trials: [R] trial numbers, from 0.

    Returns:
        The streams: those of a trial are a function of the seed and its number.
    """
    keys = uniforms.trial_keys(seed, uniforms.RECORDS, trials)
    number = np.arange(ROUNDS, ROUNDS + len(pools), dtype=np.uint32)[:, None]  # those of uniforms are below 256
    shapes = tuple(orders.shape(len(pool.cuts)) for pool in pools)
    return Streams(
        StreamPlan(choose, shapes, shuffled),
        np.concatenate([pool.cuts for pool in pools]),
        np.concatenate([pool.errors for pool in pools]),
        np.array(horizon, np.int64),
        keys,
        uniforms.threefry(keys, (np.zeros_like(number), number)),
    )


def read_block(streams: Streams, played: Any, block: Any) -> tuple[Any, Any, Any]:
    """Find the records of one block of 256 rounds, in JAX.

    Args:
        streams: R of them; of the last block, rounds past the horizon have records, too.
        played: [P, R] uint32, how many records of each pool were played before.
        block: [] uint32, number of the block.

    Returns:
        Cuts [C, R] int32, errors [C, R] float64, and how many records were played after the block, [P, R] uint32.
    """
    import jax.numpy as jnp  # here: what is compiled for the CPU reads this file, too, and needs no JAX
    from jax import lax

    order = orders.compile_for(lambda function: function, jnp.where, jnp.uint32).order
    plan, number = streams.plan, jnp.arange(ROUNDS, dtype=jnp.uint32)[:, None]
    t = jnp.int64(block) * ROUNDS + number.astype(jnp.int64) + 1
    u = uniforms.uniforms((streams.draws[0][None], streams.draws[1][None]), block, number)
    chosen = jnp.broadcast_to(jnp.asarray(plan.choose(jnp.where, t, streams.horizon, u), jnp.int32), u.shape)
    cuts, errors = jnp.ones(u.shape, jnp.int32), jnp.zeros(u.shape)
    start = 0
    for p, shape in enumerate(plan.shapes):
        here = chosen == p
        many = jnp.cumsum(here, axis=0, dtype=jnp.uint32)
        before = played[p][None] + many - here.astype(jnp.uint32)
        lap, place = before // np.uint32(shape.size), before % np.uint32(shape.size)
        if plan.shuffled:  # XLA compiles the orders of 3 to 8 records for minutes where it knows their number
            size, shift = lax.optimization_barrier((np.uint32(shape.size), np.uint32(shape.shift)))
            unknown = shape._replace(size=size, shift=shift)
            place = order((streams.orders[0][p][None], streams.orders[1][p][None]), lap, unknown, place)
        end = start + shape.size
        cuts = jnp.where(here, streams.cuts[start:end][place], cuts)
        errors = jnp.where(here, streams.errors[start:end][place], errors)
        played = played.at[p].add(many[-1])
        start = end
    return cuts, errors, played
