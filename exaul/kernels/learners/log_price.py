"""``log-price``: exponential weights with bandit feedback and a moving weight of the FDR, its price.

It plays the paper's loss (eq. 4) with ``lambda_t`` in place of lambda: an answer costs ``s e`` and an abstention
``r = 1 - s + alpha s``, where ``s = lambda_t / (1 + lambda_t)``. Each answer multiplies lambda_t by
``exp(m (e - alpha))``, the gradient step of a Lagrange multiplier, so that it settles where the FDR of what was
answered, not the error rate of the marginal answer, is alpha. A gate stops all answers while the FDR risk (eq. 1)
is high. Mass that moves to the last arm, which abstains, and to all arms alike, lets weights recover after a shift
(fixed share: Herbster and Warmuth, "Tracking the best expert", 1998). The horizon is never used. What is proved of
it stands in ``docs/proofs.md``.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.bounds import unbounded
from exaul.kernels.game import ROUNDS, Parameters, Rates
from exaul.kernels.learners.learner import Learner, Priced

RATE = 3.0  # c of the learning rate, eta_t = c sqrt(ln H / t)
STEP = 0.05  # m, the step of ln lambda
CAP = 10.0  # the most that an error subtracts from the logarithm of a weight
SHARE = 3e-6  # of all mass, moved in a round; while t is small, 1 / t at most
EVEN = 0.01  # of that share, the part that goes to all arms alike, once a block; the rest goes to the last arm
ALARM = 10.0  # errors in excess, at which a price below its first value returns to it


class LogPriceState(NamedTuple):
    """What a copy remembers beside its weights, [B] each."""

    price: Any  # lambda_t alpha, at least alpha; it starts at 1, that is lambda_1 = 1 / alpha
    risk: Any  # R, the FDR risk (eq. 1)
    alarm: Any  # D >= 0, errors in excess of min(3 alpha, (1 + alpha) / 2) for each answer
    rounds: Any  # t, the number of rounds played


def reserve(
    where: Callable[..., Any], memory: LogPriceState, waiting: Any, arms: Any, parameters: Parameters
) -> LogPriceState:
    """The memory if every answer without a thumb were wrong (``docs/proofs.md``, D2): the gate reads R alone.

    Args:
        memory: before the round, [B] each.
        waiting: [B], answers without a thumb.
        parameters: alpha [B] is read.

    Returns:
        The memory, with ``R + (1 - alpha) waiting``; [B] each.
    """
    price, risk, alarm, rounds = memory
    return LogPriceState(price, risk + (1.0 - parameters.alpha) * waiting, alarm, rounds)


def passes_gate(memory: LogPriceState, parameters: Parameters) -> Any:
    """Whether the gate lets an answer through, ``R + 1 - alpha <= 5 + 2 sqrt(t)`` (``docs/proofs.md``, step 1).

    Args:
        memory: before round t.
        parameters: alpha is read.

    Returns:
        bool; while it is false, no weight changes.
    """
    t = memory.rounds + 1.0
    beyond = memory.risk + 1.0 - parameters.alpha - 5.0
    return (beyond <= 0.0) | (beyond * beyond <= 4.0 * t)


def decide(where: Callable[..., Any], P: Any, memory: LogPriceState, parameters: Parameters) -> Any:
    """The probability of answering: P, or 0 where the gate is shut (``docs/proofs.md``, step 1).

    Arguments as of ``Priced``.
    """
    return where(passes_gate(memory, parameters), P, 0.0)


def learn(
    where: Callable[..., Any],
    exp: Callable[..., Any],
    P: Any,
    answered: Any,
    error: Any,
    memory: LogPriceState,
    parameters: Parameters,
) -> tuple[Any, Any, Any, LogPriceState]:
    """Charge both sides of the cut, and move the price (``docs/proofs.md``, steps 2 to 4).

    The loss of an answer is weighted by 1 / P (importance weighting), and that of an abstention is charged in every
    round, for it is known. The gate is found anew from this memory: under delay it is not that of the decision.
    Arguments and results are as of ``Priced``.
    """
    price, risk, alarm, rounds = memory
    alpha = parameters.alpha
    t = rounds + 1.0
    opens = passes_gate(memory, parameters)

    s = 1.0 / (1.0 + alpha / price)
    cost = parameters.eta * s * error / P
    below = where(answered, where(cost < CAP, cost, CAP), 0.0)
    above = where(opens, parameters.eta * (1.0 - s + alpha * s), 0.0)

    gain = where(answered, error - alpha, 0.0)
    moved = price * exp(STEP * gain)
    price = where(moved > alpha, moved, alpha)
    usual = where(3.0 * alpha < (1.0 + alpha) / 2.0, 3.0 * alpha, (1.0 + alpha) / 2.0)
    excess = alarm + where(answered, error - usual, 0.0)
    alarm = where(excess > 0.0, excess, 0.0)
    rings = opens & (alarm > ALARM) & (price < 1.0)
    share = (1.0 - EVEN) * where(SHARE * t < 1.0, SHARE, 1.0 / t)
    moves = where(opens, share / (1.0 - share), 0.0)
    moves = where(rings, 1.0 + 2.0 * moves, moves)
    after = LogPriceState(where(rings, 1.0, price), risk + gain, where(rings, 0.0, alarm), t)
    return below, above, moves, after


def uniform_share(where: Callable[..., Any], memory: LogPriceState) -> Any:
    """The mass that is added to all arms alike at the end of a block (fixed share, Herbster and Warmuth 1998).

    Args:
        where: ``where(condition, x, y)`` of the caller's arrays.
        memory: at the end of the block, [B] each.

    Returns:
        [B] >= 0, in units of the mass that is there.
    """
    spread = ROUNDS * EVEN * where(SHARE * memory.rounds < 1.0, SHARE, 1.0 / memory.rounds)
    return spread / (1.0 - spread)


def anytime(t: int, arms: int) -> Rates:
    """The rate of round t, ``eta_t = c sqrt(ln H / t)``, whatever the horizon.

    Args:
        t: the round, >= 1.
        arms: H >= 2.

    Returns:
        eta_t; there is no gamma.
    """
    return Rates(RATE * math.sqrt(math.log(arms) / t), None)


def risk_bound(
    eta: object, gamma: object, rounds: object, t: ArrayLike, answered: object, arms: int
) -> NDArray[np.float64]:
    """Bound the FDR risk (eq. 1) on any sequence: ``R_t <= 5 + 2 sqrt(t)`` (``docs/proofs.md``, guarantee L1).

    The gate lets no round be answered after which R could be larger.

    Args:
        t: rounds, any shape.

    Returns:
        The bound, of the shape of ``t``.
    """
    return 5 + 2 * np.sqrt(np.asarray(t, np.float64))


log_price = Learner(
    feedback="bandit",
    rule=Priced(LogPriceState(1.0, 0.0, 0.0, 0.0), decide, learn, uniform_share, reserve),
    rates=None,
    anytime=anytime,
    regret_bound=unbounded,
    risk_bound=risk_bound,
    chaotic=True,
)
