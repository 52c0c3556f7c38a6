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
from exaul.kernels.backends.native.tally import CheckpointSums, keep_one
from exaul.kernels.backends.native.threads import run_in_parts
from exaul.kernels.backends.native.tree import outcome_arrays
from exaul.kernels.backends.online.rounds import OnlineDecision, OnlineRule, compile_rule
from exaul.kernels.backends.rule_state import accessors
from exaul.kernels.backends.rules import compile_with_helpers
from exaul.kernels.feedback import CLOSED, PERFECT_FEEDBACK, WITH_FEEDBACK, Feedback, FeedbackSums
from exaul.kernels.game import ROUNDS, Copies, Outcome, Parameters, Rates, Start
from exaul.kernels.learners.learner import Learner

PART = 16  # copies of a task for one thread


class PendingAnswer(NamedTuple):
    """What is kept of an answer until it is learned."""

    status: Any  # CLOSED, WITH_FEEDBACK or WITHOUT_FEEDBACK
    error: Any  # in [0, 1], what its feedback will say
    cut: Any
    probability: Any  # these three as of ``OnlineDecision``
    arm: Any
    weight: Any


class OnlineState(NamedTuple):
    """Everything that changes while B copies are simulated."""

    numbers: NDArray[np.float64]  # [B, M], as of ``OnlineRule``
    tables: NDArray[np.float64]  # [B, H]
    slots: NDArray[np.int64]  # [B, delay + 1], the number of the question in each slot, or -1
    pending: NDArray[np.float64]  # [B, P, 6], a ``PendingAnswer`` by slot, or by question modulo P
    sums: NDArray[np.float64]  # [B, 10], a ``FeedbackSums`` of each copy


_read_pending, _write_pending = accessors(PendingAnswer, compiled, lambda number, at: number)
read_sums, write_sums = accessors(FeedbackSums, compiled, lambda number, at: number)
draw_feedback, learned_share, add_abstention, add_answer, add_decision, close_answer, remove_recent = (
    compile_with_helpers(compiled, function)
    for function in (
        feedback.draw_feedback,
        feedback.learned_share,
        feedback.add_abstention,
        feedback.add_answer,
        feedback.add_decision,
        feedback.close_answer,
        feedback.remove_recent,
    )
)


@cache
def _compile(learner: Learner[Any]) -> tuple[OnlineRule, Callable[..., Any]] | None:
    """Return the round of a learner, and the loop over the rounds of the copies first..last-1, one by one."""
    one = compile_rule(learner)
    if one is None:
        return None
    decide, learn = one.decide, one.learn

    @compiled
    def parameters_after(learned, rates, copies, b, weight):
        """Return the parameters of copy b after some rounds were learned."""
        block = min(int(learned) // ROUNDS, rates.eta.size - 1)
        eta, gamma = rates.eta[block] * copies.eta_scale[b], rates.gamma[block] * copies.gamma_scale[b]
        costs = copies.answer_cost[b], copies.abstain_cost[b]
        return Parameters(eta, gamma, copies.alpha[b], costs[0], costs[1], weight)

    @compiled
    def learn_pending(numbers, table, answer, error, parameters_now):
        # Fields are stored as floats.
        decision = OnlineDecision(True, answer.probability, int(answer.arm), answer.weight, 0.0)
        learn(numbers, table, int(answer.cut), decision, error, parameters_now)

    @outermost
    def simulate(first, last, state, records, rates, copies, model, perfect, remembers, reserve, tally, out):
        cuts, errors, decisions, coins, delays, rounds = records
        expires = int(model.expires)
        for b in range(first, last):
            record, draw = copies.record_stream[b], copies.draw_stream[b]
            answered, wrong = tally.answered[b], tally.wrong[b]
            numbers, table, slots, pending = state.numbers[b], state.tables[b], state.slots[b], state.pending[b]
            sums = read_sums(state.sums[b], 0)
            # With perfect feedback, ``rates`` are those of the blocks of this call, so count the rounds that are
            # learned from here on. Imperfect feedback reads the rates of the whole horizon, from its first round.
            before = sums.learned if perfect else 0.0
            for i in range(rounds):
                n = int(sums.questions)
                cut, error, u = cuts[record, i], errors[record, i], coins[i, draw]
                parameters_now = parameters_after(sums.learned - before, rates, copies, b, 1.0)
                waiting = sums.open if reserve else 0.0
                decision = decide(numbers, table, cut, decisions[i, draw], parameters_now, waiting)
                answered += 1 if decision.answered else 0
                wrong += error if decision.answered else 0.0
                keep_one(i, b, tally, answered, wrong)
                if out.answered.size:
                    out.answered[i, b], out.probability[i, b] = decision.answered, decision.probability
                if out.middle.size:
                    out.middle[i, b] = decision.middle
                sums = add_decision(where, sums, decision.answered)
                # The order of what is learned is that of a program: the abstention, in ``decide``; then an answer
                # that expires, before the next feedback is read; then the feedback. Bits depend on it.
                if not decision.answered:
                    weight = learned_share(where, sums)
                    own = parameters_after(sums.learned - before, rates, copies, b, weight)
                    learn(numbers, table, cut, decision, 0.0, own)
                    sums = add_abstention(where, sums, True, weight)
                # Delay: one of ``delay + 1`` slots is drawn. The question that waits there is due now and replaced
                # by the new one. So each question waits a geometric time, with mean ``delay``. In the last slot the
                # new question itself is due.
                slot = int(delays[i, draw] * slots.size)
                due = slots[slot] if slot < slots.size - 1 else n
                slots[slot] = n
                place, due_place = (n % pending.shape[0], due % pending.shape[0]) if remembers else (slot, slot)
                status, feedback_error = draw_feedback(where, error, u, model)
                if not decision.answered:  # nothing of the error may be kept
                    status, feedback_error = CLOSED, 0.0
                kept = decision.probability, float(decision.arm), decision.weight
                new = PendingAnswer(status, feedback_error, float(cut), *kept)
                answer = new if due == n else _read_pending(pending[due_place], 0)
                _write_pending(pending[place], 0, new)
                if remembers and n >= expires:
                    old_place = (n - expires) % pending.shape[0]
                    old = _read_pending(pending[old_place], 0)
                    if old.status != CLOSED:
                        pending[old_place, 0] = CLOSED
                        sums = close_answer(where, sums, True)
                        if model.imputed >= 0.0:
                            parameters_now = parameters_after(sums.learned - before, rates, copies, b, 1.0)
                            learn_pending(numbers, table, old, model.imputed, parameters_now)
                            sums = add_answer(where, sums, True, False, model.imputed)
                if answer.status == WITH_FEEDBACK and due >= 0 and n - due < expires:
                    parameters_now = parameters_after(sums.learned - before, rates, copies, b, 1.0)
                    learn_pending(numbers, table, answer, answer.error, parameters_now)
                    sums = add_answer(where, close_answer(where, sums, True), True, True, answer.error)
                    if remembers:
                        pending[due_place, 0] = CLOSED
            tally.answered[b], tally.wrong[b] = answered, wrong
            write_sums(state.sums[b], 0, sums)

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
    perfect, remembers = feedback_rates is None, how.remembers_questions
    horizon = 0 if feedback_rates is None else ROUNDS * len(feedback_rates.eta)

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

        more = how.parameters(), perfect, remembers, how.reserve, tally, outcome_arrays(outcome)

        def simulate_part(first: int, last: int) -> None:
            loop(first, last, state, records, of_rounds, copies, *more)

        return run_in_parts(len(state.numbers), PART, simulate_part)

    def init(arms: int, start: Start, streams: int) -> OnlineState:
        count = len(start.best)
        states = zip(*start.state, strict=True) if start.state else [()] * count
        copies = [one.start(arms, state, start.counts) for state in states]
        return OnlineState(
            np.array([numbers for numbers, _ in copies]),
            np.array([table for _, table in copies]),
            np.full((count, how.delay + 1), -1, np.int64),
            # An empty place reads as CLOSED, 0.0, which is never learned.
            np.zeros((count, how.places(horizon), len(PendingAnswer._fields))),
            np.zeros((count, len(FeedbackSums._fields))),
        )

    def restore(state: OnlineState, tree: Any) -> OnlineState:
        return OnlineState(*tree)

    return NativeBackend(init, simulate, middles=one.middles, restore=restore)
