"""Groups of arms that keep their ratios over some rounds, in JAX, and the sums of weights over them.

A round multiplies the weights of all arms below its cut by one number and of all others by another (line "Update"
of Algorithm "ExAUL"). So over C rounds the arms between two neighbouring cuts keep their ratios, and H weights
collapse, without loss, to C + 1 sums. All sums run in a fixed order.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

PIECE = 8  # rounds of the inner collapse


class Groups(NamedTuple):
    """The groups into which the values of C rounds divide 0..N-1, for R streams.

    The edges are 0, the values in increasing order, and N. Group g is what lies from edge g up to, but not
    including, edge g + 1; it is empty where two values are equal.
    """

    order: jax.Array  # [C, R], the rounds in the order of their values
    edges: jax.Array  # [C + 2, R] in 0..N
    below: jax.Array  # [C, R], number of groups below each round's value


def split(values: jax.Array, size: int) -> Groups:
    """Divide 0..size-1 into groups at the values of some rounds.

    Args:
        values: [C, R] int32 in 0..size.
        size: N.

    Returns:
        The groups.
    """
    order = jnp.argsort(values, axis=0, stable=True)
    edge = jnp.zeros((1, values.shape[1]), values.dtype)
    ordered = jnp.take_along_axis(values, order, axis=0)
    places = jnp.arange(values.shape[0], dtype=jnp.int32)[:, None]
    new = jnp.concatenate([jnp.ones_like(ordered[:1], bool), ordered[1:] != ordered[:-1]])
    first = lax.cummax(jnp.where(new, places, 0), axis=0) + 1
    streams = jnp.arange(values.shape[1])[None]
    below = jnp.zeros(values.shape, jnp.int32).at[order, streams].set(first)
    return Groups(order, jnp.concatenate([edge, ordered, edge + size]), below)


def _running_sums(values: jax.Array, starts: jax.Array) -> jax.Array:
    """Cumulative sums [N, B] along axis 0 that begin anew where ``starts`` [N, B] is True, without subtractions."""

    def join(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        return left[0] | right[0], jnp.where(right[0], right[1], left[1] + right[1])

    return lax.associative_scan(join, (starts, values), axis=0)[1]


def collapse(weights: jax.Array, edges: jax.Array, record: jax.Array) -> jax.Array:
    """Sum weights over the groups of each copy's records.

    Args:
        weights: [N, B].
        edges: [C + 2, R], as of ``Groups``.
        record: [B] in 0..R-1, the stream of each copy.

    Returns:
        [C + 1, B], 0 for an empty group.
    """
    streams = jnp.arange(edges.shape[1])[None]
    starts = jnp.zeros((weights.shape[0], edges.shape[1]), bool).at[edges[:-1], streams].set(True)
    sums = _running_sums(weights, starts[:, record])
    found = jnp.take_along_axis(sums, (edges[1:] - 1)[:, record], axis=0)
    return jnp.where((edges[1:] > edges[:-1])[:, record], found, 0)


def spread(weights: jax.Array, edges: jax.Array, record: jax.Array, factors: jax.Array) -> jax.Array:
    """Multiply weights by the factors of their groups.

    Args:
        weights: [N, B].
        edges: [C + 2, R], as of ``Groups``.
        record: [B] in 0..R-1, the stream of each copy.
        factors: [C + 1, B].

    Returns:
        [N, B].
    """
    streams = jnp.arange(edges.shape[1])[None]
    passed = jnp.zeros((weights.shape[0], edges.shape[1]), jnp.int32).at[edges[1:-1], streams].add(1)
    return weights * jnp.take_along_axis(factors, jnp.cumsum(passed, axis=0)[:, record], axis=0)


def subtract_at(differences: jax.Array, groups: Groups, record: jax.Array, gaps: jax.Array) -> jax.Array:
    """Subtract each round's gap at its cut from the differences; gaps at the same cut are summed first.

    Args:
        differences: [H, B] float64.
        groups: the groups of 0..H-1 at the cuts of the block.
        record: [B] in 0..R-1, the stream of each copy.
        gaps: [C, B], by how much more a round charged the arms below its cut than those above.

    Returns:
        [H, B].
    """
    place = groups.edges[1:-1]
    new = jnp.concatenate([jnp.ones_like(place[:1], bool), place[1:] != place[:-1]])
    last = jnp.concatenate([new[1:], jnp.ones_like(new[:1])])
    nowhere = differences.shape[0]
    sums = _running_sums(jnp.take_along_axis(gaps, groups.order[:, record], axis=0), new[:, record])
    lanes = jnp.arange(gaps.shape[1])[None]
    return differences.at[jnp.where(last, place, nowhere)[:, record], lanes].add(-sums, mode="drop")
