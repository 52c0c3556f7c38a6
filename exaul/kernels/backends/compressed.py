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
from exaul.kernels.backends.groups import PIECE, collapse, split, spread, subtract_at
from exaul.kernels.backends.steps import StepFunctions, compute_weights, steps_of, summed
from exaul.kernels.game import LARGEST_STEP, ROUNDS, Block, Outcome, Parameters
from exaul.kernels.learners.learner import Learner, Sided


def _step_piece(
    steps: StepFunctions, groups: jax.Array, x: tuple[jax.Array, Block], parameters: Parameters
) -> tuple[jax.Array, tuple[Any, ...]]:
    """Simulate 8 rounds; the carry ``groups`` is the sums of the block's groups."""
    ranks, rounds = x
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
        decision = steps.decide(low, high, one, parameters)
        factors, gap = steps.learn(one, decision, parameters)
        inner = [w * jnp.where(b, *factors) for b, w in zip(below, inner, strict=True)]
        outcomes.append((decision.answered, decision.probability, gap))
    # Every group inside one of the 9 sums changes by the factor of that sum. 0 / 0 of an empty sum is replaced.
    change = jnp.stack([jnp.where(w > 0, v / w, 0) for v, w in zip(inner, start, strict=True)])
    groups = spread(groups, parts.edges, change)
    return groups, tuple(jnp.stack(column) for column in zip(*outcomes, strict=True))


def sided(learner: Learner[Sided], precision: str) -> Backend:
    """Make the backend for two charges, below the cut and above; the state is the differences, [H] float64."""
    steps = steps_of(learner, precision)

    def advance(differences: jax.Array, block: Block, parameters: Parameters) -> tuple[jax.Array, Outcome]:
        parts = split(block.cuts, differences.size)
        weights = compute_weights(differences, parameters.eta, precision, learner.rule.prior)
        groups = collapse(weights, parts.edges)
        pieces = jax.tree.map(lambda x: x.reshape(-1, PIECE), (parts.below, block))
        _, results = lax.scan(lambda c, x: _step_piece(steps, c, x, parameters), groups, pieces)
        answered, P, gaps = (x.reshape(ROUNDS) for x in results)
        return subtract_at(differences, parts, gaps), Outcome(answered, P)

    return Backend(no_losses, advance, dense_state=summed, largest_step=LARGEST_STEP[precision])


def _total(parts: Iterable[jax.Array]) -> jax.Array:
    # From low groups to high ones; jnp.sum would leave the order to XLA.
    return functools.reduce(jnp.add, parts).astype(jnp.float64)


make = partial(make_backend, {Sided: sided})
