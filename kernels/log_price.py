"""``log-price``: exponential weights with bandit feedback, whose weight of the FDR is a price that moves.

It plays the paper's loss (eq. 3) with ``lambda_t`` in place of lambda: an answer costs ``s e`` and an abstention
``r = 1 - s + alpha s``, where ``s = lambda_t / (1 + lambda_t)``. Each answer multiplies lambda_t by
``exp(m (e - alpha))``, so that it settles where the FDR, not the marginal error rate, is alpha. It never uses T.
What is proved of it stands in ``docs/beyond.md``.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.bounds import unbounded
from kernels.game import ROUNDS, Parameters
from kernels.learner import Learner, Priced, Rates

RATE = 3.0  # c, of learning: eta_t = c sqrt(ln H / t)
STEP = 0.05  # m, of the price in logarithms
CAP = 10.0  # on the charge of an error, in logarithms of weight
SHARE = 3e-6  # of all mass, that goes over in a round: to the last arm but for EVEN of it
EVEN = 0.01  # of that share, spread evenly over all arms at the end of a block of 256 rounds
ALARM = 10.0  # errors in excess, at which a price below its first returns there


class Memory(NamedTuple):
    """What a copy remembers beside its weights, [B] each."""

    price: Any  # lambda_t alpha, at least alpha: lambda_1 = 1 / alpha and lambda_t >= 1
    risk: Any  # R = sum over answered of (e - alpha)
    alarm: Any  # D >= 0, errors in excess of min(3 alpha, (1 + alpha) / 2) an answer
    rounds: Any  # t, of those played


def rule(
    where: Callable,
    exp: Callable,
    P: Any,
    uniform: Any,
    error: Any,
    active: Any,
    memory: Memory,
    parameters: Parameters,
) -> tuple[Any, Any, Any, Any, Memory]:
    """Play a round: whether it is answered, what that costs, and what is remembered.

    Args:
        where: ``where(condition, x, y)`` of the caller's arrays.
        exp: exponential, likewise.
        P: [B] in [0, 1], mass of the arms that answer.
        uniform: [B] in [0, 1); the round is answered where it is below the probability of answering.
        error: [B] in [0, 1], read where the round is answered.
        active: bool, whether the round is played.
        memory: before the round.
        parameters: eta > 0 and alpha.

    Returns:
        The probability of answering (P, or 0 where the gate is shut and no arm changes), what is taken off the
        logarithm of the weight of each arm below the cut and of each above it, what share of all mass is added to
        the last arm thereafter, [B] each, and the memory after the round.
    """
    price, risk, alarm, rounds = memory
    alpha = parameters.alpha
    t = rounds + where(active, 1.0, 0.0)
    beyond = risk + 1.0 - alpha - 5.0
    lets = active & ((beyond <= 0.0) | (beyond * beyond <= 4.0 * t))  # R + 1 - alpha <= 5 + 2 sqrt(t)
    chance = where(lets, P, 0.0)
    answered = uniform < chance

    s = 1.0 / (1.0 + alpha / price)
    cost = parameters.eta * s * error / P
    below = where(answered, where(cost < CAP, cost, CAP), 0.0)
    above = where(lets, parameters.eta * (1.0 - s + alpha * s), 0.0)

    gain = where(answered, error - alpha, 0.0)
    moved = price * exp(STEP * gain)
    price = where(moved > alpha, moved, alpha)
    usual = where(3.0 * alpha < (1.0 + alpha) / 2.0, 3.0 * alpha, (1.0 + alpha) / 2.0)
    excess = alarm + where(answered, error - usual, 0.0)
    alarm = where(excess > 0.0, excess, 0.0)
    rings = lets & (alarm > ALARM) & (price < 1.0)
    share = (1.0 - EVEN) * where(SHARE * t < 1.0, SHARE, 1.0 / t)
    given = where(lets, share / (1.0 - share), 0.0)
    given = where(rings, 1.0 + 2.0 * given, given)
    after = Memory(where(rings, 1.0, price), risk + gain, where(rings, 0.0, alarm), t)
    return chance, below, above, given, after


def even(where: Callable, memory: Memory) -> Any:
    """What is added to each arm at the end of a block, per unit of mean weight, [B]."""
    spread = ROUNDS * EVEN * where(SHARE * memory.rounds < 1.0, SHARE, 1.0 / memory.rounds)
    return spread / (1.0 - spread)


def anytime(t: int, arms: int) -> Rates:
    """``eta_t = c sqrt(ln H / t)``; the horizon is never used."""
    return Rates(RATE * math.sqrt(math.log(arms) / t), None)


def risk_bound(
    eta: object, gamma: object, rounds: object, t: ArrayLike, answered: object, arms: int
) -> NDArray[np.float64]:
    """Guarantee A: ``R_t <= 5 + 2 sqrt(t)``, pathwise, on any sequence: the gate sees to it."""
    return 5 + 2 * np.sqrt(np.asarray(t, np.float64))


log_price = Learner(
    feedback="bandit",
    kind="priced",
    rule=Priced(Memory(1.0, 0.0, 0.0, 0.0), rule, even),
    rates=None,
    anytime=anytime,
    regret_bound=unbounded,
    risk_bound=risk_bound,
)
