"""``exaul-known``: exponential weights that know what an abstention costs.

An abstention costs the same whatever the answer would have been, so the arms above the cut are charged that cost in
every round. Only the loss of the arms below the cut must be estimated, and only after an answer. Half of the mass
begins on the last arm, which always abstains. The regret against that arm, on which alone the FDR depends (Lemma
1), then has a bound without the number of arms, and no implicit exploration is needed (``docs/proofs.md``, R5).

This feedback is apple tasting (Helmbold, Littlestone and Long, "Apple tasting", 2000), a case of feedback graphs
(Alon, Cesa-Bianchi, Dekel and Koren, "Online learning with feedback graphs: beyond bandits", 2015). ``exaul``
answers more; ``exaul-known`` guarantees more.
"""

import math
from collections.abc import Callable
from typing import Any

from exaul.kernels.bounds import KNOWN_BOUNDS, KNOWN_CAP, KNOWN_PRIOR
from exaul.kernels.game import Rates, RuleParams
from exaul.kernels.learners.learner import Learner, Sided, at_double


def charge(
    where: Callable[..., Any], P: Any, Q: Any, answered: Any, error: Any, params: RuleParams
) -> tuple[Any, Any]:
    """Charge the arms above the cut their loss, and those below its estimate (eq. 8), which is capped.

    An answer was drawn with probability P > 0, so gamma may be 0.
    """
    divisor = where(answered, params.gamma + P, 1.0)
    estimate, cap = params.answer_cost * error / divisor, KNOWN_CAP / params.eta
    return where(answered, where(estimate < cap, estimate, cap), 0.0), params.abstain_cost


def rates(horizon: int, arms: int) -> Rates:
    """Return ``eta = sqrt(2 ln 2 / T)`` and ``gamma = 0``, at which R5 is smallest."""
    return Rates(math.sqrt(2 * math.log(1 / KNOWN_PRIOR) / horizon), 0.0)


exaul_known = Learner(
    feedback="bandit",
    rule=Sided(charge, KNOWN_PRIOR),
    rates=rates,
    anytime=at_double(rates),  # eta_t = sqrt(ln 2 / t)
    regret_bounds=KNOWN_BOUNDS,
)
