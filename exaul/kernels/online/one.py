"""One copy in a user's program: a score in, a decision out, and later its feedback."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from exaul.kernels import feedback
from exaul.kernels.feedback import FeedbackSums
from exaul.kernels.game import ROUNDS, Parameters
from exaul.kernels.learners.learner import Learner
from exaul.kernels.native.compile import accessors, compile_with_helpers, compiled, outermost, where
from exaul.kernels.native.records import threefry, uniform
from exaul.kernels.online.rounds import OnlineDecision, compile_rule
from exaul.kernels.uniforms import FEEDBACK, LEARNER

read_sums, write_sums = accessors(FeedbackSums, lambda number, at: number)
learned_share, add_abstention, add_answer, add_decision, close_answer, remove_recent = (
    compile_with_helpers(function)
    for function in (
        feedback.learned_share,
        feedback.add_abstention,
        feedback.add_answer,
        feedback.add_decision,
        feedback.close_answer,
        feedback.remove_recent,
    )
)


class OnlineCopy(NamedTuple):
    """The compiled functions of one copy.

    They take and return plain tuples, because a NamedTuple costs a microsecond on its way from or to Python.
    ``sums`` is an array [10], a ``FeedbackSums``, which they update.

    Attributes:
        start: as of ``OnlineRule``.
        keys: ``keys(low, high, number)`` returns two keys, two uint32 each, of the streams LEARNER and FEEDBACK of
            copy ``number``, as ``uniforms.trial_keys`` derives them from the halves of a seed.
        decide: ``decide(numbers, table, sums, grid, score, key, feedback_key, parameters, reserve, share)`` decides
            the next question, with a score in [0, 1]. An abstention is learned with the weight ``share``, or
            ``learned_share`` if ``share`` is negative. The two keys are from ``keys``, ``reserve`` says whether
            open answers count as wrong, and the rest is as of ``OnlineRule``. It returns the score's cut, the
            fields of an ``OnlineDecision``, and the uniform in [0, 1) of the question under ``feedback_key``.
        learn: ``learn(numbers, table, sums, cut, decision, error, observed, parameters)`` learns an answer and
            closes it; ``observed`` says whether the error in [0, 1] is feedback or imputed.
        close: ``close(sums, withdrawn_weight)`` closes an answer that is not learned. ``withdrawn_weight`` is its
            weight among recent answers, ``FORGETTING ** later answers``, if it was not given after all; else 0.
    """

    start: Callable[[int, Any, Any], Any]
    keys: Callable[..., Any]
    decide: Callable[..., Any]
    learn: Callable[..., Any]
    close: Callable[..., Any]


@compiled
def _words(key):
    # Python has turned the words into ordinary integers, which Numba takes for int64.
    return np.uint32(key[0]), np.uint32(key[1])


@compiled
def _weighted(numbers, weight):
    return Parameters(numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], weight)


@outermost
def _keys(low, high, number):
    # Keys are derived as for trials of a sweep, so a sweep and an ``Abstainer`` with equal seeds draw equal
    # uniforms.
    seed, copy = (np.uint32(low), np.uint32(high)), np.uint32(number)
    return threefry(seed, (np.uint32(LEARNER), copy)), threefry(seed, (np.uint32(FEEDBACK), copy))


@outermost
def _close(sums, withdrawn_weight):
    known = close_answer(where, read_sums(sums, 0), True)
    write_sums(sums, 0, remove_recent(known, withdrawn_weight))


@cache
def compile_copy(learner: Learner[Any]) -> OnlineCopy | None:
    """Return the functions of a learner, whose arrays are [M] and [H], or None as of ``compile_rule``.

    Source: section "Online Conformal Abstention Under Adversarial Bandit Feedback" of the paper.
    """
    written = compile_rule(learner)
    if written is None:
        return None
    decide, learn_round = written.decide, written.learn

    @outermost
    def decide_question(numbers, table, sums, grid, score, key, feedback_key, parameters, reserve, share):
        known, own = read_sums(sums, 0), _weighted(parameters, 1.0)
        # As ``compute_cuts``: a score of exactly 1 gets H - 1, because Lemma 1 needs an arm that always abstains.
        cut = min(np.searchsorted(grid, score, side="right"), grid.size - 1)
        # Uniforms are a function of the question's number: no generator's state is carried or stored.
        n = int(known.questions)
        block, place = np.uint32(n // ROUNDS), np.uint32(n % ROUNDS)
        u, coin = uniform(_words(key), block, place), uniform(_words(feedback_key), block, place)
        decision = decide(numbers, table, cut, u, own, known.open if reserve else 0.0)
        known = add_decision(where, known, decision.answered)
        if not decision.answered:
            weight = learned_share(where, known) if share < 0.0 else share
            learn_round(numbers, table, cut, decision, 0.0, _weighted(parameters, weight))
            known = add_abstention(where, known, True, weight)
        write_sums(sums, 0, known)
        return cut, (decision.answered, decision.probability, decision.arm, decision.weight), coin

    @outermost
    def learn_answer(numbers, table, sums, cut, decision, error, observed, parameters):
        known = read_sums(sums, 0)
        learn_round(numbers, table, cut, OnlineDecision(*decision), error, _weighted(parameters, 1.0))
        known = close_answer(where, known, True)
        write_sums(sums, 0, add_answer(where, known, True, observed, error))

    return OnlineCopy(written.start, _keys, decide_question, learn_answer, _close)
