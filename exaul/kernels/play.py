"""Learners as pure functions of one game, for ``jit``, ``vmap`` and ``scan`` in your own program.

    state = learner.init(params)
    state, decision = learner.decide(state, params, cut, u)
    state = learner.learn(state, params, cut, decision, error)

A learner is static and hashable. ``params`` is a NamedTuple of numbers, each of which may be batched: a sweep over
eta is a ``vmap`` like one over seeds. ``decide`` draws and, for a rule on ranks, counts the record. ``learn`` is
called once a round: after an abstention at once, after an answer when its feedback comes. What a learner does in a
round is in ``dense.py``.

The engine calls the same functions: ``vmap`` adds copies to one game, and ``scan`` rounds. Its ``params`` are a
``RuleParams`` for each block of rounds, but ``init`` gets a ``Start``, whose fields have the same names. Every
module of a backend in JAX has ``make_backend(learner, precision)``, which returns the ``Backend`` of a learner, or
None if it has none for the learner's rule. ``precision`` is the dtype of the weights and their sums, ``float64`` or
``float32``. Backends differ in rounding and speed only.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import chex
import jax
import jax.numpy as jnp

from exaul.kernels.game import BLOCK, Array, Block, ImperfectFeedback, RuleParams, Start, compute_costs
from exaul.kernels.uniforms import Draws

# The numbers of a learner: ``Params``, ``RankedParams``, ``FixedParams``, the ``RuleParams`` of an ``Own`` rule, or
# what an object of yours takes. It is ``Any`` to a type checker, because the name of a learner decides which.
LearnerParams = Any


class Params(NamedTuple):
    """The numbers of a learner with weights, [] each; under ``vmap``, any may be an array."""

    alpha: float | jax.Array  # in (0, 1), target FDR
    lam: float | jax.Array  # >= 0, lambda, the weight of the FDR against abstaining (eq. 4)
    eta: float | jax.Array  # > 0, learning rate; [K] if it differs between blocks of 256 rounds
    gamma: float | jax.Array  # >= 0, implicit exploration; of the shape of eta


class RankedParams(NamedTuple):
    """The numbers of ``aci-rank``, or of another learner that goes by ranks, as in ``Params``."""

    alpha: float | jax.Array  # in (0, 1), target FDR
    lam: float | jax.Array  # >= 0, lambda of the loss (eq. 4); the learner does not read it
    step: float | jax.Array  # in (0, 1]: an answer with error e moves the share by ``step (aim - e)``
    state: Any  # the rule's state before round 1, a NamedTuple of numbers
    counts: Array  # [H] float64, counts of recent records by cut before round 1


class FixedParams(NamedTuple):
    """The numbers of a fixed threshold."""

    alpha: float | jax.Array  # in (0, 1), target FDR
    lam: float | jax.Array  # >= 0, lambda of the loss (eq. 4); the learner does not read it
    arm: Array  # int32 in 0..H-1, the number of the threshold in the grid, from 0


class Decision(NamedTuple):
    """A decision, and what ``learn`` needs of it."""

    answer: jax.Array  # [] bool
    P: jax.Array  # [] float in [0, 1], probability of answering, before the draw
    residuals: Any = ()  # what else ``learn`` needs, such as P and Q; a learner of your own may leave it out


class GameLearner(Protocol):
    """A learner as pure functions of one game (``docs/jax.md``): from ``exaul.make``, or an object of yours.

    It is static in JAX (``jax.tree_util.register_static``), equal and hashable by its fields. The state is a pytree
    of arrays that keeps its shapes and types. A learner from ``make`` also has ``distribution(state, params)``, the
    probabilities of the thresholds [H]; with weights, ``reweigh(state, params)``, the state at another eta; and two
    further arguments: ``decide(..., waiting=n)``, the number of answers without feedback, which ``aci-rank`` counts
    as wrong, and ``learn(..., weight=w)``, w in [0, 1], the weight of an abstention.
    """

    @property
    def arms(self) -> int:
        """H, the number of thresholds."""

    def init(self, params: LearnerParams) -> Any:
        """Return the state before round 1."""

    def decide(self, state: Any, params: LearnerParams, cut: jax.Array, u: jax.Array) -> tuple[Any, Decision]:
        """Return the state and the decision on a record: ``cut`` [] int32 in 1..H-1, ``u`` [] uniform in [0, 1)."""

    def learn(self, state: Any, params: LearnerParams, cut: jax.Array, decision: Decision, error: jax.Array) -> Any:
        """Return the state after a round; ``error`` [] is in [0, 1], 1 if the answer is wrong.

        The error of an abstention is not read, except with full feedback (``ew``).
        """


def loss_costs(params: Any) -> tuple[Any, Any]:
    """Return the costs of ``compute_costs`` for the numbers of a copy."""
    if isinstance(params, RuleParams):
        return params.answer_cost, params.abstain_cost
    return compute_costs(params.alpha, params.lam)


def reweigh(learner: Any, state: Any, params: Any) -> Any:
    """Return the state before a block of 256 rounds, at its rates; without ``reweigh`` it does not change."""
    return learner.reweigh(state, params) if hasattr(learner, "reweigh") else state


def advance_round(learner: Any, state: Any, params: Any, x: Block) -> tuple[Any, Any]:
    """Play a round with its feedback at once: decide, then learn. Return the state, and whether it was answered.

    A round that is not active answers nothing. With imperfect feedback, ``decide`` takes all draws of the round and
    ``learn`` a weight, 0 in padding.
    """
    is_imperfect = getattr(params, "imperfect", None) is not None
    state, decision = learner.decide(state, params, x.cuts, x.draws if is_imperfect else x.draws.decision)
    answered = decision.answer & x.active
    if is_imperfect:  # the state counts questions, but not padding; other states are not read after padding
        decision = decision._replace(answer=answered)
        state = learner.learn(state, params, x.cuts, decision, x.errors, jnp.where(x.active, 1.0, 0.0))
    else:
        state = learner.learn(state, params, x.cuts, decision, x.errors)
    return state, answered


def play_round(
    learner: Any,
    environment: Any,
    pool: Any,
    states: tuple[Any, Any],
    params: Any,
    objective: Any,
    draws: Draws,
    environment_draws: Any,
    active: Any,
) -> tuple[tuple[Any, Any], tuple[Any, Any, Any]]:
    """Play a round of one game in an adaptive environment: ask, decide, learn, see.

    Args:
        learner: as in ``Backend.make``.
        environment: an ``Adaptive``.
        pool: the ``AdaptivePool`` that it asks from.
        states: of the learner and of the environment.
        params: the learner's numbers.
        objective: an ``Objective``, alpha, the costs and the tunables.
        draws: [], the learner's, which the environment never receives.
        environment_draws: uniforms [``environment.draws``].
        active: [] bool, as in ``advance_round``.

    Returns:
        The states after the round; and the answer, the cut and the error [].
    """
    state, environment_state = states
    distribution = learner.distribution(state, params) if environment.sees_distribution else None
    question = environment.ask(environment_state, pool, objective, environment_draws, distribution)
    state, answered = advance_round(learner, state, params, Block(question.cut, question.error, draws, active))
    environment_state = environment.see(environment_state, question, answered)
    return (state, environment_state), (answered, question.cut, question.error)


def play(learner: GameLearner, params: LearnerParams, cuts: Array, errors: Array, uniforms: Array) -> jax.Array:
    """Play one game of T rounds, as in ``exaul.play``, which checks the arrays [T]; return the answers [T]."""

    def one_round(state: Any, x: Any) -> tuple[Any, Any]:
        t, cut, error, u = x
        current, state = at_round(learner, params, state, t)
        return advance_round(learner, state, current, Block(cut, error, Draws(u), True))

    rounds = jnp.arange(len(cuts)), cuts, errors, uniforms
    return jax.lax.scan(one_round, first_carry(learner.init(params), params, rounds), rounds)[1]


def first_carry(first: Any, *inputs: Any) -> Any:
    """Return the first carry of a scan, computed from the inputs: in ``shard_map`` it must vary over devices."""
    has_nonzero = jax.tree.reduce(lambda found_nonzero, x: found_nonzero | jnp.any(x), inputs, jnp.array(False))
    return jax.tree.map(lambda x: jnp.where(has_nonzero, x, x), first)


def at_round(learner: Any, params: Any, state: Any, t: Any) -> tuple[Any, Any]:
    """Return the params and the state at round t, from 0; rates [K] become the rate of its block."""
    if jnp.ndim(getattr(params, "eta", 0.0)) == 0:
        return params, state
    k = t // BLOCK
    gamma = jnp.broadcast_to(params.gamma, params.eta.shape)
    current = params._replace(eta=jnp.asarray(params.eta)[k], gamma=gamma[k])
    return current, jax.lax.cond(t % BLOCK == 0, lambda x: reweigh(learner, x, current), lambda x: x, state)


class Backend(NamedTuple):
    """A learner in JAX."""

    # ``make(arms)`` returns it as functions of one game; with ``advance_block``, it computes whole blocks by itself
    make: Callable[[int], Any]
    imperfect: ImperfectFeedback | None = None  # as in ``RuleParams``


def advance(learner: Any, state: Any, block: Block, params: RuleParams) -> tuple[Any, Array]:
    """Simulate a block of C rounds of one copy; return the state, and which rounds were answered [C]."""
    chex.assert_equal_shape([block.cuts, block.errors, block.active])
    if hasattr(learner, "advance_block"):
        return learner.advance_block(state, block, params)
    state = reweigh(learner, state, params)
    return jax.lax.scan(lambda state, x: advance_round(learner, state, params, x), state, block)


# vmap axes: all copies share the block's number; rates, alpha and the costs differ by copy.
COPY_AXES: Any = RuleParams(0, 0, 0, 0, 0, None, None, None)


def advance_copies(
    learner: Any, state: Any, block: Block, params: RuleParams, same_records: bool
) -> tuple[Any, Array]:
    """Simulate a block of B copies with states [B, ...] and params [B]; return the states, and the answers [C, B].

    Draws are [C, B], cuts and errors too, or [C] if all copies have the ``same_records``.
    """
    records = None if same_records else 1
    axes: Any = Block(records, records, 1, None)  # type: ignore[arg-type]
    return jax.vmap(partial(advance, learner), in_axes=(0, axes, COPY_AXES), out_axes=(0, 1))(state, block, params)


def initial_states(learner: Any, start: Start) -> Any:
    """Return the states of B copies before round 1, [B, ...]."""
    axes: Any = Start(0, 0, None)
    return jax.vmap(learner.init, in_axes=(axes,))(jax.tree.map(jnp.asarray, start))
