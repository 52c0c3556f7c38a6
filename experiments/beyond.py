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
from experiments.paper import EASY, HARD, SHIFT, Claim, Experiment, Paper, Part, Tables, cells, lemma, mean

LEARNERS = ("exaul", "exp3-ix", "ew", "calibrate-then-fix", "threshold", "log-price", "ranked-threshold")
NEW = ("threshold", "log-price", "ranked-threshold")
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
FEASIBLE = 0.01  # of the rounds, that a fixed threshold must be able to answer for a ratio to mean something
ALPHAS = (0.05, 0.1, 0.2)  # on every trace
POINTS = 40  # checkpoints of a trace


def hopeless(records: Records) -> Records:
    """The same scores, every answer wrong."""
    return records._replace(name="all wrong", errors=np.ones_like(records.errors), sha256=None)


def useless(records: Records) -> Records:
    """The same scores, half of the answers wrong whatever the score."""
    coins = np.random.default_rng(0).permutation(len(records.scores)) % 2
    return records._replace(name="useless score", errors=coins.astype(np.float64), sha256=None)


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
    for trace in found:
        yield Part(paper.sweep(30_000, 20, alphas=ALPHAS, **common), (trace,))
    for before, after in zip(found[::2], found[1::2], strict=False):
        if before.name.split(",")[0] == after.name.split(",")[0]:  # of one log and dataset
            for environment in SHIFTS:
                given = common | {"environment": environment, "alphas": ALPHAS[1:]}
                yield Part(paper.sweep(30_000, 20, **given), (before, after))


def thresholds(found: Tables) -> dict[tuple[str, float], float]:
    """What the best fixed threshold answers, by source and alpha."""
    rows = found.coverage
    return dict(zip(zip(rows["source"], rows["alpha"], strict=True), rows["on_grid"], strict=True))


def answerable(best: Mapping[tuple[str, float], float], world: Sequence[Any], share: Floats) -> Floats:
    """What the best fixed threshold of each source answers, at shares of the horizon; NaN where worlds react."""
    environment, source, alpha = world
    kind = ENVIRONMENTS[environment]
    if isinstance(kind, Adaptive):
        return np.full(len(share), np.nan)
    first, *rest = (best[name, alpha] for name in source.split(" -> "))
    if not rest:
        return np.full(len(share), first)
    second = share if kind.parts == 1 else np.ceil(share * kind.parts) % 2 == 0
    return first + second * (rest[0] - first)


def summed(found: Tables) -> Table:
    """A row a world and learner: answered / answerable, FDR - alpha, R, its bound, and its largest rise."""
    rows, each = [], thresholds(found)
    rises = found.curves.groupby([*WORLD, "learner"])["rise"].max()
    for values, here in found.trials.groupby([*WORLD, "learner"], sort=False):
        cell = dict(zip([*WORLD, "learner"], values, strict=True))
        middle = (np.arange(1000) + 0.5) / 1000
        best = float(answerable(each, [cell[column] for column in WORLD], middle).mean())
        share = here["answered"] / here["horizon"]
        rows.append(
            cell
            | {
                "answered": share.mean(),
                "answerable": best,
                "of_answerable": np.minimum(share / best, 1).mean() if best >= FEASIBLE else np.nan,
                "fdr_minus_alpha": (here["fdr"] - here["alpha"]).mean(),
                "risk": here["fdr_risk"].max(),
                "risk_bound": here["risk_bound"].min(),
                "rise": rises[values],
            }
        )
    return tables.frame(rows)


def over_all(table: Table) -> Table:
    """A row a kind of world and learner: what is summed up over the worlds of that kind."""
    rows = []
    for cell in cells(table, "environment", "learner"):
        here = table[(table["environment"] == cell["environment"]) & (table["learner"] == cell["learner"])]
        feasible = here.dropna(subset="of_answerable")
        rows.append(
            cell
            | {
                "worlds": len(here),
                "feasible": len(feasible),
                "of_answerable_mean": feasible["of_answerable"].mean(),
                "of_answerable_q10": feasible["of_answerable"].quantile(0.1),
                "of_answerable_least": feasible["of_answerable"].min(),
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
    dots = table.dropna(subset="of_answerable")
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
    oblivious = table.dropna(subset="of_answerable")
    broken = int((~risk_holds(found.trials)).sum())
    claims = [
        lemma(found),
        Claim("trials whose R_T is above the learner's pathwise bound", broken, "<=", 0, "it is proved: a bug"),
    ]
    for name in NEW:
        for text, rows in (
            ("stationary", oblivious[oblivious["environment"] == "stochastic"]),
            ("under shifts", oblivious[oblivious["environment"].isin(SHIFTS)]),
        ):
            each = [mean(rows, "of_answerable", learner=learner) for learner in (name, "exaul")]
            what = f"{name}: mean answered / answerable is above that of exaul, {text}"
            claims.append(Claim(what, each[0], ">", each[1]))
        own = oblivious[oblivious["learner"] == name]
        claims.append(Claim(f"{name}: mean answered / answerable", own["of_answerable"].mean(), ">=", 0.9))
        above = own["fdr_minus_alpha"].quantile(0.9)
        claims.append(Claim(f"{name}: FDR at T is at most alpha + .01 in nine worlds of ten", above, "<=", 0.01))
    shifted = oblivious[oblivious["environment"].isin(SHIFTS) & (oblivious["learner"] == "calibrate-then-fix")]
    why = "the second source is no harder than the first at the threshold that was fixed"
    worst = shifted["fdr_minus_alpha"].max()
    claims.append(Claim("calibrate-then-fix: largest FDR - alpha under shift", worst, ">", 0, why))
    wrong = table[table["source"].str.endswith("all wrong") & (table["environment"] == "single-shift")]
    for name in NEW:
        rise = wrong.loc[wrong["learner"] == name, "rise"].max()
        if len(wrong):
            claims.append(Claim(f"{name}: wrong answers above budget when all turns wrong", rise, "<=", 80))
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
