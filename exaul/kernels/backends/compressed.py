"""The compressed backend, in JAX: H arms collapse, without loss, to the groups between a block's cuts.

Why nothing is lost stands in ``groups.py``. Within a block, pieces of 8 rounds collapse its C + 1 sums to 9, with
which the rounds are played elementwise over copies (line "Update" of Algorithm "ExAUL"). The state is the
differences ``L_k - L_{k-1}``, of which a round changes one.
"""

import functools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from exaul.kernels.backends.backend import Backend, choose, no_losses
from exaul.kernels.backends.groups import PIECE, Groups, collapse, split, spread, subtract_at
from exaul.kernels.backends.steps import (
    begin_priced,
    evened,
    logarithms,
    priced_step_of,
    step_of,
    summed,
    weigh,
)
from exaul.kernels.game import LARGEST_STEP, ROUNDS, Block, Outcome, Parameters, by_copy
from exaul.kernels.learners.learner import Learner, Priced, Sided


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

    return Backend(no_losses, advance, dense_state=summed, largest_step=LARGEST_STEP[precision])


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


def _total(parts: Iterable[jax.Array]) -> jax.Array:
    return functools.reduce(jnp.add, parts).astype(jnp.float64)


make = partial(choose, {Sided: sided, Priced: priced})
