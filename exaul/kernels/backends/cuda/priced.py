"""Simulate ``Priced`` rules, which have a state of their own and move mass to the last arm (``log-price``).

The state of a copy is its weights, which sum to 1, and then the numbers of its rule. Within a block, the weight
of the last arm is kept apart from the others, because rounds add to it. Once per block, a share of the mass is
spread evenly over all arms (fixed share; Herbster and Warmuth, "Tracking the best expert", 1998).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.cuda import two_sided
from exaul.kernels.backends.cuda.loops import RuleKernel, StepKernel, repeat_state
from exaul.kernels.backends.cuda.target import Target, make_where
from exaul.kernels.backends.rule_state import accessors
from exaul.kernels.backends.rules import compile_with_helpers
from exaul.kernels.game import Parameters
from exaul.kernels.learners.learner import Learner, Priced


def _loop(rule: Priced, target: Target) -> StepKernel:
    """Return the functions of a round: decide by the price, and move mass to the last arm (``docs/proofs.md``, 3).

    The carry is the weight of the last arm and the rule's own state, beside that of ``two_sided.py``. Every lane of
    a copy computes both; lane 0 stores them at the end of a block.
    """
    compiled, real, number = target.compiled, target.real, target.number
    exp, reciprocal = target.exp, target.reciprocal
    lane = target.team.lane
    decide, learn = compile_with_helpers(compiled, rule.decide), compile_with_helpers(compiled, rule.learn)
    where, evenly = make_where(compiled), compile_with_helpers(compiled, rule.uniform_share)
    read, write = accessors(type(rule.start), compiled, lambda number, first: first + number)

    @compiled
    def start(own, first, last, base):
        return 0.0, 0.0

    @compiled
    def step(own, k, arms, carry, eta):
        return carry, number(own[k]) if k < arms - 1 else number(0.0)

    @compiled
    def begin(own, arms):
        return own[arms - 1], read(own, arms)

    @compiled
    def charge(own, cut, u, e, low, high, carry, parameters):
        last, before = carry
        below, above = real(low), real(high) + last
        total = below + above
        scale = reciprocal(total)
        P = below * scale
        chance = decide(where, P, before, parameters)
        under, over, share, after = learn(where, exp, P, u < chance, e, before, parameters)
        # Dividing by the total keeps the sum of the weights near 1, so that they do not underflow together.
        shrink_below, shrink_above = exp(-under) * scale, exp(-over) * scale
        last = last * shrink_above + share * (below * shrink_below + above * shrink_above)
        return (last, after), u < chance, chance, number(shrink_below), number(shrink_above)

    @compiled
    def end(own, arms, eta, total, carry):
        last, rule_state = carry
        even = evenly(where, rule_state)
        scale = 1.0 / ((real(total) + last) * (1.0 + even))
        each = even / (arms * (1.0 + even))
        if lane() == 0:
            own[arms - 1] = last * scale + each
            write(own, arms, rule_state)
        return scale, each

    return two_sided.compile_for(target, two_sided.TwoSidedStep(start, step, begin, charge, end, True))


def kind(learner: Learner[Priced]) -> RuleKernel:
    """Describe how a ``Priced`` rule is simulated, as ``dense.priced`` (``docs/proofs.md``).

    The state of a copy is its H weights and the M numbers of its rule, [H + M].
    """
    first = learner.rule.start

    def start(arms: int, best: NDArray[np.int32]) -> NDArray[np.float64]:
        return repeat_state(np.concatenate([np.full(arms, 1 / arms), first]), len(best))

    def dense_state(state: Any, parameters: Parameters) -> Any:
        arms = len(state) - len(first)
        return -np.log(state[:arms]), type(first)(*state[arms:])

    return RuleKernel(
        lambda target, outcomes: _loop(learner.rule, target), two_sided.sizes(True), start, dense_state=dense_state
    )
