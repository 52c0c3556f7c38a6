"""The parallel backend, in JAX: exponential weights that are charged the true loss, which the data alone decide.

The charges of Algorithm "EW-CA" do not depend on what was drawn, so no round has to wait for the one before it.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from exaul.kernels.backends.backend import Backend
from exaul.kernels.backends.groups import PIECE, collapse, split, spread, subtract_at
from exaul.kernels.backends.steps import weigh
from exaul.kernels.game import LARGEST_STEP, ROUNDS, Block, Outcome, Parameters, by_copy
from exaul.kernels.learners.learner import Learner, Sided


def in_parallel(precision: str) -> Backend:
    """Make the backend of every learner that charges the true loss (``ew``).

    ``L_k - L_{k-1} = abstain_cost N_k - answer_cost E_k``, where N_k is the number of rounds whose cut is k, and
    E_k the sum of their errors. So the state is N [H, R] int64 and E [H, R] float64, one of each for all copies
    that play the same stream of records, and 8 rounds are played at once.

    Args:
        precision: dtype of the weights and their sums.

    Returns:
        The backend.
    """

    def init(arms: int, best: NDArray[np.int32], streams: int) -> tuple[jax.Array, jax.Array]:
        return jnp.zeros((arms, streams), jnp.int64), jnp.zeros((arms, streams), jnp.float64)

    def play_inner(
        groups: jax.Array, x: tuple[Any, ...], parameters: Parameters
    ) -> tuple[jax.Array, tuple[Any, ...]]:
        ranks, rounds, gaps = x
        parts = split(ranks, ROUNDS + 1)
        inner = collapse(groups, parts.edges, parameters.record)
        places = jnp.arange(PIECE + 1, dtype=jnp.int32)[None, :, None]
        below = places < parts.below[:, None, parameters.record]  # [8, 9, B]
        charged = jnp.cumsum(jnp.where(below, gaps[:, None], 0.0), axis=0)
        least = jnp.minimum(jnp.min(charged, axis=1, keepdims=True), 0.0)
        before = jnp.concatenate([jnp.zeros_like(charged[:1]), (charged - least)[:-1]])
        weights = inner[None] * jnp.exp(-parameters.eta * before).astype(precision)
        low = jnp.sum(jnp.where(below, weights, 0), axis=1).astype(jnp.float64)
        high = jnp.sum(jnp.where(below, 0, weights), axis=1).astype(jnp.float64)
        P = low / (low + high)
        answered = (rounds.uniforms < P) & rounds.active[:, None]
        change = jnp.exp(-parameters.eta * (charged - least)[-1]).astype(precision)
        return spread(groups, parts.edges, parameters.record, change), (answered, P)

    def advance(state: Any, block: Block, parameters: Parameters) -> tuple[Any, Outcome]:
        rounds = by_copy(block, parameters)
        answer_cost, abstain_cost = parameters.answer_cost[None], parameters.abstain_cost[None]
        gaps = jnp.where(rounds.active[:, None], answer_cost * rounds.errors - abstain_cost, 0.0)
        count, wrong = state
        differences = (
            abstain_cost * count[:, parameters.record].astype(jnp.float64)
            - answer_cost * wrong[:, parameters.record]
        )
        parts = split(block.cuts, differences.shape[0])
        weights = weigh(differences, parameters.eta, precision)
        groups = collapse(weights, parts.edges, parameters.record)
        pieces = jax.tree.map(lambda x: x.reshape(-1, PIECE, *x.shape[1:]), (parts.below, rounds, gaps))
        _, played = lax.scan(lambda g, x: play_inner(g, x, parameters), groups, pieces)
        answered, P = (x.reshape(ROUNDS, -1) for x in played)
        seen = jnp.where(block.active[:, None], jnp.ones_like(block.errors), 0.0)
        each = jnp.arange(count.shape[1])
        count = count + subtract_at(jnp.zeros(count.shape), parts, each, -seen).astype(jnp.int64)
        wrong = subtract_at(wrong, parts, each, -seen * block.errors)
        return (count, wrong), Outcome(answered, P)

    def dense_state(state: Any, parameters: Parameters) -> jax.Array:
        count, wrong = (x[:, parameters.record].astype(jnp.float64) for x in state)
        return jnp.cumsum(parameters.abstain_cost * count - parameters.answer_cost * wrong, axis=0)

    return Backend(init, advance, dense_state=dense_state, largest_step=LARGEST_STEP[precision])


def make(learner: Learner[Any], precision: str) -> Backend | None:
    """Make the parallel backend of a learner.

    Args:
        learner: with a rule of any type.
        precision: dtype of the weights [H, B] and their sums, ``float64`` or ``float32``.

    Returns:
        The backend, or None where the learner's rule does not say that it charges the true loss.
    """
    true_loss = isinstance(learner.rule, Sided) and learner.rule.true_loss and learner.feedback == "full"
    return in_parallel(precision) if true_loss else None
