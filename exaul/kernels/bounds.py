"""Bounds of the FDR risk and of the FDR: by the regret (Lemma 1), and by the risk of the observed feedback."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.feedback import Feedback, aim
from exaul.kernels.regret_bounds import TILTS


def lemma_bound(answered: ArrayLike, regret: ArrayLike, lam: ArrayLike) -> NDArray[np.float64]:
    """Bound the FDR risk by the regret, ``R_T <= (T (1 - Ineff_T) + (1 + lam) Reg_T) / lam`` (Lemma 1, eq. 5).

    It holds for every sequence and all decisions.

    Args:
        answered: ``T (1 - Ineff_T)``, the number of answered rounds, any shape.
        regret: the regret, or a bound of it, broadcasts.
        lam: >= 0, the weight of the FDR in the loss, broadcasts.

    Returns:
        The bound of R_T, of the broadcast shape; inf if lam = 0.
    """
    answered, regret, lam = (np.asarray(x, np.float64) for x in (answered, regret, lam))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        total = answered + (1 + lam) * regret  # eq. 5, numerator
        # A huge lam overflows the numerator although the quotient is finite: then divide term by term.
        bound = np.where(np.isfinite(total), total / lam, answered / lam + (1 / lam + 1) * regret)
        return np.where(lam > 0, bound, np.inf)


def fdr_bound(
    answered: ArrayLike, regret_bound: ArrayLike, alpha: ArrayLike, lam: ArrayLike
) -> NDArray[np.float64]:
    """Bound the FDR, ``FDR_T <= alpha + (answered + (1 + lam) regret_bound) / (lam answered)`` (eq. 6).

    Args:
        answered: the number of answered rounds, any shape.
        regret_bound: a bound of the regret, broadcasts; NaN if nothing is proved.
        alpha: target FDR in (0, 1), broadcasts.
        lam: >= 0, the weight of the FDR in the loss, broadcasts.

    Returns:
        The bound, of the broadcast shape: NaN where ``regret_bound`` is NaN, else inf where ``answered`` or ``lam``
        is 0.
    """
    answered = np.asarray(answered, np.float64)
    risk = lemma_bound(answered, regret_bound, lam)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bound = np.asarray(alpha) + np.where(answered > 0, risk / answered, np.inf)  # eq. 6
    # NaN means that nothing is proved; without the next line, inf would hide it.
    return np.where(np.isnan(np.asarray(regret_bound, np.float64)), np.nan, bound)


def risk_from_feedback(
    bound: ArrayLike, answered: ArrayLike, waiting: ArrayLike, alpha: ArrayLike, delta: float, model: Feedback
) -> NDArray[np.float64]:
    """Bound the FDR risk (eq. 1) of all answers by that of the learned feedback (``docs/proofs.md``, N1).

    ``(x S + n ((1 - alpha) A_0 + alpha A_1) + ln(1 / delta)) / (A_0 - A_1)`` with ``S = B + D (1 - aim)``, the best
    x of ``TILTS`` and the A_0 and A_1 of N1, at most n (1 - alpha); with probability 1 - delta, at all times. It
    requires errors of 0 or 1 (or no bias and no flips), and feedback that depends only on whether the answer is
    wrong.

    Args:
        bound: B, the bound of the risk of the feedback if none were delayed, any shape.
        answered: n, the largest possible number of answers, broadcasts.
        waiting: D, the largest possible number of answers that wait for feedback, broadcasts.
        alpha: target FDR in (0, 1), broadcasts.
        delta: in (0, 1).
        model: the model of the feedback.

    Returns:
        The bound, of the broadcast shape.
    """
    right, wrong, false_negative, false_positive, *_ = model.parameters()
    alpha, answered = np.asarray(alpha, np.float64), np.asarray(answered, np.float64)
    goal = aim(alpha, model.bias, model.flips)
    most = np.asarray(bound) + waiting * (1 - goal)
    # any x that is fixed beforehand will do; the first axis is that of the candidates
    x = TILTS.reshape(-1, *[1] * np.broadcast(most, answered, alpha).ndim)
    down, up = np.expm1(-x * (1 - goal)), np.expm1(x * goal)
    if_right = np.log1p(right * (false_negative * down + (1 - false_negative) * up))  # A_0 and A_1
    if_wrong = np.log1p(wrong * ((1 - false_positive) * down + false_positive * up))
    with np.errstate(divide="ignore", invalid="ignore"):
        total = x * most + answered * ((1 - alpha) * if_right + alpha * if_wrong) + np.log(1 / delta)
        bounds = np.where(if_right > if_wrong, total / (if_right - if_wrong), np.inf)
    return np.minimum(bounds.min(axis=0), answered * (1 - alpha))
