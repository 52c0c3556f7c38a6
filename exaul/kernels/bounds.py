"""Bounds of the regret, the paper's and sharper ones, and the bounds of the FDR that follow from them (Lemma 1).

Rates are given by block: ``eta`` [K] and ``gamma`` [K] are constant within each block and do not grow; ``rounds``
[K] are the lengths of the blocks and sum to T. alpha and lambda have any shape; a bound has their broadcast shape,
or is a float if it does not depend on them. sigma and r are the costs of ``compute_costs``: an answer with error e
costs ``sigma e``, an abstention r. ``docs/proofs.md``, section 6, has the proofs, and states how each bound holds
against adaptive adversaries.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.feedback import Feedback, aim
from exaul.kernels.game import compute_costs

Bound = Callable[..., Any]  # ``bound(eta, gamma, rounds, arms, delta, alpha, lam)``
BOUND_ARGUMENTS = "eta, gamma, rounds, arms, delta, alpha, lam"  # arguments of each of ``RegretBounds``
TILTS = np.geomspace(1e-6, 20, 600)  # values of x from which an exponential bound takes the best (chosen)
# constants of ``exaul-known`` and its proofs: the first mass of the last arm, and eta x the largest charge
KNOWN_PRIOR, KNOWN_CAP = 0.5, 2.0


class RegretBounds(NamedTuple):
    """Bounds of the regret of a learner, which hold with probability 1 - delta, or in the mean if delta is 1.

    Each is called as ``bound(eta, gamma, rounds, arms, delta, alpha, lam)``, with delta in (0, 1], and is NaN if
    nothing is proved at these rates.
    """

    best: Bound  # of the regret against the best arm (eq. 3)
    abstaining: Bound  # of the regret against the arm that always abstains, the only one that Lemma 1 needs
    paper: Bound  # of the regret against the best arm, by the paper's theorem


class BoundCase(NamedTuple):
    """What a bound depends on: the argument ``case`` of the formulas below."""

    eta: NDArray[np.float64]  # [K] > 0, learning rate of each block
    gamma: NDArray[np.float64]  # [K] >= 0, implicit exploration of each block
    block_lengths: NDArray[np.float64]  # [K] >= 1, rounds of each block
    arms: int  # H >= 2
    delta: float  # in (0, 1], as in ``RegretBounds``
    sigma: float | NDArray[np.float64]  # cost of an answer per unit of error, of the shape of alpha and lambda
    r: float | NDArray[np.float64]  # cost of an abstention, of the same shape
    horizon: float  # T >= 1, number of rounds
    eta_sum: float  # sum of eta over the T rounds
    gamma_sum: float  # sum of gamma over the T rounds

    def largest(self, deviation: Callable[[Any, Any], Any]) -> Any:
        """Return the maximum over the blocks of ``deviation(eta, gamma)``."""
        eta, gamma = self.eta, self.gamma
        changed = np.append(True, (np.diff(eta) != 0) | (np.diff(gamma) != 0))  # constant rates are one pair
        return np.max([deviation(*pair) for pair in zip(eta[changed], gamma[changed], strict=True)], axis=0)


def _bound(formula: Callable[..., Any], **fixed: Any) -> Bound:
    """Return a bound as in ``RegretBounds``, from a formula of a case."""

    @wraps(formula)
    def bound(eta: Any, gamma: Any, rounds: Any, arms: int, delta: float, alpha: Any, lam: Any) -> Any:
        eta, gamma, rounds = (np.atleast_1d(np.asarray(x, np.float64)) for x in (eta, gamma, rounds))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # above the largest float it is inf
            sums = (np.sum(x) for x in (rounds, eta * rounds, gamma * rounds))
            factor = np.nan if np.any(np.diff([eta, gamma]) > 0) else 1.0  # nothing is proved if a rate grows
            return factor * formula(
                BoundCase(eta, gamma, rounds, arms, delta, *compute_costs(alpha, lam), *sums), **fixed
            )

    return bound


def paper_implicit_exploration(case: BoundCase, single: bool = False) -> float:
    """Bound the regret by the last step in the proofs of the theorems on ExAUL and, if ``single``, on Exp3-IX.

    ``N sum_t (eta_t / 2 + gamma_t) + ln H / eta_T + ln(2 H / delta) / (2 gamma_T) + ln(2 / delta)``, where N is 2,
    the number of sides of a cut, or H if a round reveals the loss of one arm only. It needs ``eta_t <= 2 gamma_t``.
    In the mean ``ln(2 / delta)`` is 0 (``docs/proofs.md``, section 7).
    """
    if np.any(case.eta > 2 * case.gamma):
        return np.nan
    chance = np.log(2 / case.delta) if case.delta < 1 else 0.0
    exploration = (case.arms if single else 2) * np.sum((case.eta / 2 + case.gamma) * case.block_lengths)
    deviation = (np.log(case.arms) + chance) / (2 * case.gamma[-1]) + chance
    return float(exploration + np.log(case.arms) / case.eta[-1] + deviation)


def paper_exponential_weights(case: BoundCase) -> float:
    """Bound the regret of exponential weights with full feedback, by the theorem on EW.

    ``sum_t eta_t / 8 + ln H / eta_T + sqrt(T ln(1 / delta) / 2)``.
    """
    return float(
        case.eta_sum / 8 + np.log(case.arms) / case.eta[-1] + np.sqrt(case.horizon * np.log(1 / case.delta) / 2)
    )


def _second_moments(case: BoundCase, single: bool) -> tuple[Any, Any, Any]:
    """Return the largest sums over sides (arms if ``single``) of squared losses, losses below, and all losses."""
    sigma, r, arms = case.sigma, case.r, case.arms
    larger, smaller = np.maximum(sigma, r), np.minimum(sigma, r)
    if single:  # at least one arm is on each side
        return (arms - 1) * larger**2 + smaller**2, (arms - 1) * larger, (arms - 1) * larger + smaller
    return sigma**2 + r**2, sigma, sigma + r


def implicit_exploration_abstaining(case: BoundCase, single: bool) -> Any:
    """Bound the regret against the arm that always abstains (``docs/proofs.md``, R1).

    ``ln H / eta_T + sum_t (eta_t V / 2 + gamma_t sigma) + ln(1 / delta) max_t D_t`` with ``V = sigma^2 + r^2`` and
    ``D = max(r (1 + gamma + eta r / 2), sigma (gamma + eta sigma / 2)) / (2 gamma)``; R1 says what changes if
    ``single``.
    """
    squares, below, _ = _second_moments(case, single)
    bound = np.log(case.arms) / case.eta[-1] + case.eta_sum * squares / 2 + case.gamma_sum * below
    if case.delta == 1:
        return bound
    if np.any(case.gamma <= 0):
        return case.r * np.nan

    def deviation(eta: Any, gamma: Any) -> Any:
        abstaining = case.r * (1 + gamma + eta * case.r / 2)
        return np.maximum(abstaining, case.sigma * (gamma + eta * case.sigma / 2)) / (2 * gamma)

    return bound + np.log(1 / case.delta) * case.largest(deviation)


def implicit_exploration_best(case: BoundCase, single: bool) -> Any:
    """Bound the regret against the best arm (``docs/proofs.md``, R2).

    ``ln H / eta_T + sum_t (eta_t V / 2 + gamma_t b) + ln(H / delta) max_t b (1 + gamma_t + eta_t b / 2) / (2
    gamma_t)`` with ``b = max(sigma, r)`` and V as in R1. R2 says what changes in the mean, and if ``single``.
    """
    squares, below, total = _second_moments(case, single)
    b = np.maximum(case.sigma, case.r)
    bound = np.log(case.arms) / case.eta[-1] + case.eta_sum * squares / 2
    if np.any(case.gamma <= 0):
        return case.r * np.nan
    largest = case.largest(lambda eta, gamma: b * (1 + gamma + eta * b / 2) / (2 * gamma))
    chance = np.log(1 / case.delta) if case.delta < 1 else 1.0  # the mean is at most the bound at delta = 1 / e
    likely = bound + case.gamma_sum * (below if single else b) + (np.log(case.arms) + chance) * largest
    if case.delta < 1:
        return likely
    return np.minimum(likely, bound + case.gamma_sum * total + np.log(case.arms) * b / (2 * case.gamma[-1]))


def exponential_weights_best(case: BoundCase) -> Any:
    """Bound the regret of ``ew`` against the best arm (``docs/proofs.md``, R3).

    ``ln H / eta_T + D^2 sum_t eta_t / 8 + D sqrt(T ln(1 / delta) / 2)`` with ``D = max(sigma - r, r)``.
    """
    D = np.maximum(case.sigma - case.r, case.r)
    deviation = D * np.sqrt(case.horizon * np.log(1 / case.delta) / 2)
    return np.log(case.arms) / case.eta[-1] + D**2 * case.eta_sum / 8 + deviation


def exponential_weights_abstaining(case: BoundCase) -> Any:
    """Bound the regret of ``ew`` against the arm that always abstains (``docs/proofs.md``, R4, or R3 if smaller).

    ``K (exp(x b) - 1) / (x b) + ln(1 / delta) / x - r T``, where ``b = max(sigma, r)`` and
    ``K = b (r T + ln H / eta_T) eta_1 / (1 - exp(-b eta_1))`` bounds the expected losses; the best x of ``TILTS``.
    """
    first, last, T, b = case.eta[0], case.eta[-1], case.horizon, np.maximum(case.sigma, case.r)
    expected = b * (case.r * T + np.log(case.arms) / last) * first / -np.expm1(-b * first)
    if case.delta < 1:
        x = TILTS.reshape(-1, *[1] * np.ndim(b))
        expected = np.min(expected * np.expm1(x * b) / (x * b) + np.log(1 / case.delta) / x, axis=0)
    return np.minimum(expected - case.r * T, exponential_weights_best(case))


def known_abstention_abstaining(case: BoundCase) -> Any:
    """Bound the regret of ``exaul-known`` against the arm that always abstains (``docs/proofs.md``, R5).

    ``ln 2 / eta_T + sum_t (eta_t r^2 / 2 + x r^2 / 8 + (gamma_t + eta_t sigma / 2) (exp(x sigma) - 1) / x)
    + ln(1 / delta) / x``, with the best x of ``TILTS``; in the mean with ``x = 0``. H does not matter, and
    gamma may be 0.
    """
    sigma, r = case.sigma, case.r
    bound = np.log(1 / KNOWN_PRIOR) / case.eta[-1] + case.eta_sum * r**2 / 2
    charged = case.gamma_sum + case.eta_sum * sigma / 2
    if case.delta == 1:
        return bound + charged * sigma
    x = TILTS.reshape(-1, *[1] * np.ndim(sigma))
    deviation = x * case.horizon * r**2 / 8 + charged * np.expm1(x * sigma) / x + np.log(1 / case.delta) / x
    return bound + np.min(deviation, axis=0)


def known_abstention_best(case: BoundCase) -> Any:
    """Bound the regret of ``exaul-known`` against the best arm (``docs/proofs.md``, R6).

    ``ln(2 (H - 1)) / eta_T + sum_t (eta_t V / 2 + gamma_t sigma + x r^2 / 8) + ln(H / delta) / x`` with the best
    ``x <= min_t 2 gamma_t / (sigma (1 + gamma_t + eta_t sigma / 2))``; R6 says what changes in the mean. NaN unless
    gamma is positive and so large that no charge is capped, ``eta_t sigma <= 2 gamma_t``.
    """
    sigma, r, T = case.sigma, case.r, case.horizon
    bound = np.log((case.arms - 1) / (1 - KNOWN_PRIOR)) / case.eta[-1] + case.eta_sum * (sigma**2 + r**2) / 2
    bound = bound + case.gamma_sum * sigma
    if np.any(case.gamma <= 0):
        return case.r * np.nan
    if case.delta == 1:
        bound = bound + sigma * np.log(case.arms) / (2 * case.gamma[-1])
    else:
        lower = case.largest(lambda eta, gamma: sigma * (1 + gamma + eta * sigma / 2) / (2 * gamma))  # of 1 / x
        chance = np.log(case.arms / case.delta)
        inverse = np.maximum(lower, r * np.sqrt(T / (8 * chance)))  # the latter minimizes the sum of both terms
        bound = bound + T * r**2 / (8 * inverse) + chance * inverse
    return np.where(np.max(case.eta / case.gamma) * sigma <= KNOWN_CAP, bound, np.nan)


def _implicit_exploration_bounds(single: bool) -> RegretBounds:
    formulas = implicit_exploration_best, implicit_exploration_abstaining, paper_implicit_exploration
    return RegretBounds(*(_bound(formula, single=single) for formula in formulas))


# of the learners ``exaul`` and ``exp3-ix``: R2, R1, and the theorems on ExAUL and Exp3-IX
EXAUL_BOUNDS, EXP3_IX_BOUNDS = _implicit_exploration_bounds(False), _implicit_exploration_bounds(True)
# of ``ew``: R3, R4, and the theorem on EW
EW_BOUNDS = RegretBounds(
    *map(_bound, (exponential_weights_best, exponential_weights_abstaining, paper_exponential_weights))
)
# of ``exaul-known``: R6 and R5; the paper has none
KNOWN_BOUNDS = RegretBounds(
    *map(_bound, (known_abstention_best, known_abstention_abstaining, lambda case: case.r * np.nan))
)


def lemma_bound(answered: ArrayLike, regret: ArrayLike, lam: ArrayLike) -> NDArray[np.float64]:
    """Bound the FDR risk by the regret, ``R_T <= (T (1 - Ineff_T) + (1 + lam) Reg_T) / lam`` (Lemma 1, eq. 5).

    It holds for every sequence and all decisions. ``answered`` is ``T (1 - Ineff_T)``, the number of answered
    rounds, ``regret`` the regret or a bound of it, and lam >= 0; all broadcast. It is inf if lam = 0.
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

    Arguments are as in ``lemma_bound``; alpha in (0, 1) broadcasts. The bound is NaN where ``regret_bound`` is NaN,
    which means that nothing is proved, else inf where ``answered`` or lam is 0.
    """
    answered = np.asarray(answered, np.float64)
    risk = lemma_bound(answered, regret_bound, lam)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bound = np.asarray(alpha) + np.where(answered > 0, risk / answered, np.inf)  # eq. 6
    return np.where(np.isnan(np.asarray(regret_bound, np.float64)), np.nan, bound)


def risk_from_feedback(
    bound: ArrayLike, answered: ArrayLike, waiting: ArrayLike, alpha: ArrayLike, delta: float, model: Feedback
) -> NDArray[np.float64]:
    """Bound the FDR risk (eq. 1) of all answers by the risk of the learned feedback (``docs/proofs.md``, N1).

    ``(x S + n ((1 - alpha) A_0 + alpha A_1) + ln(1 / delta)) / (A_0 - A_1)`` with ``S = B + D (1 - aim)``, the best
    x of ``TILTS`` and the A_0 and A_1 of N1, at most ``n (1 - alpha)``; with probability 1 - delta, at all times.
    It requires errors of 0 or 1 (or no bias and no flips), and feedback that depends only on whether the answer is
    wrong.

    Args:
        bound: B, the bound of the risk of the feedback if none were delayed; this and the next three broadcast.
        answered: n, the largest possible number of answers.
        waiting: D, the largest possible number of answers that wait for feedback.
        alpha: target FDR in (0, 1).
        delta: in (0, 1).
        model: the model of the feedback.
    """
    right, wrong, right_flip, wrong_flip, *_ = model.parameters()
    alpha, answered = np.asarray(alpha, np.float64), np.asarray(answered, np.float64)
    goal = aim(alpha, model.bias, model.flips)
    S = np.asarray(bound) + waiting * (1 - goal)
    # each fixed x gives a bound; the first axis has the candidates
    x = TILTS.reshape(-1, *[1] * np.broadcast(S, answered, alpha).ndim)
    down, up = np.expm1(-x * (1 - goal)), np.expm1(x * goal)
    if_right = np.log1p(right * (right_flip * down + (1 - right_flip) * up))  # A_0 and A_1
    if_wrong = np.log1p(wrong * ((1 - wrong_flip) * down + wrong_flip * up))
    with np.errstate(divide="ignore", invalid="ignore"):
        total = x * S + answered * ((1 - alpha) * if_right + alpha * if_wrong) + np.log(1 / delta)
        bounds = np.where(if_right > if_wrong, total / (if_right - if_wrong), np.inf)
    return np.minimum(bounds.min(axis=0), answered * (1 - alpha))
