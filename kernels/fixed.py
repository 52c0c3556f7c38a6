"""Learners that hold one arm for ever: ``no-abstention``, ``always-abstain``, ``best-fixed``."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kernels.game import Block, Outcome, Parameters
from kernels.learner import Backend, Learner


def advance(arm: jax.Array, block: Block, parameters: Parameters) -> tuple[jax.Array, Outcome]:
    """Answer iff the arm lies below the cut (``tau <= f``).

    Args:
        arm: [B] int32 in 0..H-1.
        block: C rounds.
        parameters: which records each copy meets.
    """
    answered = (arm[None] < block.cuts[:, parameters.record]) & block.active[:, None]
    return arm, Outcome(answered, answered.astype(jnp.float64))


def held(learner: Learner, precision: str) -> Backend:
    """The one backend of these learners; nothing in it has a precision."""

    def init(arms: int, best: NDArray[np.int32], streams: int) -> jax.Array:
        return jnp.broadcast_to(jnp.asarray(learner.rule(arms, best), jnp.int32), best.shape)

    return Backend(init, advance)


def _first(arms: int, best: NDArray[np.int32]) -> int:
    return 0


def _last(arms: int, best: NDArray[np.int32]) -> int:
    return arms - 1


def _best(arms: int, best: NDArray[np.int32]) -> NDArray[np.int32]:
    return best


def unbounded(eta: Any, gamma: Any, rounds: Any, arms: int, delta: float) -> float:
    """Nothing is proved of the regret: NaN."""
    return np.nan


def none(eta: Any, gamma: Any, rounds: Any, arms: int, delta: float) -> float:
    """The best fixed arm has no regret, by definition (eq. "full feedback regret")."""
    return 0.0


no_abstention = Learner("none", "fixed", _first, None, None, unbounded)
always_abstain = Learner("none", "fixed", _last, None, None, unbounded)
best_fixed = Learner("hindsight", "fixed", _best, None, None, none)
