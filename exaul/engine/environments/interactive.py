"""``interactive``: a simulated user asks up to ten questions on a topic, then moves to another of 20,962.

Topics differ in error rate and in calibration of the score, which are drawn once for all trials. So records are
correlated within a topic, and drift between topics. After "I don't know", the user rephrases the question with
probability ``again`` (it is as right or wrong, and its score is another), and else changes the topic. After a wrong
answer, the user asks again with probability ``insists``. A repetition counts as a question of its topic; when these
are used up, the topic changes. The environment stands in for the paper's dialogues between two models.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logit, ndtri

from exaul.engine.environments.adaptive import Adaptive, AdaptivePool, AskedRecord, Objective, Tunable
from exaul.kernels.uniforms import uniform

TOPICS, QUESTIONS = 20_962, 10  # passages of the paper's dialogues; most questions on each (chosen)
DIFFICULTY, CALIBRATION = 1.0, 0.7  # standard deviations over topics of error rate and score, in logits (chosen)


class DialogueState(NamedTuple):
    """The state of the conversation."""

    topic: Any  # int32
    remaining: Any  # int32, questions left on this topic
    wrong: Any  # bool, whether the last record is wrong, answered or not
    abstained: Any  # bool, whether the learner abstained
    failed: Any  # bool, whether the learner answered and was wrong


def init(pool: AdaptivePool) -> DialogueState:
    """Start without questions left, so that round 1 begins a topic."""
    zero, false = jnp.zeros((), jnp.int32), jnp.asarray(False)
    return DialogueState(zero, zero, false, false, false)


def topic_traits(pool: AdaptivePool, topic: Any) -> tuple[Any, Any]:
    """Return the offsets, in logits, of a topic's error rate and scores from those of the pool."""
    # a function of the topic's number, so that 20,962 topics need no table
    key = jnp.asarray(pool.key[0]), jnp.asarray(pool.key[1])
    first, second = (ndtri(uniform(key, jnp.uint32(0), (2 * topic + i).astype(jnp.uint32))) for i in range(2))
    return DIFFICULTY * first, CALIBRATION * second


def ask(
    state: DialogueState, pool: AdaptivePool, objective: Objective, draws: Any, distribution: None
) -> AskedRecord:
    """Ask the same question again, another one of the topic, or one of a new topic, with a recalibrated score."""
    again, insists = objective.tunable_values
    is_repeated = draws[4] < jnp.where(state.abstained, again, jnp.where(state.failed, insists, 0.0))
    is_new = (state.remaining == 0) | (state.abstained & ~is_repeated)
    topic = jnp.where(is_new, (draws[0] * TOPICS).astype(jnp.int32), state.topic)
    remaining = jnp.where(is_new, 1 + (draws[1] * QUESTIONS).astype(jnp.int32), state.remaining)
    difficulty, calibration = topic_traits(pool, topic)
    errors, size, share = jnp.asarray(pool.errors), len(pool.errors), pool.error_rate
    wrong = jnp.where(is_repeated & ~is_new, state.wrong, draws[2] < jax.nn.sigmoid(logit(share) + difficulty))
    # ``by_error`` ends with the wrong records, ``share`` of all; draw uniformly among the wrong or the right ones
    position = size * jnp.where(wrong, 1 - share * (1 - draws[3]), (1 - share) * draws[3])
    record = jnp.asarray(pool.by_error)[jnp.minimum(position.astype(jnp.int32), size - 1)]
    score = jnp.asarray(pool.scores)[record]
    moved = jax.nn.sigmoid(logit(score) + calibration)  # logit and sigmoid map the scores 0 and 1 to themselves
    # "scan_unrolled": on a device, a loop would start a kernel for each step of the search
    reached = jnp.searchsorted(jnp.asarray(pool.grid), moved, side="right", method="scan_unrolled")
    cut = reached.astype(jnp.int32).clip(1, len(pool.grid) - 1)
    return AskedRecord(cut, errors[record], (topic, remaining - 1, wrong))


def see(state: DialogueState, question: AskedRecord, answered: Any) -> DialogueState:
    """Store the question and its outcome."""
    topic, remaining, wrong = question.note
    return DialogueState(topic, remaining, wrong, ~answered, answered & wrong)


interactive = Adaptive(
    pool_count=2,
    draws=5,
    init=init,
    ask=ask,
    see=see,
    tunables=(Tunable("again", 0.5, 0.0, 1.0), Tunable("insists", 0.5, 0.0, 1.0)),
)
