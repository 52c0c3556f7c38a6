"""``long-stochastic``, ``long-shift``: records repeated to T = 3,000,000; when does exp3-ix reach alpha?"""

from collections.abc import Sequence

import numpy as np

from exaul.engine.logs.files import Table
from exaul.engine.logs.log import Records
from exaul.engine.results import figures
from experiments.experiment import (
    CHECK,
    NEEDS_LONGER,
    REGRESSION,
    Claim,
    Experiment,
    ExperimentPart,
    Parts,
    Tables,
    abstains_as_ew,
    cells,
    theory_claims,
)
from experiments.paper import EASY, HARD, HORIZON, SHIFT, Paper

LONG_HORIZON = 3_000_000  # T here
QUOTE = "Exp3-IX-CA requires a long horizon T to achieve reliable FDR_t control."


def parts_of(paper: Paper, alpha: float, records: tuple[Records, ...]) -> list[ExperimentPart]:
    """Return a long run: five trials of exp3-ix, thirty of the others."""
    environment = "stochastic" if len(records) == 1 else "single-shift"
    return [
        ExperimentPart(
            paper.sweep(LONG_HORIZON, trials, learners=names, alphas=(alpha,), environment=environment), records
        )
        for names, trials in ((("exaul", "ew"), 30), (("exp3-ix",), 5))
    ]


def _stochastic(paper: Paper, records: tuple[Records, Records]) -> Sequence[ExperimentPart]:
    easy, hard = (parts_of(paper, paper.alphas[place], (records[place],)) for place in (EASY, HARD))
    return [*easy, *hard]


def _shift(paper: Paper, records: tuple[Records, Records]) -> Sequence[ExperimentPart]:
    return [part for order in (records, records[::-1]) for part in parts_of(paper, paper.alphas[SHIFT], order)]


def first_settled(curves: Table, learner: str, source: str) -> float:
    """Return the first checkpoint from which the mean FDR stays at most alpha; inf if there is none."""
    rows = curves[(curves["learner"] == learner) & (curves["source"] == source)]
    above = np.flatnonzero(rows["fdr_mean"].to_numpy() > rows["alpha"].to_numpy())
    first = 0 if not len(above) else above[-1] + 1
    return float(rows["t"].iloc[first]) if first < len(rows) else np.inf


def _last(curves: Table, learner: str, source: str) -> float:
    rows = curves[(curves["learner"] == learner) & (curves["source"] == source)]
    return float(rows["fdr_mean"].iloc[-1])


def _claims(tables: Tables) -> list[Claim]:
    claims = []
    for cell in cells(tables.curves, "source"):
        when = {name: first_settled(tables.curves, name, cell["source"]) for name in ("exaul", "exp3-ix")}
        horizon = int(tables.curves["t"].max())
        end = {name: _last(tables.curves, name, cell["source"]) for name in ("exaul", "exp3-ix")}
        never = f"at T its mean FDR is {end['exp3-ix']:.4g}, that of exaul {end['exaul']:.4g}"
        text = f"exp3-ix: round from which the mean FDR stays at most alpha, by T = {horizon:,}, {cell['source']}"
        claims.append(Claim(text, when["exp3-ix"], "<=", horizon, never, CHECK, quote=QUOTE))
        text = f"exp3-ix needs longer than the T = {HORIZON:,} of the other figures, {cell['source']}"
        claims.append(Claim(text, when["exp3-ix"], ">", HORIZON, kind=CHECK, quote=QUOTE))
        ratio = when["exaul"] / min(when["exp3-ix"], horizon)
        text = f"exaul: that round is earlier than for exp3-ix (or than T): ratio of the rounds, {cell['source']}"
        claims.append(Claim(text, ratio, "<", 1, quote=NEEDS_LONGER))
        text = f"exaul: that round, as a share of that of exp3-ix (or of T), {cell['source']}"
        claims.append(Claim(text, ratio, "<=", 0.2, kind=REGRESSION))
        text = f"the mean FDR of exaul at T is at most that of exp3-ix, {cell['source']}"
        claims.append(Claim(text, end["exaul"], "<=", end["exp3-ix"], quote=NEEDS_LONGER))
    return [*claims, *abstains_as_ew(tables), *theory_claims(tables)]


def _experiment(parts: Parts, segments: int) -> Experiment:
    return Experiment(
        "Logarithmic rounds. A claim below states from which round the mean FDR stays at most alpha.",
        parts,
        lambda tables: {
            "fdr": figures.over_time(tables.curves, "fdr", figures.FDR, target=True, segments=segments, log=True)
        },
        _claims,
    )


stochastic = _experiment(_stochastic, 1)
shift = _experiment(_shift, 2)
