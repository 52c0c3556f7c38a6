"""Table and printed summary of a sweep over traces."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exaul.engine.checks import join_lines
from exaul.engine.data.records import Records
from exaul.engine.data.tables import Table
from exaul.engine.results.advice import FEASIBLE, NEAR

NONE = "none"  # if no learner is advised
_COLUMNS = (
    ("learner", 19),
    ("alpha", 7),
    ("lambda", 8),
    ("traces", 8),
    ("of answerable", 15),
    ("its 10% quantile", 18),
    (f"FDR<=alpha+{NEAR:g}", 16),
    ("largest R_T", 13),
)


def trace_rows(
    name: str,
    records: Sequence[Records],
    best: Mapping[float, float],
    trials: Table,
    advised: Mapping[float, str],
) -> list[dict[str, Any]]:
    """Return one row per learner, alpha and lambda of a trace or pair; ``columns.py`` defines the columns.

    ``best`` is as ``summary.shares_answerable`` returns it; ``trials`` is as in ``trials.csv``;
    ``advised`` is the learner to use by alpha.
    """
    rows, errors = [], np.concatenate([source.errors for source in records])
    for (learner, alpha, lam), cell_rows in trials.groupby(["learner", "alpha", "lambda"], sort=False):
        share = cell_rows["answered"] / cell_rows["horizon"]
        answerable = best.get(alpha, np.nan)
        of_best = np.minimum(share / answerable, 1).mean() if answerable > 0 else np.nan
        rows.append(
            {
                "trace": name,
                "records": len(errors),
                "error_rate": errors.mean(),
                "learner": learner,
                "alpha": alpha,
                "lambda": lam,
                "horizon": cell_rows["horizon"].iloc[0],
                "trials": len(cell_rows),
                "answered": share.mean(),
                "answerable": answerable,
                "of_answerable": of_best,
                "fdr": cell_rows["fdr"].mean(),
                "fdr_within_01": int(cell_rows["fdr"].mean() <= alpha + NEAR),
                "fdr_risk": cell_rows["fdr_risk"].mean(),
                "risk_bound": cell_rows["risk_bound"].mean(),
                "advised": advised.get(alpha, NONE),
            }
        )
    return rows


def summarize(table: Table, by_lambda: bool) -> str:
    """Return the summary: one line per learner, alpha and (if ``by_lambda``) lambda, over the feasible traces."""
    columns = [column for column in _COLUMNS if by_lambda or column[0] != "lambda"]
    lines = ["".join(title.rjust(width) for title, width in columns)]
    cells = ["learner", "alpha", *(["lambda"] if by_lambda else [])]
    for values, rows in table.groupby(cells, sort=False):
        few = rows[~(rows["answerable"] < FEASIBLE)]  # also where it is unknown
        share = few["of_answerable"]
        texts = [join_lines(str(values[0])), *(f"{value:.4g}" for value in values[1:]), f"{len(few)}"]
        known, some = share.notna().any(), len(few) > 0
        texts += [f"{share.mean():.1%}", f"{share.quantile(0.1):.1%}"] if known else ["-", "-"]
        texts += [f"{few['fdr_within_01'].mean():.0%}", f"{few['fdr_risk'].max():.0f}"] if some else ["-", "-"]
        lines.append("".join(text.rjust(width) for text, (_, width) in zip(texts, columns, strict=True)))
    return "\n".join(lines)


def advise(table: Table) -> str:
    """Return, per alpha, on how many traces each learner is advised."""
    lines = []
    for alpha, rows in table.drop_duplicates(["trace", "alpha"]).groupby("alpha", sort=False):
        counts = rows["advised"].value_counts()
        each = ", ".join(f"{name} on {count}" for name, count in counts.items())
        lines.append(f"to use at alpha = {alpha:g}: {each} of {len(rows)}")
    return "\n".join(lines)


def explain() -> str:
    """Return the explanation of the summary's columns."""
    return (
        f"traces: those of which a fixed threshold answers at least {FEASIBLE:.0%} with an FDR of at most "
        "alpha, or where this is unknown.\n"
        "of answerable: share answered, divided by the share that the best such threshold answers (mean and 10% "
        f"quantile over traces).\nFDR<=alpha+{NEAR:g}: share of the traces; R_T: sum of e - alpha over answers, "
        "mean over the trials of a trace."
    )
