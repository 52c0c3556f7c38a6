"""The readable reference: every step recomputes all weights from H cumulative losses, in O(H).

The steps are those of Algorithms "ExAUL", "EW-CA" and "Exp3-IX-CA", for one copy and one round.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from exaul.kernels.backend import Backend
from exaul.kernels.learners.learner import Learner, weight_of_last
from exaul.kernels.play import make_game


def weights_of(losses: jax.Array, eta: Any, prior: float | None, precision: str) -> jax.Array:
    """Compute ``w_k = exp(-eta (L_k - min L))`` (line "Update" of every algorithm of the paper).

    Args:
        losses: [H] float64, cumulative charges L.
        eta: [] > 0.
        prior: as of ``Sided``.
        precision: dtype of the result.

    Returns:
        [H]; in [0, 1] without a prior.
    """
    # Subtracting the minimum makes the largest weight 1, so nothing overflows.
    weights = jnp.exp((eta * (jnp.min(losses) - losses)).astype(precision))
    if prior is None:
        return weights
    is_last = jnp.arange(weights.size) == weights.size - 1
    return jnp.where(is_last, weights * weight_of_last(prior, weights.size), weights)


@jax.tree_util.register_static
@dataclass(frozen=True)
class Dense:
    """The weights of H arms as their cumulative losses, [H] float64; arguments as of ``Rows``."""

    arms: int
    prior: float | None
    precision: str = "float64"

    def init(self) -> jax.Array:
        """Return no losses."""
        return jnp.zeros(self.arms, jnp.float64)

    def reweigh(self, losses: jax.Array, eta: Any) -> jax.Array:
        """Return the losses, which do not depend on eta."""
        return losses

    def masses(self, losses: jax.Array, eta: Any) -> jax.Array:
        """Return the probabilities of the arms [H]."""
        w = self._weights(losses, eta).astype(jnp.float64)
        return w / jnp.sum(w)

    def losses(self, losses: jax.Array) -> jax.Array:
        """Return the cumulative charges of the arms [H]."""
        return losses

    def _weights(self, losses: jax.Array, eta: Any) -> jax.Array:
        return weights_of(losses, eta, self.prior, self.precision)

    def _answers(self, cut: Any) -> jax.Array:
        """Return which arms [H] answer a record with this cut, ``k < c``."""
        return jnp.arange(self.arms, dtype=jnp.int32) < cut

    def sums(self, losses: jax.Array, eta: Any, cut: Any) -> tuple[jax.Array, jax.Array]:
        """Return the sums of the weights below the cut and above it."""
        # Q needs a sum of its own: 1 - P would lose the digits of a small Q, by which rules divide.
        w, below = self._weights(losses, eta), self._answers(cut)
        low, high = jnp.sum(jnp.where(below, w, 0.0)), jnp.sum(jnp.where(below, 0.0, w))
        return low.astype(jnp.float64), high.astype(jnp.float64)

    def charge_sides(self, losses: jax.Array, eta: Any, cut: Any, under: Any, over: Any) -> jax.Array:
        """Charge every arm of a side the charge of its side (eq. 8 for ``exaul``)."""
        return losses + jnp.where(self._answers(cut), under, over)

    def draw(self, losses: jax.Array, eta: Any, cut: Any, u: Any) -> tuple[Any, Any, Any]:
        """Draw an arm from u; return it, its probability, and P."""
        w = self._weights(losses, eta)
        cumulative = jnp.cumsum(w).astype(jnp.float64)
        total = cumulative[-1]
        arm = jnp.sum(cumulative <= u * total, dtype=jnp.int32)  # the first arm whose cdf exceeds u
        p = w[arm].astype(jnp.float64) / total
        return arm, p, cumulative[cut - 1] / total

    def charge_arm(self, losses: jax.Array, eta: Any, arm: Any, charge: Any) -> jax.Array:
        """Charge one arm."""
        return losses.at[arm].add(charge)


def make(learner: Learner[Any], precision: str) -> Backend:
    """Return the backend of a learner; there is one for every type of rule."""
    return Backend(partial(make_game, learner, weights=partial(Dense, precision=precision)))
