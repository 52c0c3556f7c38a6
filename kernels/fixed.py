"""Learners that hold one arm for ever: ``no-abstention``, ``always-abstain``, ``best-fixed``."""

from collections.abc import Callable
from functools import partial
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
        parameters: not read.
    """
    answered = (arm[None] < block.cuts) & block.active[:, None]
    return arm, Outcome(answered, answered.astype(jnp.float64))


def _backend(choose: Callable[[int, NDArray[np.int32]], Any], precision: str) -> Backend:
    def init(arms: int, best: NDArray[np.int32]) -> jax.Array:
        return jnp.broadcast_to(jnp.asarray(choose(arms, best), jnp.int32), best.shape)

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


no_abstention = Learner("none", partial(_backend, _first), None, None, unbounded)
always_abstain = Learner("none", partial(_backend, _last), None, None, unbounded)
best_fixed = Learner("hindsight", partial(_backend, _best), None, None, none)
