"""``regret``: regret per round over time under the three shifts."""

from collections.abc import Sequence

from exaul.engine.logs.log import Records
from exaul.engine.results import figures
from experiments.environments import count_segments
from experiments.experiment import (
    CHECK,
    CLAIM,
    REGRESSION,
    Claim,
    Experiment,
    ExperimentPart,
    Tables,
    abstains_as_ew,
    cells,
    mean,
    theory_claims,
)
from experiments.paper import Paper
from experiments.shift import growth, parts_of

SHIFTS = "single-shift", "alternating-shift", "gradual-shift"
LESS = (
    "The same upper bound as EW with full feedback, whereas Exp3-IX suffers from an additional factor of sqrt(|H|)."
)
RISES = "Similar to FDR, regret also shows a increase when a distribution shift occurs."


def _parts(paper: Paper, records: tuple[Records, Records]) -> Sequence[ExperimentPart]:
    return [parts_of(environment, paper, records)[0] for environment in SHIFTS]


def _figures(tables: Tables) -> dict[str, figures.Figure]:
    drawn = {}
    for environment, rows in tables.curves.groupby("environment", sort=False):
        learned = rows[rows["learner"].isin(("exaul", "exp3-ix", "ew"))]
        label = "regret per round"
        drawn[str(environment)] = figures.over_time(
            learned, "regret_per_round", label, segments=count_segments(str(environment))
        )
    return drawn


def _claims(tables: Tables) -> list[Claim]:
    claims = []
    for cell in cells(tables.trials, "environment", "source"):
        a, b = (mean(tables.trials, "regret", learner=name, **cell) for name in ("exaul", "exp3-ix"))
        text = f"exaul has less mean regret at T than exp3-ix, {cell['environment']}"
        claims.append(Claim(text, a, "<", b, quote=LESS))
        c = mean(tables.trials, "regret", learner="ew", **cell)
        text = f"regret of exaul, which sees only its own answers, over that of ew: {a:.0f}, {c:.0f}"
        claims.append(Claim(f"{text}, {cell['environment']}", a / c, "<=", 3, kind=REGRESSION))
        rows = tables.curves[tables.curves["environment"] == cell["environment"]]
        for name in ("exaul", "ew", "exp3-ix"):
            more = growth(rows, name, cell["source"], count_segments(cell["environment"]))
            text = f"{name}: the regret rises faster when questions become harder: growth per round, after - before"
            why = "it grows less on hard questions: earlier learning stays valid, or errors are seen sooner"
            where, kind = f"{text}, {cell['environment']}", CLAIM if name == "exaul" else CHECK
            claims.append(Claim(where, more, ">", 0, why, kind, quote=RISES))
    return [*claims, *abstains_as_ew(tables, "environment"), *theory_claims(tables)]


regret = Experiment(
    "Loss minus that of the best threshold so far, per round; easy questions first.",
    _parts,
    _figures,
    _claims,
)
