"""Rates of learners over the blocks of a horizon."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.game import ROUNDS
from exaul.kernels.learners.learner import Learner

Floats = NDArray[np.float64]
Rate = float | str  # set by hand: a number, or "X/sqrt", which is X / sqrt(t) at round t


def block_lengths(horizon: int) -> NDArray[np.int64]:
    """Rounds [K] of each block: 256, and the remainder for the last."""
    starts = np.arange(0, horizon, ROUNDS)
    return np.minimum(ROUNDS, horizon - starts)


def by_hand(rate: Rate) -> Callable[[int], float]:
    """A rate that was set by hand, as a function of the round.

    Raises:
        ValueError: it is no rate.
    """
    text = str(rate)
    scale = float(text.removesuffix("/sqrt"))
    return (lambda t: scale / math.sqrt(t)) if text.endswith("/sqrt") else (lambda t: scale)


@cache
def block_rates(
    learner: Learner[Any], horizon: int, arms: int, anytime: bool, eta: Rate | None, gamma: Rate | None
) -> tuple[Floats, Floats]:
    """The rates of a learner, constant within blocks of 256 rounds.

    Args:
        learner: whose rates.
        horizon: T >= 1.
        arms: H >= 2.
        anytime: take the rates for an unknown horizon; those of round t are of ``t' = 256 ceil(t / 256)``.
        eta: learning rate set by hand, or None.
        gamma: implicit exploration set by hand, or None.

    Returns:
        eta [K] and gamma [K] of the blocks; NaN where the learner has no such rate.
    """
    ends = ROUNDS * np.arange(1, len(block_lengths(horizon)) + 1)
    falling = learner.anytime if anytime or learner.rates is None else None
    rates = falling or learner.rates
    found = []
    for name, hand in (("eta", eta), ("gamma", gamma)):
        if rates is None or getattr(rates(horizon, arms), name) is None:
            found.append(np.full(len(ends), np.nan))
        elif hand is not None:
            at = by_hand(hand)
            found.append(np.array([at(int(t)) for t in ends], np.float64))
        elif falling is not None:
            found.append(np.array([getattr(falling(int(t), arms), name) for t in ends], np.float64))
        else:
            found.append(np.full(len(ends), getattr(rates(horizon, arms), name)))
    return found[0], found[1]
