"""``calibrate-then-fix``: a practitioner's habit. Answer every record at first, then use one threshold for ever.

After 1,024 rounds it chooses the lowest threshold whose FDR, as far as those rounds show, is at most alpha by an
upper confidence bound (Hoeffding, "Probability inequalities for sums of bounded random variables", 1963, Theorem 1,
in Chernoff's form), as in selective classification (Geifman and El-Yaniv, "Selective classification for deep neural
networks", 2017). Nothing is proved for data that change.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.backend import Backend, Turns, by_turns
from exaul.kernels.bounds import unbounded
from exaul.kernels.game import Block, Outcome, Parameters
from exaul.kernels.learners.learner import Learner, Own

CALIBRATION = 1024  # rounds that are all answered, four whole blocks
DELTA = 0.05  # each threshold's bound is valid with probability 1 - delta


def confident(answered: Any, wrong: Any, alpha: Any) -> Any:
    """Whether the upper confidence bound of a mean error is at most alpha.

    ``p <= alpha`` and ``n kl(p, alpha) >= ln(1 / delta)``, the Chernoff bound for means in [0, 1] (Hoeffding 1963).

    Args:
        answered: n >= 0, number of answered rounds, any shape.
        wrong: n p, the sum of their errors, of the same shape.
        alpha: in (0, 1), broadcasts.

    Returns:
        bool, of the broadcast shape.
    """
    p = wrong / jnp.maximum(answered, 1.0)
    inner = jnp.clip(p, 1e-12, 1 - 1e-12)
    kl = inner * jnp.log(inner / alpha) + (1 - inner) * jnp.log((1 - inner) / (1 - alpha))
    return (p <= alpha) & (answered * kl >= math.log(1 / DELTA))


def backend(precision: str) -> Backend:
    """Make the one backend of this learner, round by round.

    The state is the arm that is played [B], the number of rounds so far [B], and, by cut, the number of rounds and
    the sum of their errors within the first 1,024 rounds, [H, B] each.

    Args:
        precision: not read; nothing is rounded.

    Returns:
        The backend.
    """

    def init(arms: int, best: NDArray[np.int32], streams: int) -> tuple[Any, ...]:
        copies = len(best)
        count, wrong = (jnp.zeros((arms, copies), jnp.float64) for _ in range(2))
        return jnp.zeros(copies, jnp.int32), jnp.zeros(copies, jnp.float64), count, wrong

    def begin(state: tuple[Any, ...], parameters: Parameters) -> tuple[Any, ...]:
        arm, rounds, count, wrong = state
        answered = jnp.sum(count, axis=0, keepdims=True) - jnp.cumsum(count, axis=0)
        errors = jnp.sum(wrong, axis=0, keepdims=True) - jnp.cumsum(wrong, axis=0)
        good = confident(answered, errors, parameters.alpha[None])
        lowest = jnp.where(jnp.any(good, axis=0), jnp.argmax(good, axis=0), len(count) - 1).astype(jnp.int32)
        return jnp.where(rounds == CALIBRATION, lowest, arm), rounds, count, wrong

    def play(
        state: tuple[Any, ...], x: Block, parameters: Parameters
    ) -> tuple[tuple[Any, ...], tuple[Outcome, Any]]:
        answered = (state[0] < x.cuts) & x.active
        change = x.cuts, answered.astype(jnp.float64), jnp.where(answered, x.errors, 0.0)
        return state, (Outcome(answered, answered.astype(jnp.float64)), change)

    def end(state: tuple[Any, ...], carry: tuple[Any, ...], changes: tuple[Any, ...]) -> tuple[Any, ...]:
        arm, rounds, count, wrong = carry
        cuts, answered, errors = changes
        first = (rounds < CALIBRATION)[None]
        lanes = jnp.arange(arm.size)[None]
        count = count.at[cuts, lanes].add(jnp.where(first, answered, 0.0))
        wrong = wrong.at[cuts, lanes].add(jnp.where(first, errors, 0.0))
        return arm, rounds + len(cuts), count, wrong

    def masses(carry: tuple[Any, ...], parameters: Parameters) -> jax.Array:
        arms = jnp.arange(len(carry[2]), dtype=jnp.int32)
        return (arms[:, None] == carry[0][None]).astype(jnp.float64)

    return by_turns(init, Turns(begin, play, end, masses))


calibrate_then_fix = Learner("bandit", Own(backend), None, None, unbounded)
