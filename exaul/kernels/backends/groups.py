"""Groups of arms whose weights keep their ratios over some rounds, and sums over these groups, in JAX.

A round multiplies the weights of all arms below its cut by one number, and the others by another (line "Update" of
Algorithm "ExAUL"). So over C rounds the arms between two neighbouring cuts keep their ratios, and C + 1 sums
replace H weights without loss:

    cuts of C rounds       |      |   |          |
    arms               ...............................     H weights
    groups              g0    g1   g2      g3      g4      C + 1 sums, 0 where two cuts are equal

All sums run from low arms to high ones. The order is part of the result: changing it changes bits.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

PIECE = 8  # rounds of the inner collapse


class Groups(NamedTuple):
    """The groups into which the values of C rounds divide 0..N-1.

    The edges are 0, the values in increasing order, and N. Group g is the range from edge g up to, but not
    including, edge g + 1; it is empty if two values are equal.
    """

    order: jax.Array  # [C], the rounds sorted by value
    edges: jax.Array  # [C + 2] in 0..N
    below: jax.Array  # [C], number of groups below each round's value


def split(values: jax.Array, size: int) -> Groups:
    """Divide 0..size-1 into groups at the values [C] int32 in 0..size of some rounds."""
    # Stable: rounds with equal cuts stay in time order, in which ``subtract_at`` sums their gaps.
    order = jnp.argsort(values, stable=True)
    ordered = values[order]
    new = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
    # Groups between equal values are empty, so equal values have the same groups below: as many as the index of the
    # first of them, plus 1.
    first = lax.cummax(jnp.where(new, jnp.arange(values.size, dtype=jnp.int32), 0)) + 1
    below = jnp.zeros(values.size, jnp.int32).at[order].set(first)
    edge = jnp.zeros(1, values.dtype)
    return Groups(order, jnp.concatenate([edge, ordered, edge + size]), below)


def _running_sums(values: jax.Array, starts: jax.Array) -> jax.Array:
    """Compute cumulative sums [N] that restart where ``starts`` [N] is True."""

    # Differences of ordinary cumulative sums would cancel; restarting sums only ever add.
    def join(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        return left[0] | right[0], jnp.where(right[0], right[1], left[1] + right[1])

    return lax.associative_scan(join, (starts, values))[1]


def collapse(weights: jax.Array, edges: jax.Array) -> jax.Array:
    """Sum weights [N] over groups with these edges [C + 2]; the sums [C + 1] of empty groups are 0."""
    starts = jnp.zeros(weights.size, bool).at[edges[:-1]].set(True)  # JAX drops an edge N
    sums = _running_sums(weights, starts)
    # The running sum at the last arm of a group is the group's sum.
    return jnp.where(edges[1:] > edges[:-1], sums[edges[1:] - 1], 0)


def spread(weights: jax.Array, edges: jax.Array, factors: jax.Array) -> jax.Array:
    """Multiply weights [N] by the factors [C + 1] of their groups, which have these edges [C + 2]."""
    # An arm's group number is the number of inner edges at or below it.
    passed = jnp.zeros(weights.size, jnp.int32).at[edges[1:-1]].add(1)
    return weights * factors[jnp.cumsum(passed)]


def subtract_at(differences: jax.Array, groups: Groups, gaps: jax.Array) -> jax.Array:
    """Subtract each round's gap at its cut from the differences; gaps at the same cut are summed first.

    Args:
        differences: [H] float64.
        groups: the groups of 0..H-1 at the cuts of the block.
        gaps: [C], the charge below the cut minus that above it, of each round.

    Returns:
        [H].
    """
    place = groups.edges[1:-1]
    new = jnp.concatenate([jnp.ones(1, bool), place[1:] != place[:-1]])
    last = jnp.concatenate([new[1:], jnp.ones(1, bool)])
    sums = _running_sums(gaps[groups.order], new)
    # One addition per distinct cut: a scatter with repeated indices would add in an unspecified order. The sum
    # stands at the last of equal cuts; the others point out of range and are dropped.
    return differences.at[jnp.where(last, place, differences.size)].add(-sums, mode="drop")
