"""One copy at the hands of a program: a score in, a decision out, and later its feedback."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from exaul.kernels.backends.native.compile import compiled, outermost
from exaul.kernels.backends.native.threefry import threefry, uniform
from exaul.kernels.backends.online.rounds import Decision, round_of
from exaul.kernels.game import ROUNDS, Parameters
from exaul.kernels.learners.learner import Learner
from exaul.kernels.uniforms import LEARNER, THUMBS


class One(NamedTuple):
    """The functions of one copy, compiled. They take and return plain tuples: named ones cost a microsecond each.

    Attributes:
        start: as of ``Round``.
        keys: ``keys(low, high, number)`` are two keys, two uint32 each, of the streams LEARNER and THUMBS of copy
            ``number``, as ``uniforms.trial_keys`` derives them from the halves of a seed.
        ask: ``ask(numbers, table, grid, score, key, coins, n, parameters, waiting)`` decides question n, from 0,
            whose score is in [0, 1]; ``key`` and ``coins`` are its keys, the rest is as of ``Round``. It returns
            the score's cut, the fields of a ``Decision``, and the uniform in [0, 1) of the question under the
            second key.
        tell: ``tell(numbers, table, cut, decision, error, learned, parameters)`` learns from what was decided, if
            ``learned`` rounds were before.
    """

    start: Callable[[int, int], Any]
    keys: Callable[..., Any]
    ask: Callable[..., Any]
    tell: Callable[..., Any]


@compiled
def _words(key):
    """A key, whose words Python has made ordinary integers."""
    return np.uint32(key[0]), np.uint32(key[1])


@outermost
def _keys(low, high, number):
    seed, copy = (np.uint32(low), np.uint32(high)), np.uint32(number)
    return threefry(seed, (np.uint32(LEARNER), copy)), threefry(seed, (np.uint32(THUMBS), copy))


@cache
def one_of(learner: Learner[Any]) -> One | None:
    """Write the functions of a learner, whose arrays are [M] and [H].

    Args:
        learner: with a rule of any type but ``Own``.

    Returns:
        The functions, or None as of ``round_of`` (section "Online Conformal Abstention Under Adversarial Bandit
        Feedback" of the paper: who sees every label needs no thumbs).
    """
    written = round_of(learner)
    if written is None:
        return None
    decide, learn, close = written.decide, written.learn, written.close

    @outermost
    def ask(numbers, table, grid, score, key, coins, n, parameters, waiting):
        cut = min(np.searchsorted(grid, score, side="right"), grid.size - 1)
        block, place = np.uint32(n // ROUNDS), np.uint32(n % ROUNDS)
        u, coin = uniform(_words(key), block, place), uniform(_words(coins), block, place)
        decision = decide(numbers, table, cut, u, Parameters(*parameters), waiting)
        told = decision.answered, decision.probability, decision.arm, decision.weight, decision.middle
        return cut, told, coin

    @outermost
    def tell(numbers, table, cut, decision, error, learned, parameters):
        learn(numbers, table, cut, Decision(*decision), error, Parameters(*parameters))
        if learned % ROUNDS == ROUNDS - 1:
            close(numbers, table)

    return One(written.start, _keys, ask, tell)
