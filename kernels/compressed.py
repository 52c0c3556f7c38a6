"""The compressed backend, in JAX: the arms collapse exactly to the groups that a block's cuts tell apart.

Over C rounds the arms between two neighbouring cuts keep their ratios, so H weights collapse to C + 1 sums; within
a block, 8 rounds at a time collapse those to 9, which are played elementwise over copies. The state holds the
differences ``L_k - L_{k-1}``, of which a round changes one. All sums run in a fixed order.
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

from kernels.game import ROUNDS, Block, Outcome, Parameters, by_copy
from kernels.learner import Backend, Learner, remembered

INNER = 8  # rounds of the inner collapse


class Groups(NamedTuple):
    """The groups that C rounds' values make of 0..N-1: group g holds what lies from edge g up to edge g + 1.

    The edges are 0, the values in order, and N; a group is empty where values tie.
    """

    order: jax.Array  # [C, R], the rounds by their values
    edges: jax.Array  # [C + 2, R]
    below: jax.Array  # [C, R], how many groups lie below each round's own value


def _split(values: jax.Array, size: int) -> Groups:
    """Groups of 0..size-1 at some rounds' values [C, R] of R streams."""
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
    """Sums [N, B] along axis 0 that begin anew where ``starts`` [N, B]; a fixed tree, with no subtraction."""

    def join(left: tuple, right: tuple) -> tuple:
        return left[0] | right[0], jnp.where(right[0], right[1], left[1] + right[1])

    return lax.associative_scan(join, (starts, values), axis=0)[1]


def _collapse(weights: jax.Array, edges: jax.Array, record: jax.Array) -> jax.Array:
    """Sum weights [N, B] over the groups between the edges [C + 2, R] of each copy's records: [C + 1, B]."""
    streams = jnp.arange(edges.shape[1])[None]
    starts = jnp.zeros((weights.shape[0], edges.shape[1]), bool).at[edges[:-1], streams].set(True)
    sums = _running_sums(weights, starts[:, record])
    found = jnp.take_along_axis(sums, (edges[1:] - 1)[:, record], axis=0)
    return jnp.where((edges[1:] > edges[:-1])[:, record], found, 0)


def _spread(weights: jax.Array, edges: jax.Array, record: jax.Array, factors: jax.Array) -> jax.Array:
    """Multiply weights [N, B] by the factors [C + 1, B] of their groups."""
    streams = jnp.arange(edges.shape[1])[None]
    passed = jnp.zeros((weights.shape[0], edges.shape[1]), jnp.int32).at[edges[1:-1], streams].add(1)
    return weights * jnp.take_along_axis(factors, jnp.cumsum(passed, axis=0)[:, record], axis=0)


def weigh(differences: jax.Array, eta: jax.Array, precision: str) -> jax.Array:
    """``w ~ exp(-eta L)`` [H, B], the largest 1, from the differences of L."""
    losses = jnp.cumsum(differences, axis=0)
    return jnp.exp((eta * (jnp.min(losses, axis=0, keepdims=True) - losses)).astype(precision))


def _subtract_at(differences: jax.Array, groups: Groups, record: jax.Array, gaps: jax.Array) -> jax.Array:
    """Subtract each round's gap [C, B] at its cut in the differences [H, B]; ties are summed first."""
    place = groups.edges[1:-1]
    new = jnp.concatenate([jnp.ones_like(place[:1], bool), place[1:] != place[:-1]])
    last = jnp.concatenate([new[1:], jnp.ones_like(new[:1])])
    nowhere = differences.shape[0]
    sums = _running_sums(jnp.take_along_axis(gaps, groups.order[:, record], axis=0), new[:, record])
    lanes = jnp.arange(gaps.shape[1])[None]
    return differences.at[jnp.where(last, place, nowhere)[:, record], lanes].add(-sums, mode="drop")


def step_of(learner: Learner, precision: str) -> Callable:
    """A round of a learner of kind ``sided``, given the sums of weights below the cut and above.

    ``step(held, low, high, x, parameters)`` gives what is held (nothing, here), the factors of the weights below
    and above, whether it answered, its probability, and by how much more the arms below were charged; [B] each.
    """

    def step(held: Any, low: Any, high: Any, x: Block, parameters: Parameters) -> tuple[Any, tuple, Any, Any, Any]:
        P, Q = low / (low + high), high / (low + high)
        answered = (x.uniforms < P) & x.active
        error = x.errors if learner.feedback == "full" else jnp.where(answered, x.errors, 0.0)
        under, over = learner.rule(jnp.where, P, Q, answered, error, parameters)
        gap = jnp.where(x.active, under - over, 0.0)
        factor = jnp.exp(-parameters.eta * jnp.abs(gap)).astype(precision)
        return held, (jnp.where(gap > 0, factor, 1), jnp.where(gap > 0, 1, factor)), answered, P, gap

    return step


def priced_step_of(learner: Learner, precision: str) -> Callable:
    """The same of a learner of kind ``priced``, which holds the weight of the last arm and its memory.

    The sums are those of the other arms. Of all weights the sum is 1 after each round, but for what a round adds.
    """

    def step(held: Any, low: Any, high: Any, x: Block, parameters: Parameters) -> tuple[Any, tuple, Any, Any, Any]:
        last, memory = held
        total = low + (high + last)
        given = x.uniforms, x.errors, x.active, memory, parameters
        chance, under, over, share, memory = learner.rule.play(jnp.where, jnp.exp, low / total, *given)
        factors = jnp.exp(-under) / total, jnp.exp(-over) / total
        last = last * factors[1] + share * (low * factors[0] + (high + last) * factors[1])
        factors = factors[0].astype(precision), factors[1].astype(precision)
        return (last, memory), factors, x.uniforms < chance, chance, under - over

    return step


def _play_inner(step: Callable, carry: tuple, x: tuple, parameters: Parameters) -> tuple[tuple, tuple]:
    """Play 8 rounds with the groups of a block and what a step holds."""
    (groups, held), (ranks, rounds) = carry, x
    split = _split(ranks, ROUNDS + 1)
    start = _collapse(groups, split.edges, parameters.record)
    inner = list(start)
    outcomes = []
    for i in range(INNER):
        below = [g < split.below[i][parameters.record] for g in range(INNER + 1)]
        low = _total(jnp.where(b, w, 0) for b, w in zip(below, inner, strict=True))
        high = _total(jnp.where(b, 0, w) for b, w in zip(below, inner, strict=True))
        held, factors, *outcome = step(held, low, high, Block(*(x[i] for x in rounds)), parameters)
        inner = [w * jnp.where(b, *factors) for b, w in zip(below, inner, strict=True)]
        outcomes.append(outcome)
    change = jnp.stack([jnp.where(w > 0, v / w, 0) for v, w in zip(inner, start, strict=True)])
    groups = _spread(groups, split.edges, parameters.record, change)
    return (groups, held), tuple(jnp.stack(column) for column in zip(*outcomes, strict=True))


def _play_block(
    step: Callable, weights: jax.Array, held: Any, split: Groups, block: Block, parameters: Parameters
) -> tuple[jax.Array, jax.Array, Any, tuple]:
    """Groups of the weights [H, B] before and after a block, what a step holds, and its outcomes [C, B]."""
    groups = _collapse(weights, split.edges, parameters.record)
    rounds = by_copy(block, parameters)
    pieces = jax.tree.map(lambda x: x.reshape(-1, INNER, *x.shape[1:]), (split.below, rounds))
    (after, held), played = lax.scan(lambda c, x: _play_inner(step, c, x, parameters), (groups, held), pieces)
    return groups, after, held, tuple(x.reshape(ROUNDS, -1) for x in played)


def sided(learner: Learner, precision: str) -> Backend:
    """Backend of a learner that charges one number below the cut and one above, as ``dense.sided``.

    Args:
        learner: of kind ``sided``.
        precision: dtype of the weights and their sums; the differences of losses are float64.
    """
    step = step_of(learner, precision)

    def advance(differences: jax.Array, block: Block, parameters: Parameters) -> tuple[jax.Array, Outcome]:
        split = _split(block.cuts, differences.shape[0])
        weights = weigh(differences, parameters.eta, precision)
        *_, (answered, P, gaps) = _play_block(step, weights, (), split, block, parameters)
        return _subtract_at(differences, split, parameters.record, gaps), Outcome(answered, P)

    return Backend(_init, advance)


def priced(learner: Learner, precision: str) -> Backend:
    """Backend of a learner with a memory, whose mass drifts to the last arm, as ``dense.priced``.

    The state is the weights [H, B] in float64, their sum 1, and the memory: mass is spread over all arms at the
    end of a block, so that no weight leaves the range of numbers, and none need be kept as a logarithm.

    Args:
        learner: of kind ``priced``.
        precision: dtype of the sums within a block.
    """
    step = priced_step_of(learner, precision)

    def advance(state: Any, block: Block, parameters: Parameters) -> tuple[Any, Outcome]:
        weights, memory = state
        split = _split(block.cuts, weights.shape[0])
        others = weights.at[-1].set(0.0).astype(precision)
        played = _play_block(step, others, (weights[-1], memory), split, block, parameters)
        before, after, (last, memory), (answered, P, _) = played
        others = _spread(others, split.edges, parameters.record, jnp.where(before > 0, after / before, 0))
        weights = others.astype(jnp.float64).at[-1].set(last)
        return (evened(learner, weights, memory), memory), Outcome(answered, P)

    return Backend(partial(begin_priced, learner), advance)


def begin_priced(learner: Learner, arms: int, best: NDArray[np.int32], streams: int) -> tuple[jax.Array, Any]:
    """Equal weights [H, B] of sum 1, and the memory."""
    return jnp.full((arms, len(best)), 1 / arms, jnp.float64), remembered(learner, len(best))


def evened(learner: Learner, weights: jax.Array, memory: Any) -> jax.Array:
    """The weights [H, B] at the end of a block, of sum 1, with what is spread over all arms."""
    even = learner.rule.even(jnp.where, memory)
    return (weights / jnp.sum(weights, axis=0, keepdims=True) + even[None] / len(weights)) / (1 + even)[None]


def _total(parts: Iterable[jax.Array]) -> jax.Array:
    return functools.reduce(jnp.add, parts).astype(jnp.float64)


def _init(arms: int, best: NDArray[np.int32], streams: int) -> jax.Array:
    return jnp.zeros((arms, len(best)), jnp.float64)


def in_parallel(learner: Learner, precision: str) -> Backend:
    """Backend of a learner with full feedback whose charges do not depend on its weights (``ew``).

    Its weights follow from the data alone, ``L_k - L_{k-1} = abstain N_k - answer E_k`` with N_k the rounds whose
    cut is k and E_k their errors, integers where feedback is binary. So the state is those counts, one set for
    all copies that meet the same records, and 8 rounds are played at once.

    Args:
        learner: of kind ``sided``, with feedback ``full``.
        precision: dtype of the weights and their sums.
    """

    def init(arms: int, best: NDArray[np.int32], streams: int) -> tuple[jax.Array, jax.Array]:
        return jnp.zeros((arms, streams), jnp.int64), jnp.zeros((arms, streams), jnp.float64)

    def play_inner(groups: jax.Array, x: tuple, parameters: Parameters) -> tuple[jax.Array, tuple]:
        ranks, rounds, gaps = x
        split = _split(ranks, ROUNDS + 1)
        inner = _collapse(groups, split.edges, parameters.record)
        places = jnp.arange(INNER + 1, dtype=jnp.int32)[None, :, None]
        below = places < split.below[:, None, parameters.record]  # [8, 9, B]
        charged = jnp.cumsum(jnp.where(below, gaps[:, None], 0.0), axis=0)
        least = jnp.minimum(jnp.min(charged, axis=1, keepdims=True), 0.0)
        before = jnp.concatenate([jnp.zeros_like(charged[:1]), (charged - least)[:-1]])
        weights = inner[None] * jnp.exp(-parameters.eta * before).astype(precision)
        low = jnp.sum(jnp.where(below, weights, 0), axis=1).astype(jnp.float64)
        high = jnp.sum(jnp.where(below, 0, weights), axis=1).astype(jnp.float64)
        P = low / (low + high)
        answered = (rounds.uniforms < P) & rounds.active[:, None]
        change = jnp.exp(-parameters.eta * (charged - least)[-1]).astype(precision)
        return _spread(groups, split.edges, parameters.record, change), (answered, P)

    def advance(state: Any, block: Block, parameters: Parameters) -> tuple[Any, Outcome]:
        rounds = by_copy(block, parameters)
        costs = parameters._replace(answer=parameters.answer[None], abstain=parameters.abstain[None])
        nothing = jnp.zeros_like(rounds.errors)
        under, over = learner.rule(jnp.where, nothing, nothing, nothing > 0, rounds.errors, costs)
        gaps = jnp.where(rounds.active[:, None], under - over, 0.0)
        count, wrong = state
        differences = (
            costs.abstain * count[:, parameters.record].astype(jnp.float64)
            - costs.answer * wrong[:, parameters.record]
        )
        split = _split(block.cuts, differences.shape[0])
        weights = weigh(differences, parameters.eta, precision)
        groups = _collapse(weights, split.edges, parameters.record)
        pieces = jax.tree.map(lambda x: x.reshape(-1, INNER, *x.shape[1:]), (split.below, rounds, gaps))
        _, played = lax.scan(lambda g, x: play_inner(g, x, parameters), groups, pieces)
        answered, P = (x.reshape(ROUNDS, -1) for x in played)
        seen = jnp.where(block.active[:, None], jnp.ones_like(block.errors), 0.0)
        each = jnp.arange(count.shape[1])
        count = count + _subtract_at(jnp.zeros(count.shape), split, each, -seen).astype(jnp.int64)
        wrong = _subtract_at(wrong, split, each, -seen * block.errors)
        return (count, wrong), Outcome(answered, P)

    return Backend(init, advance)
