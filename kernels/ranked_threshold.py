"""``ranked-threshold``: a threshold on the rank of the score, with a budget of errors, and probes after silence.

It answers the share ``s = min(1, 5/4 (1 - y / K)^2)`` of the questions whose scores rank highest among recent
ones; y are the wrong answers above alpha that count against the share, ``K_t = 50 + sqrt(t) / 5`` the budget. The
rank is drawn evenly over the records that tie, so that a level of scores can be split. After 512 rounds of silence
it probes: it answers at least a tenth until a wrong answer, and k right ones in a row lower y to
``K (1 - (alpha k / 2)^2)``. S is the rise of R since its lowest point; a probe needs ``S + 1 <= 2 K``. Nothing
depends on T.

``S <= y + K`` at all times, for y is never lowered below S - K. An answer outside of a probe needs y < K; in a
probe only its last answer raises S, from at most 2 K - 1. So ``R_t <= S_t <= 2 K_t + 1 - alpha`` on any sequence.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.bounds import unbounded
from kernels.learner import Learner, Ranked

BUDGET, GROWTH = 50.0, 0.2  # K_t = 50 + sqrt(t) / 5
SHARE = 1.25  # of the questions, at no debt, were it not for 1
PROBE = 0.1  # share that a probe answers at least
SILENCE = 512.0  # rounds without an answer, before a probe


class State(NamedTuple):
    """What a copy holds, [B] each."""

    debt: Any  # y >= 0, in wrong answers above alpha
    rise: Any  # S >= 0
    silent: Any  # rounds since an answer
    streak: Any  # right answers in a row in this probe, -1 where there is none
    rounds: Any  # t


def budget(t: Any) -> Any:
    """``K_t``, of rounds t of any shape."""
    return BUDGET + GROWTH * t**0.5


def chance(where: Callable, state: State, high: Any, low: Any) -> Any:
    """The probability of answering a record, [B] or [H, B].

    Args:
        where: ``where(condition, x, y)`` of the caller's arrays.
        state: before the round.
        high: share of recent records whose cut is at most the record's, of the shape of the result.
        low: the same of those whose cut is smaller.
    """
    debt, _, _, streak, rounds = state
    room = 1.0 - debt / (BUDGET + GROWTH * (rounds + 1.0) ** 0.5)
    share = where(room > 0.0, SHARE * room * room, 0.0)
    share = where((streak >= 0.0) & (share < PROBE), PROBE, share)
    over = high - (1.0 - where(share < 1.0, share, 1.0))
    return where(over <= 0.0, 0.0, where(over >= high - low, 1.0, over / (high - low)))


def learn(where: Callable, state: State, answered: Any, error: Any, alpha: Any) -> State:
    """The state after a round.

    Args:
        where: as above.
        state: before the round.
        answered: [B] bool.
        error: [B] in [0, 1], read where the round is answered.
        alpha: [B].
    """
    debt, rise, silent, streak, rounds = state
    K = BUDGET + GROWTH * (rounds + 1.0) ** 0.5
    gain = where(answered, error - alpha, 0.0)
    debt = where(debt + gain > 0.0, debt + gain, 0.0)
    rise = where(rise + gain > 0.0, rise + gain, 0.0)
    right = answered & (error <= alpha) & (streak >= 0.0)
    streak = where(right, streak + 1.0, where(answered, -1.0, streak))
    trust = where(alpha * streak < 2.0, alpha * streak / 2.0, 1.0)
    won = K * (1.0 - trust * trust)
    won = where(won > rise - K, won, rise - K)
    debt = where(right & (won < debt), won, debt)
    silent = where(answered, 0.0, silent + 1.0)
    probes = (silent >= SILENCE) & (rise + 1.0 <= 2.0 * K)
    return State(debt, rise, where(probes, 0.0, silent), where(probes, 0.0, streak), rounds + 1.0)


def risk_bound(
    eta: object, gamma: object, rounds: object, t: ArrayLike, answered: object, arms: int
) -> NDArray[np.float64]:
    """``R_t <= 2 K_t + 1``, pathwise, on any sequence; no stretch raises R by more."""
    return 2 * budget(np.asarray(t, np.float64)) + 1


ranked_threshold = Learner(
    feedback="bandit",
    kind="ranked",
    rule=Ranked(State(BUDGET / 2, 0.0, 0.0, -1.0, 0.0), chance, learn, prior=0.25, kept=0.75),
    rates=None,
    anytime=None,
    regret_bound=unbounded,
    risk_bound=risk_bound,
)
