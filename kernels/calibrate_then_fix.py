"""``calibrate-then-fix``: a practitioner's habit. Answer everything at first, then hold one threshold for ever.

It fixes the lowest threshold whose upper confidence bound on the FDR is at most alpha; none is proved to hold when
the data change, and the figures show that it does not.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kernels.bounds import unbounded
from kernels.game import Block, Outcome, Parameters
from kernels.learner import Backend, Learner, Turns, by_turns

CALIBRATION = 1024  # rounds that are answered, four whole blocks
DELTA = 0.05  # the bound of one threshold's FDR holds with probability 1 - delta


def within(answered: Any, wrong: Any, alpha: Any) -> Any:
    """Whether the upper confidence bound of a mean error is at most alpha.

    By the Chernoff bound for means of [0, 1]: ``p <= alpha`` and ``n kl(p, alpha) >= ln(1 / delta)``.

    Args:
        answered: n, counts of any shape.
        wrong: sums of errors, p n.
        alpha: in (0, 1), broadcasts.
    """
    p = wrong / jnp.maximum(answered, 1.0)
    inner = jnp.clip(p, 1e-12, 1 - 1e-12)
    kl = inner * jnp.log(inner / alpha) + (1 - inner) * jnp.log((1 - inner) / (1 - alpha))
    return (p <= alpha) & (answered * kl >= math.log(1 / DELTA))


def backend(learner: Learner, precision: str) -> Backend:
    """The one backend of this learner; nothing in it has a precision.

    The state is the arm that is held [B], the rounds played [B], and by cut the counts and errors of the first
    rounds, [H, B] each.
    """

    def init(arms: int, best: NDArray[np.int32], streams: int) -> tuple:
        copies = len(best)
        count, wrong = (jnp.zeros((arms, copies), jnp.float64) for _ in range(2))
        return jnp.zeros(copies, jnp.int32), jnp.zeros(copies, jnp.float64), count, wrong

    def begin(state: tuple, parameters: Parameters) -> tuple:
        arm, rounds, count, wrong = state
        answered = jnp.sum(count, axis=0, keepdims=True) - jnp.cumsum(count, axis=0)
        errors = jnp.sum(wrong, axis=0, keepdims=True) - jnp.cumsum(wrong, axis=0)
        good = within(answered, errors, parameters.alpha[None])
        lowest = jnp.where(jnp.any(good, axis=0), jnp.argmax(good, axis=0), len(count) - 1).astype(jnp.int32)
        return jnp.where(rounds == CALIBRATION, lowest, arm), rounds, count, wrong

    def play(state: tuple, x: Block, parameters: Parameters) -> tuple[tuple, tuple[Outcome, Any]]:
        answered = (state[0] < x.cuts) & x.active
        change = x.cuts, answered.astype(jnp.float64), jnp.where(answered, x.errors, 0.0)
        return state, (Outcome(answered, answered.astype(jnp.float64)), change)

    def end(state: tuple, held: tuple, changes: tuple) -> tuple:
        arm, rounds, count, wrong = held
        cuts, answered, errors = changes
        first = (rounds < CALIBRATION)[None]
        lanes = jnp.arange(arm.size)[None]
        count = count.at[cuts, lanes].add(jnp.where(first, answered, 0.0))
        wrong = wrong.at[cuts, lanes].add(jnp.where(first, errors, 0.0))
        return arm, rounds + len(cuts), count, wrong

    def masses(held: tuple, parameters: Parameters) -> jax.Array:
        arms = jnp.arange(len(held[2]), dtype=jnp.int32)
        return (arms[:, None] == held[0][None]).astype(jnp.float64)

    return by_turns(init, Turns(begin, play, end, masses))


calibrate_then_fix = Learner("bandit", "own", backend, None, None, unbounded)
