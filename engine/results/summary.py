"""The summary on the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exaul.engine.data.records import Records
from exaul.engine.data.tables import Table
from exaul.engine.results.trials import lemma_holds, risk_holds
from exaul.kernels.coverage import coverage_by_grid

_COLUMNS = (
    ("learner", 19),
    ("alpha", 7),
    ("lambda", 8),
    ("FDR", 15),
    ("inefficiency", 15),
    ("FDR<=alpha", 11),
    ("regret", 9),
    ("of bound", 9),
    ("bound broken", 20),
    ("Lemma 1", 8),
    ("R_T (at most)", 16),
)


def summarize(trials: Table) -> str:
    """One line per learner, alpha and lambda: mean and standard deviation over trials, beside the theory."""
    columns = _COLUMNS if _promises(trials) else _COLUMNS[:-1]
    lines = ["".join(title.rjust(width) for title, width in columns)]
    for (name, alpha, lam), rows in trials.groupby(["learner", "alpha", "lambda"], sort=False):
        cells = [
            str(name),
            f"{alpha:.4g}",
            f"{lam:.4g}",
            _spread(rows["fdr"]),
            _spread(rows["inefficiency"]),
            f"{(rows['fdr'] <= alpha).mean():.0%}",
            f"{rows['regret'].mean():.1f}",
            *_bound(rows),
            "held" if lemma_holds(rows).all() else "BROKEN",
            _risk(rows),
        ]
        lines.append("".join(cell.rjust(width) for cell, (_, width) in zip(cells, columns, strict=False)))
    return "\n".join(lines)


def played_on(manifest: Mapping[str, Any]) -> str:
    """The device of a sweep, and the backends with their learners."""
    by_backend: dict[str, list[str]] = {}
    for player in manifest["players"]:
        by_backend.setdefault(player["backend"], []).append(player["learner"])
    backends = "; ".join(f"{', '.join(learners)} on {backend}" for backend, learners in by_backend.items())
    return f"played on {manifest['device']}, {manifest['precision']}: {backends}"


def _promises(trials: Table) -> bool:
    """Whether a learner that answers promises something of R_T."""
    return bool((trials["risk_bound"] > 0).any())


def _spread(values: Any) -> str:
    return f"{values.mean():.4f} ±{values.std(ddof=0):.4f}"


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
    """The exact interval of a probability from how often it came true (Clopper and Pearson, 1934)."""
    tail = (1 - confidence) / 2
    if count in (0, trials):
        apart = tail ** (1 / trials)
        return (0.0, 1 - apart) if count == 0 else (apart, 1.0)
    from scipy.special import betaincinv  # here, for it takes half a second and is seldom needed

    return float(betaincinv(count, trials - count + 1, tail)), float(
        betaincinv(count + 1, trials - count, 1 - tail)
    )


def _risk(rows: Table) -> str:
    """Mean R_T, and the mean of what it cannot exceed."""
    if rows["risk_bound"].isna().any():
        return f"{rows['fdr_risk'].mean():.0f} (-)"
    broken = "" if risk_holds(rows).all() else " BROKEN"
    return f"{rows['fdr_risk'].mean():.0f} ({rows['risk_bound'].mean():.0f}){broken}"


def explain(trials: Table, delta: float) -> str:
    """What the columns of the summary mean."""
    text = (
        "FDR: share of wrong among answered; inefficiency: share abstained (mean ±standard deviation over "
        "trials).\nof bound: mean regret over its bound, which holds with probability "
        f"{1 - delta:g} per trial; bound broken: trials above it (95% interval)."
    )
    if not _promises(trials):
        return text
    return (
        f"{text}\nR_T: sum of e - alpha over what was answered, and what it cannot exceed on any sequence (means)."
    )


def feasibility(records: Sequence[Records], grid: str, arms: int, alphas: Sequence[float]) -> str:
    """What a fixed threshold could answer at each alpha, on this grid, on the others, and at all."""
    lines = []
    for source in records:
        for alpha in alphas:
            best = coverage_by_grid(arms, source.scores, source.errors, alpha)
            lines.append(f"{source.name} at alpha = {alpha:g}: {_verdict(best, grid)}")
    return "\n".join(lines)


def _verdict(best: dict[str, float], grid: str) -> str:
    ideal, here = best["all thresholds"], best[grid]
    if ideal == 0:
        return "no threshold reaches alpha on this log; a learner that holds alpha will mostly abstain"
    others = {
        name: best[name] for name in best if name not in ("all thresholds", "quantile", grid)
    }  # one looks ahead
    better = max(others, key=lambda name: others[name])
    advice = f"; --grid {better}: {others[better]:.1%}" if others[better] > here + 0.005 else ""
    if here == 0:
        reaches = f"no threshold of the {grid} grid reaches alpha on this log"
        return f"{reaches}; of all thresholds the best answers {ideal:.1%}{advice}"
    return f"of the {grid} grid a fixed threshold with FDR <= alpha answers {here:.1%}, of all {ideal:.1%}{advice}"
