"""Imperfect feedback around ``rows`` or ``dense``, in JAX: ``learn`` runs some rounds after its ``decide``.

It computes the game of an ``Abstainer`` whose feedback comes as drawn, for one copy, in any environment.
"""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from exaul.kernels.backends.backend import Backend, Decision, Halves, backend_of_halves
from exaul.kernels.feedback import (
    CLOSED,
    WITH_FEEDBACK,
    Feedback,
    FeedbackSums,
    add_abstention,
    add_answer,
    add_decision,
    close_answer,
    draw_feedback,
    learned_share,
)
from exaul.kernels.game import ROUNDS, Block, ImperfectFeedback, Parameters, Rates, SharedParameters, Start
from exaul.kernels.uniforms import Draws


class DelayedState(NamedTuple):
    """The state of a copy."""

    inner: Any  # state, or within a block carry, of the backend inside
    block: Any  # [] int32, of the rates of the current 256 questions
    slots: Any  # [delay + 1] int32, the number of the question in each slot, or -1
    # [P] each, by slot, or by question modulo P: status, error of the feedback, cut, ``Decision.kept``
    pending: tuple[Any, ...]
    sums: FeedbackSums  # [] each


def make(inner: Backend, feedback: Feedback, feedback_rates: Rates) -> Backend:
    """Make the backend of a learner with bandit feedback. It needs the draws of all three streams.

    Args:
        inner: its backend with immediate feedback, which has halves.
        feedback: the model of the feedback.
        feedback_rates: the rates [K] of all blocks of the horizon. Those of a block of 256 questions are the rates
            of the number of rounds learned at its start, not of the number of questions.
    """
    horizon = ROUNDS * len(feedback_rates.eta)
    how = feedback.delay, feedback.places(horizon), feedback.reserve, feedback.missing != "skip"
    # NumPy's numbers stay float64; this may run before JAX is set to 64 bits.
    model = jax.tree.map(np.float64, feedback.parameters())
    imperfect = ImperfectFeedback(feedback_rates, model)
    return _make(inner, *how, feedback.remembers_questions)._replace(shared=SharedParameters(imperfect=imperfect))


@cache  # by the static arguments: one program serves all rates and probabilities, which are traced
def _make(inner: Backend, delay: int, places: int, reserve: bool, imputes: bool, remembers: bool) -> Backend:
    assert inner.halves is not None
    halves = _halves(delay, reserve, imputes, remembers, inner.halves)
    return backend_of_halves(partial(_init, inner, delay, places), halves)


def _init(inner: Backend, delay: int, places: int, arms: int, start: Start) -> DelayedState:
    assert inner.halves is not None
    copy, nothing = inner.init(arms, start), jnp.zeros(())
    no_round = Block(jnp.ones((), jnp.int32), nothing, Draws(nothing), jnp.asarray(True))
    of = Parameters(1.0, 0.0, nothing, nothing, nothing)
    # Decide a dummy round to find the number and the dtypes of the values in ``Decision.kept``.
    _, first = inner.halves.decide(inner.halves.begin(copy, of), no_round, of, None)
    kept = nothing, nothing, no_round.cuts, *first.kept
    # An empty place reads as CLOSED, 0.0, which is never learned.
    pending = tuple(jnp.zeros(places, jnp.asarray(x).dtype) for x in kept)
    sums = FeedbackSums(*(jnp.zeros(()) for _ in FeedbackSums._fields))
    return DelayedState(copy, jnp.int32(0), jnp.full(delay + 1, -1, jnp.int32), pending, sums)


def _halves(delay: int, reserve: bool, imputes: bool, remembers: bool, of: Halves) -> Halves:
    """Make the halves of a step with imperfect feedback, from those of the backend inside.

    A step learns its own abstention, then an answer that expires, then the answer whose feedback is due.
    """

    def rates(state: DelayedState, parameters: Parameters) -> Parameters:
        imperfect = parameters.shared.imperfect
        assert imperfect is not None
        eta, gamma = (rate[state.block] for rate in imperfect.rates)
        return parameters._replace(eta=eta * parameters.eta, gamma=gamma * parameters.gamma)

    def learn_pending(
        state: DelayedState, answer: tuple[Any, ...], x: Block, error: Any, parameters: Parameters, observed: bool
    ) -> DelayedState:
        """Learn a pending answer if ``x.active``, and close it; ``observed`` says whether its error is feedback."""
        _, _, cut, *kept = answer
        decision = Decision(x.active, jnp.zeros_like(error), tuple(kept))
        sums = close_answer(jnp.where, state.sums, x.active)
        pending = Block(cut, error, x.draws, x.active)
        copy, _ = of.learn(state.inner, pending, decision, rates(state, parameters))
        return state._replace(inner=copy, sums=add_answer(jnp.where, sums, x.active, observed, error))

    def decide(
        state: DelayedState, x: Block, parameters: Parameters, waiting: Any
    ) -> tuple[DelayedState, Decision]:
        copy, decision = of.decide(state.inner, x, rates(state, parameters), state.sums.open if reserve else None)
        return state._replace(inner=copy), decision

    def learn(
        state: DelayedState, x: Block, decision: Decision, parameters: Parameters
    ) -> tuple[DelayedState, Any]:
        coin, when, imperfect = x.draws.feedback, x.draws.delay, parameters.shared.imperfect
        assert imperfect is not None
        model, n = imperfect.feedback, state.sums.questions.astype(jnp.int32)
        expires = model.expires.astype(jnp.int32)
        status, feedback_error = draw_feedback(jnp.where, x.errors, coin, model)
        shown = decision.answered & x.active
        # nothing of the error of an abstention may be kept
        status, feedback_error = jnp.where(shown, status, CLOSED), jnp.where(shown, feedback_error, 0.0)
        new = tuple(  # in the dtypes of the places, since a scan's carry must keep its types
            jnp.asarray(value).astype(values.dtype)
            for values, value in zip(state.pending, (status, feedback_error, x.cuts, *decision.kept), strict=True)
        )
        sums = add_decision(jnp.where, state.sums, decision.answered)
        sums = jax.tree.map(partial(jnp.where, x.active), sums, state.sums)
        # Inactive rounds use the last slot, which is written but never read, and so change no open answer.
        slot = jnp.where(x.active, (when * (delay + 1)).astype(jnp.int32), delay)
        due = jnp.where(slot == delay, n, state.slots[slot])  # in the last slot, the new answer itself is due
        many = state.pending[0].size
        place, due_place = (n % many, due % many) if remembers else (slot, slot)
        answer = tuple(
            jnp.where(due == n, value, values[due_place]) for values, value in zip(state.pending, new, strict=True)
        )
        pending = tuple(values.at[place].set(value) for values, value in zip(state.pending, new, strict=True))
        state = state._replace(slots=state.slots.at[slot].set(n), pending=pending, sums=sums)

        # The order of what is learned is that of a program, on which results depend: the abstention, in ``decide``;
        # then an answer that expires, before the next feedback is read; then the feedback.
        abstained, weight = x.active & ~decision.answered, learned_share(jnp.where, sums)
        own = rates(state, parameters)._replace(weight=weight)
        copy, _ = of.learn(state.inner, x._replace(active=abstained), decision, own)
        state = state._replace(inner=copy, sums=add_abstention(jnp.where, sums, abstained, weight))
        if remembers:
            old_place = (n - expires) % many
            old = tuple(values[old_place] for values in state.pending)
            ends = x.active & (n >= expires) & (old[0] != CLOSED)
            state = state._replace(pending=_closed(state.pending, old_place, ends))
            if imputes:
                state = learn_pending(state, old, x._replace(active=ends), model.imputed, parameters, False)
            else:
                state = state._replace(sums=close_answer(jnp.where, state.sums, ends))
        comes = x.active & (answer[0] == WITH_FEEDBACK) & (due >= 0) & (n - due < expires)
        if remembers:
            state = state._replace(pending=_closed(state.pending, due_place, comes))
        return learn_pending(state, answer, x._replace(active=comes), answer[1], parameters, True), ()

    def begin(state: DelayedState, parameters: Parameters) -> DelayedState:
        imperfect = parameters.shared.imperfect
        assert imperfect is not None
        # The round to be learned next is number learned + 1, in block learned // 256, from 0.
        block = jnp.minimum(state.sums.learned.astype(jnp.int32) // ROUNDS, len(imperfect.rates.eta) - 1)
        state = state._replace(block=block)
        return state._replace(inner=of.begin(state.inner, rates(state, parameters)))

    def end(state: DelayedState, carry: DelayedState, changes: Any) -> DelayedState:
        return carry._replace(inner=of.end(state.inner, carry.inner, ()))

    def masses(carry: DelayedState, parameters: Parameters, arms: int) -> jax.Array:
        found: jax.Array = of.masses(carry.inner, rates(carry, parameters), arms)
        return found

    return Halves(begin, decide, learn, end, masses)


def _closed(pending: tuple[Any, ...], place: Any, closes: Any) -> tuple[Any, ...]:
    """Return the pending answers, with the one at a place closed if ``closes``."""
    status, *rest = pending
    return (status.at[place].set(jnp.where(closes, CLOSED, status[place])), *rest)
