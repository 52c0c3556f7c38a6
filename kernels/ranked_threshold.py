"""``ranked-threshold``: a threshold on the rank of the score, with a budget of errors, and probes after silence.

It answers the share ``s = min(1, 5/4 (1 - y / K)^2)`` of the questions whose scores rank highest among recent
ones; y are the wrong answers above alpha that count against the share, ``K_t = 50 + sqrt(t) / 5`` the budget. The
rank is drawn evenly over the records that tie, so that a level of scores can be split. After 512 rounds of silence
it probes: it answers at least a tenth until a wrong answer, and k right ones in a row lower y to
``K (1 - (alpha k / 2)^2)``. S is the rise of R since its lowest point; a probe needs ``S + 1 <= 2 K``. Nothing
depends on T.

``S <= y + K`` at all times, for y is never lowered below S - K. An answer outside of a probe needs y < K; in a
probe only its last answer raises S, from at most 2 K - 1. So ``R_t <= S_t <= 2 K_t + 1 - alpha`` on any sequence.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.bounds import unbounded
from kernels.game import Block, Outcome, Parameters
from kernels.learner import Backend, Learner, Turns, by_turns

BUDGET, GROWTH = 50.0, 0.2  # K_t = 50 + sqrt(t) / 5
SHARE = 1.25  # of the questions, at no debt, were it not for 1
PROBE = 0.1  # share that a probe answers at least
SILENCE = 512  # rounds without an answer, before a probe
KEPT = 0.75  # of the counts of scores, at the end of a block
PRIOR = 0.25  # records at each cut before round 1


class State(NamedTuple):
    """What copies hold, [B] each."""

    debt: Any  # y >= 0, in wrong answers above alpha
    rise: Any  # S >= 0
    silent: Any  # rounds since an answer
    streak: Any  # right answers in a row in this probe, -1 where there is none
    rounds: Any  # t


class Held(NamedTuple):
    """What is held within a block."""

    state: State
    ranks: Any  # [H, B], share of recent records whose cut is at most that


def budget(t: Any) -> Any:
    """``K_t``, of rounds t of any shape."""
    return BUDGET + GROWTH * t**0.5


def chance(state: State, high: jax.Array, low: jax.Array) -> jax.Array:
    """The probability of answering a record.

    Args:
        state: before the round, its ``rounds`` counting that round, [B].
        high: share of recent records whose cut is at most the record's, [B] or [H, B].
        low: the same of those whose cut is smaller.
    """
    room = jnp.maximum(1 - state.debt / budget(state.rounds), 0.0)
    share = jnp.minimum(SHARE * room**2, 1.0)
    share = jnp.broadcast_to(jnp.where(state.streak >= 0, jnp.maximum(share, PROBE), share), high.shape)
    part = (high - (1 - share)) / jnp.where(high > low, high - low, 1.0)
    return jnp.where(high > low, jnp.clip(part, 0.0, 1.0), (high > 1 - share).astype(high.dtype))


def learn(state: State, answered: jax.Array, error: jax.Array, alpha: jax.Array) -> State:
    """The state after a round.

    Args:
        state: before the round, its ``rounds`` counting that round.
        answered: [B] bool.
        error: [B] in [0, 1], read where the round is answered.
        alpha: [B].
    """
    K = budget(state.rounds)
    gain = jnp.where(answered, error - alpha, 0.0)
    debt, rise = jnp.maximum(state.debt + gain, 0.0), jnp.maximum(state.rise + gain, 0.0)
    right = answered & (error <= alpha) & (state.streak >= 0)
    streak = jnp.where(right, state.streak + 1, jnp.where(answered, -1.0, state.streak))
    won = K * (1 - jnp.minimum(alpha * streak / 2, 1.0) ** 2)
    debt = jnp.where(right, jnp.minimum(debt, jnp.maximum(won, rise - K)), debt)
    silent = jnp.where(answered, 0.0, state.silent + 1)
    probes = ~answered & (silent >= SILENCE) & (rise + 1 <= 2 * K)
    silent, streak = jnp.where(probes, 0.0, silent), jnp.where(probes, 0.0, streak)
    return State(debt, rise, silent, streak, state.rounds)


def backend(learner: Learner, precision: str) -> Backend:
    """The one backend of this learner; nothing in it has a precision.

    It holds ``State`` and the counts [H, B] of recent records by cut; no cut is 0.
    """

    def init(arms: int, best: NDArray[np.int32], streams: int) -> tuple[State, jax.Array]:
        def full(value: float) -> jax.Array:
            return jnp.full(len(best), value, jnp.float64)

        counts = jnp.full((arms, len(best)), PRIOR, jnp.float64).at[0].set(0.0)
        return State(full(BUDGET / 2), full(0.0), full(0.0), full(-1.0), full(0.0)), counts

    def begin(state: tuple[State, jax.Array], parameters: Parameters) -> Held:
        below = jnp.cumsum(state[1], axis=0)
        return Held(state[0], below / below[-1:])

    def play(held: Held, x: Block, parameters: Parameters) -> tuple[Held, tuple[Outcome, Any]]:
        state = held.state._replace(rounds=held.state.rounds + 1)
        high, low = (jnp.take_along_axis(held.ranks, (x.cuts - i)[None], axis=0)[0] for i in (0, 1))
        P = chance(state, high, low)
        answered = (x.uniforms < P) & x.active
        after = learn(state, answered, x.errors, parameters.alpha)
        kept = jax.tree.map(lambda y, z: jnp.where(x.active, y, z), after, held.state)
        return held._replace(state=kept), (Outcome(answered, P), (x.cuts, x.active))

    def end(before: tuple[State, jax.Array], held: Held, changes: tuple) -> tuple[State, jax.Array]:
        cuts, active = changes
        lanes = jnp.arange(cuts.shape[1])[None]
        seen = jnp.broadcast_to(active[:, None], cuts.shape).astype(jnp.float64)
        return held.state, KEPT * before[1].at[cuts, lanes].add(seen)

    def masses(held: Held, parameters: Parameters) -> jax.Array:
        state = held.state._replace(rounds=held.state.rounds + 1)
        none, ranks = jnp.zeros_like(held.ranks[:1]), held.ranks
        each = chance(jax.tree.map(lambda v: v[None], state), ranks[1:], ranks[:-1])
        return jnp.diff(jnp.concatenate([none, each, none + 1]), axis=0)

    return by_turns(init, Turns(begin, play, end, masses))


def risk_bound(
    eta: object, gamma: object, rounds: object, t: ArrayLike, answered: object, arms: int
) -> NDArray[np.float64]:
    """``R_t <= 2 K_t + 1``, pathwise, on any sequence; no stretch raises R by more."""
    return 2 * budget(np.asarray(t, np.float64)) + 1


ranked_threshold = Learner("bandit", "own", backend, None, None, unbounded, risk_bound=risk_bound)
