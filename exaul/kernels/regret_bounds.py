"""Bounds of the regret: those of the paper's theorems, and sharper ones of the same learners.

Rates are given by block: ``eta`` [K] and ``gamma`` [K] are constant within each block and do not grow, ``rounds``
[K] are the lengths of the blocks and sum to T. alpha and lambda have any shape; a bound has their broadcast
shape, or is a float if it does not depend on them.
s and r are the costs of ``compute_costs``: an answer with error e costs s e, an abstention r. ``docs/proofs.md``,
section 6, has the proofs, and states how each bound holds against adaptive adversaries.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.game import compute_costs

Bound = Callable[..., Any]
TILTS = np.geomspace(1e-6, 20, 600)  # the parameters among which an exponential bound may choose (chosen)
# of ``exaul-known``, for which its bounds are proved: the first mass of the last arm, and eta x the largest charge
KNOWN_PRIOR, KNOWN_CAP = 0.5, 2.0


class RegretBounds(NamedTuple):
    """Bounds of the regret of a learner, which hold with probability 1 - delta, or in the mean if delta is 1.

    Each is called as ``bound(eta, gamma, rounds, arms, delta, alpha, lam)``, with delta in (0, 1], and is NaN if
    nothing is proved at these rates.
    """

    best: Bound  # of the regret against the best arm (eq. 3)
    abstaining: Bound  # of the regret against the arm that always abstains, the only one that Lemma 1 needs
    paper: Bound  # of the regret against the best arm, by the paper's theorem


def _blocks(*rates: Any) -> list[NDArray[np.float64]]:
    return [np.atleast_1d(np.asarray(x, np.float64)) for x in rates]


@np.errstate(over="ignore")  # a bound above the largest float is inf
def paper_implicit_exploration(
    eta: ArrayLike,
    gamma: ArrayLike,
    rounds: ArrayLike,
    arms: int,
    delta: float,
    alpha: object,
    lam: object,
    *,
    single: bool = False,
) -> float:
    """Bound the regret by the last step in the proofs of the theorems on ExAUL and, if ``single``, on Exp3-IX.

    ``N sum_t (eta_t / 2 + gamma_t) + ln H / eta_T + ln(2 H / delta) / (2 gamma_T) + ln(2 / delta)``, where N is 2,
    the number of sides of a cut, or H if a round reveals the loss of one arm only. It needs ``eta_t <= 2 gamma_t``.
    In the mean ln(2 / delta) is 0 (``docs/proofs.md``, section 7).
    """
    eta, gamma, rounds = _blocks(eta, gamma, rounds)
    if np.any(eta > 2 * gamma):
        return np.nan
    chance = np.log(2 / delta) if delta < 1 else 0.0
    exploration = (arms if single else 2) * np.sum((eta / 2 + gamma) * rounds)
    deviation = (np.log(arms) + chance) / (2 * gamma[-1]) + chance
    return float(exploration + np.log(arms) / eta[-1] + deviation)


@np.errstate(over="ignore")
def paper_exponential_weights(
    eta: ArrayLike, gamma: object, rounds: ArrayLike, arms: int, delta: float, alpha: object, lam: object
) -> float:
    """Bound the regret of exponential weights with full feedback, by the theorem on EW.

    ``sum_t eta_t / 8 + ln H / eta_T + sqrt(T ln(1 / delta) / 2)``.
    """
    eta, rounds = _blocks(eta, rounds)
    deviation = np.sqrt(np.sum(rounds) * np.log(1 / delta) / 2)
    return float(np.sum(eta * rounds) / 8 + np.log(arms) / eta[-1] + deviation)


def _second_moments(s: Any, r: Any, arms: int, single: bool) -> tuple[Any, Any, Any]:
    """Return the largest sums over the sides, or arms, of squared losses, of losses below, and of all losses."""
    most, least = np.maximum(s, r), np.minimum(s, r)
    if single:  # at least one arm is on each side
        return (arms - 1) * most**2 + least**2, (arms - 1) * most, (arms - 1) * most + least
    return s**2 + r**2, s, s + r


def _largest(deviation: Callable[[Any, Any], Any], eta: Any, gamma: Any) -> Any:
    """Return the maximum over the blocks of ``deviation(eta, gamma)``, for cells of any shape."""
    changed = np.append(True, (np.diff(eta) != 0) | (np.diff(gamma) != 0))  # constant rates are one pair
    return np.max([deviation(*pair) for pair in zip(eta[changed], gamma[changed], strict=True)], axis=0)


@np.errstate(over="ignore", invalid="ignore")
def implicit_exploration_abstaining(
    single: bool, eta: ArrayLike, gamma: ArrayLike, rounds: ArrayLike, arms: int, delta: float, *cell: ArrayLike
) -> Any:
    """Bound the regret against the arm that always abstains (``docs/proofs.md``, R1).

    ``ln H / eta_T + sum_t (eta_t V / 2 + gamma_t s) + ln(1 / delta) max_t D_t`` with ``V = s^2 + r^2`` and
    ``D = max(r (1 + gamma + eta r / 2), s (gamma + eta s / 2)) / (2 gamma)``; R1 says what changes if ``single``.
    A cell is alpha and lambda.
    """
    (eta, gamma, rounds), (s, r) = _blocks(eta, gamma, rounds), compute_costs(*cell)
    squares, below, _ = _second_moments(s, r, arms, single)
    other = np.maximum(s, r) if single else s
    bound = np.log(arms) / eta[-1] + np.sum(eta * rounds) * squares / 2 + np.sum(gamma * rounds) * below
    if delta == 1:
        return bound
    if np.any(gamma <= 0):
        return np.full(np.shape(bound), np.nan)

    def deviation(eta: Any, gamma: Any) -> Any:
        of_abstaining = r * (1 + gamma + eta * r / 2)
        return np.maximum(of_abstaining, other * (gamma + eta * other / 2)) / (2 * gamma)

    return bound + np.log(1 / delta) * _largest(deviation, eta, gamma)


@np.errstate(over="ignore", invalid="ignore")
def implicit_exploration_best(
    single: bool, eta: ArrayLike, gamma: ArrayLike, rounds: ArrayLike, arms: int, delta: float, *cell: ArrayLike
) -> Any:
    """Bound the regret against the best arm (``docs/proofs.md``, R2).

    ``ln H / eta_T + sum_t (eta_t V / 2 + gamma_t b) + ln(H / delta) max_t b (1 + gamma_t + eta_t b / 2) / (2
    gamma_t)`` with ``b = max(s, r)`` and V as in R1. R2 says what changes in the mean, and if ``single``. A cell is
    alpha and lambda.
    """
    (eta, gamma, rounds), (s, r) = _blocks(eta, gamma, rounds), compute_costs(*cell)
    squares, below, both = _second_moments(s, r, arms, single)
    most = np.maximum(s, r)
    bound = np.log(arms) / eta[-1] + np.sum(eta * rounds) * squares / 2
    if np.any(gamma <= 0):
        return np.full(np.shape(bound), np.nan)
    if delta == 1:
        return bound + np.sum(gamma * rounds) * both + np.log(arms) * most / (2 * gamma[-1])

    def deviation(eta: Any, gamma: Any) -> Any:
        return most * (1 + gamma + eta * most / 2) / (2 * gamma)

    explored = np.sum(gamma * rounds) * (below if single else most)
    return bound + explored + np.log(arms / delta) * _largest(deviation, eta, gamma)


@np.errstate(over="ignore")
def exponential_weights_best(
    eta: ArrayLike, gamma: object, rounds: ArrayLike, arms: int, delta: float, alpha: ArrayLike, lam: ArrayLike
) -> Any:
    """Bound the regret of ``ew`` against the best arm (``docs/proofs.md``, R3).

    ``ln H / eta_T + D^2 sum_t eta_t / 8 + D sqrt(T ln(1 / delta) / 2)`` with ``D = max(s - r, r)``.
    """
    (eta, rounds), (s, r) = _blocks(eta, rounds), compute_costs(alpha, lam)
    range_ = np.maximum(s - r, r)
    deviation = range_ * np.sqrt(np.sum(rounds) * np.log(1 / delta) / 2)
    return np.log(arms) / eta[-1] + range_**2 * np.sum(eta * rounds) / 8 + deviation


@np.errstate(over="ignore")
def exponential_weights_abstaining(
    eta: ArrayLike, gamma: object, rounds: ArrayLike, arms: int, delta: float, alpha: ArrayLike, lam: ArrayLike
) -> Any:
    """Bound the regret of ``ew`` against the arm that always abstains (``docs/proofs.md``, R4; or R3 if smaller).

    ``B (exp(x b) - 1) / (x b) + ln(1 / delta) / x - r T``, where ``b = max(s, r)`` and
    ``B = b (r T + ln H / eta_T) eta_1 / (1 - exp(-b eta_1))`` bounds the expected losses; the best x of ``TILTS``.
    """
    (first, *_), last, T = _blocks(eta)[0], _blocks(eta)[0][-1], np.sum(rounds)
    s, r = compute_costs(alpha, lam)
    most = np.maximum(s, r)
    expected = most * (r * T + np.log(arms) / last) * first / -np.expm1(-most * first)
    if delta < 1:
        x = TILTS.reshape(-1, *[1] * np.ndim(most))
        expected = np.min(expected * np.expm1(x * most) / (x * most) + np.log(1 / delta) / x, axis=0)
    best = exponential_weights_best(eta, gamma, rounds, arms, delta, alpha, lam)
    return np.minimum(expected - r * T, best)


@np.errstate(over="ignore")
def known_abstention_abstaining(
    eta: ArrayLike, gamma: ArrayLike, rounds: ArrayLike, arms: int, delta: float, alpha: ArrayLike, lam: ArrayLike
) -> Any:
    """Bound the regret of ``exaul-known`` against the arm that always abstains (``docs/proofs.md``, R5).

    ``ln 2 / eta_T + sum_t (eta_t r^2 / 2 + x r^2 / 8 + (gamma_t + eta_t s / 2) (exp(x s) - 1) / x) + ln(1 / delta)
    / x``, with the best x of ``TILTS``; in the mean with x = 0. H does not matter, and gamma may be 0.
    """
    (eta, gamma, rounds), (s, r) = _blocks(eta, gamma, rounds), compute_costs(alpha, lam)
    bound = np.log(1 / KNOWN_PRIOR) / eta[-1] + np.sum(eta * rounds) * r**2 / 2
    charged = np.sum(gamma * rounds) + np.sum(eta * rounds) * s / 2
    if delta == 1:
        return bound + charged * s
    x = TILTS.reshape(-1, *[1] * np.ndim(s))
    deviation = x * np.sum(rounds) * r**2 / 8 + charged * np.expm1(x * s) / x + np.log(1 / delta) / x
    return bound + np.min(deviation, axis=0)


@np.errstate(over="ignore", divide="ignore")
def known_abstention_best(
    eta: ArrayLike, gamma: ArrayLike, rounds: ArrayLike, arms: int, delta: float, alpha: ArrayLike, lam: ArrayLike
) -> Any:
    """Bound the regret of ``exaul-known`` against the best arm (``docs/proofs.md``, R6).

    ``ln(2 (H - 1)) / eta_T + sum_t (eta_t V / 2 + gamma_t s + x r^2 / 8) + ln(H / delta) / x`` with the best
    ``x <= min_t 2 gamma_t / (s (1 + gamma_t + eta_t s / 2))``; R6 says what changes in the mean. NaN unless gamma
    is positive and so large that no charge is capped, ``eta_t s <= 2 gamma_t``.
    """
    (eta, gamma, rounds), (s, r) = _blocks(eta, gamma, rounds), compute_costs(alpha, lam)
    bound = np.log((arms - 1) / (1 - KNOWN_PRIOR)) / eta[-1] + np.sum(eta * rounds) * (s**2 + r**2) / 2
    bound = bound + np.sum(gamma * rounds) * s
    if np.any(gamma <= 0):
        return np.full(np.shape(bound), np.nan)
    if delta == 1:
        bound = bound + s * np.log(arms) / (2 * gamma[-1])
    else:
        least = _largest(lambda eta, gamma: s * (1 + gamma + eta * s / 2) / (2 * gamma), eta, gamma)  # of 1 / x
        T, chance = np.sum(rounds), np.log(arms / delta)
        inverse = np.maximum(least, r * np.sqrt(T / (8 * chance)))  # the latter minimizes the sum of both terms
        bound = bound + T * r**2 / (8 * inverse) + chance * inverse
    return np.where(np.max(eta / gamma) * s <= KNOWN_CAP, bound, np.nan)


def _unknown(
    eta: object, gamma: object, rounds: object, arms: int, delta: float, alpha: ArrayLike, lam: ArrayLike
) -> Any:
    return np.full(np.broadcast_shapes(np.shape(alpha), np.shape(lam)), np.nan)


def _of_implicit_exploration(single: bool) -> RegretBounds:
    return RegretBounds(
        partial(implicit_exploration_best, single),
        partial(implicit_exploration_abstaining, single),
        partial(paper_implicit_exploration, single=single),
    )


EXAUL_BOUNDS, EXP3_IX_BOUNDS = _of_implicit_exploration(False), _of_implicit_exploration(True)
EW_BOUNDS = RegretBounds(exponential_weights_best, exponential_weights_abstaining, paper_exponential_weights)
KNOWN_BOUNDS = RegretBounds(known_abstention_best, known_abstention_abstaining, _unknown)
