"""Comparators whose threshold never moves: ``no-abstention``, ``always-abstain`` and ``best-fixed``.

They play arm 0, which answers everything, arm H - 1, which answers nothing, and the arm of least loss in hindsight,
with which the regret compares a learner (eq. 3).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.backends.backend import Backend, Turns, by_turns
from exaul.kernels.bounds import unbounded
from exaul.kernels.game import Block, Outcome, Parameters
from exaul.kernels.learners.learner import Learner, Own


def _play(state: tuple[Any, ...], x: Block, parameters: Parameters) -> tuple[Any, tuple[Outcome, Any]]:
    answered = (state[0] < x.cuts) & x.active
    return state, (Outcome(answered, answered.astype(jnp.float64)), ())


def _masses(state: tuple[Any, ...], parameters: Parameters) -> jax.Array:
    return (state[1][:, None] == state[0][None]).astype(jnp.float64)


def _init(
    arm: Callable[[int, NDArray[Any]], Any], arms: int, best: NDArray[np.int32], streams: int
) -> tuple[jax.Array, jax.Array]:
    own = jnp.broadcast_to(jnp.asarray(arm(arms, best), jnp.int32), best.shape)
    return own, jnp.arange(arms, dtype=jnp.int32)


_TURNS = Turns(lambda state, _: state, _play, lambda _, state, __: state, _masses)
_BACKEND = by_turns(_init, _TURNS)  # one program for all learners of this kind: only their first states differ


def backend(arm: Callable[[int, NDArray[Any]], Any], precision: str) -> Backend:
    """The backend of a learner that plays one arm for ever, ``answer iff tau <= f``; O(1) a round.

    Args:
        arm: ``arm(arms, best)`` returns the arm, a number or [B] in 0..H-1; ``best`` [B] is the best in hindsight.
        precision: not read, for nothing is rounded.

    Returns:
        The backend. Its state is the arm of each copy [B] int32 and the arms' numbers [H].
    """
    return _BACKEND._replace(init=partial(_init, arm))


def _first(arms: int, best: NDArray[Any]) -> int:
    return 0


def _last(arms: int, best: NDArray[Any]) -> int:
    return arms - 1


def _best(arms: int, best: NDArray[Any]) -> NDArray[Any]:
    return best


def none(eta: Any, gamma: Any, rounds: Any, arms: int, delta: float) -> float:
    """The regret of the best fixed arm against itself (eq. 3).

    Arguments as of ``Learner.regret_bound``, [K] by block; none is read.

    Returns:
        0.
    """
    return 0.0


def no_risk(eta: Any, gamma: Any, rounds: Any, t: ArrayLike, answered: ArrayLike, arms: int) -> NDArray[np.float64]:
    """The FDR risk (eq. 1) of a learner that never answers.

    Arguments as of ``Learner.risk_bound``; only the shapes of ``t`` and ``answered`` are read.

    Returns:
        0, of the broadcast shape of ``t`` and ``answered``.
    """
    return np.zeros(np.broadcast_shapes(np.shape(t), np.shape(answered)))


no_abstention = Learner("none", Own(partial(backend, _first)), None, None, unbounded)
always_abstain = Learner("none", Own(partial(backend, _last)), None, None, unbounded, risk_bound=no_risk)
best_fixed = Learner("hindsight", Own(partial(backend, _best)), None, None, none)
