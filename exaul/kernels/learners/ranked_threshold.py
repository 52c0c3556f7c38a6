"""``ranked-threshold``: a threshold on the rank of the score, with a budget of errors, and probes after silence.

It answers the share ``s = (1 - y / K)^2`` of records whose scores rank highest among recent ones; a level of scores
that this share reaches is answered whole. The debt y counts wrong answers above the aim; ``K_t = 40 + sqrt(t) / 5``
is the budget. The aim is alpha or, while the FDR so far is above alpha, alpha minus half of the excess, but at
least 3/4 alpha. After 256 rounds of silence a probe begins: a share of at least a tenth is answered until a wrong
answer, and k right answers in a row lower the debt to ``K (1 - (alpha k / 2)^2)``. A probe begins only if S, the
rise of the FDR risk R (eq. 1) above its lowest value, is at most ``K + 3``. The learner uses neither the horizon
nor a draw.

On any sequence ``R_t <= S_t <= 2 K_t + 1 - alpha``. ``docs/proofs.md``, section 4, has the proof (guarantee K1) and
the update in the symbols of the comments below.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.game import Parameters
from exaul.kernels.learners.learner import Learner, Ranked

BUDGET, GROWTH = 40.0, 0.2  # K_t = 40 + sqrt(t) / 5
PRIOR = 1 / 32  # few records of each cut, so that ranks follow the scores after some dozen rounds
AMENDS = 0.5  # the aim is below alpha by this part of the excess of the FDR over alpha
MOST = 0.25  # largest distance of the aim below alpha, as a share of alpha
PROBE = 0.1  # the least share answered in a probe
SILENCE = 256.0  # rounds without an answer, after which a probe begins
SPARE = 3.0  # a probe begins only if S is at most K plus this


class RankedThresholdState(NamedTuple):
    """The state of a copy; symbols are those of ``docs/proofs.md``, section 4."""

    debt: Any  # y >= 0, wrong answers above the aim
    rise: Any  # S >= 0, the rise of R above its lowest value
    risk: Any  # R, the FDR risk (eq. 1)
    answers: Any  # b, number of answers
    silent: Any  # h, rounds since the last answer, or since the last probe began
    streak: Any  # k, right answers in a row in this probe; -1 outside a probe
    rounds: Any  # t, the number of learned rounds


def budget(t: Any) -> Any:
    """Return the budget of errors, ``K_t = 40 + sqrt(t) / 5``, of the shape of t."""
    return BUDGET + GROWTH * t**0.5


def decide(where: Callable[..., Any], state: RankedThresholdState, high: Any, low: Any) -> Any:
    """Return 1 if the highest share s reaches the record's level, ``high > 1 - s``, else 0.

    ``s = max(0, 1 - y / K)^2``, and at least 0.1 in a probe.
    """
    debt, _, _, _, _, streak, rounds = state
    left = 1.0 - debt / budget(rounds + 1.0)
    share = where(left > 0.0, left * left, 0.0)
    share = where((streak >= 0.0) & (share < PROBE), PROBE, share)
    reached = (share > 0.0) & (high > 1.0 - share)  # the first test is exact; rounding may leave high > 1
    return where(reached, 1.0, 0.0)


def reserve(
    where: Callable[..., Any], state: RankedThresholdState, waiting: Any, arms: Any, parameters: Parameters
) -> RankedThresholdState:
    """Return the state as if every open answer were wrong (``docs/proofs.md``, D2).

    Debt and rise grow by ``1 - alpha`` for each. If the rise is then above 2 K, nothing is answered: the debt is
    set to K, and a probe is suspended.
    """
    debt, rise, risk, answers, silent, streak, rounds = state
    K = budget(rounds + 1.0)
    open_ = (1.0 - parameters.alpha) * waiting
    # Outside a probe, y < K implies S <= 2 K (proof of K1). In a probe only this test keeps the bound.
    shut = (waiting > 0.0) & (rise + open_ > 2.0 * K)
    debt, streak = where(shut, K, debt + open_), where(shut, -1.0, streak)
    return RankedThresholdState(debt, rise + open_, risk, answers, silent, streak, rounds)


def learn(
    where: Callable[..., Any], state: RankedThresholdState, answered: Any, error: Any, parameters: Parameters
) -> RankedThresholdState:
    """Update the state after a round (``docs/proofs.md``, section 4)."""
    debt, rise, risk, answers, silent, streak, rounds = state
    K, alpha = budget(rounds + 1.0), parameters.alpha
    gain = where(answered, error - alpha, 0.0)
    # aim = alpha - min(max(0, R) / (2 b), alpha / 4); ``amends`` is alpha - aim
    amends = where(answered & (risk > 0.0), AMENDS * risk / (answers + 1.0), 0.0)
    amends = where(amends > MOST * alpha, MOST * alpha, amends)
    debt = where(debt + gain + amends > 0.0, debt + gain + amends, 0.0)  # y = max(0, y + e - aim)
    rise = where(rise + gain > 0.0, rise + gain, 0.0)  # S = max(0, S + e - alpha)
    answers = where(answered, answers + 1.0, answers)
    # In a probe: k right answers lower the debt to max(K (1 - min(1, alpha k / 2)^2), S - K), and a wrong answer
    # ends the probe. The floor S - K keeps S <= y + K, on which the bound rests.
    right = answered & (error <= alpha) & (streak >= 0.0)
    streak = where(right, streak + 1.0, where(answered, -1.0, streak))
    trust = where(alpha * streak < 2.0, alpha * streak / 2.0, 1.0)
    won = K * (1.0 - trust * trust)
    won = where(won > rise - K, won, rise - K)
    debt = where(right & (won < debt), won, debt)
    # h = h + 1 in silence; h = k = 0 where a probe begins
    silent = where(answered, 0.0, silent + 1.0)
    probes = (silent >= SILENCE) & (rise <= K + SPARE)
    silent, streak = where(probes, 0.0, silent), where(probes, 0.0, streak)
    return RankedThresholdState(debt, rise, risk + gain, answers, silent, streak, rounds + 1.0)


def risk_bound(
    eta: object, gamma: object, rounds: object, t: ArrayLike, answered: object, arms: int
) -> NDArray[np.float64]:
    """Bound the FDR risk (eq. 1) on any sequence: ``R_t <= 2 K_t + 1`` (``docs/proofs.md``, guarantee K1).

    K1 states ``2 K_t + 1 - alpha``, but this function does not know alpha. R rises by no more over any stretch of
    rounds up to t.
    """
    return 2 * budget(np.asarray(t, np.float64)) + 1


ranked_threshold = Learner(
    feedback="bandit",
    rule=Ranked(
        RankedThresholdState(BUDGET / 2, 0.0, 0.0, 0.0, 0.0, -1.0, 0.0),
        decide,
        learn,
        prior=PRIOR,
        decay=1 - 1 / 8192,
        reserve=reserve,
    ),
    risk_bound=risk_bound,
)
