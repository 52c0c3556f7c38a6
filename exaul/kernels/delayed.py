"""A learner of one game with imperfect feedback: a round may be learned some rounds after it is decided.

It computes the game of an ``Abstainer`` whose feedback comes as drawn, for one copy, in any environment.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

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
from exaul.kernels.game import BLOCK, ImperfectFeedback, Rates, RuleParams, Start
from exaul.kernels.play import Backend, Decision, reweigh
from exaul.kernels.uniforms import Draws


class DelayedState(NamedTuple):
    """The state of a copy."""

    inner: Any  # state of the learner inside
    rates_block: Any  # [] int32, the block whose rates the current 256 questions have
    slots: Any  # [delay + 1] int32, the number of the question in each slot, or -1
    # [P] each, by slot, or by question modulo P: status, error of the feedback, cut, ``Decision.residuals``
    pending: tuple[Any, ...]
    sums: FeedbackSums  # [] each


def make_delayed(inner: Backend, feedback: Feedback, feedback_rates: Rates) -> Backend:
    """Make the backend of a bandit learner with imperfect feedback from ``inner``, that with immediate feedback.

    It needs the draws of all three streams. ``feedback_rates`` are the rates [K] of all blocks of the horizon.
    Each 256 questions use the rates of the block that the number of learned rounds, not of questions, has reached.
    """
    capacity = feedback.capacity(BLOCK * len(feedback_rates.eta))
    settings = feedback.delay, capacity, feedback.reserve, feedback.missing != "skip", feedback.remembers_questions
    # NumPy's numbers stay float64; this may run before JAX is set to 64 bits.
    parameters = jax.tree.map(np.float64, feedback.parameters())
    imperfect = ImperfectFeedback(feedback_rates, parameters)
    return Backend(lambda arms: DelayedLearner(inner.make(arms), *settings), imperfect)


def _rates(state: DelayedState, params: RuleParams) -> RuleParams:
    """Return the copy's numbers at the rates of the current 256 questions."""
    assert params.imperfect is not None
    eta, gamma = (rate[state.rates_block] for rate in params.imperfect.rates)
    return params._replace(eta=eta * params.eta, gamma=gamma * params.gamma)


@jax.tree_util.register_static
@dataclass(frozen=True)
class DelayedLearner:
    """A learner whose rounds are learned late, or never.

    One compiled program serves all rates and probabilities, which are in ``params``.
    """

    inner: Any
    delay: int  # mean, in questions
    capacity: int  # P
    reserve: bool  # whether an open answer counts as wrong in every decision
    imputes: bool  # whether an answer that expires is learned
    remembers: bool  # whether an answer without feedback is remembered until it expires

    def init(self, start: Start) -> DelayedState:
        """Return the state before round 1."""
        inner, zero, cut = self.inner.init(start), jnp.zeros(()), jnp.ones((), jnp.int32)
        params = RuleParams(zero + 1, zero, zero, zero, zero)
        residuals = jax.eval_shape(lambda: self.inner.decide(inner, params, cut, zero)[1].residuals)
        # An empty slot reads as CLOSED, 0.0, which is never learned.
        pending = tuple(jnp.zeros(self.capacity, x.dtype) for x in (zero, zero, cut, *residuals))
        sums = FeedbackSums(*(jnp.zeros(()) for _ in FeedbackSums._fields))
        return DelayedState(inner, jnp.int32(0), jnp.full(self.delay + 1, -1, jnp.int32), pending, sums)

    def reweigh(self, state: DelayedState, params: RuleParams) -> DelayedState:
        """Return the state at the rates of the next 256 questions."""
        assert params.imperfect is not None
        # The round to be learned next is number learned + 1, in block learned // 256, from 0.
        block = jnp.minimum(state.sums.learned.astype(jnp.int32) // BLOCK, len(params.imperfect.rates.eta) - 1)
        state = state._replace(rates_block=block)
        return state._replace(inner=reweigh(self.inner, state.inner, _rates(state, params)))

    def decide(
        self, state: DelayedState, params: RuleParams, cut: Any, draws: Draws
    ) -> tuple[DelayedState, Decision]:
        """Decide like the inner learner; ``draws`` include those of the feedback."""
        waiting = state.sums.open if self.reserve else None
        inner, decision = self.inner.decide(state.inner, _rates(state, params), cut, draws.decision, waiting)
        return state._replace(inner=inner), decision._replace(residuals=(decision.residuals, draws))

    def learn(
        self, state: DelayedState, params: RuleParams, cut: Any, decision: Decision, error: Any, weight: Any = 1.0
    ) -> DelayedState:
        """Return the state after a round; one of weight 0 that was not answered is padding, and changes nothing."""
        residuals, draws = decision.residuals
        assert params.imperfect is not None
        delay, parameters, n = self.delay, params.imperfect.parameters, state.sums.questions.astype(jnp.int32)
        expires, active = parameters.expires.astype(jnp.int32), decision.answer | (weight > 0)
        status, feedback_error = draw_feedback(jnp.where, error, draws.feedback, parameters)
        # the error of an abstention must not be stored
        status = jnp.where(decision.answer, status, CLOSED)
        feedback_error = jnp.where(decision.answer, feedback_error, 0.0)
        new = tuple(  # in the dtypes of the stored ones, since a scan's carry must keep its types
            jnp.asarray(value).astype(values.dtype)
            for values, value in zip(state.pending, (status, feedback_error, cut, *residuals), strict=True)
        )
        sums = add_decision(jnp.where, state.sums, decision.answer)
        sums = jax.tree.map(partial(jnp.where, active), sums, state.sums)
        # Padding uses the last slot, which is written but never read, so that it changes no open answer.
        slot = jnp.where(active, (draws.delay * (delay + 1)).astype(jnp.int32), delay)
        due = jnp.where(slot == delay, n, state.slots[slot])  # in the last slot, the new answer itself is due
        index, due_index = (n % self.capacity, due % self.capacity) if self.remembers else (slot, slot)
        answer = tuple(
            jnp.where(due == n, value, values[due_index]) for values, value in zip(state.pending, new, strict=True)
        )
        pending = tuple(values.at[index].set(value) for values, value in zip(state.pending, new, strict=True))
        state = state._replace(slots=state.slots.at[slot].set(n), pending=pending, sums=sums)

        # Results depend on the order of learning, the same as in an ``Abstainer``: the abstention (in its
        # ``decide``); then an answer that expires, before the next feedback is read; then the feedback.
        abstained, share = active & ~decision.answer, learned_share(jnp.where, sums)
        abstention = Decision(jnp.zeros((), bool), jnp.zeros(()), residuals)
        abstained_weight = jnp.where(abstained, share, 0.0)
        inner = self.inner.learn(state.inner, _rates(state, params), cut, abstention, error, abstained_weight)
        state = state._replace(inner=inner, sums=add_abstention(jnp.where, sums, abstained, share))
        has_feedback = active & (answer[0] == WITH_FEEDBACK) & (due >= 0) & (n - due < expires)
        if self.remembers:
            old_index = (n - expires) % self.capacity
            expired = tuple(values[old_index] for values in state.pending)
            is_expired = active & (n >= expires) & (expired[0] != CLOSED)
            state = state._replace(pending=_closed(state.pending, old_index, is_expired))
            if self.imputes:
                state = self._learn_pending(state, params, expired, parameters.imputed, is_expired, False)
            else:
                state = state._replace(sums=close_answer(jnp.where, state.sums, is_expired))
            state = state._replace(pending=_closed(state.pending, due_index, has_feedback))
        return self._learn_pending(state, params, answer, answer[1], has_feedback, True)

    def _learn_pending(
        self, state: DelayedState, params: RuleParams, answer: tuple[Any, ...], error: Any, due: Any, observed: bool
    ) -> DelayedState:
        """Learn a pending answer and close it, if ``due``; ``observed`` says whether its error is feedback."""
        _, _, cut, *residuals = answer
        sums = close_answer(jnp.where, state.sums, due)
        decision = Decision(due, jnp.zeros(()), tuple(residuals))
        inner = self.inner.learn(state.inner, _rates(state, params), cut, decision, error, 0.0)
        return state._replace(inner=inner, sums=add_answer(jnp.where, sums, due, observed, error))

    def distribution(self, state: DelayedState, params: RuleParams) -> Any:
        """Return the probabilities of the arms [H]."""
        return self.inner.distribution(state.inner, _rates(state, params))


def _closed(pending: tuple[Any, ...], index: Any, closes: Any) -> tuple[Any, ...]:
    """Return the pending answers, with the one at ``index`` closed if ``closes``."""
    status, *fields = pending
    return (status.at[index].set(jnp.where(closes, CLOSED, status[index])), *fields)
