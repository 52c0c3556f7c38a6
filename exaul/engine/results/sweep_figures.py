"""Draw the figures of a sweep from ``trials.csv`` and ``curves.csv``."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exaul.engine.logs.files import Table
from exaul.engine.results.figures import (
    ANSWERED,
    AT_HORIZON,
    FDR,
    PANEL,
    PERCENTILES,
    REGRET,
    SWEPT,
    TARGET_STYLE,
    Axes,
    Bbox,
    Figure,
    add_legend,
    add_note,
    against,
    fdr_start,
    in_percent,
    missing_note,
    over_time,
    panel_grid,
    styled_lines,
    to_rgb,
    with_trials,
)
from exaul.engine.results.summary import NONE
from exaul.engine.results.text_table import plain, with_answered, with_rates
from exaul.kernels.learners.aci_rank import STEP

_NAMED = 90  # most characters of the names beside the dots of one panel; beyond that there is a legend (chosen)
_BESIDE = [(x, y) for x in (0, 9, -9, 25, -25, 50, -50) for y in range(-54, 55, 6)]  # points from a dot to its name
OVER_TIME = {  # by name of the figure: ``curve``, ``label`` and ``dotted`` of ``over_time``
    "fdr": ("fdr", FDR, ""),
    "answered-over-time": ("answered", ANSWERED, ""),
    "risk": ("fdr_risk", "wrong above the target, R$_t$", "risk_bound"),
    "regret": ("regret", REGRET, "regret_bound"),
}


def draw(trials: Table, curves: Table, segments: int = 1, best: Mapping[Any, str] = {}) -> dict[str, Figure]:
    """Return all figures of a sweep, by file name without ending, from ``trials.csv`` and ``curves.csv``.

    Lines show the shifts between ``segments`` of one source each; ``best`` is the advised learner by source, alpha:
    NONE if there is none.
    Captions name the ``probability`` of bounds, if there is such a column.
    """
    curves = with_answered(with_rates(curves))
    drawn = {"answered": answered_against_wrong(with_rates(trials), best)}
    ends = curves.groupby([*PANEL, "learner"])[["t", "answered_mean", "regret_bound"]].transform("max")
    curves.loc[ends["answered_mean"] == 0, ["fdr_mean", "answered_mean"]] = np.nan  # no FDR without answers
    curves.loc[curves["regret_bound"] == 0, "regret_bound"] = np.nan  # the bound of best-fixed holds at T alone
    curves.loc[ends["regret_bound"] >= ends["t"], "regret_bound"] = np.inf  # not drawn: no regret is above T
    trials = trials.assign(answered=1 - trials["inefficiency"])
    trials.loc[trials.groupby("learner")["answered"].transform("max") == 0, "answered"] = np.nan
    trials.loc[trials["regret_bound"] >= trials["horizon"], "regret_bound"] = np.inf
    trials.loc[trials["learner"] == "best-fixed", "regret"] = np.nan  # 0 at T, by definition
    for name, (curve, label, bound) in OVER_TIME.items():
        if curves[f"{curve}_mean"].notna().any():
            drawn[name] = over_time(curves, curve, label, segments, dotted=bound)
    for swept in (x for x in SWEPT if x in trials and trials.groupby("source")[x].nunique().max() > 1):
        played = with_rates(trials[trials[swept].notna()], but=swept)
        lacking = ", ".join(trials.loc[trials[swept].isna(), "learner"].unique())
        for column in (column for column in AT_HORIZON if played[column].notna().any()):
            name = f"{column}-by-{swept.replace('_', '-')}"
            drawn[name] = against(played, swept, column, bound="regret_bound" * (column == "regret"))
            add_note(drawn[name], f"Not drawn, without this rate: {plain(lacking)}." * bool(lacking))
    return with_trials(drawn, trials)


def answered_against_wrong(trials: Table, advised: Mapping[Any, str] = {}) -> Figure:
    """Draw the share answered against the FDR at T: a mark per learner, and a line from 5% to 95% of the trials.

    Best is the top, left of the target. A learner that answers nothing has no mark. The mark of the advised learner
    is filled, in a ring, if the sweep starts it from a log; ``advised`` is as ``best`` of ``draw``.
    """
    figure, panels = panel_grid(trials, ANSWERED, by=PANEL)
    named = len(panels) == 1 and len("".join(trials["learner"].unique())) <= _NAMED
    learners = trials.groupby([*PANEL, "learner"])
    shares = 1 - learners["inefficiency"].mean()
    low, high = shares[shares > 0].agg(["min", "max"]).fillna(1.0)
    ringed, margin = "", max(0.15 * (high - low), 0.03)
    mean, ends = learners["fdr"].mean(), learners["fdr"].quantile([0.05, 0.95]).unstack()
    drawn = [trials["alpha"], *(x[shares > 0] for x in (mean, ends[0.05], ends[0.95]))]
    largest = max(x.max() for x in drawn)  # NaN is not above
    left = fdr_start(min(x.min() for x in drawn), largest)
    right = largest + 0.08 * (largest - left)
    best, from_log = list[str | None](), "warm_start" in trials and trials["warm_start"].notna().any()
    for axes, rows in panels:
        alpha, dots = rows["alpha"].iloc[0], dict[str, tuple[float, float]]()
        best.append(advised.get((rows["source"].iloc[0], alpha)))
        for style, name, group in styled_lines(rows):
            fdr, answered = group["fdr"].mean(), 1 - group["inefficiency"].mean()
            if answered > 0:
                axes.hlines(answered, *group["fdr"].quantile([0.05, 0.95]), color=style["color"], linewidth=1)
                mark = style | {"linestyle": "", "markersize": 6, "clip_on": False}
                hollow = {} if ", " in name else {"markerfacecolor": "none"}  # rates differ in what is filled
                (dot,) = axes.plot(fdr, answered, label=plain(name), **mark | hollow)
                dots[plain(name)] = fdr, answered
                if from_log and name.partition(", ")[0] == best[-1] and group["step"].iloc[0] == STEP:
                    pale = [0.3 * part + 0.7 for part in to_rgb(style["color"])]
                    dot.set(markerfacecolor=pale, markersize=11, zorder=1.5)  # so that it is seen below others
                    ring = {"marker": "o", "markersize": 18, "markeredgecolor": "black", "markerfacecolor": "none"}
                    axes.plot(fdr, answered, **mark | ring, markeredgewidth=0.8, zorder=1.5)
                    ringed = plain(name)
        axes.axvline(alpha, label="target", zorder=0, **TARGET_STYLE)
        broken = FDR if len(panels) == 1 else FDR.replace(", of", ", of\n")  # else it runs into the next panel's
        axes.set(xlim=(left, right), ylim=(max(low - margin, 0), high + margin), xlabel=broken)
        in_percent(axes.xaxis, axes.yaxis)
    spread = f"A mark is the mean over trials, its line {PERCENTILES} of the FDR. "
    note = f"{spread * (trials['trial'].nunique() > 1)}The target is dashed.{_advice_note(best, ringed)}"
    add_legend(figure, [] if named else panels, note + missing_note(trials, trials["inefficiency"] < 1))
    if named:
        figure.draw_without_rendering()  # lays out the panel
        _name_dots(axes, dots, bold=ringed)
    return figure


def _advice_note(best: Sequence[str | None], ringed: str) -> str:
    """Return which learner is advised in panels, of which each has one, NONE, or None if that is unknown."""
    no_ring = f" No learner is advised{' where there is no ring' * bool(ringed)}." * (NONE in best)
    if ringed:
        return f" The ring marks the advised learner.{no_ring}"
    advised = [name for name in best if name not in (None, NONE)]
    where = f" in {len(advised)} of {len(best)} panels" * (len(advised) < len(best))
    return f" Advised{where}, but not played here, is {advised[0]} that starts from a log." if advised else no_ring


def _name_dots(axes: Axes, dots: Mapping[str, tuple[float, float]], bold: str) -> None:
    """Write a name beside each dot, in its color, at the nearest free place, with a line to it if it is far."""

    def gap(box: Bbox, point: Any) -> float:
        return float(np.hypot(*np.maximum(np.maximum(box.min - point, point - box.max), 0)))

    places = {name: axes.transData.transform(dot) for name, dot in dots.items()}
    colors = {str(line.get_label()): to_rgb(line.get_markeredgecolor()) for line in axes.lines}
    scale, near = axes.figure.dpi / 72, sorted(_BESIDE, key=lambda offset: np.hypot(*offset))  # pixels of a point
    occupied = [Bbox([dot, dot]).padded((9 if name == bold else 5) * scale) for name, dot in places.items()]
    occupied.append(axes.lines[-1].get_window_extent())  # the target
    occupied += [axes.transData.transform_bbox(x.get_datalim(axes.transData)) for x in axes.collections]  # spreads
    for name in sorted(dots, key=lambda name: dots[name][1]):
        width, boxes = (4.1 if name == bold else 3.5) * len(name) + 3, dict[tuple[int, int], Bbox]()
        for right, up in near:
            corner = places[name] + scale * np.array([right + width * (np.sign(right) - 1) / 2, up - 4])
            boxes[right, up] = Bbox([corner, corner + scale * np.array([width, 8])])
        fitting = [offset for offset in near if axes.bbox.count_contains(boxes[offset].corners()) == 4] or near
        free = min(boxes[offset].count_overlaps(occupied) for offset in fitting)
        fitting = [offset for offset in fitting if boxes[offset].count_overlaps(occupied) == free]
        # a name that is nearer to another dot would be read as its name
        owned = [x for x in fitting if min(places, key=lambda dot: gap(boxes[x], places[dot])) == name]
        best = (owned or fitting)[0]
        occupied.append(boxes[best])
        text_style = dict[str, Any](fontsize=7, va="center", bbox={"color": "white", "pad": 0.5}, zorder=1)
        text_style |= {"ha": ("center", "left", "right")[np.sign(best[0])], "textcoords": "offset points"}
        text_style["color"] = [0.8 * part for part in colors[name]]  # darker, as letters are thin
        is_far = gap(boxes[best], places[name]) > 10 * scale
        line = {
            "arrowstyle": "-",
            "color": colors[name],
            "linewidth": 0.6 * is_far,
            "linestyle": ":",
            "shrinkA": 0,
            "shrinkB": 4,
        }
        axes.annotate(name, dots[name], best, arrowprops=line, weight=400 + 300 * (name == bold), **text_style)
