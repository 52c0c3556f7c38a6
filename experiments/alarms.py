"""``alarms``: false alarms of ``exaul.serving.alarms`` in a year, and how late they find real changes."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine import registry
from exaul.kernels.backends.native.compile import compiled
from exaul.kernels.backends.online import compile_copy
from exaul.kernels.feedback import FeedbackSums
from exaul.kernels.game import GRIDS, ROUNDS, compute_costs
from exaul.kernels.learners.learner import Learner
from exaul.kernels.rates import rates_of

ARMS, GRID = 1000, "logit"  # as an Abstainer has by default


class Stream(NamedTuple):
    """Questions of one key, in order."""

    scores: NDArray[np.float64]  # [T] in [0, 1]
    errors: NDArray[np.float64]  # [T] what feedback would say, in [0, 1]
    raters: NDArray[np.bool_]  # [T] whether an answer gets feedback, before the next question


@cache
def _compile(learner: Learner[Any]) -> tuple[Any, Callable[..., None]]:
    """Return the functions of a copy, and a loop over all questions of a stream."""
    copy = compile_copy(learner)
    assert copy is not None
    decide, learn = copy.decide, copy.learn
    learned = FeedbackSums._fields.index("learned")

    @compiled
    def simulate(state, grid, stream, keys, rates, costs, answered):  # type: ignore[no-untyped-def]
        numbers, table, sums = state
        scores, errors, raters = stream
        eta, gamma = rates
        for i in range(scores.size):
            block = min(int(sums[learned]) // ROUNDS, eta.size - 1)
            parameters = (eta[block], gamma[block], costs[0], costs[1], costs[2])
            cut, decision, _ = decide(
                numbers, table, sums, grid, scores[i], keys[0], keys[1], parameters, False, -1.0
            )
            answered[i] = decision[0]
            if decision[0] and raters[i]:
                learn(numbers, table, sums, cut, decision, errors[i], True, parameters)

    return copy, simulate


def decisions(name: str, alpha: float, stream: Stream, trial: int) -> NDArray[np.bool_]:
    """Return which questions [T] an ``Abstainer`` with seed 0 and key ``trial`` answers."""
    learner = registry.resolve("learner", name, registry.LEARNERS, (Learner,))
    copy, simulate = _compile(learner)
    many = stream.scores.size
    rate = rates_of(learner, None, ARMS, False, None, None)
    pairs = [rate(ROUNDS * (block + 1)) for block in range(-(-many // ROUNDS))]
    answer_cost, abstain_cost = map(float, compute_costs(alpha, 0.0))
    answered = np.zeros(many, np.bool_)
    simulate(
        (*copy.start(ARMS, 0), np.zeros(len(FeedbackSums._fields))),
        GRIDS[GRID](ARMS, np.empty(0)),
        tuple(stream),
        copy.keys(0, 0, trial),
        tuple(np.array(column) for column in zip(*pairs, strict=True)),
        (alpha, answer_cost, abstain_cost),
        answered,
    )
    return answered
