"""``beyond``: ``aci-rank`` beside the paper's learners and two rivals, in all kinds of environments."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from exaul.engine.checks import BadInput
from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.logs import files
from exaul.engine.logs.files import Table
from exaul.engine.logs.log import Layout, Records, with_distinct_names
from exaul.engine.logs.traces import load_traces, log_files
from exaul.engine.results import figures
from exaul.engine.results.trials import risk_holds
from exaul.kernels.metrics import Floats
from experiments import environments
from experiments.coverage import MIXED
from experiments.experiment import (
    CHECK,
    CONTROLS,
    REGRESSION,
    Claim,
    Experiment,
    ExperimentPart,
    Tables,
    cells,
    lemma,
    mean,
)
from experiments.paper import EASY, HARD, SHIFT, Paper

BETTER = "aci-rank"
RIVALS = ("experiments.rivals.refit:refit", "experiments.rivals.learn_then_test:learn_then_test")
LEARNERS = ("exaul", "exp3-ix", "ew", "exaul-known", *RIVALS, BETTER)
FIXED = "learn-then-test"  # the short name of the rival that keeps its threshold
NATURAL = "replay"  # a trace in its own order, once
SHIFTS = ("single-shift", "alternating-shift", "gradual-shift")
NEAR = 0.08  # regression limit of the difference of the shares that exaul and ew answer, on the logit grid
# Regression limits of BETTER: answered / answerable, its 10% quantile, the share of environments near alpha in FDR.
AIMS = {
    "stochastic": (0.97, 0.93, 0.97),
    NATURAL: (0.95, 0.88, 0.95),
    **dict.fromkeys(SHIFTS, (0.9, 0.8, 0.9)),
}
ADAPTIVE = (
    "adversary-history",
    "adversary-omniscient",
    "adversary-omniscient:objective=regret",
    "interactive",
    "always-wrong",
)
ENVIRONMENT_COLUMNS = ["environment", "source", "alpha"]
LEAST = 2_000  # minimum records of a trace
APART = ("dataset", "model", "prompt")  # columns that identify a trace
FEASIBLE = (0.01, 0.05)  # minimum answerable shares of the sources of a counted environment
ALL_WRONG, USELESS = "all wrong", "useless score"  # derived sources
POINTS = 40  # checkpoints of a trace


def with_all_wrong(records: Records) -> Records:
    """Return the records with all answers wrong."""
    return records._replace(name=ALL_WRONG, errors=np.ones_like(records.errors), sha256=None)


def with_random_labels(records: Records) -> Records:
    """Return the records with half of the answers wrong, independent of the score."""
    coins = np.random.default_rng(0).permutation(len(records.scores)) % 2
    return records._replace(name=USELESS, errors=coins.astype(np.float64), sha256=None)


def traces(folder: str, least: int = LEAST) -> list[Records]:
    """Return every trace with some number of records of a folder of logs; print the score columns to stderr."""
    found = [trace for log in log_files(folder) for trace in load_traces(log, Layout(), APART)]
    long = [trace for trace in found if len(trace.records.scores) >= least]
    if not long:
        raise BadInput(f"data: {folder} holds no trace of at least {least} records")
    scores = ", ".join(dict.fromkeys(trace.score for trace in long))
    print(f"beyond: {len(long)} traces of at least {least} records, by {scores}", file=sys.stderr)
    return list(with_distinct_names([trace.records._replace(name=trace.name) for trace in long]))


def parts(paper: Paper, records: tuple[Records, Records]) -> Sequence[ExperimentPart]:
    """Return the sweeps on the profiles or logs; or, for a folder, on all traces and pairs of them."""
    return list(
        _trace_parts(paper, traces(paper.data)) if paper.data is not None else _profile_parts(paper, *records)
    )


def _profile_parts(paper: Paper, easy: Records, hard: Records) -> Iterator[ExperimentPart]:
    alphas = [paper.alphas[place] for place in (EASY, HARD, SHIFT)]
    common = _common_fields(paper) | {"checkpoints": 60}

    def part(name: str, alpha: float, *records: Records, horizon: int = 30_000) -> ExperimentPart:
        return ExperimentPart(
            paper.sweep(horizon, 30, **environments.sweep_fields(name), alphas=(alpha,), **common), records
        )

    yield part("stochastic", alphas[0], easy)
    yield part("stochastic", alphas[1], hard)
    for environment in SHIFTS:
        yield part(environment, alphas[2], easy, hard)
    for first, then in (
        (easy, with_all_wrong(easy)),
        (easy, with_random_labels(easy)),
        (with_all_wrong(easy), easy),
    ):
        yield part("single-shift", alphas[2], first, then)
    yield part("alternating-shift", alphas[2], easy, with_all_wrong(easy))
    for name in ADAPTIVE:
        needed = (easy, hard)[: environments.load_environment(name).sources]
        yield part(name, alphas[2], *needed, horizon=15_000)


def _trace_parts(paper: Paper, found: list[Records]) -> Iterator[ExperimentPart]:
    common = _common_fields(paper) | {"checkpoints": POINTS}
    alphas = tuple(sorted(paper.alphas))
    middle = (alphas[len(alphas) // 2],)

    def part(name: str, alphas: tuple[float, ...], *records: Records, horizon: int = 30_000) -> ExperimentPart:
        return ExperimentPart(
            paper.sweep(horizon, 20, **environments.sweep_fields(name), alphas=alphas, **common), records
        )

    for trace in found:
        yield part("stochastic", alphas, trace)
        yield part(NATURAL, alphas, trace, horizon=len(trace.scores))
    neighbours = zip(found[::2], found[1::2], strict=False)
    pairs = [(before, after) for before, after in neighbours if _dataset_of(before) == _dataset_of(after)]
    for pair in pairs:
        for environment in SHIFTS:
            yield part(environment, alphas[-2:], *pair)
    for trace in found:
        yield part("single-shift", middle, trace, with_all_wrong(trace))
        yield part("single-shift", middle, with_all_wrong(trace), trace)
    for pair in {first.name.split(":")[0]: (first, second) for first, second in reversed(pairs)}.values():
        for name in ADAPTIVE:
            yield part(name, middle, *pair[: environments.load_environment(name).sources], horizon=5_000)


def _common_fields(paper: Paper) -> dict[str, Any]:
    return {"grid": paper.grid or "logit", "learners": paper.learners or LEARNERS}


def _dataset_of(trace: Records) -> str:
    return trace.name.split(",")[0]


def short_name(learner: str) -> str:
    """Return the name of a learner in tables and figures: of ``module:name``, the name, with hyphens."""
    return learner.rpartition(":")[2].replace("_", "-")


def environment_kind(environment: str, source: str) -> str:
    """Return the kind of an environment: its name, with the derived source that it shifts to or from."""
    made = [name for name in source.split(" -> ") if name in (ALL_WRONG, USELESS)]
    if not made:
        return environment
    return f"{environment} {'from' if source.startswith(made[0]) else 'to'} {made[0]}"


def best_coverages(found: Tables) -> dict[tuple[str, float], Floats]:
    """Return the coverage of the best threshold that meets alpha, by source and alpha: [1], or [20] (``MIXED``)."""
    return {cell: rows["on_grid"].to_numpy() for cell, rows in found.coverage.groupby(["source", "alpha"])}


def answerable_shares(best: Mapping[tuple[str, float], Floats], columns: Sequence[Any], share: Floats) -> Floats:
    """Return each segment's best coverage at shares of T; NaN for adaptive environments."""
    name, source, alpha = columns
    if isinstance(environments.load_environment(name), Adaptive):
        return np.full(len(share), np.nan)
    if name == "gradual-shift":
        return np.interp(share, MIXED, best[source, alpha])
    by_source = [best[name, alpha][0] for name in source.split(" -> ")]
    # Segments alternate between the sources; checkpoints at a boundary belong to the segment before it.
    segment = np.ceil(share * environments.count_segments(name)).astype(int) - 1
    return np.array(by_source)[np.maximum(segment, 0) % len(by_source)]


def environment_table(found: Tables) -> Table:
    """Return one row per environment and learner: share answered, answerable share, FDR - alpha, R_T and bound."""
    rows, coverages = [], best_coverages(found)
    rises = found.curves.groupby([*ENVIRONMENT_COLUMNS, "learner"])["rise"].max()
    middle = (np.arange(1000) + 0.5) / 1000
    for values, group in found.trials.groupby([*ENVIRONMENT_COLUMNS, "learner"], sort=False):
        cell = dict(zip([*ENVIRONMENT_COLUMNS, "learner"], values, strict=True))
        best = float(answerable_shares(coverages, [cell[column] for column in ENVIRONMENT_COLUMNS], middle).mean())
        real = [name for name in cell["source"].split(" -> ") if name not in (ALL_WRONG, USELESS)]
        share = group["answered"] / group["horizon"]
        rows.append(
            {"kind": environment_kind(cell["environment"], cell["source"])}
            | cell
            | {
                "learner": short_name(cell["learner"]),
                "answered": share.mean(),
                "answerable": best,
                "least_answerable": min(coverages[name, cell["alpha"]][0] for name in real),
                "of_answerable": np.minimum(share / best, 1).mean() if best >= FEASIBLE[0] else np.nan,
                "fdr_minus_alpha": (group["fdr"] - group["alpha"]).mean(),
                "risk": group["fdr_risk"].max(),
                "risk_bound": group["risk_bound"].min(),
                "rise": rises[values],
            }
        )
    return files.frame(rows)


def feasible_rows(table: Table, bar: float) -> Table:
    """Return the rows where at least a share ``bar`` of each source can be answered, but not all."""
    defined = table.dropna(subset="of_answerable")
    return defined[(defined["least_answerable"] >= bar) & (defined["answerable"] < 1)]


def summary_table(table: Table) -> Table:
    """Return one row per kind of environment, learner and minimum answerable share."""
    rows = []
    for cell in cells(table, "kind", "learner"):
        group = table[(table["kind"] == cell["kind"]) & (table["learner"] == cell["learner"])]
        for bar in FEASIBLE:
            feasible = feasible_rows(group, bar)
            rows.append(
                cell
                | {
                    "worlds": len(group),
                    "answerable_from": bar,
                    "counted": len(feasible),
                    "of_answerable_mean": feasible["of_answerable"].mean(),
                    "of_answerable_q10": feasible["of_answerable"].quantile(0.1),
                    "of_answerable_least": feasible["of_answerable"].min(),
                    "fdr_within_01": (feasible["fdr_minus_alpha"] <= 0.01).mean(),
                    "fdr_minus_alpha_q90": feasible["fdr_minus_alpha"].quantile(0.9),
                    "fdr_minus_alpha_most": feasible["fdr_minus_alpha"].max(),
                    "risk_most": group["risk"].max(),
                    "rise_most": group["rise"].max(),
                }
            )
    return files.frame(rows)


def coverage_curves(found: Tables) -> Table:
    """Return the mean share answered since the previous checkpoint, and the answerable one."""
    parts, coverages = [], best_coverages(found)
    for _, rows in found.curves.groupby([*ENVIRONMENT_COLUMNS, "learner"], sort=False):
        t = rows["t"].to_numpy()
        answered = t * (1 - rows["inefficiency_mean"].to_numpy())
        part = rows[[*ENVIRONMENT_COLUMNS, "lambda", "t"]].copy()
        part["learner"] = short_name(rows["learner"].iloc[0])
        part["coverage_mean"] = np.diff(answered, prepend=0) / np.diff(t, prepend=0)
        part["answerable"] = answerable_shares(coverages, rows[ENVIRONMENT_COLUMNS].iloc[0].tolist(), t / t.max())
        parts.append(part)
    return files.stack(parts)


def _drawn(found: Tables) -> Mapping[str, figures.Figure]:
    table = environment_table(found)
    shown = [tuple(cell.values()) for cell in cells(found.curves, *ENVIRONMENT_COLUMNS)][:16]
    first = found.curves[found.curves[ENVIRONMENT_COLUMNS].apply(tuple, axis=1).isin(shown)]
    few = found._replace(curves=first)
    few_learners = first[first["learner"].isin(("exaul", BETTER))]
    label = "FDR risk $R_t$ (answers)"
    dots = feasible_rows(table, FEASIBLE[0])
    return {
        "risk": figures.over_time(few_learners, "fdr_risk", label, by=ENVIRONMENT_COLUMNS, dotted="risk_bound"),
        "coverage": figures.over_time(
            coverage_curves(few),
            "coverage",
            "share answered",
            by=ENVIRONMENT_COLUMNS,
            reference=("answerable", "best threshold that holds alpha"),
        ),
        "scatter": figures.scatter(dots, "fdr_minus_alpha", "one dot per environment: means over trials"),
    }


def _claims(found: Tables) -> list[Claim]:
    table = environment_table(found)
    few, most = (feasible_rows(table, bar) for bar in FEASIBLE)
    learners = set(table["learner"])
    broken = int((~risk_holds(found.trials)).sum())
    text = "trials whose R_T is above the learner's pathwise bound"
    claims = [lemma(found), Claim(text, broken, "<=", 0, "the bound is proved, so this is a bug", CHECK)]
    if BETTER in learners:
        claims += _better(table, most)
    kinds = [name for name in ("stochastic", NATURAL, *SHIFTS) if name in set(table["kind"])]
    for kind in kinds if {BETTER, "exaul"} <= learners else ():
        shares = [mean(few, "of_answerable", learner=learner, kind=kind) for learner in (BETTER, "exaul")]
        claims.append(Claim(f"{BETTER}: answers more than exaul, {kind}", shares[0], ">", shares[1]))
    for kind in kinds if {"exaul", "ew"} <= learners else ():
        apart = max(
            abs(rows.loc["exaul", "answered"] - rows.loc["ew", "answered"]).max()
            for _, rows in table[table["kind"] == kind]
            .set_index("learner")
            .groupby(ENVIRONMENT_COLUMNS, sort=False)
        )
        text = f"exaul answers as often as ew, which sees every label: largest difference of shares, {kind}"
        claims.append(Claim(text, apart, "<=", NEAR, kind=REGRESSION))
        fdr = table[(table["kind"] == kind) & (table["learner"] == "exaul")]["fdr_minus_alpha"].max()
        claims.append(Claim(f"exaul: largest FDR - alpha, {kind}", fdr, "<=", 0, quote=CONTROLS))
    if FIXED in learners:
        shifted = few[few["kind"].isin(SHIFTS) & (few["learner"] == FIXED)]
        why = "the certified margin on the first source is wide enough for the second"
        worst = shifted["fdr_minus_alpha"].max()
        claims.append(Claim(f"{FIXED}: largest FDR - alpha under shift", worst, ">", 0, why, CHECK))
    return claims


def _better(table: Table, most: Table) -> list[Claim]:
    """Limit the results of the best learner, where a twentieth of each source is answerable."""
    own, feasible = (rows[rows["learner"] == BETTER] for rows in (table, most))
    kinds = set(own["kind"])
    own = own[own["least_answerable"] >= FEASIBLE[1]]
    claims = []

    def limit_to(text: str, measured: float, relation: str, limit: float) -> None:
        claims.append(Claim(f"{BETTER}: {text}", measured, relation, limit, kind=REGRESSION))

    for kind, (mean_, low, within) in AIMS.items():
        rows = feasible[feasible["kind"] == kind]
        if kind in kinds:
            limit_to(f"mean answered / answerable, {kind}", rows["of_answerable"].mean(), ">=", mean_)
            limit_to(f"10% quantile over environments, {kind}", rows["of_answerable"].quantile(0.1), ">=", low)
            share = (rows["fdr_minus_alpha"] <= 0.01).mean()
            limit_to(f"share of environments with an FDR at T of at most alpha + .01, {kind}", share, ">=", within)
    turned = own[own["kind"] == f"single-shift to {ALL_WRONG}"]
    if f"single-shift to {ALL_WRONG}" in kinds:
        what = "wrong answers above budget when all answers become wrong"
        limit_to(f"{what}, mean over environments of the largest", turned["rise"].mean(), "<=", 116)
        limit_to(f"{what}, maximum", turned["rise"].max(), "<=", 116)
    back = own[own["kind"] == f"single-shift from {ALL_WRONG}"]
    if f"single-shift from {ALL_WRONG}" in kinds:
        text = "mean answered / answerable after a first half with only wrong answers"
        limit_to(text, back["of_answerable"].mean(), ">=", 0.85)
    return claims


beyond = Experiment(
    "aci-rank, the paper's learners, exaul-known and two well-known rivals: on stationary records, under shifts, "
    "when all answers become wrong and right again, and in adaptive environments. "
    "Answerable is the coverage of the best threshold of each source with FDR at most alpha; R_t counts wrong "
    "answers above the budget.",
    parts,
    _drawn,
    _claims,
    lambda found: {"worlds": (table := environment_table(found)), "over-all": summary_table(table)},
)
