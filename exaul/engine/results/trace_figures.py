"""Draw figures of a sweep over traces."""

import numpy as np

from exaul.engine.logs.files import Table, stack
from exaul.engine.results import text_table
from exaul.engine.results.advice import FDR_TOLERANCE
from exaul.engine.results.figures import (
    TARGET_STYLE,
    Figure,
    add_legend,
    in_percent,
    panel_grid,
    styled_lines,
)
from exaul.engine.results.text_table import as_label, plain, traces_by_answerable, with_rates
from exaul.kernels.metrics import FEASIBLE

MAPPED, LONGEST_NAME = 40, 40  # most traces in the map of traces and learners, and characters of a name (chosen)


def traces_figure(table: Table) -> Figure:
    """Draw a sweep over traces: a dot per feasible row of ``traces.csv``."""
    dots = with_rates(table).assign(above=(table["fdr"] - table["alpha"]).where(table["answerable"] >= FEASIBLE))
    answers = dots.groupby("learner")["of_answerable"].transform("max") > 0
    dots = dots[answers] if answers.any() else dots  # without learners that answer nothing, unless all do
    note = f"A dot is a trace with at least {FEASIBLE:.0%} answerable, mean over trials; above 100% is at 100%."
    return scatter(dots, "above", note)


def traces_by_learner(table: Table) -> Figure:
    """Draw ``traces.csv`` as a map of trace and learner, with a panel per alpha.

    A field has the share answered in percent, and is darker the larger it is; the first column is what a threshold
    can answer. A field has a mark in its corner where the FDR is above alpha by more than a tolerance
    (``fdr_within_01``), and a pale number, unshaded, where a threshold that holds alpha answers less than a share
    FEASIBLE. At most ``MAPPED`` traces are drawn, in the order of ``traces_by_answerable``.
    """
    table = with_rates(table).drop_duplicates(["trace", "learner", "alpha"])  # at the first lambda
    best = table.drop_duplicates(["trace", "alpha"]).dropna(subset="answerable")  # unknown between two sources
    table = stack([best.assign(learner="a threshold", answered=best["answerable"], fdr_within_01=1), table])
    table = table.assign(feasible=~(table["answerable"] < FEASIBLE))
    traces, learners = traces_by_answerable(table), list(dict.fromkeys(table["learner"]))
    shown = traces[:MAPPED]
    start = text_table.shared_start(shown)
    names = [plain(text_table.abridge(name.removeprefix(start), LONGEST_NAME)) for name in shown]
    figure, panels = panel_grid(table, "", by=["alpha"])
    grid = panels[0][0].get_gridspec()
    assert grid is not None
    figure.set_figheight((0.19 * len(shown) + 1.3) * grid.nrows)
    figure.set_figwidth(1 + 0.06 * max(map(len, names)) + (0.42 * len(learners) + 0.4) * grid.ncols)
    for axes, rows in panels:
        columns = ["answered", "fdr_within_01", "feasible"]
        fields = rows.pivot_table(index="trace", columns="learner", values=columns)
        answered, held, feasible = (fields[x].reindex(shown)[learners].to_numpy() for x in columns)
        shades = np.where(feasible == 0, 0, answered)
        axes.imshow(shades, cmap="Greys", vmin=0, vmax=1.6, aspect="auto")
        for (y, x), share in np.ndenumerate(answered):
            color, solid = "white" if shades[y, x] > 0.8 else "black", 1.0 if feasible[y, x] else 0.45
            axes.text(x, y, f"{100 * share:.0f}", ha="center", va="center", fontsize=7, color=color, alpha=solid)
            if held[y, x] < 1:
                axes.plot(x + 0.38, y - 0.3, marker="s", markersize=3.5, color="#d94801")
        axes.set_xticks(range(len(learners)), map(plain, learners), rotation=40, ha="right", fontsize=7)
        axes.set_yticks(range(len(shown)), names, fontsize=7)
        axes.set_title(as_label("alpha", rows["alpha"].iloc[0]), fontsize=8)
    tail = f" {len(traces) - MAPPED} more traces are in traces.csv." if len(traces) > MAPPED else ""
    corner = f"An orange corner: the FDR is above $\\alpha$ + {FDR_TOLERANCE:.0%}."
    pale = f"A pale number, unshaded: a threshold answers less than {FEASIBLE:.0%}."
    tail += f"\nEach name begins with {plain(start)}" * bool(start)
    add_legend(figure, panels, f"A number is the mean share answered in %. {corner} {pale}{tail}")
    return figure


def scatter(table: Table, above: str, note: str) -> Figure:
    """Draw ``above``, the FDR minus alpha, against ``of_answerable``: a panel per learner, a marker per alpha.

    All panels have the same axes. Best is x = 1 with y at most 0.
    """
    figure, panels = panel_grid(table, "FDR$_T$ - $\\alpha$", by=["learner"])
    low, high = min(0.0, table[above].min()), max(0.0, table[above].max())
    margin = 0.04 * (high - low) or 0.01
    for axes, rows in panels:
        for style, alpha, dots in styled_lines(rows, "alpha"):
            dot_style = style | {"linestyle": "", "alpha": 0.5}
            axes.plot(dots["of_answerable"], dots[above], label=as_label("alpha", alpha), **dot_style)
        axes.axhline(0, label="FDR$_T$ at its target", **TARGET_STYLE)
        axes.axvline(1, label="all answerable", color="#525252", linewidth=0.9, linestyle=":")
        axes.set(xlim=(-0.04, 1.04), ylim=(low - margin, high + margin), xlabel="answered / answerable")
        axes.set_title(plain(str(rows["learner"].iloc[0])), fontsize=8)
        in_percent(axes.xaxis, axes.yaxis)
    add_legend(figure, panels, note)
    return figure
