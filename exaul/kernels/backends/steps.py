"""Steps on the linear weights of one copy, in JAX: weights from a state, the update of a round, the end of a block.

A step needs only two sums of weights, below its cut and above it; each backend has its own way to compute them. The
update is that of Algorithms "ExAUL" and "EW-CA".
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from exaul.kernels.backends.backend import Decision, apply_prior, as_arrays, learn_priced
from exaul.kernels.game import Block, Parameters
from exaul.kernels.learners.learner import Learner, Priced, Sided


class StepFunctions(NamedTuple):
    """A step of a rule that changes the weights on both sides of the cut, in two halves.

    Attributes:
        decide: ``decide(carry, low, high, x, parameters)`` returns a ``Decision``, from the sums of the weights
            below the cut and above it, float64 [] each; its ``kept`` is what ``learn`` needs of them.
        learn: ``learn(carry, x, decision, parameters)`` returns the carry, the factors of the weights below and
            above, and the gap, the charge below minus that above.
    """

    decide: Callable[..., Decision]
    learn: Callable[..., tuple[Any, tuple[Any, Any], Any]]


def compute_weights(
    differences: jax.Array, eta: jax.Array, precision: str, prior: float | None = None
) -> jax.Array:
    """Compute ``w_k = exp(-eta (L_k - min L))`` in [0, 1] from ``L_k - L_{k-1}`` [H] float64, and apply a prior.

    The first difference is arbitrary, since weights depend on differences of charges only. A round changes one
    difference, at its cut, but H charges.
    """
    losses = jnp.cumsum(differences)
    return apply_prior(jnp.exp((eta * (jnp.min(losses) - losses)).astype(precision)), prior)


def summed(differences: jax.Array, parameters: Parameters) -> jax.Array:
    """Sum the differences [H] to the cumulative charges of ``dense.sided``, up to a constant."""
    return jnp.cumsum(differences)


def steps_of(learner: Learner[Sided], precision: str) -> StepFunctions:
    """Make the step of a ``Sided`` rule; its carry is passed through."""

    def decide(carry: Any, low: Any, high: Any, x: Block, parameters: Parameters) -> Decision:
        P, Q = low / (low + high), high / (low + high)
        return Decision((x.draws.decision < P) & x.active, P, (P, Q))

    def learn(carry: Any, x: Block, decision: Decision, parameters: Parameters) -> Any:
        answered = decision.answered
        error = x.errors if learner.feedback == "full" else jnp.where(answered, x.errors, 0.0)
        under, over = learner.rule.charge(jnp.where, *decision.kept, answered, error, parameters)
        gap = jnp.where(x.active, under - over, 0.0)
        # Only the ratio of the factors matters. The side with the larger charge gets exp(-eta |gap|), the other 1:
        # one exponential per round, and no weight grows.
        factor = jnp.exp(-parameters.eta * jnp.abs(gap)).astype(precision)
        return carry, (jnp.where(gap > 0, factor, 1), jnp.where(gap > 0, 1, factor)), gap

    return StepFunctions(decide, learn)


def priced_steps_of(learner: Learner[Priced], precision: str) -> StepFunctions:
    """Make the step of a ``Priced`` rule.

    The carry is the weight of the last arm and the rule's own state; ``low`` and ``high`` are the sums of the other
    arms.
    """
    rule = learner.rule

    def decide(carry: Any, low: Any, high: Any, x: Block, parameters: Parameters) -> Decision:
        last, rule_state = carry
        P = low / (low + (high + last))
        chance = rule.decide(jnp.where, P, rule_state, parameters)
        return Decision((x.draws.decision < chance) & x.active, chance, (low, high, P))

    def learn(carry: Any, x: Block, decision: Decision, parameters: Parameters) -> Any:
        (last, before), (low, high, P) = carry, decision.kept
        under, over, share, rule_state = learn_priced(rule, P, x, decision, before, parameters)
        # Dividing by the total keeps the sum of all weights near 1, so they cannot underflow together.
        total = low + (high + last)
        factors = jnp.exp(-under) / total, jnp.exp(-over) / total
        # The last arm is above every cut; ``share`` refers to the mass after the charges.
        last = last * factors[1] + share * (low * factors[0] + (high + last) * factors[1])
        return (last, rule_state), (factors[0].astype(precision), factors[1].astype(precision)), under - over

    return StepFunctions(decide, learn)


def init_priced(learner: Learner[Priced], arms: int, best: Any) -> tuple[jax.Array, Any]:
    """Return the state of a ``Priced`` rule before round 1: equal weights [H] of sum 1, and its own state."""
    return jnp.full(arms, 1 / arms, jnp.float64), as_arrays(learner.rule.start)


def mix_uniformly(learner: Learner[Priced], weights: jax.Array, rule_state: Any) -> jax.Array:
    """Add ``Priced.uniform_share`` to all arms equally, at the end of a block, and scale weights [H] to sum 1."""
    even = learner.rule.uniform_share(jnp.where, rule_state)
    return (weights / jnp.sum(weights) + even / weights.size) / (1 + even)


def logarithms(state: Any, parameters: Parameters) -> Any:
    """Return the state of ``dense.priced``: ``-log w`` [H] and the rule's own state."""
    return -jnp.log(state[0]), state[1]
