"""Coverage of the best fixed thresholds on the records of an experiment, and on mixtures of two sources."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from exaul import Sweep
from exaul.engine.logs.log import Records
from exaul.kernels.coverage import coverage_by_grid, every_threshold, risk_coverage
from exaul.kernels.game import ARMS, GRIDS
from exaul.kernels.metrics import Floats

MIXED = tuple((place + 0.5) / 20 for place in range(20))  # shares of the second source in a gradual shift


def mixed_coverage(
    grid: Floats, first: tuple[Floats, Floats], second: tuple[Floats, Floats], shares: Floats, alpha: float
) -> Floats:
    """Return [S] ``best_coverage`` of records drawn from ``first`` and ``second`` (scores, errors).

    ``grid`` [H] is non-decreasing from 0 to 1; ``shares`` [S] are the probabilities of the second log.
    """
    answered, wrong = np.zeros((2, len(shares), len(grid)))
    for weights, (scores, errors) in ((1 - shares, first), (shares, second)):
        coverage, risk = risk_coverage(grid, scores, errors)
        answered += np.outer(weights, coverage)
        wrong += np.outer(weights, coverage * np.nan_to_num(risk))
    allowed = wrong <= alpha * answered + 1e-12  # tolerance for rounded weights
    return np.where(allowed, answered, 0.0).max(axis=1)


def of_source(sweep: Sweep, source: Records, alpha: float) -> dict[str, Any]:
    """Return the row of coverage of one source."""
    best = coverage_by_grid(sweep.arms or ARMS, source.scores, source.errors, alpha)
    return {
        "source": source.name,
        "records": len(source.scores),
        "error_rate": source.errors.mean(),
        "alpha": alpha,
        "second": 0.0,
        "grid": sweep.grid,
        "on_grid": best.get(sweep.grid, best["all thresholds"]),  # the grid of a log is close to all thresholds
        "anywhere": best["all thresholds"],
    }


def of_mixtures(sweep: Sweep, records: Sequence[Records], alpha: float) -> list[dict[str, Any]]:
    """Return the rows of coverage of mixtures of two sources, one per share in ``MIXED``."""
    first, second = records
    scores = np.concatenate([first.scores, second.scores])
    grids = {"on_grid": GRIDS[sweep.grid](sweep.arms or ARMS, scores), "anywhere": every_threshold(scores)}
    shares = np.array(MIXED)
    best = {name: mixed_coverage(grid, first[1:3], second[1:3], shares, alpha) for name, grid in grids.items()}
    return [
        {
            "source": " -> ".join(one.name for one in records),
            "records": len(scores),
            "error_rate": (1 - share) * first.errors.mean() + share * second.errors.mean(),
            "alpha": alpha,
            "second": share,
            "grid": sweep.grid,
        }
        | {name: coverage[place] for name, coverage in best.items()}
        for place, share in enumerate(MIXED)
    ]
