"""What a backend traced by JAX is: a way to store the weights of B copies, and to play blocks of rounds with them.

Every module of backends has ``make(learner, precision)``, which returns the backend of a learner, or None where the
module has no loop for the learner's rule. What a backend plays are the algorithms of the paper's appendix
"Algorithms"; backends differ in rounding and in speed alone.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from exaul.kernels.game import Array, Block, Outcome, Parameters, by_copy
from exaul.kernels.learners.learner import Learner


class Decision(NamedTuple):
    """What B copies decided in a round, and what must be kept of it until its feedback comes."""

    answered: Array  # [B] bool
    probability: Array  # [B] in [0, 1], of answering, before the draw
    kept: tuple[Array, ...] = ()  # [B] each: what ``learn`` reads of the weights at the time of the decision
    middle: Array | None = None  # as of ``Outcome``


class Turns(NamedTuple):
    """A way to play a block round by round, for games in which the next record depends on the last decision.

    Attributes:
        begin: ``begin(state, parameters)`` returns the carry of a block.
        play: ``play(carry, round, parameters)`` plays a round, a ``Block`` of cuts, errors, uniforms [B] and active
            []. It returns the carry, the outcome [B] and the change that ``end`` needs.
        end: ``end(state, carry, changes)`` returns the state after the block, from the state before it, the last
            carry, and the changes of its rounds, [C, ...].
        masses: ``masses(carry, parameters)`` returns the probabilities of the arms, [H, B].
        decide: ``decide(carry, round, parameters, waiting)`` is the first half of ``play``, of the backends that
            can be cut in two. It returns the carry, changed in what the copy knows of scores alone, and a
            ``Decision``. ``waiting`` [B] is how many answers without a thumb count as wrong, or None.
        learn: ``learn(carry, round, decision, parameters)`` is the second: the carry, once the error is known.
            ``active`` of the round may be [B], false for copies that learn nothing.
        close: ``close(carry)`` is what ``end`` does beside rounding, of the rules that do something after 256
            rounds; None where there is nothing.
    """

    begin: Callable[[Any, Parameters], Any]
    play: Callable[[Any, Block, Parameters], tuple[Any, tuple[Outcome, Any]]]
    end: Callable[[Any, Any, Any], Any]
    masses: Callable[[Any, Parameters], Any]
    decide: Callable[..., tuple[Any, Decision]] | None = None
    learn: Callable[..., Any] | None = None
    close: Callable[[Any], Any] | None = None


class Backend(NamedTuple):
    """A way to store the weights of B copies of a learner, and to play rounds with them.

    Attributes:
        init: ``init(arms, best, streams)`` returns the state before round 1. ``best`` [B] int32 in 0..H-1 is the
            arm of least loss in hindsight, for comparators only; ``streams`` is R, the number of streams.
        advance: ``advance(state, block, parameters)`` plays C rounds, and returns the state and the outcome [C, B].
        turns: plays the same rounds one by one; None where the backend cannot.
        dense_state: ``dense_state(state, parameters)`` returns the state that the dense backend would have,
            cumulative losses up to a constant of each copy; None where the rule has no weights, so that nothing is
            rounded.
        largest_step: the largest product of eta and the rounds of a block for which the weights do not underflow.
    """

    init: Callable[[int, NDArray[Any], int], Any]
    advance: Callable[[Any, Block, Parameters], tuple[Any, Outcome]]
    turns: Turns | None = None
    dense_state: Callable[[Any, Parameters], Any] | None = None
    largest_step: float = math.inf


def of_halves(
    begin: Callable[..., Any],
    decide: Callable[..., tuple[Any, Decision]],
    learn: Callable[..., Any],
    end: Callable[..., Any],
    masses: Callable[..., Any],
    close: Callable[[Any], Any] | None = None,
) -> Turns:
    """Make the turns of a rule whose round is cut in two, on arrays [B].

    Args:
        begin: as of ``Turns``; so are the others.
        decide: the first half.
        learn: the second half.
        end: after a block.
        masses: of the arms, [H, B].
        close: what ``end`` does beside rounding, or None.

    Returns:
        The turns, which play a round as a decision and at once its feedback (line "Update" of every algorithm of
        the paper).
    """

    def play(carry: Any, x: Block, parameters: Parameters) -> tuple[Any, tuple[Outcome, tuple[Any, ...]]]:
        carry, decision = decide(carry, x, parameters, None)
        outcome = Outcome(decision.answered, decision.probability, decision.middle)
        return learn(carry, x, decision, parameters), (outcome, ())

    return Turns(begin, play, end, masses, decide, learn, close)


def by_turns(init: Callable[..., Any], turns: Turns, **more: Any) -> Backend:
    """Make the backend that plays a block round by round.

    Args:
        init: as of ``Backend``.
        turns: how one round is played, on arrays [B].
        more: further fields of ``Backend``.

    Returns:
        The backend.
    """

    def advance(state: Any, block: Block, parameters: Parameters) -> tuple[Any, Outcome]:
        chex.assert_equal_shape([block.cuts, block.errors])
        carry = turns.begin(state, parameters)
        rounds = by_copy(block, parameters)
        carry, (outcome, changes) = lax.scan(lambda carry, x: turns.play(carry, x, parameters), carry, rounds)
        return turns.end(state, carry, changes), outcome

    return Backend(init, advance, turns, **more)


def repeated(start: Any, copies: int) -> Any:
    """Repeat the numbers that a rule starts with, one for each copy.

    Args:
        start: a NamedTuple of floats.
        copies: B.

    Returns:
        The same NamedTuple of arrays [B] float64.
    """
    return jax.tree.map(lambda x: jnp.full(copies, x, jnp.float64), start)


def no_losses(arms: int, best: NDArray[np.int32], streams: int) -> jax.Array:
    """The state before round 1: no losses, so equal weights on all arms (line 2 of every algorithm of the paper).

    Args:
        arms: H >= 2.
        best: [B], read for its length.

    Returns:
        Zeros [H, B] float64.
    """
    return jnp.zeros((arms, len(best)), jnp.float64)


def choose(
    makers: Mapping[type, Callable[[Learner[Any], str], Backend]], learner: Learner[Any], precision: str
) -> Backend | None:
    """Make the backend of a learner by the type of its rule: ``make``, once a module has given its loops.

    Args:
        makers: the loop of each type of rule that a module has one for.
        learner: with a rule of any type.
        precision: dtype of the weights and their sums [H, B], ``float64`` or ``float32``.

    Returns:
        The backend, or None where there is no loop for the learner's rule.
    """
    maker = makers.get(type(learner.rule))
    return None if maker is None else maker(learner, precision)
