"""The summary of a sweep on the terminal."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exaul.engine.checks import join_lines
from exaul.engine.data.profiles import PROFILES
from exaul.engine.data.records import Records
from exaul.engine.data.tables import Table
from exaul.engine.results.trials import lemma_holds, risk_holds
from exaul.kernels.coverage import best_coverage, coverage_by_grid
from exaul.kernels.game import GRIDS

_COLUMNS = (
    ("learner", 18),
    ("alpha", 6),
    ("lambda", 7),
    ("FDR", 15),
    ("inefficiency", 15),
    ("answered", 9),
    ("of answerable", 14),
    ("FDR<=alpha", 11),
    ("regret", 8),
    ("of bound", 9),
    ("bound broken", 16),
    ("Lemma 1", 8),
    ("R_T (at most)", 14),
)
_FEEDBACK = (
    ("learner", 18),
    ("alpha", 6),
    ("observed", 10),
    ("FDR observed", 13),
    ("aim", 7),
    ("above aim (at most)", 22),
)


def shares_answerable(
    records: Sequence[Records], grid: str, arms: int, segments: int, alphas: Sequence[float]
) -> dict[float, float]:
    """Return, by alpha, the largest share that a threshold of the grid answers with an FDR of at most alpha.

    It is the mean over segments, which alternate between the sources. The result is empty if it is unknown: the
    records are not available, or a segment mixes sources.
    """
    if len(records) != min(segments, 2):
        return {}
    points = GRIDS[grid](arms, np.concatenate([source.scores for source in records]))
    segment_records = [records[segment % 2] for segment in range(segments)] if segments > 1 else records
    return {
        alpha: float(
            np.mean([best_coverage(points, segment.scores, segment.errors, alpha) for segment in segment_records])
        )
        for alpha in alphas
    }


def summarize(trials: Table, answerable: Mapping[float, float]) -> str:
    """Return one line per learner, alpha and lambda: mean and standard deviation over trials, and the bounds."""
    columns = _COLUMNS if _promises(trials) else _COLUMNS[:-1]
    lines = []
    for (name, alpha, lam), rows in trials.groupby(["learner", "alpha", "lambda"], sort=False):
        cells = [
            str(name),
            f"{alpha:.4g}",
            f"{lam:.4g}",
            _spread(rows["fdr"]),
            _spread(rows["inefficiency"]),
            f"{_answered(rows).mean():.1%}",
            _share_of_answerable(rows, answerable.get(alpha, 0.0)) or "-",
            f"{(rows['fdr'] <= alpha).mean():.0%}",
            f"{rows['regret'].mean():.1f}",
            *_bound(rows),
            "held" if lemma_holds(rows).all() else "BROKEN",
            _range_above(rows, "fdr_risk", "risk_bound"),
        ]
        lines.append(cells[: len(columns)])
    return "\n".join(_written(columns, lines))


def describe_feedback_sums(trials: Table) -> str:
    """Return one line per learner and cell about imperfect feedback; empty if feedback is perfect."""
    observed = trials.dropna(subset="observed")
    if observed.empty:
        return ""
    lines = []
    for (name, alpha, _), rows in observed.groupby(["learner", "alpha", "lambda"], sort=False):
        cells = [
            str(name),
            f"{alpha:.4g}",
            f"{rows['observed'].mean():.0f}",
            f"{rows['fdr_observed'].mean():.4f}",
            f"{rows['aim'].mean():.4f}",
            _range_above(rows, "feedback_risk", "feedback_risk_bound"),
        ]
        lines.append(cells)
    explanation = [
        "",
        "observed: answers with feedback; FDR observed: share of wrong among them, by that feedback; aim: the FDR "
        "observed at which the FDR of all answers is alpha.",
        "above aim: errors above the aim in the feedback learned, and at most this for any feedback (means).",
    ]
    return "\n".join(_written(_FEEDBACK, lines) + explanation)


def describe_rounds(records: Sequence[Records], horizon: int) -> str:
    """Return how often a trial of ``stochastic`` uses each record of a log; empty for a profile, or if unknown."""
    logs = [source for source in records if source.name not in PROFILES]
    if not logs:
        return ""
    many = len(logs[0].scores)
    times = f"{horizon / many:.3g} times" if horizon > many else "once" if horizon == many else "at most once"
    return f"a trial has {horizon:,} rounds (--horizon) and uses each of the {many:,} records {times}"


def describe_backends(manifest: Mapping[str, Any]) -> str:
    """Return the line with device, precision, and the backend of each learner."""
    by_backend: dict[str, list[str]] = {}
    for player in manifest["players"]:
        by_backend.setdefault(player["backend"], []).append(player["learner"])
    backends = "; ".join(f"{', '.join(learners)} on {backend}" for backend, learners in by_backend.items())
    return join_lines(f"simulated on {manifest['device']}, {manifest['precision']}: {backends}")


def _promises(trials: Table) -> bool:
    """Return whether a learner has a bound of R_T. A bound of 0 belongs to learners that never answer."""
    return bool((trials["risk_bound"] > 0).any())


def _spread(values: Any) -> str:
    return f"{values.mean():.4f} ±{values.std(ddof=0):.4f}"


def _answered(rows: Table) -> Any:
    return rows["answered"] / rows["horizon"]


def _share_of_answerable(rows: Table, answerable: float) -> str:
    """Return the mean of answered / answerable, at most 100% per trial; empty if nothing is answerable."""
    return f"{np.minimum(_answered(rows) / answerable, 1).mean():.0%}" if answerable > 0 else ""


def _bound(rows: Table) -> tuple[str, str]:
    bound = rows["regret_bound"].iloc[0]
    if np.isnan(bound) or bound == 0:
        return "-", "-"
    broken = int((rows["regret"] > bound).sum())
    low, high = binomial_interval(broken, len(rows))
    return (
        f"{rows['regret'].mean() / bound:.2f}",
        f"{broken}/{len(rows)} ({low:.0%}-{high:.0%})",
    )


def binomial_interval(count: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a probability after ``count`` successes (Clopper and Pearson, 1934)."""
    tail = (1 - confidence) / 2
    if count in (0, trials):  # closed form: one end is 0 or 1
        apart = tail ** (1 / trials)
        return (0.0, 1 - apart) if count == 0 else (apart, 1.0)
    from scipy.special import betaincinv  # imported here: it takes half a second and is seldom needed

    return float(betaincinv(count, trials - count + 1, tail)), float(
        betaincinv(count + 1, trials - count, 1 - tail)
    )


def _range_above(rows: Table, risk: str, bound: str) -> str:
    """Return the mean of a risk and, in brackets, of its bound."""
    most = "-" if rows[bound].isna().any() else math.ceil(rows[bound].mean())
    broken = "" if (rows[bound].isna() | risk_holds(rows)).all() else " BROKEN"
    return f"{rows[risk].mean():.0f} ({most}){broken}"


def _written(columns: Sequence[tuple[str, int]], lines: Sequence[Sequence[str]]) -> list[str]:
    rows = [title for title, _ in columns], *(map(join_lines, line) for line in lines)
    return ["".join(cell.rjust(width) for cell, (_, width) in zip(row, columns, strict=True)) for row in rows]


def explain(trials: Table, delta: float, waiting: str) -> str:
    """Return the explanation of the summary's columns; ``waiting`` is that of ``describe_waiting``."""
    lines = [
        "FDR: share of wrong among answered; inefficiency: share abstained (mean ±standard deviation over trials).",
        "of answerable: share answered, divided by the largest share that a fixed threshold answers with an FDR of "
        "at most alpha (if records shift, the mean over segments).",
        "of bound: mean regret divided by its bound, which holds with probability "
        f"1 - {delta} per trial; bound broken: trials above the bound (95% interval).",
    ]
    if _promises(trials):
        lines.append(
            "R_T: wrong answers above alpha, the sum of e - alpha over the answers; at most this on any sequence"
            f"{waiting} (of threshold: on any with as many answers; means)."
        )
    return "\n".join(lines)


def feasibility(records: Sequence[Records], grid: str, arms: int, alphas: Sequence[float]) -> str:
    """Return, per source and alpha, the largest share that a threshold answers with an FDR of at most alpha."""
    lines = []
    for source in records:
        for alpha in alphas:
            best = coverage_by_grid(arms, source.scores, source.errors, alpha)
            lines.append(f"{source.name} at alpha = {alpha:g}: {_verdict(best, grid)}")
    return "\n".join(lines)


def _verdict(best: dict[str, float], grid: str) -> str:
    ideal, on_grid = best["all thresholds"], best[grid]
    if ideal == 0:
        return "no threshold reaches alpha on this log; a learner that holds alpha will mostly abstain"
    others = {
        name: best[name] for name in best if name not in ("all thresholds", "quantile", grid)
    }  # the quantile grid looks ahead
    better = max(others, key=lambda name: others[name])
    advice = f"; --grid {better}: {others[better]:.1%}" if others[better] > on_grid + 0.005 else ""
    if on_grid == 0:
        reaches = f"no threshold of the {grid} grid reaches alpha on this log"
        return f"{reaches}; the best of all thresholds answers {ideal:.1%}{advice}"
    holds = f"the best threshold of the {grid} grid answers {on_grid:.1%}"
    return f"{holds}, the best of all thresholds {ideal:.1%}{advice}"
