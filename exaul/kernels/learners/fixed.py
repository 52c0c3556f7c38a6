"""Learners with a fixed threshold: ``no-abstention``, ``always-abstain`` and ``best-fixed``.

They use arm 0, which answers everything, arm H - 1, which answers nothing, and the arm of least loss in hindsight,
which defines the regret (eq. 3).
"""

import numpy as np

from exaul.kernels.bounds import RegretBounds
from exaul.kernels.learners.learner import Fixed, Learner

no_abstention = Learner(feedback="none", rule=Fixed(lambda arms, best: 0))
always_abstain = Learner(
    feedback="none",
    rule=Fixed(lambda arms, best: arms - 1),
    risk_bound=lambda eta, t, answered, alpha, state: 0.0 * np.multiply(t, answered),  # eq. 1
)
best_fixed = Learner(
    feedback="hindsight",
    rule=Fixed(lambda arms, best: best),
    # 0 is the regret of the arm of least loss against itself (eq. 3); that against abstaining is at most 0
    regret_bounds=RegretBounds(*[lambda *arguments: 0.0] * 3),
)
