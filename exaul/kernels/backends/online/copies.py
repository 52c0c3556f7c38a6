"""Copies on the online backend: a decision and its feedback, round by round, as the Abstainer plays them."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.kernels import thumbs
from exaul.kernels.backends.memory import accessors
from exaul.kernels.backends.native.arithmetic import where
from exaul.kernels.backends.native.backend import NativeBackend
from exaul.kernels.backends.native.compile import compiled, outermost
from exaul.kernels.backends.native.rounds import Rounds
from exaul.kernels.backends.native.tally import Tally, add_block
from exaul.kernels.backends.native.threads import in_parts, outcome_room
from exaul.kernels.backends.online.rounds import Decision, Round, round_of
from exaul.kernels.backends.rules import with_helpers
from exaul.kernels.game import ROUNDS, Copies, Outcome, Parameters, Rates
from exaul.kernels.learners.learner import Learner
from exaul.kernels.thumbs import NONE, PERFECT, SKIPPED, Sums, Thumbs

PART = 16  # copies that a thread plays at a time


class Kept(NamedTuple):
    """What is kept of a round until its thumb is due."""

    kind: Any  # of ``exaul.kernels.thumbs``
    said: Any  # in [0, 1], what will be learned
    cut: Any
    probability: Any  # these three as of ``Decision``
    arm: Any
    weight: Any


class State(NamedTuple):
    """All that changes as B copies are simulated."""

    numbers: NDArray[np.float64]  # [B, M], as of ``Round``
    tables: NDArray[np.float64]  # [B, H]
    kept: NDArray[np.float64]  # [B, delay + 1, 6], a ``Kept`` of who waits at each place; the last is read at once
    sums: NDArray[np.float64]  # [B, 9], a ``Sums`` of each copy


_read_kept, _write_kept = accessors(Kept, compiled, lambda number, at: number)
_read_sums, _write_sums = accessors(Sums, compiled, lambda number, at: number)
_thumb, _counts, _abstained, _opened, _settled = (
    with_helpers(compiled, function)
    for function in (thumbs.thumb, thumbs.abstention_counts, thumbs.abstained, thumbs.opened, thumbs.settled)
)


@cache
def _compile(learner: Learner[Any]) -> tuple[Round, Callable[..., Any]] | None:
    """The loop over the rounds of the copies first..last-1, one copy after the other."""
    one = round_of(learner)
    if one is None:
        return None
    decide, update, close = one.decide, one.learn, one.close

    @compiled
    def parameters_after(learned, rates, copies, b):
        """The parameters of copy b after some rounds were learned."""
        block = min(int(learned) // ROUNDS, rates.eta.size - 1)
        eta, gamma = rates.eta[block], rates.gamma[block]
        return Parameters(eta, gamma, copies.alpha[b], copies.answer_cost[b], copies.abstain_cost[b])

    @compiled
    def learn(numbers, table, cut, decision, error, own, learned):
        """Learn the round by which ``learned`` rounds are learned."""
        update(numbers, table, cut, decision, error, own)
        if learned % ROUNDS == 0:
            close(numbers, table)

    @outermost
    def play(first, last, state, records, rates, copies, feedback, perfect, reserve, tally, out):
        cuts, errors, decisions, coins, delays, rounds = records
        o0, answered, probability, middle = out
        for b in range(first, last):
            o, record, draw = o0 + b - first, copies.record[b], copies.draw[b]
            numbers, table, kept = state.numbers[b], state.tables[b], state.kept[b]
            sums = _read_sums(state.sums[b], 0)
            before = sums.learned if perfect else 0.0  # rounds before the first of these rates
            for i in range(rounds):
                cut, error, u = cuts[record, i], errors[record, i], coins[i, draw]
                own = parameters_after(sums.learned - before, rates, copies, b)
                waiting = sums.waiting if reserve else 0.0
                now = decide(numbers, table, cut, decisions[i, draw], own, waiting)
                answered[i % answered.shape[0], o] = now.answered
                probability[i % probability.shape[0], o] = now.probability
                middle[i % middle.shape[0], o] = now.middle
                kind, said = _thumb(where, now.answered, error, u, feedback)
                place = int(delays[i, draw] * kept.shape[0])
                due = _read_kept(kept[place], 0)
                _write_kept(kept[place], 0, Kept(kind, said, cut, now.probability, now.arm, now.weight))
                if place == kept.shape[0] - 1:  # its own thumb comes at once
                    due = _read_kept(kept[place], 0)
                if not now.answered and _counts(sums, u, feedback):
                    sums = _abstained(where, sums, True)
                    learn(numbers, table, cut, now, 0.0, own, sums.learned)
                sums = _opened(where, sums, kind)
                if due.kind != NONE and due.kind != SKIPPED:
                    own = parameters_after(sums.learned - before, rates, copies, b)
                    then = Decision(True, due.probability, int(due.arm), due.weight, 0.0)
                    learn(numbers, table, int(due.cut), then, due.said, own, sums.learned + 1)
                sums = _settled(where, sums, due.kind, due.said)
                if i % ROUNDS == ROUNDS - 1 or i == rounds - 1:
                    of, start = i // ROUNDS, i // ROUNDS * ROUNDS
                    add_block(answered, errors, start, i + 1, of, tally, o, b, copies.record[b : b + 1])
            _write_sums(state.sums[b], 0, sums)

    return one, play


def make(
    learner: Learner[Any], precision: str, how: Thumbs = PERFECT, late_rates: Rates | None = None
) -> NativeBackend | None:
    """Make the backend of a learner that sees the errors of its own answers alone.

    Args:
        learner: with a rule of any type but ``Own``.
        precision: ignored; the ``State`` has numbers [B, M] and tables [B, H], float64.
        how: what the feedback is like. If it is imperfect, ``play`` needs the draws of all three streams.
        late_rates: the rates [K] of all blocks of the horizon, if feedback is imperfect: a round has the rates of
            the number of rounds learned before, not of its own number. They replace those that ``play`` is given.

    Returns:
        The backend, or None where there is no round of the learner's rule (section "Online Conformal Abstention
        Under Adversarial Bandit Feedback" of the paper: who sees every label needs no thumbs).
    """
    made = _compile(learner)
    if made is None:
        return None
    one, loop = made
    perfect = late_rates is None

    def play(
        state: State, rounds: Rounds, rates: Rates, copies: Copies, tally: Tally, outcome: Outcome | None = None
    ) -> list[Future[Any]]:
        decision, feedback, delay = rounds.draws  # here, for the pool's threads may not wait for the pool
        if perfect:  # any uniforms do: all feedback comes, at once
            feedback, delay = decision, decision
        records = rounds.cuts, rounds.errors, decision, feedback, delay, rounds.rounds
        of_rounds = rates if late_rates is None else late_rates

        def play_part(first: int, last: int) -> None:
            out = outcome_room(outcome, first, PART, 1 + one.middles)
            out = out if one.middles else (*out, np.empty((1, len(state.numbers))))
            loop(first, last, state, records, of_rounds, copies, how.numbers, perfect, how.reserve, tally, out)

        return in_parts(len(state.numbers), PART, play_part)

    def init(arms: int, best: NDArray[np.int32], streams: int) -> State:
        copies = [one.start(arms, int(arm)) for arm in best]
        return State(
            np.array([numbers for numbers, _ in copies]),
            np.array([table for _, table in copies]),
            np.zeros((len(best), how.delay + 1, len(Kept._fields))),
            np.zeros((len(best), len(Sums._fields))),
        )

    def restore(state: State, tree: Any) -> State:
        return State(*tree)

    return NativeBackend(init, play, middles=one.middles, restore=restore)
