"""``pi-rank``: proportional-integral control of the share of records that is answered, on the rank of the score.

It follows conformal PID control (Angelopoulos, Candes and Tibshirani, 2023), without a model of the scores and with
feedback on answers only. It answers the share ``s = p - .16 x / (1 - x^2)`` of records whose scores rank highest
among recent ones, with ``x = S / (.47 sqrt(t))``; a level of scores that this share reaches is answered whole. The
proportional part p moves as in ``aci-rank``, but stays at .1 or above. The integral part is S, the rise of the FDR
risk R (eq. 1) above its lowest value; at x >= 1 nothing is answered. The learner uses neither the horizon nor a
draw.

On any sequence ``R_t <= S_t <= .47 sqrt(t) + 1 - alpha`` (``docs/proofs.md``, guarantee P1).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.game import Parameters
from exaul.kernels.learners.learner import Learner, Ranked

START, STEP, LEAST = 0.5, 0.005, 0.1  # the first p, its step, and the least p
GAIN, LIMIT = 0.16, 0.47  # of the integral part, and the S at which it is infinite, over sqrt(t)


class PiRankState(NamedTuple):
    """The state of a copy."""

    share: Any  # p in [.1, 1], the proportional part
    rise: Any  # S >= 0, the rise of R above its lowest value
    rounds: Any  # t, the number of learned rounds


def decide(where: Callable[..., Any], state: PiRankState, high: Any, low: Any) -> Any:
    """Return 1 if the highest share s reaches the record's level, ``high > 1 - s``, else 0."""
    x = state.rise / (LIMIT * (state.rounds + 1.0) ** 0.5)
    x = where(x < 1.0, x, 1.0)
    # ``1 - x^2`` is 0 at x = 1, where nothing is answered; the other ``where`` avoids the division by 0.
    share = state.share - GAIN * x / where(x < 1.0, 1.0 - x * x, 1.0)
    reached = (x < 1.0) & (share > 0.0) & (high > 1.0 - share)
    return where(reached, 1.0, 0.0)


def reserve(
    where: Callable[..., Any], state: PiRankState, waiting: Any, arms: Any, parameters: Parameters
) -> PiRankState:
    """Return the state with ``S + (1 - alpha) waiting`` (``docs/proofs.md``, D2)."""
    return PiRankState(state.share, state.rise + (1.0 - parameters.alpha) * waiting, state.rounds)


def learn(
    where: Callable[..., Any], state: PiRankState, answered: Any, error: Any, parameters: Parameters
) -> PiRankState:
    """Update the state: ``p <- p - .005 g``, between .1 and 1, and ``S <- max(0, S + g)``, with g = e - alpha."""
    gain = where(answered, error - parameters.alpha, 0.0)
    share = state.share - STEP * gain
    share = where(share > 1.0, 1.0, where(share < LEAST, LEAST, share))
    rise = where(state.rise + gain > 0.0, state.rise + gain, 0.0)
    return PiRankState(share, rise, state.rounds + 1.0)


def risk_bound(
    eta: object, gamma: object, rounds: object, t: ArrayLike, answered: object, arms: int
) -> NDArray[np.float64]:
    """Bound the FDR risk (eq. 1) on any sequence: ``R_t <= .47 sqrt(t) + 1`` (``docs/proofs.md``, guarantee P1).

    P1 states ``.47 sqrt(t) + 1 - alpha``, but this function does not know alpha. R rises by no more over any
    stretch of rounds up to t.
    """
    return LIMIT * np.sqrt(np.asarray(t, np.float64)) + 1


pi_rank = Learner(
    feedback="bandit",
    rule=Ranked(PiRankState(START, 0.0, 0.0), decide, learn, prior=0.25, decay=1 - 1 / 8192, reserve=reserve),
    risk_bound=risk_bound,
)
