"""``advice``: how often the learner that a sweep recommends is the right one for data that it has not seen."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from exaul.engine import registry
from exaul.engine.data.records import Records
from exaul.engine.data.tables import Table, frame
from exaul.engine.results.advice import FEASIBLE, NEAR, advice_table, advised
from exaul.engine.results.figures import Figure
from experiments import beyond, plots
from experiments.experiment import CHECK, Claim, Experiment, ExperimentPart, Tables, cells, lemma
from experiments.paper import Paper

LONGEST = 6_000  # records of a trace that are used
ENOUGH = 0.97  # the right learner answers at least this part of what the best of those that hold alpha answers
MANY = 30  # cells (trace and alpha) from which on shares are compared
SHUFFLED, IN_ORDER = "stochastic", "replay"
FIRST, SECOND = ", first half", ", second half"
PROTOCOLS = {  # name: what the advice sees, half of the trace on which it is tested, and the environment there
    "the trace, shuffled; then in its own order": ("", False, "", IN_ORDER),
    "the first half; then the second, shuffled": (FIRST, True, SECOND, SHUFFLED),
    "the first half; then the second, in its own order": (FIRST, True, SECOND, IN_ORDER),
}
ADVICE, ORACLE = "the advice", "knows all records, shuffled"


def _parts(paper: Paper, records: tuple[Records, Records]) -> Sequence[ExperimentPart]:
    traces = beyond.traces(paper.data) if paper.data is not None else list(records)
    return [part for trace in traces for part in _trace_parts(paper, _piece(trace, "", slice(LONGEST)))]


def _piece(records: Records, name: str, rows: slice) -> Records:
    scores, errors = records.scores[rows], records.errors[rows]
    return Records(records.name + name, scores, errors, 0, None)


def _trace_parts(paper: Paper, trace: Records) -> Iterator[ExperimentPart]:
    half = len(trace.scores) // 2
    halves = _piece(trace, FIRST, slice(half)), _piece(trace, SECOND, slice(half, 2 * half))
    common: dict[str, Any] = {
        "grid": paper.grid or "logit",
        "alphas": tuple(sorted(paper.alphas)),
        "checkpoints": 1,
        "learners": tuple(registry.advisable()),
    }
    for piece in (trace, *halves):
        rounds = len(piece.scores)
        yield ExperimentPart(paper.sweep(rounds, 20, environment=SHUFFLED, **common), (piece,))
        yield ExperimentPart(paper.sweep(rounds, 1, environment=IN_ORDER, **common), (piece,))


def rights(tables: Tables) -> Table:
    """Return one row per protocol, trace, alpha and way to choose: whether the choice was right.

    Only traces of which a threshold answers at least FEASIBLE are counted. A chosen learner is right if its mean
    FDR in the test is at most alpha + NEAR, and it answers at least ENOUGH of what the best such learner answers.
    To choose none is right if no learner has such an FDR. The ways are the advice, always the same learner, and the
    advice that an oracle gets, who knows all records but not their order.
    """
    rows = []
    by_cell = dict(iter(tables.trials.groupby(["source", "environment", "alpha"], sort=False)))
    on_grid = tables.coverage.groupby(["source", "alpha"])["on_grid"].first()
    players = [
        {"learner": name, "feedback": "bandit", "bound_by_answers": False}
        for name in tables.trials["learner"].unique()
    ]
    wholes = [
        cell for cell in cells(tables.coverage, "source", "alpha") if not cell["source"].endswith((FIRST, SECOND))
    ]
    for cell in wholes:
        source, alpha = cell["source"], cell["alpha"]
        if on_grid[source, alpha] < FEASIBLE:
            continue
        for name, (seen, ordered, tested, environment) in PROTOCOLS.items():
            test = by_cell[source + tested, environment, alpha]
            order = by_cell[source + seen, IN_ORDER, alpha] if ordered else None
            choices = {
                ADVICE: advised(advice_table(by_cell[source + seen, SHUFFLED, alpha], players, order)).get(alpha),
                ORACLE: advised(advice_table(by_cell[source, SHUFFLED, alpha], players)).get(alpha),
            } | {f"always {x['learner']}": x["learner"] for x in players}
            is_right = partial(right, held_shares(test, alpha))
            rows += [{"case": name, **cell, "learner": way, "right": is_right(x)} for way, x in choices.items()]
    return frame(rows)


def held_shares(test: Table, alpha: float) -> dict[str, float]:
    """Return the mean shares answered of the learners with a mean FDR of at most alpha + NEAR that answer."""
    means = test.assign(share=test["answered"] / test["horizon"]).groupby("learner")[["share", "fdr"]].mean()
    return means.loc[(means["fdr"] <= alpha + NEAR) & (means["share"] > 0), "share"].to_dict()


def right(held: Mapping[str, float], choice: str | None) -> float:
    """Return 1 if the choice is right, else 0; ``held`` is as ``held_shares`` returns it."""
    if not held:
        return float(choice is None)
    return float(held.get(choice or "", 0.0) >= ENOUGH * max(held.values()))


def share_table(tables: Tables) -> Table:
    """Return the share of right choices, one row per protocol and way to choose, and the number of cells."""
    groups = rights(tables).groupby(["case", "learner"], sort=False)["right"]
    return groups.agg(["mean", "size"]).reset_index().rename(columns={"mean": "right", "size": "cells"})


def _claims(tables: Tables) -> list[Claim]:
    claims = [lemma(tables)]
    for case, rows in share_table(tables).groupby("case", sort=False):
        if rows["cells"].min() < MANY:
            continue
        shares = rows.set_index("learner")["right"]
        most = shares[shares.index.str.startswith("always ")].max()
        text = f"share of right advice, against always the same learner: {case}"
        claims.append(Claim(text, shares[ADVICE], ">=", most, kind=CHECK))
    return claims


def _drawn(tables: Tables) -> Mapping[str, Figure]:
    table = share_table(tables)
    same = table.assign(right_q05=table["right"], right_q95=table["right"])
    return {"right": plots.by_case(same, "right", "share of right choices")}


advice = Experiment(
    "How often the learner that a sweep recommends is right for records that it has not seen, on traces of which a "
    "threshold answers at least 5%: it holds alpha + 0.01 there and answers at least 97% of what the best learner "
    "that does so answers; or none is recommended, and none holds alpha + 0.01.",
    _parts,
    _drawn,
    _claims,
    lambda tables: {"rights": rights(tables), "shares": share_table(tables)},
)
