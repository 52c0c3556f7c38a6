"""``interactive``: a user with a topic, up to ten questions on it, then another of 20,962 topics.

Each topic has its own error rate and its own calibration of the score, drawn once: the stream is correlated within
a topic and drifts from topic to topic. A simulation; it stands in for the paper's dialogues between two models.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logit, ndtri

from exaul.engine.environments.adaptive import Adaptive, Aim, Question, World
from exaul.kernels.uniforms import uniforms

TOPICS, QUESTIONS = 20_962, 10
DIFFICULTY, CALIBRATION = 1.0, 0.7  # standard deviations over topics, in logits, of error rate and score


def init(world: World, copies: int) -> tuple[Any, Any]:
    """The topic [B], and how many questions are left on it [B]: none."""
    return jnp.zeros(copies, jnp.int32), jnp.zeros(copies, jnp.int32)


def traits(world: World, topic: Any) -> tuple[Any, Any]:
    """How far, in logits, the error rate and the scores of a topic [B] stand from the pool's."""
    key = jnp.asarray(world.key[0])[None], jnp.asarray(world.key[1])[None]
    first, second = (ndtri(uniforms(key, jnp.uint32(0), (2 * topic + i).astype(jnp.uint32))) for i in range(2))
    return DIFFICULTY * first, CALIBRATION * second


def ask(state: tuple[Any, ...], world: World, aim: Aim, draws: Any, masses: None) -> Question:
    """A question of the topic, or of a new one: right or wrong at its rate, its score moved by its calibration.

    Wrong are the records of largest error, as many as the pool has errors, of which one is drawn evenly.
    """
    fresh = state[1] == 0
    topic = jnp.where(fresh, (draws[0] * TOPICS).astype(jnp.int32), state[0])
    left = jnp.where(fresh, 1 + (draws[1] * QUESTIONS).astype(jnp.int32), state[1])
    difficulty, calibration = traits(world, topic)
    errors, size, share = jnp.asarray(world.errors), len(world.errors), world.rate
    wrong = draws[2] < jax.nn.sigmoid(logit(share) + difficulty)
    place = size * jnp.where(wrong, 1 - share * (1 - draws[3]), (1 - share) * draws[3])
    record = jnp.asarray(world.by_error)[jnp.minimum(place.astype(jnp.int32), size - 1)]
    score = jnp.asarray(world.scores)[record]
    moved = jax.nn.sigmoid(logit(score) + calibration)  # 0 and 1 stay where they are
    cut = _at_most(world.grid, moved).clip(1, world.grid.shape[0] - 1)
    return Question(cut, errors[record], (topic, left - 1))


def _at_most(values: Any, x: Any) -> jax.Array:
    """How many of the values [N], in increasing order, are at most x [B]: ``searchsorted`` to the right.

    In two steps of sqrt(N) comparisons: a device starts them as two kernels, where a binary search is a loop.
    """
    values, size = jnp.asarray(values), len(values)
    step = math.isqrt(size - 1) + 1
    before = jnp.sum(values[step - 1 :: step, None] <= x[None], axis=0, dtype=jnp.int32) * step
    place = before[None] + jnp.arange(step, dtype=jnp.int32)[:, None]
    inside = (place < size) & (values[jnp.minimum(place, size - 1)] <= x[None])
    return before + jnp.sum(inside, axis=0, dtype=jnp.int32)


def see(state: tuple[Any, ...], world: World, aim: Aim, question: Question, answered: Any) -> tuple[Any, ...]:
    """Go on with the topic, whatever the decision."""
    return question.about


interactive = Adaptive(sources=2, draws=4, init=init, ask=ask, see=see)
