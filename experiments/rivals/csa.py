"""``csa``: the lowest threshold that bets certify, after Conformal Selective Acting.

Khosravi and Huo, "Conformal selective acting: anytime-valid risk control for RLVR-trained LLMs", 2026. Every
threshold has a wealth that grows if its answers are wrong less often than alpha. If its FDR is above alpha, the
wealth ever reaches (H - 1) / delta with probability at most delta / (H - 1) (Ville). The learner takes the lowest
threshold with such a wealth, or the last arm, which answers nothing. As where rewards can be verified, it sees the
label of every round, answered or not. Ours are the bets (the wealth is a mean over fixed ones) and the times: the
threshold is chosen anew before every block of 256 rounds. The paper's calibration of scores is left out.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from exaul.kernels.game import RuleParams
from exaul.kernels.learners.learner import Learner, Own
from experiments.rivals import DELTA, LabelCounts, OneThreshold, no_labels

BETS = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)  # shares of the wealth that a wrong answer costs (chosen)


def log_wealth(answered: Any, wrong: Any, alpha: Any) -> Any:
    """Return the logarithm of the mean over bets b of ``(1 + b alpha / (1 - alpha))^(n - W) (1 - b)^W``.

    It is a supermartingale if the mean error is at least alpha. For errors between 0 and 1 it is at most the
    product of ``1 + b (alpha - e) / (1 - alpha)``, since the logarithm is concave.

    Args:
        answered: n >= 0, number of answers, any shape.
        wrong: W, the sum of their errors, same shape.
        alpha: in (0, 1), broadcasts.
    """
    gains = [(answered - wrong) * jnp.log1p(b * alpha / (1 - alpha)) + wrong * math.log1p(-b) for b in BETS]
    return jax.nn.logsumexp(jnp.stack(gains), axis=0) - math.log(len(BETS))


def certified_arm(labels: LabelCounts, params: RuleParams, arms: int) -> Any:
    """Return the lowest threshold whose wealth is at least (H - 1) / delta."""
    return labels.lowest(log_wealth(*labels.answered(), params.alpha) >= jnp.log((arms - 1) / DELTA))


csa = Learner(
    feedback="full",
    rule=Own(partial(OneThreshold, labels=no_labels, choose=certified_arm, sees_all=True)),
)
