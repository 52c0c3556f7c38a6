"""``adversary-omniscient``: it sees the learner's distribution, and plays the records in the worst order.

It has as many records as a trial has rounds, or all there are, and a record that was played is spent until all are.
So it chooses the order, and nothing else: who may repeat one wrong record for ever plays no game. Of the records
that are left it plays the one with the largest expected gain: of the FDR risk, ``P (e - alpha)``, or of the regret
against the fixed arm that is best so far. A record can wait for a better moment, and ``patience`` looks ahead so:
it subtracts that share of what the record would gain from the learner as it usually is, by a mean that forgets at
the rate ``memory``. Then it asks for wrong answers when the learner answers more than usual, else for right ones.

``adversary-omniscient-patient`` is the one that the search for the worst case found against ``exaul``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from engine.environments.adaptive import Adaptive, Aim, Question, Tunable, World


class State(NamedTuple):
    """What the adversary keeps."""

    left: Any  # [N, B], how often each record is left
    count: Any  # [H, B], rounds by cut
    wrong: Any  # [H, B], their errors
    usual: Any  # [H, B], probability of answering each cut, in the mean


def init(world: World, copies: int) -> State:
    """No record is spent, nothing was asked, and all arms are equally likely."""
    arms, records = world.grid.shape[0], world.count.shape[0]
    usual = jnp.broadcast_to(jnp.arange(1, arms + 1)[:, None] / arms, (arms, copies))
    left = jnp.broadcast_to(jnp.asarray(world.count)[:, None], (records, copies))
    return State(left, jnp.zeros((arms, copies)), jnp.zeros((arms, copies)), usual)


def _risk(state: State, cut: Any, error: Any, P: Any, aim: Aim) -> Any:
    return P * (error - aim.alpha[None])


def _regret(state: State, cut: Any, error: Any, P: Any, aim: Aim) -> Any:
    abstained = jnp.cumsum(state.count, axis=0)
    missed = jnp.sum(state.wrong, axis=0, keepdims=True) - jnp.cumsum(state.wrong, axis=0)
    best = jnp.argmin(aim.answer[None] * missed + aim.abstain[None] * abstained, axis=0).astype(cut.dtype)
    fixed = jnp.where(best[None] < cut, aim.answer[None] * error, aim.abstain[None])
    return P * aim.answer[None] * error + (1 - P) * aim.abstain[None] - fixed


def _asker(gain: Callable) -> Callable:
    def ask(state: State, world: World, aim: Aim, draws: Any, masses: Any) -> Question:
        """The record that is left and worth most."""
        cut, error = jnp.asarray(world.cuts), jnp.asarray(world.errors)
        answers = jnp.minimum(jnp.cumsum(masses, axis=0), 1)
        now, usually = (gain(state, cut[:, None], error[:, None], P[cut - 1], aim) for P in (answers, state.usual))
        worth = now - aim.tuning[:1] * usually
        record = jnp.argmax(jnp.where(state.left > 0, worth, -jnp.inf), axis=0)
        return Question(cut[record], error[record], (record, answers))

    return ask


def see(state: State, world: World, aim: Aim, question: Question, answered: Any) -> State:
    """Spend the record, all return once none is left; count it by its cut."""
    record, answers = question.about
    lanes = jnp.arange(record.size)
    left = state.left.at[record, lanes].add(-1)
    return State(
        jnp.where(jnp.any(left > 0, axis=0, keepdims=True), left, jnp.asarray(world.count)[:, None]),
        state.count.at[question.cut, lanes].add(1.0),
        state.wrong.at[question.cut, lanes].add(question.error),
        state.usual + aim.tuning[1:2] * (answers - state.usual),
    )


def _adversary(gain: Callable, patience: float = 0.0, memory: float = 0.01) -> Adaptive:
    tunables = Tunable("patience", patience, 0.0, 1.0), Tunable("memory", memory, 0.001, 0.5)
    return Adaptive(2, 0, init, _asker(gain), see, tunables, sees_masses=True, spends=True)


adversary_omniscient = _adversary(_risk)
adversary_omniscient_patient = _adversary(_risk, patience=0.65, memory=0.003)
adversary_omniscient_regret = _adversary(_regret)
