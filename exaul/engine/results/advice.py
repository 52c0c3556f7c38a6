"""Advice: the learner that a sweep recommends at each alpha, or the sentence that none should be used.

A learner qualifies if it answers and ``fdr_most`` is near alpha (NEAR); of those, the advised one has the
largest ``answered_least``. ``fdr_most`` is the upper 95% confidence bound of the mean FDR over trials or, if it is
larger, the FDR in the order of the log. ``answered_least`` is the lower bound of the mean share answered or, if it
is smaller, the share in that order. The bounds are ``mean +- 1.645 sd / sqrt(trials)``, the normal approximation.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from exaul.engine.data import tables
from exaul.engine.data.records import Records
from exaul.engine.data.tables import Table, frame
from exaul.kernels.coverage import risk_coverage
from exaul.kernels.game import GRIDS

NEAR = 0.01  # tolerance: an FDR of alpha + NEAR counts as held; at alpha below 2 NEAR, one of 1.5 alpha
FEASIBLE = 0.05  # a threshold that answers less is not useful
QUANTILE = 1.645  # of the normal distribution, at 95%
_CELL = ["learner", "lambda"]


class Compared(NamedTuple):
    """Trials that were simulated for the advice alone."""

    trials: Table  # as in ``trials.csv``
    players: list[dict[str, Any]]  # as in the manifest


def advice_table(trials: Table, players: Sequence[Mapping[str, Any]], in_order: Table | None = None) -> Table:
    """Return one row per alpha, candidate and lambda; ``columns.py`` defines the columns.

    Candidates are the learners that learn from thumbs and have a bound of R_T; if there are none, all that learn
    from thumbs.

    Args:
        trials: as in ``trials.csv``.
        players: those of the trials, as in the manifest.
        in_order: a trial of each candidate in the order of the log.
    """
    bandit = trials[trials["learner"].isin([x["learner"] for x in players if x["feedback"] == "bandit"])]
    by_answers = {x["learner"] for x in players if x["bound_by_answers"]}
    promised = bandit.dropna(subset="risk_bound")
    rows: list[dict[str, Any]] = []
    for alpha, cells in (bandit if promised.empty else promised).groupby("alpha", sort=False):
        candidates = []
        for (learner, lam), cell in cells.groupby(_CELL, sort=False):
            # the largest bound of R_T is that of the trial with the fewest answers
            fewest = cell["answered"].min() if learner in by_answers else np.nan
            row = {"alpha": alpha, "learner": learner, "lambda": lam, **_measured(cell, in_order)}
            candidates.append(row | {"risk_bound": cell["risk_bound"].max(), "fewest": fewest})
        held = [x for x in candidates if x["fdr_most"] <= alpha + min(NEAR, alpha / 2) and x["answered_least"] > 0]
        best = max(held, key=lambda x: x["answered_least"], default=None)
        rows += [x | {"qualifies": int(x in held), "advised": int(x is best)} for x in candidates]
    return frame(rows)


def _measured(cell: Table, in_order: Table | None) -> dict[str, Any]:
    share, fdr = cell["answered"] / cell["horizon"], cell["fdr"]
    values = {"fdr_in_order": np.nan, "answered_in_order": np.nan}
    if in_order is not None:
        same = in_order.merge(cell.iloc[:1][[*_CELL, "alpha"]])
        values = {"fdr_in_order": same["fdr"][0], "answered_in_order": (same["answered"] / same["horizon"])[0]}
    return {
        "trials": len(cell),
        "fdr": fdr.mean(),
        **values,
        "fdr_most": np.fmax(fdr.mean() + _margin(fdr), values["fdr_in_order"]),
        "answered": share.mean(),
        "answered_least": np.fmin(share.mean() - _margin(share), values["answered_in_order"]),
    }


def _margin(values: Any) -> float:
    return QUANTILE * float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def advised(table: Table) -> dict[float, str]:
    """Return the advised learner by alpha; alphas at which none is advised are missing."""
    return {} if table.empty else table[table["advised"] == 1].set_index("alpha")["learner"].to_dict()


def advised_cells(table: Table) -> set[tuple[str, float, float]]:
    """Return learner, alpha and lambda of each advised row."""
    rows = table if table.empty else table[table["advised"] == 1][["learner", "alpha", "lambda"]]
    return set(rows.itertuples(index=False, name=None))


def load(path: Path) -> Table:
    """Return the table in a folder of results; it is empty, as in the result, if there were no candidates."""
    file = path / "advice.csv"
    return tables.load(file) if file.exists() else frame([])


def least_alpha(records: Iterable[Records], grid: str, arms: int) -> float:
    """Return the least alpha, in hundredths, at which a threshold answers a share FEASIBLE of every source."""
    least = []
    for source in records:
        coverage, risk = risk_coverage(GRIDS[grid](arms, source.scores), source.scores, source.errors)
        least.append(risk[coverage >= FEASIBLE].min(initial=1.0))
    return math.ceil(100 * max(least)) / 100


def describe(
    table: Table, horizon: int, answerable: Mapping[float, float], least: float | None, waiting: str = ""
) -> str:
    """Return one sentence per alpha, and one that names the candidates; nothing if there are none.

    Args:
        table: as ``advice_table`` returned it.
        horizon: rounds T of a trial.
        answerable: by alpha, the largest share that a fixed threshold answers with an FDR of at most alpha; empty
            if it is unknown.
        least: as ``least_alpha`` returned it; None if it is unknown.
        waiting: the condition of the bounds if feedback is late, as ``describe_waiting`` returns it.
    """
    if table.empty:
        return ""
    lines = []
    for alpha, rows in table.groupby("alpha", sort=False):
        advised = rows[rows["advised"] == 1]
        best = answerable.get(alpha)
        text = _against(rows, best, least) if advised.empty else _for(advised.iloc[0], rows, horizon, best, waiting)
        lines.append(f"at alpha = {alpha} {text}")
    return "\n".join([*lines, _compared(table)])


def _for(row: Any, rows: Table, horizon: int, answerable: float | None, waiting: str) -> str:
    promises = not np.isnan(row["risk_bound"])
    several = (rows["learner"] == row["learner"]).sum() > 1
    name = row["learner"] + (f" (lambda = {row['lambda']:.4g})" if several else "")
    least, most = row["answered_least"], -_floor(-row["fdr_most"], 4)
    part = f" ({_floor(min(least / answerable, 1), 2):.0%} of answerable)" if answerable else ""
    text = f"use {name}" if promises else f"the best of these is {name}"
    text += f": it answers at least {_floor(least, 3):.1%}{part} at an FDR of at most {most:.4f}"
    if promises:
        fewest = "" if np.isnan(row["fewest"]) else f" of which it answers at least {row['fewest']:,.0f}"
        text += f"; on any {horizon:,} questions{fewest}{waiting + ',' if waiting else ''} it promises at most "
        text += f"{math.ceil(row['risk_bound']):,} wrong answers above alpha"
    return text


def _floor(value: float, digits: int) -> float:
    """Round down to some digits; a value that a float holds only nearly counts as exact."""
    return math.floor(round(value * 10**digits, 6)) / 10**digits


def _against(rows: Table, answerable: float | None, least: float | None) -> str:
    nearest = rows.loc[rows["fdr_most"].idxmin()]
    text = (
        f"use none of these learners: {nearest['learner']} comes nearest, with an FDR of {nearest['fdr_most']:.4f}"
    )
    if answerable is not None and answerable >= FEASIBLE:
        return f"{text}; a fixed threshold answers {answerable:.1%}, but the rounds are too few to learn it"
    if least is not None:
        return f"{text}; {least:g} is the least alpha at which a fixed threshold answers {FEASIBLE:.0%}"
    return text


def _compared(table: Table) -> str:
    groups = (
        f"{', '.join(rows['learner'])} in {trials} trial{'s' if trials > 1 else ''}"
        for trials, rows in table.drop_duplicates("learner").groupby("trials", sort=False)
    )
    in_order = "" if table["fdr_in_order"].isna().all() else ", and each in the order of the log"
    return (
        f"compared: {'; '.join(groups)}{in_order}. A learner qualifies with an FDR of at most alpha + {NEAR:g}, "
        "or 1.5 alpha if that is less (confidence 95%)."
    )
