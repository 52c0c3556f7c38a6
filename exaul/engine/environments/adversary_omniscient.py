"""``adversary-omniscient``: an adversary that sees the learner's distribution and orders the records.

It has as many records as a trial has rounds (or all, if fewer), and asks each once before it repeats any, so that
it controls their order only: an adversary that may repeat one wrong record forever would test nothing.
``objective`` chooses the next record:

- ``trust``: first make the score look reliable, then misleading. Wrong records come as often as at random. In some
  rounds the adversary asks the lowest score among the remaining wrong records, or the highest among the right ones;
  in the others it draws at random. The share of random rounds is ``chance`` if the score separates right from wrong
  perfectly, and 1 if it does not separate them at all.
- ``risk``: maximise the expected FDR risk, ``P (e - alpha)``.
- ``regret``: maximise the expected regret against the best fixed arm so far.

With ``risk`` and ``regret``, ``patience`` saves records for later: this share of the gain at the learner's average
distribution (which forgets at the rate ``memory``) is subtracted from the gain now. A greedy adversary spends its
wrong records at once, so most learners end with less FDR risk than in random order; with ``trust`` they do not.
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

WRONG = 0.5  # errors from here on count as wrong


class OmniscientState(NamedTuple):
    """Remaining records, and statistics of the past rounds."""

    left: Any  # [N], remaining count of each record
    count: Any  # [H], number of rounds with each cut
    wrong: Any  # [H], sum of their errors
    usual: Any  # [H], mean probability of answering a record whose cut is k + 1
    separation: Any  # [] in [0, 1], max(0, 2 AUC - 1) of the score as a classifier of right answers


class OmniscientQuery(NamedTuple):
    """Note from ``ask`` to ``see``."""

    record: Any  # [] int32
    answers: Any  # [H], the learner's probability of answering, as ``usual``
    memory: Any  # []
    counts: Any  # [N], ``AdaptivePool.counts``


def init(pool: AdaptivePool) -> OmniscientState:
    """Start with all records and a learner whose arms are equally likely."""
    arms = pool.grid.shape[0]
    usual, nothing = jnp.arange(1, arms + 1) / arms, jnp.zeros(arms)
    return OmniscientState(jnp.asarray(pool.counts), nothing, nothing, usual, _score_separation(pool))


def _score_separation(pool: AdaptivePool) -> Any:
    # AUC by cut: the share of (right, wrong) pairs in which the right record has the higher score
    count, wrong = jnp.asarray(pool.counts).astype(jnp.float64), jnp.asarray(pool.errors) >= WRONG
    nothing = jnp.zeros(pool.grid.shape[0])
    right, lower = (nothing.at[pool.cuts].add(jnp.where(chosen, count, 0.0)) for chosen in (~wrong, wrong))
    pairs = jnp.sum(right) * jnp.sum(lower)
    ordered = jnp.sum(right * (jnp.cumsum(lower) - lower / 2))  # ties count half
    return jnp.maximum(2 * ordered / jnp.maximum(pairs, 1.0) - 1, 0.0)


def risk(state: OmniscientState, cut: Any, error: Any, P: Any, objective: Objective) -> Any:
    """Return the expected FDR risk [N] of each record; P [N] is the probability of answering it."""
    return P * (error - objective.alpha)


def regret(state: OmniscientState, cut: Any, error: Any, P: Any, objective: Objective) -> Any:
    """Return the expected regret [N] of each record against the best fixed arm so far (eq. 3); P as in ``risk``."""
    # Arm k abstains on the cuts up to k and answers the others.
    abstained = jnp.cumsum(state.count)
    missed = jnp.sum(state.wrong) - jnp.cumsum(state.wrong)
    best = jnp.argmin(objective.answer_cost * missed + objective.abstain_cost * abstained).astype(cut.dtype)
    fixed = jnp.where(best < cut, objective.answer_cost * error, objective.abstain_cost)
    return P * objective.answer_cost * error + (1 - P) * objective.abstain_cost - fixed


def ask(state: OmniscientState, pool: AdaptivePool, objective: Objective, draws: Any, masses: Any) -> AskedRecord:
    """Choose a remaining record by the objective."""
    cut, error = jnp.asarray(pool.cuts), jnp.asarray(pool.errors)
    answers = jnp.minimum(jnp.cumsum(masses), 1)  # index k: cut k + 1; rounding can push the sum above 1
    _, chance, patience, memory = objective.tunable_values

    def trust() -> Any:
        wrong = error >= WRONG
        share = jnp.sum(jnp.where(wrong, state.left, 0)) / jnp.sum(state.left)
        left = jnp.where(wrong == (draws[0] < share), state.left, 0)
        # lowest score if wrong, highest if right; spent records get a key below all others, as cut < H
        first = jnp.where(wrong, -cut, cut)
        worst = jnp.argmax(jnp.where(left > 0, first, -pool.grid.shape[0]))
        any_of_them = draw_index(left.astype(jnp.float64), draws[2])
        return jnp.where(draws[1] < 1 - (1 - chance) * state.separation, any_of_them, worst.astype(jnp.int32))

    def by(gain: Any) -> Any:
        def greedy() -> Any:
            # objective's gain now, and at the learner's average distribution
            now, usually = (gain(state, cut, error, P[cut - 1], objective) for P in (answers, state.usual))
            worth = now - patience * usually
            return jnp.argmax(jnp.where(state.left > 0, worth, -jnp.inf)).astype(jnp.int32)

        return greedy

    # ``choices`` is not batched, so this stays a branch under vmap: only one objective is computed
    record = lax.switch(objective.choices[0], [trust, by(risk), by(regret)])
    return AskedRecord(
        cut[record], error[record], OmniscientQuery(record, answers, memory, jnp.asarray(pool.counts))
    )


def see(state: OmniscientState, question: AskedRecord, answered: Any) -> OmniscientState:
    """Remove the record, refill the pool if it is empty, and update the statistics."""
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
    sources=2,
    draws=3,
    init=init,
    ask=ask,
    see=see,
    tunables=(
        word_tunable("objective", "trust", "risk", "regret"),
        Tunable("chance", 0.7, 0.0, 1.0),
        Tunable("patience", 0.0, 0.0, 1.0),
        Tunable("memory", 0.01, 0.001, 0.5),
    ),
    sees="all scores and labels, the decisions, and the learner's distribution over thresholds",
    sees_masses=True,
    uses_records_once=True,
)
