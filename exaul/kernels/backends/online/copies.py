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
from exaul.kernels.game import ROUNDS, Outcome, Parameters
from exaul.kernels.learners.learner import Learner
from exaul.kernels.thumbs import NONE, PERFECT, SKIPPED, Sums, Thumbs
from exaul.kernels.uniforms import IMPERFECT

PART = 16  # copies that a thread plays at a time
DRAWS = len(IMPERFECT)
NOTHING = np.empty(0)


class Kept(NamedTuple):
    """What is kept of a round until its thumb is due."""

    kind: Any  # of ``exaul.kernels.thumbs``
    said: Any  # in [0, 1], what will be learned
    cut: Any
    probability: Any  # these three as of ``Decision``
    arm: Any
    weight: Any


class State(NamedTuple):
    """All that changes as B copies play, and what their thumbs are like."""

    numbers: NDArray[np.float64]  # [B, M], as of ``Round``
    tables: NDArray[np.float64]  # [B, H]
    kept: NDArray[np.float64]  # [B, delay + 1, 6], a ``Kept`` of who waits at each place; the last is read at once
    sums: NDArray[np.float64]  # [B, 9], a ``Sums`` of each copy
    thumbs: NDArray[np.float64]  # [5], as of ``exaul.kernels.thumbs.thumb``
    eta: NDArray[np.float64]  # [K] of the horizon's blocks; empty where each round is learned when it is played
    gamma: NDArray[np.float64]  # [K]


_read_kept, _write_kept = accessors(Kept, compiled, lambda number, at: number)
_read_sums, _write_sums = accessors(Sums, compiled, lambda number, at: number)
_thumb, _counts, _abstained, _opened, _settled = (
    with_helpers(compiled, function)
    for function in (thumbs.thumb, thumbs.abstention_counts, thumbs.abstained, thumbs.opened, thumbs.settled)
)


@cache
def _compile(learner: Learner[Any], reserve: bool) -> tuple[Round, Callable[..., Any]] | None:
    """The loop over the rounds of the copies first..last-1, one copy after the other."""
    one = round_of(learner)
    if one is None:
        return None
    decide, update, close = one.decide, one.learn, one.close

    @compiled
    def own_of(learned, etas, gammas, alpha, answer_cost, abstain_cost):
        """The parameters of a copy after some rounds were learned."""
        block = min(int(learned) // ROUNDS, etas.size - 1)
        return Parameters(etas[block], gammas[block], alpha, answer_cost, abstain_cost, 0, 0)

    @compiled
    def learn(numbers, table, cut, decision, error, own, learned):
        """Learn the round by which ``learned`` rounds are learned."""
        update(numbers, table, cut, decision, error, own)
        if learned % ROUNDS == 0:
            close(numbers, table)

    @outermost
    def play(first, last, state, records, rates, parameters, tally, out):
        cuts, errors, uniforms, rounds = records
        etas, gammas = rates
        alpha, answer_cost, abstain_cost, record, draw = parameters
        o0, answered, probability, middle = out
        each = uniforms.shape[1] // DRAWS if state.eta.size > 0 else 0  # streams: of decisions, thumbs, delays
        for b in range(first, last):
            o = o0 + b - first
            numbers, table, kept = state.numbers[b], state.tables[b], state.kept[b]
            sums = _read_sums(state.sums[b], 0)
            before = 0.0 if state.eta.size > 0 else sums.learned  # rounds before the first of these rates
            for i in range(rounds):
                cut, error, u = cuts[record[b], i], errors[record[b], i], uniforms[i, each + draw[b]]
                own = own_of(sums.learned - before, etas, gammas, alpha[b], answer_cost[b], abstain_cost[b])
                waiting = sums.waiting if reserve else 0.0
                now = decide(numbers, table, cut, uniforms[i, draw[b]], own, waiting)
                answered[i % answered.shape[0], o] = now.answered
                probability[i % probability.shape[0], o] = now.probability
                middle[i % middle.shape[0], o] = now.middle
                kind, said = _thumb(where, now.answered, error, u, state.thumbs)
                place = int(uniforms[i, 2 * each + draw[b]] * kept.shape[0])
                due = _read_kept(kept[place], 0)
                _write_kept(kept[place], 0, Kept(kind, said, cut, now.probability, now.arm, now.weight))
                if place == kept.shape[0] - 1:  # its own thumb comes at once
                    due = _read_kept(kept[place], 0)
                if not now.answered and _counts(sums, u, state.thumbs):
                    sums = _abstained(where, sums, True)
                    learn(numbers, table, cut, now, 0.0, own, sums.learned)
                sums = _opened(where, sums, kind)
                if due.kind != NONE and due.kind != SKIPPED:
                    own = own_of(sums.learned - before, etas, gammas, alpha[b], answer_cost[b], abstain_cost[b])
                    then = Decision(True, due.probability, int(due.arm), due.weight, 0.0)
                    learn(numbers, table, int(due.cut), then, due.said, own, sums.learned + 1)
                sums = _settled(where, sums, due.kind, due.said)
                if i % ROUNDS == ROUNDS - 1 or i == rounds - 1:
                    of, start = i // ROUNDS, i // ROUNDS * ROUNDS
                    add_block(answered, errors, start, i + 1, of, tally, o, b, record[b : b + 1])
            _write_sums(state.sums[b], 0, sums)

    return one, play


def make(learner: Learner[Any], precision: str, how: Thumbs = PERFECT) -> NativeBackend | None:
    """Make the backend of a learner that sees the errors of its own answers alone.

    Args:
        learner: with a rule of any type but ``Own``.
        precision: ignored; the ``State`` has numbers [B, M] and tables [B, H], float64.
        how: how answers are rated. Unless it is perfectly, ``init`` needs the rates eta [K] and gamma [K] of all
            blocks of the horizon, for what is learned is counted, not played; and the uniforms of ``play`` are [K
            C, 3 U], those of thumbs and of delays last.

    Returns:
        The backend, or None where there is no round of the learner's rule (section "Online Conformal Abstention
        Under Adversarial Bandit Feedback" of the paper: who sees every label needs no thumbs).
    """
    made = _compile(learner, how.reserve)
    if made is None:
        return None
    one, loop = made

    def play(
        state: State, rounds: Rounds, parameters: Parameters, tally: Tally, outcome: Outcome | None = None
    ) -> list[Future[Any]]:
        rates = state.eta, state.gamma
        if how == PERFECT:
            rates = np.array(parameters.eta, np.float64), np.array(parameters.gamma, np.float64)
        elif int(parameters.draw.max()) >= rounds.uniforms.shape[1] // DRAWS:
            raise ValueError("too few uniforms: one of them says where a thumb is kept")
        records = rounds.arrays  # here, for the pool's threads may not wait for the pool

        def play_part(first: int, last: int) -> None:
            out = outcome_room(outcome, first, PART, 1 + one.middles)
            out = out if one.middles else (*out, np.empty((1, len(state.numbers))))
            loop(first, last, state, records, rates, parameters.copies, tally, out)

        return in_parts(len(state.numbers), PART, play_part)

    def init(
        arms: int,
        best: NDArray[np.int32],
        streams: int,
        eta: NDArray[np.float64] = NOTHING,
        gamma: NDArray[np.float64] = NOTHING,
    ) -> State:
        copies = [one.start(arms, int(arm)) for arm in best]
        return State(
            np.array([numbers for numbers, _ in copies]),
            np.array([table for _, table in copies]),
            np.zeros((len(best), how.delay + 1, len(Kept._fields))),
            np.zeros((len(best), len(Sums._fields))),
            how.numbers,
            eta,
            gamma,
        )

    def restore(state: State, tree: Any) -> State:
        return State(*tree)

    return NativeBackend(init, play, middles=one.middles, restore=restore)
