"""One copy at the hands of a program: a score in, a decision out, and later its feedback."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from exaul.kernels.backends.native.compile import outermost
from exaul.kernels.backends.native.threefry import uniform
from exaul.kernels.backends.online.rounds import Decision, round_of
from exaul.kernels.game import ROUNDS
from exaul.kernels.learners.learner import Learner


class One(NamedTuple):
    """The functions of one copy, compiled.

    Attributes:
        start: as of ``Round``.
        ask: ``ask(numbers, table, grid, score, key, n, parameters, waiting)`` decides question n, from 0, whose
            score is in [0, 1]; ``key`` is two uint32, ``waiting`` as of ``Round``. It returns the score's cut and a
            ``Decision``.
        tell: ``tell(numbers, table, cut, decision, error, learned, parameters)`` learns from what was decided, if
            ``learned`` rounds were before.
        chance: ``chance(key, n)`` is the uniform in [0, 1) of question n under another key.
        decision: ``decision(*numbers)`` is a ``Decision`` again, from its numbers.
    """

    start: Callable[[int, int], Any]
    ask: Callable[..., Any]
    tell: Callable[..., Any]
    chance: Callable[..., Any]
    decision: Callable[..., Decision] = Decision


@outermost
def _chance(key, n):
    return uniform(key, np.uint32(n // ROUNDS), np.uint32(n % ROUNDS))


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
    def ask(numbers, table, grid, score, key, n, parameters, waiting):
        cut = min(np.searchsorted(grid, score, side="right"), grid.size - 1)
        u = uniform(key, np.uint32(n // ROUNDS), np.uint32(n % ROUNDS))
        return cut, decide(numbers, table, cut, u, parameters, waiting)

    @outermost
    def tell(numbers, table, cut, decision, error, learned, parameters):
        learn(numbers, table, cut, decision, error, parameters)
        if learned % ROUNDS == ROUNDS - 1:
            close(numbers, table)

    return One(written.start, ask, tell, _chance)
