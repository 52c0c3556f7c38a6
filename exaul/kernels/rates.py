"""The rates eta and gamma of a learner over the blocks of a horizon, as the paper's regret theorems set them.

A rate is constant within a block of 256 rounds. Where the horizon is unknown, round t has the rates of
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

Floats = NDArray[np.float64]
Rate = float | str  # set by hand: a number, or "X/sqrt", which is X / sqrt(t) at round t


def block_lengths(horizon: int) -> NDArray[np.int64]:
    """Rounds [K] of each block: 256, and the remainder for the last."""
    starts = np.arange(0, horizon, ROUNDS)
    return np.minimum(ROUNDS, horizon - starts)


def manual_rates(rate: Rate) -> Callable[[int], float]:
    """A rate that was set by hand, as a function of the round.

    Raises:
        ValueError: it is no rate.
    """
    text = str(rate)
    scale = float(text.removesuffix("/sqrt"))
    return (lambda t: scale / math.sqrt(t)) if text.endswith("/sqrt") else (lambda t: scale)


def rates_of(
    learner: Learner[Any], horizon: int | None, arms: int, anytime: bool, eta: Rate | None, gamma: Rate | None
) -> Callable[[int], tuple[float, float]]:
    """The rates of a learner as a function of the last round t of a block, ``t = 256 k``.

    Args:
        learner: whose rates.
        horizon: T >= 1, or None where it is not known.
        arms: H >= 2.
        anytime: take the rates for an unknown horizon.
        eta: learning rate set by hand, or None.
        gamma: implicit exploration set by hand, or None.

    Returns:
        The function, which returns eta and gamma; NaN where the learner has no such rate.
    """
    falling = learner.anytime if anytime or horizon is None or learner.rates is None else None
    constant = None if falling is not None or learner.rates is None else learner.rates(horizon or 1, arms)
    hands = [None if hand is None else manual_rates(hand) for hand in (eta, gamma)]

    def at(t: int) -> tuple[float, float]:
        own = constant if falling is None else falling(t, arms)
        pair = (None, None) if own is None else (own.eta, own.gamma)
        found = [
            math.nan if rate is None else rate if hand is None else hand(t)
            for rate, hand in zip(pair, hands, strict=True)
        ]
        return found[0], found[1]

    return at


@cache
def block_rates(
    learner: Learner[Any], horizon: int, arms: int, anytime: bool, eta: Rate | None, gamma: Rate | None
) -> Rates:
    """The rates of a learner, constant within blocks of 256 rounds.

    Args:
        learner: whose rates.
        horizon: T >= 1.
        arms: H >= 2.
        anytime: take the rates for an unknown horizon; those of round t are of ``t' = 256 ceil(t / 256)``.
        eta: learning rate set by hand, or None.
        gamma: implicit exploration set by hand, or None.

    Returns:
        The rates [K] of the blocks; NaN where the learner has no such rate.
    """
    at = rates_of(learner, horizon, arms, anytime, eta, gamma)
    found = np.array([at(ROUNDS * block) for block in range(1, len(block_lengths(horizon)) + 1)], np.float64)
    return Rates(found[:, 0].copy(), found[:, 1].copy())
