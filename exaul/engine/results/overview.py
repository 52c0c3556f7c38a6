"""Table and printed summary of a sweep over traces."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exaul.engine.logs.files import Table
from exaul.engine.logs.log import Records
from exaul.engine.results.advice import FEASIBLE, NEAR
from exaul.engine.results.summary_tables import key_columns
from exaul.engine.results.text_table import TextColumn, format_table

NONE = "none"  # if no learner is advised


def trace_rows(
    name: str,
    records: Sequence[Records],
    best: Mapping[float, float],
    trials: Table,
    advised: Mapping[float, str],
) -> list[dict[str, Any]]:
    """Return one row per learner, alpha and lambda of a trace or pair; ``docs/tables.md`` defines the columns.

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


def summarize(table: Table, by_lambda: bool, width: int | None = None) -> str:
    """Return the summary: one line per learner, alpha and (if ``by_lambda``) lambda, over the feasible traces."""
    cells = dict(iter(table.groupby(["learner", "alpha", *(["lambda"] if by_lambda else [])], sort=False)))
    feasible = [rows[~(rows["answerable"] < FEASIBLE)] for rows in cells.values()]  # also where it is unknown
    shares = [rows["of_answerable"] for rows in feasible]
    columns = [
        *key_columns(cells),
        TextColumn(
            "traces",
            [f"{len(rows)}" for rows in feasible],
            2,
            meaning=f"those where a fixed threshold answers at least {FEASIBLE:.0%} with an FDR of at most alpha, "
            "or where this is unknown",
        ),
        TextColumn(
            "of answerable",
            [f"{share.mean():.1%}" if share.notna().any() else "-" for share in shares],
            4,
            meaning="share answered, divided by the share that the best such threshold answers (mean over traces)",
        ),
        TextColumn(
            "its 10% quantile",
            [f"{share.quantile(0.1):.1%}" if share.notna().any() else "-" for share in shares],
            1,
        ),
        TextColumn(
            f"FDR<=alpha+{NEAR:g}",
            [f"{rows['fdr_within_01'].mean():.0%}" if len(rows) else "-" for rows in feasible],
            3,
            meaning="share of the traces",
        ),
        TextColumn(
            "largest R_T",
            [f"{rows['fdr_risk'].max():.0f}" if len(rows) else "-" for rows in feasible],
            2,
            meaning="of the traces; R_T is the sum of e - alpha over answers, mean over trials",
        ),
    ]
    return format_table(columns, width)


def advise(table: Table) -> str:
    """Return, per alpha, on how many traces each learner is advised."""
    lines = []
    for alpha, rows in table.drop_duplicates(["trace", "alpha"]).groupby("alpha", sort=False):
        counts = rows["advised"].value_counts()
        each = ", ".join(f"{name} on {count}" for name, count in counts.items())
        lines.append(f"to use at alpha = {alpha:g}: {each} of {len(rows)}")
    return "\n".join(lines)
