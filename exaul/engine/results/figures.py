"""Draw figures from tidy tables. Lines differ in dashes and lightness, so figures are readable in grey."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import cycle
from operator import itemgetter
from pathlib import Path
from re import split, sub
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib import rc_context, rcParams
from matplotlib.axes import Axes as Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure as Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox, ScaledTranslation

from exaul.engine.logs.files import Table
from exaul.engine.registry import LEARNERS
from exaul.engine.results import text_table
from exaul.engine.results.advice import FDR_TOLERANCE
from exaul.engine.results.text_table import as_label, plain

_DASHED, _SHORT, _LONG = (0, (5, 1.5)), (0, (2, 1)), (0, (9, 2))
_DOT, _DOTS = (0, (6, 1.5, 1.5, 1.5)), (0, (4, 1, 1, 1, 1, 1))
# Styles of the learners, in the order of the registry: each has its marker, and equal dashes differ in lightness.
_STYLES = (
    ("#08306b", "-", "o"),
    ("#d94801", _DASHED, "s"),
    ("#41ab5d", _SHORT, "^"),
    ("#969696", _DOT, "*"),
    ("#6a51a3", _DOTS, "v"),
    ("#525252", _LONG, "<"),
    ("#7f0000", _DASHED, ">"),
    ("#dd3497", "-", "D"),
    ("#b10026", _SHORT, "X"),
    ("#8c510a", _DOTS, "P"),
    ("#17becf", _LONG, "h"),
    ("#005a32", _DOT, "p"),
    ("#c7a76c", _DOTS, "x"),
    ("#6baed6", "-", "d"),
    ("#bcbddc", _DASHED, "+"),
    ("#a6d96a", _SHORT, "."),
)
_FILLS = "full", "none", "left", "right", "top", "bottom"  # of the markers of a learner's rates
TARGET_STYLE: dict[str, Any] = {"color": "black", "linewidth": 0.9, "linestyle": "--"}
DPI = 200  # dots per inch of PNG files (this and the next numbers are chosen)
ROWS = 4  # most rows of panels in a figure, so that it fits on a page (9 inches)
_PANEL_WIDTH, _SINGLE = 1.6, 3.3  # least inches of a panel in a row of several, and of one alone (that of a column)
_WIDE_PANEL = 2.0  # inches of a panel from which on its title has larger letters
_HEIGHTS = 2.2, 1.8  # inches of a panel, of one row and of several
_ASIDE = 3.5  # points between bars side by side
_BESIDE = sorted(  # points from a dot to its name, the nearest first
    ((x, y) for x in (0, 9, -9, 25, -25, 50, -50) for y in range(-54, 55, 6)), key=lambda offset: np.hypot(*offset)
)
LETTERS = 14  # of the names of ticks that fit in an inch
PANEL = ["source", "alpha", "lambda"]  # one panel per combination
FDR, ANSWERED = "FDR (wrong, of shown answers)", "answered (of the questions)"
TARGET = "target $\\alpha$"
COUNT = "{x:,.10g}"  # how a number of rounds or errors is written
ROUND = [1, 2, 5, 10]  # the digits of ticks
MIDDLE = "middle 90%"  # of the trials, from the 5th to the 95th percentile
MARKS: dict[str, tuple[tuple[str, ...], str, float, str]] = {  # by column: in figures of what, marker, size, label
    "advised": (("answered", "fdr"), "o", 8, "advised"),
    "misses": (("answered",), "x", 5, f"FDR at $T$ above $\\alpha$ + {FDR_TOLERANCE:.0%}"),
}


def with_trials(drawn: dict[str, Figure], trials: Table) -> dict[str, Figure]:
    """Return figures whose notes also say what was played, with how many thresholds, and a single alpha.

    Of regrets, they also say a single lambda. Where learners start from is in ``table.tex``.
    """
    played, _, start = text_table.describe_trials(trials).partition("; ")
    values = {column: trials[column].dropna().unique() for column in ("alpha", "lambda")}
    alpha, lam = (f", {as_label(name, x[0])}" if len(x) == 1 else "" for name, x in values.items())
    arms, rows = f", $H$ = {text_table.as_range(trials['arms'])}", "; all trials start from the same\xa0rows"
    for name, figure in drawn.items():
        add_note(figure, f"{plain(played)}{alpha}{lam * ('regret' in name)}{arms}{rows * bool(start)}.")
    return drawn


def in_percent(*axes: Axis) -> None:
    """Label axes of shares in percent."""
    for axis in axes:
        axis.set_major_locator(MaxNLocator("auto", steps=ROUND))
        axis.set_major_formatter(lambda share, _: f"{100 * share:.4g}%")


def tick_count(axes: Axes) -> int:
    """Return the most intervals between the ticks of an x axis: three in an inch, and four in a narrow panel."""
    return max(4, int(3 * axes.bbox.width / axes.figure.dpi))


def fdr_start(smallest: float, largest: float) -> float:
    """Return where an axis of FDRs begins: at 0, or below the smallest if that is above half of the largest."""
    return max(smallest - max(0.1 * (largest - smallest), 0.002), 0.0) if smallest > largest / 2 else 0.0


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, and without its caption and a time stamp as PDF."""
    with rc_context({"pdf.fonttype": 42}):  # some publishers refuse fonts of Type 3, the default
        figure.savefig(path.with_name(path.name + ".png"), dpi=DPI)
        figure.set_layout_engine("none")  # keep the layout of the PNG: laying out again would be slow
        metadata = {"CreationDate": None, "Subject": " ".join(figure.get_supxlabel().split())}
        figure.supxlabel("")
        style: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.02, "metadata": metadata}
        figure.savefig(path.with_name(path.name + ".pdf"), **style)


def styled_lines(rows: Table, column: str = "learner") -> Iterator[tuple[dict[str, Any], Any, Table]]:
    """Yield style, value and rows for each value of a column.

    A learner has one style in all figures. Its later rates are lighter, with another part of the marker filled: by
    the column ``shade`` if there is one, or else in their order.
    """
    lines, by_learner = list(rows.groupby(column, sort=False)), column == "learner"
    names = {value: value.partition(", ")[0] if by_learner else value for value, _ in lines}
    looks = dict(zip(dict.fromkeys([*LEARNERS] * by_learner + [*names.values()]), styles(), strict=False))
    for value, line in lines:
        shades = [x for x in names if names[x] == names[value]]
        style, shade = looks[names[value]], int(line["shade"].min()) if "shade" in line else shades.index(value)
        white = 0.75 * shade / (shade + 1)
        color = tuple(white + (1 - white) * part for part in to_rgb(style["color"]))
        yield style | {"color": color, "fillstyle": _FILLS[shade % len(_FILLS)]}, value, line


def styles() -> Iterator[dict[str, Any]]:
    """Yield the styles, again and again."""
    for color, dashes, marker in cycle(_STYLES):
        line = {"color": color, "linestyle": dashes, "linewidth": 1.2}
        yield line | {"marker": marker, "markersize": 5 if marker == "*" else 3.5}


def panel_columns(alphas: int = 1) -> int:
    """Return how many panels fit beside one another: one column for each of several alphas, if these fit."""
    columns = max(1, int(rcParams["figure.figsize"][0] / _PANEL_WIDTH))
    return alphas if 1 < alphas <= columns else columns


def panel_grid(table: Table, label: str, by: Sequence[str] = ()) -> tuple[Figure, list[tuple[Axes, Table]]]:
    """Return a figure, and its panels with their rows: one per group, titled by the columns that differ.

    It is at most as wide as ``figure.figsize`` of Matplotlib says. Of more groups than ``ROWS`` rows hold, evenly
    spaced ones are drawn, each with all its alphas if these have a column each.
    """
    alphas = table["alpha"].nunique() if "alpha" in by else 0
    if keys := [column for column in by if column != "alpha"]:
        table = table.iloc[table.groupby(keys, sort=False).ngroup().argsort(kind="stable")]
    groups = list(table.groupby(list(by), sort=False)) if by else [((), table)]
    width = min(len(groups), panel_columns(alphas if alphas < len(groups) else 1))
    if width != alphas:  # rows of about equal length
        fitting = min(len(groups), ROWS * width)
        width = -(-fitting // -(-fitting // width))
    together = width if width == alphas and len(groups) % alphas == 0 else 1  # panels that are drawn or left out
    count = len(groups) // together
    rows = np.linspace(0, count - 1, min(count, ROWS * width // together)).round().astype(int)
    shown = (together * rows[:, None] + np.arange(together)).ravel()
    size = len(shown)
    height = -(-size // width)
    widest = rcParams["figure.figsize"][0]
    inches = min(widest, _SINGLE) if width == 1 else widest
    figure = Figure(figsize=(inches, _HEIGHTS[height > 1] * height + 0.6), layout="constrained")
    grid = figure.subplots(height, width, squeeze=False, sharey=True)
    sources = list(table["source"].unique()) if "source" in by else []
    start = text_table.shared_start(sources) if len(sources) > 1 else ""
    add_note(figure, f"Each title begins with {plain(start)}" * bool(start))
    panels = []
    differ = [i for i, column in enumerate(by) if table[column].nunique() > 1]
    short = text_table.values_of([x.removeprefix(start) for x in sources]) if len(sources) > 1 else sources
    names = dict(zip(sources, short, strict=True))
    titles = [", ".join(as_label(by[i], names.get(x[i], x[i])) for i in differ) for x, _ in groups]
    for axes, index in zip(grid.flat, shown, strict=False):
        title = sub("([:,])(?! )", r"\1 ", titles[index]).replace(" = ", "\xa0=\xa0")
        points = 8 if inches / width >= _WIDE_PANEL else 7
        title = fill(title, int(104 / points * inches / width), break_long_words=False).replace("\xa0", " ")
        axes.set_title(title, fontsize=points)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(which="both", labelsize=8)
        axes.xaxis.label.set_size(8)
        panels.append((axes, groups[index][1]))
    for axes in grid.flat[len(shown) :]:
        axes.set_axis_off()
    if len(groups) > size:
        add_note(figure, f"{len(groups) - size} more panels are not drawn: see the tables.")
    if height > 1:
        figure.supylabel(label, fontsize=8)
    else:
        grid[0, 0].set_ylabel(fill(label, 30, break_on_hyphens=False), fontsize=8)
    return figure, panels


def at_most_wide(inches: float) -> AbstractContextManager[None]:
    """Return a context in which new figures are at most so wide."""
    return rc_context({"figure.figsize": (inches, inches)})


def end_bars(axes: Axes, bars: Sequence[tuple[float, float, Mapping[str, Any]]]) -> None:
    """Draw bars (low, high, style) with caps right of the axes, side by side where they overlap."""
    tops, beside = np.full(len(bars), -np.inf), axes.get_yaxis_transform()  # the highest point of each column
    for low, high, style in sorted(bars, key=itemgetter(0)):
        low, high = np.clip([low, high], *axes.get_ylim())
        bottom, top = axes.transData.transform([(1, low), (1, high)])[:, 1] * 72 / axes.figure.dpi
        number = np.argmax(bottom > tops + 1)  # the first that is free
        tops[number] = top
        aside = ScaledTranslation((2 + _ASIDE * number) / 72, 0, axes.figure.dpi_scale_trans)
        bar = {"color": style["color"], "linewidth": 0.9, "marker": "_", "markersize": 2.5}
        axes.plot([1, 1], [low, high], transform=beside + aside, clip_on=False, **bar)  # a layout leaves it room


def end_labels(axes: Axes, labels: Iterable[tuple[float, str, Any]]) -> None:
    """Write texts (y, text, color) right of the axes, each beside its y, or as near as it does not overlap."""
    ordered, step = sorted(labels, key=itemgetter(0)), 9 * axes.figure.dpi / 72 / axes.get_window_extent().height
    to_parts = axes.transData + axes.transAxes.inverted()  # of the axis
    ends = [to_parts.transform((1, y))[1] for y, *_ in ordered]
    groups = list[tuple[float, int]]()  # of texts one above another: mean of the ends less the steps, and number
    for number, end in enumerate(ends):
        mean, count = end - step * number, 1
        while groups and groups[-1][0] > mean:
            below, size = groups.pop()
            mean, count = (below * size + mean * count) / (size + count), size + count
        groups.append((mean, count))
    heights = [mean for mean, count in groups for _ in range(count)] + step * np.arange(len(ends))
    for (_, text, color), end, height in zip(ordered, ends, heights, strict=True):
        line_to = {"arrowstyle": "-", "linewidth": 0.6, "shrinkA": 1, "shrinkB": 1, "relpos": (0, 0.5)}
        beside = dict[str, Any](xytext=(1.08, height), xycoords="axes fraction", textcoords="axes fraction")
        style = dict[str, Any](fontsize=7, va="center", color=[0.8 * part for part in to_rgb(color)])
        axes.annotate(
            text, (1, end), annotation_clip=False, arrowprops=line_to | {"color": color}, **beside, **style
        )


def name_dots(axes: Axes, dots: Mapping[str, tuple[float, float]], bold: str) -> None:
    """Write a name beside each dot, in its color, at the nearest free place, with a line to it if it is far."""

    def gap(box: Bbox, point: Any) -> float:
        return float(np.hypot(*np.maximum(np.maximum(box.min - point, point - box.max), 0)))

    places = {name: axes.transData.transform(dot) for name, dot in dots.items()}
    colors = {str(line.get_label()): to_rgb(line.get_markeredgecolor()) for line in axes.lines}
    scale = axes.figure.dpi / 72  # pixels of a point
    occupied = [Bbox([dot, dot]).padded((9 if name == bold else 5) * scale) for name, dot in places.items()]
    occupied.append(axes.lines[-1].get_window_extent())  # the target
    occupied += [axes.transData.transform_bbox(x.get_datalim(axes.transData)) for x in axes.collections]  # spreads
    for name in sorted(dots, key=lambda name: dots[name][1]):
        width, boxes = (4.1 if name == bold else 3.5) * len(name) + 3, dict[tuple[int, int], Bbox]()
        for right, up in _BESIDE:
            corner = places[name] + scale * np.array([right + width * (np.sign(right) - 1) / 2, up - 4])
            boxes[right, up] = Bbox([corner, corner + scale * np.array([width, 8])])
        fitting = [
            offset for offset in _BESIDE if axes.bbox.count_contains(boxes[offset].corners()) == 4
        ] or _BESIDE
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


def _count_labels(panel: tuple[Axes, Table]) -> int:
    return len(panel[0].get_legend_handles_labels()[1])


def add_legend(figure: Figure, panels: list[tuple[Axes, Table]], note: str) -> None:
    """Add one legend of all panels at the top, and a note at the bottom; the figure grows by their lines.

    Of panels one above another, the lowest keeps the label of the x axis.
    """
    entries = dict[str, Any]()  # handles by label; those of the fullest panel are in order
    for axes, _ in sorted(panels, key=_count_labels, reverse=True):
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    entries |= {label: entries.pop(label) for *_, label in MARKS.values() if label in entries}  # last
    grid = figure.axes[0].get_gridspec()
    for axes, _ in panels[: max(len(panels) - grid.ncols, 0)] if grid is not None else ():
        axes.set_xlabel("")
    letters = max(map(len, sub(r"\\\w+|[$ ]", "", "\n".join(entries)).split("\n")))  # without those of formulas
    columns = max(1, int(figure.get_figwidth() / (0.55 + 0.055 * letters)))
    lines = max(1, -(-len(entries) // columns))
    columns = max(1, -(-len(entries) // lines))  # entries are spread evenly over the lines
    figure.set_figheight(figure.get_figheight() + 0.15 * max(0, lines - 2))
    style = dict[str, Any](ncols=columns, columnspacing=1.2, handlelength=3, frameon=False, fontsize=7)
    figure.legend([*entries.values()], [*entries], loc="outside upper center" if entries else "center", **style)
    add_note(figure, note)


def add_note(figure: Figure, note: str) -> None:
    """Add lines to the note at the bottom, as wide as the figure, which grows by them."""
    if note:
        width = figure.get_figwidth()
        lines = [line for part in note.splitlines() if part.strip() for line in _filled(part.strip(), width - 0.1)]
        figure.set_figheight(figure.get_figheight() + 0.12 * len(lines))
        text = "\n".join([figure.get_supxlabel(), *lines]).strip()
        figure.supxlabel(text, x=0.05 / width, ha="left", fontsize=7, color="#444444")


def _filled(text: str, inches: float) -> list[str]:
    """Return lines that fill a width. A formula or value stays beside its name; long names break after : and ,."""
    lines, font = [""], FontProperties(size=7)
    for piece in split(r"(?= )|(?<=[:,])(?=[^\W\d])", sub(r"(?<=\w) (?=\$)| (?==)|(?<==) ", "\xa0", text)):
        longer = lines[-1] + piece
        width, *_ = text_to_path.get_text_width_height_descent(longer, font, "$" in sub(r"\\\$", "", longer))
        if not lines[-1] or width <= 72 * inches:
            lines[-1] = longer
        else:
            lines.append(piece.lstrip())
    return [line.replace("\xa0", " ") for line in lines]


def mark(axes: Axes, x: Any, y: Any, rows: Table, shown: str) -> None:
    """Mark those of the points (x, y) for whose rows columns of ``MARKS`` hold, in a figure of ``shown``."""
    for column, (figures, marker, size, label) in MARKS.items():
        if shown in figures and column in rows and (holds := rows[column].to_numpy(bool)).any():
            look = dict[str, Any](markersize=size, fillstyle="none", color="black", markeredgewidth=0.8, zorder=4)
            axes.plot(np.asarray(x)[holds], np.asarray(y)[holds], marker, label=label, **look)


def missing_note(rows: Table, is_drawn: Any, lack: str = "Without answers", values: Any = np.nan) -> str:
    """Return the learners of which no row is drawn, or none at some alphas, their values, and what they lack."""
    missing = list[str]()
    known = rows.assign(is_drawn=is_drawn, value=values, alpha=rows.get("alpha", 0.0))  # some tables have no alpha
    for name, of_learner in known.groupby("learner", sort=False):
        at_alpha = of_learner.groupby("alpha", sort=False)["is_drawn"].any()
        if not at_alpha.all():
            alphas = ", ".join(map(partial(as_label, "alpha"), at_alpha.index[~at_alpha]))
            numbers = of_learner.loc[~of_learner["is_drawn"], "value"].dropna().round().astype(int)
            missing.append(plain(str(name)) + f" at {alphas}" * bool(at_alpha.any()))
            missing[-1] += f" ({text_table.as_range(numbers)})" if len(numbers) else ""
    return f" {lack}: {'; '.join(missing)}." * bool(missing)
