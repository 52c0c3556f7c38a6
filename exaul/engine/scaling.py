"""Fit how the regret grows with the horizon."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from exaul.engine import folder
from exaul.engine.checks import check_holds
from exaul.engine.logs import files
from exaul.engine.logs.files import Table
from exaul.engine.results.result import captioned
from exaul.engine.results.text_table import RATE_COLUMNS, short_learner_names, with_rates
from exaul.engine.run import run
from exaul.engine.sweep import Sweep
from exaul.kernels.metrics import Floats, Z

CELL_COLUMNS = ("source", "learner", "alpha", "lambda", *RATE_COLUMNS)
SLOPE_COLUMNS = "slope", "low", "high", "last_slope"


def regret_scaling(sweep: Sweep, horizons: Sequence[int]) -> Table:
    """Fit the slope of log regret over log T, across sweeps whose learners are tuned to each T.

    Within one sweep the slope differs, because the rates at t < T are tuned to T.

    Args:
        sweep: the configuration; ``horizon`` is replaced. ``out`` is a folder (absent or empty) for this table, as
            ``regret-scaling.csv``; for ``regret-by-horizon.csv``, with the regret and its bound at each T;
            and for their figure ``regret-scaling``, a log-log plot.
        horizons: two or more T, in any order.

    Returns:
        A row per source, learner and cell (lambda is NaN if it is sqrt(T)): ``slope`` by least squares on the mean
        regret over trials; ``low`` and ``high``, its 95% confidence interval over trials (normal approximation; it
        does not tell whether the growth is a power of T); and ``last_slope``, between the last two T. NaN where a
        mean regret is not positive, as for ``best-fixed``; the interval is also NaN with one trial.

    Raises:
        BadInput: fewer than two horizons, or one is given twice; or the sweep cannot be run.
    """
    is_list = isinstance(horizons, Iterable)
    check_holds("horizons", horizons, is_list and len(set(horizons)) == len(horizons) > 1, "two or more, each once")
    if sweep.out is not None:
        folder.check_output_folder(sweep.out)
    results = [run(replace(sweep, horizon=T, out=None)) for T in sorted(horizons)]
    tables = [result.trials for result in results]
    if not sweep.lambdas:
        tables = [table.assign(**{"lambda": np.nan}) for table in tables]
    rows, points = list[dict[str, Any]](), list[dict[str, Any]]()
    for cell, trials in files.stack(tables).groupby(list(CELL_COLUMNS), sort=False, dropna=False):
        regret = trials.pivot_table(index="trial", columns="horizon", values="regret").to_numpy()
        slope, margin = fit_slope(regret, np.sort(horizons))
        last, _ = fit_slope(regret[:, -2:], np.sort(horizons)[-2:])
        fitted = zip(SLOPE_COLUMNS, (slope, slope - margin, slope + margin, last), strict=True)
        rows.append(dict(zip(CELL_COLUMNS, cell, strict=True)) | dict(fitted))
        for horizon, at_horizon in trials.groupby("horizon"):
            regrets = at_horizon["regret"]
            point = {"horizon": horizon, "trials": len(regrets), "regret": regrets.mean()}
            point |= {f"regret_q{q:02}": regrets.quantile(q / 100) for q in (5, 95)}
            points.append(rows[-1] | point | {"regret_bound": at_horizon["regret_bound"].mean()})
    table, by_horizon = files.Table(rows), files.Table(points)
    by_horizon["lambda"] = by_horizon["lambda"].fillna(np.sqrt(by_horizon["horizon"]))
    if sweep.out is not None:
        from exaul.engine.results import figures, sweep_figures  # import matplotlib

        columns = ["source", "alpha", "lambda"] if sweep.lambdas else ["source", "alpha"]
        known = captioned(asdict(sweep))
        named = with_rates(short_learner_names(by_horizon)).assign(**known)
        named.loc[named["regret_bound"] >= named["horizon"], "regret_bound"] = np.inf  # not drawn
        largest = named.groupby("learner")["regret"].transform("max")
        named.loc[largest < 1e-6, "regret"] = np.nan  # best-fixed: it is named, as a logarithmic axis has no 0
        drawings = dict[str, Any]()
        if named["regret"].notna().any():
            drawn = sweep_figures.against(named, "horizon", "regret", columns, "regret_bound")
            added = "with 95% intervals over trials, " * (len(drawn.axes) == 1)
            note = f"Slopes are of the log of the mean regret, {added}and do not tell whether it is a power of $T$."
            note += " No slope above 1 can last, as no regret is above $T$." * bool((table["slope"] > 1).any())
            note += " As $\\lambda$ is $\\sqrt{T}$, the loss changes with $T$." * (not sweep.lambdas)
            rows_of = [sum(len(x.errors) for x in source.records) for source in results[0].sources]
            if sweep.logs and min(rows_of) < max(horizons):
                note += f" Rows of the log repeat above $T$ = {min(rows_of):,}."
            figures.add_note(drawn, note)
            drawings = figures.with_trials({"regret-scaling": drawn}, files.stack(tables).assign(**known))
        written = {"regret-scaling": table, "regret-by-horizon": by_horizon.drop(columns=[*SLOPE_COLUMNS])}
        folder.write_new(sweep.out, written, drawings)
    return table


def fit_slope(regret: Floats, horizons: Any) -> tuple[float, float]:
    """Return the slope of the log of the mean of ``regret`` [trials, horizons], and half its 95% interval.

    Regrets of a trial at two horizons may be correlated, since its draws are the same.
    """
    mean, x = regret.mean(axis=0), np.log(horizons)
    if not (mean > 1e-9 * np.asarray(horizons)).all():  # up to rounding
        return np.nan, np.nan
    weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
    if len(regret) == 1:
        return float(weights @ np.log(mean)), np.nan
    gradient = weights / mean  # of the slope, by mean regret
    variance = gradient @ np.cov(regret, rowvar=False) @ gradient / len(regret)
    return float(weights @ np.log(mean)), float(Z * np.sqrt(variance))
