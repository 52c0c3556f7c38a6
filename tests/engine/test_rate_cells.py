"""Rates as cells: each cell is what a sweep of that rate alone computes, to the bit."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from exaul import Sweep, run
from exaul.engine.results import sweep_figures
from exaul.kernels.game import Rates
from exaul.kernels.native.backend import reweigh_periods
from tests.games import records_of

SMALL = {"horizon": 700, "trials": 3, "arms": 40, "checkpoints": (5,), "alphas": (0.05, 0.2)}
KEYS = ["learner", "alpha", "lambda", "eta_scale", "gamma_scale", "step"]
# With these the copies fit one tile, as those of one rate do: JAX compiles one program for both.
SCALES = {"eta_scales": (0.5, 2.0), "gamma_scales": (1.0, 3.0)}
RATES = SCALES | {"steps": (0.01, 0.1)}
GAMES = {
    "own records": {"learners": ("exaul", "exp3-ix", "ew", "exaul-known", "aci-rank", "best-fixed")},
    "shared records": {"environment": "replay", "learners": ("exaul", "exp3-ix", "ew", "aci-rank")},
    "anytime": {"anytime": True, "learners": ("exaul", "exp3-ix", "ew", "aci-rank")},
    "dense": {"backend": "dense", "learners": ("exaul", "aci-rank")},
    "adaptive": {"environment": "adversary-omniscient", "learners": ("exaul", "aci-rank")},
    "delayed": {"delay": 20, "feedback_rate": 0.8, "learners": ("exaul", "aci-rank")},
    "delayed, adaptive": {"delay": 20, "environment": "adversary-history", "learners": ("exaul", "aci-rank")},
}
SLOW = "dense", "delayed, adaptive"


def compare(table, other):
    pd.testing.assert_frame_equal(table.reset_index(drop=True), other.reset_index(drop=True), check_exact=True)


@pytest.mark.parametrize("name", [pytest.param(x, marks=[pytest.mark.slow] if x in SLOW else []) for x in GAMES])
def test_a_cell_is_the_sweep_of_its_rate_alone(name):
    fields = SMALL | GAMES[name]
    together = run(Sweep(**fields, **RATES))
    assert together.lemma_holds
    for eta, gamma, step in ((0.5, 3.0, 0.1), (2.0, 1.0, 0.01)):
        alone = run(Sweep(**fields, eta_scales=(eta,), gamma_scales=(gamma,), steps=(step,)))
        for table, of_one in ((together.trials, alone.trials), (together.curves, alone.curves)):
            rates = {"eta_scale": eta, "gamma_scale": gamma, "step": step}
            keep = np.logical_and.reduce([(table[k] == x) | table[k].isna() for k, x in rates.items()])
            compare(table[keep], of_one)


def test_scales_are_factors_of_the_learners_own_rates():
    """A learner without such a rate has none in the tables."""
    fields = SMALL | {"learners": ("exaul", "ew", "aci-rank", "best-fixed")}
    plain, scaled = run(Sweep(**fields)).trials, run(Sweep(**fields, eta_scales=(2,), gamma_scales=(4,))).trials
    exaul, other = (table[table["learner"] == "exaul"] for table in (plain, scaled))
    assert (other["eta"] == 2 * exaul["eta"]).all()
    assert (other["gamma"] == 8 * exaul["gamma"]).all()
    by_hand = Sweep(**fields | {"learners": ("exaul",)}, eta=other["eta"].iloc[0], gamma=other["gamma"].iloc[0])
    columns = [x for x in plain if x not in ("eta_scale", "gamma_scale")]
    compare(other[columns], run(by_hand).trials[columns])
    nan, rates = np.nan, ["eta_scale", "gamma_scale", "gamma", "step"]
    others = scaled[["learner", *rates]].drop_duplicates()[rates].to_numpy()[1:]
    np.testing.assert_array_equal(others, [[2, nan, nan, nan], [nan, nan, nan, 1 / 40], [nan] * 4])
    assert scaled.loc[scaled["learner"] == "aci-rank", "eta"].isna().all()


def test_rows_are_in_the_order_of_the_flags():
    result = run(Sweep(**SMALL, **SCALES, learners=("exaul", "ew", "best-fixed"), lambdas=(3.0, 1.0)))
    cells = result.trials[KEYS].drop_duplicates()
    exaul = cells[cells["learner"] == "exaul"].drop(columns=["learner", "step"]).to_numpy().tolist()
    assert exaul == [list(cell) for cell in product((0.05, 0.2), (3.0, 1.0), *SCALES.values())]
    assert cells["learner"].value_counts().to_dict() == {"exaul": 16, "ew": 8, "best-fixed": 4}
    assert len(result.curves) == 5 * len(cells)
    assert not result.curves.duplicated([*KEYS, "t"]).any()


def test_texts_and_figures_tell_the_rates_apart(monkeypatch):
    monkeypatch.setattr(sweep_figures, "OVER_TIME", {"fdr": sweep_figures.OVER_TIME["fdr"]})  # of all figures
    monkeypatch.setattr(sweep_figures, "AT_HORIZON", {"fdr": sweep_figures.AT_HORIZON["fdr"]})
    log = [records_of(300)]
    result = run(Sweep(**SMALL, **RATES, learners=("exaul", "aci-rank")), log)
    text = result.summary(theory=True)
    assert "exaul, eta x 0.5, gamma x 3" in text
    assert "aci-rank, step 0.1" in text
    drawn = sweep_figures.draw(result.trials, result.curves)
    (axes, *_) = drawn["fdr"].axes
    assert len(axes.get_legend_handles_labels()[1]) == 4 + 2 + 1  # and the target
    steps = result.curves[result.curves["learner"] == "aci-rank"]
    one_rate = result.curves[result.curves["gamma_scale"].isin([1, np.nan]) & (result.curves["eta_scale"] != 0.5)]
    one_rate = one_rate[one_rate["step"] != 0.1]
    for curves, bands in (steps, 0), (one_rate, 2):  # bands of one color would hide one another: bars
        figure = sweep_figures.draw(result.trials, curves)["fdr"]
        assert len(figure.axes[0].collections) == bands
        assert ("band" in figure.get_supxlabel()) == (bands > 0)
    drawn_by = {x: drawn[f"fdr-by-{x}"].axes[0].get_legend_handles_labels()[1] for x in ("eta-scale", "step")}
    named = [f"exaul, $\\gamma\\times{scale}$" for scale in (1, 3)]
    assert drawn_by == {"eta-scale": [*named, "target $\\alpha$"], "step": ["aci-rank", "target $\\alpha$"]}
    near = run(Sweep(**SMALL, learners=("aci-rank",), steps=(0.0123456789, 0.0123456788)), log).summary()
    assert "step 0.0123456789" in near
    assert "step 0.0123456788" in near
    assert "ew, eta x 4" in run(Sweep(**SMALL, learners=("ew",), eta_scales=(4.0,)), log).summary()  # not its own


@pytest.mark.parametrize(("precision", "learners"), [("float64", ("exaul", "exp3-ix")), ("float32", ("exaul",))])
def test_large_rates_change_neither_their_neighbours_nor_the_algorithm(precision, learners):
    fields = SMALL | {"learners": learners, "precision": precision}
    scales = 1, 100, 3000
    together = run(Sweep(**fields, eta_scales=scales)).trials
    for scale in scales:
        compare(together[together["eta_scale"] == scale], run(Sweep(**fields, eta_scales=(scale,))).trials)
    if precision == "float64":
        dense = run(Sweep(**fields | {"learners": ("exaul",)}, eta_scales=scales, backend="dense")).trials
        compare(together.loc[together["learner"] == "exaul", ["answered"]], dense[["answered"]])


def anew(eta, scales, precision):
    """After how many rounds the weights of each copy are computed anew, by block."""
    periods, period_row = reweigh_periods(Rates(eta, eta), scales, precision)
    return periods[period_row].tolist()


def test_weights_are_computed_anew_before_they_can_underflow():
    eta, scales = np.full(12, 0.1), np.array([1.0, 2.0, 40.0, 1e9, 1.0])
    assert anew(eta, scales, "float64") == [[x] * 12 for x in (1024, 1024, 64, 1, 1024)]
    assert anew(eta, scales, "float32") == [[x] * 12 for x in (256, 128, 8, 1, 256)]
    eta[9] = 0.2
    assert anew(eta, scales[:1], "float64") == [[1024] * 8 + [256] * 4]
