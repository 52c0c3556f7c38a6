"""``interactive``: a user with a topic, up to ten questions on it, then another of 20,962 topics.

Each topic has its own error rate and its own calibration of the score, drawn once: the stream is correlated within
a topic and drifts from topic to topic. A simulation; it stands in for the paper's dialogues between two models.
"""

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
    places = jnp.stack([2 * topic, 2 * topic + 1]).astype(jnp.uint32)
    key = jnp.asarray(world.key[0])[None, None], jnp.asarray(world.key[1])[None, None]
    draws = ndtri(uniforms(key, jnp.uint32(0), places))
    return DIFFICULTY * draws[0], CALIBRATION * draws[1]


def ask(state: tuple[Any, ...], world: World, aim: Aim, draws: Any, masses: None) -> Question:
    """A question of the topic, or of a new one: right or wrong at its rate, its score moved by its calibration."""
    fresh = state[1] == 0
    topic = jnp.where(fresh, (draws[0] * TOPICS).astype(jnp.int32), state[0])
    left = jnp.where(fresh, 1 + (draws[1] * QUESTIONS).astype(jnp.int32), state[1])
    difficulty, calibration = traits(world, topic)
    errors = jnp.asarray(world.errors)
    rate = jax.nn.sigmoid(logit(jnp.mean(errors)) + difficulty)
    wrong = draws[2] < rate
    record = jnp.where(wrong, _nth(errors, draws[3]), _nth(1 - errors, draws[3]))
    score = jnp.asarray(world.scores)[record]
    moved = jax.nn.sigmoid(logit(score) + calibration)  # 0 and 1 stay where they are
    cut = jnp.searchsorted(jnp.asarray(world.grid), moved, side="right").clip(1, world.grid.shape[0] - 1)
    return Question(cut.astype(jnp.int32), errors[record], (topic, left - 1))


def _nth(weights: Any, draw: Any) -> Any:
    """A record with probability in proportion to its weight [N], by uniforms [B]."""
    cumulative = jnp.cumsum(weights)
    return jnp.searchsorted(cumulative, draw * cumulative[-1], side="right").clip(0, weights.size - 1)


def see(state: tuple[Any, ...], world: World, aim: Aim, question: Question, answered: Any) -> tuple[Any, ...]:
    """Go on with the topic, whatever the decision."""
    return question.about


interactive = Adaptive(sources=2, draws=4, init=init, ask=ask, see=see)
