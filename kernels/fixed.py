"""Learners that hold one arm for ever: ``no-abstention``, ``always-abstain``, ``best-fixed``."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.bounds import unbounded
from kernels.game import Block, Outcome, Parameters
from kernels.learner import Backend, Learner, Turns, by_turns


def held(learner: Learner, precision: str) -> Backend:
    """The one backend of these learners, whose state is the arm [B]; nothing in it has a precision."""

    def init(arms: int, best: NDArray[np.int32], streams: int) -> tuple[jax.Array, jax.Array]:
        arm = jnp.broadcast_to(jnp.asarray(learner.rule(arms, best), jnp.int32), best.shape)
        return arm, jnp.arange(arms, dtype=jnp.int32)

    def play(state: tuple, x: Block, parameters: Parameters) -> tuple[tuple, tuple[Outcome, tuple]]:
        answered = (state[0] < x.cuts) & x.active  # tau <= f
        return state, (Outcome(answered, answered.astype(jnp.float64)), ())

    def masses(state: tuple, parameters: Parameters) -> jax.Array:
        return (state[1][:, None] == state[0][None]).astype(jnp.float64)

    return by_turns(init, Turns(lambda state, _: state, play, lambda _, state, __: state, masses))


def _first(arms: int, best: NDArray[np.int32]) -> int:
    return 0


def _last(arms: int, best: NDArray[np.int32]) -> int:
    return arms - 1


def _best(arms: int, best: NDArray[np.int32]) -> NDArray[np.int32]:
    return best


def none(eta: Any, gamma: Any, rounds: Any, arms: int, delta: float) -> float:
    """The best fixed arm has no regret, by definition (eq. "full feedback regret")."""
    return 0.0


def no_risk(eta: Any, gamma: Any, rounds: Any, t: ArrayLike, answered: ArrayLike, arms: int) -> NDArray[np.float64]:
    """Who never answers has no FDR risk: 0."""
    return np.zeros(np.broadcast_shapes(np.shape(t), np.shape(answered)))


no_abstention = Learner("none", "fixed", _first, None, None, unbounded)
always_abstain = Learner("none", "fixed", _last, None, None, unbounded, risk_bound=no_risk)
best_fixed = Learner("hindsight", "fixed", _best, None, None, none)
