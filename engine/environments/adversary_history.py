"""``adversary-history``: an adversary that sees its questions and the decisions, as in the paper's experiment.

It knows for each group of questions how often its answers are wrong, and reckons from its history how often the
learner answers them. A question pays where a wrong answer is given or a right one withheld, and it asks the groups
that pay most: at first, when all is answered, the hard ones; once those are withheld, a mix of over-confident and
under-confident ones.
"""

from typing import Any

import jax.numpy as jnp

from exaul.engine.environments.adaptive import Adaptive, Aim, Question, Tunable, World, draw_from, pick


def init(world: World, copies: int) -> Any:
    """Share of each group [G, B] that is reckoned to be answered: all of it."""
    return jnp.ones((world.starts.shape[0], copies))


def ask(answered: Any, world: World, aim: Aim, draws: Any, masses: None) -> Question:
    """A question of a group by the softmax of what groups pay, now and then of any group."""
    temperature, curiosity = aim.tuning[:1], aim.tuning[2:]
    wrong = jnp.asarray(world.rates)[:, None]
    pays = answered * wrong + (1 - answered) * (1 - wrong)
    weights = jnp.exp((pays - jnp.max(pays, axis=0, keepdims=True)) / temperature)
    weights = (1 - curiosity) * weights / jnp.sum(weights, axis=0, keepdims=True) + curiosity / answered.shape[0]
    group = pick(weights, draws[0])
    record = draw_from(world, group, draws[1])
    return Question(jnp.asarray(world.cuts)[record], jnp.asarray(world.errors)[record], group)


def see(answered: Any, world: World, aim: Aim, question: Question, decision: Any) -> Any:
    """Move the reckoned share of the group that was asked towards the decision."""
    here = jnp.arange(answered.shape[0], dtype=jnp.int32)[:, None] == question.about[None]
    return answered + jnp.where(here, aim.tuning[1:2] * (jnp.where(decision, 1.0, 0.0)[None] - answered), 0.0)


adversary_history = Adaptive(
    2,
    2,
    init,
    ask,
    see,
    (
        Tunable("temperature", 0.05, 0.005, 1.0),
        Tunable("memory", 0.05, 0.002, 0.5),
        Tunable("curiosity", 0.05, 0.001, 0.5),
    ),
)
