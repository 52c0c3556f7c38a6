"""Draw figures from tidy tables. Lines differ in dashes and lightness, so figures are readable in grey.

Only this module imports matplotlib.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from re import sub
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from exaul.engine.environments.oblivious import segment_ends
from exaul.engine.logs.files import Table
from exaul.engine.registry import ENVIRONMENTS, LEARNERS, load_object
from exaul.engine.results.advice import FEASIBLE
from exaul.engine.results.text_table import with_rates

_DASHED, _SHORT, _LONG = (0, (5, 1.5)), (0, (2, 1)), (0, (9, 2))
_DOT, _DOTS = (0, (6, 1.5, 1.5, 1.5)), (0, (4, 1, 1, 1, 1, 1))
# Of the learners, in the order of the registry. Each has a marker of its own; those with the same line differ in
# lightness. Dots alone are those of bounds and shifts.
_STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#08306b", "linestyle": "-", "marker": "o"},
    {"color": "#d94801", "linestyle": _DASHED, "marker": "s"},
    {"color": "#41ab5d", "linestyle": _SHORT, "marker": "^"},
    {"color": "#969696", "linestyle": _DOT, "marker": "D"},
    {"color": "#6a51a3", "linestyle": _DOTS, "marker": "v"},
    {"color": "#525252", "linestyle": _LONG, "marker": "<"},
    {"color": "#7f0000", "linestyle": _DASHED, "marker": ">"},
    {"color": "#dd3497", "linestyle": "-", "marker": "*", "markersize": 5.5},
    {"color": "#b10026", "linestyle": _SHORT, "marker": "X"},
    {"color": "#f4a582", "linestyle": _LONG, "marker": "h"},
    {"color": "#6baed6", "linestyle": "-", "marker": "p"},
    {"color": "#005a32", "linestyle": _DOT, "marker": "P"},
    {"color": "#c7a76c", "linestyle": _DOTS, "marker": "x"},
    {"color": "#bcbddc", "linestyle": _DASHED, "marker": "d"},
    {"color": "#543005", "linestyle": _DOTS, "marker": "+"},
    {"color": "#a6d96a", "linestyle": _SHORT, "marker": ".", "markersize": 6},
)
_NESTED: tuple[dict[str, Any], ...] = (  # of curves that may coincide
    {"color": "#cccccc", "linestyle": "-", "linewidth": 6},
    {"color": "#6baed6", "linestyle": "-", "linewidth": 3},
    {"color": "#a63603", "linestyle": (0, (4, 3)), "linewidth": 1.8},
    {"color": "#000000", "linestyle": (0, (1, 5)), "linewidth": 1.8},
)
TARGET_STYLE: dict[str, Any] = {"color": "black", "linewidth": 0.9, "linestyle": "--"}
DPI = 200  # dots per inch of PNG files (this and the next numbers are chosen)
GROUPS = 10  # of rows in the figure of reliability
FLAT = 0.01  # share of the axis; a violin of less height would look like a line
_COLUMNS = 4  # most panels in a row
PANELS = 24  # most panels in a figure; beyond that the last one lists what is left out
_LISTED = 8  # most names in this list
_PANEL = ["source", "alpha", "lambda"]  # one panel per combination
FDR, INEFFICIENCY = "false discovery rate FDR$_t$", "inefficiency (share abstained)"
RISK, REGRET = "wrong answers above the target, R$_t$", "regret"
BOUNDS = {"fdr_risk": "risk_bound", "regret": "regret_bound"}  # columns of ``curves.csv``


def draw(trials: Table, curves: Table, segments: int = 1) -> dict[str, Figure]:
    """Return all figures of a sweep, by file name without ending, from ``trials.csv`` and ``curves.csv``.

    ``segments`` is the number of segments with one source each; lines show the shifts between them.
    """
    trials, curves = with_rates(trials), with_rates(curves)
    answering = curves[curves.groupby("learner")["inefficiency_mean"].transform("min") < 1]
    drawn = {
        "answered": answered_against_wrong(trials),
        "fdr": over_time(curves if answering.empty else answering, "fdr", FDR, target=True, segments=segments),
        "inefficiency": over_time(curves, "inefficiency", INEFFICIENCY, segments=segments),
        "final-fdr": final_fdr(trials),
    }
    for name, curve, label in (("risk", "fdr_risk", RISK), ("regret", "regret", REGRET)):
        # a bound of 0 is that of a learner that never answers
        limited = curves[curves.groupby("learner")[BOUNDS[curve]].transform("max") > 0]
        if not limited.empty:
            drawn[name] = over_time(limited, curve, label, segments=segments, dotted=BOUNDS[curve])
    for axes in drawn["regret"].axes if "regret" in drawn else ():
        axes.set(yscale="log", ylim=(1, None))  # bounds of learners differ by factors of ten
    if trials["alpha"].nunique() > 1:
        drawn["fdr-by-alpha"] = fdr_by(trials, "alpha", "target FDR $\\alpha$")
    if trials["lambda"].nunique() > 1:
        drawn["fdr-by-lambda"] = fdr_by(trials, "lambda", "weight of the FDR $\\lambda$")
    return drawn


def answered_against_wrong(trials: Table) -> Figure:
    """Draw the share answered against the share of wrong among the shown: a dot per learner, means over trials.

    Best is the top, left of the target. A learner that answers nothing has no dot.
    """
    figure, panels = panel_grid(trials, "questions answered", by=_PANEL)
    for axes, rows in panels:
        for style, name, group in styled_lines(rows):
            wrong, answered = group["fdr"].mean(), 1 - group["inefficiency"].mean()
            if answered > 0:
                axes.plot(wrong, answered, label=plain(str(name)), **style | {"linestyle": "", "markersize": 7})
        axes.axvline(rows["alpha"].iloc[0], label="target", **TARGET_STYLE)
        axes.set(ylim=(0, 1.04), xlabel="wrong of the shown")
        axes.set_xlim(0, 1.08 * max(np.nan_to_num(axes.get_xlim()[1]), rows["alpha"].iloc[0]))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(5))
            axis.set_major_formatter(PercentFormatter(1))
    add_legend(figure, panels, "means over trials; best: high, and left of the target")
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG and PDF, without a time stamp."""
    with np.errstate(over="ignore"):  # a logarithmic axis may span all floats
        figure.savefig(path.with_name(path.name + ".png"), dpi=DPI)
        figure.set_layout_engine("none")  # keep the layout of the PNG: laying out again would be slow
        figure.savefig(path.with_name(path.name + ".pdf"), metadata={"CreationDate": None})


def over_time(
    curves: Table,
    curve: str,
    label: str,
    target: bool = False,
    segments: int = 1,
    lines: str = "learner",
    log: bool = False,
    by: Sequence[str] = tuple(_PANEL),
    dotted: str = "",
) -> Figure:
    """Draw a curve over rounds: mean over trials, with a band from 5% to 95% of them.

    Args:
        curves: as in ``curves.csv``.
        curve: name of the column, without ``_mean``.
        label: label of the y axis.
        target: draw alpha.
        segments: number of segments, as in ``draw``.
        lines: column; one line per value.
        log: logarithmic x axis.
        by: columns; one panel per combination of values.
        dotted: column to draw dotted beside each line, unless empty.
    """
    figure, panels = panel_grid(curves, label, by=[column for column in by if column != lines])
    unit, rounds = _rounds(curves)
    for axes, rows in panels:
        seen = rows[rows["t"] > rows["t"].max() * 0.03]  # the noise of the first rounds would set the scale
        alpha = rows["alpha"].iloc[0]
        upper, lower = f"{curve}_q95", f"{curve}_q05"
        tops = [seen[column].max() for column in (upper, dotted) if column]
        top = max(*tops, alpha if target else 0.0, 0.0)
        low = min(seen[lower].min(), 0.0)
        for number, (style, name, line) in enumerate(styled_lines(rows, lines)):
            t = line["t"] / unit
            axes.fill_between(t, line[lower], line[upper], color=style["color"], alpha=0.15, linewidth=0)
            spacing = (0.02 + 0.012 * number, 0.2)  # markers of different lines at different rounds
            axes.plot(t, line[f"{curve}_mean"], label=_named(lines, name), markevery=spacing, **style)
            if dotted and line[dotted].notna().all():
                axes.plot(t, line[dotted], color=style["color"], linestyle=":", linewidth=1.6)
        if target:
            axes.axhline(alpha, label="target $\\alpha$", **TARGET_STYLE)
        for i, end in enumerate(segment_ends(segments, rows["t"].max())[:-1]):
            axes.axvline(end / unit, color="#525252", linewidth=0.8, linestyle=":", label="" if i else "shift")
        margin = 0.03 * (top - low) or 0.01  # a constant curve has no range
        axes.set(xlim=(0, rows["t"].max() / unit), ylim=(low - margin, top + 4 * margin))
        if log:
            axes.set(xscale="log", xlim=(rows["t"].min() / unit, rows["t"].max() / unit))
        axes.set_xlabel(rounds)
    note = "; dotted: proven bound at each t" if dotted else ""
    add_legend(figure, panels, f"line: mean over trials; band: 5% to 95% of trials{note}")
    return figure


def _rounds(table: Table) -> tuple[int, str]:
    """Return the unit of rounds on the x axis, and its label."""
    return (1000, "round $t$ (thousands)") if table["t"].max() >= 2000 else (1, "round $t$")


def asked_figure(table: Table) -> Figure:
    """Draw what an adaptive environment asked over rounds, one panel per learner, at the first alpha and lambda."""
    table = with_rates(table)
    first = table[(table["alpha"] == table["alpha"].iloc[0]) & (table["lambda"] == table["lambda"].iloc[0])]
    names = {"hard": "hard: the answer is wrong", "overconfident": "wrong, score above the pool's mean"}
    names["underconfident"] = "right, score below the pool's mean"
    figure, panels = panel_grid(first, "share of the questions asked", by=["learner"])
    unit, rounds = _rounds(first)
    for axes, rows in panels:
        t = rows["t"] / unit
        for style, (kind, label) in zip(_styles(), names.items(), strict=False):
            band = rows[f"{kind}_q05"], rows[f"{kind}_q95"]
            axes.fill_between(t, *band, color=style["color"], alpha=0.15, linewidth=0)
            axes.plot(t, rows[f"{kind}_mean"], label=label, **style | {"marker": ""})
        axes.set(xlim=(0, t.max()), ylim=(0, 1.02), xlabel=rounds)
        axes.set_title(plain(rows["learner"].iloc[0]), fontsize=9)
    environment = str(first["environment"].iloc[0])
    reference = ENVIRONMENTS.get(environment.partition(":")[0])
    knows = f"{environment} sees {load_object(reference).sees}\n" if reference else ""
    add_legend(figure, panels, f"{knows}since last checkpoint; line: mean over trials; band: 5% to 95% of trials")
    return figure


def final_fdr(trials: Table) -> Figure:
    """Draw the distribution of the FDR at T over trials: one violin per learner, one panel per cell."""
    figure, panels = panel_grid(trials, "false discovery rate FDR$_T$", by=_PANEL)
    for axes, rows in panels:
        names, least = [], FLAT * rows["fdr"].max()
        for number, (style, name, group) in enumerate(styled_lines(rows), 1):
            names.append(plain(str(name)))
            values = group["fdr"].dropna().to_numpy()
            if not len(values):  # it answers nothing
                continue
            if np.ptp(values) > least:
                parts: dict[str, Any] = axes.violinplot(values, [number], widths=0.8)
                parts["bodies"][0].set(facecolor=style["color"], edgecolor="black", alpha=0.5)
                for bar in ("cmins", "cmaxes", "cbars"):
                    parts[bar].set(color="black", linewidth=0.9)
            point = style | {"linestyle": "", "markeredgecolor": "black", "markeredgewidth": 0.8, "zorder": 3}
            axes.plot(number, values.mean(), **point)
        axes.axhline(rows["alpha"].iloc[0], label="target $\\alpha$", **TARGET_STYLE)
        axes.set_xticks(range(1, len(names) + 1), names, rotation=30, ha="right")
        axes.set_ylim(bottom=0)
    add_legend(
        figure,
        panels,
        "marker: mean; violin: distribution over trials, unless flat; bars: smallest, largest",
    )
    return figure


def fdr_by(trials: Table, swept: str, label: str) -> Figure:
    """Draw the FDR at T against alpha or lambda (``swept``): mean, and band from 5% to 95% of trials."""
    figure, panels = panel_grid(trials, "false discovery rate FDR$_T$", by=[x for x in _PANEL if x != swept])
    for axes, rows in panels:
        for style, name, line in styled_lines(rows):
            by_value = line.groupby(swept)["fdr"]
            low, high = by_value.quantile(0.05), by_value.quantile(0.95)
            axes.fill_between(low.index, low, high, color=style["color"], alpha=0.15, linewidth=0)
            mean = by_value.mean()
            axes.plot(mean.index, mean, label=plain(str(name)), **style)
        if swept == "alpha":
            ends = [rows["alpha"].min(), rows["alpha"].max()]
            axes.plot(ends, ends, label="target $\\alpha$", **TARGET_STYLE)
        else:
            axes.axhline(rows["alpha"].iloc[0], label="target $\\alpha$", **TARGET_STYLE)
            if rows["lambda"].min() > 0:
                axes.set_xscale("log")
        axes.set_xlabel(label)
    add_legend(figure, panels, "line: mean over trials; band: 5% to 95% of trials")
    return figure


def traces_figure(table: Table) -> Figure:
    """Draw a sweep over traces: a dot per feasible row of ``traces.csv``."""
    feasible = table["answerable"] >= FEASIBLE
    above = (table["fdr"] - table["alpha"]).where(feasible)
    dots = with_rates(table).assign(above=above, of_answerable=table["of_answerable"].where(feasible))
    note = f"dots: traces of which at least {FEASIBLE:.0%} is answerable, means over trials"
    return scatter(dots, "above", note)


def scatter(table: Table, above: str, note: str) -> Figure:
    """Draw ``above``, the FDR minus alpha, against ``of_answerable``: a panel per learner, a marker per alpha.

    All panels have the same axes. Best is x = 1 with y at most 0.
    """
    figure, panels = panel_grid(table, "FDR$_T$ - $\\alpha$", by=["learner"])
    low, high = np.nanmin([table[above].min(), 0.0]), np.nanmax([table[above].max(), 0.0])
    margin = 0.04 * (high - low) or 0.01
    for axes, rows in panels:
        for style, alpha, dots in styled_lines(rows, "alpha"):
            look = style | {"linestyle": "", "alpha": 0.5}
            axes.plot(dots["of_answerable"], dots[above], label=_named("alpha", alpha), **look)
        axes.axhline(0, label="FDR$_T$ at its target", **TARGET_STYLE)
        axes.axvline(1, label="all answerable", color="#525252", linewidth=0.9, linestyle=":")
        axes.set(xlim=(-0.04, 1.04), ylim=(low - margin, high + margin), xlabel="answered / answerable")
        axes.set_title(plain(str(rows["learner"].iloc[0])), fontsize=9)
    add_legend(figure, panels, note)
    return figure


def risk_coverage(
    curves: dict[str, tuple[np.ndarray, np.ndarray]], base_rate: float, best: Mapping[float, float]
) -> Figure:
    """Draw risk [H] against coverage [H] of thresholds, by name.

    Curves that coincide stay visible: each is thinner and darker than those below it.

    Args:
        curves: coverage and risk, by the name of the thresholds.
        base_rate: the risk at full coverage.
        best: the largest coverage with a risk of at most alpha, by alpha; each above 0 is marked.
    """
    figure = Figure(figsize=(4.6, 3.6), layout="constrained")
    axes = figure.subplots()
    for style, (name, (coverage, risk)) in zip(_NESTED, curves.items(), strict=True):
        axes.plot(coverage, risk, label=name, **style)
    axes.axhline(base_rate, label="error rate", **TARGET_STYLE)
    for alpha, share in best.items():
        if share > 0:
            axes.plot([0, share, share], [alpha, alpha, 0], color="#525252", linewidth=0.7, linestyle=":")
            side = "right" if share > 0.5 else "left"
            axes.annotate(f" $\\alpha$ = {alpha:g}: {share:.0%} ", (share, alpha), fontsize=7, ha=side, va="top")
    axes.set(xlabel="coverage (share answered)", ylabel="risk (share of wrong among answered)", xlim=(0, 1))
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=3, handlelength=3, frameon=False, fontsize=8)
    return figure


def reliability(scores: np.ndarray, errors: np.ndarray) -> Figure:
    """Draw the share of right answers against the mean score, in at most ten groups of as many rows.

    On the diagonal, a score is the probability that its answer is right.
    """
    figure = Figure(figsize=(4.6, 3.6), layout="constrained")
    axes = figure.subplots()
    groups = [rows for rows in np.array_split(np.argsort(scores, kind="stable"), GROUPS) if len(rows)]
    axes.plot([0, 1], [0, 1], label="score = share right", **TARGET_STYLE)
    means = [scores[rows].mean() for rows in groups], [1 - errors[rows].mean() for rows in groups]
    axes.plot(*means, label=f"groups of {len(groups[0]):,} rows", color="#08306b", marker="o", markersize=4)
    axes.set(xlabel="score (mean of the group)", ylabel="share of right answers", xlim=(0, 1.02), ylim=(0, 1.02))
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=2, handlelength=3, frameon=False, fontsize=8)
    return figure


def styled_lines(rows: Table, column: str = "learner") -> Iterator[tuple[dict[str, Any], Any, Table]]:
    """Yield style, value and rows for each value of a column.

    A built-in learner has one style in all figures, unless its rates differ.
    """
    values = list(rows.groupby(column, sort=False))
    fixed_styles = dict(zip(LEARNERS, _styles(), strict=False)) if column == "learner" else {}
    taken = [fixed_styles[name] for name, _ in values if name in fixed_styles]
    others = (style for style in _styles() if style not in taken)
    for value, line in values:
        yield fixed_styles.get(value) or next(others), value, line


def _styles() -> Iterator[dict[str, Any]]:
    """Yield the styles, then the styles again with longer and longer dashes."""
    for turn in count():
        for style in _STYLES:
            line = {"linewidth": 1.4, "markersize": 3.5, **style}
            yield line if turn == 0 else {**line, "linestyle": (0, (2 + 2 * turn, 1))}


def _named(column: str, value: Any) -> str:
    if column in ("alpha", "lambda"):
        return f"$\\{column}$ = {float(f'{value:.4g}'):,g}"
    return plain(str(value))


def plain(text: str) -> str:
    """Escape dollar signs, which begin a formula in matplotlib."""
    return text.replace("$", "\\$")


def panel_grid(table: Table, label: str, by: list[str]) -> tuple[Figure, list[tuple[Axes, Table]]]:
    """Return a figure, and its panels with their rows: one per group, titled by the columns that differ.

    Of more than ``PANELS`` groups, an evenly spaced selection is drawn; the last panel lists the others.
    """
    groups = list(table.groupby(by, sort=False))
    many = min(len(groups), PANELS)
    shown = np.arange(many)
    if len(groups) > PANELS:
        shown = np.linspace(0, len(groups) - 1, PANELS - 1).round().astype(int)
    height = -(-many // _COLUMNS)
    width = -(-many // height)
    figure = Figure(figsize=(max(4.6, 3.1 * width), 2.7 * height + 0.7), layout="constrained")
    grid = figure.subplots(height, width, squeeze=False)
    panels = []
    differ = [i for i, column in enumerate(by) if table[column].nunique() > 1]
    titles = [", ".join(_named(by[i], values[i]) for i in differ) for values, _ in groups]
    for axes, index in zip(grid.flat, shown, strict=False):
        title = sub("([:,])(?! )", r"\1 ", titles[index])  # allow line breaks after these
        axes.set_title(fill(title, 36, break_on_hyphens=False), fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        panels.append((axes, groups[index][1]))
    for axes in grid.flat[len(shown) :]:
        axes.set_axis_off()
    if len(groups) > PANELS:
        left = [title for index, title in enumerate(titles) if index not in shown]
        listed = [*left[:_LISTED], f"and {len(left) - _LISTED} more"] if len(left) > _LISTED else left
        text = "\n".join(["not drawn, see the tables:", *listed])
        grid.flat[len(shown)].text(0, 1, text, va="top", fontsize=7, color="#444444")
    for row in grid:
        row[0].set_ylabel(label)
    return figure, panels


def add_legend(figure: Figure, panels: list[tuple[Axes, Table]], note: str) -> None:
    """Add the legend of the first panel at the top, and a note at the bottom; many rows make the figure higher."""
    handles, labels = panels[0][0].get_legend_handles_labels()
    columns = max(1, int(figure.get_figwidth() / max(1.6, 0.7 + 0.065 * max(map(len, labels), default=0))))
    figure.set_figheight(figure.get_figheight() + 0.17 * max(0, -(-len(labels) // columns) - 3))
    figure.legend(
        handles, labels, loc="outside upper center", ncols=columns, handlelength=3, frameon=False, fontsize=8
    )
    wide = int(20 * figure.get_figwidth())
    figure.supxlabel("\n".join(fill(line, wide) for line in note.split("\n")), fontsize=7, color="#444444")
