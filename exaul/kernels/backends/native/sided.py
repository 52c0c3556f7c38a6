"""Learners that charge one number below the cut and one above it, compiled (``exaul``, ``ew``).

A round changes one of the differences ``L_k - L_{k-1}`` of the cumulative losses, the one at its cut; weights
follow from them at the beginning of a span (line "Update" of Algorithms "ExAUL" and "EW-CA").
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
from exaul.kernels.learners.learner import Learner, Sided


def _sides(rule: Callable[..., Any], full_feedback: bool) -> TileRule:
    """How a round is played: ``gap`` is by how much more the arms below the cut are charged than those above."""
    charges = compile_with_helpers(compiled, rule)

    @compiled
    def begin(differences, eta, total, least, gap, weights):
        weigh(differences, eta, total, least, weights)

    @compiled
    def charge(differences, l0, eta, gamma, copies, u, e, gap, low, high):
        alpha, answer_cost, abstain_cost = copies.alpha, copies.answer_cost, copies.abstain_cost
        chance, factor_below, factor_above = e, low, high  # the same arrays, once replaced
        for lane in range(low.size):
            total = np.float64(low[lane]) + np.float64(high[lane])
            P, Q = np.float64(low[lane]) / total, np.float64(high[lane]) / total
            yes = u[lane] < P
            error = e[lane] if yes or full_feedback else 0.0
            own = Parameters(eta, gamma, alpha[l0 + lane], answer_cost[l0 + lane], abstain_cost[l0 + lane])
            under, over = charges(where, P, Q, yes, error, own)
            gap[lane] = under - over
            factor = exp(-eta * abs(gap[lane]))
            factor_below[lane] = factor if gap[lane] > 0 else 1.0
            factor_above[lane] = 1.0 if gap[lane] > 0 else factor
            chance[lane] = P

    @compiled
    def store(differences, cut, lane, gap):
        differences[cut, lane] -= gap[lane]

    @compiled
    def end(differences, weights, gap):
        pass

    return TileRule(begin, charge, store, end, spreads=False)


def make(learner: Learner[Sided], precision: str) -> NativeBackend:
    """Make the backend of a learner with a ``Sided`` rule, as ``dense.sided``.

    Args:
        learner: its rule is a ``Sided``.
        precision: dtype of the weights and their sums, ``float64`` or ``float32``; the differences of losses are
            float64 [H, L] for each tile of L copies.

    Returns:
        The backend.
    """

    def steady(eta: NDArray[np.float64], gamma: NDArray[np.float64]) -> bool:
        constant = (eta == eta[0]).all() and (gamma == gamma[0]).all()
        return bool(constant and precision == "float64" and eta[0] * SPAN <= LARGEST_STEP[precision])

    return make_tiled_backend(
        _sides(learner.rule.charge, learner.feedback == "full"),
        precision,
        steady,
        np.zeros,
        0,
        dense_state=lambda state, _: np.cumsum(np.concatenate(state, axis=1), axis=0),
        largest_step=LARGEST_STEP[precision],
    )
