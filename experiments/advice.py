"""``advice``: how often ``aci-rank``, when a sweep advises it, holds alpha on records that it has not seen."""

from typing import Any

import numpy as np

from exaul.engine.logs.files import Table
from exaul.engine.results.advice import ACI_RANK, THRESHOLD, is_near
from exaul.kernels.metrics import FEASIBLE
from experiments import beyond
from experiments.claims import LEMMA, THEORY, Claim, Measure, Tables, mean_of
from experiments.experiment import Experiment, Parts, part_of
from experiments.paper import EasyAndHard, Paper

MIN_RECORDS = 300  # records of a trace, at least
MIN_CELLS = 30  # least number of cells (trace and alpha) whose shares are compared
MIN_HELD = 0.95  # of the cells in which the learner is advised
FIRST_HALF = ", first half"
KINDS = {True: f"traces of at least {beyond.MIN_TRACE:,} records", False: "shorter traces"}
COLD, WARM = "without a log", "from the first half"


def _parts(paper: Paper, records: EasyAndHard) -> Parts:
    """Return the sweeps over each trace, whose advice has its second half, and over its first half."""
    fields: dict[str, Any] = {"trials": 1, "checkpoints": 1, "learners": (ACI_RANK,)}
    fields |= {"grid": paper.grid or "logit", "alphas": tuple(sorted(paper.alphas))}
    parts = []
    for trace in list(records) if paper.data is None else beyond.traces(paper.data, MIN_RECORDS):
        first = trace.take(np.arange(len(trace.scores) // 2))._replace(name=trace.name + FIRST_HALF, sha256=None)
        parts += [part_of(paper, [x], "replay", horizon=len(x.scores), **fields) for x in (trace, first)]
    return parts


def way_table(tables: Tables) -> Table:
    """Return one row per trace, alpha and way to answer: what it answered of records it had not seen, and its FDR.

    The ways are ``aci-rank`` without a log, on the whole trace; started from the first half, on the second; and the
    threshold of the first half, on the second. ``advised`` says what a sweep over the first half advises.
    """
    advice = {(row["source"], row["alpha"], row["learner"]): row for row in tables["advice"].to_dict("records")}
    trials = tables["trials"].assign(share=tables["trials"]["answered"] / tables["trials"]["horizon"])
    rows = []
    for source, alpha, share, fdr in trials[["source", "alpha", "share", "fdr"]].itertuples(index=False):
        if source.endswith(FIRST_HALF):
            continue
        warm, threshold = (advice[source, alpha, name] for name in (ACI_RANK, THRESHOLD))
        in_order = ((way["answered_in_order"], way["fdr_in_order"]) for way in (warm, threshold))
        results = zip((COLD, WARM, THRESHOLD), ((share, fdr), *in_order), strict=True)
        for way, (answered, way_fdr) in results:
            holds_alpha = bool(not answered > 0 or is_near(way_fdr, alpha))
            of_answerable = min(1.0, answered / warm["answerable"]) if warm["answerable"] > 0 else np.nan
            cell = {"case": KINDS[bool(warm["records"] >= beyond.MIN_TRACE)], "source": source, "alpha": alpha}
            cell |= {"learner": way, "answerable": warm["answerable"], "answered": answered, "fdr": way_fdr}
            cell |= {"of_answerable": of_answerable, "holds": int(holds_alpha), "safe": holds_alpha * of_answerable}
            rows.append(cell | {"advised": advice[source + FIRST_HALF, alpha, ACI_RANK]["advised"]})
    return Table(rows)


def share_table(cells: Table) -> Table:
    """Return the means over the cells of which a threshold answers at least 5%, one row per kind of trace and way.

    ``advised`` is the share of cells in which ``aci-rank`` is advised, ``holds_if_advised`` the share of these in
    which the way holds alpha.
    """
    cells = cells[cells["answerable"] >= FEASIBLE]
    rows = []
    for (case, way), group in cells.groupby(["case", "learner"], sort=False):
        advised = group[group["advised"] == 1]
        means = group[["holds", "of_answerable", "safe", "advised"]].mean().to_dict()
        means["holds_if_advised"] = advised["holds"].mean()
        rows.append({"case": case, "learner": way, "cells": len(group), "advised_cells": len(advised)} | means)
    return Table(rows)


def _if_enough(column: str) -> Measure:
    """Return the measure of a share; it is None if there are too few cells."""
    return lambda cell: cell.mean(column, WARM) if cell.mean("cells", WARM) >= MIN_CELLS else None


WARM_ROWS: dict[str, Any] = {"where": {"learner": WARM}, "table": "shares"}
CLAIMS = {
    LEMMA: THEORY[LEMMA],
    f"advised cells in which {ACI_RANK} holds alpha on the second half": Claim(
        _if_enough("holds_if_advised"), ">=", MIN_HELD, "case", **WARM_ROWS
    ),
    f"safe answers {WARM}, against the {THRESHOLD}": Claim(
        _if_enough("safe"), ">=", mean_of("safe", THRESHOLD), "case", **WARM_ROWS
    ),
}


advice = Experiment(
    "A sweep over the first half of a trace advises aci-rank or not; then it plays the second half, started from "
    "the first. It holds alpha if its FDR is at most alpha + 0.01 and 1.5 alpha. Safe answers are those where it "
    "holds, as a share of what the best threshold answers. Counted are traces of which a threshold answers 5%.",
    _parts,
    lambda tables: {},  # no figures
    CLAIMS,
    lambda tables: {"rights": (table := way_table(tables)), "shares": share_table(table)},
    has_advice=True,
)
