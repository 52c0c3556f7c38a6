"""The table of learners, and their rates over the blocks of a horizon."""

from functools import cache

import numpy as np
import optax
from numpy.typing import NDArray

from kernels.ew import ew
from kernels.exaul import exaul
from kernels.exp3_ix import exp3_ix
from kernels.fixed import always_abstain, best_fixed, no_abstention
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


@cache
def backend(learner: Learner, precision: str) -> Backend:
    """The learner's backend: one object a learner and precision, so that it compiles once."""
    return learner.dense(precision)


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
