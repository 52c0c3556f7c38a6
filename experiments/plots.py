"""Figures of experiments, in the style of ``exaul.engine.results.figures``."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from exaul.engine.logs.files import Table
from exaul.engine.results.figures import TARGET_STYLE, add_legend, panel_grid, plain, styled_lines


def by_case(table: Table, x: str, x_label: str, target: str = "") -> Figure:
    """Draw means with 5% and 95% quantiles (x_q05, x_q95): one row per case, one marker per learner.

    ``target`` is the legend of a line at alpha, "" for none.
    """
    cases = list(dict.fromkeys(table["case"]))
    each = list(styled_lines(table))
    figure = Figure(figsize=(6.4, 0.42 * len(cases) + 1.6), layout="constrained")
    axes = figure.subplots()
    for place, (style, name, rows) in enumerate(each):
        at = [cases.index(case) + 0.8 * ((place + 0.5) / len(each) - 0.5) for case in rows["case"]]
        axes.hlines(at, rows[f"{x}_q05"], rows[f"{x}_q95"], color=style["color"], linewidth=0.8)
        axes.plot(rows[x], at, label=plain(str(name)), **style | {"linestyle": ""})
    if target:
        axes.axvline(table["alpha"].iloc[0], label=target, **TARGET_STYLE)
    for place in range(1, len(cases)):
        axes.axhline(place - 0.5, color="#d9d9d9", linewidth=0.6)
    axes.set(yticks=range(len(cases)), ylim=(len(cases) - 0.5, -0.5), xlabel=x_label)
    axes.set_yticklabels(cases, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    add_legend(figure, [(axes, table)], "marker: mean over trials; line: 5% to 95% of them")
    return figure


def violins(trials: Table) -> Figure:
    """Draw the distribution over trials of the FDR of ``exaul`` at T by alpha, one panel per source."""
    figure, panels = panel_grid(trials, "false discovery rate FDR$_T$", by=["source"])
    for axes, rows in panels:
        each = {float(alpha): x["fdr"].to_numpy() for alpha, x in rows[rows["learner"] == "exaul"].groupby("alpha")}
        width = 0.6 * min(np.diff(sorted(each)), default=0.1)
        drawn: dict[str, Any] = axes.violinplot(list(each.values()), list(each), showmeans=True, widths=width)
        for body in drawn["bodies"]:
            body.set(facecolor="#08306b", edgecolor="black", alpha=0.5)
        for name in ("cmeans", "cmins", "cmaxes", "cbars"):
            drawn[name].set(color="black", linewidth=0.9)
        top = 1.15 * max(each)
        axes.plot([0, top], [0, top], label="target $\\alpha$", **TARGET_STYLE)
        error = rows.loc[rows["learner"] == "no-abstention", "fdr"].mean()
        # A learner that never abstains has an FDR equal to the error rate Err_T.
        axes.axhline(error, label="error rate Err$_T$", color="#525252", linewidth=0.9, linestyle=":")
        axes.set(xlim=(0, top), ylim=(0, 1.05 * max(top, error)), xlabel="target FDR $\\alpha$")
    add_legend(figure, panels, "violin: exaul, distribution over trials; bars: smallest, mean, largest")
    return figure
