"""``beyond``: the paper's learners beside those that answer all they safely can, in every kind of world."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from exaul.engine.checks import BadInput
from exaul.engine.data import tables
from exaul.engine.data.layout import Layout
from exaul.engine.data.logs import named_apart
from exaul.engine.data.records import Records
from exaul.engine.data.tables import Table
from exaul.engine.data.traces import files, load_traces
from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.results import figures
from exaul.engine.results.trials import risk_holds
from exaul.kernels.metrics import Floats
from experiments import plots, worlds
from experiments.coverage import MIXED
from experiments.experiment import NEAR, Claim, Experiment, Part, Tables, cells, lemma, mean
from experiments.paper import EASY, HARD, SHIFT, Paper

RIVALS = ("learn-then-test", "refit", "aci-score", "aci-rank")
NEW = ("threshold", "log-price", "ranked-threshold")
LEARNERS = ("exaul", "exp3-ix", "ew", *RIVALS, *NEW)
BETTER = "ranked-threshold"
FIXED = "learn-then-test"
NATURAL = "replay"  # a trace in its own order, once
SHIFTS = ("single-shift", "alternating-shift", "gradual-shift")
AIMS = {  # of BETTER: answered / answerable, its 10% quantile, and the share of worlds that hold alpha
    "stochastic": (0.97, 0.93, 0.97),
    NATURAL: (0.95, 0.88, 0.95),
    **dict.fromkeys(SHIFTS, (0.9, 0.8, 0.9)),
}
REACTING = (
    "adversary-history",
    "adversary-omniscient",
    "adversary-omniscient:objective=regret",
    "interactive",
    "always-wrong",
)
WORLD = ["environment", "source", "alpha"]
LEAST = 2_000  # records that a trace must have
APART = ("dataset", "model", "prompt")  # columns that tell traces apart
FEASIBLE = (0.01, 0.05)  # shares of a source that must be answerable for a world to be counted
ALL_WRONG, USELESS = "all wrong", "useless score"  # sources that were made from another one
POINTS = 40  # checkpoints of a trace


def hopeless(records: Records) -> Records:
    """The same scores, every answer wrong."""
    return records._replace(name=ALL_WRONG, errors=np.ones_like(records.errors), sha256=None)


def useless(records: Records) -> Records:
    """The same scores, and half of the answers wrong, whatever the score."""
    coins = np.random.default_rng(0).permutation(len(records.scores)) % 2
    return records._replace(name=USELESS, errors=coins.astype(np.float64), sha256=None)


def traces(folder: str) -> list[Records]:
    """Every trace of a folder of logs that has at least 2,000 records; stderr is told by which columns of scores.

    Raises:
        BadInput: there is none, or a log cannot be used.
    """
    found = [trace for log in files(folder) for trace in load_traces(log, Layout(), APART)]
    long = [trace for trace in found if len(trace.records.scores) >= LEAST]
    if not long:
        raise BadInput(f"data: {folder} holds no trace of at least {LEAST} records")
    scores = ", ".join(dict.fromkeys(trace.score for trace in long))
    print(f"beyond: {len(long)} traces of at least {LEAST} records, by {scores}", file=sys.stderr)
    return list(named_apart([trace.records._replace(name=trace.name) for trace in long]))


def parts(paper: Paper, records: tuple[Records, Records]) -> Sequence[Part]:
    """The worlds of the profiles or logs; or, of a folder, all traces and the shifts between pairs of them."""
    return list(_everywhere(paper, traces(paper.data)) if paper.data is not None else _worlds(paper, *records))


def _worlds(paper: Paper, easy: Records, hard: Records) -> Iterator[Part]:
    alphas = [paper.alphas[place] for place in (EASY, HARD, SHIFT)]
    common = _common(paper) | {"checkpoints": 60}

    def part(world: str, alpha: float, *records: Records, horizon: int = 30_000) -> Part:
        return Part(paper.sweep(horizon, 30, **worlds.fields(world), alphas=(alpha,), **common), records)

    yield part("stochastic", alphas[0], easy)
    yield part("stochastic", alphas[1], hard)
    for environment in SHIFTS:
        yield part(environment, alphas[2], easy, hard)
    for first, then in ((easy, hopeless(easy)), (easy, useless(easy)), (hopeless(easy), easy)):
        yield part("single-shift", alphas[2], first, then)
    yield part("alternating-shift", alphas[2], easy, hopeless(easy))
    for world in REACTING:
        needed = (easy, hard)[: worlds.environment(world).sources]
        yield part(world, alphas[2], *needed, horizon=15_000)


def _everywhere(paper: Paper, found: list[Records]) -> Iterator[Part]:
    common = _common(paper) | {"checkpoints": POINTS}
    alphas = tuple(sorted(paper.alphas))
    middle = (alphas[len(alphas) // 2],)

    def part(world: str, alphas: tuple[float, ...], *records: Records, horizon: int = 30_000) -> Part:
        return Part(paper.sweep(horizon, 20, **worlds.fields(world), alphas=alphas, **common), records)

    for trace in found:
        yield part("stochastic", alphas, trace)
        yield part(NATURAL, alphas, trace, horizon=len(trace.scores))
    neighbours = zip(found[::2], found[1::2], strict=False)
    pairs = [(before, after) for before, after in neighbours if _of(before) == _of(after)]
    for pair in pairs:
        for environment in SHIFTS:
            yield part(environment, alphas[-2:], *pair)
    for trace in found:
        yield part("single-shift", middle, trace, hopeless(trace))
        yield part("single-shift", middle, hopeless(trace), trace)
    for pair in {first.name.split(":")[0]: (first, second) for first, second in reversed(pairs)}.values():
        for world in REACTING:
            yield part(world, middle, *pair[: worlds.environment(world).sources], horizon=5_000)


def _common(paper: Paper) -> dict[str, Any]:
    return {"grid": paper.grid or "logit", "learners": paper.learners or LEARNERS}


def _of(trace: Records) -> str:
    """The log and dataset of a trace."""
    return trace.name.split(",")[0]


def kind(environment: str, source: str) -> str:
    """The kind of a world: its environment, and the source that was made, if any, which it turns to or from."""
    made = [name for name in source.split(" -> ") if name in (ALL_WRONG, USELESS)]
    if not made:
        return environment
    return f"{environment} {'from' if source.startswith(made[0]) else 'to'} {made[0]}"


def thresholds(found: Tables) -> dict[tuple[str, float], Floats]:
    """What the best threshold that holds alpha answers, by source and alpha: [1], or [20] at shares ``MIXED``."""
    return {cell: rows["on_grid"].to_numpy() for cell, rows in found.coverage.groupby(["source", "alpha"])}


def answerable(best: Mapping[tuple[str, float], Floats], world: Sequence[Any], share: Floats) -> Floats:
    """What each segment's best threshold that holds alpha answers, at shares of T; NaN where worlds react."""
    name, source, alpha = world
    if isinstance(worlds.environment(name), Adaptive):
        return np.full(len(share), np.nan)
    if name == "gradual-shift":
        return np.interp(share, MIXED, best[source, alpha])
    each = [best[name, alpha][0] for name in source.split(" -> ")]
    turn = np.ceil(share * worlds.segments(name)).astype(int) - 1
    return np.array(each)[np.maximum(turn, 0) % len(each)]


def summed(found: Tables) -> Table:
    """One row per world and learner: answered / answerable, FDR - alpha, R_T, its bound, largest rise of R_t."""
    rows, each = [], thresholds(found)
    rises = found.curves.groupby([*WORLD, "learner"])["rise"].max()
    middle = (np.arange(1000) + 0.5) / 1000
    for values, here in found.trials.groupby([*WORLD, "learner"], sort=False):
        cell = dict(zip([*WORLD, "learner"], values, strict=True))
        best = float(answerable(each, [cell[column] for column in WORLD], middle).mean())
        real = [name for name in cell["source"].split(" -> ") if name not in (ALL_WRONG, USELESS)]
        share = here["answered"] / here["horizon"]
        rows.append(
            {"kind": kind(cell["environment"], cell["source"])}
            | cell
            | {
                "answered": share.mean(),
                "answerable": best,
                "least_answerable": min(each[name, cell["alpha"]][0] for name in real),
                "of_answerable": np.minimum(share / best, 1).mean() if best >= FEASIBLE[0] else np.nan,
                "fdr_minus_alpha": (here["fdr"] - here["alpha"]).mean(),
                "risk": here["fdr_risk"].max(),
                "risk_bound": here["risk_bound"].min(),
                "rise": rises[values],
            }
        )
    return tables.frame(rows)


def counted(table: Table, bar: float) -> Table:
    """The worlds of ``summed`` where at least a share ``bar`` of each source can be answered, but not all."""
    here = table.dropna(subset="of_answerable")
    return here[(here["least_answerable"] >= bar) & (here["answerable"] < 1)]


def over_all(table: Table) -> Table:
    """One row per kind of world, learner and least answerable share: a summary over the worlds of that kind."""
    rows = []
    for cell in cells(table, "kind", "learner"):
        here = table[(table["kind"] == cell["kind"]) & (table["learner"] == cell["learner"])]
        for bar in FEASIBLE:
            feasible = counted(here, bar)
            rows.append(
                cell
                | {
                    "worlds": len(here),
                    "answerable_from": bar,
                    "counted": len(feasible),
                    "of_answerable_mean": feasible["of_answerable"].mean(),
                    "of_answerable_q10": feasible["of_answerable"].quantile(0.1),
                    "of_answerable_least": feasible["of_answerable"].min(),
                    "fdr_within_01": (feasible["fdr_minus_alpha"] <= 0.01).mean(),
                    "fdr_minus_alpha_q90": feasible["fdr_minus_alpha"].quantile(0.9),
                    "fdr_minus_alpha_most": feasible["fdr_minus_alpha"].max(),
                    "risk_most": here["risk"].max(),
                    "rise_most": here["rise"].max(),
                }
            )
    return tables.frame(rows)


def coverage_curves(found: Tables) -> Table:
    """Mean share answered since the checkpoint before, beside what is answerable, of each world and learner."""
    parts, each = [], thresholds(found)
    for _, rows in found.curves.groupby([*WORLD, "learner"], sort=False):
        t = rows["t"].to_numpy()
        answered = t * (1 - rows["inefficiency_mean"].to_numpy())
        part = rows[[*WORLD, "lambda", "learner", "t"]].copy()
        part["coverage_mean"] = np.diff(answered, prepend=0) / np.diff(t, prepend=0)
        part["answerable"] = answerable(each, rows[WORLD].iloc[0].tolist(), t / t.max())
        parts.append(part)
    return tables.stack(parts)


def _drawn(found: Tables) -> Mapping[str, figures.Figure]:
    table = summed(found)
    shown = [tuple(cell.values()) for cell in cells(found.curves, *WORLD)][:16]
    first = found.curves[found.curves[WORLD].apply(tuple, axis=1).isin(shown)]
    few = found._replace(curves=first)
    few_learners = first[first["learner"].isin(("exaul", *NEW))]
    label = "FDR risk $R_t$ (answers)"
    dots = counted(table, FEASIBLE[0])
    return {
        "risk": figures.over_time(few_learners, "fdr_risk", label, by=WORLD, dotted="risk_bound"),
        "coverage": figures.over_time(
            coverage_curves(few),
            "coverage",
            "share answered",
            by=WORLD,
            reference=("answerable", "best threshold that holds alpha"),
        ),
        "scatter": plots.scatter(
            dots,
            "of_answerable",
            "fdr_minus_alpha",
            "answered / answerable (at most 1)",
            "FDR$_T$ - $\\alpha$",
        ),
    }


def _claims(found: Tables) -> list[Claim]:
    table = summed(found)
    few, most = (counted(table, bar) for bar in FEASIBLE)
    played = set(table["learner"])
    broken = int((~risk_holds(found.trials)).sum())
    text = "trials whose R_T is above the learner's pathwise bound"
    claims = [lemma(found), Claim(text, broken, "<=", 0, "it is proved: a bug", check=True)]
    if BETTER in played:
        claims += _better(table, most)
    worlds_of = [name for name in ("stochastic", NATURAL, *SHIFTS) if name in set(table["kind"])]
    for name, here in ((name, here) for name in NEW if {name, "exaul"} <= played for here in worlds_of):
        each = [mean(few, "of_answerable", learner=learner, kind=here) for learner in (name, "exaul")]
        claims.append(Claim(f"{name}: answers more than exaul, {here}", each[0], ">", each[1], full=True))
    for here in worlds_of if {"exaul", "ew"} <= played else ():
        apart = max(
            abs(rows.loc["exaul", "answered"] - rows.loc["ew", "answered"]).max()
            for _, rows in table[table["kind"] == here].set_index("learner").groupby(WORLD, sort=False)
        )
        text = f"exaul answers as often as ew, which sees every label: largest difference of shares, {here}"
        claims.append(Claim(text, apart, "<=", NEAR, full=True))
        fdr = table[(table["kind"] == here) & (table["learner"] == "exaul")]["fdr_minus_alpha"].max()
        claims.append(Claim(f"exaul: largest FDR - alpha, {here}", fdr, "<=", 0.01, full=True))
    if FIXED in played:
        shifted = few[few["kind"].isin(SHIFTS) & (few["learner"] == FIXED)]
        why = "the margin of what was certified on the first source is wide enough for the second"
        worst = shifted["fdr_minus_alpha"].max()
        claims.append(Claim(f"{FIXED}: largest FDR - alpha under shift", worst, ">", 0, why, check=True))
    return claims


def _better(table: Table, most: Table) -> list[Claim]:
    """What the best learner should reach, where a twentieth of each source is answerable."""
    own, feasible = (rows[rows["learner"] == BETTER] for rows in (table, most))
    own = own[own["least_answerable"] >= FEASIBLE[1]]
    claims = []

    def claim(text: str, measured: float, relation: str, limit: float) -> None:
        claims.append(Claim(f"{BETTER}: {text}", measured, relation, limit, check=True, full=True))

    for here, (mean_, low, within) in AIMS.items():
        rows = feasible[feasible["kind"] == here]
        if len(rows):
            claim(f"mean answered / answerable, {here}", rows["of_answerable"].mean(), ">=", mean_)
            claim(f"what nine worlds of ten reach of it, {here}", rows["of_answerable"].quantile(0.1), ">=", low)
            share = (rows["fdr_minus_alpha"] <= 0.01).mean()
            claim(f"share of worlds with an FDR at T of at most alpha + .01, {here}", share, ">=", within)
    turned = own[own["kind"] == f"single-shift to {ALL_WRONG}"]
    if len(turned):
        what = "wrong answers above budget when all turns wrong"
        claim(f"{what}, mean of the largest of each world", turned["rise"].mean(), "<=", 80)
        claim(f"{what}, the most", turned["rise"].max(), "<=", 130)
    back = own[own["kind"] == f"single-shift from {ALL_WRONG}"]
    if len(back):
        text = "mean answered / answerable after a first half of wrong answers alone"
        claim(text, back["of_answerable"].mean(), ">=", 0.85)
    return claims


beyond = Experiment(
    "Learners whose weight of errors moves, beside the paper's and four rivals that anyone can name: on stationary "
    "records, under shifts, when all turns wrong and back, and against worlds that answer back. Answerable is what "
    "the best threshold of each source that holds alpha answers; R_t counts wrong answers above the budget.",
    parts,
    _drawn,
    _claims,
    lambda found: {"worlds": (table := summed(found)), "over-all": over_all(table)},
)
