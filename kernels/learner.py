"""What a learner and a backend are to the engine: NamedTuples of pure functions."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from kernels.game import Block, Outcome, Parameters, by_copy


class Turns(NamedTuple):
    """A way to play the rounds of a block one by one, for games in which the next round depends on the last.

    ``begin(state, parameters)`` makes what is held within a block; ``play(held, round, parameters)`` plays a round,
    a ``Block`` of cuts, errors, uniforms [B] and active [], and returns what is held, its outcome [B] and its
    change; ``end(state, held, changes)`` is the state after the block. ``masses(held, parameters)`` [H, B] are
    the probabilities of the arms.
    """

    begin: Callable[[Any, Parameters], Any]
    play: Callable[[Any, Block, Parameters], tuple[Any, tuple[Outcome, Any]]]
    end: Callable[[Any, Any, Any], Any]
    masses: Callable[[Any, Parameters], Any]


class Backend(NamedTuple):
    """A way to hold the weights of B copies of a learner, and to play a block of rounds with them, traced by JAX.

    ``init(arms, best, streams)`` is the state before round 1: ``best`` [B] int32, the best fixed arm in hindsight,
    is for comparators only; ``streams`` is how many sequences of records there are. ``advance(state, block,
    parameters)`` plays C rounds; ``turns`` plays them one by one, None where that is not to be had.
    """

    init: Callable[[int, NDArray[np.int32], int], Any]
    advance: Callable[[Any, Block, Parameters], tuple[Any, Outcome]]
    turns: Turns | None = None


def by_turns(init: Callable, turns: Turns) -> Backend:
    """The backend that plays blocks round by round."""

    def advance(state: Any, block: Block, parameters: Parameters) -> tuple[Any, Outcome]:
        chex.assert_equal_shape([block.cuts, block.errors])
        held = turns.begin(state, parameters)
        rounds = by_copy(block, parameters)
        held, (outcome, changes) = lax.scan(lambda held, x: turns.play(held, x, parameters), held, rounds)
        return turns.end(state, held, changes), outcome

    return Backend(init, advance, turns)


def remembered(learner: "Learner", copies: int) -> Any:
    """What B copies of a learner of kind ``priced`` or ``ranked`` remember before round 1, [B] each."""
    return jax.tree.map(lambda x: jnp.full(copies, x, jnp.float64), learner.rule.start)


class HostBackend(NamedTuple):
    """The same in compiled code of the host, many blocks at a time.

    ``play(state, records, parameters, tally, outcome=None)`` starts to play K blocks of ``native.Records``, with
    rates [K], and returns futures: once all are done, the state, the tally and, where arrays [K C, B] are given,
    the outcome have changed in place. ``middles`` tells whether outcomes have middles, ``draws`` whether uniforms
    are read.
    """

    init: Callable[[int, NDArray[np.int32], int], Any]
    play: Callable[..., list[Future]]
    middles: bool
    draws: bool = True


class Priced(NamedTuple):
    """The rule of a learner of kind ``priced``: sided, with a memory, whose mass drifts to the last arm.

    ``play(where, exp, P, uniform, error, active, memory, parameters)`` plays a round: the probability of answering,
    what is taken off the logarithms of the weights below the cut and above it, what share of all mass is added to
    the last arm, and the memory. ``even(where, memory)`` is added to each arm at the end of a block, per unit of
    mean weight. ``start`` is the memory before round 1, the same for all copies.
    """

    start: Any
    play: Callable
    even: Callable


class Descent(NamedTuple):
    """The rule of a learner of kind ``descent``: one threshold z in arms, moved by gradient steps.

    It answers where z lies below the cut, then ``z <- max(0, z - eta gradient(where, answered, error, arms,
    parameters))``. ``start(arms)`` is z before round 1.
    """

    start: Callable[[int], float]
    gradient: Callable


class Ranked(NamedTuple):
    """The rule of a learner of kind ``ranked``: it answers by the rank of a score among recent ones.

    ``chance(where, state, high, low)`` is the probability of answering a record that ranks, among its ties, evenly
    between low and high in [0, 1]; ``learn(where, state, answered, error, alpha)`` the state after a round.
    ``start`` is the state before round 1, some numbers, the same for all copies. Ranks go by counts of cuts:
    ``prior`` at each cut before round 1, multiplied by ``kept`` in each round, in which its own cut then gains 1.
    """

    start: Any
    chance: Callable
    learn: Callable
    prior: float
    kept: float


class Rates(NamedTuple):
    """A learner's rates in one block: ``gamma`` is None where the learner has no such rate."""

    eta: float
    gamma: float | None


class Learner(NamedTuple):
    """A learner: what it may read, how it plays, its rates and what is proved of its regret.

    ``feedback`` is ``bandit`` (the errors of its own answers), ``full`` (every error), ``none``, or ``hindsight``
    (it is a comparator that knows the best arm). ``kind`` names the shape of its rule:

    - ``sided``: ``rule(where, P, Q, answered, error, parameters)`` gives the charges below and above the cut;
    - ``drawn``: ``rule(where, p, answered, error, parameters)`` gives the charge of the drawn arm;
    - ``priced``: a ``Priced``, sided with a memory, in which mass goes over to the last arm;
    - ``descent``: a ``Descent``, one threshold that is moved by gradient steps;
    - ``ranked``: a ``Ranked``, which answers by the rank of the score;
    - ``fixed``: ``rule(arms, best)`` gives the arm that is held;
    - ``own``: ``rule(learner, precision)`` is its backend.

    A rule is written with ``where`` and operators alone, so that one source serves every backend. ``rates(horizon,
    arms)`` are the paper's, ``anytime(t, arms)`` those of round t where the horizon is unknown.
    ``regret_bound(eta, gamma, rounds, arms, delta)`` takes the rates [K] of K blocks and their lengths [K]; NaN
    where nothing is proved. At ``delta = mean_delta`` it bounds the mean regret, None where nothing does.
    ``risk_bound(eta, gamma, rounds, t, answered, arms)`` is what R_t never exceeds on any sequence, for rounds t
    and answers so far of shapes that broadcast; None where nothing is proved.
    """

    feedback: str
    kind: str
    rule: Any
    rates: Callable[[int, int], Rates] | None
    anytime: Callable[[int, int], Rates] | None
    regret_bound: Callable[..., float]
    mean_delta: float | None = None
    risk_bound: Callable | None = None
