"""Draw the first figure of a sweep, from ``trials.csv``: the share answered against the FDR."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exaul.engine.logs.files import Table
from exaul.engine.results.figures import (
    ANSWERED,
    FDR,
    MIDDLE,
    PANEL,
    TARGET,
    TARGET_STYLE,
    Figure,
    add_legend,
    fdr_start,
    in_percent,
    missing_note,
    name_dots,
    panel_grid,
    styled_lines,
    tick_count,
)
from exaul.engine.results.summary import NONE
from exaul.engine.results.text_table import plain
from exaul.kernels.learners.aci_rank import STEP

_NAMED = 90  # most characters of the names beside the dots of one panel; beyond that there is a legend (chosen)
_NARROW = 1.7  # inches, up to which a panel has no room for a label of one long line (chosen)
CEILING = "best threshold at $\\alpha$"  # which answers most with an FDR of at most alpha


def answered_against_wrong(
    trials: Table, advised: Mapping[Any, str] = {}, ceilings: Mapping[Any, float] = {}
) -> Figure:
    """Draw the share answered against the FDR at T: a mark per learner, and a line from 5% to 95% of the trials.

    Best is the top, left of the target. A learner that answers nothing has no mark. The advised learner has a ring,
    if the sweep starts it from a log. Panels share their x axis, unless it would be more than twice as long as that
    of each. ``advised`` is as ``best`` of ``draw``; ``ceilings`` are ticks.
    """
    from_log = "warm_start" in trials and trials["warm_start"].notna().any()
    trials = trials.assign(advised=is_advised(trials, advised if from_log else {}))
    figure, panels = panel_grid(trials, ANSWERED, by=PANEL)
    named = len(panels) == 1 and len("".join(trials["learner"].unique())) <= _NAMED
    learners = trials.groupby([*PANEL, "learner"])
    shares = 1 - learners["inefficiency"].mean()
    heights, spans = [*shares[shares > 0].agg(["min", "max"]).fillna(1.0)], list[tuple[float, float]]()  # of axes
    ringed, best = "", list[str | None]()
    for axes, rows in panels:
        alpha, dots = rows["alpha"].iloc[0], dict[str, tuple[float, float]]()
        fdrs = [alpha]  # which each panel shows
        best.append(advised.get((rows["source"].iloc[0], alpha)))
        for style, name, group in styled_lines(rows):
            fdr, answered = group["fdr"].mean(), 1 - group["inefficiency"].mean()
            if answered > 0:
                spread = group["fdr"].quantile([0.05, 0.95])
                axes.hlines(answered, *spread, color=style["color"], linewidth=1)
                fdrs += [fdr, *spread]
                mark = style | {"linestyle": "", "markersize": 6, "clip_on": False, "zorder": 3}  # over spreads
                axes.plot(fdr, answered, label=plain(name), markerfacecoloralt="white", **mark)
                dots[plain(name)] = fdr, answered
                if group["advised"].any():
                    ring = {"marker": "o", "markersize": 14, "markeredgecolor": "black", "markerfacecolor": "none"}
                    axes.plot(fdr, answered, **mark | ring, markeredgewidth=0.8)
                    ringed = plain(name)
        if (ceiling := ceilings.get((rows["source"].iloc[0], alpha))) is not None:
            look: dict[str, Any] = {"linestyle": "", "marker": "_", "markersize": 13, "markeredgewidth": 1.5}
            axes.plot(alpha, ceiling, label=CEILING, color="black", clip_on=False, **look)
            dots[CEILING] = alpha, ceiling
            heights.append(ceiling)
        axes.axvline(alpha, label=TARGET, zorder=0, **TARGET_STYLE)
        is_wide = axes.bbox.width / figure.dpi > _NARROW
        broken = FDR if is_wide else FDR.replace(", of", ", of\n")  # else it runs into the next panel's
        left = fdr_start(min(fdrs), max(fdrs))
        spans.append((left, max(fdrs) + 0.08 * (max(fdrs) - left)))
        axes.set(xlabel=broken)
        in_percent(axes.xaxis, axes.yaxis)
        axes.locator_params(axis="x", nbins=tick_count(axes))
    is_shared, margin = np.ptp(spans) <= 2 * np.ptp(spans, axis=1).max(), max(0.15 * np.ptp(heights), 0.03)
    for (axes, _), span in zip(panels, spans, strict=True):
        axes.set_xlim((np.min(spans), np.max(spans)) if is_shared else span)
        axes.set_ylim(max(min(heights) - margin, 0), max(heights) + margin)
    note = f"Mark: mean over trials; line: {MIDDLE} of the FDR. " * (trials["trial"].nunique() > 1)
    note += "Dashes: the target. " * named
    note += "Tick: the most that a threshold answers with an FDR up to $\\alpha$. " * (len(heights) > 2)
    note += "best-fixed: the threshold of least loss. " * ("best-fixed" in set(trials["learner"]))
    note += _advice_note(best, ringed) + missing_note(trials, trials["inefficiency"] < 1)
    add_legend(figure, [] if named else panels, note)
    if named:
        figure.draw_without_rendering()  # lays out the panel
        name_dots(axes, dots, bold=ringed)
    return figure


def is_advised(table: Table, best: Mapping[Any, str]) -> Any:
    """Return which rows are of the learner that is ``best`` at their source and alpha, at the step of programs."""
    names = [best.get(x) for x in zip(table["source"], table["alpha"], strict=True)]
    return (table["step"] == STEP) & (table["learner"].str.partition(", ")[0] == names)


def _advice_note(best: Sequence[str | None], ringed: str) -> str:
    """Return which learner is advised in panels, of which each has one, NONE, or None if that is unknown."""
    no_ring = f"No learner is advised{' where there is no ring' * bool(ringed)}." * (NONE in best)
    if ringed:
        return f"Ring:\xa0advised. {no_ring}".strip()
    advised = [name for name in best if name not in (None, NONE)]
    where = f" in {len(advised)} of {len(best)} panels" * (len(advised) < len(best))
    return f"Advised{where}, but not played here, is {advised[0]} that starts from a log." if advised else no_ring
