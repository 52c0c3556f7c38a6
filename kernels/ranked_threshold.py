"""``ranked-threshold``: a threshold on the rank of the score, with a budget of errors, and probes after silence.

It answers the share ``s = (1 - y / K)^2`` of the questions whose scores rank highest among recent
ones; y are the wrong answers above its aim that count against the share, ``K_t = 40 + sqrt(t) / 5`` the budget.
The aim is alpha, less half of what the FDR so far is above alpha. The rank is drawn evenly over the records that
tie, so that a level of scores can be split. After 256 rounds of silence it probes: it answers at least a tenth
until a wrong answer, and k right ones in a row lower y to ``K (1 - (alpha k / 2)^2)``. S is the rise of R since
its lowest point; a probe needs ``S <= K + 3``. Nothing depends on T.

``S <= y + K`` at all times, for y grows by as much as S or more, and is never lowered below S - K. An answer out
of a probe needs y < K; in a probe only its last answer raises S, from at most K + 3. So on any
sequence ``R_t <= S_t <= 2 K_t + 1 - alpha``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.bounds import unbounded
from kernels.learner import Learner, Ranked

BUDGET, GROWTH = 40.0, 0.2  # K_t = 40 + sqrt(t) / 5
AMENDS = 0.5  # how far below alpha it aims, of how far above alpha the FDR is
PROBE = 0.1  # share that a probe answers at least
SILENCE = 256.0  # rounds without an answer, before a probe
SPARE = 3.0  # how far above K the rise may be when a probe begins


class State(NamedTuple):
    """What a copy holds, [B] each."""

    debt: Any  # y >= 0, in wrong answers above the aim
    rise: Any  # S >= 0
    risk: Any  # R
    answers: Any  # so far
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
    debt, _, _, _, _, streak, rounds = state
    room = 1.0 - debt / (BUDGET + GROWTH * (rounds + 1.0) ** 0.5)
    share = where(room > 0.0, room * room, 0.0)
    share = where((streak >= 0.0) & (share < PROBE), PROBE, share)
    over = high - (1.0 - share)
    none = (share <= 0.0) | (over <= 0.0)  # the first says it without rounding, for high may be above 1 by it
    return where(none, 0.0, where(over >= high - low, 1.0, over / (high - low)))


def learn(where: Callable, state: State, answered: Any, error: Any, alpha: Any) -> State:
    """The state after a round.

    Args:
        where: as above.
        state: before the round.
        answered: [B] bool.
        error: [B] in [0, 1], read where the round is answered.
        alpha: [B].
    """
    debt, rise, risk, answers, silent, streak, rounds = state
    K = BUDGET + GROWTH * (rounds + 1.0) ** 0.5
    gain = where(answered, error - alpha, 0.0)
    amends = where(answered & (risk > 0.0), AMENDS * risk / (answers + 1.0), 0.0)
    debt = where(debt + gain + amends > 0.0, debt + gain + amends, 0.0)
    rise = where(rise + gain > 0.0, rise + gain, 0.0)
    answers = where(answered, answers + 1.0, answers)
    right = answered & (error <= alpha) & (streak >= 0.0)
    streak = where(right, streak + 1.0, where(answered, -1.0, streak))
    trust = where(alpha * streak < 2.0, alpha * streak / 2.0, 1.0)
    won = K * (1.0 - trust * trust)
    won = where(won > rise - K, won, rise - K)
    debt = where(right & (won < debt), won, debt)
    silent = where(answered, 0.0, silent + 1.0)
    probes = (silent >= SILENCE) & (rise <= K + SPARE)
    silent, streak = where(probes, 0.0, silent), where(probes, 0.0, streak)
    return State(debt, rise, risk + gain, answers, silent, streak, rounds + 1.0)


def risk_bound(
    eta: object, gamma: object, rounds: object, t: ArrayLike, answered: object, arms: int
) -> NDArray[np.float64]:
    """``R_t <= 2 K_t + 1``, pathwise, on any sequence; no stretch raises R by more."""
    return 2 * budget(np.asarray(t, np.float64)) + 1


ranked_threshold = Learner(
    feedback="bandit",
    kind="ranked",
    rule=Ranked(State(BUDGET / 2, 0.0, 0.0, 0.0, 0.0, -1.0, 0.0), chance, learn, prior=0.25, kept=1 - 1 / 512),
    rates=None,
    anytime=None,
    regret_bound=unbounded,
    risk_bound=risk_bound,
)
