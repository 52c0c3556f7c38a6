"""The dense backend: H cumulative losses, from which every weight is computed anew in each round.

It takes O(H) steps a round, and is the readable reference for the others: its loops are those of Algorithms
"ExAUL", "EW-CA" and "Exp3-IX-CA", line by line.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.backend import Backend, Decision, by_turns, choose, no_losses, of_halves, repeated
from exaul.kernels.game import TIE, Block, Parameters
from exaul.kernels.learners.learner import Descent, Drawn, Fixed, Learner, Own, Priced, Ranked, Sided


def weights(losses: jax.Array, eta: Any, dtype: Any) -> jax.Array:
    """Compute ``w_k = exp(-eta (L_k - min L))`` (line "Update" of every algorithm of the paper).

    Args:
        losses: [H, B] float64, cumulative charges L.
        eta: [] or [B] > 0; 1.0 where the losses are already multiplied by it.
        dtype: of the result.

    Returns:
        [H, B] in [0, 1], the largest of each copy 1.
    """
    eta = eta[None] if jnp.ndim(eta) else eta
    return jnp.exp((eta * (jnp.min(losses, axis=0, keepdims=True) - losses)).astype(dtype))


def _itself(state: Any, parameters: Parameters) -> Any:
    return state


def _last(state: Any, carry: Any, changes: tuple[Any, ...]) -> Any:
    return carry


def _below(losses: jax.Array, x: Block) -> jax.Array:
    """Which arms answer, [H, B]."""
    return jnp.arange(losses.shape[0], dtype=jnp.int32)[:, None] < x.cuts[None]


def sided(learner: Learner[Sided], precision: str) -> Backend:
    """Make the backend of a learner that charges one number below the cut and one above (``exaul``, ``ew``).

    Args:
        learner: its rule is a ``Sided``.
        precision: dtype of the weights and their sums; the state is the cumulative charges, [H, B] float64.

    Returns:
        The backend.
    """

    def decide(losses: jax.Array, x: Block, parameters: Parameters, _: Any) -> tuple[jax.Array, Decision]:
        w, below = weights(losses, parameters.eta, precision), _below(losses, x)
        answering = jnp.sum(jnp.where(below, w, 0.0), axis=0).astype(jnp.float64)
        abstaining = jnp.sum(jnp.where(below, 0.0, w), axis=0).astype(jnp.float64)
        P = answering / (answering + abstaining)
        Q = abstaining / (answering + abstaining)
        return losses, Decision((x.uniforms < P) & x.active, P, (P, Q))

    def learn(losses: jax.Array, x: Block, decision: Decision, parameters: Parameters) -> jax.Array:
        answered = decision.answered
        error = x.errors if learner.feedback == "full" else jnp.where(answered, x.errors, 0.0)
        under, over = learner.rule.charge(jnp.where, *decision.kept, answered, error, parameters)
        under, over = (jnp.where(x.active, charge, 0.0)[None] for charge in (under, over))
        return losses + jnp.where(_below(losses, x), under, over)

    return _by_turns(decide, learn, precision)


def drawn(learner: Learner[Drawn], precision: str) -> Backend:
    """Make the backend of a learner that charges the arm it drew, and no other (``exp3-ix``).

    Args:
        learner: its rule is a ``Drawn``.
        precision: dtype of the weights and their sums; the state is the cumulative charges, [H, B] float64.

    Returns:
        The backend.
    """

    def decide(losses: jax.Array, x: Block, parameters: Parameters, _: Any) -> tuple[jax.Array, Decision]:
        arms = jnp.arange(losses.shape[0], dtype=jnp.int32)[:, None]
        w = weights(losses, parameters.eta, precision)
        cumulative = jnp.cumsum(w, axis=0).astype(jnp.float64)
        total = cumulative[-1]
        target = (x.uniforms * total)[None]
        arm = jnp.sum(cumulative <= target, axis=0, dtype=jnp.int32)  # the first whose cdf exceeds u
        pick = arms == arm[None]
        p = jnp.sum(jnp.where(pick, w, 0.0), axis=0).astype(jnp.float64) / total
        P = jnp.sum(jnp.where(arms == x.cuts[None] - 1, cumulative, 0.0), axis=0) / total
        middle = jnp.sum(jnp.where(pick, cumulative, 0.0), axis=0) / total - p / 2
        return losses, Decision((arm < x.cuts) & x.active, P, (arm, p), middle)

    def learn(losses: jax.Array, x: Block, decision: Decision, parameters: Parameters) -> jax.Array:
        answered, (arm, p) = decision.answered, decision.kept
        error = jnp.where(answered, x.errors, 0.0)
        charge = learner.rule.charge(jnp.where, p, answered, error, parameters)
        pick = jnp.arange(losses.shape[0], dtype=jnp.int32)[:, None] == arm[None]
        return losses + jnp.where(pick, jnp.where(x.active, charge, 0.0)[None], 0.0)

    return _by_turns(decide, learn, precision)


def priced(learner: Learner[Priced], precision: str) -> Backend:
    """Make the backend of a learner with a memory, whose mass moves to the last arm (``log-price``).

    Args:
        learner: its rule is a ``Priced``.
        precision: dtype of the weights and their sums; the state is ``-log w`` [H, B] float64, and the memory, [B]
            float64 each.

    Returns:
        The backend.
    """
    rule = learner.rule

    def begin(arms: int, best: NDArray[np.int32], streams: int) -> tuple[jax.Array, Any]:
        return no_losses(arms, best, streams), repeated(learner.rule.start, len(best))

    def sums(losses: jax.Array, x: Block) -> tuple[jax.Array, jax.Array, jax.Array]:
        w, below = weights(losses, 1.0, precision), _below(losses, x)
        low = jnp.sum(jnp.where(below, w, 0.0), axis=0).astype(jnp.float64)
        return low, jnp.sum(jnp.where(below, 0.0, w), axis=0).astype(jnp.float64), w[-1].astype(jnp.float64)

    def decide(state: Any, x: Block, parameters: Parameters, waiting: Any) -> tuple[Any, Decision]:
        losses, memory = state
        low, high, _ = sums(losses, x)
        P = low / (low + high)
        known = memory
        if waiting is not None:
            assert rule.reserve is not None
            known = rule.reserve(jnp.where, memory, waiting, len(losses), parameters)
        chance, *_ = rule.play(jnp.where, jnp.exp, P, x.uniforms, x.errors, x.active, known, parameters)
        return state, Decision(x.uniforms < chance, chance, (P,))

    def learn(state: Any, x: Block, decision: Decision, parameters: Parameters) -> Any:
        losses, memory = state
        drawn = jnp.where(decision.answered & x.active, -1.0, 2.0)  # a uniform that says what was decided
        _, under, over, share, memory = rule.play(
            jnp.where, jnp.exp, *decision.kept, drawn, x.errors, x.active, memory, parameters
        )
        low, high, last = sums(losses, x)
        low, high = low * jnp.exp(-under), high * jnp.exp(-over)
        last = last * jnp.exp(-over) + share * (low + high)
        charged = losses + jnp.where(_below(losses, x), under[None], over[None])
        losses = charged.at[-1].set(jnp.where(share > 0, jnp.min(losses, axis=0) - jnp.log(last), charged[-1]))
        return losses, memory

    def close(carry: Any) -> Any:
        losses, memory = carry
        w = weights(losses, 1.0, "float64")
        even = rule.even(jnp.where, memory)[None] / len(losses)
        return -jnp.log(w / jnp.sum(w, axis=0, keepdims=True) + even), memory

    def masses(carry: Any, parameters: Parameters) -> jax.Array:
        w = weights(carry[0], 1.0, precision).astype(jnp.float64)
        return w / jnp.sum(w, axis=0, keepdims=True)

    def end(state: Any, carry: Any, changes: tuple[Any, ...]) -> Any:
        return close(carry)

    turns = of_halves(_itself, decide, learn, end, masses, close)
    return by_turns(begin, turns, dense_state=_itself)


def descent(learner: Learner[Descent], precision: str) -> Backend:
    """Make the backend of a learner that moves one threshold by gradient steps (``threshold``).

    Args:
        learner: its rule is a ``Descent``.
        precision: ignored; the state is z [B] float64, and the numbers of the arms [H].

    Returns:
        The backend, O(1) a round.
    """
    import optax  # here, for it takes a second, and this is the only loop with gradients

    def begin(arms: int, best: NDArray[np.int32], streams: int) -> tuple[jax.Array, jax.Array]:
        z = jnp.full(len(best), learner.rule.start(arms), jnp.float64)
        return z, jnp.arange(arms, dtype=jnp.int32)

    def decide(
        state: tuple[Any, ...], x: Block, parameters: Parameters, waiting: Any
    ) -> tuple[tuple[Any, ...], Decision]:
        z, arms = state
        if waiting is not None:
            assert learner.rule.reserve is not None
            z = learner.rule.reserve(jnp.where, z, waiting, float(arms.size), parameters)
        answered = (z + TIE < x.cuts.astype(jnp.float64)) & x.active
        return state, Decision(answered, answered.astype(jnp.float64))

    def learn(state: tuple[Any, ...], x: Block, decision: Decision, parameters: Parameters) -> tuple[Any, ...]:
        z, arms = state
        gradient = learner.rule.gradient(jnp.where, decision.answered, x.errors, float(arms.size), parameters)
        optimizer = optax.sgd(parameters.eta)
        step, _ = optimizer.update(gradient, optimizer.init(z))
        moved = optax.projections.projection_non_negative(optax.apply_updates(z, step))
        return jnp.where(x.active, moved, z), arms

    def masses(state: tuple[Any, ...], parameters: Parameters) -> jax.Array:
        z, arms = state
        arm = jnp.minimum(jnp.floor(z + TIE).astype(jnp.int32), arms.size - 1)
        return (arms[:, None] == arm[None]).astype(jnp.float64)

    return by_turns(begin, of_halves(_itself, decide, learn, _last, masses))


def ranked(learner: Learner[Ranked], precision: str) -> Backend:
    """Make the backend of a learner that answers by the rank of a score (``ranked-threshold``).

    Within a block old counts are not multiplied by ``decay``; the count of a new record is divided by it instead.

    Args:
        learner: its rule is a ``Ranked``.
        precision: ignored; the state is the rule's, [B] float64 each, and the counts of recent records by cut,
            [H, B] float64.

    Returns:
        The backend.
    """
    rule = learner.rule

    def first(arms: int, best: NDArray[np.int32], streams: int) -> tuple[Any, jax.Array]:
        counts = jnp.full((arms, len(best)), rule.prior, jnp.float64)
        return repeated(learner.rule.start, len(best)), counts.at[0].set(0.0)

    def begin(state: tuple[Any, jax.Array], parameters: Parameters) -> tuple[Any, jax.Array, jax.Array]:
        return *state, jnp.ones(())

    def decide(
        carry: tuple[Any, ...], x: Block, parameters: Parameters, waiting: Any
    ) -> tuple[tuple[Any, ...], Decision]:
        state, counts, one = carry
        known = state
        if waiting is not None:
            assert rule.reserve is not None
            known = rule.reserve(jnp.where, state, waiting, len(counts), parameters)
        arms, cuts = jnp.arange(counts.shape[0], dtype=jnp.int32)[:, None], x.cuts[None]
        total = jnp.sum(counts, axis=0)
        high = jnp.sum(jnp.where(arms <= cuts, counts, 0.0), axis=0)
        low = jnp.sum(jnp.where(arms < cuts, counts, 0.0), axis=0)
        P = rule.chance(jnp.where, known, high / total, low / total)
        one = jnp.where(x.active, one / rule.decay, one)
        counts = jnp.where((arms == cuts) & x.active, counts + one, counts)
        return (state, counts, one), Decision((x.uniforms < P) & x.active, P)

    def learn(carry: tuple[Any, ...], x: Block, decision: Decision, parameters: Parameters) -> tuple[Any, ...]:
        state, counts, one = carry
        after = rule.learn(jnp.where, state, decision.answered, x.errors, parameters.alpha)
        return jax.tree.map(lambda y, z: jnp.where(x.active, y, z), after, state), counts, one

    def end(before: Any, carry: tuple[Any, ...], changes: tuple[Any, ...]) -> tuple[Any, jax.Array]:
        state, counts, one = carry
        return state, counts / one

    def masses(carry: tuple[Any, ...], parameters: Parameters) -> jax.Array:
        below = jnp.cumsum(carry[1], axis=0)
        ranks, state = below / below[-1:], jax.tree.map(lambda x: x[None], carry[0])
        each = rule.chance(jnp.where, state, ranks[1:], ranks[:-1])
        none = jnp.zeros_like(each[:1])
        return jnp.diff(jnp.concatenate([none, each, none + 1]), axis=0)

    return by_turns(first, of_halves(begin, decide, learn, end, masses))


def _decide_fixed(state: Any, x: Block, parameters: Parameters, waiting: Any) -> tuple[Any, Decision]:
    answered = (state[0] < x.cuts) & x.active
    return state, Decision(answered, answered.astype(jnp.float64))


def _fixed_masses(state: Any, parameters: Parameters) -> jax.Array:
    return (state[1][:, None] == state[0][None]).astype(jnp.float64)


_FIXED = of_halves(_itself, _decide_fixed, lambda state, x, decision, parameters: state, _last, _fixed_masses)
_OF_FIXED = by_turns(no_losses, _FIXED)


def fixed(learner: Learner[Fixed], precision: str) -> Backend:
    """Make the backend of a learner that plays one arm for ever, O(1) a round.

    Learners of this kind differ in their first states alone, so one program serves them all.

    Args:
        learner: its rule is a ``Fixed``.
        precision: ignored; the state is the arm of each copy [B] int32, and the numbers of
            the arms [H].

    Returns:
        The backend.
    """

    def init(arms: int, best: NDArray[np.int32], streams: int) -> tuple[jax.Array, jax.Array]:
        own = jnp.broadcast_to(jnp.asarray(learner.rule.arm(arms, best), jnp.int32), best.shape)
        return own, jnp.arange(arms, dtype=jnp.int32)

    return _OF_FIXED._replace(init=init)


def _by_turns(decide: Callable[..., Any], learn: Callable[..., Any], precision: str) -> Backend:
    """The backend whose carry within a block is its state, the cumulative charges."""

    def masses(losses: jax.Array, parameters: Parameters) -> jax.Array:
        w = weights(losses, parameters.eta, precision).astype(jnp.float64)
        return w / jnp.sum(w, axis=0, keepdims=True)

    return by_turns(no_losses, of_halves(_itself, decide, learn, _last, masses), dense_state=_itself)


def _own(learner: Learner[Own], precision: str) -> Backend:
    return learner.rule.backend(precision)


make = partial(  # there is a loop for every type of rule
    choose, {Sided: sided, Drawn: drawn, Priced: priced, Descent: descent, Ranked: ranked, Fixed: fixed, Own: _own}
)
