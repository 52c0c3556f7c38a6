"""``lambda``: the effect of the weight of the FDR against abstaining."""

from collections.abc import Sequence
from itertools import pairwise

from exaul.engine.logs.files import Table
from exaul.engine.logs.log import Records
from exaul.engine.results import figures
from experiments.experiment import (
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
from experiments.paper import EASY, HARD, HORIZON, Paper

POWERS = 0.0, 0.25, 0.5, 0.75, 1.0
QUOTE = (
    "A larger lambda typically leads to more conservative behavior and faster convergence of the FDR constraint, "
    "at the cost of increased inefficiency."
)
CHOSEN = "In our experiments, we set lambda = T^1/2, matching the rate achieved by standard bandit regret bounds."


def _parts(paper: Paper, records: tuple[Records, Records]) -> Sequence[ExperimentPart]:
    lambdas = tuple(float(HORIZON) ** d for d in POWERS)
    return [
        ExperimentPart(
            paper.sweep(trials=30, learners=("exaul", "ew"), alphas=(paper.alphas[place],), lambdas=lambdas),
            (records[place],),
        )
        for place in (EASY, HARD)
    ]


def _claims(tables: Tables) -> list[Claim]:
    claims = []
    for cell in cells(tables.trials, "source"):
        every = tables.trials[tables.trials["source"] == cell["source"]]
        rows = every[every["learner"] == "exaul"]
        lambdas = sorted(rows["lambda"].unique())
        fdr, idle = ([mean(rows, x, **{"lambda": lam}) for lam in lambdas] for x in ("fdr", "inefficiency"))
        more = max(b - a for a, b in pairwise(fdr))
        less = max(a - b for a, b in pairwise(idle))
        why = "beyond sqrt(T) lambda has almost no effect"
        text = "a larger lambda decreases the mean FDR at T: largest step up"
        claims.append(Claim(f"{text}, {cell['source']}", more, "<", 0, why, quote=QUOTE))
        text = "a larger lambda increases the mean inefficiency: largest step down"
        claims.append(Claim(f"{text}, {cell['source']}", less, "<", 0, why, quote=QUOTE))
        alpha = rows["alpha"].iloc[0]
        text = f"with lambda = 1 the mean FDR at T is above alpha = {alpha:g}, {cell['source']}"
        claims.append(Claim(text, fdr[0], ">", alpha, quote=QUOTE))
        text = f"exaul: mean FDR at T with lambda = sqrt(T), as a share of that with lambda = 1, {cell['source']}"
        claims.append(Claim(text, fdr[2] / fdr[0], "<=", 0.5, kind=REGRESSION))
        text = f"exaul: growth of the mean inefficiency from lambda = 1 to sqrt(T), {cell['source']}"
        claims.append(Claim(text, idle[2] - idle[0], ">=", 0.2, kind=REGRESSION))
        text = f"with lambda = sqrt(T) the mean FDR at T is at most alpha = {alpha:g}, {cell['source']}"
        claims.append(Claim(text, fdr[2], "<=", alpha, quote=CHOSEN))
        usual = tables._replace(trials=every[every["lambda"] == lambdas[2]])
        claims += abstains_as_ew(usual)
    return [*claims, *theory_claims(tables)]


def _own(tables: Tables) -> Table:
    return tables.curves[tables.curves["learner"] == "exaul"]


weight = Experiment(
    "exaul with lambda = T^d for d in 0, 1/4, 1/2 (the paper's choice), 3/4 and 1.",
    _parts,
    lambda tables: {
        "fdr": figures.over_time(_own(tables), "fdr", figures.FDR, target=True, lines="lambda"),
        "inefficiency": figures.over_time(_own(tables), "inefficiency", figures.INEFFICIENCY, lines="lambda"),
    },
    _claims,
)
