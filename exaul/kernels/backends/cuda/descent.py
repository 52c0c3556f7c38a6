"""Learners that move one threshold by gradient steps (``threshold``).

The step is that of projected online gradient descent (Zinkevich, "Online convex programming and generalized
infinitesimal gradient ascent", 2003). No uniform is read, and the outcome of a round is 0 or 1.
"""

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.cuda.copies import Kind, Loop, Sizes, repeated
from exaul.kernels.backends.cuda.target import Target, where_of
from exaul.kernels.backends.rules import with_helpers
from exaul.kernels.game import TIE
from exaul.kernels.learners.learner import Descent, Learner


def _loop(rule: Descent, target: Target) -> Loop:
    compiled, real = target.compiled, target.real
    where, gradient = where_of(compiled), with_helpers(compiled, rule.gradient)

    @compiled
    def begin(own, arms, room, rounds, eta):
        return own[0]

    @compiled
    def play(own, arms, room, i, rounds, u, z, parameters):
        yes = z + TIE < room.cuts[i]
        slope = gradient(where, yes, room.errors[i], real(arms), parameters)
        return max(z - parameters.eta * slope, 0.0), yes, 1.0 if yes else 0.0, 0.0

    @compiled
    def end(own, arms, room, rounds, eta, z):
        own[0] = z

    return Loop(begin, play, end)


def kind(learner: Learner[Descent]) -> Kind:
    """Describe how a ``Descent`` rule is played, as ``dense.descent`` (Zinkevich 2003).

    Args:
        learner: its rule is a ``Descent``.

    Returns:
        The kind, whose state is z, [1] for each copy.
    """

    def start(arms: int, best: NDArray[np.int32]) -> NDArray[np.float64]:
        return repeated([learner.rule.start(arms)], len(best))

    return Kind(lambda target, outcomes: _loop(learner.rule, target), lambda lanes: Sizes(), start, teams=False)
