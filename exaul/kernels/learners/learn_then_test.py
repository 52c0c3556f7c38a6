"""``learn-then-test``: calibrate once, with a certificate, then use one threshold for ever.

Angelopoulos, Bates, Candes, Jordan and Lei, "Learn then test: calibrating predictive algorithms to achieve risk
control", 2021. It answers the first 1,024 rounds and then fixes the lowest threshold of which they certify an FDR
of at most alpha. With probability .95 every threshold that is certified has one, if rounds are independent and
alike. Each threshold but the last, which never answers, is a hypothesis; its p-value is that of Hoeffding and
Bentkus, and Holm's procedure corrects for their number, as ``BinaryClassificationController`` of MAPIE 1.6 does by
default. Where none is certified it plays the last. Nothing is proved for data that change.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import betainc, xlogy

from exaul.kernels.backends.backend import Backend, Decision, Halves, backend_of_halves, decide_by_arm, mass_of_arm
from exaul.kernels.bounds import unbounded
from exaul.kernels.game import ROUNDS, Block, Parameters
from exaul.kernels.learners.learner import Learner, Own

CALIBRATION = 1024  # rounds that are all answered, four whole blocks
DELTA = 0.05  # what is certified holds with probability 1 - delta
ROUNDING = 1e-9  # in wrong answers: a sum of ratings that is so little above a whole number counts as equal


def p_value(answered: Any, wrong: Any, alpha: Any, fractional: Any) -> Any:
    """The p-value of the hypothesis that a mean error is above alpha, by Hoeffding and Bentkus.

    ``min(exp(-n kl(min(W / n, alpha), alpha)), c P(Bin(n, alpha) <= ceil(W)))``. The constant c is 1 where each
    error is 0 or 1, so that W itself is binomial, and e where errors are ratings (Angelopoulos et al. 2021, after
    Bentkus, "On Hoeffding's inequalities", 2004).

    Args:
        answered: n >= 0, number of answered rounds, any shape.
        wrong: W, the sum of their errors, of the same shape.
        alpha: in (0, 1), broadcasts.
        fractional: bool, whether errors are ratings, broadcasts.

    Returns:
        Of the broadcast shape, in [0, 1]; 1 where nothing was answered.
    """
    mean = jnp.minimum(wrong / jnp.maximum(answered, 1.0), alpha)
    hoeffding = jnp.exp(-answered * (xlogy(mean, mean / alpha) + xlogy(1 - mean, (1 - mean) / (1 - alpha))))
    most = jnp.ceil(wrong - ROUNDING)
    binomial = betainc(jnp.maximum(answered - most, 1.0), most + 1, 1 - alpha)
    bentkus = jnp.where(fractional, math.e, 1.0) * jnp.where(most < answered, binomial, 1.0)
    return jnp.minimum(hoeffding, bentkus)


def certified(p: Any) -> Any:
    """The hypotheses that Holm's procedure rejects: with probability 1 - delta none of them is true.

    The i-th smallest of m p-values is rejected if it is at most ``delta / (m + 1 - i)`` and all smaller ones are
    rejected (Holm, "A simple sequentially rejective multiple test procedure", 1979).

    Args:
        p: [m] in [0, 1].

    Returns:
        [m] bool.
    """
    ordered = jnp.sort(p)
    small = ordered <= DELTA / jnp.arange(len(p), 0, -1, jnp.float64)
    rejected = jnp.cumprod(small, dtype=bool)
    return p <= jnp.max(jnp.where(rejected, ordered, -1.0))


class LearnThenTestState(NamedTuple):
    """What a copy knows."""

    arm: Any  # [] int32, that is played
    fractional: Any  # [] bool, whether an error was neither 0 nor 1
    count: Any  # [H], rounds of the calibration by cut
    wrong: Any  # [H], the sum of their errors


def _threshold(state: LearnThenTestState, alpha: Any) -> Any:
    """The lowest threshold that is certified, or the last arm."""
    answered, errors = (jnp.sum(x) - jnp.cumsum(x)[:-1] for x in (state.count, state.wrong))
    good = certified(p_value(answered, errors, alpha, state.fractional))
    return jnp.where(jnp.any(good), jnp.argmax(good), state.count.size - 1).astype(jnp.int32)


def backend(precision: str) -> Backend:
    """Make the one backend of this learner, round by round; nothing is rounded, whatever the precision.

    Returns:
        The backend, whose state is ``LearnThenTestState``.
    """

    def init(arms: int, best: Any) -> LearnThenTestState:
        nothing = jnp.zeros(arms, jnp.float64)
        return LearnThenTestState(jnp.zeros((), jnp.int32), jnp.asarray(False), nothing, nothing)

    def begin(state: LearnThenTestState, parameters: Parameters) -> tuple[LearnThenTestState, Any]:
        # The number of the block is shared by all copies: under vmap this stays a branch, and is taken once.
        first = parameters.shared.block * ROUNDS
        arm = lax.cond(first == CALIBRATION, lambda: _threshold(state, parameters.alpha), lambda: state.arm)
        return state._replace(arm=arm), first < CALIBRATION

    def decide(carry: Any, x: Block, parameters: Parameters, waiting: Any) -> tuple[Any, Decision]:
        return carry, decide_by_arm(carry[0].arm, x)

    def learn(carry: Any, x: Block, decision: Decision, parameters: Parameters) -> tuple[Any, Any]:
        answered = decision.answered
        return carry, (x.cuts, answered.astype(jnp.float64), jnp.where(answered, x.errors, 0.0))

    def end(before: LearnThenTestState, carry: Any, changes: tuple[Any, ...]) -> LearnThenTestState:
        (state, calibrates), (cuts, answered, errors) = carry, changes
        return LearnThenTestState(
            state.arm,
            state.fractional | jnp.any((errors > 0) & (errors < 1)),
            state.count.at[cuts].add(jnp.where(calibrates, answered, 0.0)),
            state.wrong.at[cuts].add(jnp.where(calibrates, errors, 0.0)),
        )

    def masses(carry: Any, parameters: Parameters, arms: int) -> jax.Array:
        return mass_of_arm(carry[0].arm, arms)

    return backend_of_halves(init, Halves(begin, decide, learn, end, masses))


learn_then_test = Learner("bandit", Own(backend), None, None, unbounded)
