"""Simulate ``Descent`` rules, which move one threshold by gradient steps (``threshold``, and the comparators).

This is projected online gradient descent (Zinkevich, "Online convex programming and generalized infinitesimal
gradient ascent", 2003). Decisions need no uniforms, so the probability of answering is 0 or 1.
"""

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.cuda.loops import RuleKernel, StepKernel, WorkspaceSizes
from exaul.kernels.backends.cuda.target import Target, make_where
from exaul.kernels.backends.rules import compile_with_helpers
from exaul.kernels.game import TIE
from exaul.kernels.learners.learner import Descent, Learner


def _loop(rule: Descent, target: Target) -> StepKernel:
    compiled, real = target.compiled, target.real
    where, gradient = make_where(compiled), compile_with_helpers(compiled, rule.gradient)

    @compiled
    def begin(own, arms, workspace, rounds, eta):
        return own[0]

    @compiled
    def step(own, arms, workspace, i, rounds, cut, u, e, z, parameters):
        answers = z + TIE < cut
        slope = gradient(where, answers, e, real(arms), parameters)
        return max(z - parameters.eta * slope, 0.0), answers, 1.0 if answers else 0.0, 0.0

    @compiled
    def end(own, arms, workspace, rounds, eta, z):
        own[0] = z

    return StepKernel(begin, step, end)


def kind(learner: Learner[Descent]) -> RuleKernel:
    """Describe how a ``Descent`` rule is simulated, as ``dense.descent``; the state of a copy is z, [1]."""

    def start(arms: int, best: NDArray[np.int32]) -> NDArray[np.float64]:
        return np.array(np.broadcast_to(learner.rule.start(arms, best), (1, len(best))), np.float64)

    return RuleKernel(
        lambda target, outcomes: _loop(learner.rule, target), lambda lanes: WorkspaceSizes(), start, teams=False
    )
