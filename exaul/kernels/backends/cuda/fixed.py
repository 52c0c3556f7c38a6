"""Learners that play one arm for ever, ``answer iff tau <= f`` (the comparators of eq. 3)."""

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.cuda.copies import Kind, Loop, Sizes
from exaul.kernels.backends.cuda.target import Target
from exaul.kernels.learners.learner import Fixed, Learner


def _loop(target: Target, outcomes: bool) -> Loop:
    compiled = target.compiled

    @compiled
    def begin(own, arms, room, rounds, eta):
        return own[0]

    @compiled
    def play(own, arms, room, i, rounds, u, arm, parameters):
        yes = arm < room.cuts[i]
        return arm, yes, 1.0 if yes else 0.0, 0.0

    @compiled
    def end(own, arms, room, rounds, eta, arm):
        pass

    return Loop(begin, play, end)


def kind(learner: Learner[Fixed]) -> Kind:
    """Describe how a ``Fixed`` rule is played, as ``dense.fixed`` (eq. 3).

    Args:
        learner: its rule is a ``Fixed``.

    Returns:
        The kind, whose state is the arm, [1] for each copy.
    """

    def start(arms: int, best: NDArray[np.int32]) -> NDArray[np.float64]:
        return np.array(np.broadcast_to(learner.rule.arm(arms, best), (1, len(best))), np.float64)

    return Kind(_loop, lambda lanes: Sizes(), start, teams=False)
