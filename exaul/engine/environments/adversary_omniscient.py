"""``adversary-omniscient``: it sees the learner's distribution, and plays the records in the worst order.

It has as many records as a trial has rounds, or all there are, and a record that was played is spent until all are.
So it chooses the order, and nothing else: an adversary that may repeat one wrong record for ever plays no game. Its
``objective`` is one of

- ``trust``: the score is made to be trusted, and then betrays. A wrong answer comes as often as chance would have
  it. In some rounds it is the one with the lowest score of the wrong ones that are left, and a right one is that
  with the highest; in the others it is any of them. These are a share ``chance`` of the rounds if the score tells
  right from wrong, and all of them if it tells nothing, for then there is no trust to betray.
- ``risk``: the record with the largest expected gain of the FDR risk, ``P (e - alpha)``.
- ``regret``: the same of the regret, against the fixed arm that is best so far.

With the last two a record can wait for a better moment: ``patience`` is the share that is subtracted of what the
record would gain from the learner as it usually is, by a mean that forgets at the rate ``memory``. Greed spends its
wrong answers at once, and most learners end with less FDR risk than in random order; trust does not.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from exaul.engine.environments.adaptive import (
    Adaptive,
    AdaptivePool,
    AskedRecord,
    Objective,
    Tunable,
    draw_index,
    word_tunable,
)

WRONG = 0.5  # an answer of this error, or more


class OmniscientState(NamedTuple):
    """What the adversary knows of the past."""

    left: Any  # [N], how often each record is left
    count: Any  # [H], rounds by cut
    wrong: Any  # [H], their errors
    usual: Any  # [H], probability of answering each cut, in the mean
    separation: Any  # [] in [0, 1], how well the score tells right from wrong: 2 AUC - 1, or 0 if that is negative


class OmniscientQuery(NamedTuple):
    """What ``see`` has to know of a question."""

    record: Any  # []
    answers: Any  # [H], the learner's probability of answering each cut
    memory: Any  # []
    counts: Any  # [N], how often each record is there


def init(pool: AdaptivePool) -> OmniscientState:
    """No record is spent, nothing was asked, and all arms are equally likely."""
    arms = pool.grid.shape[0]
    usual, nothing = jnp.arange(1, arms + 1) / arms, jnp.zeros(arms)
    return OmniscientState(jnp.asarray(pool.counts), nothing, nothing, usual, _score_separation(pool))


def _score_separation(pool: AdaptivePool) -> Any:
    count, wrong = jnp.asarray(pool.counts).astype(jnp.float64), jnp.asarray(pool.errors) >= WRONG
    nothing = jnp.zeros(pool.grid.shape[0])
    right, lower = (nothing.at[pool.cuts].add(jnp.where(here, count, 0.0)) for here in (~wrong, wrong))
    pairs = jnp.sum(right) * jnp.sum(lower)
    ordered = jnp.sum(right * (jnp.cumsum(lower) - lower / 2))  # a right answer above a wrong one; a tie is half
    return jnp.maximum(2 * ordered / jnp.maximum(pairs, 1.0) - 1, 0.0)


def risk(state: OmniscientState, cut: Any, error: Any, P: Any, objective: Objective) -> Any:
    """Expected FDR risk [N] of asking each record, from the probability P of answering it."""
    return P * (error - objective.alpha)


def regret(state: OmniscientState, cut: Any, error: Any, P: Any, objective: Objective) -> Any:
    """Expected regret [N] of asking each record, against the fixed arm that is best so far."""
    abstained = jnp.cumsum(state.count)
    missed = jnp.sum(state.wrong) - jnp.cumsum(state.wrong)
    best = jnp.argmin(objective.answer_cost * missed + objective.abstain_cost * abstained).astype(cut.dtype)
    fixed = jnp.where(best < cut, objective.answer_cost * error, objective.abstain_cost)
    return P * objective.answer_cost * error + (1 - P) * objective.abstain_cost - fixed


def ask(state: OmniscientState, pool: AdaptivePool, objective: Objective, draws: Any, masses: Any) -> AskedRecord:
    """A record that is left, by the objective."""
    cut, error = jnp.asarray(pool.cuts), jnp.asarray(pool.errors)
    answers = jnp.minimum(jnp.cumsum(masses), 1)
    _, chance, patience, memory = objective.tunable_values

    def trust() -> Any:
        wrong = error >= WRONG
        share = jnp.sum(jnp.where(wrong, state.left, 0)) / jnp.sum(state.left)
        left = jnp.where(wrong == (draws[0] < share), state.left, 0)
        first = jnp.where(wrong, -cut, cut)
        worst = jnp.argmax(jnp.where(left > 0, first, -pool.grid.shape[0]))
        any_of_them = draw_index(left.astype(jnp.float64), draws[2])
        return jnp.where(draws[1] < 1 - (1 - chance) * state.separation, any_of_them, worst.astype(jnp.int32))

    def by(gain: Any) -> Any:
        def greedy() -> Any:
            now, usually = (gain(state, cut, error, P[cut - 1], objective) for P in (answers, state.usual))
            worth = now - patience * usually
            return jnp.argmax(jnp.where(state.left > 0, worth, -jnp.inf)).astype(jnp.int32)

        return greedy

    record = lax.switch(objective.choices[0], [trust, by(risk), by(regret)])
    return AskedRecord(
        cut[record], error[record], OmniscientQuery(record, answers, memory, jnp.asarray(pool.counts))
    )


def see(state: OmniscientState, question: AskedRecord, answered: Any) -> OmniscientState:
    """Spend the record, all return once none is left; count it by its cut."""
    note = question.note
    left = state.left.at[note.record].add(-1)
    return OmniscientState(
        jnp.where(jnp.any(left > 0), left, note.counts),
        state.count.at[question.cut].add(1.0),
        state.wrong.at[question.cut].add(question.error),
        state.usual + note.memory * (note.answers - state.usual),
        state.separation,
    )


adversary_omniscient = Adaptive(
    2,
    3,
    init,
    ask,
    see,
    (
        word_tunable("objective", "trust", "risk", "regret"),
        Tunable("chance", 0.7, 0.0, 1.0),
        Tunable("patience", 0.0, 0.0, 1.0),
        Tunable("memory", 0.01, 0.001, 0.5),
    ),
    sees="all scores and labels, the decisions, and the learner's distribution over thresholds",
    sees_masses=True,
    uses_records_once=True,
)
