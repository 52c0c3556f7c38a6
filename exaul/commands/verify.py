"""``exaul verify``: check a sweep's precision and backends against dense in float64."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from exaul.commands.terminal import terminal_width
from exaul.engine.checks import BadInput
from exaul.engine.sweep import Sweep

CONFIGURATIONS = (Sweep,)


def main(given: Mapping[str, Any]) -> int:
    """Check a sweep and print the certificates. Return 0 if all are within bounds, else 1.

    Raise BadInput if a flag does not apply, if the environment is adaptive (two backends may then get different
    questions), or if no learner has weights to compare.
    """
    from exaul.engine.machine import cache
    from exaul.engine.simulation.certify import COPIES, certify_all, is_certified, report
    from exaul.engine.simulation.prepare import prepare

    for name in ("out", "shard", "checkpoints", "delta"):
        if name in given:
            raise BadInput(f"{name}: given, but verify writes no results and compares every round")
    sweep = Sweep(**given)
    cache.use_compilation_cache()
    cells = len(sweep.alphas) * max(1, len(sweep.lambdas))
    prepared = prepare(sweep, trials=np.arange(min(sweep.trials, max(2, COPIES // cells))))
    if prepared.is_adaptive:
        raise BadInput(f"environment: {sweep.environment} found; it must be oblivious, so that questions are equal")
    certificates = certify_all(prepared)
    if not certificates:
        names = ", ".join(player.name for player in prepared.players)
        raise BadInput(f"learners: {names} found; at least one must have weights, whose sums are rounded")
    print(report(certificates, prepared, terminal_width()))
    return 0 if all(is_certified(certificate, sweep.precision) for certificate in certificates) else 1
