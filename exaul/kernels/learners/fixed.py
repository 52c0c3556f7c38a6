"""Comparators with a fixed threshold: ``no-abstention``, ``always-abstain`` and ``best-fixed``.

They use arm 0, which answers everything, arm H - 1, which answers nothing, and the arm of least loss in hindsight,
which defines the regret (eq. 3).
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.bounds import RegretBounds
from exaul.kernels.learners.learner import Fixed, Learner


def zero_regret(eta: Any, gamma: Any, rounds: Any, arms: int, delta: float, alpha: Any, lam: Any) -> float:
    """Return 0, the regret of the arm of least loss against itself (eq. 3)."""
    return 0.0


def no_risk(eta: Any, gamma: Any, rounds: Any, t: ArrayLike, answered: ArrayLike, arms: int) -> NDArray[np.float64]:
    """Return 0, the FDR risk (eq. 1) of a learner that never answers, in the broadcast shape."""
    return np.zeros(np.broadcast_shapes(np.shape(t), np.shape(answered)))


no_abstention = Learner(feedback="none", rule=Fixed(lambda arms, best: 0))
always_abstain = Learner(feedback="none", rule=Fixed(lambda arms, best: arms - 1), risk_bound=no_risk)
NO_REGRET = RegretBounds(zero_regret, zero_regret, zero_regret)  # that against abstaining is at most 0
best_fixed = Learner(feedback="hindsight", rule=Fixed(lambda arms, best: best), regret_bounds=NO_REGRET)
