"""``beyond``: the paper's learners beside those that answer all they safely can, in every kind of world."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine import figures, tables
from engine.environments import ENVIRONMENTS
from engine.environments.adaptive import Adaptive
from engine.errors import BadInput
from engine.metrics import Floats
from engine.results import risk_holds
from engine.sources import Records, load_traces
from engine.tables import Table
from experiments.paper import (
    EASY,
    HARD,
    MIXED,
    SHIFT,
    Claim,
    Experiment,
    Paper,
    Part,
    Tables,
    cells,
    lemma,
    mean,
)

LEARNERS = ("exaul", "exp3-ix", "ew", "calibrate-then-fix", "threshold", "log-price", "ranked-threshold")
NEW = ("threshold", "log-price", "ranked-threshold")
BETTER = "ranked-threshold"
SHIFTS = ("single-shift", "alternating-shift", "gradual-shift")
REACTING = (
    "adversary-history",
    "adversary-omniscient",
    "adversary-omniscient-regret",
    "interactive",
    "always-wrong",
)
WORLD = ["environment", "source", "alpha"]
LEAST = 2_000  # records of a trace
APART = ("dataset", "model", "prompt")  # columns that tell traces apart
FEASIBLE = (0.01, 0.05)  # of its records, that a source's best threshold must answer for a world to be counted
ALL_WRONG, USELESS = "all wrong", "useless score"  # sources that were made of another
ALPHAS = (0.05, 0.1, 0.2)  # on every trace
POINTS = 40  # checkpoints of a trace


def hopeless(records: Records) -> Records:
    """The same scores, every answer wrong."""
    return records._replace(name=ALL_WRONG, errors=np.ones_like(records.errors), sha256=None)


def useless(records: Records) -> Records:
    """The same scores, half of the answers wrong whatever the score."""
    coins = np.random.default_rng(0).permutation(len(records.scores)) % 2
    return records._replace(name=USELESS, errors=coins.astype(np.float64), sha256=None)


def traces(folder: str) -> list[Records]:
    """Every trace of a folder of logs that has at least 2,000 records.

    Raises:
        BadInput: there is none, or a log cannot be used.
    """
    paths = sorted(path for path in Path(folder).glob("*") if path.name.endswith((".csv", ".csv.gz", ".parquet")))
    found = [trace for path in paths for trace in load_traces(path, APART, LEAST)]
    if not found:
        raise BadInput(f"data: {folder} holds no trace of at least {LEAST} records")
    return found


def parts(paper: Paper, records: tuple[Records, Records]) -> Sequence[Part]:
    """The worlds of the profiles or logs; or, of a folder, all traces and the shifts between pairs of them."""
    return list(_everywhere(paper, traces(paper.data)) if paper.data is not None else _worlds(paper, *records))


def _worlds(paper: Paper, easy: Records, hard: Records) -> Iterator[Part]:
    alphas = [paper.alphas[place] for place in (EASY, HARD, SHIFT)]
    common: dict[str, Any] = {"grid": "logit", "learners": LEARNERS, "checkpoints": 60}

    def part(environment: str, alpha: float, *records: Records, horizon: int = 30_000) -> Part:
        return Part(paper.sweep(horizon, 30, environment=environment, alphas=(alpha,), **common), records)

    yield part("stochastic", alphas[0], easy)
    yield part("stochastic", alphas[1], hard)
    for environment in SHIFTS:
        yield part(environment, alphas[2], easy, hard)
    for first, then in ((easy, hopeless(easy)), (easy, useless(easy)), (hopeless(easy), easy)):
        yield part("single-shift", alphas[2], first, then)
    yield part("alternating-shift", alphas[2], easy, hopeless(easy))
    for environment in REACTING:
        needed = (easy, hard)[: ENVIRONMENTS[environment].sources]
        yield part(environment, alphas[2], *needed, horizon=15_000)


def _everywhere(paper: Paper, found: list[Records]) -> Iterator[Part]:
    common: dict[str, Any] = {"grid": "logit", "learners": LEARNERS, "checkpoints": POINTS}

    def part(environment: str, alphas: tuple[float, ...], *records: Records, horizon: int = 30_000) -> Part:
        return Part(paper.sweep(horizon, 20, environment=environment, alphas=alphas, **common), records)

    for trace in found:
        yield part("stochastic", ALPHAS, trace)
    neighbours = zip(found[::2], found[1::2], strict=False)
    pairs = [(before, after) for before, after in neighbours if _of(before) == _of(after)]
    for pair in pairs:
        for environment in SHIFTS:
            yield part(environment, ALPHAS[1:], *pair)
    for trace in found:
        yield part("single-shift", ALPHAS[1:2], trace, hopeless(trace))
        yield part("single-shift", ALPHAS[1:2], hopeless(trace), trace)
    for pair in {first.name.split(":")[0]: (first, second) for first, second in reversed(pairs)}.values():
        for environment in REACTING:
            yield part(environment, ALPHAS[1:2], *pair[: ENVIRONMENTS[environment].sources], horizon=5_000)


def _of(trace: Records) -> str:
    """The log and dataset of a trace."""
    return trace.name.split(",")[0]


def kind(environment: str, source: str) -> str:
    """The kind of a world: its environment, and which way it goes where a source was made."""
    made = [name for name in source.split(" -> ") if name in (ALL_WRONG, USELESS)]
    if not made:
        return environment
    return f"{environment} {'from' if source.startswith(made[0]) else 'to'} {made[0]}"


def thresholds(found: Tables) -> dict[tuple[str, float], Floats]:
    """What the best fixed threshold answers, by source and alpha: one number, or one a share in ``MIXED``."""
    return {cell: rows["on_grid"].to_numpy() for cell, rows in found.coverage.groupby(["source", "alpha"])}


def answerable(best: Mapping[tuple[str, float], Floats], world: Sequence[Any], share: Floats) -> Floats:
    """What the best fixed threshold of each segment answers, at shares of the horizon; NaN where worlds react."""
    environment, source, alpha = world
    shape = ENVIRONMENTS[environment]
    if isinstance(shape, Adaptive):
        return np.full(len(share), np.nan)
    if environment == "gradual-shift":
        return np.interp(share, MIXED, best[source, alpha])
    each = [best[name, alpha][0] for name in source.split(" -> ")]
    turn = np.ceil(share * shape.parts).astype(int) - 1
    return np.array(each)[np.maximum(turn, 0) % len(each)]


def summed(found: Tables) -> Table:
    """A row a world and learner: answered / answerable, FDR - alpha, R, its bound, and its largest rise."""
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
    """The worlds of ``summed`` whose sources can all be answered from that share on, but not altogether."""
    here = table.dropna(subset="of_answerable")
    return here[(here["least_answerable"] >= bar) & (here["answerable"] < 1)]


def over_all(table: Table) -> Table:
    """A row a kind of world, learner and least answerable share: what is summed up over the worlds of that kind."""
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
    """Share answered since the checkpoint before, mean over trials, beside what is answerable, of each world."""
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
    held = first[first["learner"].isin(("exaul", *NEW))]
    label = "FDR risk $R_t$ (answers)"
    dots = counted(table, FEASIBLE[0])
    return {
        "risk": figures.over_time(held, "fdr_risk", label, by=WORLD, dotted="risk_bound"),
        "coverage": figures.over_time(
            coverage_curves(few),
            "coverage",
            "share answered",
            by=WORLD,
            reference=("answerable", "best fixed threshold"),
        ),
        "scatter": figures.scatter(
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
    broken = int((~risk_holds(found.trials)).sum())
    claims = [
        lemma(found),
        Claim("trials whose R_T is above the learner's pathwise bound", broken, "<=", 0, "it is proved: a bug"),
    ]
    for name in NEW:
        for here in ("stochastic", *SHIFTS):
            each = [mean(few, "of_answerable", learner=learner, kind=here) for learner in (name, "exaul")]
            claims.append(Claim(f"{name}: answers more than exaul, {here}", each[0], ">", each[1]))
        wrong = table[(table["kind"] == f"single-shift to {ALL_WRONG}") & (table["learner"] == name)]
        wrong = wrong[wrong["least_answerable"] >= FEASIBLE[1]]
        what = f"{name}: wrong answers above budget when all turns wrong, of which a twentieth was answerable"
        claims.append(Claim(what, wrong["rise"].max(), "<=", 80))
    for here, least in (("stochastic", 0.95), *((shift, 0.9) for shift in SHIFTS)):
        share = mean(few, "of_answerable", learner=BETTER, kind=here)
        claims.append(Claim(f"{BETTER}: mean answered / answerable, {here}", share, ">=", least))
    above = most.loc[(most["learner"] == BETTER) & (most["kind"] == "stochastic"), "fdr_minus_alpha"]
    what = f"{BETTER}: FDR at T is at most alpha + .01 in nine worlds of ten of which a twentieth is answerable"
    claims.append(Claim(what, float((above <= 0.01).mean()), ">=", 0.9))
    shifted = few[few["kind"].isin(SHIFTS) & (few["learner"] == "calibrate-then-fix")]
    why = "the second source is no harder than the first at the threshold that was fixed"
    worst = shifted["fdr_minus_alpha"].max()
    claims.append(Claim("calibrate-then-fix: largest FDR - alpha under shift", worst, ">", 0, why))
    return claims


beyond = Experiment(
    "Beyond the paper",
    "Learners whose weight of errors moves, beside the paper's and a practitioner's: on stationary records, under "
    "shifts, when all turns wrong and back, and against worlds that answer back. Answerable is what the best fixed "
    "threshold of each source answers at FDR alpha; R_t counts wrong answers above the budget.",
    parts,
    _drawn,
    _claims,
    lambda found: {"worlds": (table := summed(found)), "over-all": over_all(table)},
)
