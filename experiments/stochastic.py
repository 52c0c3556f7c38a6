"""``stochastic-easy``, ``stochastic-hard``: records drawn at random from one source."""

from collections.abc import Sequence

from exaul.engine.logs.log import Records
from exaul.engine.results import figures
from experiments.experiment import (
    CHECK,
    Claim,
    Experiment,
    ExperimentPart,
    Tables,
    abstains_as_ew,
    ends_farther,
    holds_alpha,
    mean,
    near_best,
    theory_claims,
)
from experiments.paper import EASY, HARD, Paper


def _claims(tables: Tables) -> list[Claim]:
    loss = {name: mean(tables.trials, "loss", learner=name) for name in ("ew", "exaul")}
    alpha = tables.trials["alpha"].iloc[0]
    base = mean(tables.trials, "fdr", learner="no-abstention")
    return [
        *holds_alpha(tables),
        *holds_alpha(tables, "ew"),
        *abstains_as_ew(tables),
        near_best(tables),
        *ends_farther(tables),
        Claim("no-abstention has an FDR above alpha, so abstaining is needed", base, ">", alpha, kind=CHECK),
        Claim(
            "ew, which sees every label, has at most the mean loss of exaul",
            loss["ew"],
            "<=",
            loss["exaul"],
            kind=CHECK,
            quote="As it exploits full feedback, we use it as our empirical performance upper bound.",
        ),
        *theory_claims(tables),
    ]


def _experiment(place: int) -> Experiment:
    def parts(paper: Paper, records: tuple[Records, Records]) -> Sequence[ExperimentPart]:
        return [ExperimentPart(paper.sweep(alphas=(paper.alphas[place],)), (records[place],))]

    return Experiment(
        "All learners on records in random order: exaul reaches alpha within the horizon, exp3-ix does not.",
        parts,
        lambda tables: figures.draw(tables.trials, tables.curves),
        _claims,
    )


easy = _experiment(EASY)
hard = _experiment(HARD)
