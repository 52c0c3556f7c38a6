"""What the paper proves: regret bounds, Lemma 1, and the FDR bound that follows from both.

Rates come by blocks: ``eta`` [K] and ``gamma`` [K] are constant within each of K blocks of ``rounds`` [K] rounds, T
in all.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.feedback import Feedback, aim

MEAN_DELTA = 2.0  # where the theorems' ln(2 / delta) is 0 and ln(2 H / delta) is ln H; proved in docs/proofs.md


@np.errstate(over="ignore")  # a bound beyond the floats is infinite
def implicit_exploration_regret(
    eta: ArrayLike,
    gamma: ArrayLike,
    rounds: ArrayLike,
    arms: int,
    delta: float,
    alpha: object,
    lam: object,
    *,
    observed: float,
) -> float:
    r"""Bound the regret (eq. 3) of a learner that estimates losses by ``l / (gamma + probability of seeing l)``.

    ``observed * sum_t (eta_t / 2 + gamma_t) + ln H / eta_T + ln(2 H / delta) / (2 gamma_T) + ln(2 / delta)``
    with probability 1 - delta, for non-increasing rates with ``eta_t <= 2 gamma_t``. It is the last step of the
    proofs of the theorems on the regret of ExAUL and Exp3-IX; at the paper's rates it is the theorem.
    docs/proofs.md mends the proof for rates that fall.

    Args:
        eta: [K] > 0.
        gamma: [K] >= 0.
        rounds: [K] >= 0, summing to T.
        arms: H >= 2.
        delta: in (0, 1); at ``MEAN_DELTA`` it is a bound of the mean regret.
        observed: the most that ``sum over arms of p(arm) / p(its loss is seen)`` can be: 2 where a round shows the
            loss of every arm on the drawn arm's side of the cut, H where it shows that of the drawn arm alone.

    Returns:
        The bound, or NaN where ``eta_t > 2 gamma_t`` in some block, for which nothing is proved.
    """
    eta, gamma, rounds = (np.asarray(x, np.float64) for x in (eta, gamma, rounds))
    if np.any(eta > 2 * gamma):
        return np.nan
    exploration = observed * np.sum((eta / 2 + gamma) * rounds)
    deviation = np.log(2 * arms / delta) / (2 * gamma[-1]) + np.log(2 / delta)
    return float(exploration + np.log(arms) / eta[-1] + deviation)


@np.errstate(over="ignore")
def exponential_weights_regret(
    eta: ArrayLike, gamma: object, rounds: ArrayLike, arms: int, delta: float, alpha: object, lam: object
) -> float:
    """Bound the regret (eq. 3) of exponential weights with full feedback (theorem on the regret of EW).

    ``sum_t eta_t / 8 + ln H / eta_T + sqrt(T ln(1 / delta) / 2)`` with probability 1 - delta, for non-increasing
    rates.

    Args:
        eta: [K] > 0.
        rounds: [K] >= 0, summing to T.
        arms: H >= 2.
        delta: in (0, 1].

    Returns:
        The bound.
    """
    eta, rounds = np.asarray(eta, np.float64), np.asarray(rounds, np.float64)
    deviation = np.sqrt(np.sum(rounds) * np.log(1 / delta) / 2)
    return float(np.sum(eta * rounds) / 8 + np.log(arms) / eta[-1] + deviation)


def unbounded(
    eta: object, gamma: object, rounds: object, arms: int, delta: float, alpha: object, lam: object
) -> float:
    """Say that nothing is proved of a learner's regret (eq. 3): no number bounds it.

    It is the ``regret_bound`` of such learners, and ``regret_bound is unbounded`` tells them from others.
    Arguments as of ``Learner.regret_bound``, [K] by block; none is read.

    Returns:
        NaN.
    """
    return np.nan


def lemma_bound(answered: ArrayLike, regret: ArrayLike, lam: ArrayLike) -> NDArray[np.float64]:
    """Bound the FDR risk by the regret, ``R_T <= (T (1 - Ineff_T) + (1 + lam) Reg_T) / lam`` (Lemma 1, eq. 5).

    It is true of every sequence and of any decisions.

    Args:
        answered: ``T (1 - Ineff_T)``, number of answered rounds, any shape.
        regret: the regret, or a bound of it, broadcasts.
        lam: >= 0, weight of the FDR in the loss, broadcasts.

    Returns:
        The bound of R_T, of the broadcast shape; inf where lam = 0.
    """
    answered, regret, lam = (np.asarray(x, np.float64) for x in (answered, regret, lam))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        total = answered + (1 + lam) * regret
        bound = np.where(np.isfinite(total), total / lam, answered / lam + (1 / lam + 1) * regret)
        return np.where(lam > 0, bound, np.inf)


def fdr_bound(
    answered: ArrayLike, regret_bound: ArrayLike, alpha: ArrayLike, lam: ArrayLike
) -> NDArray[np.float64]:
    """Bound the FDR, ``FDR_T <= alpha + (answered + (1 + lam) regret_bound) / (lam answered)`` (eq. 6).

    Args:
        answered: number of answered rounds, any shape.
        regret_bound: a bound of the regret, broadcasts; NaN where nothing is proved.
        alpha: target FDR in (0, 1), broadcasts.
        lam: >= 0, weight of the FDR in the loss, broadcasts.

    Returns:
        The bound, of the broadcast shape: NaN where the regret's is, else inf where nothing was answered or lam =
        0.
    """
    answered = np.asarray(answered, np.float64)
    risk = lemma_bound(answered, regret_bound, lam)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bound = np.asarray(alpha) + np.where(answered > 0, risk / answered, np.inf)
    return np.where(np.isnan(np.asarray(regret_bound, np.float64)), np.nan, bound)


def risk_from_feedback(
    bound: ArrayLike, answered: ArrayLike, late: ArrayLike, alpha: ArrayLike, delta: float, how: Feedback
) -> NDArray[np.float64]:
    """Bound the FDR risk (eq. 1) of all answers from that of thumbs, with probability 1 - delta (N1).

    It holds where errors are 0 or 1 (or wrong answers are rated as often as right ones, and no thumb lies); whether
    an answer is rated, and whether its feedback lies, depends on whether it is wrong and on nothing else; and the
    learner aims at ``how``'s aim: ``(B + D (1 - aim) + sqrt(2 v L) + L / 3) / q``, where
    ``L = ln(1 / delta)``, v bounds the conditional variances of the thumbs, and an answer adds ``q (e - alpha)`` to
    their risk in the mean (``docs/proofs.md``, N1).

    Args:
        bound: B, of the risk of the thumbs, if each came at once; any shape.
        answered: the most answers that there can be, broadcasts.
        late: D, the most answers that wait for their feedback, broadcasts.
        alpha: target FDR in (0, 1), broadcasts.
        delta: in (0, 1).
        how: how answers are rated.

    Returns:
        The bound, of the broadcast shape.
    """
    right, wrong, down, up, _ = how.parameters
    alpha = np.asarray(alpha)
    own = aim(alpha, how.bias, how.flips)
    q = right * how.bias * (1 - down - up) / (alpha * how.bias + 1 - alpha)
    squares = (
        right * (down * (1 - own) ** 2 + (1 - down) * own**2),
        wrong * (up * own**2 + (1 - up) * (1 - own) ** 2),
    )
    v, L = np.maximum(*squares) * np.asarray(answered), np.log(1 / delta)
    found: NDArray[np.float64] = (np.asarray(bound) + late * (1 - own) + np.sqrt(2 * v * L) + L / 3) / q
    return found
