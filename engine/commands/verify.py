"""``exaul verify``: certify a sweep's precision and backends against the dense one in float64."""

import numpy as np

from exaul.engine.checks import BadInput
from exaul.engine.sweep import Sweep

CONFIGURATIONS = (Sweep,)


def main(sweep: Sweep) -> int:
    """Certify a sweep and print the certificates: status 0 if all are within bounds, else 1.

    Raises:
        BadInput: the sweep's world answers back, so that no two programs need meet the same questions.
    """
    from exaul.engine.machine import cache
    from exaul.engine.play.certify import COPIES, certify_all, holds, report
    from exaul.engine.play.prepare import prepare

    cache.use()
    cells = len(sweep.alphas) * max(1, len(sweep.lambdas))
    prepared = prepare(sweep, trials=np.arange(min(sweep.trials, max(2, COPIES // cells))))
    if prepared.reacts:
        raise BadInput(f"environment: {sweep.environment} found; games that answer back take their own course")
    certificates = certify_all(prepared)
    print(report(certificates, sweep))
    return 0 if all(holds(certificate, sweep.precision) for certificate in certificates) else 1
