"""The rates eta and gamma of a learner over the blocks of a horizon, the learner's own or given ones.

Rates are constant within a block of 256 rounds. If the horizon is unknown, round t has the rates of
``t' = 256 ceil(t / 256)``.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.game import ROUNDS, Rates
from exaul.kernels.learners.learner import Learner


def block_lengths(horizon: int) -> NDArray[np.int64]:
    """Return the number of rounds of each block [K]: 256, and the remainder in the last block."""
    starts = np.arange(0, horizon, ROUNDS)
    return np.minimum(ROUNDS, horizon - starts)


def rates_of(
    learner: Learner[Any], horizon: int | None, arms: int, anytime: bool, eta: float | None, gamma: float | None
) -> Callable[[int], tuple[float, float]]:
    """Return the rates of a learner as a function of the last round of a block, ``t = 256 k``.

    Args:
        learner: the learner.
        horizon: T >= 1, or None if unknown.
        arms: H >= 2.
        anytime: use the rates for an unknown horizon, although it is known.
        eta: manual learning rate, or None.
        gamma: manual implicit exploration, or None.

    Returns:
        A function that returns eta and gamma; NaN for a rate that the learner does not have.
    """
    falling = learner.anytime if anytime or horizon is None or learner.rates is None else None
    constant = None if falling is not None or learner.rates is None else learner.rates(horizon or 1, arms)

    def at(t: int) -> tuple[float, float]:
        own = constant if falling is None else falling(t, arms)
        pair = (None, None) if own is None else (own.eta, own.gamma)
        found = [
            math.nan if rate is None else rate if manual is None else manual
            for rate, manual in zip(pair, (eta, gamma), strict=True)
        ]
        return found[0], found[1]

    return at


@cache
def block_rates(
    learner: Learner[Any], horizon: int, arms: int, anytime: bool, eta: float | None, gamma: float | None
) -> Rates:
    """Compute the rates [K] of a learner for all blocks of a horizon; arguments as in ``rates_of``."""
    at = rates_of(learner, horizon, arms, anytime, eta, gamma)
    found = np.array([at(ROUNDS * block) for block in range(1, len(block_lengths(horizon)) + 1)], np.float64)
    return Rates(found[:, 0].copy(), found[:, 1].copy())
