"""The dense backend: all H cumulative losses, every weight anew each round. O(H) a round, the readable oracle."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from kernels.game import TIE, Block, Outcome, Parameters
from kernels.learner import Backend, Learner, Turns, by_turns, remembered


def init(arms: int, best: NDArray[np.int32], streams: int) -> jax.Array:
    """Zero cumulative losses [H, B]: equal weights on all arms."""
    return jnp.zeros((arms, len(best)), jnp.float64)


def weights(losses: jax.Array, eta: Any, dtype: Any) -> jax.Array:
    """``w ~ exp(-eta L)``, the largest 1 (line "Update" of every algorithm of the paper).

    Args:
        losses: [H, B] float64, cumulative estimated losses L.
        eta: [] > 0, or 1.0 where the losses are already multiplied.
        dtype: of the weights.

    Returns:
        [H, B] in [0, 1].
    """
    return jnp.exp((eta * (jnp.min(losses, axis=0, keepdims=True) - losses)).astype(dtype))


def sided(learner: Learner, precision: str) -> Backend:
    """Backend of a learner that charges one number below the cut and one above (``exaul``, ``ew``).

    Args:
        learner: of kind ``sided``.
        precision: dtype of the weights and their sums; the losses are float64.
    """

    def play(losses: jax.Array, x: Block, parameters: Parameters) -> tuple[jax.Array, tuple[Outcome, tuple]]:
        below = jnp.arange(losses.shape[0], dtype=jnp.int32)[:, None] < x.cuts[None]
        w = weights(losses, parameters.eta, precision)
        answering = jnp.sum(jnp.where(below, w, 0.0), axis=0).astype(jnp.float64)
        abstaining = jnp.sum(jnp.where(below, 0.0, w), axis=0).astype(jnp.float64)
        P = answering / (answering + abstaining)
        Q = abstaining / (answering + abstaining)
        answered = (x.uniforms < P) & x.active
        error = x.errors if learner.feedback == "full" else jnp.where(answered, x.errors, 0.0)
        under, over = learner.rule(jnp.where, P, Q, answered, error, parameters)
        charge = jnp.where(below, under[None], over[None])
        losses = losses + jnp.where(x.active, charge, 0.0)
        return losses, (Outcome(answered, P), ())

    return _by_turns(play, precision)


def drawn(learner: Learner, precision: str) -> Backend:
    """Backend of a learner that charges the arm it drew, and no other (``exp3-ix``).

    Args:
        learner: of kind ``drawn``.
        precision: dtype of the weights and their sums; the losses are float64.
    """

    def play(losses: jax.Array, x: Block, parameters: Parameters) -> tuple[jax.Array, tuple[Outcome, tuple]]:
        arms = jnp.arange(losses.shape[0], dtype=jnp.int32)[:, None]
        w = weights(losses, parameters.eta, precision)
        cumulative = jnp.cumsum(w, axis=0).astype(jnp.float64)
        total = cumulative[-1]
        target = (x.uniforms * total)[None]
        arm = jnp.sum(cumulative <= target, axis=0, dtype=jnp.int32)  # the first whose cdf exceeds u
        pick = arms == arm[None]
        p = jnp.sum(jnp.where(pick, w, 0.0), axis=0).astype(jnp.float64) / total
        answered = (arm < x.cuts) & x.active
        error = jnp.where(answered, x.errors, 0.0)
        charge = learner.rule(jnp.where, p, answered, error, parameters)
        losses = losses + jnp.where(x.active & pick, charge[None], 0.0)
        P = jnp.sum(jnp.where(arms == x.cuts[None] - 1, cumulative, 0.0), axis=0) / total
        middle = jnp.sum(jnp.where(pick, cumulative, 0.0), axis=0) / total - p / 2
        return losses, (Outcome(answered, P, middle), ())

    return _by_turns(play, precision)


def priced(learner: Learner, precision: str) -> Backend:
    """Backend of a learner with a memory, whose mass drifts to the last arm (``log-price``).

    The state is ``-log w`` [H, B] in float64 and the memory, whose numbers are [B].

    Args:
        learner: of kind ``priced``.
        precision: dtype of the weights and their sums.
    """
    rule = learner.rule

    def begin(arms: int, best: NDArray[np.int32], streams: int) -> tuple[jax.Array, Any]:
        return init(arms, best, streams), remembered(learner, len(best))

    def play(state: Any, x: Block, parameters: Parameters) -> tuple[Any, tuple[Outcome, tuple]]:
        losses, memory = state
        below = jnp.arange(losses.shape[0], dtype=jnp.int32)[:, None] < x.cuts[None]
        w = weights(losses, 1.0, precision)
        low = jnp.sum(jnp.where(below, w, 0.0), axis=0).astype(jnp.float64)
        high = jnp.sum(jnp.where(below, 0.0, w), axis=0).astype(jnp.float64)
        given = x.uniforms, x.errors, x.active, memory, parameters
        chance, under, over, share, memory = rule.play(jnp.where, jnp.exp, low / (low + high), *given)
        low, high = low * jnp.exp(-under), high * jnp.exp(-over)
        last = w[-1].astype(jnp.float64) * jnp.exp(-over) + share * (low + high)
        charged = losses + jnp.where(below, under[None], over[None])
        losses = charged.at[-1].set(jnp.where(share > 0, jnp.min(losses, axis=0) - jnp.log(last), charged[-1]))
        return (losses, memory), (Outcome(x.uniforms < chance, chance), ())

    def end(state: Any, held: Any, changes: tuple) -> Any:
        losses, memory = held
        w = weights(losses, 1.0, "float64")
        even = rule.even(jnp.where, memory)[None] / len(losses)
        return -jnp.log(w / jnp.sum(w, axis=0, keepdims=True) + even), memory

    def masses(held: Any, parameters: Parameters) -> jax.Array:
        w = weights(held[0], 1.0, precision).astype(jnp.float64)
        return w / jnp.sum(w, axis=0, keepdims=True)

    return by_turns(begin, Turns(lambda state, _: state, play, end, masses))


def descent(learner: Learner, precision: str) -> Backend:
    """Backend of a learner that moves one threshold by gradient steps (``threshold``), O(1) a round.

    The state is z [B] in float64 and the arms' numbers [H]; nothing in it has a precision.
    """

    def begin(arms: int, best: NDArray[np.int32], streams: int) -> tuple[jax.Array, jax.Array]:
        z = jnp.full(len(best), learner.rule.start(arms), jnp.float64)
        return z, jnp.arange(arms, dtype=jnp.int32)

    def play(state: tuple, x: Block, parameters: Parameters) -> tuple[tuple, tuple[Outcome, tuple]]:
        z, arms = state
        answered = (z + TIE < x.cuts.astype(jnp.float64)) & x.active
        gradient = learner.rule.gradient(jnp.where, answered, x.errors, float(arms.size), parameters)
        optimizer = optax.sgd(parameters.eta)
        step, _ = optimizer.update(gradient, optimizer.init(z))
        moved = optax.projections.projection_non_negative(optax.apply_updates(z, step))
        return (jnp.where(x.active, moved, z), arms), (Outcome(answered, answered.astype(jnp.float64)), ())

    def masses(state: tuple, parameters: Parameters) -> jax.Array:
        z, arms = state
        arm = jnp.minimum(jnp.floor(z + TIE).astype(jnp.int32), arms.size - 1)
        return (arms[:, None] == arm[None]).astype(jnp.float64)

    return by_turns(begin, Turns(lambda state, _: state, play, lambda _, state, __: state, masses))


def ranked(learner: Learner, precision: str) -> Backend:
    """Backend of a learner that answers by the rank of a score (``ranked-threshold``).

    It holds the rule's state and the counts [H, B] of recent records by cut; nothing in it has a precision. Within
    a block counts do not fade; what a record counts grows instead.
    """
    rule = learner.rule

    def begin(arms: int, best: NDArray[np.int32], streams: int) -> tuple[Any, jax.Array]:
        counts = jnp.full((arms, len(best)), rule.prior, jnp.float64)
        return remembered(learner, len(best)), counts.at[0].set(0.0)

    def hold(state: tuple[Any, jax.Array], parameters: Parameters) -> tuple[Any, jax.Array, jax.Array]:
        return *state, jnp.ones(())

    def play(held: tuple, x: Block, parameters: Parameters) -> tuple[tuple, tuple[Outcome, tuple]]:
        state, counts, one = held
        arms, cuts = jnp.arange(counts.shape[0], dtype=jnp.int32)[:, None], x.cuts[None]
        total = jnp.sum(counts, axis=0)
        high = jnp.sum(jnp.where(arms <= cuts, counts, 0.0), axis=0)
        low = jnp.sum(jnp.where(arms < cuts, counts, 0.0), axis=0)
        P = rule.chance(jnp.where, state, high / total, low / total)
        answered = (x.uniforms < P) & x.active
        after = rule.learn(jnp.where, state, answered, x.errors, parameters.alpha)
        state = jax.tree.map(lambda y, z: jnp.where(x.active, y, z), after, state)
        one = jnp.where(x.active, one / rule.kept, one)
        counts = jnp.where((arms == cuts) & x.active, counts + one, counts)
        return (state, counts, one), (Outcome(answered, P), ())

    def end(before: Any, held: tuple, changes: tuple) -> tuple[Any, jax.Array]:
        state, counts, one = held
        return state, counts / one

    def masses(held: tuple, parameters: Parameters) -> jax.Array:
        below = jnp.cumsum(held[1], axis=0)
        ranks, state = below / below[-1:], jax.tree.map(lambda x: x[None], held[0])
        each = rule.chance(jnp.where, state, ranks[1:], ranks[:-1])
        none = jnp.zeros_like(each[:1])
        return jnp.diff(jnp.concatenate([none, each, none + 1]), axis=0)

    return by_turns(begin, Turns(hold, play, end, masses))


def _by_turns(play: Callable, precision: str) -> Backend:
    """Within a block, too, the cumulative losses are what is held."""

    def masses(held: jax.Array, parameters: Parameters) -> jax.Array:
        w = weights(held, parameters.eta, precision).astype(jnp.float64)
        return w / jnp.sum(w, axis=0, keepdims=True)

    turns = Turns(lambda losses, _: losses, play, lambda _, held, __: held, masses)
    return by_turns(init, turns)
