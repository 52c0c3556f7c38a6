"""Simulate ``Sided`` rules, which charge one number below the cut and another above it (``exaul``, ``ew``).

The state of a copy is the differences ``x_k - x_{k-1}`` of its cumulative losses less a common number r: ``x_k =
L_k - r``, with ``x_{-1} = 0``. A round changes the difference at its cut, and the first one. At the end of a block,
r is chosen so that the weights ``exp(-eta x_k)`` sum to 1, and so never underflow together (line "Update" of
Algorithms "ExAUL" and "EW-CA").
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.cuda import two_sided
from exaul.kernels.backends.cuda.loops import RuleKernel, StepKernel, repeat_state
from exaul.kernels.backends.cuda.target import Target, make_where
from exaul.kernels.backends.rules import compile_with_helpers
from exaul.kernels.game import Parameters, Start
from exaul.kernels.learners.learner import Learner, Sided, weight_of_last


def _loop(learner: Learner[Sided], target: Target) -> StepKernel:
    """Return the functions of a round: draw a side of the cut, and charge both (eq. 8 for ``exaul``).

    The carry is the change of x_0 in the block, beside that of ``two_sided.py``. The lanes of a copy share the
    differences, which lane 0 alone changes.
    """
    compiled, real, number = target.compiled, target.real, target.number
    reciprocal = target.reciprocal
    exp, log, add = target.exp, target.log, target.add
    lanes, lane, scan, pick = target.team.lanes, target.team.lane, target.team.scan, target.team.pick
    where, full_feedback = make_where(compiled), learner.feedback == "full"
    charges = compile_with_helpers(compiled, learner.rule.charge)
    prior, of_last = learner.rule.prior, compiled(weight_of_last)

    @compiled
    def start(differences, first, last, base):
        # x_k is a prefix sum of the differences. A single lane carries it from word to word; the lanes of a warp
        # sum one word each, and scan for the sums before their words.
        if lanes == 1:
            return base, base
        total = 0.0
        for k in range(first, last):
            total += differences[k]
        up_to = scan(total)
        before = pick(up_to, max(lane() - 1, 0))
        return base + (before if lane() > 0 else 0.0), base + pick(up_to, lanes - 1)

    @compiled
    def step(differences, k, arms, total, eta):
        total += differences[k]
        return total, number(exp(-eta * total))

    @compiled
    def step_with_prior(differences, k, arms, total, eta):
        total += differences[k]
        weight = exp(-eta * total)
        return total, number(weight * of_last(prior, arms) if k == arms - 1 else weight)

    @compiled
    def begin(differences, arms):
        return 0.0  # the change of x_0 in this block

    @compiled
    def charge(differences, cut, u, e, low, high, first, parameters):
        below, above = real(low), real(high)
        total = below + above
        # Q is a sum of its own, because 1 - P would lose the digits of a small Q (eq. 8 divides by it).
        scale = reciprocal(total)
        P, Q = below * scale, above * scale
        answers = u * total < below  # u < P, without waiting for P
        error = e if answers or full_feedback else 0.0
        under, over = charges(where, P, Q, answers, error, parameters)
        gap = under - over
        # Only the side that is charged more shrinks: a common factor changes no probability, and no weight grows.
        factor = number(exp(-parameters.eta * abs(gap)))
        if lane() == 0:
            add(differences, cut, -gap)
        # If gap > 0, every x_k below the cut grows by it: x_0 grows, which ``first`` collects until the end of the
        # block, and the difference at the cut falls, so that x_k above stays. If gap < 0, only that difference
        # grows.
        one, more = number(1.0), gap > 0
        return first + max(gap, 0.0), answers, P, factor if more else one, one if more else factor

    @compiled
    def end(differences, arms, eta, total, first):
        if lane() == 0:
            # Adding log(total) / eta to every x_k divides every weight by the total.
            add(differences, 0, first + log(real(total)) / eta)

    weigh = step if prior is None else step_with_prior
    return two_sided.compile_for(target, two_sided.TwoSidedStep(start, weigh, begin, charge, end))


def kind(learner: Learner[Sided]) -> RuleKernel:
    """Describe how a ``Sided`` rule is simulated, as ``dense.sided``; the state of a copy is [H] differences."""

    def first(arms: int, start: Start) -> NDArray[np.float64]:
        return repeat_state(np.zeros(arms), len(start.best))

    def dense_state(state: Any, parameters: Parameters) -> Any:
        return np.cumsum(state, axis=0)

    return RuleKernel(
        lambda target, outcomes: _loop(learner, target), two_sided.sizes, first, dense_state=dense_state
    )
