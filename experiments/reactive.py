"""``adversary``, ``interactive``: worlds that answer back."""

from collections.abc import Sequence

from exaul.engine.data.records import Records
from exaul.engine.results import figures
from experiments.experiment import Claim, Claims, Experiment, Part, Tables, farther, holds_alpha, theory
from experiments.paper import HARD, PAPER, SHIFT, Paper


def _experiment(environment: str, place: int, about: str, claims: Claims) -> Experiment:
    def parts(paper: Paper, records: tuple[Records, Records]) -> Sequence[Part]:
        sweep = paper.sweep(15_000, environment=environment, alphas=(paper.alphas[place],), learners=PAPER)
        return [Part(sweep, records)]

    def drawn(tables: Tables) -> dict[str, figures.Figure]:
        assert tables.asked is not None
        return figures.draw(tables.trials, tables.curves) | {"asked": figures.asked(tables.asked)}

    return Experiment(about, parts, drawn, claims)


def _adversary_claims(tables: Tables) -> list[Claim]:
    assert tables.asked is not None
    rows = tables.asked[tables.asked["learner"] == "exaul"]
    first, last = rows.iloc[0], rows.iloc[-1]
    return [
        *holds_alpha(tables),
        *farther(tables),
        Claim(
            "at first the adversary asks exaul hard questions: their share up to the first checkpoint",
            first["hard_mean"],
            ">",
            0.5,
        ),
        Claim(
            "later it mixes in right answers with low scores: their share before T is larger than at first",
            last["underconfident_mean"],
            ">",
            first["underconfident_mean"],
        ),
        *theory(tables),
    ]


adversary = _experiment(
    "adversary-history",
    HARD,
    "A bandit adversary in the place of the paper's language model: it asks the groups of questions (ten bins of "
    "the score of each source) where wrong answers are given and right ones withheld.",
    _adversary_claims,
)
interactive = _experiment(
    "interactive",
    SHIFT,
    "A simulation in the place of the paper's dialogues: up to ten questions on a topic, then another of 20,962, "
    "each with an error rate and a calibration of its own.",
    lambda tables: [*holds_alpha(tables), *farther(tables), *theory(tables)],
)
