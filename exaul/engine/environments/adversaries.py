"""Adversaries: the next question may depend on the learner's earlier decisions. They differ in what they know.

``always-wrong`` sees nothing; ``adversary-history`` sees what the paper's adversary sees; ``adversary-omniscient``
sees all but the learner's draws.
"""

from functools import partial
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
    draw_record,
    word_tunable,
)

# ``always-wrong``: every answer is wrong, whatever its score (the paper's discussion).


def wrong_ask(
    state: tuple[Any, ...], pool: AdaptivePool, objective: Objective, draws: Any, distribution: None
) -> AskedRecord:
    """Draw any record, and replace its error by 1."""
    size = pool.cuts.shape[0]
    record = jnp.minimum((draws[0] * size).astype(jnp.int32), size - 1)
    return AskedRecord(jnp.asarray(pool.cuts)[record], jnp.ones(()))


always_wrong = Adaptive(
    pool_count=1,
    draws=1,
    init=lambda pool: (),
    ask=wrong_ask,
    see=lambda state, question, answered: state,
)


# ``adversary-history``: an adversary that sees its questions, the decisions and the truth, as the paper's does.
#
# A question pays if a wrong answer is given or a right one withheld. The adversary prefers the groups that pay
# most, by a softmax at ``temperature``, and asks any group with probability ``curiosity``. With ``knows=nothing``
# it estimates how often each group pays; with ``knows=rates`` it is given the error rates of the groups, and
# estimates only how often the learner answers. Its means forget at the rate ``memory``. It does not see scores, but
# with ``groups=score`` their bins. Groups are the logs, unless ``groups`` or a column sets them.


class HistoryState(NamedTuple):
    """Exponentially weighted means over the questions of each group, which start at one half."""

    paid: Any  # [G] in [0, 1], rate of questions that paid
    answered: Any  # [G] in [0, 1], rate of questions that were answered


def history_ask(
    state: HistoryState, pool: AdaptivePool, objective: Objective, draws: Any, distribution: None
) -> AskedRecord:
    """Draw a group by the softmax of the pay-offs, mixed with a uniform choice, then a record of it."""
    _, knows, temperature, memory, curiosity = objective.tunable_values
    wrong = jnp.asarray(pool.group_error_rates)
    expected_pay = state.answered * wrong + (1 - state.answered) * (1 - wrong)
    pays = jnp.where(knows > 0, expected_pay, state.paid)
    weights = jnp.exp((pays - jnp.max(pays)) / temperature)
    weights = (1 - curiosity) * weights / jnp.sum(weights) + curiosity / pays.size
    group = draw_index(weights, draws[0])
    record = draw_record(pool, group, draws[1])
    return AskedRecord(jnp.asarray(pool.cuts)[record], jnp.asarray(pool.errors)[record], (group, memory))


def history_see(state: HistoryState, question: AskedRecord, answered: Any) -> HistoryState:
    """Update the means of the group that was asked."""
    group, memory = question.note
    step = jnp.where(jnp.arange(state.paid.size, dtype=jnp.int32) == group, memory, 0.0)
    paid = jnp.where(answered, question.error, 1 - question.error)
    return HistoryState(
        state.paid + step * (paid - state.paid),
        state.answered + step * (jnp.where(answered, 1.0, 0.0) - state.answered),
    )


adversary_history = Adaptive(
    pool_count=2,
    draws=2,
    init=lambda pool: HistoryState(*jnp.full((2, pool.group_starts.shape[0]), 0.5, float)),
    ask=history_ask,
    see=history_see,
    tunables=(
        word_tunable("groups", "source", "score"),
        word_tunable("knows", "nothing", "rates"),
        Tunable("temperature", 0.05, 0.005, 1.0),
        Tunable("memory", 0.05, 0.002, 0.5),
        Tunable("curiosity", 0.05, 0.001, 0.5),
    ),
)


# ``adversary-omniscient``: an adversary that sees the learner's distribution and orders the records.
#
# It has as many records as a trial has rounds (or all, if fewer), and asks each once before it repeats any, so
# that it controls their order only: an adversary that may repeat one wrong record forever would test nothing.
# ``objective`` chooses the next record:
#
# - ``trust``: first make the score look reliable, then misleading. Wrong records come as often as at random. In
#   some rounds the adversary asks the lowest score among the remaining wrong records, or the highest among the
#   right ones; in the others it draws at random. The share of random rounds is ``chance`` if the score separates
#   right from wrong perfectly, and 1 if it does not separate them at all.
# - ``risk``: maximise the expected FDR risk, ``P (e - alpha)``.
# - ``regret``: maximise the expected regret against the best fixed arm so far.
#
# With ``risk`` and ``regret``, ``patience`` saves records for later: this share of the gain at the learner's
# average distribution (which forgets at the rate ``memory``) is subtracted from the gain now. A greedy adversary
# spends its wrong records at once, so most learners end with less FDR risk than in random order; with ``trust``
# they do not.


WRONG = 0.5  # errors from here on count as wrong


class OmniscientState(NamedTuple):
    """Remaining records, and statistics of the past rounds."""

    remaining: Any  # [N], remaining count of each record
    count: Any  # [H], number of rounds with each cut
    wrong: Any  # [H], sum of their errors
    mean_answers: Any  # [H], mean probability of answering a record whose cut is k + 1
    separation: Any  # [] in [0, 1], max(0, 2 AUC - 1) of the score as a classifier of right answers


def omniscient_init(pool: AdaptivePool) -> OmniscientState:
    """Start with all records and a learner whose arms are equally likely."""
    arms = pool.grid.shape[0]
    mean_answers, zeros = jnp.arange(1, arms + 1) / arms, jnp.zeros(arms)
    return OmniscientState(jnp.asarray(pool.counts), zeros, zeros, mean_answers, _score_separation(pool))


def _score_separation(pool: AdaptivePool) -> Any:
    # AUC by cut: the share of (right, wrong) pairs in which the right record has the higher score
    count, wrong = jnp.asarray(pool.counts).astype(jnp.float64), jnp.asarray(pool.errors) >= WRONG
    zeros = jnp.zeros(pool.grid.shape[0])
    right, lower = (zeros.at[pool.cuts].add(jnp.where(chosen, count, 0.0)) for chosen in (~wrong, wrong))
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


def omniscient_ask(
    state: OmniscientState, pool: AdaptivePool, objective: Objective, draws: Any, distribution: Any
) -> AskedRecord:
    """Choose a remaining record by the objective."""
    cut, error = jnp.asarray(pool.cuts), jnp.asarray(pool.errors)
    answers = jnp.minimum(jnp.cumsum(distribution), 1)  # index k: cut k + 1; rounding can push the sum above 1
    _, chance, patience, memory = objective.tunable_values

    def trust() -> Any:
        wrong = error >= WRONG
        share = jnp.sum(jnp.where(wrong, state.remaining, 0)) / jnp.sum(state.remaining)
        candidates = jnp.where(wrong == (draws[0] < share), state.remaining, 0)
        # lowest score if wrong, highest if right; spent records get a key below all others, as cut < H
        keys = jnp.where(wrong, -cut, cut)
        worst = jnp.argmax(jnp.where(candidates > 0, keys, -pool.grid.shape[0]))
        random_record = draw_index(candidates.astype(jnp.float64), draws[2])
        return jnp.where(draws[1] < 1 - (1 - chance) * state.separation, random_record, worst.astype(jnp.int32))

    def greedy(gain: Any) -> Any:
        # the gain in the objective now, and at the learner's average distribution
        now, average = (gain(state, cut, error, P[cut - 1], objective) for P in (answers, state.mean_answers))
        worth = now - patience * average
        return jnp.argmax(jnp.where(state.remaining > 0, worth, -jnp.inf)).astype(jnp.int32)

    # ``choices`` is not batched, so this stays a branch under vmap: only one objective is computed
    record = lax.switch(objective.choices[0], [trust, partial(greedy, risk), partial(greedy, regret)])
    return AskedRecord(cut[record], error[record], (record, answers, memory, jnp.asarray(pool.counts)))


def omniscient_see(state: OmniscientState, question: AskedRecord, answered: Any) -> OmniscientState:
    """Remove the record, refill the pool if it is empty, and update the statistics."""
    record, answers, memory, counts = question.note
    remaining = state.remaining.at[record].add(-1)
    return OmniscientState(
        jnp.where(jnp.any(remaining > 0), remaining, counts),
        state.count.at[question.cut].add(1.0),
        state.wrong.at[question.cut].add(question.error),
        state.mean_answers + memory * (answers - state.mean_answers),
        state.separation,
    )


adversary_omniscient = Adaptive(
    pool_count=2,
    draws=3,
    init=omniscient_init,
    ask=omniscient_ask,
    see=omniscient_see,
    tunables=(
        word_tunable("objective", "trust", "risk", "regret"),
        Tunable("chance", 0.7, 0.0, 1.0),
        Tunable("patience", 0.0, 0.0, 1.0),
        Tunable("memory", 0.01, 0.001, 0.5),
    ),
    sees_distribution=True,
    uses_records_once=True,
)
