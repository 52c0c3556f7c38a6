"""Copies on the online backend: a decision and its feedback, round by round, as the Abstainer plays them."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.native.backend import NativeBackend
from exaul.kernels.backends.native.compile import outermost
from exaul.kernels.backends.native.rounds import Rounds
from exaul.kernels.backends.native.tally import Tally, add_block
from exaul.kernels.backends.native.threads import in_parts, outcome_room
from exaul.kernels.backends.online.rounds import Round, round_of
from exaul.kernels.game import ROUNDS, Outcome, Parameters
from exaul.kernels.learners.learner import Learner

PART = 16  # copies that a thread plays at a time


def _compile(one: Round) -> Callable[..., Any]:
    """The loop over the rounds of the copies first..last-1, one copy after the other."""
    decide, learn, close = one.decide, one.learn, one.close

    @outermost
    def play(first, last, numbers, tables, records, rates, parameters, tally, out):
        cuts, errors, uniforms, rounds = records
        etas, gammas = rates
        alpha, answer_cost, abstain_cost, record, draw = parameters
        o0, answered, probability, middle = out
        for b in range(first, last):
            o = o0 + b - first
            for i in range(rounds):
                block = i // ROUNDS
                own = Parameters(etas[block], gammas[block], alpha[b], answer_cost[b], abstain_cost[b], 0, 0)
                cut = cuts[record[b], i]
                decision = decide(numbers[b], tables[b], cut, uniforms[i, draw[b]], own)
                learn(numbers[b], tables[b], cut, decision, errors[record[b], i], own)
                answered[i % answered.shape[0], o] = decision.answered
                probability[i % probability.shape[0], o] = decision.probability
                middle[i % middle.shape[0], o] = decision.middle
                if i % ROUNDS == ROUNDS - 1:
                    close(numbers[b], tables[b])
                if i % ROUNDS == ROUNDS - 1 or i == rounds - 1:
                    add_block(answered, errors, block * ROUNDS, i + 1, block, tally, o, b, record[b : b + 1])

    return play


def make(learner: Learner[Any], precision: str) -> NativeBackend | None:
    """Make the backend of a learner that sees the errors of its own answers alone.

    Args:
        learner: with a rule of any type but ``Own``.
        precision: not read; the state is ``numbers`` [B, M] and ``tables`` [B, H], float64.

    Returns:
        The backend, or None where there is no round of the learner's rule (section "Online Conformal Abstention
        Under Adversarial Bandit Feedback" of the paper: who sees every label needs no thumbs).
    """
    one = round_of(learner)
    if one is None:
        return None
    loop = _compile(one)

    def play(
        state: Any, rounds: Rounds, parameters: Parameters, tally: Tally, outcome: Outcome | None = None
    ) -> list[Future[Any]]:
        numbers, tables = state
        rates = np.array(parameters.eta, np.float64), np.array(parameters.gamma, np.float64)
        records = rounds.arrays  # here, for the pool's threads may not wait for the pool

        def play_part(first: int, last: int) -> None:
            out = outcome_room(outcome, first, PART, 1 + one.middles)
            out = out if one.middles else (*out, np.empty((1, len(numbers))))
            loop(first, last, numbers, tables, records, rates, parameters[2:], tally, out)

        return in_parts(len(numbers), PART, play_part)

    def init(arms: int, best: NDArray[np.int32], streams: int) -> tuple[NDArray[Any], NDArray[Any]]:
        copies = [one.start(arms, int(arm)) for arm in best]
        return np.array([numbers for numbers, _ in copies]), np.array([table for _, table in copies])

    return NativeBackend(init, play, middles=one.middles)
