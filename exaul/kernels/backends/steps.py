"""Linear weights of one copy, in JAX: how they follow from a state, how a round changes them, how a block ends.

A round is played from two sums of weights, below its cut and above it, whatever way a backend has to find them. The
update is that of Algorithms "ExAUL" and "EW-CA".
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from exaul.kernels.backends.backend import Decision, as_arrays, learn_priced
from exaul.kernels.game import Block, Parameters
from exaul.kernels.learners.learner import Learner, Priced, Sided


class StepFunctions(NamedTuple):
    """A round of a rule that changes the weights on both sides of the cut, in two halves.

    Attributes:
        decide: ``decide(carry, low, high, x, parameters)`` returns a ``Decision``, from the sums of the weights
            below the cut and above it, float64 [] each; ``pending`` is what ``learn`` reads of them.
        learn: ``learn(carry, x, decision, parameters)`` returns the carry, the factors of the weights below and
            above, and by how much more the arms below were charged.
    """

    decide: Callable[..., Decision]
    learn: Callable[..., tuple[Any, tuple[Any, Any], Any]]


def compute_weights(differences: jax.Array, eta: jax.Array, precision: str) -> jax.Array:
    """Compute ``w_k = exp(-eta (L_k - min L))`` from the differences of the cumulative charges L.

    Args:
        differences: [H] float64, ``L_k - L_{k-1}``; the first is any constant.
        eta: [] > 0.
        precision: dtype of the result.

    Returns:
        [H] in [0, 1], the largest 1.
    """
    losses = jnp.cumsum(differences)
    return jnp.exp((eta * (jnp.min(losses) - losses)).astype(precision))


def summed(differences: jax.Array, parameters: Parameters) -> jax.Array:
    """Sum the differences [H] to the cumulative charges of ``dense.sided``, up to a constant."""
    return jnp.cumsum(differences)


def steps_of(learner: Learner[Sided], precision: str) -> StepFunctions:
    """Make the round of a learner with a ``Sided`` rule; its carry is nothing.

    Args:
        learner: its rule is a ``Sided``.
        precision: dtype of the weights.
    """

    def decide(carry: Any, low: Any, high: Any, x: Block, parameters: Parameters) -> Decision:
        P, Q = low / (low + high), high / (low + high)
        return Decision((x.draws.decision < P) & x.active, P, (P, Q))

    def learn(carry: Any, x: Block, decision: Decision, parameters: Parameters) -> Any:
        answered = decision.answered
        error = x.errors if learner.feedback == "full" else jnp.where(answered, x.errors, 0.0)
        under, over = learner.rule.charge(jnp.where, *decision.kept, answered, error, parameters)
        gap = jnp.where(x.active, under - over, 0.0)
        factor = jnp.exp(-parameters.eta * jnp.abs(gap)).astype(precision)  # one exponential a round
        return carry, (jnp.where(gap > 0, factor, 1), jnp.where(gap > 0, 1, factor)), gap

    return StepFunctions(decide, learn)


def priced_steps_of(learner: Learner[Priced], precision: str) -> StepFunctions:
    """Make the round of a learner with a ``Priced`` rule.

    Its carry is the weight of the last arm and the memory, and the sums are those of the other arms. The factors
    divide by the sum of all weights, so that it is 1 after each round, before the round's share is added to the
    last arm.

    Args:
        learner: its rule is a ``Priced``.
        precision: dtype of the weights.
    """
    rule = learner.rule

    def decide(carry: Any, low: Any, high: Any, x: Block, parameters: Parameters) -> Decision:
        last, memory = carry
        P = low / (low + (high + last))
        chance = rule.decide(jnp.where, P, memory, parameters)
        return Decision((x.draws.decision < chance) & x.active, chance, (low, high, P))

    def learn(carry: Any, x: Block, decision: Decision, parameters: Parameters) -> Any:
        (last, before), (low, high, P) = carry, decision.kept
        under, over, share, memory = learn_priced(rule, P, x, decision, before, parameters)
        total = low + (high + last)
        factors = jnp.exp(-under) / total, jnp.exp(-over) / total
        last = last * factors[1] + share * (low * factors[0] + (high + last) * factors[1])
        return (last, memory), (factors[0].astype(precision), factors[1].astype(precision)), under - over

    return StepFunctions(decide, learn)


def init_priced(learner: Learner[Priced], arms: int, best: Any) -> tuple[jax.Array, Any]:
    """The state of a ``Priced`` rule before round 1: equal weights [H] of sum 1, and the memory.

    Args:
        learner: its rule is a ``Priced``.
        arms: H >= 2.
        best: as of ``Backend.init``.
    """
    return jnp.full(arms, 1 / arms, jnp.float64), as_arrays(learner.rule.start)


def mix_uniformly(learner: Learner[Priced], weights: jax.Array, memory: Any) -> jax.Array:
    """Add to all arms alike at the end of a block, as ``Priced.uniform_share`` says, and scale to sum 1.

    Args:
        learner: its rule is a ``Priced``.
        weights: [H] > 0.
        memory: at the end of the block.

    Returns:
        [H] of sum 1.
    """
    even = learner.rule.uniform_share(jnp.where, memory)
    return (weights / jnp.sum(weights) + even / weights.size) / (1 + even)


def logarithms(state: Any, parameters: Parameters) -> Any:
    """Compute the state of ``dense.priced``, ``-log w`` [H] and the memory, from the weights [H] and the memory."""
    return -jnp.log(state[0]), state[1]
