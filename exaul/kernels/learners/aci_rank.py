"""``aci-rank``: answer the records that rank highest among recent ones, and move their share with the errors.

Use this learner by default. It is adaptive conformal inference (Gibbs and Candes, "Adaptive conformal inference
under distribution shift", 2021) on the rank of the score, with feedback on answers only. It answers the share s of
records whose scores rank highest among recent ones; a level of equal scores is answered whole as soon as the share
reaches into it. An answer moves s by ``step (aim - e)``. The aim is alpha, reduced by a positive FDR risk per
answer, but at least alpha / 2. At s < 1/20 an abstention raises s slowly, so that answers resume. The learner uses
neither the horizon nor a draw, and it can start from a log (``fit``).

On any sequence ``R_T <= s_1 / step + 1 - alpha + A / 200``, where A counts the abstentions at s < 1/20
(``docs/proofs.md``, W1).
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.game import Rates, RuleParams
from exaul.kernels.learners.learner import Learner, Ranked

STEP = 1 / 40  # of the share; measured: 1/25 to 1/40 answer alike, and 1/25 allows fewer wrong answers
SHARE = 0.3  # the first share without a log; measured: .2 to .35 are alike
LEAST_SHARE = 1 / 20  # a share below this drifts upwards (chosen); at larger shares a drift would raise the FDR
DRIFTS = 200  # abstentions that together drift by one step; measured: half as many do more harm if all is wrong
LOWEST_AIM = 1 / 2  # smallest aim, as a part of alpha (chosen): it reduces a positive FDR risk, and still learns
SHORT_LOG = 3  # a log of fewer than 3 / alpha rows starts at SHARE at most: one right row would start at 1
TINY = 1e-9  # a share up to this is 0 (chosen)
ROUNDING = 1e-12  # in wrong answers: a sum of errors this little above alpha n counts as equal to it
MEMORY = 8192  # records over which counts fade (chosen); faster fading forgets what a score means
PRIOR = 1 / 32  # first count of each cut, in records (chosen): ranks follow the scores after some dozen rounds


class AciRankState(NamedTuple):
    """The state of a copy."""

    share: Any  # s <= 1, the share of records to answer; may be negative
    risk: Any  # R, the FDR risk (eq. 1) of the answers that were learned
    answers: Any  # their number


def decide(where: Callable[..., Any], state: AciRankState, high: Any, low: Any) -> Any:
    """Return 1 if s > 0 and ``high > 1 - s``, else 0.

    At s = 0 nothing is answered, whatever the rank. W1 needs that s is not negative at an answer, and that nothing
    else raises s. An s that is above 0 by rounding alone counts as 0. Otherwise the rounding of ``high`` at the
    highest cut, where it is 1, would decide, and correct programs would differ.
    """
    return where((state.share > TINY) & (high > 1.0 - state.share), 1.0, 0.0)


def reserve(
    where: Callable[..., Any], state: AciRankState, waiting: Any, arms: Any, params: RuleParams
) -> AciRankState:
    """Return the state with the share ``s - step (1 - alpha) waiting`` (``docs/proofs.md``, D2)."""
    share = state.share - params.eta * (1.0 - params.alpha) * waiting
    return AciRankState(share, state.risk, state.answers)


def learn(
    where: Callable[..., Any], state: AciRankState, answered: Any, error: Any, params: RuleParams
) -> AciRankState:
    """Move the share: after an answer, ``s <- min(1, s + step (aim - e))``; after an abstention, by the drift."""
    share, risk, answers = state
    step, alpha = params.eta, params.alpha
    count = where(answered, answers + 1.0, answers)
    # aim = alpha - min(max(0, R) / n, alpha / 2), where R is the risk before this answer
    overspent = where(answered & (risk > 0.0), risk, 0.0) / where(answered, count, 1.0)
    cap = (1.0 - LOWEST_AIM) * alpha
    aim = alpha - where(overspent < cap, overspent, cap)
    moved = share + step * (aim - error)
    # if only a share of the answers is learned, an abstention has that weight (docs/proofs.md, M1)
    drifted = share + where(share < LEAST_SHARE, step / DRIFTS * params.weight, 0.0)
    return AciRankState(
        where(answered, where(moved < 1.0, moved, 1.0), drifted), risk + where(answered, error - alpha, 0.0), count
    )


def silent_rounds(share: float, step: float, weight: float) -> int:
    """Return how many abstentions of a weight raise a share above 0, so that the highest scores are answered.

    It is 0 if they are answered already. Where many steps sum up to 0, their rounding, far below TINY, is harmless.
    """
    return max(0, math.floor((TINY - share) / (step / DRIFTS * weight)) + 1)


def fit(
    cuts: NDArray[np.integer], errors: NDArray[np.float64], counts: NDArray[np.float64], alpha: float
) -> AciRankState:
    """Return the state with which to start after a log: the share that the log's best threshold answers.

    That is the share of recent records above the lowest level that the threshold answers, plus half of that level,
    so that ``decide`` answers it. The share is 0 if no threshold of the log has an FDR of at most alpha, and
    at most SHARE if the log has fewer than SHORT_LOG / alpha rows.

    Args:
        cuts: [N] in 1..H-1, of the log.
        errors: [N] in [0, 1].
        counts: [H], the counts of cuts after the log.
        alpha: target FDR in (0, 1).
    """
    # threshold c answers the records with a cut of at least c
    answered, wrong = (np.bincount(cuts, x, len(counts))[::-1].cumsum()[::-1] for x in (None, errors))
    (allowed,) = np.nonzero((answered > 0) & (wrong <= alpha * answered + ROUNDING))
    if not len(allowed):
        return AciRankState(0.0, 0.0, 0.0)
    lowest = allowed[0]  # 0, a cut that no record has, if all may be answered: the share is then 1
    share = (counts[lowest:].sum() - counts[lowest] / 2) / counts.sum()
    return AciRankState(float(min(share, SHARE) if len(cuts) * alpha < SHORT_LOG else share), 0.0, 0.0)


def rates(horizon: int, arms: int) -> Rates:
    """Return the step, as eta."""
    return Rates(STEP, None)


def risk_bound(
    eta: ArrayLike, t: ArrayLike, answered: ArrayLike, alpha: ArrayLike, state: AciRankState
) -> NDArray[np.float64]:
    """Bound the FDR risk (eq. 1) on any sequence: ``R_t <= s_1 / step + 1 - alpha + A / 200`` (W1).

    A is the number of abstentions at s < 1/20. It is not known here; the number of all abstentions, at least as
    large, takes its place.
    """
    step = np.asarray(eta, np.float64).ravel()[0]  # constant
    abstained = np.asarray(t) - np.asarray(answered)
    return np.asarray(state.share) / step + 1 - np.asarray(alpha) + abstained / DRIFTS


aci_rank = Learner(
    feedback="bandit",
    rule=Ranked(
        AciRankState(SHARE, 0.0, 0.0), decide, learn, prior=PRIOR, decay=1 - 1 / MEMORY, reserve=reserve, fit=fit
    ),
    rates=rates,
    risk_bound=risk_bound,
    rate_field="step",
)
