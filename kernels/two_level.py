"""The two-level backend: weights in rows of arms with their sums, so that a round touches one row, in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from kernels.game import Block, Outcome, Parameters, by_copy
from kernels.learner import Backend, Learner

ROW = 32  # arms of a row


def drawn(learner: Learner, precision: str) -> Backend:
    """Backend of a learner that charges the arm it drew, as ``dense.drawn``.

    The state is L [H, B] in float64. At the start of a block it becomes linear weights in rows of 32, their sums
    beside them, both in ``precision``; a round walks down the sums, then along one row.

    Args:
        learner: of kind ``drawn``.
        precision: dtype of the weights and their sums; the losses are float64.
    """

    def init(arms: int, best: NDArray[np.int32], streams: int) -> jax.Array:
        return jnp.zeros((arms, len(best)), jnp.float64)

    def advance(losses: jax.Array, block: Block, parameters: Parameters) -> tuple[jax.Array, Outcome]:
        arms, copies = losses.shape
        rows = -(-arms // ROW)
        log_weights = parameters.eta * (jnp.min(losses, axis=0, keepdims=True) - losses)
        weights = jnp.exp(log_weights.astype(precision))
        weights = jnp.pad(weights, [(0, rows * ROW - arms), (0, 0)]).reshape(rows, ROW, copies)
        lanes = jnp.arange(copies)
        places = jnp.arange(ROW, dtype=jnp.int32)[:, None]

        def play(state: tuple, x: Block) -> tuple[tuple, tuple]:
            weights, sums = state
            down = jnp.cumsum(sums, axis=0)
            total = down[-1].astype(jnp.float64)
            target = x.uniforms * total
            row = jnp.sum(down[:-1].astype(jnp.float64) <= target[None], axis=0, dtype=jnp.int32)
            before = _pick(down, row - 1).astype(jnp.float64)
            here = weights[row, :, lanes].T
            along = jnp.cumsum(here, axis=0)
            end = jnp.minimum(ROW, arms - row * ROW) - 1
            place = jnp.sum(before[None] + along.astype(jnp.float64) <= target[None], axis=0, dtype=jnp.int32)
            place = jnp.minimum(place, end)
            picked = places == place[None]
            p = _pick(here, place).astype(jnp.float64) / total
            arm = row * ROW + place
            answered = (arm < x.cuts) & x.active
            charge = learner.rule(jnp.where, p, answered, jnp.where(answered, x.errors, 0.0), parameters)
            charge = jnp.where(x.active, charge, 0.0)
            factor = jnp.exp(-parameters.eta * charge).astype(precision)
            here = jnp.where(picked, here * factor[None], here)
            middle = (before + _pick(along, place).astype(jnp.float64)) / total - p / 2
            cut_row = weights[x.cuts // ROW, :, lanes].T
            partial = jnp.sum(jnp.where(places < (x.cuts % ROW)[None], cut_row, 0), axis=0)
            P = (_pick(down, x.cuts // ROW - 1) + partial).astype(jnp.float64) / total
            weights = weights.at[row, :, lanes].set(here.T)
            sums = sums.at[row, lanes].set(jnp.sum(here, axis=0))
            return (weights, sums), (Outcome(answered, P, middle), arm, charge)

        start = weights, jnp.sum(weights, axis=1)
        _, (outcome, arm, charge) = lax.scan(play, start, by_copy(block, parameters))
        return _add_in_turn(losses, arm, charge), outcome

    return Backend(init, advance)


def _pick(values: jax.Array, place: jax.Array) -> jax.Array:
    """The value [B] of each column of [N, B] at its place; 0 before the first."""
    found = jnp.take_along_axis(values, jnp.maximum(place, 0)[None], axis=0)[0]
    return jnp.where(place < 0, 0, found)


def _add_in_turn(losses: jax.Array, arm: jax.Array, charge: jax.Array) -> jax.Array:
    """Add each round's charge [C, B] to the loss of its arm [C, B], in the order of rounds."""
    lanes = jnp.arange(losses.shape[1])

    def add(losses: jax.Array, x: tuple) -> tuple[jax.Array, None]:
        return losses.at[x[0], lanes].add(x[1], unique_indices=True), None

    return lax.scan(add, losses, (arm, charge))[0]
