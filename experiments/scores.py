"""``scores``: the same questions with two scores: the log's own, and another column or self-consistency."""

from collections.abc import Sequence

import numpy as np

from exaul.engine.logs.log import Records
from exaul.engine.results import figures
from experiments.experiment import (
    Experiment,
    ExperimentPart,
    abstains_as_ew,
    ends_farther,
    holds_alpha,
    near_best,
    theory_claims,
)
from experiments.paper import HARD, Paper

AGREES = 0.92, 0.60  # probability that a sample agrees with a right answer, with a wrong one


def by_consistency(records: Records) -> Records:
    """Return the records with a new score: the share of five simulated samples that agree."""
    agree = np.where(records.errors > 0.5, AGREES[1], AGREES[0])
    scores = np.random.default_rng(0).binomial(5, agree) / 5
    return records._replace(name=f"{records.name} (simulated consistency)", scores=scores, sha256=None)


def _parts(paper: Paper, records: tuple[Records, Records]) -> Sequence[ExperimentPart]:
    sweep, own = paper.sweep(alphas=(paper.alphas[HARD],)), records[HARD]
    return [ExperimentPart(sweep, (own,)), ExperimentPart(sweep, (paper.other() or by_consistency(own),))]


scores = Experiment(
    "A likelihood with many values against self-consistency with six levels, where few thresholds differ. The "
    "samples are simulated: each agrees with a right answer with probability 0.92, with a wrong one 0.60. "
    "--other-score uses a column of the log instead.",
    _parts,
    lambda tables: figures.draw(tables.trials, tables.curves),
    lambda tables: [
        *holds_alpha(tables),
        *abstains_as_ew(tables),
        near_best(tables),
        *ends_farther(tables),
        *theory_claims(tables),
    ],
)
