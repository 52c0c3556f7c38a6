"""Simulate ``Priced`` rules, which have a state of their own and move mass to the last arm (``log-price``).

The state of a copy is its weights, which sum to 1, and then the numbers of its rule. Within a span, the weight of
the last arm is kept apart from the others, because rounds add to it. Once per block, a share of the mass is spread
evenly over all arms (fixed share; Herbster and Warmuth, "Tracking the best expert", 1998).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.native.arithmetic import exp, where
from exaul.kernels.backends.native.backend import NativeBackend
from exaul.kernels.backends.native.compile import compiled
from exaul.kernels.backends.native.tiles import TileRule, make_tiled_backend
from exaul.kernels.backends.rule_state import accessors
from exaul.kernels.backends.rules import compile_with_helpers
from exaul.kernels.game import Parameters
from exaul.kernels.learners.learner import Learner, Priced


def _sides(rule: Priced) -> TileRule:
    """Return the step of the rule; its number per lane is the weight of the last arm, ``last``."""
    decide, learn = compile_with_helpers(compiled, rule.decide), compile_with_helpers(compiled, rule.learn)
    evenly = compile_with_helpers(compiled, rule.uniform_share)
    size = len(rule.start)
    read, write = accessors(type(rule.start), compiled, lambda number, copy: (number, copy))

    @compiled
    def begin(state, eta, workspace, more_workspace, last, weights):
        arms = weights.shape[0]
        for k in range(arms - 1):
            for lane in range(last.size):
                weights[k, lane] = state[k, lane]
        for lane in range(last.size):
            weights[arms - 1, lane] = 0
            last[lane] = state[arms - 1, lane]

    @compiled
    def charge(state, l0, eta, gamma, copies, u, e, last, low, high):
        alpha, answer_cost, abstain_cost = copies.alpha, copies.answer_cost, copies.abstain_cost
        rule_state = state[state.shape[0] - size :]
        chances, factor_below, factor_above = e, low, high  # aliases: results overwrite inputs
        for lane in range(low.size):
            below, above = np.float64(low[lane]), np.float64(high[lane]) + last[lane]
            total = below + above
            own = Parameters(eta, gamma, alpha[l0 + lane], answer_cost[l0 + lane], abstain_cost[l0 + lane])
            before = read(rule_state, lane)
            P = below / total
            chance = decide(where, P, before, own)
            under, over, share, after = learn(where, exp, P, u[lane] < chance, e[lane], before, own)
            # Dividing by the total keeps the sum of the weights near 1, so that they do not underflow together.
            shrink_below, shrink_above = exp(-under) / total, exp(-over) / total
            last[lane] = last[lane] * shrink_above + share * (below * shrink_below + above * shrink_above)
            factor_below[lane] = shrink_below
            factor_above[lane] = shrink_above
            chances[lane] = chance
            write(rule_state, lane, after)

    @compiled
    def store(state, cut, lane, last):
        pass

    @compiled
    def end(state, weights, last):
        arms, lanes = weights.shape
        total, scale, each = np.copy(last), np.empty_like(last), np.empty_like(last)
        rule_state = state[arms:]
        for k in range(arms - 1):
            for lane in range(lanes):
                total[lane] += weights[k, lane]
        for lane in range(lanes):
            even = evenly(where, read(rule_state, lane))
            scale[lane] = 1.0 / (total[lane] * (1.0 + even))
            each[lane] = even / (arms * (1.0 + even))
            state[arms - 1, lane] = last[lane] * scale[lane] + each[lane]
        for k in range(arms - 1):
            for lane in range(lanes):
                state[k, lane] = weights[k, lane] * scale[lane] + each[lane]

    return TileRule(begin, charge, store, end, spreads=True)


def make(learner: Learner[Priced], precision: str) -> NativeBackend:
    """Return the backend of a learner with a ``Priced`` rule, as ``compressed.priced``.

    ``precision`` is the dtype of the weights and their sums within a block; the state is float64 [H + M, L] for
    each tile of L copies, where M is the size of the rule's state.
    """
    start = learner.rule.start
    size = len(start)

    def column(arms: int) -> NDArray[np.float64]:
        return np.concatenate([np.full(arms, 1 / arms), start])

    def dense_state(state: Any, parameters: Parameters) -> Any:
        whole = np.concatenate(state, axis=1)
        arms = len(whole) - size
        return -np.log(whole[:arms]), type(start)(*whole[arms:])

    return make_tiled_backend(
        _sides(learner.rule),
        precision,
        lambda eta, gamma: False,
        column,
        size,
        dense_state=dense_state,
    )
