"""Steps on the linear weights of one copy, in JAX: weights from a state, the update of a round, the end of a block.

A step needs only two sums of weights, below its cut and above it; each backend has its own way to compute them. The
update is that of Algorithms "ExAUL" and "EW-CA".
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from exaul.kernels.backends.backend import Decision, apply_prior
from exaul.kernels.game import Block, Parameters
from exaul.kernels.learners.learner import Learner, Sided


class StepFunctions(NamedTuple):
    """A step of a rule that changes the weights on both sides of the cut, in two halves.

    Attributes:
        decide: ``decide(low, high, x, parameters)`` returns a ``Decision``, from the sums of the weights below the
            cut and above it, float64 [] each; its ``kept`` is what ``learn`` needs of them.
        learn: ``learn(x, decision, parameters)`` returns the factors of the weights below and above, and the gap,
            the charge below minus that above.
    """

    decide: Callable[..., Decision]
    learn: Callable[..., tuple[tuple[Any, Any], Any]]


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
    """Make the step of a ``Sided`` rule."""

    def decide(low: Any, high: Any, x: Block, parameters: Parameters) -> Decision:
        P, Q = low / (low + high), high / (low + high)
        return Decision((x.draws.decision < P) & x.active, P, (P, Q))

    def learn(x: Block, decision: Decision, parameters: Parameters) -> Any:
        answered = decision.answered
        error = x.errors if learner.feedback == "full" else jnp.where(answered, x.errors, 0.0)
        under, over = learner.rule.charge(jnp.where, *decision.kept, answered, error, parameters)
        gap = jnp.where(x.active, under - over, 0.0)
        # Only the ratio of the factors matters. The side with the larger charge gets exp(-eta |gap|), the other 1:
        # one exponential per round, and no weight grows.
        factor = jnp.exp(-parameters.eta * jnp.abs(gap)).astype(precision)
        return (jnp.where(gap > 0, factor, 1), jnp.where(gap > 0, 1, factor)), gap

    return StepFunctions(decide, learn)
