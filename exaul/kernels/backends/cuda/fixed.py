"""Simulate ``Fixed`` rules, which always use one arm, ``answer iff tau <= f`` (the comparators of eq. 3)."""

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.cuda.copies import RuleKernel, StepKernel, WorkspaceSizes
from exaul.kernels.backends.cuda.target import Target
from exaul.kernels.learners.learner import Fixed, Learner


def _loop(target: Target, outcomes: bool) -> StepKernel:
    compiled = target.compiled

    @compiled
    def begin(own, arms, workspace, rounds, eta):
        return own[0]

    @compiled
    def step(own, arms, workspace, i, rounds, u, arm, parameters):
        answers = arm < workspace.cuts[i]
        return arm, answers, 1.0 if answers else 0.0, 0.0

    @compiled
    def end(own, arms, workspace, rounds, eta, arm):
        pass

    return StepKernel(begin, step, end)


def kind(learner: Learner[Fixed]) -> RuleKernel:
    """Describe how a ``Fixed`` rule is simulated, as ``dense.fixed``; the state of a copy is its arm, [1]."""

    def start(arms: int, best: NDArray[np.int32]) -> NDArray[np.float64]:
        return np.array(np.broadcast_to(learner.rule.arm(arms, best), (1, len(best))), np.float64)

    return RuleKernel(_loop, lambda lanes: WorkspaceSizes(), start, teams=False)
