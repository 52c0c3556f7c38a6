"""``single-shift``, ``alternating-shift``, ``gradual-shift``: from easy to hard questions and back."""

from collections.abc import Sequence

import numpy as np

from exaul.engine.logs.files import Table
from exaul.engine.logs.log import Records
from exaul.engine.results import figures
from exaul.kernels.metrics import Floats
from experiments.environments import count_segments
from experiments.experiment import (
    Claim,
    Experiment,
    ExperimentPart,
    Tables,
    abstains_as_ew,
    ends_farther,
    holds_alpha,
    theory_claims,
)
from experiments.paper import SHIFT, Paper

QUOTE = (
    "Exp3-IX-CA exhibits a sharp increase in FDR immediately after the shift, whereas ExAUL maintains FDR control."
)


def parts_of(environment: str, paper: Paper, records: tuple[Records, Records]) -> Sequence[ExperimentPart]:
    """Return a shift in both orders."""
    sweep = paper.sweep(environment=environment, alphas=(paper.alphas[SHIFT],))
    return [ExperimentPart(sweep, records), ExperimentPart(sweep, records[::-1])]


def change_in_segment(curves: Table, learner: str, source: str, segments: int) -> float:
    """Return the mean over segments of the second source of the mean FDR at their end minus that at their start."""
    t, fdr = _curve(curves, "fdr", learner, source)
    # A gradual shift has no segments: compare T with T / 10.
    starts = [0.1] if segments == 1 else [segment / segments for segment in range(1, segments, 2)]
    ends = [1.0] if segments == 1 else [(segment + 1) / segments for segment in range(1, segments, 2)]
    return float(np.mean(np.interp(ends, t, fdr) - np.interp(starts, t, fdr)))


def growth(curves: Table, learner: str, source: str, segments: int) -> float:
    """Return the growth of the mean regret per round after a shift to the second source minus that before it."""
    t, regret = _curve(curves, "regret_per_round", learner, source)
    regret = regret * t  # in units of T
    # Windows are half a segment long; for a gradual shift, the two halves of the rounds.
    shifts, window = (
        ([0.5], 0.5)
        if segments == 1
        else ([segment / segments for segment in range(1, segments, 2)], 0.5 / segments)
    )
    before, at, after = (np.interp(np.array(shifts) + x, t, regret) for x in (-window, 0.0, window))
    return float(np.mean(after - 2 * at + before) / window)


def _curve(curves: Table, curve: str, learner: str, source: str) -> tuple[Floats, Floats]:
    """Return shares of the horizon, from 0, and the mean of a curve there."""
    rows = curves[(curves["learner"] == learner) & (curves["source"] == source)]
    t, values = rows["t"].to_numpy(), rows[f"{curve}_mean"].to_numpy()
    return np.concatenate([[0.0], t / t.max()]), np.concatenate([values[:1], values])


def _claims(environment: str, tables: Tables) -> list[Claim]:
    forwards = tables.curves["source"].iloc[0]
    rises = {
        name: change_in_segment(tables.curves, name, forwards, count_segments(environment))
        for name in ("exaul", "exp3-ix")
    }
    text = "after a shift to harder questions the mean FDR of exp3-ix rises more than that of exaul"
    return [
        *holds_alpha(tables),
        *abstains_as_ew(tables),
        *ends_farther(tables),
        Claim(f"{text}, {forwards}", rises["exp3-ix"], ">", rises["exaul"], quote=QUOTE),
        *theory_claims(tables),
    ]


def _experiment(environment: str, description: str) -> Experiment:
    return Experiment(
        description,
        lambda paper, records: parts_of(environment, paper, records),
        lambda tables: figures.draw(tables.trials, tables.curves, count_segments(environment)),
        lambda tables: _claims(environment, tables),
    )


single = _experiment("single-shift", "One source for the first half of the rounds, then the other.")
alternating = _experiment("alternating-shift", "Ten segments that alternate between the two sources.")
gradual = _experiment("gradual-shift", "Round t comes from the second source with probability t / T.")
