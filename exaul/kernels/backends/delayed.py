"""The dense backend with imperfect feedback, in JAX: a round's ``learn`` runs some rounds after its ``decide``.

It computes the same game as ``online/copies.py``, for one copy, and supports adaptive environments.
"""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from exaul.kernels.backends import dense
from exaul.kernels.backends.backend import Backend, Decision, Halves, backend_of_halves
from exaul.kernels.feedback import (
    IMPUTED,
    OBSERVED,
    Feedback,
    FeedbackSums,
    add_abstention,
    add_decision,
    draw_feedback,
    learns_abstention,
    settle_answer,
)
from exaul.kernels.game import ROUNDS, Block, ImperfectFeedback, Parameters, Rates, SharedParameters
from exaul.kernels.learners.learner import Learner, Own
from exaul.kernels.uniforms import Draws


class DelayedState(NamedTuple):
    """The state of a copy."""

    inner: Any  # state, or within a block carry, of the dense backend
    pending: tuple[Any, ...]  # [delay + 1] each, by slot: kind, error to learn, cut, ``Decision.kept``
    sums: FeedbackSums  # [] each


def make(learner: Learner[Any], precision: str, feedback: Feedback, feedback_rates: Rates) -> Backend | None:
    """Make the backend of a learner with bandit feedback. It needs the draws of all three streams.

    Args:
        learner: with a rule of any type.
        precision: dtype of the weights and their sums.
        feedback: the model of the feedback.
        feedback_rates: the rates [K] of all blocks of the horizon. A round is learned with the rates of its number
            among the learned rounds, not of its own number.

    Returns:
        The backend, or None if the rule is ``Own``.
    """
    made = _make(learner, precision, feedback.delay, feedback.reserve)
    # A NumPy array stays float64; this may run before JAX is set to 64 bits.
    late = ImperfectFeedback(feedback_rates, np.asarray(feedback.parameters, np.float64))
    return None if made is None else made._replace(shared=SharedParameters(imperfect=late))


@cache  # by the static arguments: one program serves all rates and probabilities, which are traced
def _make(learner: Learner[Any], precision: str, delay: int, reserve: bool) -> Backend | None:
    inner = None if isinstance(learner.rule, Own) else dense.make(learner, precision)
    if inner is None:
        return None
    assert inner.halves is not None
    return backend_of_halves(partial(_init, inner, delay), _halves(delay, reserve, inner.halves))


def _init(inner: Backend, delay: int, arms: int, best: Any) -> DelayedState:
    assert inner.halves is not None
    copy, nothing = inner.init(arms, best), jnp.zeros(())
    no_round = Block(jnp.ones((), jnp.int32), nothing, Draws(nothing), jnp.asarray(True))
    of = Parameters(1.0, 0.0, nothing, nothing, nothing)
    # Decide a dummy round to find the number and the dtypes of the values in ``Decision.kept``.
    _, first = inner.halves.decide(inner.halves.begin(copy, of), no_round, of, None)
    kept = nothing, nothing, no_round.cuts, *first.kept
    slots = tuple(jnp.zeros(delay + 1, jnp.asarray(x).dtype) for x in kept)
    return DelayedState(copy, slots, FeedbackSums(*(jnp.zeros(()) for _ in FeedbackSums._fields)))


def _halves(delay: int, reserve: bool, of: Halves) -> Halves:
    """Make the halves of a step with imperfect feedback, from those of the dense backend.

    A step learns its own abstention, or the answer that is settled in it.
    """
    close = of.close

    def rates(state: DelayedState, parameters: Parameters) -> Parameters:
        late = parameters.shared.imperfect
        assert late is not None
        eta, gamma = late.rates
        # The round to be learned next is number learned + 1, in block learned // 256, from 0.
        block = jnp.minimum(state.sums.learned.astype(jnp.int32) // ROUNDS, len(eta) - 1)
        return parameters._replace(eta=eta[block], gamma=gamma[block])

    def learned(state: DelayedState, x: Block, decision: Decision, parameters: Parameters) -> DelayedState:
        """Learn a round if ``x.active``; the caller updates the sums."""
        copy, _ = of.learn(state.inner, x, decision, rates(state, parameters))
        # Blocks are counted in learned rounds, so a block may end anywhere within the engine's blocks.
        if close is not None:
            ends = x.active & ((state.sums.learned.astype(jnp.int32) + 1) % ROUNDS == 0)
            copy = jax.tree.map(partial(jnp.where, ends), close(copy), copy)
        return state._replace(inner=copy)

    def decide(
        state: DelayedState, x: Block, parameters: Parameters, waiting: Any
    ) -> tuple[DelayedState, Decision]:
        unsettled = state.sums.waiting if reserve else None
        copy, decision = of.decide(state.inner, x, rates(state, parameters), unsettled)
        return state._replace(inner=copy), decision

    def learn(
        state: DelayedState, x: Block, decision: Decision, parameters: Parameters
    ) -> tuple[DelayedState, Any]:
        coin, when, late = x.draws.feedback, x.draws.delay, parameters.shared.imperfect
        assert late is not None
        feedback = late.feedback
        kind, learned_error = draw_feedback(jnp.where, decision.answered, x.errors, coin, feedback)
        # Inactive rounds use the last slot, which is written but never read, and so change no open answer.
        slot = jnp.where(x.active, (when * (delay + 1)).astype(jnp.int32), delay)
        new = tuple(  # in the slots' dtypes, since a scan's carry must keep its types
            jnp.asarray(one).astype(all_.dtype)
            for all_, one in zip(state.pending, (kind, learned_error, x.cuts, *decision.kept), strict=True)
        )
        at_once = slot == delay
        # ``due`` reads the old slots; in the last slot, the new answer itself is due.
        due = (jnp.where(at_once, one, all_[slot]) for one, all_ in zip(new, state.pending, strict=True))
        due_kind, due_error, cut, *kept = due
        slots = tuple(all_.at[slot].set(one) for all_, one in zip(state.pending, new, strict=True))

        # The abstention is learned first, then the due answer: both may happen in one round, and the order counts.
        counts = x.active & ~decision.answered & learns_abstention(state.sums, coin, feedback)
        state = learned(state, x._replace(active=counts), decision, parameters)
        state = state._replace(sums=add_decision(jnp.where, add_abstention(jnp.where, state.sums, counts), kind))

        comes = x.active & ((due_kind == OBSERVED) | (due_kind == IMPUTED))
        answer = Decision(comes, jnp.zeros_like(due_error), tuple(kept))
        state = learned(state, Block(cut, due_error, x.draws, comes), answer, parameters)
        sums = settle_answer(jnp.where, state.sums, jnp.where(x.active, due_kind, 0.0), due_error)
        return state._replace(pending=slots, sums=sums), ()

    def begin(state: DelayedState, parameters: Parameters) -> DelayedState:
        return state._replace(inner=of.begin(state.inner, parameters))

    def end(state: DelayedState, carry: DelayedState, changes: Any) -> DelayedState:
        # A rule with ``close`` has ended its blocks in ``learned``.
        return carry if close is not None else carry._replace(inner=of.end(state.inner, carry.inner, ()))

    def masses(carry: DelayedState, parameters: Parameters, arms: int) -> jax.Array:
        found: jax.Array = of.masses(carry.inner, rates(carry, parameters), arms)
        return found

    return Halves(begin, decide, learn, end, masses)
