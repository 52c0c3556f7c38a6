"""The dense backend, the readable reference: every step recomputes all weights from H cumulative losses, in O(H).

Its steps are those of Algorithms "ExAUL", "EW-CA" and "Exp3-IX-CA", line by line, for one copy and one round. The
caller adds copies with ``vmap`` and rounds with ``scan``. Each function makes the backend for one type of rule.
"""

from functools import cache, partial
from typing import Any

import chex
import jax
import jax.numpy as jnp

from exaul.kernels.backends.backend import (
    Backend,
    Decision,
    Halves,
    apply_prior,
    as_arrays,
    backend_of_halves,
    decide_by_arm,
    make_backend,
    mass_of_arm,
    no_losses,
)
from exaul.kernels.game import Block, Parameters, Start
from exaul.kernels.learners.learner import Drawn, Fixed, Learner, Own, Ranked, Sided


def weights(losses: jax.Array, eta: Any, dtype: Any) -> jax.Array:
    """Compute ``w_k = exp(-eta (L_k - min L))`` (line "Update" of every algorithm of the paper).

    Args:
        losses: [H] float64, cumulative charges L.
        eta: [] > 0; 1.0 if the losses include it.
        dtype: of the result.

    Returns:
        [H] in [0, 1].
    """
    # Subtracting the minimum makes the largest weight 1, so nothing overflows.
    return jnp.exp((eta * (jnp.min(losses) - losses)).astype(dtype))


def answers(arms: int, cut: jax.Array) -> jax.Array:
    """Return which arms [H] answer a record with this cut, ``k < c``."""
    return jnp.arange(arms, dtype=jnp.int32) < cut


def _sums(w: jax.Array, below: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sum the weights below the cut and above it, in float64."""
    # Q needs a sum of its own: 1 - P would lose the digits of a small Q, by which rules divide.
    low, high = jnp.sum(jnp.where(below, w, 0.0)), jnp.sum(jnp.where(below, 0.0, w))
    return low.astype(jnp.float64), high.astype(jnp.float64)


def _itself(state: Any, parameters: Parameters) -> Any:
    return state


def _last(state: Any, carry: Any, changes: tuple[Any, ...]) -> Any:
    return carry


def sided(learner: Learner[Sided], precision: str) -> Backend:
    """Make the backend for two charges, one below the cut and one above (``exaul``, ``ew``).

    The state is the cumulative charges, [H] float64.
    """

    def decide(losses: jax.Array, x: Block, parameters: Parameters, waiting: Any) -> tuple[jax.Array, Decision]:
        chex.assert_rank([losses, x.cuts, x.draws.decision], [1, 0, 0])
        w = apply_prior(weights(losses, parameters.eta, precision), learner.rule.prior)
        low, high = _sums(w, answers(losses.size, x.cuts))
        P, Q = low / (low + high), high / (low + high)  # probabilities of the two sides of the cut
        return losses, Decision((x.draws.decision < P) & x.active, P, (P, Q))

    def learn(losses: jax.Array, x: Block, decision: Decision, parameters: Parameters) -> tuple[jax.Array, Any]:
        answered = decision.answered
        error = x.errors if learner.feedback == "full" else jnp.where(answered, x.errors, 0.0)
        under, over = learner.rule.charge(jnp.where, *decision.kept, answered, error, parameters)
        under, over = (jnp.where(x.active, charge * parameters.weight, 0.0) for charge in (under, over))
        # line "Update": every arm of a side gets the charge of its side (eq. 8 for ``exaul``)
        return losses + jnp.where(answers(losses.size, x.cuts), under, over), ()

    return _of_losses(decide, learn, precision, learner.rule.prior)


def drawn(learner: Learner[Drawn], precision: str) -> Backend:
    """Make the backend for a charge on the drawn arm (``exp3-ix``). The state is as in ``sided``."""

    def decide(losses: jax.Array, x: Block, parameters: Parameters, waiting: Any) -> tuple[jax.Array, Decision]:
        w = weights(losses, parameters.eta, precision)
        cumulative = jnp.cumsum(w).astype(jnp.float64)
        total = cumulative[-1]
        arm = jnp.sum(cumulative <= x.draws.decision * total, dtype=jnp.int32)  # the first arm whose cdf exceeds u
        p = w[arm].astype(jnp.float64) / total
        P = cumulative[x.cuts - 1] / total
        middle = cumulative[arm] / total - p / 2  # midpoint of the arm's interval of uniforms
        return losses, Decision((arm < x.cuts) & x.active, P, (arm, p), middle)

    def learn(losses: jax.Array, x: Block, decision: Decision, parameters: Parameters) -> tuple[jax.Array, Any]:
        answered, (arm, p) = decision.answered, decision.kept
        error = jnp.where(answered, x.errors, 0.0)
        charge = parameters.weight * learner.rule.charge(jnp.where, p, answered, error, parameters)
        return losses.at[arm].add(jnp.where(x.active, charge, 0.0)), ()

    return _of_losses(decide, learn, precision)


def _of_losses(decide: Any, learn: Any, precision: str, prior: float | None = None) -> Backend:
    """Make a backend whose carry within a block is its state, the cumulative charges."""

    def masses(losses: jax.Array, parameters: Parameters, arms: int) -> jax.Array:
        w = apply_prior(weights(losses, parameters.eta, precision), prior).astype(jnp.float64)
        return w / jnp.sum(w)

    return backend_of_halves(
        no_losses, Halves(_itself, decide, learn, _last, masses), dense_state=lambda losses: losses
    )


def fixed(learner: Learner[Fixed], precision: str) -> Backend:
    """Make the backend for one arm, O(1) per round. The state is the arm, int32 []; ``precision`` is ignored."""

    def init(arms: int, start: Start) -> jax.Array:
        return jnp.asarray(learner.rule.arm(arms, start.best), jnp.int32)

    return _fixed_steps()._replace(init=init)


@cache  # JAX compiles once per object: one for all arms
def _fixed_steps() -> Backend:
    def decide(arm: jax.Array, x: Block, parameters: Parameters, waiting: Any) -> tuple[jax.Array, Decision]:
        return arm, decide_by_arm(arm, x)

    def learn(arm: jax.Array, x: Block, decision: Decision, parameters: Parameters) -> tuple[jax.Array, Any]:
        return arm, ()

    def masses(arm: jax.Array, parameters: Parameters, arms: int) -> jax.Array:
        return mass_of_arm(arm, arms)

    return backend_of_halves(no_losses, Halves(_itself, decide, learn, _last, masses))


def ranked(learner: Learner[Ranked], precision: str) -> Backend:
    """Make the backend for decisions by the rank of a score (``aci-rank``).

    The state is the rule's, float64 [] each, and the counts of recent records by cut, [H] float64; ``precision`` is
    ignored.
    """
    rule = learner.rule

    def init(arms: int, start: Start) -> tuple[Any, jax.Array]:
        return as_arrays(start.state), jnp.asarray(start.counts, jnp.float64)

    def begin(state: tuple[Any, jax.Array], parameters: Parameters) -> tuple[Any, jax.Array, jax.Array]:
        return *state, jnp.ones(())

    def decide(carry: tuple[Any, ...], x: Block, parameters: Parameters, waiting: Any) -> tuple[Any, Decision]:
        state, counts, one = carry
        known = state
        if waiting is not None:
            assert rule.reserve is not None
            known = rule.reserve(jnp.where, state, waiting, counts.size, parameters)
        # Instead of multiplying H old counts by ``decay``, round n of the block counts
        # ``one = decay^-n`` times as much. Shares do not change, and ``end`` divides by ``one``.
        arms, total = jnp.arange(counts.size, dtype=jnp.int32), jnp.sum(counts)
        high = jnp.sum(jnp.where(arms <= x.cuts, counts, 0.0))
        low = jnp.sum(jnp.where(arms < x.cuts, counts, 0.0))
        P = rule.decide(jnp.where, known, high / total, low / total)
        one = jnp.where(x.active, one / rule.decay, one)
        counts = jnp.where((arms == x.cuts) & x.active, counts + one, counts)
        return (state, counts, one), Decision((x.draws.decision < P) & x.active, P)

    def learn(carry: tuple[Any, ...], x: Block, decision: Decision, parameters: Parameters) -> tuple[Any, Any]:
        state, counts, one = carry
        after = rule.learn(jnp.where, state, decision.answered, x.errors, parameters)
        return (jax.tree.map(lambda y, z: jnp.where(x.active, y, z), after, state), counts, one), ()

    def end(before: Any, carry: tuple[Any, ...], changes: tuple[Any, ...]) -> tuple[Any, jax.Array]:
        state, counts, one = carry
        return state, counts / one

    def masses(carry: tuple[Any, ...], parameters: Parameters, arms: int) -> jax.Array:
        below = jnp.cumsum(carry[1])
        ranks = below / below[-1]
        each = rule.decide(jnp.where, carry[0], ranks[1:], ranks[:-1])
        # Answering with probability each[c] at cut c is the mixture of arms with these masses.
        return jnp.diff(each, prepend=0.0, append=1.0)

    return backend_of_halves(init, Halves(begin, decide, learn, end, masses))


def _own(learner: Learner[Own], precision: str) -> Backend:
    return learner.rule.backend(precision)


make = partial(  # there is a kernel for every type of rule
    make_backend,
    {Sided: sided, Drawn: drawn, Ranked: ranked, Fixed: fixed, Own: _own},
)
