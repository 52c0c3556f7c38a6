"""Learners that charge one number below the cut and one above it (``exaul``, ``ew``).

The state of a copy are the differences ``x_k - x_{k-1}`` of its cumulative losses, less a number that they have in
common: ``x_k = L_k - r``, with ``x_{-1} = 0``. A round changes the difference at its cut, and the first. At the
end of a block r becomes such that the weights ``exp(-eta x_k)`` sum to 1, so that they never underflow together
(line "Update" of Algorithms "ExAUL" and "EW-CA").
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.cuda import sides
from exaul.kernels.backends.cuda.copies import RuleKernel, StepKernel, repeat_state
from exaul.kernels.backends.cuda.target import Target, make_where
from exaul.kernels.backends.rules import compile_with_helpers
from exaul.kernels.game import Parameters
from exaul.kernels.learners.learner import Learner, Sided


def _loop(learner: Learner[Sided], target: Target) -> StepKernel:
    compiled, real, number = target.compiled, target.real, target.number
    exp, log, add = target.exp, target.log, target.add
    lanes, lane, scan, pick = target.team.lanes, target.team.lane, target.team.scan, target.team.pick
    where, full_feedback = make_where(compiled), learner.feedback == "full"
    charges = compile_with_helpers(compiled, learner.rule.charge)

    @compiled
    def start(differences, first, last, base):
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
    def begin(differences, arms):
        return 0.0  # by how much more the first arm was charged than what all were

    @compiled
    def charge(differences, cut, u, e, low, high, first, parameters):
        below, above = real(low), real(high)
        total = below + above
        P, Q = below / total, above / total
        answers = u < P
        error = e if answers or full_feedback else 0.0
        under, over = charges(where, P, Q, answers, error, parameters)
        gap = under - over
        factor = number(exp(-parameters.eta * abs(gap)))
        if lane() == 0:
            add(differences, cut, -gap)
        one, more = number(1.0), gap > 0
        return first + max(gap, 0.0), answers, P, factor if more else one, one if more else factor

    @compiled
    def end(differences, arms, eta, total, first):
        if lane() == 0:
            add(differences, 0, first + log(real(total)) / eta)
        return 1.0, 0.0

    return sides.compile_for(target, sides.SidedRule(start, step, begin, charge, end, False))


def kind(learner: Learner[Sided]) -> RuleKernel:
    """Describe how a ``Sided`` rule is played, as ``dense.sided`` (Algorithms "ExAUL" and "EW-CA").

    Args:
        learner: its rule is a ``Sided``.

    Returns:
        The kind, whose state is [H] for each copy.
    """

    def start(arms: int, best: NDArray[np.int32]) -> NDArray[np.float64]:
        return repeat_state(np.zeros(arms), len(best))

    def dense_state(state: Any, parameters: Parameters) -> Any:
        return np.cumsum(state, axis=0)

    return RuleKernel(
        lambda target, outcomes: _loop(learner, target), sides.sizes(False), start, dense_state=dense_state
    )
