"""The two-level backend, in JAX: weights in rows of 32 arms, and of each row a scale and the sum.

A round changes the weights of one row, and at most the scales and sums of the others. It plays round by round, as
games need whose next record depends on the last decision, in O(sqrt(H)) steps for H of about 1,000; the
updates are those of Algorithms "ExAUL", "EW-CA" and "Exp3-IX-CA".
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from exaul.kernels.backends.backend import Backend, Turns, by_turns, choose, no_losses
from exaul.kernels.backends.steps import (
    begin_priced,
    evened,
    logarithms,
    priced_step_of,
    step_of,
    summed,
    weigh,
)
from exaul.kernels.game import LARGEST_STEP, Block, Outcome, Parameters
from exaul.kernels.learners.learner import Drawn, Learner, Priced, Sided

ROW = 32  # arms of a row


class Rows(NamedTuple):
    """Linear weights within a block, in R rows of 32 arms: that of arm 32 r + k is ``weights[r, k] * scale[r]``."""

    weights: jax.Array  # [R, 32, B]
    scale: jax.Array  # [R, B]
    sums: jax.Array  # [R, B], sums of the scaled weights of each row
    arms: jax.Array  # [H], the numbers of the arms


def _rows(weights: jax.Array) -> Rows:
    """Arrange the weights [H, B] in rows; the last row ends with zeros."""
    arms, copies = weights.shape
    rows = -(-arms // ROW)
    padded = jnp.pad(weights, [(0, rows * ROW - arms), (0, 0)]).reshape(rows, ROW, copies)
    sums = jnp.sum(padded, axis=1)
    return Rows(padded, jnp.ones_like(sums), sums, jnp.arange(arms, dtype=jnp.int32))


def _weights(rows: Rows) -> jax.Array:
    """Read the weights [H, B] of all arms, in float64."""
    scaled = (rows.weights * rows.scale[:, None]).reshape(-1, rows.sums.shape[1])
    return scaled[: rows.arms.size].astype(jnp.float64)


def _masses(rows: Rows, parameters: Parameters) -> jax.Array:
    """The probabilities of the arms, [H, B]."""
    w = _weights(rows)
    return w / jnp.sum(w, axis=0, keepdims=True)


def _row(rows: Rows, row: jax.Array) -> jax.Array:
    """The scaled weights [32, B] of a row [B] of each copy."""
    lanes = jnp.arange(row.size)
    return rows.weights[row, :, lanes].T * rows.scale[row, lanes][None]


def _with_row(rows: Rows, row: jax.Array, weights: jax.Array) -> Rows:
    """Replace one row [B] of each copy by scaled weights [32, B]."""
    lanes = jnp.arange(row.size)
    return rows._replace(
        weights=rows.weights.at[row, :, lanes].set(weights.T),
        scale=rows.scale.at[row, lanes].set(1),
        sums=rows.sums.at[row, lanes].set(jnp.sum(weights, axis=0)),
    )


def sided(learner: Learner[Sided], precision: str) -> Backend:
    """Make the backend of a learner that charges one number below the cut and one above, as ``dense.sided``.

    A round multiplies the scales and sums of whole rows by one of two numbers, and the arms of the row within which
    its cut lies one by one.

    Args:
        learner: its rule is a ``Sided``.
        precision: dtype of the weights and their sums; the state is the differences ``L_k - L_{k-1}`` of cumulative
            charges, [H, B] float64.

    Returns:
        The backend.
    """
    step = step_of(learner, precision)

    def begin(differences: jax.Array, parameters: Parameters) -> Rows:
        return _rows(weigh(differences, parameters.eta, precision))

    def play(rows: Rows, x: Block, parameters: Parameters) -> tuple[Rows, tuple[Outcome, Any]]:
        rows, _, answered, P, gap = _play_sides(step, rows, (), x, parameters)
        return rows, (Outcome(answered, P), (x.cuts, -gap))

    return by_turns(
        no_losses,
        Turns(begin, play, _add_in_turn, _masses),
        dense_state=summed,
        largest_step=LARGEST_STEP[precision],
    )


def _play_sides(
    step: Callable[..., Any], rows: Rows, carry: Any, x: Block, parameters: Parameters
) -> tuple[Rows, Any, Any, Any, Any]:
    """Play a round that changes the weights on both sides of the cut; ``step`` is as of ``steps.step_of``."""
    row, place = x.cuts // ROW, x.cuts % ROW
    every = jnp.arange(rows.sums.shape[0], dtype=jnp.int32)[:, None]
    below = jnp.arange(ROW, dtype=jnp.int32)[:, None] < place[None]
    here = _row(rows, row)
    low = jnp.sum(jnp.where(every < row[None], rows.sums, 0), axis=0)
    low = (low + jnp.sum(jnp.where(below, here, 0), axis=0)).astype(jnp.float64)
    high = jnp.sum(jnp.where(every > row[None], rows.sums, 0), axis=0)
    high = (high + jnp.sum(jnp.where(below, 0, here), axis=0)).astype(jnp.float64)
    carry, factors, answered, P, gap = step(carry, low, high, x, parameters)
    shrunk = factors[0][None], factors[1][None]
    change = jnp.where(every < row[None], *shrunk)
    rows = rows._replace(scale=rows.scale * change, sums=rows.sums * change)
    return _with_row(rows, row, here * jnp.where(below, *shrunk)), carry, answered, P, gap


def priced(learner: Learner[Priced], precision: str) -> Backend:
    """Make the backend of a learner with a memory, whose mass moves to the last arm, as ``compressed.priced``.

    Within a block the last arm's weight is not in the rows: every round adds to it.

    Args:
        learner: its rule is a ``Priced``.
        precision: dtype of the weights and their sums within a block; the state is as of ``compressed.priced``.

    Returns:
        The backend.
    """
    step = priced_step_of(learner, precision)

    def begin(state: Any, parameters: Parameters) -> Any:
        weights, memory = state
        return _rows(weights.at[-1].set(0.0).astype(precision)), (weights[-1], memory)

    def play(carry: Any, x: Block, parameters: Parameters) -> tuple[Any, tuple[Outcome, Any]]:
        rows, last_and_memory, answered, chance, _ = _play_sides(step, carry[0], carry[1], x, parameters)
        return (rows, last_and_memory), (Outcome(answered, chance), ())

    def all_weights(carry: Any) -> jax.Array:
        rows, (last, _) = carry
        return _weights(rows).at[-1].set(last)

    def end(state: Any, carry: Any, changes: tuple[Any, ...]) -> Any:
        memory = carry[1][1]
        return evened(learner, all_weights(carry), memory), memory

    def masses(carry: Any, parameters: Parameters) -> jax.Array:
        weights = all_weights(carry)
        return weights / jnp.sum(weights, axis=0, keepdims=True)

    return by_turns(partial(begin_priced, learner), Turns(begin, play, end, masses), dense_state=logarithms)


def drawn(learner: Learner[Drawn], precision: str) -> Backend:
    """Make the backend of a learner that charges the arm it drew, as ``dense.drawn``.

    A round walks down the sums of the rows, and then along one row, to the arm that its uniform draws.

    Args:
        learner: its rule is a ``Drawn``.
        precision: dtype of the weights and their sums; the state is the cumulative charges, [H, B] float64.

    Returns:
        The backend.
    """

    def begin(losses: jax.Array, parameters: Parameters) -> Rows:
        log_weights = parameters.eta * (jnp.min(losses, axis=0, keepdims=True) - losses)
        return _rows(jnp.exp(log_weights.astype(precision)))

    def play(rows: Rows, x: Block, parameters: Parameters) -> tuple[Rows, tuple[Outcome, Any]]:
        places = jnp.arange(ROW, dtype=jnp.int32)[:, None]
        down = jnp.cumsum(rows.sums, axis=0)
        total = down[-1].astype(jnp.float64)
        target = x.uniforms * total
        row = jnp.sum(down[:-1].astype(jnp.float64) <= target[None], axis=0, dtype=jnp.int32)
        before = _pick(down, row - 1).astype(jnp.float64)
        here = _row(rows, row)
        along = jnp.cumsum(here, axis=0)
        end = jnp.minimum(ROW, rows.arms.size - row * ROW) - 1
        place = jnp.sum(before[None] + along.astype(jnp.float64) <= target[None], axis=0, dtype=jnp.int32)
        place = jnp.minimum(place, end)
        p = _pick(here, place).astype(jnp.float64) / total
        arm = row * ROW + place
        answered = (arm < x.cuts) & x.active
        charge = learner.rule.charge(jnp.where, p, answered, jnp.where(answered, x.errors, 0.0), parameters)
        charge = jnp.where(x.active, charge, 0.0)
        factor = jnp.exp(-parameters.eta * charge).astype(precision)
        middle = (before + _pick(along, place).astype(jnp.float64)) / total - p / 2
        rest = jnp.sum(jnp.where(places < (x.cuts % ROW)[None], _row(rows, x.cuts // ROW), 0), axis=0)
        P = (_pick(down, x.cuts // ROW - 1) + rest).astype(jnp.float64) / total
        rows = _with_row(rows, row, jnp.where(places == place[None], here * factor[None], here))
        return rows, (Outcome(answered, P, middle), (arm, charge))

    return by_turns(
        no_losses,
        Turns(begin, play, _add_in_turn, _masses),
        dense_state=lambda state, _: state,
        largest_step=LARGEST_STEP[precision],
    )


def _pick(values: jax.Array, place: jax.Array) -> jax.Array:
    """The value [B] of each column of [N, B] at its place; 0 before the first."""
    found = jnp.take_along_axis(values, jnp.maximum(place, 0)[None], axis=0)[0]
    return jnp.where(place < 0, 0, found)


def _add_in_turn(state: jax.Array, rows: Rows, changes: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Add each round's change [C, B] at its arm [C, B] to the state [H, B], in the order of rounds."""
    lanes = jnp.arange(state.shape[1])

    def add(state: jax.Array, x: tuple[Any, ...]) -> tuple[jax.Array, None]:
        return state.at[x[0], lanes].add(x[1], unique_indices=True), None

    return lax.scan(add, state, changes)[0]


make = partial(choose, {Sided: sided, Drawn: drawn, Priced: priced})
