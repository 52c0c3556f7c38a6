"""``aci``: adaptive conformal inference on the score, with feedback on answers only.

Gibbs and Candes, "Adaptive conformal inference under distribution shift", 2021. A round is answered if its score
lies above z, a position in the grid in units of its length. An answer moves z by ``.005 (e - alpha)``: up if it was
wrong, down if it was right. An abstention moves nothing, so the learner stays silent if no score reaches z. Beside
it, ``aci-rank`` shows what ranks, the payback and the drift are worth.
"""

from typing import Any, NamedTuple

from exaul.kernels.game import Rates
from exaul.kernels.learners.learner import Learner, Ranked

STEP = 0.005
# The first count of every cut, in records: so large that the records to come change no rank, and the rank of a
# score remains its position in the grid.
FIRST_COUNT = 2.0**50


class AciState(NamedTuple):
    """The state of a copy."""

    threshold: Any  # z, in units of the grid


aci = Learner(
    feedback="bandit",
    rule=Ranked(
        AciState(0.0),
        lambda where, z, high, low: where(high > z.threshold, 1.0, 0.0),
        # z moves by eta (e - alpha) after an answer
        lambda where, z, answered, error, params: AciState(
            z.threshold + where(answered, params.eta * (error - params.alpha), 0.0)
        ),
        prior=FIRST_COUNT,
        decay=1 - 2.0**-50,
    ),
    rates=lambda horizon, arms: Rates(STEP, None),
)
