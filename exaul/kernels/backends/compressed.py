"""The compressed backend, in JAX: the H weights of one copy collapse, without loss, to sums over groups of arms.

``groups.py`` explains why nothing is lost. It happens twice:

    H weights            -> 257 sums between the cuts of a block of 256 rounds
    257 sums of a block  -> 9 sums between the cuts of a piece of 8 rounds

Each step (line "Update" of Algorithm "ExAUL") changes 9 numbers. The state is the differences ``L_k - L_{k-1}``, of
which a round changes one.
"""

import functools
from collections.abc import Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from exaul.kernels.backends.backend import Backend, make_backend, no_losses
from exaul.kernels.backends.groups import PIECE, Groups, collapse, split, spread, subtract_at
from exaul.kernels.backends.steps import (
    StepFunctions,
    compute_weights,
    init_priced,
    logarithms,
    mix_uniformly,
    priced_steps_of,
    steps_of,
    summed,
)
from exaul.kernels.game import LARGEST_STEP, ROUNDS, Block, Outcome, Parameters
from exaul.kernels.learners.learner import Learner, Priced, Sided


def _step_piece(
    steps: StepFunctions, carry: tuple[Any, Any], x: tuple[jax.Array, Block], parameters: Parameters
) -> tuple[tuple[Any, Any], tuple[Any, ...]]:
    """Simulate 8 rounds; the carry is the sums of the block's groups and the carry of the steps."""
    (groups, carried), (ranks, rounds) = carry, x
    parts = split(ranks, ROUNDS + 1)
    before = collapse(groups, parts.edges)
    # Nine scalars instead of an array: under vmap they are nine arrays [B], and a round is elementwise over copies.
    start = inner = [before[g] for g in range(PIECE + 1)]
    outcomes = []
    for i in range(PIECE):
        one = jax.tree.map(lambda each, i=i: each[i], rounds)
        below = [g < parts.below[i] for g in range(PIECE + 1)]
        low = _total(jnp.where(b, w, 0) for b, w in zip(below, inner, strict=True))
        high = _total(jnp.where(b, 0, w) for b, w in zip(below, inner, strict=True))
        decision = steps.decide(carried, low, high, one, parameters)
        carried, factors, gap = steps.learn(carried, one, decision, parameters)
        inner = [w * jnp.where(b, *factors) for b, w in zip(below, inner, strict=True)]
        outcomes.append((decision.answered, decision.probability, gap))
    # Every group inside one of the 9 sums changes by the factor of that sum. 0 / 0 of an empty sum is replaced.
    change = jnp.stack([jnp.where(w > 0, v / w, 0) for v, w in zip(inner, start, strict=True)])
    groups = spread(groups, parts.edges, change)
    return (groups, carried), tuple(jnp.stack(column) for column in zip(*outcomes, strict=True))


def _advance_block(
    steps: StepFunctions, weights: jax.Array, carry: Any, parts: Groups, block: Block, parameters: Parameters
) -> tuple[jax.Array, jax.Array, Any, tuple[Any, ...]]:
    """Simulate a block: return the sums by group before and after it, the steps' carry, and outcomes [C]."""
    groups = collapse(weights, parts.edges)
    pieces = jax.tree.map(lambda x: x.reshape(-1, PIECE), (parts.below, block))
    (after, carry), results = lax.scan(lambda c, x: _step_piece(steps, c, x, parameters), (groups, carry), pieces)
    return groups, after, carry, tuple(x.reshape(ROUNDS) for x in results)


def sided(learner: Learner[Sided], precision: str) -> Backend:
    """Make the backend for two charges, below the cut and above; the state is the differences, [H] float64."""
    steps = steps_of(learner, precision)

    def advance(differences: jax.Array, block: Block, parameters: Parameters) -> tuple[jax.Array, Outcome]:
        parts = split(block.cuts, differences.size)
        weights = compute_weights(differences, parameters.eta, precision, learner.rule.prior)
        *_, (answered, P, gaps) = _advance_block(steps, weights, (), parts, block, parameters)
        return subtract_at(differences, parts, gaps), Outcome(answered, P)

    return Backend(no_losses, advance, dense_state=summed, largest_step=LARGEST_STEP[precision])


def priced(learner: Learner[Priced], precision: str) -> Backend:
    """Make the backend for a rule with a state of its own, whose mass moves to the last arm.

    The state is the weights, of sum 1, [H] float64, and the rule's own state, float64 [] each. The uniform share at
    the end of each block bounds the weights from below, so they need no logarithm.
    """
    steps = priced_steps_of(learner, precision)

    def advance(state: Any, block: Block, parameters: Parameters) -> tuple[Any, Outcome]:
        weights, rule_state = state
        parts = split(block.cuts, weights.size)
        # The last arm receives mass in every round, so its ratio to its group changes: it is kept apart.
        others = weights.at[-1].set(0.0).astype(precision)
        results = _advance_block(steps, others, (weights[-1], rule_state), parts, block, parameters)
        before, after, (last, rule_state), (answered, P, _) = results
        others = spread(others, parts.edges, jnp.where(before > 0, after / before, 0))
        weights = others.astype(jnp.float64).at[-1].set(last)
        return (mix_uniformly(learner, weights, rule_state), rule_state), Outcome(answered, P)

    return Backend(partial(init_priced, learner), advance, dense_state=logarithms)


def _total(parts: Iterable[jax.Array]) -> jax.Array:
    # From low groups to high ones; jnp.sum would leave the order to XLA.
    return functools.reduce(jnp.add, parts).astype(jnp.float64)


make = partial(make_backend, {Sided: sided, Priced: priced})
