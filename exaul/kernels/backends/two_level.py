"""The two-level backend, in JAX: the weights of one copy in rows of 32 arms, with a scale and a sum for each row.

A step rewrites the weights of one row. In every other row it changes only the scale and the sum:

    arms     0 ......... 31 | 32 ........ 63 | 64 ........ 95 | ...      H weights in rows of 32
    scale        s_0               s_1              s_2                  product of the factors of a whole row
    sums         S_0               S_1              S_2                  sum of the scaled weights of a row
                                    ^ cut 40: rows below it get one factor, rows above it the other,
                                      and row 1 is rewritten arm by arm

For H of about 1,000 a step takes O(sqrt(H)). Steps run one by one, as needed if the next record depends on the last
decision. The updates are those of Algorithms "ExAUL", "EW-CA" and "Exp3-IX-CA".
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from exaul.kernels.backends.backend import Backend, Decision, Halves, backend_of_halves, make_backend, no_losses
from exaul.kernels.backends.steps import StepFunctions, compute_weights, steps_of, summed
from exaul.kernels.game import LARGEST_STEP, Block, Parameters
from exaul.kernels.learners.learner import Drawn, Learner, Sided

ROW = 32  # arms of a row


class WeightRows(NamedTuple):
    """Linear weights in R rows of 32 arms: arm 32 r + k has the weight ``weights[r, k] * scale[r]``."""

    weights: jax.Array  # [R, 32]
    scale: jax.Array  # [R]
    sums: jax.Array  # [R], sums of the scaled weights of each row


def _rows(weights: jax.Array) -> WeightRows:
    """Arrange the weights [H] in rows."""
    rows = -(-weights.size // ROW)
    # Zeros fill up the last row: they add nothing to sums, and no draw may choose them.
    padded = jnp.pad(weights, (0, rows * ROW - weights.size)).reshape(rows, ROW)
    sums = jnp.sum(padded, axis=1)
    return WeightRows(padded, jnp.ones_like(sums), sums)


def _weights(rows: WeightRows, arms: int) -> jax.Array:
    """Return the weights [H] of all arms, in float64."""
    return (rows.weights * rows.scale[:, None]).ravel()[:arms].astype(jnp.float64)


def _masses(rows: WeightRows, parameters: Parameters, arms: int) -> jax.Array:
    w = _weights(rows, arms)
    return w / jnp.sum(w)


def _row(rows: WeightRows, row: jax.Array) -> jax.Array:
    """Return the scaled weights [32] of a row."""
    return rows.weights[row] * rows.scale[row]


def _with_row(rows: WeightRows, row: jax.Array, weights: jax.Array) -> WeightRows:
    """Replace one row by scaled weights [32]."""
    # The sum is recomputed from the weights, so the rounding errors of a row's sum end when a cut falls into it.
    return WeightRows(
        rows.weights.at[row].set(weights),
        rows.scale.at[row].set(1),
        rows.sums.at[row].set(jnp.sum(weights)),
    )


def _decide_sides(steps: StepFunctions, rows: WeightRows, x: Block, parameters: Parameters) -> Decision:
    """Decide from the sums of whole rows and of the parts of the row that contains the cut."""
    row, place = x.cuts // ROW, x.cuts % ROW
    every, below = jnp.arange(rows.sums.size, dtype=jnp.int32), jnp.arange(ROW, dtype=jnp.int32) < place
    here = _row(rows, row)
    low = jnp.sum(jnp.where(every < row, rows.sums, 0)) + jnp.sum(jnp.where(below, here, 0))
    high = jnp.sum(jnp.where(every > row, rows.sums, 0)) + jnp.sum(jnp.where(below, 0, here))
    return steps.decide(low.astype(jnp.float64), high.astype(jnp.float64), x, parameters)


def _learn_sides(
    steps: StepFunctions, rows: WeightRows, x: Block, decision: Decision, parameters: Parameters
) -> tuple[WeightRows, Any]:
    row, place = x.cuts // ROW, x.cuts % ROW
    every, below = jnp.arange(rows.sums.size, dtype=jnp.int32), jnp.arange(ROW, dtype=jnp.int32) < place
    factors, gap = steps.learn(x, decision, parameters)
    # ``here`` is read before all rows are scaled; the cut's own row then gets both factors, arm by arm.
    here, change = _row(rows, row), jnp.where(every < row, *factors)
    rows = rows._replace(scale=rows.scale * change, sums=rows.sums * change)
    return _with_row(rows, row, here * jnp.where(below, *factors)), gap


def sided(learner: Learner[Sided], precision: str) -> Backend:
    """Make the backend for two charges, below the cut and above.

    The state is the differences ``L_k - L_{k-1}`` of cumulative charges, [H] float64.
    """
    steps = steps_of(learner, precision)

    def begin(differences: jax.Array, parameters: Parameters) -> WeightRows:
        return _rows(compute_weights(differences, parameters.eta, precision, learner.rule.prior))

    def decide(rows: WeightRows, x: Block, parameters: Parameters, waiting: Any) -> tuple[WeightRows, Decision]:
        return rows, _decide_sides(steps, rows, x, parameters)

    def learn(rows: WeightRows, x: Block, decision: Decision, parameters: Parameters) -> tuple[WeightRows, Any]:
        rows, gap = _learn_sides(steps, rows, x, decision, parameters)
        return rows, (x.cuts, -gap)  # only the difference at the cut changes, by charge above - charge below

    return backend_of_halves(
        no_losses,
        Halves(begin, decide, learn, _add_sequentially, _masses),
        dense_state=summed,
        largest_step=LARGEST_STEP[precision],
    )


def drawn(learner: Learner[Drawn], precision: str) -> Backend:
    """Make the backend for a charge on the drawn arm; the state is the cumulative charges, [H] float64.

    The arm of a uniform is found in two searches: over the sums of rows, then within one row.
    """

    def begin(losses: jax.Array, parameters: Parameters) -> tuple[WeightRows, jax.Array]:
        w = jnp.exp((parameters.eta * (jnp.min(losses) - losses)).astype(precision))
        return _rows(w), jnp.asarray(losses.size, jnp.int32)

    def decide(carry: Any, x: Block, parameters: Parameters, waiting: Any) -> tuple[Any, Decision]:
        rows, arms = carry
        down = jnp.cumsum(rows.sums)
        total = down[-1].astype(jnp.float64)
        target = x.draws.decision * total
        # The first row whose cumulative sum exceeds the target; the last is not tested, so rounding cannot pass it.
        row = jnp.sum(down[:-1].astype(jnp.float64) <= target, dtype=jnp.int32)
        before = _before(down, row).astype(jnp.float64)
        here = _row(rows, row)
        along = jnp.cumsum(here)
        place = jnp.sum(before + along.astype(jnp.float64) <= target, dtype=jnp.int32)
        # The sum along the row may differ from the stored sum by rounding: stay in the row, and off the padding.
        place = jnp.minimum(place, jnp.minimum(ROW, arms - row * ROW) - 1)
        p = here[place].astype(jnp.float64) / total
        arm = row * ROW + place
        middle = (before + along[place].astype(jnp.float64)) / total - p / 2
        in_row = jnp.where(jnp.arange(ROW, dtype=jnp.int32) < x.cuts % ROW, _row(rows, x.cuts // ROW), 0)
        P = (_before(down, x.cuts // ROW) + jnp.sum(in_row)).astype(jnp.float64) / total
        return carry, Decision((arm < x.cuts) & x.active, P, (arm, p), middle)

    def learn(carry: Any, x: Block, decision: Decision, parameters: Parameters) -> tuple[Any, Any]:
        (rows, arms), answered, (arm, p) = carry, decision.answered, decision.kept
        error = jnp.where(answered, x.errors, 0.0)
        charge = jnp.where(x.active, learner.rule.charge(jnp.where, p, answered, error, parameters), 0.0)
        row = arm // ROW
        rows = _with_row(
            rows, row, _row(rows, row).at[arm % ROW].multiply(jnp.exp(-parameters.eta * charge).astype(precision))
        )
        return (rows, arms), (arm, charge)

    def end(losses: jax.Array, carry: Any, changes: tuple[jax.Array, jax.Array]) -> jax.Array:
        return _add_sequentially(losses, carry[0], changes)

    def masses(carry: Any, parameters: Parameters, arms: int) -> jax.Array:
        return _masses(carry[0], parameters, arms)

    return backend_of_halves(
        no_losses,
        Halves(begin, decide, learn, end, masses),
        dense_state=lambda state, _: state,
        largest_step=LARGEST_STEP[precision],
    )


def _before(cumulative: jax.Array, place: jax.Array) -> jax.Array:
    """Sum the entries before an index, given cumulative sums [N]."""
    return jnp.where(place > 0, cumulative[jnp.maximum(place - 1, 0)], 0)


def _add_sequentially(state: jax.Array, rows: WeightRows, changes: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Add each round's change [C] at its arm [C] to the state [H], in the order of rounds."""

    # A scatter with repeated indices adds in an unspecified order, and the order decides bits: hence a scan.
    def add(state: jax.Array, x: tuple[Any, ...]) -> tuple[jax.Array, None]:
        return state.at[x[0]].add(x[1]), None

    return lax.scan(add, state, changes)[0]


make = partial(make_backend, {Sided: sided, Drawn: drawn})
