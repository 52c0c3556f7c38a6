"""``aci-rank``: adaptive conformal inference on the rank of the score, a rival that anyone can name.

Gibbs and Candes, "Adaptive conformal inference under distribution shift", 2021, with feedback on answers alone: it
answers the share s of the records whose scores rank highest among recent ones, and an answer moves s by
``.01 (alpha - e)``, to at most 1. The rank of a record is drawn uniformly among the records that tie with it.

Nothing is answered where s is not above 0, so nothing moves s from there but thumbs that come late: it does not
come back.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.bounds import unbounded
from exaul.kernels.game import Parameters
from exaul.kernels.learners.learner import Learner, Ranked

START, STEP = 0.5, 0.01


class AciRankState(NamedTuple):
    """The state of a copy, [B]."""

    share: Any  # s <= 1, the share of records that is answered; none where it is not above 0


def chance(where: Callable[..., Any], state: AciRankState, high: Any, low: Any) -> Any:
    """The probability that the rank of a record, uniform in [low, high], is among the highest share s.

    ``min(1, max(0, high - (1 - s)) / (high - low))``, and 0 at s = 0: the quantile of Gibbs and Candes 2021, of
    recent scores, with ties split.

    Args:
        where: ``where(condition, x, y)`` of the caller's arrays.
        state: before the round; [B], or a shape that broadcasts with ``high``.
        high: [B] or [H, B] in [0, 1], share of recent records whose cut is at most the record's.
        low: the same shape, share of those whose cut is smaller.

    Returns:
        The probability of answering, of the shape of ``high``.
    """
    over = high - (1.0 - state.share)
    none = (state.share <= 0.0) | (over <= 0.0)  # the first is exact: rounding may leave high above 1
    return where(none, 0.0, where(over >= high - low, 1.0, over / (high - low)))


def reserve(
    where: Callable[..., Any], state: AciRankState, waiting: Any, arms: Any, parameters: Parameters
) -> AciRankState:
    """The share if every answer without a thumb were wrong (``docs/proofs.md``, D2).

    Args:
        state: before the round, [B].
        waiting: [B], answers without a thumb.
        parameters: alpha [B] is read.

    Returns:
        ``s - .01 (1 - alpha) waiting``, [B]; nothing is answered where it is at most 0.
    """
    return AciRankState(state.share - STEP * (1.0 - parameters.alpha) * waiting)


def learn(where: Callable[..., Any], state: AciRankState, answered: Any, error: Any, alpha: Any) -> AciRankState:
    """Compute the share after a round, ``s <- min(1, s + .01 (alpha - e))`` if it was answered.

    It is the update of Gibbs and Candes 2021, clipped at 1. Below 0 nothing is answered, as at 0.

    Args:
        where: ``where(condition, x, y)`` of the caller's arrays.
        state: before the round, [B].
        answered: [B] bool.
        error: [B] in [0, 1], read where the round is answered.
        alpha: [B] in (0, 1), target FDR.

    Returns:
        The state, [B].
    """
    moved = state.share + where(answered, STEP * (alpha - error), 0.0)
    return AciRankState(where(moved > 1.0, 1.0, moved))


def risk_bound(
    eta: object, gamma: object, rounds: object, t: ArrayLike, answered: ArrayLike, arms: int
) -> NDArray[np.float64]:
    """Bound the FDR risk (eq. 1) on any sequence: ``R_t <= s_1 / .01 + 1 = 51``.

    An answer leaves ``s' <= s + .01 (alpha - e)``: the clip at 1 only discards credit. So e - alpha is at most the
    fall of s over .01. A round is answered only where s > 0, so that before the last answer these sum to at most
    s_1 / .01, and it adds at most 1 - alpha. From any other s than s_1 the same holds: R rises by at most 101 over
    any stretch of rounds. (The argument is that of Gibbs and Candes 2021, Proposition 4.1; alpha is dropped, for
    the bound does not know it.)

    Args:
        t: rounds, any shape.
        answered: broadcasts with ``t``; only the shapes of both are read.

    Returns:
        51, of the broadcast shape of ``t`` and ``answered``.
    """
    return np.full(np.broadcast_shapes(np.shape(t), np.shape(answered)), START / STEP + 1)


aci_rank = Learner(
    feedback="bandit",
    rule=Ranked(AciRankState(START), chance, learn, prior=0.25, decay=1 - 1 / 512, reserve=reserve),
    rates=None,
    anytime=None,
    regret_bound=unbounded,
    risk_bound=risk_bound,
)
