"""The table of learners, and their rates over the blocks of a horizon."""

from collections.abc import Callable
from functools import cache

import numpy as np
import optax
from numpy.typing import NDArray

from kernels import dense, native
from kernels.ew import ew
from kernels.exaul import exaul
from kernels.exp3_ix import exp3_ix
from kernels.fixed import always_abstain, best_fixed, held, no_abstention
from kernels.game import ROUNDS
from kernels.learner import Backend, Learner

LEARNERS: dict[str, Learner] = {
    "exaul": exaul,
    "exp3-ix": exp3_ix,
    "ew": ew,
    "no-abstention": no_abstention,
    "always-abstain": always_abstain,
    "best-fixed": best_fixed,
}


BACKENDS: dict[str, dict[str, Callable[[Learner, str], Backend]]] = {
    "dense": {"sided": dense.sided, "drawn": dense.drawn, "fixed": held},
    "native": {"sided": native.sided, "drawn": native.drawn, "fixed": held},
}


@cache
def backend(learner: Learner, name: str, precision: str) -> Backend:
    """The learner on a named backend: one object each, so that it compiles once."""
    return BACKENDS[name][learner.kind](learner, precision)


def runs_on(learner: Learner, name: str) -> bool:
    """Whether the named backend has a place for the learner's kind of rule."""
    return learner.kind in BACKENDS[name]


def block_lengths(horizon: int) -> NDArray[np.int64]:
    """Rounds [K] of each block: 256, and what is left for the last."""
    starts = np.arange(0, horizon, ROUNDS)
    return np.minimum(ROUNDS, horizon - starts)


def block_rates(
    learner: Learner, horizon: int, arms: int, anytime: bool, eta: float | None, gamma: float | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The rates of a learner, held over blocks of 256 rounds.

    Args:
        learner: whose rates.
        horizon: T >= 1.
        arms: H >= 2.
        anytime: take round t's rates of an unknown horizon, at ``t' = 256 ceil(t / 256)``.
        eta: learning rate set by hand, or None.
        gamma: implicit exploration set by hand, or None.

    Returns:
        eta [K] and gamma [K] of the blocks; NaN where the learner has no such rate.
    """
    ends = ROUNDS * np.arange(1, len(block_lengths(horizon)) + 1)

    def over_blocks(schedule: optax.Schedule) -> NDArray[np.float64]:
        return np.array([schedule(int(t)) for t in ends], np.float64)

    def by_name(name: str, by_hand: float | None) -> NDArray[np.float64]:
        if learner.rates is None or getattr(learner.rates(horizon, arms), name) is None:
            return over_blocks(optax.constant_schedule(np.nan))
        if by_hand is not None:
            return over_blocks(optax.constant_schedule(by_hand))
        if anytime and learner.anytime is not None:
            varying = learner.anytime
            return over_blocks(lambda t: getattr(varying(t, arms), name))
        return over_blocks(optax.constant_schedule(getattr(learner.rates(horizon, arms), name)))

    return by_name("eta", eta), by_name("gamma", gamma)
