"""Curves of regret beside their bound, their checkpoints, and how regret grows with the horizon."""

from dataclasses import replace

import numpy as np
import pytest

import exaul
from exaul import BadInput, Sweep, regret_scaling, run
from exaul.engine.logs.files import Table, load
from exaul.engine.results import figures, sweep_figures
from exaul.engine.scaling import fit_slope
from exaul.engine.simulation.prepare import prepare_source

SMALL = {"trials": 3, "horizon": 3000, "arms": 20, "alphas": (0.1, 0.3), "learners": ("exaul", "ew", "aci-rank")}


def checkpoints(given, horizon=3000):
    return prepare_source(Sweep(trials=2, arms=20, horizon=horizon, checkpoints=given)).checkpoints.tolist()


def test_checkpoints_are_counted_or_listed_or_even_in_log_t():
    assert checkpoints(3) == checkpoints("3") == [1000, 2000, 3000]
    assert checkpoints(["700", 20]) == checkpoints((20, 700, 700)) == [20, 700, 3000]
    even = np.array(checkpoints("log"))
    assert (even[0], even[-1]) == (1, 3000)
    assert (np.diff(even) > 0).all()
    late = even[even > 100]
    np.testing.assert_allclose(np.diff(np.log(late)), np.log(3000) / 199, atol=0.02)
    assert checkpoints("log", horizon=1) == [1]
    replayed = prepare_source(Sweep(checkpoints=(50, 10**6), environment="replay", trials=2, arms=20))
    assert replayed.checkpoints.tolist() == [50, replayed.horizon]  # without a horizon, traces may have others


@pytest.mark.parametrize("anytime", [False, True])
def test_a_curve_of_regret_and_its_bound(anytime):
    sweep = Sweep(**SMALL, checkpoints=(1, 256, 257), anytime=anytime)
    result = run(sweep)
    curves, every_round = result.curves, run(replace(sweep, checkpoints=3000)).curves
    kept = every_round[every_round["t"].isin([1, 256, 257, 3000])].reset_index(drop=True)
    assert kept.drop(columns="rise").equals(curves.drop(columns="rise"))  # which is that between checkpoints
    np.testing.assert_allclose(curves["regret_mean"], curves["regret_per_round_mean"] * curves["t"])
    ends = result.trials.groupby(["learner", "alpha"], sort=False)
    last = curves.groupby(["learner", "alpha"], sort=False).last()
    np.testing.assert_allclose(last["regret_mean"], ends["regret"].mean())
    for q in ("05", "50", "95"):
        np.testing.assert_allclose(last[f"regret_q{q}"], ends["regret"].quantile(int(q) / 100))
    np.testing.assert_allclose(last["risk_bound"], ends["risk_bound"].max())
    np.testing.assert_array_equal(last["regret_bound"], ends["regret_bound"].first())
    assert last["regret_bound"].isna().tolist() == [False] * 4 + [True] * 2  # nothing is proved for aci-rank
    curve = curves.query("learner == 'exaul' and alpha == 0.3")
    assert (curve["regret_q95"] <= curve["regret_bound"]).all()
    learner, params = exaul.make("exaul", 20, alpha=0.3, horizon=SMALL["horizon"], anytime=anytime)
    np.testing.assert_array_equal(curve["regret_bound"], exaul.regret_bound(learner, params, curve["t"]))
    late = run(replace(sweep, learners=("exaul",), delay=5)).curves
    assert late["regret_bound"].isna().all()


def test_the_slope_is_that_of_the_mean_and_its_interval_covers_it():
    horizons = np.array([100, 300, 1000, 10_000])
    assert fit_slope(np.tile(3 * horizons**0.55, (5, 1)), horizons) == pytest.approx((0.55, 0), abs=1e-9)
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(1000):
        common = rng.gamma(20, 1 / 20, (40, 1))  # of a trial, at all horizons
        slope, margin = fit_slope(horizons**0.55 * common * rng.gamma(9, 1 / 9, (40, 4)), horizons)
        covered.append(abs(slope - 0.55) <= margin)
    assert 0.92 < np.mean(covered) < 0.98


def test_regret_of_exaul_grows_as_its_theorem_says():
    """With rates tuned to each T; within one sweep, whose rates are those of its end, the slope is far lower."""
    sweep = Sweep(learners=("exaul", "best-fixed"), trials=20, arms=50, alphas=(0.1,), seed=1)
    table = regret_scaling(sweep, [16_000, 4_000, 1_000]).set_index("learner")
    assert 0.5 < table["low"]["exaul"] < table["slope"]["exaul"] < table["high"]["exaul"] < 0.68
    assert np.isnan(table["slope"]["best-fixed"])
    within = run(replace(sweep, learners=("exaul",), horizon=16_000, checkpoints=("log",))).curves
    within = within[within["t"] >= 1000]
    slope = np.polyfit(np.log(within["t"]), np.log(within["regret_mean"]), 1)[0]
    assert slope < 0.45


def test_the_slopes_are_written_and_drawn_at_the_horizons(tmp_path, monkeypatch):
    """Beside the lines of two panels, and in the legend of one; ``best-fixed`` has no slope."""
    sweep = Sweep(**SMALL | {"learners": ("exaul", "best-fixed")}, out=str(tmp_path / "out"))
    drawn = dict[str, figures.Figure]()
    with monkeypatch.context() as patch:
        patch.setattr(figures, "save", lambda figure, path: drawn.update({path.name: figure}))
        table = regret_scaling(sweep, [600, 300])
    fitted = table.dropna(subset="slope")[["slope", "low", "high"]].to_numpy()
    beside = [[text.get_text() for text in axes.texts] for axes in drawn["regret-scaling"].axes]
    assert beside == [[f"{slope:.2f}"] for slope, *_ in fitted]
    labels = [line.get_label() for line in drawn["regret-scaling"].axes[0].lines]
    assert labels[-1] == "proven bound"
    assert ("slope 1/2" in labels, "best-fixed" in labels) == (True, False)
    said = " ".join(drawn["regret-scaling"].get_supxlabel().split())
    assert "With a regret of 0: best-fixed." in said
    assert "As $\\lambda$ is $\\sqrt{T}$, the loss changes with $T$." in said
    assert ("No slope above 1 can last" in said) == (table["slope"].max() > 1)
    np.testing.assert_allclose(table["last_slope"], table["slope"])  # of two horizons
    by_horizon = load(tmp_path / "out" / "regret-by-horizon.csv")
    assert by_horizon["horizon"].tolist() == [300, 600] * len(table)
    assert by_horizon["lambda"].tolist() == [300**0.5, 600**0.5] * len(table)
    assert set(by_horizon["trials"]) == {3}
    assert (by_horizon["regret_q05"] <= by_horizon["regret_q95"]).all()
    trials = run(replace(sweep, horizon=600, out=None)).trials
    for column in "regret", "regret_bound":
        means = trials.groupby(["learner", "alpha"], sort=False)[column].mean()
        np.testing.assert_allclose(by_horizon[column][1::2], means)
    written = load(tmp_path / "out" / "regret-scaling.csv")
    np.testing.assert_array_equal(written["slope"], table["slope"])
    with pytest.raises(BadInput, match=r"out: .* is not empty"):
        regret_scaling(sweep, [600, 300])


def test_of_regrets_that_are_all_0_there_is_no_figure(tmp_path):
    regret_scaling(Sweep(**SMALL | {"learners": ("best-fixed",)}, out=str(tmp_path / "out")), [300, 600])
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"regret-scaling.csv", "regret-by-horizon.csv"}


def test_a_figure_of_growth_has_bounds_and_logarithmic_axes():
    row = {"learner": "ew", "alpha": 0.1, "slope": 0.5, "low": 0.4, "high": 0.6}
    rows = [row | {"horizon": T, "regret": T**0.5, "regret_bound": T} for T in (4, 16)]
    (axes,) = sweep_figures.against(Table(rows), "horizon", "regret", ["alpha"], "regret_bound").axes
    line, bound, half, named = axes.lines
    assert (line.get_label(), line.get_ydata().tolist()) == ("ew: slope 0.50 (0.40 to 0.60)", [2, 4])
    assert np.ptp(np.log(half.get_ydata())) == pytest.approx(np.ptp(np.log(half.get_xdata())) / 2)
    assert (bound.get_ydata().tolist(), named.get_label()) == ([4, 16], "proven bound")
    assert [x.get_text() for x in axes.get_xticklabels()] == ["4", "16"]
    assert {"2", "20"} < {x.get_text() for x in axes.get_yticklabels(minor=True)}
    assert (axes.get_xscale(), axes.get_yscale(), axes.get_ylim()) == ("log", "log", (1, 33))
    for bounds, is_named in ((np.inf, 9), False), ((np.inf, np.inf), True):  # a bound with no point is named
        partly = sweep_figures.against(
            Table(rows).assign(regret_bound=bounds), "horizon", "regret", ["alpha"], "regret_bound"
        )
        said = " ".join(partly.get_supxlabel().split())
        assert "drawn where below $T$" in said
        assert ("not drawn, since near $T$ or above" in said) == is_named
        lone = "A bound with a single point is not drawn: ew."
        assert (lone in said) != is_named
        assert len(partly.axes[0].lines) == 3  # the regret, slope 1/2, and the name of bounds
    other = {"learner": "aci-rank", "regret": 0.1, "regret_bound": np.nan, "regret_q05": -0.1, "regret_q95": 1.0}
    spread = Table([x | {"regret_q05": 1.0, "regret_q95": 9.0} for x in rows] + [x | other for x in rows])
    (axes,) = sweep_figures.against(spread, "horizon", "regret", ["alpha"], "regret_bound").axes
    (half,) = (line for line in axes.lines if line.get_label() == "slope 1/2")
    np.testing.assert_allclose(half.get_ydata(), [1.6, 3.2])  # below ew, which has a bound
    assert axes.collections[1].get_paths()[0].vertices[:, 1].min() == axes.get_ylim()[0] > 0  # as -0.1 is beyond it
    wide = Table([row | {"horizon": T, "regret": T / 2.0, "regret_bound": T} for T in (4, 4000)])
    figure = sweep_figures.against(wide, "horizon", "regret", ["alpha"], "regret_bound")
    figure.draw_without_rendering()
    assert {"10", "100", "1,000"} <= {x.get_text() for x in figure.axes[0].get_yticklabels()}
