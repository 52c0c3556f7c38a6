"""Learners with weights, in rows of 32 arms: the methods of ``Dense``, in H / 32 + 32 steps a round.

Weights are kept as logarithms, so that nothing underflows at any rate. A round reads and writes one number of each
row, and all numbers of the row at the cut.

    losses [R, 32]   of the arms of a row, the least is 0
    offset [R]       a number to add to all losses of a row
    mass   [R]       log of the sum of a row's weights, without its offset; a round changes one
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from exaul.kernels.dense import make_learner
from exaul.kernels.learners.learner import Drawn, Learner, Sided, weight_of_last
from exaul.kernels.play import Backend

ROW = 32  # arms of a row, about the root of 1,000; there are R = ceil(H / 32) rows


class RowState(NamedTuple):
    """Weights ``w_k = exp(-eta L_k)`` in rows; see the module."""

    losses: Any
    offset: Any
    mass: Any


def indices(count: int) -> Any:
    """Return 0 to ``count`` - 1, int32 as cuts are."""
    return jnp.arange(count, dtype=jnp.int32)


@jax.tree_util.register_static
@dataclass(frozen=True)
class Rows:
    """The weights of H arms in rows, with fields, methods and arguments as in ``Dense``."""

    arms: int
    prior: float | None
    precision: str = "float64"  # of weights and their sums; losses and offsets are float64

    def _bias(self) -> Any:
        """Return the logarithms of the first weights, [R, 32]; -inf at places without an arm."""
        last = 0.0 if self.prior is None else jnp.log(weight_of_last(self.prior, self.arms))
        index = indices(-(-self.arms // ROW) * ROW)
        bias = jnp.where(index < self.arms, jnp.where(index == self.arms - 1, last, 0.0), -jnp.inf)
        return bias.reshape(-1, ROW)

    def init(self) -> RowState:
        """Return the state before round 1."""
        bias = self._bias()
        return RowState(jnp.zeros(bias.shape), jnp.zeros(len(bias)), self._log_sum(bias))

    def _log_sum(self, logits: Any) -> Any:
        """Return the logarithm of the sum of exp over the last axis."""
        largest = jnp.max(logits, axis=-1)
        weights = jnp.exp((logits - largest[..., None]).astype(self.precision))
        return largest + jnp.log(jnp.sum(weights, axis=-1)).astype(jnp.float64)

    def reweigh(self, state: RowState, eta: Any) -> RowState:
        """Return the state at another eta, O(H): for rates that change now and then."""
        return state._replace(mass=self._log_sum(self._bias() - eta * state.losses))

    def distribution(self, state: RowState, eta: Any) -> Any:
        """Return the probabilities of the arms [H]."""
        losses = state.losses + state.offset[:, None]
        return jax.nn.softmax((self._bias() - eta * losses).ravel()[: self.arms])

    def _weights(self, state: RowState, eta: Any, row: Any) -> tuple[Any, Any]:
        """Return the sums of all rows [R], and the weights of one row [32], up to a common factor."""
        chex.assert_shape(state.losses, (*state.mass.shape, ROW))
        logits = state.mass - eta * state.offset
        largest = jnp.max(logits)
        row_logits = self._bias()[row] - eta * (state.losses[row] + state.offset[row])
        return tuple(jnp.exp((x - largest).astype(self.precision)) for x in (logits, row_logits))  # type: ignore[return-value]

    def sums(self, state: RowState, eta: Any, cut: Any) -> tuple[Any, Any]:
        """Return the sums of the weights below the cut and above it."""
        row, below = cut // ROW, indices(ROW) < cut % ROW
        rows, (row_sums, weights) = indices(len(state.mass)), self._weights(state, eta, row)
        low = jnp.sum(jnp.where(rows < row, row_sums, 0.0)) + jnp.sum(jnp.where(below, weights, 0.0))
        high = jnp.sum(jnp.where(rows > row, row_sums, 0.0)) + jnp.sum(jnp.where(below, 0.0, weights))
        return low.astype(jnp.float64), high.astype(jnp.float64)

    def _charge(self, state: RowState, eta: Any, row: Any, charges: Any, offset: Any) -> RowState:
        """Charge the arms of one row [32], and add an offset to those of each other row [R]."""
        bias = self._bias()[row]
        losses = state.losses[row] + charges
        lowest = jnp.min(jnp.where(jnp.isfinite(bias), losses, jnp.inf))
        losses -= lowest
        offset = state.offset + jnp.where(indices(len(state.mass)) == row, lowest, offset)
        mass = state.mass.at[row].set(self._log_sum(bias - eta * losses))
        return RowState(state.losses.at[row].set(losses), offset, mass)

    def charge_sides(self, state: RowState, eta: Any, cut: Any, below: Any, above: Any) -> RowState:
        """Charge the arms below the cut and those above it."""
        row, rows = cut // ROW, indices(len(state.mass))
        charges = jnp.where(indices(ROW) < cut % ROW, below, above)
        return self._charge(state, eta, row, charges, jnp.where(rows < row, below, above))

    def draw(self, state: RowState, eta: Any, cut: Any, u: Any) -> tuple[Any, Any, Any]:
        """Draw an arm from u; return it, its probability, and P."""
        low, high = self.sums(state, eta, cut)
        row_sums, _ = self._weights(state, eta, 0)
        total, ends = low + high, jnp.cumsum(row_sums.astype(jnp.float64))
        row = jnp.minimum(jnp.sum(ends <= u * total, dtype=jnp.int32), len(ends) - 1)
        weights = self._weights(state, eta, row)[1].astype(jnp.float64)
        cumulative = jnp.where(row > 0, ends[row - 1], 0.0) + jnp.cumsum(weights)
        last = jnp.minimum(self.arms - row * ROW, ROW) - 1
        column = jnp.minimum(jnp.sum(cumulative <= u * total, dtype=jnp.int32), last)
        p = weights[column] / total
        return row * ROW + column, p, low / total

    def charge_arm(self, state: RowState, eta: Any, arm: Any, charge: Any) -> RowState:
        """Charge one arm."""
        charges = jnp.where(indices(ROW) == arm % ROW, charge, 0.0)
        return self._charge(state, eta, arm // ROW, charges, jnp.zeros(len(state.mass)))


def make_backend(learner: Learner[Any], precision: str) -> Backend | None:
    """Return the backend of a learner with weights; None for others."""
    if not isinstance(learner.rule, Sided | Drawn):
        return None
    return Backend(partial(make_learner, learner, weights=partial(Rows, precision=precision)))
