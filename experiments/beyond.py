"""``beyond``: ``aci-rank`` beside the paper's learners and four rivals, in all kinds of environments."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from exaul.engine.checks import BadInput
from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.logs import files
from exaul.engine.logs.files import Table
from exaul.engine.logs.log import Layout, Records, with_distinct_names
from exaul.engine.logs.traces import load_traces, log_files
from exaul.engine.results import sweep_figures
from exaul.engine.results.advice import ACI_RANK
from experiments.claims import CHECK, CONTROLS, REGRESSION, RISK_BOUND, Cell, Claim, Measure, Measurement, Tables
from experiments.experiment import Experiment, ExperimentPart, Figures, Parts, load_environment, part_of
from experiments.paper import EASY, HARD, SHIFT, EasyAndHard, Paper
from experiments.simulations import SHIFTS

RIVALS = tuple(f"experiments.rivals:{name}" for name in ("refit", "learn_then_test", "csa", "aci"))
LEARNERS = ("exaul", "exp3-ix", "ew", "exaul-known", *RIVALS, ACI_RANK)
LEARN_THEN_TEST = "learn-then-test"  # the short name of the rival that keeps its threshold
OWN_ORDER = "replay"  # a trace in its own order, once
MAX_GAP = 0.08  # regression limit of the difference of the shares that exaul and ew answer, on the logit grid
# Regression limits: answered / answerable, its 10% quantile, the share of environments near alpha in FDR.
LIMITS = {"stochastic": (0.97, 0.93, 0.97), OWN_ORDER: (0.95, 0.88, 0.95), **dict.fromkeys(SHIFTS, (0.9, 0.8, 0.9))}
ADAPTIVE = (
    "adversary-history",
    "adversary-omniscient",
    "adversary-omniscient:objective=regret",
    "interactive",
    "always-wrong",
)
ENVIRONMENT_COLUMNS = ["environment", "source", "alpha"]
MIN_TRACE = 2_000  # minimum records of a trace
TRACE_COLUMNS = ("dataset", "model", "prompt")  # columns that identify a trace
MIN_ANSWERABLE = (0.01, 0.05)  # minimum answerable shares of the sources of a counted environment
ALL_WRONG = "all wrong"  # a derived source
Part = Callable[..., ExperimentPart]  # ``part_of`` with some of its arguments


def with_all_wrong(records: Records) -> Records:
    """Return the records with all answers wrong."""
    return records._replace(name=ALL_WRONG, errors=np.ones_like(records.errors), sha256=None)


def traces(folder: str, minimum: int = MIN_TRACE) -> list[Records]:
    """Return the traces of a folder of logs with at least ``minimum`` records; print their scores to stderr."""
    loaded = [trace for log in log_files(folder) for trace in load_traces(log, Layout(), TRACE_COLUMNS)]
    long_traces = [trace for trace in loaded if len(trace.records.scores) >= minimum]
    if not long_traces:
        raise BadInput(f"data: {folder} holds no trace of at least {minimum} records")
    scores = ", ".join(dict.fromkeys(trace.score for trace in long_traces))
    print(f"beyond: {len(long_traces)} traces of at least {minimum} records, by {scores}", file=sys.stderr)
    return list(with_distinct_names([trace.records for trace in long_traces]))


def parts(paper: Paper, records: EasyAndHard) -> Parts:
    """Return the sweeps on the profiles or logs; or, for a folder, on all traces and pairs of them."""
    part = partial(part_of, paper, grid=paper.grid or "logit", learners=paper.learners or LEARNERS)
    if paper.data is None:
        return list(_profile_parts(partial(part, trials=30, checkpoints=60), paper.alphas, *records))
    return list(_trace_parts(partial(part, trials=20, checkpoints=40), paper.alphas, traces(paper.data)))


def _profile_parts(part: Part, targets: Sequence[float], easy: Records, hard: Records) -> Iterator[ExperimentPart]:
    wrong, alphas = with_all_wrong(easy), [(alpha,) for alpha in targets]
    yield part([easy], alphas=alphas[EASY])
    yield part([hard], alphas=alphas[HARD])
    part = partial(part, alphas=alphas[SHIFT])
    for environment in SHIFTS:
        yield part([easy, hard], environment)
    for pair in ([easy, wrong], [wrong, easy]):
        yield part(pair, "single-shift")
    yield part([easy, wrong], "alternating-shift")
    for name in ADAPTIVE:
        yield part([easy, hard], name, horizon=15_000)


def _trace_parts(part: Part, targets: Sequence[float], records: list[Records]) -> Iterator[ExperimentPart]:
    alphas = tuple(sorted(targets))
    middle = (alphas[len(alphas) // 2],)
    for trace in records:
        yield part([trace], alphas=alphas)
        yield part([trace], OWN_ORDER, alphas=alphas, horizon=len(trace.scores))
    neighbours = zip(records[::2], records[1::2], strict=False)
    pairs = [pair for pair in neighbours if len({trace.name.split(",")[0] for trace in pair}) == 1]  # one dataset
    for pair in pairs:
        for environment in SHIFTS:
            yield part(pair, environment, alphas=alphas[-2:])
    for trace in records:
        yield part([trace, with_all_wrong(trace)], "single-shift", alphas=middle)
        yield part([with_all_wrong(trace), trace], "single-shift", alphas=middle)
    for pair in {pair[0].name.split(":")[0]: pair for pair in reversed(pairs)}.values():
        for name in ADAPTIVE:
            yield part(pair, name, alphas=middle, horizon=5_000)


def short_name(learner: str) -> str:
    """Return the name of a learner in tables and figures: of ``module:name``, the name, with hyphens."""
    return learner.rpartition(":")[2].replace("_", "-")


def environment_kind(environment: str, source: str) -> str:
    """Return the kind of an environment: its name, and whether it shifts to or from wrong answers alone."""
    if ALL_WRONG not in source.split(" -> "):
        return environment
    return f"{environment} {'from' if source.startswith(ALL_WRONG) else 'to'} {ALL_WRONG}"


def answerable_share(best: Mapping[tuple[str, float], float], name: str, source: str, alpha: float) -> float:
    """Return the mean over rounds of the best coverage of their source; NaN for adaptive environments.

    Segments are equally long. For a gradual shift, ``best`` has the mean over the mixtures of both sources.
    """
    if isinstance(load_environment(name), Adaptive):
        return np.nan
    sources = [source] if name == "gradual-shift" else source.split(" -> ")
    return float(np.mean([best[one_source, alpha] for one_source in sources]))


def environment_table(tables: Tables) -> Table:
    """Return one row per environment and learner: share answered, answerable share, FDR - alpha, R_T and bound."""
    rows, columns = [], [*ENVIRONMENT_COLUMNS, "learner"]
    coverages = tables["coverage"].groupby(["source", "alpha"])["on_grid"].mean()
    rises = tables["curves"].groupby(columns)["rise"].max()
    for values, group in tables["trials"].groupby(columns, sort=False):
        cell = dict(zip(columns, values, strict=True))
        best = answerable_share(coverages, *values[:3])
        real = [name for name in cell["source"].split(" -> ") if name != ALL_WRONG]
        share = group["answered"] / group["horizon"]
        rows.append(
            {"kind": environment_kind(cell["environment"], cell["source"]), **cell}
            | {
                "learner": short_name(cell["learner"]),
                "answered": share.mean(),
                "answerable": best,
                "least_answerable": min(coverages[name, cell["alpha"]] for name in real),
                "of_answerable": np.minimum(share / best, 1).mean() if best >= MIN_ANSWERABLE[0] else np.nan,
                "fdr_minus_alpha": (group["fdr"] - group["alpha"]).mean(),
                "risk": group["fdr_risk"].max(),
                "risk_bound": group["risk_bound"].min(),
                "rise": rises[values],
            }
        )
    return files.Table(rows)


def feasible_rows(table: Table, minimum: float) -> Table:
    """Return the rows where at least a share ``minimum`` of each source can be answered, but not all."""
    defined = table.dropna(subset="of_answerable")
    return defined[(defined["least_answerable"] >= minimum) & (defined["answerable"] < 1)]


def summary_table(table: Table) -> Table:
    """Return one row per kind of environment, learner and minimum answerable share."""
    rows = []
    for (kind, learner), group in table.groupby(["kind", "learner"], sort=False):
        for minimum in MIN_ANSWERABLE:
            feasible = feasible_rows(group, minimum)
            shares, above = feasible["of_answerable"], feasible["fdr_minus_alpha"]
            row = {"kind": kind, "learner": learner, "worlds": len(group), "answerable_from": minimum}
            row |= {"counted": len(feasible), "of_answerable_mean": shares.mean()}
            row |= {"of_answerable_q10": shares.quantile(0.1), "of_answerable_least": shares.min()}
            row |= {"fdr_within_01": (above <= 0.01).mean(), "fdr_minus_alpha_q90": above.quantile(0.9)}
            row |= {"fdr_minus_alpha_most": above.max(), "risk_most": group["risk"].max()}
            rows.append(row | {"rise_most": group["rise"].max()})
    return files.Table(rows)


def _draw(tables: Tables) -> Figures:
    shown = tables["curves"].groupby(ENVIRONMENT_COLUMNS, sort=False).ngroup() < 16
    curves = tables["curves"][shown & tables["curves"]["learner"].isin(("exaul", ACI_RANK))]
    label, by = "FDR risk $R_t$ (answers)", ENVIRONMENT_COLUMNS
    return {"risk": sweep_figures.over_time(curves, "fdr_risk", label, by=by, dotted="risk_bound")}


def _of_feasible(
    column: str, summary: Callable[[Any], float], minimum: float = MIN_ANSWERABLE[1], **where: Any
) -> Measure:
    """Return the measure that sums up a column of ``feasible_rows``; it is None if the learner does not run."""

    def measure(cell: Cell) -> Measurement:
        rows = cell.rows(**where)
        return float(summary(feasible_rows(rows, minimum)[column])) if len(rows) else None

    return measure


def _mean_share(learner: str) -> Measure:
    return _of_feasible("of_answerable", np.mean, MIN_ANSWERABLE[0], learner=learner)


def _largest_gap(cell: Cell) -> Measurement:
    """Return the largest difference of the shares that ``exaul`` and ``ew`` answer in an environment."""
    exaul, ew = (cell.rows(learner=name).set_index(ENVIRONMENT_COLUMNS)["answered"] for name in ("exaul", "ew"))
    return float((exaul - ew).abs().max()) if len(ew) else None


KINDS = ("stochastic", OWN_ORDER, *SHIFTS)
EXAUL_ROWS: dict[str, Any] = {"where": {"learner": "exaul", "kind": KINDS}, "table": "worlds"}
LIMITED_MEASURES = {  # measures of the limits in LIMITS
    "mean answered / answerable": _of_feasible("of_answerable", np.mean),
    "10% quantile over environments": _of_feasible("of_answerable", lambda shares: shares.quantile(0.1)),
    "share of environments with an FDR at T of at most alpha + .01": _of_feasible(
        "fdr_minus_alpha", lambda above: (above <= 0.01).mean()
    ),
}
EXCESS = "wrong answers above budget when all answers become wrong"
TO_WRONG, FROM_WRONG = f"single-shift to {ALL_WRONG}", f"single-shift from {ALL_WRONG}"


def _limit(measure: Measure, relation: str, limit: float, kind: str) -> Claim:
    """Return a regression limit of ``aci-rank`` in a kind of environment."""
    where = {"learner": ACI_RANK, "kind": kind}
    return Claim(measure, relation, limit, kind=REGRESSION, where=where, table="worlds")


CLAIMS = {
    **RISK_BOUND,
    **{
        f"{ACI_RANK}: {text}, {kind}": _limit(measure, ">=", limit, kind)
        for kind, limits in LIMITS.items()
        for (text, measure), limit in zip(LIMITED_MEASURES.items(), limits, strict=True)
    },
    f"{ACI_RANK}: {EXCESS}, mean over environments of the largest": _limit(
        _of_feasible("rise", np.mean), "<=", 116, TO_WRONG
    ),
    f"{ACI_RANK}: {EXCESS}, maximum": _limit(_of_feasible("rise", np.max), "<=", 116, TO_WRONG),
    f"{ACI_RANK}: mean answered / answerable after a first half with only wrong answers": _limit(
        _of_feasible("of_answerable", np.mean), ">=", 0.85, FROM_WRONG
    ),
    f"{ACI_RANK}: answers more than exaul": Claim(
        _mean_share(ACI_RANK), ">", _mean_share("exaul"), "kind", **EXAUL_ROWS
    ),
    "exaul answers as often as ew, which sees every label: largest difference of shares": Claim(
        _largest_gap, "<=", MAX_GAP, "kind", kind=REGRESSION, **EXAUL_ROWS
    ),
    "exaul: largest FDR - alpha": Claim(
        lambda cell: float(cell.rows()["fdr_minus_alpha"].max()), "<=", 0, "kind", CONTROLS, **EXAUL_ROWS
    ),
    f"{LEARN_THEN_TEST}: largest FDR - alpha under shift": Claim(
        _of_feasible("fdr_minus_alpha", np.max, MIN_ANSWERABLE[0]),
        ">",
        0,
        kind=CHECK,
        where={"learner": LEARN_THEN_TEST, "kind": tuple(SHIFTS)},
        table="worlds",
        why="the certified margin on the first source is wide enough for the second",
    ),
}
beyond = Experiment(
    "aci-rank, the paper's learners, exaul-known and four rivals: on stationary records, under shifts, "
    "when all answers become wrong and right again, and in adaptive environments. "
    "Answerable is the coverage of the best threshold of each source with FDR at most alpha; R_t counts wrong "
    "answers above the budget.",
    parts,
    _draw,
    CLAIMS,
    lambda tables: {"worlds": (table := environment_table(tables)), "over-all": summary_table(table)},
)
