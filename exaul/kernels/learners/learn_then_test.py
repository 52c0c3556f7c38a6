"""``learn-then-test``: calibrate once, with a certificate, then use one threshold for ever.

Angelopoulos, Bates, Candes, Jordan and Lei, "Learn then test: calibrating predictive algorithms to achieve risk
control", 2021. It answers the first 1,024 rounds and then fixes the lowest threshold of which they certify an FDR
of at most alpha. With probability .95 every threshold that is certified has one, if rounds are independent and
alike. Each threshold but the last, which never answers, is a hypothesis; its p-value is that of Hoeffding and
Bentkus, and Holm's procedure corrects for their number, as ``BinaryClassificationController`` of MAPIE 1.6 does by
default. Where none is certified it plays the last. Nothing is proved for data that change.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import betainc, xlogy
from numpy.typing import NDArray

from exaul.kernels.backends.backend import Backend, Turns, by_turns
from exaul.kernels.bounds import unbounded
from exaul.kernels.game import Block, Outcome, Parameters
from exaul.kernels.learners.learner import Learner, Own

CALIBRATION = 1024  # rounds that are all answered, four whole blocks
DELTA = 0.05  # what is certified holds with probability 1 - delta
ROUNDING = 1e-9  # in wrong answers: a sum of ratings that is so little above a whole number counts as equal


def p_value(answered: Any, wrong: Any, alpha: Any, rated: Any) -> Any:
    """The p-value of the hypothesis that a mean error is above alpha, by Hoeffding and Bentkus.

    ``min(exp(-n kl(min(W / n, alpha), alpha)), c P(Bin(n, alpha) <= ceil(W)))``. The constant c is 1 where each
    error is 0 or 1, so that W itself is binomial, and e where errors are ratings (Angelopoulos et al. 2021, after
    Bentkus, "On Hoeffding's inequalities", 2004).

    Args:
        answered: n >= 0, number of answered rounds, any shape.
        wrong: W, the sum of their errors, of the same shape.
        alpha: in (0, 1), broadcasts.
        rated: bool, whether errors are ratings, broadcasts.

    Returns:
        Of the broadcast shape, in [0, 1]; 1 where nothing was answered.
    """
    mean = jnp.minimum(wrong / jnp.maximum(answered, 1.0), alpha)
    hoeffding = jnp.exp(-answered * (xlogy(mean, mean / alpha) + xlogy(1 - mean, (1 - mean) / (1 - alpha))))
    most = jnp.ceil(wrong - ROUNDING)
    binomial = betainc(jnp.maximum(answered - most, 1.0), most + 1, 1 - alpha)
    bentkus = jnp.where(rated, math.e, 1.0) * jnp.where(most < answered, binomial, 1.0)
    return jnp.minimum(hoeffding, bentkus)


def certified(p: Any) -> Any:
    """The hypotheses that Holm's procedure rejects: with probability 1 - delta none of them is true.

    The i-th smallest of m p-values is rejected if it is at most ``delta / (m + 1 - i)`` and all smaller ones are
    rejected (Holm, "A simple sequentially rejective multiple test procedure", 1979).

    Args:
        p: [m, B] in [0, 1].

    Returns:
        [m, B] bool.
    """
    ordered = jnp.sort(p, axis=0)
    left = jnp.arange(len(p), 0, -1, jnp.float64)[:, None]
    small = ordered <= DELTA / left
    rejected = jnp.cumprod(small, axis=0, dtype=bool)
    return p <= jnp.max(jnp.where(rejected, ordered, -1.0), axis=0, keepdims=True)


def backend(precision: str) -> Backend:
    """Make the one backend of this learner, round by round.

    The state is the arm that is played [B], the number of rounds so far [B], whether an error was neither 0 nor 1
    [B], and, by cut, the number of rounds and the sum of their errors within the first 1,024 rounds, [H, B] each.

    Returns:
        The backend.
    """

    def init(arms: int, best: NDArray[np.int32], streams: int) -> tuple[Any, ...]:
        arm, rounds = jnp.zeros(len(best), jnp.int32), jnp.zeros(len(best), jnp.int64)
        count, wrong = (jnp.zeros((arms, len(best)), jnp.float64) for _ in range(2))
        return arm, rounds, jnp.zeros(len(best), bool), count, wrong

    def begin(state: tuple[Any, ...], parameters: Parameters) -> tuple[Any, ...]:
        arm, rounds, rated, count, wrong = state

        def fixed() -> Any:
            answered, errors = (
                jnp.sum(x, axis=0, keepdims=True) - jnp.cumsum(x, axis=0)[:-1] for x in (count, wrong)
            )
            good = certified(p_value(answered, errors, parameters.alpha[None], rated[None]))
            return jnp.where(jnp.any(good, axis=0), jnp.argmax(good, axis=0), len(count) - 1).astype(jnp.int32)

        now = rounds[0] == CALIBRATION  # of all copies at once
        return lax.cond(now, fixed, lambda: arm), rounds, rated, count, wrong

    def play(
        state: tuple[Any, ...], x: Block, parameters: Parameters
    ) -> tuple[tuple[Any, ...], tuple[Outcome, Any]]:
        answered = (state[0] < x.cuts) & x.active
        change = x.cuts, answered.astype(jnp.float64), jnp.where(answered, x.errors, 0.0)
        return state, (Outcome(answered, answered.astype(jnp.float64)), change)

    def end(state: tuple[Any, ...], carry: tuple[Any, ...], changes: tuple[Any, ...]) -> tuple[Any, ...]:
        arm, rounds, rated, count, wrong = carry
        cuts, answered, errors = changes
        first = (rounds < CALIBRATION)[None]
        lanes = jnp.arange(arm.size)[None]
        count = count.at[cuts, lanes].add(jnp.where(first, answered, 0.0))
        wrong = wrong.at[cuts, lanes].add(jnp.where(first, errors, 0.0))
        rated |= jnp.any((errors > 0) & (errors < 1), axis=0)
        return arm, rounds + len(cuts), rated, count, wrong

    def masses(carry: tuple[Any, ...], parameters: Parameters) -> jax.Array:
        arms = jnp.arange(len(carry[3]), dtype=jnp.int32)
        return (arms[:, None] == carry[0][None]).astype(jnp.float64)

    return by_turns(init, Turns(begin, play, end, masses))


learn_then_test = Learner("bandit", Own(backend), None, None, unbounded)
