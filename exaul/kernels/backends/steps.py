"""Linear weights, in JAX: how they follow from a state, how a round changes them, and how a block ends.

A round is played from two sums of weights, below its cut and above it, whatever way a backend has to find them. The
update is that of Algorithms "ExAUL" and "EW-CA".
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.backend import repeated
from exaul.kernels.game import Block, Parameters
from exaul.kernels.learners.learner import Learner, Priced, Sided


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


def summed(differences: jax.Array, parameters: Parameters) -> jax.Array:
    """Sum the differences to the cumulative charges that ``dense.sided`` has as its state.

    Args:
        differences: [H, B], ``L_k - L_{k-1}``.

    Returns:
        [H, B], up to a constant of each copy.
    """
    return jnp.cumsum(differences, axis=0)


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


def begin_priced(
    learner: Learner[Priced], arms: int, best: NDArray[np.int32], streams: int
) -> tuple[jax.Array, Any]:
    """The state before round 1 of a learner with a ``Priced`` rule.

    Args:
        learner: its rule is a ``Priced``.
        arms: H >= 2.
        best: [B], read for its length.

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


def logarithms(state: Any, parameters: Parameters) -> Any:
    """Compute the state that ``dense.priced`` has, ``-log w`` and the memory.

    Args:
        state: the weights [H, B] and the memory, [B] each.

    Returns:
        [H, B] and the memory.
    """
    return -jnp.log(state[0]), state[1]
