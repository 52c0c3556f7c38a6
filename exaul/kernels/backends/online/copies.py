"""Simulate copies on the online backend: a decision and its feedback, round by round, as in ``Abstainer``."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.kernels import feedback
from exaul.kernels.backends.native.arithmetic import where
from exaul.kernels.backends.native.backend import NativeBackend
from exaul.kernels.backends.native.compile import compiled, outermost
from exaul.kernels.backends.native.rounds import RecordBlocks
from exaul.kernels.backends.native.tally import CheckpointSums, add_block
from exaul.kernels.backends.native.threads import outcome_arrays, run_in_parts
from exaul.kernels.backends.online.rounds import OnlineDecision, OnlineRule, compile_rule
from exaul.kernels.backends.rule_state import accessors
from exaul.kernels.backends.rules import compile_with_helpers
from exaul.kernels.feedback import ABSTAINED, NEVER_LEARNED, PERFECT_FEEDBACK, Feedback, FeedbackSums
from exaul.kernels.game import ROUNDS, Copies, Outcome, Parameters, Rates
from exaul.kernels.learners.learner import Learner

PART = 16  # copies of a task for one thread


class PendingAnswer(NamedTuple):
    """What is kept of a round until its feedback is due."""

    kind: Any  # of ``exaul.kernels.feedback``
    error: Any  # in [0, 1], what will be learned
    cut: Any
    probability: Any  # these three as of ``OnlineDecision``
    arm: Any
    weight: Any


class OnlineState(NamedTuple):
    """Everything that changes while B copies are simulated."""

    numbers: NDArray[np.float64]  # [B, M], as of ``OnlineRule``
    tables: NDArray[np.float64]  # [B, H]
    # [B, delay + 1, 6], a ``PendingAnswer`` in each slot; the last slot is read at once
    pending: NDArray[np.float64]
    sums: NDArray[np.float64]  # [B, 9], a ``FeedbackSums`` of each copy


_read_kept, _write_kept = accessors(PendingAnswer, compiled, lambda number, at: number)
_read_sums, _write_sums = accessors(FeedbackSums, compiled, lambda number, at: number)
_draw_feedback, _counts, _abstained, _opened, _settled = (
    compile_with_helpers(compiled, function)
    for function in (
        feedback.draw_feedback,
        feedback.learns_abstention,
        feedback.add_abstention,
        feedback.add_decision,
        feedback.settle_answer,
    )
)


@cache
def _compile(learner: Learner[Any]) -> tuple[OnlineRule, Callable[..., Any]] | None:
    """Return the round of a learner, and the loop over the rounds of the copies first..last-1, one by one."""
    one = compile_rule(learner)
    if one is None:
        return None
    decide, update, close = one.decide, one.learn, one.close

    @compiled
    def parameters_after(learned, rates, copies, b):
        """Return the parameters of copy b after some rounds were learned."""
        block = min(int(learned) // ROUNDS, rates.eta.size - 1)
        eta, gamma = rates.eta[block], rates.gamma[block]
        return Parameters(eta, gamma, copies.alpha[b], copies.answer_cost[b], copies.abstain_cost[b])

    @compiled
    def learn(numbers, table, cut, decision, error, parameters_now, learned):
        """Learn a round; ``learned`` is the number of learned rounds including this one."""
        update(numbers, table, cut, decision, error, parameters_now)
        # A "block" is 256 learned rounds, also if feedback is late or missing.
        if learned % ROUNDS == 0:
            close(numbers, table)

    @outermost
    def simulate(first, last, state, records, rates, copies, feedback, perfect, reserve, tally, out):
        cuts, errors, decisions, feedback_draws, delays, rounds = records
        o0, answered, probability, middle = out
        for b in range(first, last):
            o, record, draw = o0 + b - first, copies.record_stream[b], copies.draw_stream[b]
            numbers, table, kept = state.numbers[b], state.tables[b], state.pending[b]
            sums = _read_sums(state.sums[b], 0)
            # With perfect feedback, ``rates`` are those of the blocks of this call, so count the rounds that are
            # learned from here on. Imperfect feedback reads the rates of the whole horizon, from its first round.
            before = sums.learned if perfect else 0.0
            for i in range(rounds):
                cut, error, u = cuts[record, i], errors[record, i], feedback_draws[i, draw]
                parameters_now = parameters_after(sums.learned - before, rates, copies, b)
                waiting = sums.waiting if reserve else 0.0
                decision = decide(numbers, table, cut, decisions[i, draw], parameters_now, waiting)
                answered[i % answered.shape[0], o] = decision.answered
                probability[i % probability.shape[0], o] = decision.probability
                middle[i % middle.shape[0], o] = decision.middle
                kind, learned_error = _draw_feedback(where, decision.answered, error, u, feedback)
                # Delay: one of ``delay + 1`` slots is drawn. The answer that waits there is settled now and
                # replaced by the new one. So each answer waits a geometric time, with mean ``delay``.
                slot = int(delays[i, draw] * kept.shape[0])
                due = _read_kept(kept[slot], 0)
                _write_kept(
                    kept[slot],
                    0,
                    PendingAnswer(kind, learned_error, cut, decision.probability, decision.arm, decision.weight),
                )
                if slot == kept.shape[0] - 1:  # the last slot: feedback on this answer comes at once
                    due = _read_kept(kept[slot], 0)
                # An abstention needs no feedback: it is learned at once, before the answer that is due.
                # ``Abstainer`` uses the same order, which bits depend on.
                if not decision.answered and _counts(sums, u, feedback):
                    sums = _abstained(where, sums, True)
                    learn(numbers, table, cut, decision, 0.0, parameters_now, sums.learned)
                sums = _opened(where, sums, kind)
                if due.kind != ABSTAINED and due.kind != NEVER_LEARNED:
                    parameters_now = parameters_after(sums.learned - before, rates, copies, b)
                    # Abstentions occupy slots, too, but only answers get here. Fields are stored as floats.
                    due_kind = OnlineDecision(True, due.probability, int(due.arm), due.weight, 0.0)
                    learn(numbers, table, int(due.cut), due_kind, due.error, parameters_now, sums.learned + 1)
                # Sums are updated after learning: ``sums.learned + 1`` above counts this round.
                sums = _settled(where, sums, due.kind, due.error)
                if i % ROUNDS == ROUNDS - 1 or i == rounds - 1:
                    of, start = i // ROUNDS, i // ROUNDS * ROUNDS
                    add_block(answered, errors, start, i + 1, of, tally, o, b, copies.record_stream[b : b + 1])
            _write_sums(state.sums[b], 0, sums)

    return one, simulate


def make(
    learner: Learner[Any], precision: str, how: Feedback = PERFECT_FEEDBACK, feedback_rates: Rates | None = None
) -> NativeBackend | None:
    """Return the backend of a learner that sees only the errors of its own answers.

    Args:
        learner: with a rule of any type but ``Own``.
        precision: ignored; the ``OnlineState`` is float64.
        how: how feedback arrives. If it is imperfect, ``simulate`` needs the draws of all three streams.
        feedback_rates: the rates [K] of all blocks of the horizon, if feedback is imperfect: the rates of a round
            depend on the number of rounds learned before, not on its own number. They replace the rates given to
            ``simulate``.

    Returns:
        The backend, or None if ``compile_rule`` returns None: a learner that sees every label needs no feedback
        (section "Online Conformal Abstention Under Adversarial Bandit Feedback" of the paper).
    """
    made = _compile(learner)
    if made is None:
        return None
    one, loop = made
    perfect = feedback_rates is None

    def simulate(
        state: OnlineState,
        rounds: RecordBlocks,
        rates: Rates,
        copies: Copies,
        tally: CheckpointSums,
        outcome: Outcome | None = None,
    ) -> list[Future[Any]]:
        decision, feedback, delay = rounds.draws  # drawn here: a thread that waited for the pool would deadlock
        if perfect:  # any uniforms do: all feedback comes at once
            feedback, delay = decision, decision
        records = rounds.cuts, rounds.errors, decision, feedback, delay, rounds.rounds
        of_rounds = rates if feedback_rates is None else feedback_rates

        def simulate_part(first: int, last: int) -> None:
            out = outcome_arrays(outcome, first, PART, 1 + one.middles)
            # The loop always writes middles; without them, into one row that is never read.
            out = out if one.middles else (*out, np.empty((1, len(state.numbers))))
            loop(first, last, state, records, of_rounds, copies, how.parameters, perfect, how.reserve, tally, out)

        return run_in_parts(len(state.numbers), PART, simulate_part)

    def init(arms: int, best: NDArray[np.int32], streams: int) -> OnlineState:
        copies = [one.start(arms, int(arm)) for arm in best]
        return OnlineState(
            np.array([numbers for numbers, _ in copies]),
            np.array([table for _, table in copies]),
            # An empty slot reads as ABSTAINED, 0.0, which is never learned.
            np.zeros((len(best), how.delay + 1, len(PendingAnswer._fields))),
            np.zeros((len(best), len(FeedbackSums._fields))),
        )

    def restore(state: OnlineState, tree: Any) -> OnlineState:
        return OnlineState(*tree)

    return NativeBackend(init, simulate, middles=one.middles, restore=restore)
