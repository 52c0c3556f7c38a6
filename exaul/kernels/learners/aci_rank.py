"""``aci-rank``: adaptive conformal inference on the rank of the score, a widely known baseline.

Gibbs and Candes, "Adaptive conformal inference under distribution shift", 2021, with feedback on answers only. It
answers the share s of records whose scores rank highest among recent ones, and an answer moves s by
``.01 (alpha - e)``, to at most 1. The rank of a record is drawn uniformly among the records that tie with it.

If s <= 0, nothing is answered. Then only delayed feedback can move s; without it the learner never answers again.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.game import Parameters
from exaul.kernels.learners.learner import Learner, Ranked

START, STEP = 0.5, 0.01


class AciRankState(NamedTuple):
    """The state of a copy."""

    share: Any  # s <= 1, the share of records to answer; may be negative


def decide(where: Callable[..., Any], state: AciRankState, high: Any, low: Any) -> Any:
    """Return the probability that the rank, uniform in [low, high], is among the highest share s.

    ``min(1, max(0, high - (1 - s)) / (high - low))``, and 0 if s <= 0: the quantile of recent scores of Gibbs and
    Candes 2021, with ties split at random.
    """
    over = high - (1.0 - state.share)
    none = (state.share <= 0.0) | (over <= 0.0)  # the first test is exact; rounding may leave high > 1
    return where(none, 0.0, where(over >= high - low, 1.0, over / (high - low)))


def reserve(
    where: Callable[..., Any], state: AciRankState, waiting: Any, arms: Any, parameters: Parameters
) -> AciRankState:
    """Return the share ``s - .01 (1 - alpha) waiting`` (``docs/proofs.md``, D2); if <= 0, nothing is answered."""
    return AciRankState(state.share - STEP * (1.0 - parameters.alpha) * waiting)


def learn(
    where: Callable[..., Any], state: AciRankState, answered: Any, error: Any, parameters: Parameters
) -> AciRankState:
    """Update the share, ``s <- min(1, s + .01 (alpha - e))`` after an answer (Gibbs and Candes 2021, clipped)."""
    moved = state.share + where(answered, STEP * (parameters.alpha - error), 0.0)
    return AciRankState(where(moved > 1.0, 1.0, moved))


def risk_bound(
    eta: object, gamma: object, rounds: object, t: ArrayLike, answered: ArrayLike, arms: int
) -> NDArray[np.float64]:
    """Bound the FDR risk (eq. 1) on any sequence: ``R_t <= s_1 / .01 + 1 = 51``, in the broadcast shape.

    An answer leaves ``s' <= s + .01 (alpha - e)``, so e - alpha is at most the fall of s over .01. A round is
    answered only if s > 0, so these terms sum to at most s_1 / .01 before the last answer, which adds at most
    1 - alpha. The same argument bounds the rise of R over any stretch of rounds by 101 (Gibbs and Candes 2021,
    Proposition 4.1). The bound does not know alpha, so it uses 1.
    """
    return np.full(np.broadcast_shapes(np.shape(t), np.shape(answered)), START / STEP + 1)


aci_rank = Learner(
    feedback="bandit",
    rule=Ranked(AciRankState(START), decide, learn, prior=0.25, decay=1 - 1 / 512, reserve=reserve),
    risk_bound=risk_bound,
)
