"""Learners for tests of programs: ``answers`` shows every answer, and ``abstains`` none, whatever the feedback."""

from typing import Any, NamedTuple

from exaul.kernels.learners.learner import Learner, Ranked


class ConstantState(NamedTuple):
    """A state that never changes."""

    unused: Any


def _constant(probability: float) -> Learner[Ranked]:
    def decide(where: Any, state: Any, high: Any, low: Any) -> Any:
        return probability

    def learn(where: Any, state: Any, answered: Any, error: Any, params: Any) -> Any:
        return state

    return Learner("bandit", Ranked(ConstantState(0.0), decide, learn, prior=0.25, decay=0.5))


answers, abstains = _constant(1.0), _constant(0.0)
