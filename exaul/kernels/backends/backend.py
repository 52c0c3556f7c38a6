"""What a backend traced by JAX is: a way to store the weights of one copy, and to play rounds with them.

A kernel is written for one copy of a learner: scalars, and arrays [H]. ``vmap_copies`` adds copies by ``jax.vmap``,
the engine adds blocks by ``lax.scan``. Every module of backends has ``make(learner, precision)``, which returns the
backend of a learner, or None where the module has no kernel for the learner's rule. What a backend plays are the
algorithms of the paper's appendix "Algorithms"; backends differ in rounding and in speed alone.
"""

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import lax

from exaul.kernels.game import Array, Block, Outcome, Parameters, SharedParameters
from exaul.kernels.learners.learner import Learner, Priced


class Decision(NamedTuple):
    """What a copy decided in a round, and what must be kept of it until its feedback comes."""

    answered: Array  # [] bool
    probability: Array  # [] in [0, 1], of answering, before the draw
    kept: tuple[Array, ...] = ()  # what ``learn`` reads of the weights at the time of the decision
    middle: Array | None = None  # as of ``Outcome``


class Halves(NamedTuple):
    """A round of one copy in two halves, its decision and what is learned from its feedback.

    A round is a ``Block`` of scalars. ``decide`` never reads its error.

    Attributes:
        begin: ``begin(state, parameters)`` returns the carry of a block.
        decide: ``decide(carry, round, parameters, waiting)`` returns the carry, updated only with the score, and a
            ``Decision``. ``waiting`` [] is the number of answers that still lack feedback and are counted as wrong,
            or None.
        learn: ``learn(carry, round, decision, parameters)`` returns the carry once the error is known, and the
            change that ``end`` needs. Nothing is learned where the round is not active.
        end: ``end(state, carry, changes)`` returns the state after the block, from the state before it, the last
            carry, and the changes of its rounds, [C, ...].
        masses: ``masses(carry, parameters, arms)`` returns the probabilities of the arms [H]; ``arms`` is H.
        close: ``close(carry)`` returns the carry after the step that some rules take every 256 rounds; None for
            rules without such a step.
    """

    begin: Callable[[Any, Parameters], Any]
    decide: Callable[..., tuple[Any, Decision]]
    learn: Callable[..., tuple[Any, Any]]
    end: Callable[[Any, Any, Any], Any]
    masses: Callable[[Any, Parameters, int], Any]
    close: Callable[[Any], Any] | None = None


class Backend(NamedTuple):
    """A way to store the weights of one copy of a learner, and to play rounds with them.

    Attributes:
        init: ``init(arms, best)`` returns the state before round 1; ``best`` [] int32 in 0..H-1 is the best arm in
            hindsight, which only comparators read.
        advance: ``advance(state, block, parameters)`` plays C rounds, and returns the state and the outcome [C].
        halves: the same rounds, each in two halves; None where the backend plays whole blocks only.
        dense_state: ``dense_state(state, parameters)`` returns the state that the dense backend would have,
            cumulative losses up to a constant; None where the rule has no weights, so that nothing is rounded.
        largest_step: the largest eta x (rounds of a block) at which the weights do not underflow.
        shared: the fields of ``Parameters.shared`` other than the block's number.
    """

    init: Callable[[int, Any], Any]
    advance: Callable[[Any, Block, Parameters], tuple[Any, Outcome]]
    halves: Halves | None = None
    dense_state: Callable[[Any, Parameters], Any] | None = None
    largest_step: float = math.inf
    shared: SharedParameters = SharedParameters()


def step_copy(halves: Halves, carry: Any, x: Block, parameters: Parameters) -> tuple[Any, Outcome, Any]:
    """Play a round whose feedback comes at once (line "Update" of every algorithm of the paper).

    Args:
        halves: the two halves of the round.
        carry: the carry before the round.
        x: the round, a ``Block`` of scalars.
        parameters: the parameters of the copy.

    Returns:
        The carry after it, the outcome [], and the change that ``end`` needs.
    """
    carry, decision = halves.decide(carry, x, parameters, None)
    carry, change = halves.learn(carry, x, decision, parameters)
    return carry, Outcome(decision.answered, decision.probability, decision.middle), change


def backend_of_halves(init: Callable[..., Any], halves: Halves, **further: Any) -> Backend:
    """Make the backend that plays a block round by round.

    Args:
        init: see ``Backend.init``.
        halves: the two halves of a round.
        further: further fields of ``Backend``.

    Returns:
        The backend.
    """

    def advance(state: Any, block: Block, parameters: Parameters) -> tuple[Any, Outcome]:
        chex.assert_equal_shape([block.cuts, block.errors, block.active])

        def step(carry: Any, x: Block) -> tuple[Any, tuple[Outcome, Any]]:
            carry, outcome, change = step_copy(halves, carry, x, parameters)
            return carry, (outcome, change)

        carry, (outcome, changes) = lax.scan(step, halves.begin(state, parameters), block)
        return halves.end(state, carry, changes), outcome

    return Backend(init, advance, halves, **further)


# Copies share rates and the block's number; alpha and the costs of a copy are its own.
COPY_AXES: Any = Parameters(None, None, 0, 0, 0, None)  # type: ignore[arg-type]


@cache
def vmap_copies(advance: Callable[..., Any], same_records: bool) -> Callable[..., Any]:
    """Make a backend's ``advance`` play B copies.

    Args:
        advance: see ``Backend.advance``.
        same_records: whether all copies meet the same records, so that their groups are found once.

    Returns:
        ``advance(state, block, parameters)``. The state has copies first, [B, ...]; cuts and errors are [C] if they
        are the same for all copies, else [C, B]; draws are [C, B]; the outcome is [C, B].
    """
    records = None if same_records else 1
    block: Any = Block(records, records, 1, None)  # type: ignore[arg-type]
    return jax.vmap(advance, in_axes=(0, block, COPY_AXES), out_axes=(0, 1))


def decide_by_arm(arm: Any, x: Block) -> Decision:
    """Decide a round by one arm, ``answer iff tau <= f`` (section "Online Conformal Abstention" of the paper).

    Args:
        arm: [] int32, or a threshold between arms, float64.
        x: the round.

    Returns:
        The decision; nothing is drawn.
    """
    answered = (arm < x.cuts.astype(jnp.asarray(arm).dtype)) & x.active
    return Decision(answered, answered.astype(jnp.float64))


def learn_priced(
    rule: Priced, P: Any, x: Block, decision: Decision, memory: Any, parameters: Parameters
) -> tuple[Any, Any, Any, Any]:
    """Learn a round of a ``Priced`` rule; where the round is not active, nothing changes.

    Args:
        rule: the rule.
        P: the probability of the arms that answer, at the decision.
        x: the round.
        decision: what was decided.
        memory: the memory before the round.
        parameters: the parameters of the copy.

    Returns:
        What ``Priced.learn`` returns.
    """
    *changes, after = rule.learn(jnp.where, jnp.exp, P, decision.answered, x.errors, memory, parameters)
    under, over, share = (jnp.where(x.active, number, 0.0) for number in changes)
    return under, over, share, jax.tree.map(lambda y, z: jnp.where(x.active, y, z), after, memory)


def mass_of_arm(arm: Any, arms: int) -> jax.Array:
    """Put all probability on one arm: [H] float64."""
    return jax.nn.one_hot(arm, arms, dtype=jnp.float64)


def initial_states(init: Callable[..., Any], arms: int, best: Array) -> Any:
    """Make the states of B copies before round 1.

    Args:
        init: see ``Backend.init``.
        arms: H >= 2.
        best: [B] int32.

    Returns:
        Arrays [B, ...], copies first.
    """
    return jax.vmap(lambda one: init(arms, one))(jnp.asarray(best))


def no_losses(arms: int, best: Array) -> jax.Array:
    """Make the state before round 1: no losses, equal weights on all arms (line 2 of every algorithm of the paper).

    Args:
        arms: H >= 2.
        best: see ``Backend.init``.

    Returns:
        Zeros [H] float64.
    """
    return jnp.zeros(arms, jnp.float64)


def as_arrays(start: Any) -> Any:
    """Make arrays of the numbers that a rule starts with.

    Args:
        start: a NamedTuple of floats.

    Returns:
        The same NamedTuple of float64 [].
    """
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), start)


def make_backend(
    makers: Mapping[type, Callable[[Learner[Any], str], Backend]], learner: Learner[Any], precision: str
) -> Backend | None:
    """Make the backend of a learner by the type of its rule: ``make``, once a module has given its kernels.

    Args:
        makers: the kernel of each type of rule that a module has one for.
        learner: with a rule of any type.
        precision: dtype of the weights and their sums, ``float64`` or ``float32``.

    Returns:
        The backend, or None where there is no kernel for the learner's rule.
    """
    maker = makers.get(type(learner.rule))
    return None if maker is None else maker(learner, precision)
