"""``adversary``, ``interactive``: adaptive environments."""

from collections.abc import Sequence

import numpy as np

from exaul.engine.logs.log import Records
from exaul.engine.results import figures
from experiments.experiment import (
    Claim,
    Claims,
    Experiment,
    ExperimentPart,
    Tables,
    abstains_as_ew,
    ends_farther,
    holds_alpha,
    theory_claims,
)
from experiments.paper import HARD, PAPER, SHIFT, Paper

EARLY = 300  # rounds
CHANCE = 0.05  # probability that as many hard questions are drawn by chance
CONSISTENTLY = "ExAUL consistently controls the FDR towards alpha, despite the instability of FDR_t."
ROBUST = "ExAUL demonstrates robust FDR control even against a strategy-aware adversary."
FIRST = (
    "At the very first stage, the adversary attempts to maximize the risk by exclusively presenting difficult "
    "questions."
)
LATER = (
    "In the later stages, the adversary adapts by mixing incorrect (hard but overconfident) and correct (easy but "
    "under-confident) questions."
)


def _experiment(environment: str, place: int, description: str, claims: Claims) -> Experiment:
    def parts(paper: Paper, records: tuple[Records, Records]) -> Sequence[ExperimentPart]:
        sweep = paper.sweep(15_000, environment=environment, alphas=(paper.alphas[place],), learners=PAPER)
        return [ExperimentPart(sweep, records)]

    def drawn(tables: Tables) -> dict[str, figures.Figure]:
        assert tables.asked is not None
        return figures.draw(tables.trials, tables.curves) | {"asked": figures.asked_figure(tables.asked)}

    return Experiment(description, parts, drawn, claims)


def _adversary_claims(tables: Tables) -> list[Claim]:
    assert tables.asked is not None
    rows = tables.asked[tables.asked["learner"] == "exaul"]
    early, late = (x.mean(numeric_only=True) for x in (rows[rows["t"] <= EARLY], rows.iloc[-len(rows) // 10 :]))
    rates = tables.coverage.drop_duplicates("source")
    hard = float(np.average(rates["error_rate"], weights=rates["records"]))
    drawn = EARLY * int((tables.trials["learner"] == "exaul").sum())
    noise = np.sqrt(np.log(1 / CHANCE) / (2 * drawn))  # Hoeffding's inequality
    return [
        *holds_alpha(tables, quote=ROBUST),
        *abstains_as_ew(tables),
        *ends_farther(tables),
        Claim(
            f"at first the adversary asks exaul more hard questions than chance: their share up to round {EARLY}",
            early["hard_mean"],
            ">",
            hard + noise,
            quote=FIRST,
        ),
        Claim(
            "later it adds right answers with low scores: their share in the last tenth minus that at first",
            late["underconfident_mean"] - early["underconfident_mean"],
            ">",
            0.0,
            quote=LATER,
        ),
        *theory_claims(tables),
    ]


adversary = _experiment(
    "adversary-history",
    HARD,
    "A bandit adversary instead of the paper's language model. It sees its questions, the decisions and the "
    "errors, but no score. It starts without preference, learns which log pays (wrong answers shown, right ones "
    "withheld), and asks from it.",
    _adversary_claims,
)
interactive = _experiment(
    "interactive",
    SHIFT,
    "A simulation instead of the paper's dialogues: up to ten questions on a topic, then another of 20,962 topics, "
    "each with its own error rate and calibration. Half of the questions without an answer, and half of those with "
    "a wrong one, are asked again in other words.",
    lambda tables: [
        *holds_alpha(tables, quote=CONSISTENTLY),
        *abstains_as_ew(tables),
        *ends_farther(tables),
        *theory_claims(tables),
    ],
)
