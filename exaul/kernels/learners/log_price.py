"""``log-price``: exponential weights with bandit feedback and a moving lambda, the price of errors.

The loss is that of the paper (eq. 4) with ``lambda_t`` in place of lambda: an answer costs ``s e`` and an
abstention ``r = 1 - s + alpha s``, where ``s = lambda_t / (1 + lambda_t)``. Each answer multiplies lambda_t by
``exp(m (e - alpha))``, the gradient step of a Lagrange multiplier. So lambda settles where the FDR of all answers
is alpha; with a constant lambda only the marginal answer would have that error rate. A gate stops all answers while
the FDR risk (eq. 1) is high. Mass that moves to the last arm, which abstains, and to all arms equally, lets weights
recover after a shift (fixed share: Herbster and Warmuth, "Tracking the best expert", 1998). The learner does not
use the horizon. ``docs/proofs.md``, section 3, has the proofs; step numbers in this file are those of that section.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.game import ROUNDS, Parameters, Rates
from exaul.kernels.learners.learner import Learner, Priced

RATE = 3.0  # c of the learning rate, eta_t = c sqrt(ln H / t)
STEP = 0.05  # m, the step of ln lambda
CAP = 10.0  # the largest amount subtracted from a log-weight for one error
SHARE = 3e-6  # sigma_t = min(SHARE, 1 / t), the share of all mass that moves in a round
EVEN = 0.01  # of sigma: this part goes to all arms equally, once per block; the rest to the last arm
ALARM = 10.0  # excess errors at which a price below its first value is reset to it


class LogPriceState(NamedTuple):
    """The state of a copy, besides its weights."""

    price: Any  # alpha e^y = alpha lambda_t >= alpha; starts at 1, so lambda_1 = 1 / alpha
    risk: Any  # R, the FDR risk (eq. 1)
    alarm: Any  # D >= 0, errors in excess of min(3 alpha, (1 + alpha) / 2) per answer
    rounds: Any  # t, the number of learned rounds


def reserve(
    where: Callable[..., Any], state: LogPriceState, waiting: Any, arms: Any, parameters: Parameters
) -> LogPriceState:
    """Return the state with ``R + (1 - alpha) waiting`` (``docs/proofs.md``, D2); the gate reads only R."""
    price, risk, alarm, rounds = state
    return LogPriceState(price, risk + (1.0 - parameters.alpha) * waiting, alarm, rounds)


def passes_gate(state: LogPriceState, parameters: Parameters) -> Any:
    """Return whether the gate is open in round t, ``R + 1 - alpha <= 5 + 2 sqrt(t)`` (step 1).

    While it is shut, no weight changes.
    """
    t = state.rounds + 1.0
    # Both sides are squared, which avoids a square root; the first test covers a negative left side.
    beyond = state.risk + 1.0 - parameters.alpha - 5.0
    return (beyond <= 0.0) | (beyond * beyond <= 4.0 * t)


def decide(where: Callable[..., Any], P: Any, state: LogPriceState, parameters: Parameters) -> Any:
    """Return the probability of answering: P, or 0 if the gate is shut (step 1)."""
    return where(passes_gate(state, parameters), P, 0.0)


def learn(
    where: Callable[..., Any],
    exp: Callable[..., Any],
    P: Any,
    answered: Any,
    error: Any,
    state: LogPriceState,
    parameters: Parameters,
) -> tuple[Any, Any, Any, LogPriceState]:
    """Charge both sides of the cut and move the price (steps 2 to 4).

    The loss of an answer is known only if the round was answered, so it is weighted by 1 / P. The loss of an
    abstention is always known, so it is charged in every round without a weight.
    """
    price, risk, alarm, rounds = state
    alpha = parameters.alpha
    t = rounds + 1.0
    # With delayed feedback this is another state than at the decision, so the gate is evaluated again.
    opens = passes_gate(state, parameters)

    # Step 2: charges. P > 0 if the round was answered; otherwise the quotient is discarded. Without gamma, only the
    # cap limits what one error at a small P does to the weights.
    s = 1.0 / (1.0 + alpha / price)  # lambda_t / (1 + lambda_t); the costs are those of eq. 4
    cost = parameters.eta * s * error / P
    below = where(answered, where(cost < CAP, cost, CAP), 0.0)
    above = where(opens, parameters.eta * (1.0 - s + alpha * s), 0.0)  # eta_t r

    # Step 3: price and alarm.
    gain = where(answered, error - alpha, 0.0)  # what the round adds to R (eq. 1)
    moved = price * exp(STEP * gain)
    price = where(moved > alpha, moved, alpha)  # lambda >= 1
    usual = where(3.0 * alpha < (1.0 + alpha) / 2.0, 3.0 * alpha, (1.0 + alpha) / 2.0)
    excess = alarm + where(answered, error - usual, 0.0)
    alarm = where(excess > 0.0, excess, 0.0)
    rings = opens & (alarm > ALARM) & (price < 1.0)

    # Step 4: x_t = share / (1 - share) of all mass moves to the last arm. An alarm first adds as much as all mass,
    # which doubles the total, so that x_t counts twice.
    share = (1.0 - EVEN) * where(SHARE * t < 1.0, SHARE, 1.0 / t)
    moves = where(opens, share / (1.0 - share), 0.0)
    moves = where(rings, 1.0 + 2.0 * moves, moves)
    after = LogPriceState(where(rings, 1.0, price), risk + gain, where(rings, 0.0, alarm), t)
    return below, above, moves, after


def uniform_share(where: Callable[..., Any], state: LogPriceState) -> Any:
    """Return ``2.56 sigma / (1 - 2.56 sigma)`` (step 4; fixed share, Herbster and Warmuth 1998)."""
    # ``spread`` is 2.56 sigma: the share EVEN of sigma, for 256 rounds at once.
    spread = ROUNDS * EVEN * where(SHARE * state.rounds < 1.0, SHARE, 1.0 / state.rounds)
    return spread / (1.0 - spread)


def anytime(t: int, arms: int) -> Rates:
    """Return the rate ``eta_t = c sqrt(ln H / t)``, for any horizon; there is no gamma."""
    return Rates(RATE * math.sqrt(math.log(arms) / t), None)


def risk_bound(
    eta: object, gamma: object, rounds: object, t: ArrayLike, answered: object, arms: int
) -> NDArray[np.float64]:
    """Bound the FDR risk (eq. 1) on any sequence: ``R_t <= 5 + 2 sqrt(t)`` (``docs/proofs.md``, L1: the gate)."""
    return 5 + 2 * np.sqrt(np.asarray(t, np.float64))


log_price = Learner(
    feedback="bandit",
    rule=Priced(LogPriceState(1.0, 0.0, 0.0, 0.0), decide, learn, uniform_share, reserve),
    anytime=anytime,
    risk_bound=risk_bound,
    chaotic=True,
)
