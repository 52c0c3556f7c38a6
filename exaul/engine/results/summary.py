"""The sentences of a sweep's summary: what can be answered, and what was simulated where."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exaul.engine.checks import join_lines
from exaul.engine.logs.log import Records, describe_start
from exaul.engine.logs.profiles import PROFILES
from exaul.engine.sweep import Sweep
from exaul.kernels.coverage import best_coverage, coverage_by_grid
from exaul.kernels.game import LOG_GRID
from exaul.kernels.metrics import Floats


def shares_answerable(
    records: Sequence[Records], grid: Floats, segments: int, alphas: Sequence[float]
) -> dict[float, float]:
    """Return, by alpha, the largest share that a threshold of the grid [H] answers with an FDR of at most alpha.

    It is the mean over segments, which alternate between the sources. The result is empty if it is unknown: the
    records are not available, or a segment mixes sources.
    """
    if len(records) != min(segments, 2):
        return {}
    segment_records = [records[segment % 2] for segment in range(segments)] if segments > 1 else records
    return {
        alpha: float(
            np.mean([best_coverage(grid, segment.scores, segment.errors, alpha) for segment in segment_records])
        )
        for alpha in alphas
    }


def describe_rounds(records: Sequence[Records], horizon: int) -> str:
    """Return how often a trial of ``stochastic`` uses each record of a log; empty for a profile, or if unknown."""
    logs = [source for source in records if source.name not in PROFILES]
    if not logs:
        return ""
    many = len(logs[0].scores)
    times = f"{horizon / many:.3g} times" if horizon > many else "once" if horizon == many else "at most once"
    return f"a trial has {horizon:,} rounds (--horizon) and uses each of the {many:,} records {times}"


def describe_left_out(sweep: Sweep, left_out: int) -> str:
    """Return how many traces were too short, in brackets; empty if none."""
    records = "no record" if sweep.least == 1 else f"fewer than {sweep.least} records"
    return f" ({left_out} with {records} left out)" if left_out else ""


def describe_backends(manifest: Mapping[str, Any], players: Sequence[Mapping[str, Any]]) -> str:
    """Return the line with device, precision, and the backend of each learner."""
    by_backend: dict[str, list[str]] = {}
    for player in players:
        by_backend.setdefault(player["backend"], []).append(player["learner"])
    backends = "; ".join(f"{', '.join(learners)} on {backend}" for backend, learners in by_backend.items())
    return join_lines(f"simulated on {manifest['device']}, {manifest['precision']}: {backends}")


def feasibility(records: Sequence[Records], name: str, grid: Floats, alphas: Sequence[float]) -> str:
    """Return, per source and alpha, the largest share that a threshold answers with an FDR of at most alpha.

    ``name`` is that of the grid [H].
    """
    lines = []
    for source in records:
        for alpha in alphas:
            best = coverage_by_grid(len(grid), source.scores, source.errors, alpha)
            best[name] = best_coverage(grid, source.scores, source.errors, alpha)
            lines.append(f"{source.name} at alpha = {alpha:g}: {_verdict(best, name)}")
    return "\n".join(lines)


def _verdict(best: dict[str, float], grid: str) -> str:
    ideal, on_grid = best["all thresholds"], best[grid]
    if ideal == 0:
        return "no threshold reaches alpha on this log; a learner that holds alpha will mostly abstain"
    others = {
        name: best[name] for name in best if name not in ("all thresholds", "quantile", grid)
    }  # the quantile grid looks ahead
    better = max(others, key=lambda name: others[name])
    hint = grid != LOG_GRID and others[better] > on_grid + 0.005  # that of a log is the one to start from
    advice = f"; --grid {better}: {others[better]:.1%}" if hint else ""
    if on_grid == 0:
        reaches = f"no threshold of the {grid} grid reaches alpha on this log"
        return f"{reaches}; the best of all thresholds answers {ideal:.1%}{advice}"
    holds = f"the best threshold of the {grid} grid answers {on_grid:.1%}"
    return f"{holds}, the best of all thresholds {ideal:.1%}{advice}"


def describe_warm_start(source: Mapping[str, Any]) -> str:
    """Return a line per learner and alpha that starts from a log; empty without one.

    ``source`` is an entry of ``sources`` in a manifest.
    """
    log = source["warm_start"]
    shares = {} if log is None else log["shares"]
    return "\n".join(
        describe_start(log, learner, float(alpha), share)
        for learner, by_alpha in shares.items()
        for alpha, share in by_alpha.items()
    )
