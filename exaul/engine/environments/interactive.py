"""``interactive``: a user with a topic, up to ten questions on it, then another of 20,962 topics.

Each topic has its own error rate and its own calibration of the score, drawn once: the stream is correlated within
a topic and drifts from topic to topic. The user reacts. After "I don't know" it asks the question again in other
words, which have another score, at the rate ``again``; else it moves on to another topic. After a wrong answer it
asks again at the rate ``insists``. A simulation; it stands in for the paper's dialogues between two models.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logit, ndtri

from exaul.engine.environments.adaptive import Adaptive, AdaptivePool, AskedRecord, Objective, Tunable
from exaul.kernels.uniforms import uniforms

TOPICS, QUESTIONS = 20_962, 10
DIFFICULTY, CALIBRATION = 1.0, 0.7  # standard deviations over topics, in logits, of error rate and score


class DialogueState(NamedTuple):
    """Where the conversation is."""

    topic: Any  # int32
    left: Any  # int32, how many questions may still be asked on it
    wrong: Any  # bool, whether the answer to the last question is wrong
    abstained: Any  # bool, whether the learner said that it does not know
    failed: Any  # bool, whether the learner gave a wrong answer


def init(pool: AdaptivePool) -> DialogueState:
    """Nothing was asked, and no question is left."""
    nothing, never = jnp.zeros((), jnp.int32), jnp.asarray(False)
    return DialogueState(nothing, nothing, never, never, never)


def topic_traits(pool: AdaptivePool, topic: Any) -> tuple[Any, Any]:
    """How far, in logits, the error rate and the scores of a topic stand from the pool's."""
    key = jnp.asarray(pool.key[0]), jnp.asarray(pool.key[1])
    first, second = (ndtri(uniforms(key, jnp.uint32(0), (2 * topic + i).astype(jnp.uint32))) for i in range(2))
    return DIFFICULTY * first, CALIBRATION * second


def ask(state: DialogueState, pool: AdaptivePool, objective: Objective, draws: Any, masses: None) -> AskedRecord:
    """The same question again, another of the topic, or one of a new topic; its score is moved by the calibration.

    Wrong are the records of largest error, as many as the pool has errors, of which one is drawn evenly.
    """
    rate = jnp.where(
        state.abstained, objective.tunable_values[0], jnp.where(state.failed, objective.tunable_values[1], 0.0)
    )
    again = draws[4] < rate
    fresh = (state.left == 0) | (state.abstained & ~again)
    topic = jnp.where(fresh, (draws[0] * TOPICS).astype(jnp.int32), state.topic)
    left = jnp.where(fresh, 1 + (draws[1] * QUESTIONS).astype(jnp.int32), state.left)
    difficulty, calibration = topic_traits(pool, topic)
    errors, size, share = jnp.asarray(pool.errors), len(pool.errors), pool.error_rate
    wrong = jnp.where(again & ~fresh, state.wrong, draws[2] < jax.nn.sigmoid(logit(share) + difficulty))
    place = size * jnp.where(wrong, 1 - share * (1 - draws[3]), (1 - share) * draws[3])
    record = jnp.asarray(pool.by_error)[jnp.minimum(place.astype(jnp.int32), size - 1)]
    score = jnp.asarray(pool.scores)[record]
    moved = jax.nn.sigmoid(logit(score) + calibration)  # 0 and 1 stay where they are
    cut = _count_at_most(pool.grid, moved).clip(1, pool.grid.shape[0] - 1)
    return AskedRecord(cut, errors[record], (topic, left - 1, wrong))


def _count_at_most(values: Any, x: Any) -> jax.Array:
    """How many of the values [N], in increasing order, are at most x: ``searchsorted`` to the right.

    In two steps of sqrt(N) comparisons: a device starts them as two kernels, where a binary search is a loop.
    """
    values, size = jnp.asarray(values), len(values)
    step = math.isqrt(size - 1) + 1
    before = jnp.sum(values[step - 1 :: step] <= x, dtype=jnp.int32) * step
    place = before + jnp.arange(step, dtype=jnp.int32)
    inside = (place < size) & (values[jnp.minimum(place, size - 1)] <= x)
    return before + jnp.sum(inside, dtype=jnp.int32)


def see(state: DialogueState, question: AskedRecord, answered: Any) -> DialogueState:
    """Remember what was asked, and how it went."""
    topic, left, wrong = question.note
    return DialogueState(topic, left, wrong, ~answered, answered & wrong)


interactive = Adaptive(
    2,
    5,
    init,
    ask,
    see,
    (Tunable("again", 0.5, 0.0, 1.0), Tunable("insists", 0.5, 0.0, 1.0)),
    sees="the decisions, and whether what it was shown is wrong",
)
