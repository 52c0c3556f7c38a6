"""The compressed backend, in JAX: H arms collapse, without loss, to the groups between a block's cuts.

A round multiplies the weights of all arms below its cut by one number and of all others by another (line "Update"
of Algorithm "ExAUL"). So over C rounds the arms between two neighbouring cuts keep their ratios, and H weights
collapse to C + 1 sums. Within a block, pieces of 8 rounds collapse those to 9 sums, with which the rounds are
played elementwise over copies. The state is the differences ``L_k - L_{k-1}``, of which a round changes one. All
sums run in a fixed order.
"""

import functools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from exaul.kernels.backends.backend import Backend, repeated
from exaul.kernels.game import LARGEST_STEP, ROUNDS, Block, Outcome, Parameters, by_copy
from exaul.kernels.learners.learner import Learner, Priced, Sided

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


def weigh(differences: jax.Array, eta: jax.Array, precision: str) -> jax.Array:
    """Compute ``w_k = exp(-eta (L_k - min L))`` from the differences of the cumulative charges L.

    Args:
        differences: [H, B] float64, ``L_k - L_{k-1}``; the first row is a constant of each copy.
        eta: [] > 0.
        precision: dtype of the result.

    Returns:
        [H, B] in [0, 1], the largest of each copy 1.
    """
    losses = jnp.cumsum(differences, axis=0)
    return jnp.exp((eta * (jnp.min(losses, axis=0, keepdims=True) - losses)).astype(precision))


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


def step_of(learner: Learner[Sided], precision: str) -> Callable[..., Any]:
    """Make the function that plays a round of a learner with a ``Sided`` rule, from sums of weights.

    Args:
        learner: its rule is a ``Sided``.
        precision: dtype of the weights.

    Returns:
        ``step(carry, low, high, x, parameters)``, where ``low`` and ``high`` [B] are the sums of weights below the
        cut and above it, and x is a round, a ``Block`` of arrays [B]. It returns the carry, here nothing; the
        factors of the weights below and above; whether the round was answered; the probability of it; and by how
        much more the arms below were charged; [B] each.
    """

    def step(
        carry: Any, low: Any, high: Any, x: Block, parameters: Parameters
    ) -> tuple[Any, tuple[Any, ...], Any, Any, Any]:
        P, Q = low / (low + high), high / (low + high)
        answered = (x.uniforms < P) & x.active
        error = x.errors if learner.feedback == "full" else jnp.where(answered, x.errors, 0.0)
        under, over = learner.rule.charge(jnp.where, P, Q, answered, error, parameters)
        gap = jnp.where(x.active, under - over, 0.0)
        factor = jnp.exp(-parameters.eta * jnp.abs(gap)).astype(precision)
        return carry, (jnp.where(gap > 0, factor, 1), jnp.where(gap > 0, 1, factor)), answered, P, gap

    return step


def priced_step_of(learner: Learner[Priced], precision: str) -> Callable[..., Any]:
    """Make the function that plays a round of a learner with a ``Priced`` rule, from sums of weights.

    Args:
        learner: its rule is a ``Priced``.
        precision: dtype of the weights.

    Returns:
        ``step`` as of ``step_of``. Its carry is the weight of the last arm and the memory, [B] each, and the sums
        are those of the other arms. The factors divide by the sum of all weights, so that it is 1 after each round,
        before the round's share is added to the last arm.
    """

    def step(
        carry: Any, low: Any, high: Any, x: Block, parameters: Parameters
    ) -> tuple[Any, tuple[Any, ...], Any, Any, Any]:
        last, memory = carry
        total = low + (high + last)
        chance, under, over, share, memory = learner.rule.play(
            jnp.where, jnp.exp, low / total, x.uniforms, x.errors, x.active, memory, parameters
        )
        factors = jnp.exp(-under) / total, jnp.exp(-over) / total
        last = last * factors[1] + share * (low * factors[0] + (high + last) * factors[1])
        factors = factors[0].astype(precision), factors[1].astype(precision)
        return (last, memory), factors, x.uniforms < chance, chance, under - over

    return step


def _play_piece(
    step: Callable[..., Any], carry: tuple[Any, ...], x: tuple[Any, ...], parameters: Parameters
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Play 8 rounds; the carry is the groups of the block and the carry of the step."""
    (groups, carried), (ranks, rounds) = carry, x
    parts = split(ranks, ROUNDS + 1)
    start = collapse(groups, parts.edges, parameters.record)
    inner = list(start)
    outcomes = []
    for i in range(PIECE):
        below = [g < parts.below[i][parameters.record] for g in range(PIECE + 1)]
        low = _total(jnp.where(b, w, 0) for b, w in zip(below, inner, strict=True))
        high = _total(jnp.where(b, 0, w) for b, w in zip(below, inner, strict=True))
        carried, factors, *outcome = step(carried, low, high, Block(*(x[i] for x in rounds)), parameters)
        inner = [w * jnp.where(b, *factors) for b, w in zip(below, inner, strict=True)]
        outcomes.append(outcome)
    change = jnp.stack([jnp.where(w > 0, v / w, 0) for v, w in zip(inner, start, strict=True)])
    groups = spread(groups, parts.edges, parameters.record, change)
    return (groups, carried), tuple(jnp.stack(column) for column in zip(*outcomes, strict=True))


def _play_block(
    step: Callable[..., Any], weights: jax.Array, carry: Any, parts: Groups, block: Block, parameters: Parameters
) -> tuple[jax.Array, jax.Array, Any, tuple[Any, ...]]:
    """Play a block; sums of weights [H, B] by group before and after it, the step's carry, and outcomes [C, B]."""
    groups = collapse(weights, parts.edges, parameters.record)
    rounds = by_copy(block, parameters)
    pieces = jax.tree.map(lambda x: x.reshape(-1, PIECE, *x.shape[1:]), (parts.below, rounds))
    (after, carry), played = lax.scan(lambda c, x: _play_piece(step, c, x, parameters), (groups, carry), pieces)
    return groups, after, carry, tuple(x.reshape(ROUNDS, -1) for x in played)


def sided(learner: Learner[Sided], precision: str) -> Backend:
    """Make the backend of a learner that charges one number below the cut and one above, as ``dense.sided``.

    Args:
        learner: its rule is a ``Sided``.
        precision: dtype of the weights and their sums; the state is the differences of cumulative charges, [H, B]
            float64.

    Returns:
        The backend.
    """
    step = step_of(learner, precision)

    def advance(differences: jax.Array, block: Block, parameters: Parameters) -> tuple[jax.Array, Outcome]:
        parts = split(block.cuts, differences.shape[0])
        weights = weigh(differences, parameters.eta, precision)
        *_, (answered, P, gaps) = _play_block(step, weights, (), parts, block, parameters)
        return subtract_at(differences, parts, parameters.record, gaps), Outcome(answered, P)

    return Backend(_init, advance, dense_state=summed, largest_step=LARGEST_STEP[precision])


def priced(learner: Learner[Priced], precision: str) -> Backend:
    """Make the backend of a learner with a memory, whose mass moves to the last arm, as ``dense.priced``.

    Weights need no logarithm here: what is added to all arms at the end of a block bounds them from below.

    Args:
        learner: its rule is a ``Priced``.
        precision: dtype of the weights and their sums within a block; the state is the weights, of sum 1, [H, B]
            float64, and the memory, [B] float64 each.

    Returns:
        The backend.
    """
    step = priced_step_of(learner, precision)

    def advance(state: Any, block: Block, parameters: Parameters) -> tuple[Any, Outcome]:
        weights, memory = state
        parts = split(block.cuts, weights.shape[0])
        others = weights.at[-1].set(0.0).astype(precision)
        played = _play_block(step, others, (weights[-1], memory), parts, block, parameters)
        before, after, (last, memory), (answered, P, _) = played
        others = spread(others, parts.edges, parameters.record, jnp.where(before > 0, after / before, 0))
        weights = others.astype(jnp.float64).at[-1].set(last)
        return (evened(learner, weights, memory), memory), Outcome(answered, P)

    return Backend(partial(begin_priced, learner), advance, dense_state=logarithms)


def begin_priced(
    learner: Learner[Priced], arms: int, best: NDArray[np.int32], streams: int
) -> tuple[jax.Array, Any]:
    """The state before round 1 of a learner with a ``Priced`` rule.

    Args:
        learner: its rule is a ``Priced``.
        arms: H >= 2.
        best: [B], read for its length.
        streams: not read.

    Returns:
        Equal weights [H, B] of sum 1, and the memory, [B] each.
    """
    return jnp.full((arms, len(best)), 1 / arms, jnp.float64), repeated(learner.rule.start, len(best))


def evened(learner: Learner[Priced], weights: jax.Array, memory: Any) -> jax.Array:
    """Add to all arms alike at the end of a block, as ``Priced.even`` says, and scale to sum 1.

    Args:
        learner: its rule is a ``Priced``.
        weights: [H, B] > 0.
        memory: at the end of the block, [B] each.

    Returns:
        [H, B] of sum 1.
    """
    even = learner.rule.even(jnp.where, memory)
    return (weights / jnp.sum(weights, axis=0, keepdims=True) + even[None] / len(weights)) / (1 + even)[None]


def _total(parts: Iterable[jax.Array]) -> jax.Array:
    return functools.reduce(jnp.add, parts).astype(jnp.float64)


def _init(arms: int, best: NDArray[np.int32], streams: int) -> jax.Array:
    return jnp.zeros((arms, len(best)), jnp.float64)


def summed(differences: jax.Array, parameters: Parameters) -> jax.Array:
    """Sum the differences to the cumulative charges that ``dense.sided`` has as its state.

    Args:
        differences: [H, B], ``L_k - L_{k-1}``.
        parameters: not read.

    Returns:
        [H, B], up to a constant of each copy.
    """
    return jnp.cumsum(differences, axis=0)


def logarithms(state: Any, parameters: Parameters) -> Any:
    """Compute the state that ``dense.priced`` has, ``-log w`` and the memory.

    Args:
        state: the weights [H, B] and the memory, [B] each.
        parameters: not read.

    Returns:
        [H, B] and the memory.
    """
    return -jnp.log(state[0]), state[1]


_MAKERS: dict[type, Callable[[Learner[Any], str], Backend]] = {Sided: sided, Priced: priced}


def make(learner: Learner[Any], precision: str) -> Backend | None:
    """Make the compressed backend of a learner.

    Args:
        learner: with a rule of any shape.
        precision: dtype of the weights and their sums, ``float64`` or ``float32``.

    Returns:
        The backend, or None where there is no loop for the learner's rule.
    """
    maker = _MAKERS.get(type(learner.rule))
    return None if maker is None else maker(learner, precision)
