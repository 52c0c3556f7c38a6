"""The rates eta and gamma of a learner over the blocks of a horizon, as set by the paper's regret theorems.

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

Rate = float | str  # a manual rate: a number, or "X/sqrt" for X / sqrt(t) in round t


def block_lengths(horizon: int) -> NDArray[np.int64]:
    """Return the number of rounds of each block [K]: 256, and the remainder in the last block."""
    starts = np.arange(0, horizon, ROUNDS)
    return np.minimum(ROUNDS, horizon - starts)


def manual_rate(rate: Rate) -> Callable[[int], float]:
    """Parse a manual rate into a function of the round.

    Raises:
        ValueError: the rate is neither a number nor "X/sqrt".
    """
    text = str(rate)
    scale = float(text.removesuffix("/sqrt"))
    return (lambda t: scale / math.sqrt(t)) if text.endswith("/sqrt") else (lambda t: scale)


def rates_of(
    learner: Learner[Any], horizon: int | None, arms: int, anytime: bool, eta: Rate | None, gamma: Rate | None
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
    manual = [None if manual_at is None else manual_rate(manual_at) for manual_at in (eta, gamma)]

    def at(t: int) -> tuple[float, float]:
        own = constant if falling is None else falling(t, arms)
        pair = (None, None) if own is None else (own.eta, own.gamma)
        found = [
            math.nan if rate is None else rate if manual_at is None else manual_at(t)
            for rate, manual_at in zip(pair, manual, strict=True)
        ]
        return found[0], found[1]

    return at


@cache
def block_rates(
    learner: Learner[Any], horizon: int, arms: int, anytime: bool, eta: Rate | None, gamma: Rate | None
) -> Rates:
    """Compute the rates [K] of a learner for all blocks of a horizon; arguments as in ``rates_of``."""
    at = rates_of(learner, horizon, arms, anytime, eta, gamma)
    found = np.array([at(ROUNDS * block) for block in range(1, len(block_lengths(horizon)) + 1)], np.float64)
    return Rates(found[:, 0].copy(), found[:, 1].copy())
