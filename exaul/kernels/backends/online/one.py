"""One copy in a user's program: a score in, a decision out, and later its feedback."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from exaul.kernels.backends.native.compile import compiled, outermost
from exaul.kernels.backends.native.threefry import threefry, uniform
from exaul.kernels.backends.online.rounds import OnlineDecision, compile_rule
from exaul.kernels.game import ROUNDS, Parameters
from exaul.kernels.learners.learner import Learner
from exaul.kernels.uniforms import FEEDBACK, LEARNER


class OnlineCopy(NamedTuple):
    """The compiled functions of one copy.

    They take and return plain tuples, because a NamedTuple costs a microsecond on its way from or to Python.

    Attributes:
        start: as of ``OnlineRule``.
        keys: ``keys(low, high, number)`` returns two keys, two uint32 each, of the streams LEARNER and FEEDBACK of
            copy ``number``, as ``uniforms.trial_keys`` derives them from the halves of a seed.
        decide: ``decide(numbers, table, grid, score, key, feedback_key, n, parameters, waiting)`` decides question
            n, from 0, with a score in [0, 1]; the two keys are from ``keys``, the rest is as of ``OnlineRule``. It
            returns the score's cut, the fields of an ``OnlineDecision``, and the uniform in [0, 1) of the question
            under ``feedback_key``.
        learn: ``learn(numbers, table, cut, decision, error, learned, parameters)`` learns from a decision;
            ``learned`` is the number of rounds learned before.
    """

    start: Callable[[int, int], Any]
    keys: Callable[..., Any]
    decide: Callable[..., Any]
    learn: Callable[..., Any]


@compiled
def _words(key):
    # Python has turned the words into ordinary integers, which Numba takes for int64.
    return np.uint32(key[0]), np.uint32(key[1])


@outermost
def _keys(low, high, number):
    # Keys are derived as for trials of a sweep, so a sweep and an ``Abstainer`` with equal seeds draw equal
    # uniforms.
    seed, copy = (np.uint32(low), np.uint32(high)), np.uint32(number)
    return threefry(seed, (np.uint32(LEARNER), copy)), threefry(seed, (np.uint32(FEEDBACK), copy))


@cache
def compile_copy(learner: Learner[Any]) -> OnlineCopy | None:
    """Return the functions of a learner, whose arrays are [M] and [H], or None as of ``compile_rule``.

    Source: section "Online Conformal Abstention Under Adversarial Bandit Feedback" of the paper.
    """
    written = compile_rule(learner)
    if written is None:
        return None
    decide, learn, close = written.decide, written.learn, written.close

    @outermost
    def decide_question(numbers, table, grid, score, key, feedback_key, n, parameters, waiting):
        # As ``compute_cuts``: a score of exactly 1 gets H - 1, because Lemma 1 needs an arm that always abstains.
        cut = min(np.searchsorted(grid, score, side="right"), grid.size - 1)
        # Uniforms are a function of the question's number: no generator's state is carried or stored.
        block, place = np.uint32(n // ROUNDS), np.uint32(n % ROUNDS)
        u, coin = uniform(_words(key), block, place), uniform(_words(feedback_key), block, place)
        decision = decide(numbers, table, cut, u, Parameters(*parameters), waiting)
        fields = decision.answered, decision.probability, decision.arm, decision.weight, decision.middle
        return cut, fields, coin

    @outermost
    def learn_feedback(numbers, table, cut, decision, error, learned, parameters):
        learn(numbers, table, cut, OnlineDecision(*decision), error, Parameters(*parameters))
        # ``learned`` counts the rounds before this one; the step of every 256 rounds follows the last of them.
        if learned % ROUNDS == ROUNDS - 1:
            close(numbers, table)

    return OnlineCopy(written.start, _keys, decide_question, learn_feedback)
