"""The protocol of backends traced by JAX: how the weights of one copy are stored, and how its steps are computed.

A kernel is written for one copy of a learner, with scalars and arrays [H]. ``vmap_copies`` adds copies by
``jax.vmap``, the engine adds blocks by ``lax.scan``. Every module of backends has ``make(learner, precision)``,
which returns the backend of a learner, or None if the module has no kernel for the learner's rule. ``precision`` is
the dtype of the weights and their sums, ``float64`` or ``float32``. All backends compute the algorithms of the
paper's appendix "Algorithms"; they differ only in rounding and speed.
"""

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import lax

from exaul.kernels.game import Array, Block, Outcome, Parameters, SharedParameters, Start
from exaul.kernels.learners.learner import Learner, weight_of_last


class Decision(NamedTuple):
    """The decision of a copy in a round, and the data kept until its feedback arrives."""

    answered: Array  # [] bool
    probability: Array  # [] in [0, 1], of answering, before the draw
    kept: tuple[Array, ...] = ()  # what ``learn`` needs of the weights at the decision
    middle: Array | None = None  # see ``Outcome.middle``


class Halves(NamedTuple):
    """A step of one copy in two halves: the decision, and learning from its feedback.

    A round is a ``Block`` of scalars. ``decide`` never reads its error.

    Attributes:
        begin: ``begin(state, parameters)`` returns the carry of a block.
        decide: ``decide(carry, round, parameters, waiting)`` returns the carry, updated with the score only, and a
            ``Decision``. ``waiting`` [] is the number of open answers to be counted as wrong, or None.
        learn: ``learn(carry, round, decision, parameters)`` returns the carry after the feedback, and the change
            that ``end`` needs. It changes nothing if the round is not active.
        end: ``end(state, carry, changes)`` returns the state after the block, from the state before it, the last
            carry, and the changes of its rounds, [C, ...].
        masses: ``masses(carry, parameters, arms)`` returns the probabilities of the arms [H]; ``arms`` is H.
    """

    begin: Callable[[Any, Parameters], Any]
    decide: Callable[..., tuple[Any, Decision]]
    learn: Callable[..., tuple[Any, Any]]
    end: Callable[[Any, Any, Any], Any]
    masses: Callable[[Any, Parameters, int], Any]


class Backend(NamedTuple):
    """A way to store the weights of one copy of a learner, and to compute its steps.

    Attributes:
        init: ``init(arms, start)`` returns the state before round 1; ``start`` is a ``Start`` of one copy.
        advance: ``advance(state, block, parameters)`` simulates C rounds and returns the state and the outcome [C].
        halves: the same steps in two halves; None if the backend computes whole blocks only.
        dense_state: ``dense_state(state)`` returns the corresponding state of the dense backend,
            cumulative losses up to a constant; None if the rule has no weights, so that nothing is rounded.
        largest_step: the largest eta x (rounds of a block) at which the weights do not underflow.
        shared: the fields of ``Parameters.shared`` other than the block's number.
    """

    init: Callable[[int, Any], Any]
    advance: Callable[[Any, Block, Parameters], tuple[Any, Outcome]]
    halves: Halves | None = None
    dense_state: Callable[[Any], Any] | None = None
    largest_step: float = math.inf
    shared: SharedParameters = SharedParameters()


def step_copy(halves: Halves, carry: Any, x: Block, parameters: Parameters) -> tuple[Any, Outcome, Any]:
    """Compute one step with immediate feedback: ``decide``, then ``learn``.

    Args:
        halves: the two halves.
        carry: the carry before the round.
        x: the round, a ``Block`` of scalars.
        parameters: the parameters of the copy.

    Returns:
        The carry after the round, the outcome [], and the change that ``end`` needs.
    """
    carry, decision = halves.decide(carry, x, parameters, None)
    carry, change = halves.learn(carry, x, decision, parameters)
    return carry, Outcome(decision.answered, decision.probability, decision.middle), change


def backend_of_halves(init: Callable[..., Any], halves: Halves, **further: Any) -> Backend:
    """Make a backend that scans the steps of a block.

    Args:
        init: see ``Backend.init``.
        halves: the two halves of a step.
        further: other fields of ``Backend``.
    """

    def advance(state: Any, block: Block, parameters: Parameters) -> tuple[Any, Outcome]:
        chex.assert_equal_shape([block.cuts, block.errors, block.active])

        def step(carry: Any, x: Block) -> tuple[Any, tuple[Outcome, Any]]:
            carry, outcome, change = step_copy(halves, carry, x, parameters)
            return carry, (outcome, change)

        carry, (outcome, changes) = lax.scan(step, halves.begin(state, parameters), block)
        return halves.end(state, carry, changes), outcome

    return Backend(init, advance, halves, **further)


# vmap axes: all copies share the block's number; rates, alpha and the costs differ by copy.
COPY_AXES: Any = Parameters(0, 0, 0, 0, 0, None, None)  # type: ignore[arg-type]


@cache
def vmap_copies(advance: Callable[..., Any], same_records: bool) -> Callable[..., Any]:
    """Map a backend's ``advance`` over B copies.

    Args:
        advance: see ``Backend.advance``.
        same_records: whether all copies have the same records; then their groups are computed once.

    Returns:
        ``advance(state, block, parameters)``. The state has copies first, [B, ...]; cuts and errors are [C] if they
        are the same for all copies, else [C, B]; draws are [C, B]; the outcome is [C, B].
    """
    records = None if same_records else 1
    block: Any = Block(records, records, 1, None)  # type: ignore[arg-type]
    return jax.vmap(advance, in_axes=(0, block, COPY_AXES), out_axes=(0, 1))


def decide_by_arm(arm: Any, x: Block) -> Decision:
    """Decide by an arm, [] int32: ``answer iff tau <= f`` (section "Online Conformal Abstention")."""
    answered = (arm < x.cuts) & x.active  # an arm answers if it is below the cut
    return Decision(answered, answered.astype(jnp.float64))


def mass_of_arm(arm: Any, arms: int) -> jax.Array:
    """Return all probability on one arm: [H] float64."""
    return jax.nn.one_hot(arm, arms, dtype=jnp.float64)


def initial_states(init: Callable[..., Any], arms: int, start: Start) -> Any:
    """Return the states of B copies before round 1, [B, ...]."""
    axes: Any = Start(0, 0, None)
    return jax.vmap(lambda one: init(arms, one), in_axes=(axes,))(jax.tree.map(jnp.asarray, start))


def no_losses(arms: int, start: Start) -> jax.Array:
    """Return the state before round 1, no losses: zeros [H] float64 (line 2 of every algorithm of the paper)."""
    return jnp.zeros(arms, jnp.float64)


def apply_prior(weights: jax.Array, prior: float | None) -> jax.Array:
    """Multiply the weight of the last arm as ``Sided.prior`` demands: weights [H] without it, to [H] with it."""
    if prior is None:
        return weights
    is_last = jnp.arange(weights.size) == weights.size - 1
    return jnp.where(is_last, weights * weight_of_last(prior, weights.size), weights)


def as_arrays(start: Any) -> Any:
    """Convert a NamedTuple of floats to the same NamedTuple of float64 []."""
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), start)


def make_backend(
    makers: Mapping[type, Callable[[Learner[Any], str], Backend]], learner: Learner[Any], precision: str
) -> Backend | None:
    """Make the backend of a learner by the type of its rule; a module's ``make`` is this function with its kernels.

    Args:
        makers: the module's kernel for each type of rule that it supports.
        learner: with a rule of any type.
        precision: ``float64`` or ``float32``.

    Returns:
        The backend, or None if the type of the rule is not supported.
    """
    maker = makers.get(type(learner.rule))
    return None if maker is None else maker(learner, precision)
