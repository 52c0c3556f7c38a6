"""Simulate ``Sided`` rules, which charge one number below the cut and another above it (``exaul``, ``ew``).

A round changes one of the differences ``L_k - L_{k-1}`` of the cumulative losses, the one at its cut. The weights
are computed from them at the beginning of a span (line "Update" of Algorithms "ExAUL" and "EW-CA").
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.native.arithmetic import exp, where
from exaul.kernels.backends.native.backend import NativeBackend
from exaul.kernels.backends.native.compile import compiled
from exaul.kernels.backends.native.groups import weigh
from exaul.kernels.backends.native.tiles import TileRule, make_tiled_backend
from exaul.kernels.backends.rules import compile_with_helpers
from exaul.kernels.game import LARGEST_STEP, SPAN, Parameters
from exaul.kernels.learners.learner import Learner, Sided, weight_of_last


def _begin(prior: float | None) -> Callable[..., Any]:
    """Return ``TileRule.begin`` for a prior of the last arm."""

    @compiled
    def begin(differences, eta, total, least, gap, weights):
        weigh(differences, eta, total, least, weights)

    if prior is None:
        return begin
    of_last = compiled(weight_of_last)

    @compiled
    def begin_with_prior(differences, eta, total, least, gap, weights):
        weigh(differences, eta, total, least, weights)
        for lane in range(gap.size):
            weights[-1, lane] *= of_last(prior, weights.shape[0])

    return begin_with_prior


def _sides(rule: Sided, full_feedback: bool) -> TileRule:
    """Return the step of the rule; its number per lane is ``gap``, the charge below the cut less that above it."""
    charges, begin = compile_with_helpers(compiled, rule.charge), _begin(rule.prior)

    @compiled
    def charge(differences, l0, eta, gamma, copies, u, e, gap, low, high):
        alpha, answer_cost, abstain_cost = copies.alpha, copies.answer_cost, copies.abstain_cost
        chance, factor_below, factor_above = e, low, high  # aliases: results overwrite inputs
        for lane in range(low.size):
            total = np.float64(low[lane]) + np.float64(high[lane])
            # Q is a sum of its own, because 1 - P would lose the digits of a small Q, by which losses are divided
            # (eq. 8).
            P, Q = np.float64(low[lane]) / total, np.float64(high[lane]) / total
            yes = u[lane] < P
            error = e[lane] if yes or full_feedback else 0.0
            own = Parameters(eta, gamma, alpha[l0 + lane], answer_cost[l0 + lane], abstain_cost[l0 + lane], 1.0)
            under, over = charges(where, P, Q, yes, error, own)
            gap[lane] = under - over
            # A factor common to all arms changes no probability, so only the side that is charged more shrinks: one
            # ``exp`` per round, and no weight grows.
            factor = exp(-eta * abs(gap[lane]))
            factor_below[lane] = factor if gap[lane] > 0 else 1.0
            factor_above[lane] = 1.0 if gap[lane] > 0 else factor
            chance[lane] = P

    @compiled
    def store(differences, cut, lane, gap):
        # L_cut is charged ``over`` and L_{cut-1} ``under``; all other differences stay.
        differences[cut, lane] -= gap[lane]

    return TileRule(begin, charge, store)


def make(learner: Learner[Sided], precision: str) -> NativeBackend:
    """Return the backend of a learner with a ``Sided`` rule, as ``dense.sided``.

    ``precision`` is the dtype of the weights and their sums; the state is the differences of cumulative losses,
    float64 [H, L] for each tile of L copies.
    """

    def steady(eta: NDArray[np.float64], gamma: NDArray[np.float64]) -> bool:
        # Weights that last for 1,024 rounds need float64, constant rates, and steps at which they cannot underflow.
        constant = (eta == eta[0]).all() and (gamma == gamma[0]).all()
        return bool(constant and precision == "float64" and eta[0] * SPAN <= LARGEST_STEP[precision])

    return make_tiled_backend(
        _sides(learner.rule, learner.feedback == "full"),
        precision,
        steady,
        dense_state=lambda state, _: np.cumsum(np.concatenate(state, axis=1), axis=0),
        largest_step=LARGEST_STEP[precision],
    )
