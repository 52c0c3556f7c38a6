"""Draw figures of a sweep over traces."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from exaul.engine.logs.files import Table, stack
from exaul.engine.results import text_table
from exaul.engine.results.advice import FDR_TOLERANCE
from exaul.engine.results.figures import (
    Figure,
    add_legend,
    at_most_wide,
    panel_grid,
)
from exaul.engine.results.text_table import as_label, plain, traces_by_answerable, with_rates
from exaul.kernels.learners.aci_rank import STEP
from exaul.kernels.metrics import FEASIBLE

LONGEST_NAME = 40  # most characters of the name of a trace in the map of traces and learners (chosen)
# inches (chosen): least width and height of a field of the map, width of a letter of a name, height of a page
FIELD, HEIGHT, LETTER, PAGE = 0.27, 0.19, 0.06, 9.0


def _short_names(names: Sequence[str], longest: int) -> list[str]:
    """Return names without ``column=``, abridged to so many characters, or to more if they stay distinct."""
    values = text_table.values_of(names)
    for size in range(longest, LONGEST_NAME + 1):
        abridged = [plain(text_table.abridge(value, size)) for value in values]
        if len(set(abridged)) == len(names):
            break
    return abridged


def traces_by_learner(table: Table) -> Figure:
    """Draw ``traces.csv`` as a map of trace and learner, with a panel per alpha.

    A field has the share answered in percent; the first column is what a threshold can answer. It is darker the
    larger it is, but unshaded with a cross where the FDR is above alpha by more than a tolerance
    (``fdr_within_01``), and unshaded with a pale number where a threshold that holds alpha answers less than a
    share FEASIBLE. The learner that is ``advised`` has a box. Learners with one number in all fields are named
    instead. As many traces are drawn as fit on a page, in the order of ``traces_by_answerable``. The figure is at
    most as wide as ``figure.figsize`` of Matplotlib says: then names are shorter, and panels one below another.
    """
    boxed = (table["learner"] == table["advised"]) & ~(abs(table["step"] - STEP) > 0)  # NaN is not above
    described, table = _describe_traces(table), with_rates(table.assign(boxed=boxed.astype(int)))
    table = table.drop_duplicates(["trace", "learner", "alpha"])  # at the first lambda
    best = table.drop_duplicates(["trace", "alpha"]).dropna(subset="answerable")  # unknown between two sources
    best = best.assign(learner="answerable", answered=best["answerable"], fdr_within_01=1, boxed=0)
    table = stack([best, table])
    table = table.assign(feasible=~(table["answerable"] < FEASIBLE))
    traces, percents = traces_by_answerable(table), (100 * table["answered"]).round().groupby(table["learner"])
    is_constant = (percents.nunique() == 1).drop("answerable", errors="ignore")  # and not all of them
    constant = percents.first()[is_constant.index[is_constant & (len(traces) > 1) & ~is_constant.all()]]
    learners = [name for name in dict.fromkeys(table["learner"]) if name not in constant]
    table = table[~table["learner"].isin(constant.index)]
    widest, least = Figure().get_figwidth(), FIELD * len(learners) + 0.2
    fits = 0.9 + table["alpha"].nunique() * least <= widest
    with at_most_wide(widest if fits else min(widest, 3.1)):  # one panel in a row
        figure, panels = panel_grid(table, "", by=["alpha"])
    grid = panels[0][0].get_gridspec()
    assert grid is not None
    shown = traces[: int((PAGE / grid.nrows - 1.3) / HEIGHT)]
    start, longest = _shared_start(table), int((widest - 0.2 - least * grid.ncols) / LETTER)
    names = _short_names([name.removeprefix(start) for name in shown], min(max(longest, 10), LONGEST_NAME))
    named = LETTER * max(map(len, names))
    figure.set_figheight((HEIGHT * len(shown) + 1.3) * grid.nrows)
    figure.set_figwidth(min(widest, 1 + named + (0.42 * len(learners) + 0.4) * grid.ncols))
    width = ((figure.get_figwidth() - 0.2 - named) / grid.ncols - 0.2) / len(learners)
    for axes, rows in panels:
        columns = ["answered", "fdr_within_01", "feasible", "boxed"]
        fields = rows.pivot_table(index="trace", columns="learner", values=columns)
        answered, held, feasible, boxes = (fields[x].reindex(shown)[learners].to_numpy() for x in columns)
        shades = np.where((feasible == 0) | (held < 1), 0, answered)
        axes.imshow(shades, cmap="Greys", vmin=0, vmax=1.6, aspect="auto")
        for (y, x), share in np.ndenumerate(answered):
            color, solid = "white" if shades[y, x] > 0.8 else "black", 1.0 if feasible[y, x] else 0.45
            style = dict[str, Any](fontsize=min(7, 26 * width), color=color, alpha=solid)
            axes.text(x, y, f"{100 * share:.0f}", ha="center", va="center", **style)
            if held[y, x] < 1:
                axes.plot(x + 0.38, y - 0.3, "x", color="black", markersize=3, markeredgewidth=0.7, alpha=solid)
            if boxes[y, x] > 0:
                sides = np.array([-0.46, 0.46, 0.46, -0.46]), np.array([-0.44, -0.44, 0.44, 0.44])
                axes.fill(x + sides[0], y + sides[1], fill=False, edgecolor="black", linewidth=1.2)
        axes.set_xticks(range(len(learners)), map(plain, learners), rotation=40, ha="right", fontsize=7)
        axes.set_yticks(range(len(shown)), names, fontsize=7)
        axes.set_title(as_label("alpha", rows["alpha"].iloc[0]), fontsize=8)
    alike = ", ".join(f"{plain(name)} (always {share:.0f})" for name, share in constant.items())
    tail = f" Left out: {alike}." * bool(alike)
    tail += f" {len(traces) - len(shown)} more traces are in traces.csv." * (len(traces) > len(shown))
    cross = f"A cross, unshaded: the FDR is above $\\alpha$ + {FDR_TOLERANCE:.0%}."
    pale = f"A pale number, unshaded: a threshold answers less than {FEASIBLE:.0%}."
    box = " A box: advised, if it starts from a log." * bool(table["boxed"].any())
    note = f"A number is the mean share answered in %, darker if larger. {cross} {pale}{box}{tail}"
    add_legend(figure, panels, f"{note}\n{described}")
    return figure


def _shared_start(table: Table) -> str:
    """Return how all names of at least two traces begin."""
    names = list(table["trace"].unique())
    return text_table.shared_start(names) if len(names) > 1 else ""


def _describe_traces(table: Table) -> str:
    """Return how many traces there are, how their names begin, and what was played on them."""
    trials, start = table["trials"].max(), _shared_start(table)
    text = f"{table['trace'].nunique()} traces" + f" (each name begins with {plain(start)})" * bool(start)
    return f"{text}: {trials:,} trial{'s' * bool(trials > 1)} of {text_table.as_range(table['horizon'])} rounds."
