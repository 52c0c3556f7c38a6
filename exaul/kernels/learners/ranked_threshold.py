"""``ranked-threshold``: a threshold on the rank of the score, with a budget of errors, and probes after silence.

It answers the share ``s = (1 - y / K)^2`` of the records whose scores rank highest among recent ones, and whole
every level of scores that this share reaches into. Here y, the debt, counts wrong answers above what it aims at;
``K_t = 40 + sqrt(t) / 5`` is the budget. The aim is alpha or, while the FDR so far is above alpha, alpha minus half
of the excess, but at least 3/4 alpha. After 256 rounds of silence it probes: it answers a share of at least a tenth
until a wrong answer, and k right answers in a row lower the debt to ``K (1 - (alpha k / 2)^2)``. A probe begins
only while S, the rise of the FDR risk R (eq. 1) above its lowest value, is at most ``K + 3``. Neither the horizon
nor a draw is used.

``S <= y + K`` at all times, for y grows by at least as much as S, and is never lowered below S - K. An answer
outside a probe needs y < K; within a probe only the last answer raises S, which was at most K + 3 when it began. So
``R_t <= S_t <= 2 K_t + 1 - alpha`` on any sequence (``docs/proofs.md``, guarantee K1).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.bounds import unbounded
from exaul.kernels.game import Parameters
from exaul.kernels.learners.learner import Learner, Ranked

BUDGET, GROWTH = 40.0, 0.2  # K_t = 40 + sqrt(t) / 5
AMENDS = 0.5  # how far below alpha the aim is, as a part of how far above alpha the FDR is
MOST = 0.25  # how far below alpha the aim may be, as a part of alpha
PROBE = 0.1  # the least share that a probe answers
SILENCE = 256.0  # rounds without an answer, after which a probe begins
SPARE = 3.0  # a probe begins only if the rise of R is at most K plus this


class RankedThresholdState(NamedTuple):
    """The state of a copy, [B] each."""

    debt: Any  # y >= 0, in wrong answers above the aim
    rise: Any  # S >= 0, by how much R is above its lowest value
    risk: Any  # R, the FDR risk (eq. 1)
    answers: Any  # number of answered rounds
    silent: Any  # number of rounds since the last answer, or since the last probe began
    streak: Any  # number of right answers in a row in this probe; -1 outside a probe
    rounds: Any  # t, the number of rounds played


def budget(t: Any) -> Any:
    """The budget of errors, ``K_t = 40 + sqrt(t) / 5`` (``docs/proofs.md``).

    Args:
        t: rounds, any shape.

    Returns:
        K_t, of the shape of ``t``.
    """
    return BUDGET + GROWTH * t**0.5


def chance(where: Callable[..., Any], state: RankedThresholdState, high: Any, low: Any) -> Any:
    """Whether the highest share s reaches the record's level, ``high > 1 - s``.

    ``s = max(0, 1 - y / K)^2``, in a probe at least 0.1 (``docs/proofs.md``).

    Args:
        where: ``where(condition, x, y)`` of the caller's arrays.
        state: before the round; [B] each, or shapes that broadcast with ``high``.
        high: [B] or [H, B] in [0, 1], share of recent records whose cut is at most the record's.

    Returns:
        The probability of answering, 0 or 1, of the shape of ``high``.
    """
    debt, _, _, _, _, streak, rounds = state
    room = 1.0 - debt / (BUDGET + GROWTH * (rounds + 1.0) ** 0.5)
    share = where(room > 0.0, room * room, 0.0)
    share = where((streak >= 0.0) & (share < PROBE), PROBE, share)
    reached = (share > 0.0) & (high > 1.0 - share)  # the first is exact: rounding may leave high above 1
    return where(reached, 1.0, 0.0)


def reserve(
    where: Callable[..., Any], state: RankedThresholdState, waiting: Any, arms: Any, parameters: Parameters
) -> RankedThresholdState:
    """The state if every answer without a thumb were wrong (``docs/proofs.md``, D2).

    Debt and rise are larger by ``1 - alpha`` for each. Where that rise is above 2 K nothing is answered, as where
    the debt is K and there is no probe.

    Args:
        where: ``where(condition, x, y)`` of the caller's arrays.
        state: before the round, [B] each.
        waiting: [B], answers without a thumb.
        parameters: alpha [B] is read.

    Returns:
        The state, [B] each.
    """
    debt, rise, risk, answers, silent, streak, rounds = state
    K = BUDGET + GROWTH * (rounds + 1.0) ** 0.5
    open_ = (1.0 - parameters.alpha) * waiting
    shut = (waiting > 0.0) & (rise + open_ > 2.0 * K)
    debt, streak = where(shut, K, debt + open_), where(shut, -1.0, streak)
    return RankedThresholdState(debt, rise + open_, risk, answers, silent, streak, rounds)


def learn(
    where: Callable[..., Any], state: RankedThresholdState, answered: Any, error: Any, alpha: Any
) -> RankedThresholdState:
    """Compute the state after a round (``docs/proofs.md``, the update of ``ranked-threshold``).

    Args:
        where: ``where(condition, x, y)`` of the caller's arrays.
        state: before the round, [B] each.
        answered: [B] bool.
        error: [B] in [0, 1], read where the round is answered.
        alpha: [B] in (0, 1), target FDR.

    Returns:
        The state, [B] each.
    """
    debt, rise, risk, answers, silent, streak, rounds = state
    K = BUDGET + GROWTH * (rounds + 1.0) ** 0.5
    gain = where(answered, error - alpha, 0.0)
    amends = where(answered & (risk > 0.0), AMENDS * risk / (answers + 1.0), 0.0)
    amends = where(amends > MOST * alpha, MOST * alpha, amends)
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
    return RankedThresholdState(debt, rise, risk + gain, answers, silent, streak, rounds + 1.0)


def risk_bound(
    eta: object, gamma: object, rounds: object, t: ArrayLike, answered: object, arms: int
) -> NDArray[np.float64]:
    """Bound the FDR risk (eq. 1) on any sequence: ``R_t <= 2 K_t + 1`` (``docs/proofs.md``, guarantee K1).

    The guarantee is ``2 K_t + 1 - alpha``; alpha is dropped, for the bound does not know it.

    Args:
        t: rounds, any shape.

    Returns:
        The bound, of the shape of ``t``; R rises by no more over any stretch of rounds up to t.
    """
    return 2 * budget(np.asarray(t, np.float64)) + 1


ranked_threshold = Learner(
    feedback="bandit",
    rule=Ranked(
        RankedThresholdState(BUDGET / 2, 0.0, 0.0, 0.0, 0.0, -1.0, 0.0),
        chance,
        learn,
        prior=0.25,
        decay=1 - 1 / 8192,
        reserve=reserve,
    ),
    rates=None,
    anytime=None,
    regret_bound=unbounded,
    risk_bound=risk_bound,
)
