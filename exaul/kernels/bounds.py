"""Bounds of the FDR risk and of the FDR: by the regret (Lemma 1), and by the risk of the observed feedback."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.feedback import Feedback, aim


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
    bound: ArrayLike, answered: ArrayLike, late: ArrayLike, alpha: ArrayLike, delta: float, how: Feedback
) -> NDArray[np.float64]:
    """Bound the FDR risk (eq. 1) of all answers by that of the observed feedback, with probability 1 - delta.

    ``(B + D (1 - aim) + sqrt(2 v L) + L / 3) / q`` with ``L = ln(1 / delta)`` (``docs/proofs.md``, N1). It requires
    errors of 0 or 1 (or no bias and no flips), and feedback that depends only on whether the answer is wrong.

    Args:
        bound: B, the bound of the risk of the feedback if none were delayed, any shape.
        answered: the largest possible number of answers, broadcasts.
        late: D, the largest possible number of answers that wait for feedback, broadcasts.
        alpha: target FDR in (0, 1), broadcasts.
        delta: in (0, 1).
        how: the model of the feedback.

    Returns:
        The bound, of the broadcast shape.
    """
    right, wrong, down, up, *_ = how.parameters()
    alpha = np.asarray(alpha)
    own = aim(alpha, how.bias, how.flips)
    # An answer with error e adds q (e - alpha) to the risk of the feedback, in expectation.
    q = right * how.bias * (1 - down - up) / (alpha * how.bias + 1 - alpha)
    squares = (  # conditional variances, given that the answer is right or wrong
        right * (down * (1 - own) ** 2 + (1 - down) * own**2),
        wrong * (up * own**2 + (1 - up) * (1 - own) ** 2),
    )
    v, L = np.maximum(*squares) * np.asarray(answered), np.log(1 / delta)
    found: NDArray[np.float64] = (np.asarray(bound) + late * (1 - own) + np.sqrt(2 * v * L) + L / 3) / q
    return found
