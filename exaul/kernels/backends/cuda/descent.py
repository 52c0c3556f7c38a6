"""Simulate ``Descent`` rules, which move one threshold by gradient steps (``threshold``, and the comparators).

This is projected online gradient descent (Zinkevich, "Online convex programming and generalized infinitesimal
gradient ascent", 2003). Decisions need no uniforms, so the probability of answering is 0 or 1.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.cuda.loops import RuleKernel, StepKernel, WorkspaceSizes, whole_blocks
from exaul.kernels.backends.cuda.target import Target, make_where
from exaul.kernels.backends.rules import compile_with_helpers
from exaul.kernels.game import TIE
from exaul.kernels.learners.learner import Descent, Learner


def _loop(gradient_of_rule: Callable[..., Any], target: Target) -> StepKernel:
    compiled, real = target.compiled, target.real
    where, gradient = make_where(compiled), compile_with_helpers(compiled, gradient_of_rule)

    @compiled
    def begin(own, arms, workspace, rounds, eta):
        return own[0]

    @compiled
    def step(own, arms, workspace, i, cut, u, e, z, parameters):
        answers = z + TIE < cut
        slope = gradient(where, answers, e, real(arms), parameters)
        return max(z - parameters.eta * slope, 0.0), answers, 1.0 if answers else 0.0, 0.0

    @compiled
    def end(own, arms, workspace, rounds, eta, z):
        own[0] = z

    return whole_blocks(compiled, begin, step, end)


@cache  # the comparators share a gradient, and so a kernel
def _loop_of(gradient: Callable[..., Any]) -> Callable[[Target, bool], StepKernel]:
    return lambda target, outcomes: _loop(gradient, target)


def _sizes(lanes: int) -> WorkspaceSizes:
    return WorkspaceSizes()


def kind(learner: Learner[Descent]) -> RuleKernel:
    """Describe how a ``Descent`` rule is simulated, as ``dense.descent``; the state of a copy is z, [1]."""

    def start(arms: int, best: NDArray[np.int32]) -> NDArray[np.float64]:
        return np.broadcast_to(np.asarray(learner.rule.start(arms, best), np.float64), (1, len(best)))

    return RuleKernel(_loop_of(learner.rule.gradient), _sizes, start, teams=False)
