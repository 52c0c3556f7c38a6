"""``regret``: regret per round over time under the three shifts."""

from collections.abc import Sequence

from exaul.engine.data.records import Records
from exaul.engine.results import figures
from experiments.experiment import Claim, Experiment, Part, Tables, cells, mean, theory
from experiments.paper import Paper
from experiments.shift import parts_of, rise
from experiments.worlds import segments

SHIFTS = "single-shift", "alternating-shift", "gradual-shift"


def _parts(paper: Paper, records: tuple[Records, Records]) -> Sequence[Part]:
    return [parts_of(environment, paper, records)[0] for environment in SHIFTS]


def _figures(tables: Tables) -> dict[str, figures.Figure]:
    drawn = {}
    for environment, rows in tables.curves.groupby("environment", sort=False):
        learned = rows[rows["learner"].isin(("exaul", "exp3-ix", "ew"))]
        label = "regret per round"
        drawn[str(environment)] = figures.over_time(
            learned, "regret_per_round", label, parts=segments(str(environment))
        )
    return drawn


def _claims(tables: Tables) -> list[Claim]:
    claims = []
    for cell in cells(tables.trials, "environment", "source"):
        a, b = (mean(tables.trials, "regret", learner=name, **cell) for name in ("exaul", "exp3-ix"))
        text = f"exaul has less mean regret at T than exp3-ix, {cell['environment']}"
        claims.append(Claim(text, a, "<", b))
    single = tables.curves[tables.curves["environment"] == "single-shift"]
    up = rise(single, "regret_per_round", "exp3-ix", single["source"].iloc[0], segments("single-shift"))
    text = "like its FDR, the regret per round of exp3-ix rises after a single shift to harder questions"
    claims.append(Claim(text, up, ">", 0))
    return [*claims, *theory(tables)]


regret = Experiment(
    "Loss beyond that of the best fixed threshold so far, per round; easy questions first.",
    _parts,
    _figures,
    _claims,
)
