"""Draw the first figure of a sweep, from ``trials.csv``: the share answered against the FDR."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exaul.engine.logs.files import Table
from exaul.engine.results.figures import (
    ANSWERED,
    FDR,
    NARROW,
    PANEL,
    PERCENTILES,
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
CEILING = "best threshold at $\\alpha$"  # which answers most with an FDR of at most alpha


def answered_against_wrong(
    trials: Table, advised: Mapping[Any, str] = {}, ceilings: Mapping[Any, float] = {}
) -> Figure:
    """Draw the share answered against the FDR at T: a mark per learner, and a line from 5% to 95% of the trials.

    Best is the top, left of the target. A learner that answers nothing has no mark. The advised learner has a ring,
    if the sweep starts it from a log. Panels share their x axis, unless it would be more than twice as long as that
    of each. ``advised`` is as ``best`` of ``draw``; ``ceilings`` are ticks.
    """
    figure, panels = panel_grid(trials, ANSWERED, by=PANEL)
    named = len(panels) == 1 and len("".join(trials["learner"].unique())) <= _NAMED
    learners = trials.groupby([*PANEL, "learner"])
    shares = 1 - learners["inefficiency"].mean()
    heights, spans = [*shares[shares > 0].agg(["min", "max"]).fillna(1.0)], list[tuple[float, float]]()  # of axes
    ringed = ""
    best, from_log = list[str | None](), "warm_start" in trials and trials["warm_start"].notna().any()
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
                if from_log and name.partition(", ")[0] == best[-1] and group["step"].iloc[0] == STEP:
                    ring = {"marker": "o", "markersize": 14, "markeredgecolor": "black", "markerfacecolor": "none"}
                    axes.plot(fdr, answered, **mark | ring, markeredgewidth=0.8)
                    ringed = plain(name)
        if (ceiling := ceilings.get((rows["source"].iloc[0], alpha))) is not None:
            look: dict[str, Any] = {"linestyle": "", "marker": "_", "markersize": 13, "markeredgewidth": 1.5}
            axes.plot(alpha, ceiling, label=CEILING, color="black", clip_on=False, **look)
            dots[CEILING] = alpha, ceiling
            heights.append(ceiling)
        axes.axvline(alpha, label=TARGET, zorder=0, **TARGET_STYLE)
        is_wide = axes.bbox.width / figure.dpi > NARROW
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
    marks = f"A mark is the mean over trials, its line {PERCENTILES} of the FDR. "
    tick = " The tick is the most that a threshold answers with an FDR of at most $\\alpha$." * (len(heights) > 2)
    note = f"{marks * (trials['trial'].nunique() > 1)}The target is dashed.{tick}{_advice_note(best, ringed)}"
    add_legend(figure, [] if named else panels, note + missing_note(trials, trials["inefficiency"] < 1))
    if named:
        figure.draw_without_rendering()  # lays out the panel
        name_dots(axes, dots, bold=ringed)
    return figure


def _advice_note(best: Sequence[str | None], ringed: str) -> str:
    """Return which learner is advised in panels, of which each has one, NONE, or None if that is unknown."""
    no_ring = f" No learner is advised{' where there is no ring' * bool(ringed)}." * (NONE in best)
    if ringed:
        return f" The ring marks the advised learner.{no_ring}"
    advised = [name for name in best if name not in (None, NONE)]
    where = f" in {len(advised)} of {len(best)} panels" * (len(advised) < len(best))
    return f" Advised{where}, but not played here, is {advised[0]} that starts from a log." if advised else no_ring
