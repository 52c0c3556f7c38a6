"""``learn-then-test``: calibrate once, then keep a certified threshold.

Angelopoulos, Bates, Candes, Jordan and Lei, "Learn then test: calibrating predictive algorithms to achieve risk
control", 2021. The learner answers the first 1,024 rounds and then fixes the lowest threshold whose FDR is
certified to be at most alpha. If rounds are independent and identically distributed, all certified thresholds have
such an FDR with probability .95. Each threshold except the last, which never answers, is a hypothesis. p-values are
those of Hoeffding and Bentkus, with Holm's correction, the defaults of ``BinaryClassificationController`` in MAPIE
1.6. If no threshold is certified, the learner uses the last arm. Nothing is proved if the distribution changes.
"""

import math
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.scipy.special import betainc, xlogy

from exaul.kernels.game import BLOCK, RuleParams
from exaul.kernels.learners.learner import Learner, Own
from experiments.rivals import DELTA, LabelCounts, OneThreshold, no_labels

CALIBRATION = 1024  # rounds, all answered: four whole blocks
ROUNDING = 1e-9  # in wrong answers: a sum of errors this little above an integer counts as equal to it


def p_value(answered: Any, wrong: Any, alpha: Any, is_fractional: Any) -> Any:
    """Compute the Hoeffding-Bentkus p-value of the hypothesis that a mean error is above alpha.

    ``min(exp(-n kl(min(W / n, alpha), alpha)), c P(Bin(n, alpha) <= ceil(W)))``. The constant c is 1 if each error
    is 0 or 1, so that W is binomial, and e if errors are fractional (Angelopoulos et al. 2021, after Bentkus, "On
    Hoeffding's inequalities", 2004).

    Args:
        answered: n >= 0, the number of answered rounds, any shape.
        wrong: W, the sum of their errors, same shape.
        alpha: in (0, 1), broadcasts.
        is_fractional: bool, whether some error is neither 0 nor 1, broadcasts.

    Returns:
        In [0, 1], of the broadcast shape; 1 if nothing was answered.
    """
    mean = jnp.minimum(wrong / jnp.maximum(answered, 1.0), alpha)
    hoeffding = jnp.exp(-answered * (xlogy(mean, mean / alpha) + xlogy(1 - mean, (1 - mean) / (1 - alpha))))
    ceiling = jnp.ceil(wrong - ROUNDING)
    # P(Bin(n, alpha) <= k) = I_{1 - alpha}(n - k, k + 1), for k < n; the guard keeps the first argument positive.
    binomial = betainc(jnp.maximum(answered - ceiling, 1.0), ceiling + 1, 1 - alpha)
    bentkus = jnp.where(is_fractional, math.e, 1.0) * jnp.where(ceiling < answered, binomial, 1.0)
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
    is_small = ordered <= DELTA / jnp.arange(len(p), 0, -1, jnp.float64)
    # The first p-value above its limit ends the procedure.
    rejected = jnp.cumprod(is_small, dtype=bool)
    return p <= jnp.max(jnp.where(rejected, ordered, -1.0))


def arm_of_block(labels: LabelCounts, params: RuleParams, arms: int) -> Any:
    """Return the arm in use; after the last round of calibration, the lowest certified threshold, which is kept."""

    def threshold() -> Any:
        return labels.lowest(certified(p_value(*labels.answered(), params.alpha, labels.is_fractional)))

    # All copies share the block's number, so under vmap this stays a branch, which is taken only once. A
    # batched condition would become a select and compute the threshold in every block.
    return lax.cond(params.block * BLOCK == CALIBRATION, threshold, lambda: labels.arm)


learn_then_test = Learner(feedback="bandit", rule=Own(partial(OneThreshold, labels=no_labels, choose=arm_of_block)))
