"""``adversary-omniscient``: it sees the learner's distribution, and plays the records in the worst order.

It has as many records as a trial has rounds, or all there are, and a record that was played is spent until all are.
So it chooses the order, and nothing else: who may repeat one wrong record for ever plays no game. Of the records
that are left it plays the one with the largest expected gain: of the FDR risk, ``P (e - alpha)``, or of the regret
against the fixed arm that is best so far. ``patience`` looks ahead: it adds what the question will do to the
learner, whom a right answer withheld makes answer more, and a wrong answer given less.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from engine.environments.adaptive import Adaptive, Aim, Question, Tunable, World


def init(world: World, copies: int) -> tuple[Any, ...]:
    """How often each record is left [N, B], and what was asked: counts and error sums by cut [H, B]."""
    left = jnp.broadcast_to(jnp.asarray(world.count)[:, None], (world.count.shape[0], copies))
    arms = world.grid.shape[0]
    return left, jnp.zeros((arms, copies)), jnp.zeros((arms, copies))


def _risk(state: tuple, cut: Any, error: Any, P: Any, aim: Aim) -> Any:
    return P * (error - aim.alpha[None])


def _regret(state: tuple, cut: Any, error: Any, P: Any, aim: Aim) -> Any:
    _, count, wrong = state
    abstained = jnp.cumsum(count, axis=0)
    missed = jnp.sum(wrong, axis=0, keepdims=True) - jnp.cumsum(wrong, axis=0)
    best = jnp.argmin(aim.answer[None] * missed + aim.abstain[None] * abstained, axis=0).astype(cut.dtype)
    fixed = jnp.where(best[None] < cut, aim.answer[None] * error, aim.abstain[None])
    return P * aim.answer[None] * error + (1 - P) * aim.abstain[None] - fixed


def _asker(gain: Callable) -> Callable:
    def ask(state: tuple, world: World, aim: Aim, draws: Any, masses: Any) -> Question:
        cut, error = jnp.asarray(world.cuts), jnp.asarray(world.errors)
        P = jnp.minimum(jnp.cumsum(masses, axis=0)[cut - 1], 1)
        effect = aim.abstain[None] * (1 - P) - aim.answer[None] * error[:, None] * P
        worth = gain(state, cut[:, None], error[:, None], P, aim) + aim.tuning[:1] * effect
        record = jnp.argmax(jnp.where(state[0] > 0, worth, -jnp.inf), axis=0)
        return Question(cut[record], error[record], record)

    return ask


def see(state: tuple, world: World, aim: Aim, question: Question, answered: Any) -> tuple:
    """Spend the record, all return once none is left, and count it by its cut."""
    left, count, wrong = state
    lanes = jnp.arange(left.shape[1])
    left = left.at[question.about, lanes].add(-1)
    left = jnp.where(jnp.any(left > 0, axis=0, keepdims=True), left, jnp.asarray(world.count)[:, None])
    count = count.at[question.cut, lanes].add(1.0)
    return left, count, wrong.at[question.cut, lanes].add(question.error)


def _adversary(gain: Callable) -> Adaptive:
    patience = Tunable("patience", 0.0, 0.0, 3.0)
    return Adaptive(2, 0, init, _asker(gain), see, (patience,), sees_masses=True, spends=True)


adversary_omniscient = _adversary(_risk)
adversary_omniscient_regret = _adversary(_regret)
