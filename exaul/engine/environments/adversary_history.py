"""``adversary-history``: an adversary that sees its questions, the decisions and the truth, as the paper's does.

A question pays if a wrong answer is given or a right one withheld. The adversary prefers the groups that pay most,
by a softmax at ``temperature``, and asks any group with probability ``curiosity``. With ``knows=nothing`` it
estimates how often each group pays; with ``knows=rates`` it is given the error rates of the groups, and estimates
only how often the learner answers. Its means forget at the rate ``memory``. It does not see scores. Groups are the
logs, unless ``groups`` or a column sets them.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

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


class HistoryState(NamedTuple):
    """Exponentially weighted means over the questions of each group, from one half on."""

    paid: Any  # [G] in [0, 1], rate of questions that paid
    answered: Any  # [G] in [0, 1], rate of questions that were answered


def init(pool: AdaptivePool) -> HistoryState:
    """Start with one half for every group."""
    return HistoryState(*(jnp.full(pool.group_starts.shape[0], 0.5, float) for _ in range(2)))


def ask(state: HistoryState, pool: AdaptivePool, objective: Objective, draws: Any, masses: None) -> AskedRecord:
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


def see(state: HistoryState, question: AskedRecord, answered: Any) -> HistoryState:
    """Update the means of the group that was asked."""
    group, memory = question.note
    step = jnp.where(jnp.arange(state.paid.size, dtype=jnp.int32) == group, memory, 0.0)
    paid = jnp.where(answered, question.error, 1 - question.error)
    return HistoryState(
        state.paid + step * (paid - state.paid),
        state.answered + step * (jnp.where(answered, 1.0, 0.0) - state.answered),
    )


adversary_history = Adaptive(
    sources=2,
    draws=2,
    init=init,
    ask=ask,
    see=see,
    tunables=(
        word_tunable("groups", "source", "score"),
        word_tunable("knows", "nothing", "rates"),
        Tunable("temperature", 0.05, 0.005, 1.0),
        Tunable("memory", 0.05, 0.002, 0.5),
        Tunable("curiosity", 0.05, 0.001, 0.5),
    ),
    sees="questions, decisions and the truth; neither scores nor error rates, unless groups=score, knows=rates",
)
