"""Fit how the regret grows with the horizon."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from exaul.engine import folder
from exaul.engine.checks import check_holds
from exaul.engine.logs import files
from exaul.engine.logs.files import Table
from exaul.engine.results.text_table import RATE_COLUMNS, short_learner_names, with_rates
from exaul.engine.run import run
from exaul.engine.sweep import Sweep
from exaul.kernels.metrics import Floats, Z

CELL_COLUMNS = ("source", "learner", "alpha", "lambda", *RATE_COLUMNS)


def regret_scaling(sweep: Sweep, horizons: Sequence[int]) -> Table:
    """Fit the slope of log regret over log T, across sweeps whose learners are tuned to each T.

    Within one sweep the slope differs, because the rates at t < T are tuned to T.

    Args:
        sweep: the configuration; ``horizon`` is replaced. ``out`` is a folder (absent or empty) for the table
            ``regret-scaling`` and its figure, a log-log plot of the regret and its bound against T.
        horizons: two or more T, in any order.

    Returns:
        A row per source, learner and cell (lambda is NaN if it is sqrt(T)): ``slope`` by least squares on the mean
        regret over trials; ``low`` and ``high``, its 95% confidence interval over trials (normal approximation; it
        does not tell whether the growth is a power of T). NaN where a mean regret is not positive, as for
        ``best-fixed``; the interval is also NaN with one trial.

    Raises:
        BadInput: fewer than two horizons, or one is given twice; or the sweep cannot be run.
    """
    is_list = isinstance(horizons, Iterable)
    check_holds("horizons", horizons, is_list and len(set(horizons)) == len(horizons) > 1, "two or more, each once")
    if sweep.out is not None:
        folder.check_output_folder(sweep.out)
    tables = [run(replace(sweep, horizon=T, out=None)).trials for T in sorted(horizons)]
    if not sweep.lambdas:
        tables = [table.assign(**{"lambda": np.nan}) for table in tables]
    rows, points = list[dict[str, Any]](), list[dict[str, Any]]()
    for cell, trials in files.stack(tables).groupby(list(CELL_COLUMNS), sort=False, dropna=False):
        regret = trials.pivot_table(index="trial", columns="horizon", values="regret").to_numpy()
        slope, margin = fit_slope(regret, np.sort(horizons))
        fitted = {"slope": slope, "low": slope - margin, "high": slope + margin}
        rows.append(dict(zip(CELL_COLUMNS, cell, strict=True)) | fitted)
        bounds = trials.groupby("horizon")["regret_bound"].mean()
        bounds[bounds >= bounds.index] = np.inf  # not drawn: no regret is above T
        means = zip(bounds.index, regret.mean(axis=0), bounds, strict=True)
        points += [rows[-1] | {"horizon": T, "regret": mean, "regret_bound": bound} for T, mean, bound in means]
    table = files.Table(rows)
    if sweep.out is not None:
        from exaul.engine.results import figures  # imports matplotlib

        columns = ["source", "alpha", "lambda"] if sweep.lambdas else ["source", "alpha"]
        named = with_rates(short_learner_names(files.Table(points)))
        if named.groupby(columns).ngroups == 1:  # else the legend of all panels would have the slopes of one
            named["learner"] += named["slope"].map(", slope {:.2f}".format).where(named["slope"].notna(), "")
        named["probability"] = f"{1 - sweep.delta:g}"
        drawn = figures.against(named, "horizon", "regret", columns, "regret_bound")
        figures.add_note(drawn, "A line is the mean over trials.")
        captioned = figures.with_trials({"regret-scaling": drawn}, files.stack(tables))
        folder.write_new(sweep.out, {"regret-scaling": table}, captioned)
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
