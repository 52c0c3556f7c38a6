"""``learn-then-test``: calibrate once, then keep a certified threshold.

Angelopoulos, Bates, Candes, Jordan and Lei, "Learn then test: calibrating predictive algorithms to achieve risk
control", 2021. The learner answers the first 1,024 rounds and then fixes the lowest threshold whose FDR is
certified to be at most alpha. If rounds are independent and identically distributed, all certified thresholds have
such an FDR with probability .95. Each threshold except the last, which never answers, is a hypothesis. p-values are
those of Hoeffding and Bentkus, with Holm's correction, the defaults of ``BinaryClassificationController`` in MAPIE
1.6. If no threshold is certified, the learner uses the last arm. Nothing is proved if the distribution changes.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import betainc, xlogy

from exaul.kernels.backends.backend import Backend, Decision, Halves, backend_of_halves, decide_by_arm, mass_of_arm
from exaul.kernels.game import ROUNDS, Block, Parameters
from exaul.kernels.learners.learner import Learner, Own

CALIBRATION = 1024  # rounds, all answered: four whole blocks
DELTA = 0.05  # a certificate holds with probability 1 - delta
ROUNDING = 1e-9  # in wrong answers: a sum of errors this little above an integer counts as equal to it


def p_value(answered: Any, wrong: Any, alpha: Any, fractional: Any) -> Any:
    """Compute the Hoeffding-Bentkus p-value of the hypothesis that a mean error is above alpha.

    ``min(exp(-n kl(min(W / n, alpha), alpha)), c P(Bin(n, alpha) <= ceil(W)))``. The constant c is 1 if each error
    is 0 or 1, so that W is binomial, and e if errors are fractional (Angelopoulos et al. 2021, after Bentkus, "On
    Hoeffding's inequalities", 2004).

    Args:
        answered: n >= 0, the number of answered rounds, any shape.
        wrong: W, the sum of their errors, same shape.
        alpha: in (0, 1), broadcasts.
        fractional: bool, whether some error is neither 0 nor 1, broadcasts.

    Returns:
        In [0, 1], of the broadcast shape; 1 if nothing was answered.
    """
    mean = jnp.minimum(wrong / jnp.maximum(answered, 1.0), alpha)
    hoeffding = jnp.exp(-answered * (xlogy(mean, mean / alpha) + xlogy(1 - mean, (1 - mean) / (1 - alpha))))
    most = jnp.ceil(wrong - ROUNDING)
    # P(Bin(n, alpha) <= k) = I_{1 - alpha}(n - k, k + 1), for k < n; the guard keeps the first argument positive.
    binomial = betainc(jnp.maximum(answered - most, 1.0), most + 1, 1 - alpha)
    bentkus = jnp.where(fractional, math.e, 1.0) * jnp.where(most < answered, binomial, 1.0)
    return jnp.minimum(hoeffding, bentkus)


def certified(p: Any) -> Any:
    """Return which hypotheses Holm's procedure rejects; with probability 1 - delta none of them is true.

    The i-th smallest of m p-values is rejected if it is at most ``delta / (m + 1 - i)`` and all smaller ones are
    rejected (Holm, "A simple sequentially rejective multiple test procedure", 1979).

    Args:
        p: [m] in [0, 1].

    Returns:
        [m] bool.
    """
    ordered = jnp.sort(p)
    small = ordered <= DELTA / jnp.arange(len(p), 0, -1, jnp.float64)
    # The first p-value above its limit ends the procedure.
    rejected = jnp.cumprod(small, dtype=bool)
    return p <= jnp.max(jnp.where(rejected, ordered, -1.0))


class LearnThenTestState(NamedTuple):
    """The state of a copy."""

    arm: Any  # [] int32, the arm in use
    fractional: Any  # [] bool, whether some error was neither 0 nor 1
    count: Any  # [H], calibration rounds by cut
    wrong: Any  # [H], the sum of their errors


def _threshold(state: LearnThenTestState, alpha: Any) -> Any:
    """Return the lowest certified threshold, or the last arm."""
    answered, errors = (jnp.sum(x) - jnp.cumsum(x)[:-1] for x in (state.count, state.wrong))
    good = certified(p_value(answered, errors, alpha, state.fractional))
    return jnp.where(jnp.any(good), jnp.argmax(good), state.count.size - 1).astype(jnp.int32)


def backend(precision: str) -> Backend:
    """Make the only backend of this learner, whatever the precision; its state is ``LearnThenTestState``."""

    def init(arms: int, best: Any) -> LearnThenTestState:
        nothing = jnp.zeros(arms, jnp.float64)
        return LearnThenTestState(jnp.zeros((), jnp.int32), jnp.asarray(False), nothing, nothing)

    def begin(state: LearnThenTestState, parameters: Parameters) -> tuple[LearnThenTestState, Any]:
        # All copies share the block's number, so under vmap this stays a branch, which is taken only once. A
        # batched condition would become a select and compute the threshold in every block.
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


learn_then_test = Learner(feedback="bandit", rule=Own(backend))
