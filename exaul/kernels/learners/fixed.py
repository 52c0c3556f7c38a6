"""Comparators whose threshold never moves: ``no-abstention``, ``always-abstain`` and ``best-fixed``.

They play arm 0, which answers everything, arm H - 1, which answers nothing, and the arm of least loss in hindsight,
with which the regret compares a learner (eq. 3).
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.bounds import unbounded
from exaul.kernels.learners.learner import Fixed, Learner


def _first(arms: int, best: NDArray[Any]) -> int:
    return 0


def _last(arms: int, best: NDArray[Any]) -> int:
    return arms - 1


def _best(arms: int, best: NDArray[Any]) -> NDArray[Any]:
    return best


def no_rates(eta: Any, gamma: Any, rounds: Any, arms: int, delta: float, alpha: Any, lam: Any) -> float:
    """The regret of the arm of least loss against itself (eq. 3).

    Arguments as of ``Learner.regret_bound``; none is read.

    Returns:
        0.
    """
    return 0.0


def no_risk(eta: Any, gamma: Any, rounds: Any, t: ArrayLike, answered: ArrayLike, arms: int) -> NDArray[np.float64]:
    """The FDR risk (eq. 1) of a learner that never answers.

    Arguments as of ``Learner.risk_bound``; only the shapes of ``t`` and ``answered`` are read.

    Returns:
        0, of the broadcast shape of ``t`` and ``answered``.
    """
    return np.zeros(np.broadcast_shapes(np.shape(t), np.shape(answered)))


no_abstention = Learner("none", Fixed(_first), None, None, unbounded)
always_abstain = Learner("none", Fixed(_last), None, None, unbounded, risk_bound=no_risk)
best_fixed = Learner("hindsight", Fixed(_best), None, None, no_rates)
