"""``adversary-omniscient``: it sees the learner's distribution, and plays the records in the worst order.

It has as many records as a trial has rounds, or all there are, and a record that was played is spent until all are.
So it chooses the order, and nothing else: an adversary that may repeat one wrong record for ever plays no game. Of
the records that are left it plays the one with the largest expected gain. The ``objective`` is to gain ``risk`` (of
the FDR, ``P (e - alpha)``) or ``regret`` (against the fixed arm that is best so far). A record can wait for a
better moment: ``patience`` is the share that is subtracted of what the record would gain from the learner as it
usually is, by a mean that forgets at the rate ``memory``. A patient adversary asks for wrong answers when the
learner answers more than usual, else for right ones.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from exaul.engine.environments.adaptive import Adaptive, Aim, Question, Tunable, World, choice


class State(NamedTuple):
    """What the adversary knows of the past."""

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


def risk(state: State, cut: Any, error: Any, P: Any, aim: Aim) -> Any:
    """Expected FDR risk [N, B] of asking each record, from the probability P of answering it."""
    return P * (error - aim.alpha[None])


def regret(state: State, cut: Any, error: Any, P: Any, aim: Aim) -> Any:
    """Expected regret [N, B] of asking each record, against the fixed arm that is best so far."""
    abstained = jnp.cumsum(state.count, axis=0)
    missed = jnp.sum(state.wrong, axis=0, keepdims=True) - jnp.cumsum(state.wrong, axis=0)
    best = jnp.argmin(aim.answer_cost[None] * missed + aim.abstain_cost[None] * abstained, axis=0).astype(cut.dtype)
    fixed = jnp.where(best[None] < cut, aim.answer_cost[None] * error, aim.abstain_cost[None])
    return P * aim.answer_cost[None] * error + (1 - P) * aim.abstain_cost[None] - fixed


OBJECTIVES = {"risk": risk, "regret": regret}


def ask(state: State, world: World, aim: Aim, draws: Any, masses: Any) -> Question:
    """The record that is left and worth most."""
    cut, error = jnp.asarray(world.cuts), jnp.asarray(world.errors)
    answers = jnp.minimum(jnp.cumsum(masses, axis=0), 1)

    def worth_by(gain: Any) -> Any:
        def worth() -> Any:
            each = (gain(state, cut[:, None], error[:, None], P[cut - 1], aim) for P in (answers, state.usual))
            now, usually = each
            return now - aim.tuning[1:2] * usually

        return worth

    objective = aim.tuning[0, 0].astype(jnp.int32)  # the same for all copies
    worth = lax.switch(objective, [worth_by(gain) for gain in OBJECTIVES.values()])
    record = jnp.argmax(jnp.where(state.left > 0, worth, -jnp.inf), axis=0)
    return Question(cut[record], error[record], (record, answers))


def see(state: State, world: World, aim: Aim, question: Question, answered: Any) -> State:
    """Spend the record, all return once none is left; count it by its cut."""
    record, answers = question.about
    lanes = jnp.arange(record.size)
    left = state.left.at[record, lanes].add(-1)
    return State(
        jnp.where(jnp.any(left > 0, axis=0, keepdims=True), left, jnp.asarray(world.count)[:, None]),
        state.count.at[question.cut, lanes].add(1.0),
        state.wrong.at[question.cut, lanes].add(question.error),
        state.usual + aim.tuning[2:3] * (answers - state.usual),
    )


adversary_omniscient = Adaptive(
    2,
    0,
    init,
    ask,
    see,
    (
        choice("objective", *OBJECTIVES),
        Tunable("patience", 0.0, 0.0, 1.0),
        Tunable("memory", 0.01, 0.001, 0.5),
    ),
    sees_masses=True,
    spends=True,
)
