"""Draw figures from tidy tables. Lines differ in dashes and lightness, so figures are readable in grey."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import cycle
from pathlib import Path
from re import sub
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib import rc_context, rcParams
from matplotlib.axes import Axes as Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_rgb as to_rgb
from matplotlib.figure import Figure as Figure
from matplotlib.ticker import MaxNLocator, NullLocator
from matplotlib.transforms import Bbox as Bbox
from matplotlib.transforms import ScaledTranslation, Transform

from exaul.engine.logs.files import Table
from exaul.engine.registry import LEARNERS
from exaul.engine.results import text_table
from exaul.engine.results.text_table import as_label, even_lines, plain, with_rates

_DASHED, _SHORT, _LONG = (0, (5, 1.5)), (0, (2, 1)), (0, (9, 2))
_DOT, _DOTS = (0, (6, 1.5, 1.5, 1.5)), (0, (4, 1, 1, 1, 1, 1))
# Styles of the learners, in the order of the registry: each has its marker, and equal dashes differ in lightness.
_STYLES = (
    ("#08306b", "-", "o"),
    ("#d94801", _DASHED, "s"),
    ("#41ab5d", _SHORT, "^"),
    ("#969696", _DOT, "D"),
    ("#6a51a3", _DOTS, "v"),
    ("#525252", _LONG, "<"),
    ("#7f0000", _DASHED, ">"),
    ("#dd3497", "-", "*"),
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
BOUND_STYLE: dict[str, Any] = {"linewidth": 1.0, "linestyle": ":", "markersize": 2.5}
DPI = 200  # dots per inch of PNG files (this and the next numbers are chosen)
ROWS = 4  # most rows of panels in a figure, so that it fits on a page (9 inches)
_PANEL_WIDTH, _SINGLE = 2.0, 3.3  # least inches of a panel in a row of several, and of one alone (that of a column)
LETTERS = 14  # of the names of ticks that fit in an inch
PANEL = ["source", "alpha", "lambda"]  # one panel per combination
FDR, ANSWERED = "FDR (wrong, of shown answers)", "answered (of the questions)"
REGRET = "regret (in units of the loss)"
SWEPT = {
    "alpha": "target FDR $\\alpha$",
    "lambda": "weight of the FDR $\\lambda$",
    "eta_scale": "$\\eta$ and $\\gamma$ / the learner's own",
    "gamma_scale": "exploration $\\gamma$ / the learner's own",
    "step": "step (1/40 unless set)",
    "horizon": "rounds $T$",
    "arms": "arms $H$",
}
AT_HORIZON = {"fdr": FDR, "answered": ANSWERED, "regret": REGRET}
BOUNDS = {
    "risk_bound": "limit on any sequence",
    "regret_bound": "bound, with probability {probability}",
    "mean_bound": "bound of the mean",
}
COUNT = "{x:,.10g}"  # how a number of rounds or errors is written
PERCENTILES = "spans the 5th to 95th percentile"  # over trials
LINEAR = 10  # of a logarithmic y axis, where it is linear: from minus this number to it (chosen)
LOG_HORIZON = 1_000_000  # T from which the rounds are on a logarithmic axis (chosen)
BARS = 6  # most values of a line at which there are bars (chosen)
BANDS = 4  # most lines of a panel that have bands; more would hide one another (chosen)
_ASIDE = 2.5, 7.0  # points between bars at the end of lines, and at most between those at a value (chosen)


def with_trials(drawn: dict[str, Figure], trials: Table) -> dict[str, Figure]:
    """Return figures whose notes also say what was played."""
    for figure in drawn.values():
        add_note(figure, f"{plain(text_table.describe_trials(trials))}.")
    return drawn


def in_percent(*axes: Axis) -> None:
    """Label axes of shares in percent."""
    for axis in axes:
        axis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10]))
        axis.set_major_formatter(lambda share, _: f"{100 * share:.4g}%")


def fdr_start(smallest: float, largest: float) -> float:
    """Return where an axis of FDRs begins: at 0, or below the smallest if that is above half of the largest."""
    return max(smallest - max(0.1 * (largest - smallest), 0.01), 0.0) if smallest > largest / 2 else 0.0


def _bars(axes: Axes, x: Any, low: Any, high: Any, style: Mapping[str, Any], aside: float) -> Transform:
    """Draw bars where ``high`` is above ``low``, so many points aside. Return the transform that moves them."""
    moved = axes.transData + ScaledTranslation(aside / 72, 0, axes.figure.dpi_scale_trans)
    drawn = high > low
    bars = axes.vlines(x[drawn], low[drawn], high[drawn], style["color"], linewidth=0.8, clip_on=False)
    bars.set_transform(moved)
    return moved


def _band(
    axes: Axes, x: Any, line: Table, curve: str, style: Mapping[str, Any], first: float = -np.inf, **options: Any
) -> None:
    """Draw the mean of a curve and, of at most ``BANDS`` lines, the band from 5% to 95% beyond the ``first`` x."""
    low, mean, high = (line[f"{curve}_{kind}"] for kind in ("q05", "mean", "q95"))
    if (high > low).any():
        axes.fill_between(x, low, high, where=x > first, color=style["color"], alpha=0.15, linewidth=0)
    axes.plot(x, mean, **style, **options)
    for band in axes.collections:
        band.set_visible(len(axes.collections) <= BANDS)


def _lines_note(panels: list[tuple[Axes, Table]], shown: str = "line", spread: str = "band") -> str:
    """Return what the lines or marks, and their bands or bars, show in the panels."""
    bands = [band.get_visible() for axes, _ in panels for band in axes.collections]  # none if trials are equal
    note = f", its {spread} {PERCENTILES}" * any(bands)
    return f"A {shown} is the mean over trials{note}." * bool(bands)


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, and without its caption and a time stamp as PDF."""
    with rc_context({"pdf.fonttype": 42}):  # some publishers refuse fonts of Type 3, the default
        figure.savefig(path.with_name(path.name + ".png"), dpi=DPI)
        figure.set_layout_engine("none")  # keep the layout of the PNG: laying out again would be slow
        metadata = {"CreationDate": None, "Subject": " ".join(figure.get_supxlabel().split())}
        figure.supxlabel("")
        style: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.02, "metadata": metadata}
        figure.savefig(path.with_name(path.name + ".pdf"), **style)


def over_time(
    curves: Table,
    curve: str,
    label: str,
    segments: int = 1,
    lines: str = "learner",
    by: Sequence[str] = tuple(PANEL),
    dotted: str = "",
) -> Figure:
    """Draw a curve over rounds, on the same y axis in all panels: mean over trials, with a band from 5% to 95%.

    In a panel of more than ``BANDS`` lines, bars from 5% to 95% at the end of each replace the bands.

    Args:
        curves, segments: as in ``draw``.
        curve, label: name of the column, without ``_mean`` (with ``fdr``, alpha is drawn), and of the y axis.
        lines, by: column with a line per value, and columns with a panel per combination of values.
        dotted: column to draw dotted beside each line, unless empty; then large values are on a logarithmic axis.
    """
    are_shares = curve in ("fdr", "answered")
    figure, panels = panel_grid(curves, label + ", up to $t$" * are_shares, [x for x in by if x != lines])
    horizon = curves["t"].max()  # the axis is logarithmic if T is large, or if checkpoints are, for a regret
    log = horizon >= LOG_HORIZON or (bool(dotted) and curves["t"].median() < horizon / 4)
    unit, rounds = (1000, "round $t$ (thousands)") if horizon >= 1000 and not log else (1, "round $t$")
    is_drawn, early = curves[f"{curve}_mean"].notna(), 0.03 * horizon
    late = curves[is_drawn & (curves["t"] > early)]  # the noise of the first rounds would set the scale
    first = early / unit * (are_shares and not log)  # and its bands would hide one another
    kinds = ("mean", "mean") if are_shares else ("q05", "q95")  # bands of few answers would set the scale, too
    tops = (late[column].replace(np.inf, np.nan).max() for column in (f"{curve}_{kinds[1]}", dotted) if column)
    cells = [x for x in by if x != lines]
    is_many = bool((curves[is_drawn].groupby(cells)[lines].nunique() > BANDS).any())
    final = curves[is_drawn].groupby([*cells, lines]).tail(1 if is_many else 0)  # where there are bars
    top = max(curves["alpha"].max() * (curve == "fdr"), *tops, *final[f"{curve}_q95"])
    lowest = min(late[f"{curve}_{kinds[0]}"].min(), *final[f"{curve}_q05"], np.inf)
    low = max(lowest - 0.05, 0.0) if curve == "answered" else min(lowest, 0.0)
    if curve == "fdr":
        settled = late.loc[late["t"] > horizon / 10, "fdr_mean" if is_many else "fdr_q05"]
        low = fdr_start(min(curves["alpha"].min(), settled.min(), *final["fdr_q05"]), top)
    margin = 0.04 * (top - low) or 0.01  # a constant curve has no range
    scale, ends = dict[str, Any](value="linear"), (low - margin, top + 4 * margin)
    if dotted and (log or max(top, -low) > 10 * LINEAR):  # fewer are readable on a linear axis
        scale = {"value": "symlog", "linthresh": LINEAR, "linscale": 0.4, "subs": [3]}  # without a bend at LINEAR
        ends = 2 * low - LINEAR / 10, 2 * top + LINEAR
        if log and late[f"{curve}_mean"].min() > 1:  # then a power of t is a straight line
            scale, ends = {"value": "log"}, (1, 2 * top + LINEAR)
    for axes, rows in panels:
        for number, (style, name, line) in enumerate(styled_lines(rows, lines)):
            if line[f"{curve}_mean"].isna().all():
                continue
            t = line["t"] / unit
            spacing = (0.02 + 0.012 * number, 0.2)  # markers of different lines at different rounds
            shown = style | {"label": as_label(lines, name), "markevery": spacing}
            if is_many:
                axes.plot(t, line[f"{curve}_mean"], **shown)
                end = line[line[f"{curve}_mean"].notna()].tail(1)
                _bars(
                    axes, end["t"] / unit, end[f"{curve}_q05"], end[f"{curve}_q95"], style, _ASIDE[0] * (number + 1)
                )
            else:
                _band(axes, t, line, curve, shown, first)
            if dotted:
                bound = line[dotted].where(line[dotted] < line["t"])  # no R_t and no regret is above t
                if bound.notna().any():
                    axes.plot(t, bound, **style | BOUND_STYLE, markevery=spacing)
        if curve == "fdr":
            axes.axhline(rows["alpha"].iloc[0], label="target $\\alpha$", **TARGET_STYLE)
        for end in np.arange(1, segments) * rows["t"].max() // segments:
            axes.axvline(end / unit, color="#525252", linewidth=0.8, linestyle=":", label="shift")
        axes.set(xscale="log" if log else "linear", xlabel=rounds)
        start = max(rows["t"].min(), rows["t"].max() / 1000 * are_shares)  # shares of few rounds are noise
        width = 72 * axes.get_window_extent().width / figure.dpi
        room = _ASIDE[0] * (rows[lines].nunique() + 1) / width * is_many  # for the bars, as a part of the axis
        last = rows["t"].max() / unit
        axes.set_xlim(start * log, last * ((last / start) ** room if log else 1 + room))
        axes.xaxis.set_major_formatter(COUNT)
        if not log:
            axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10]))
        axes.set_yscale(**scale)
        if dotted:
            axes.yaxis.set(major_formatter=COUNT, minor_formatter=COUNT)
        axes.set_ylim(ends)
        if are_shares:
            in_percent(axes.yaxis)
    note = _lines_note(panels, spread="bar at the end" if is_many else "band")
    note += " Lower shares, of the first rounds, are not shown." * bool((curves[f"{curve}_mean"] < ends[0]).any())
    note += missing_note(curves, is_drawn)
    if dotted:
        note += _bound_note(panels[0][0], curves[is_drawn], dotted, where=" where it is below $t$")
        note += f" From -{LINEAR} to {LINEAR} the y axis is linear." * (scale["value"] == "symlog")
    add_legend(figure, panels, note)
    return figure


def missing_note(rows: Table, is_drawn: Any, lack: str = "shows nothing") -> str:
    """Return what learners lack of which no row is drawn."""
    learners = rows["learner"]
    return "".join(f" {plain(name)} {lack}." for name in learners[~learners.isin(learners[is_drawn])].unique())


def _bound_note(axes: Axes, rows: Table, bound: str, where: str = "") -> str:
    """Add a dotted bound, drawn ``where``, to the legend. Return what it is, and which learners have none."""
    meaning, names = BOUNDS[bound], rows["learner"].str.partition(", ")[0]
    if rows[bound].isna().all():
        return f" No learner here has a proven {meaning.partition(',')[0]}."
    axes.plot([], [], color="#525252", label="proven bound", **BOUND_STYLE)
    note = f" Dotted is the {meaning.format_map({'probability': '1 - delta'} | dict(rows.iloc[0]))}{where}"
    reasons = {" (none for {})": rows[bound].isna(), "; not drawn, since above $T$: {}": rows[bound] == np.inf}
    for reason, holds in reasons.items():
        holds = holds.groupby(rows["learner"]).transform("all")
        listed = names.where(holds.groupby(names).transform("all"), rows["learner"])  # one name for all rates
        note += reason.format(plain(", ".join(listed[holds].unique()))) if holds.any() else ""
    return f"{note}."


def asked_figure(table: Table) -> Figure:
    """Draw what an adaptive environment asked over rounds, one panel per learner, at the first alpha and lambda."""
    table = with_rates(table)
    alpha, lam = table.iloc[0][["alpha", "lambda"]]
    first = table[(table["alpha"] == alpha) & (table["lambda"] == lam)]
    kinds = {"hard": "hard: the answer is wrong", "overconfident": "wrong, score above the pool's mean"}
    kinds["underconfident"] = "right, score below the pool's mean"
    figure, panels = panel_grid(first, "share of the questions asked", by=["learner"])
    for axes, rows in panels:
        for style, (kind, label) in zip(_styles(), kinds.items(), strict=False):
            _band(axes, rows["t"], rows, kind, style | {"marker": ""}, label=label)
        axes.set(xlim=(0, rows["t"].max()), xlabel="round $t$")
        axes.xaxis.set_major_formatter(COUNT)
        axes.set_title(plain(rows["learner"].iloc[0]), fontsize=8)
        in_percent(axes.yaxis)
    cell = f"{as_label('alpha', alpha)} and {as_label('lambda', lam)}" + " (the first)" * (len(first) < len(table))
    add_legend(figure, panels, f"Shares since the last checkpoint, at {cell}. {_lines_note(panels)}")
    return figure


def against(table: Table, swept: str, column: str, by: Sequence[str] = tuple(PANEL), bound: str = "") -> Figure:
    """Draw a column at T, one of ``AT_HORIZON``, against one of ``SWEPT``, as in ``over_time``, on the same y axis.

    ``table`` is as ``trials.csv``, with the share ``answered``; ``by`` and ``bound`` are as ``by`` and ``dotted``.
    With columns ``slope``, and its interval ``low`` to ``high``, the legend names them (with several panels, the
    titles of at most three lines), and a grey line has the slope 1/2. Lines have bars instead of bands if there are
    many, and no line joins only two values. A bound with a single point is named, not drawn.
    """
    figure, panels = panel_grid(table, AT_HORIZON[column], [x for x in by if x != swept])
    lowest, largest = float("inf"), table["alpha"].max() if column == "fdr" else 0.0
    is_growth, values, learners = "slope" in table, table[swept].nunique(), table["learner"].nunique()
    are_marks = values == 2 and not is_growth
    bars, lone = are_marks or (learners > BANDS and values <= BARS), list[str]()
    for axes, rows in panels:
        space = 72 * axes.get_window_extent().width / figure.dpi / (2.5 * values)  # about a third between values
        for number, (style, name, line) in enumerate(styled_lines(rows.dropna(subset=column))):
            by_value, label = line.groupby(swept), plain(str(name))
            quantiles = {f"{column}_q{q:02}": by_value[column].quantile(q / 100) for q in (5, 95)}
            means = by_value[column].mean().to_frame(f"{column}_mean").assign(**quantiles)
            if is_growth and len(panels) == 1:
                label += f": {_slope(line.iloc[0])}" * bool(line["slope"].iloc[0] > 0)
            if bars:
                mark = style | ({"linestyle": ""} if are_marks else {"linewidth": 0.7})
                (marks,) = axes.plot(means.index, means.iloc[:, 0], label=label, **mark)
                aside = (number - (learners - 1) / 2) * min(space / max(learners - 1, 1), _ASIDE[1])
                marks.set_transform(_bars(axes, means.index, means.iloc[:, 1], means.iloc[:, 2], style, aside))
            else:
                _band(axes, means.index, means, column, style, label=label)
            lowest = min(lowest, means.min(axis=None) if column != "regret" else means.iloc[:, 0].min())
            if bound:
                means[bound] = by_value[bound].mean().replace(np.inf, np.nan)
                lone += [str(name)] * int(means[bound].count() == 1)
                if means[bound].count() < 2:
                    means = means.drop(columns=bound)
                else:
                    axes.plot(means.index, means[bound], **style | BOUND_STYLE)
            largest = max(largest, means.max(axis=None))
        if column == "fdr":
            target = rows.groupby(swept)["alpha"].first()
            lowest = min(lowest, target.min())
            if are_marks and swept == "alpha":  # no slope, since marks beside a value would lie on its wrong side
                reach = 0.3 * np.ptp(target.index)
                for alpha in target:
                    axes.plot([alpha - reach, alpha + reach], [alpha] * 2, label="target $\\alpha$", **TARGET_STYLE)
            else:
                axes.plot(target.index, target, label="target $\\alpha$", **TARGET_STYLE)
        if is_growth and len(panels) > 1 and rows["learner"].nunique() <= 3:  # else the title would be too long
            fitted = rows[rows["slope"] > 0].drop_duplicates("learner")
            slopes = [plain(f"{row['learner']} {_slope(row)}") for _, row in fitted.iterrows()]
            axes.set_title("\n".join([axes.get_title(), *slopes]).strip(), fontsize=8)
        axes.set(xlabel=SWEPT[swept])
        are_usual = (rows[swept].between(1e-9, 1e9) | (rows[swept] == 0)).all()  # else the axis may span all floats
        if bars and are_usual:
            axes.margins(x=0.5 / values)
        _at_values(axes, rows[swept], swept == "alpha")
    for axes, rows in panels:
        if column == "regret":
            subs = [2, 3, 5] if largest < 100 * max(lowest, 1) else [3]
            scale = {"value": "log"} if lowest > 0 else {"value": "symlog", "linthresh": 1}
            axes.set_yscale(**scale, subs=subs)
            axes.set_ylim(lowest / 2 if lowest > 0 else min(2 * lowest, -0.5), 2 * largest + 1)
            axes.yaxis.set(major_formatter=COUNT, minor_formatter=COUNT)
            if is_growth and lowest > 0:
                T = np.array([rows[swept].min(), rows[swept].max()])
                middle = np.sqrt(lowest * largest / np.sqrt(T.prod()))  # through that of the panel
                axes.plot(T, middle * np.sqrt(T), color="#969696", linewidth=0.6, label="slope 1/2", zorder=0)
        else:
            start = max(lowest - 0.05, 0) if column == "answered" else fdr_start(lowest, largest)
            axes.set_ylim(start, start + 1.04 * (largest - start) or 1)
            in_percent(axes.yaxis)
    lack = "has a regret of 0" if bound else "shows nothing"
    note = _lines_note(panels, "mark" if are_marks else "line", "bar" if bars else "band")
    note += missing_note(table, table[column].notna(), lack)
    note += " From -1 to 1 the y axis is linear." * (panels[0][0].get_yscale() == "symlog")
    if bound:
        is_cut = bool((table[bound] == np.inf).any())
        note += _bound_note(panels[0][0], table.dropna(subset=column), bound, " where it is below $T$" * is_cut)
        named = plain(", ".join(dict.fromkeys(lone)))
        note += f" A bound with a single point is not drawn: {named}." * bool(lone)
    add_legend(figure, panels, note)
    return figure


def _slope(row: Any) -> str:
    """Return a slope and its interval, if there is one."""
    return f"{row['slope']:.2f}" + (f" ({row['low']:.2f} to {row['high']:.2f})" if row["low"] > -np.inf else "")


def _at_values(axes: Axes, values: Any, are_shares: bool) -> None:
    """Put ticks at some of the values that were measured. The axis is logarithmic, but not with 0 or for shares."""
    values = np.unique(values)
    names = np.array([f"{100 * value:.4g}%" if are_shares else text_table.rounded(value) for value in values])
    is_log = values[0] > 0 and not are_shares
    places = np.log(values) if is_log else values
    letters = LETTERS * axes.get_window_extent().width / axes.figure.dpi  # that fit under the axis
    widths = (np.char.str_len(names) + 1) / letters  # parts of the axis
    chosen = list[int]()
    for n in (len(values) - 1, *range(len(values) - 1)):  # both ends first
        apart = np.minimum((widths[chosen] + widths[n]) / 2, 1)  # else they would overlap
        if (abs(places[chosen] - places[n]) >= apart * np.ptp(places)).all():
            chosen.append(n)
    chosen.sort()
    with np.errstate(over="ignore"):  # a logarithmic axis may span all floats
        axes.set_xscale("log" if is_log else "linear")
    axes.set_xticks(values[chosen], names[chosen])
    axes.xaxis.set_minor_locator(NullLocator())


def styled_lines(rows: Table, column: str = "learner") -> Iterator[tuple[dict[str, Any], Any, Table]]:
    """Yield style, value and rows for each value of a column.

    A learner has one style in all figures. Its later rates are lighter, with another part of the marker filled.
    """
    lines, by_learner = list(rows.groupby(column, sort=False)), column == "learner"
    names = {value: value.partition(", ")[0] if by_learner else value for value, _ in lines}
    styles = dict(zip(dict.fromkeys([*LEARNERS] * by_learner + [*names.values()]), _styles(), strict=False))
    for value, line in lines:
        shades = [x for x in names if names[x] == names[value]]
        style, shade = styles[names[value]], shades.index(value)
        white = 0.75 * shade / len(shades)
        color = tuple(white + (1 - white) * part for part in to_rgb(style["color"]))
        yield style | {"color": color, "fillstyle": _FILLS[shade % len(_FILLS)]}, value, line


def _styles() -> Iterator[dict[str, Any]]:
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
    columns = panel_columns()
    width = min(len(groups), panel_columns(alphas if alphas < len(groups) else 1))
    together = width if width == alphas and len(groups) % alphas == 0 else 1  # panels that are drawn or left out
    count = len(groups) // together
    rows = np.linspace(0, count - 1, min(count, ROWS * width // together)).round().astype(int)
    shown = (together * rows[:, None] + np.arange(together)).ravel()
    size = len(shown)
    height = -(-size // width)
    widest = rcParams["figure.figsize"][0]
    inches = min(widest, max(_SINGLE, width * widest / columns))
    figure = Figure(figsize=(inches, 2.2 * height + 0.6), layout="constrained")
    grid = figure.subplots(height, width, squeeze=False, sharey=True)
    sources = list(table["source"].unique()) if "source" in by else []
    start = text_table.shared_start(sources) if len(sources) > 1 else ""
    add_note(figure, f"Each title begins with {plain(start)}" * bool(start))
    panels = []
    differ = [i for i, column in enumerate(by) if table[column].nunique() > 1]
    titles = [", ".join(as_label(by[i], values[i]) for i in differ) for values, _ in groups]
    for axes, index in zip(grid.flat, shown, strict=False):
        title = sub("([:,])(?! )", r"\1 ", titles[index].removeprefix(plain(start))).replace(" = ", "\xa0=\xa0")
        axes.set_title(
            fill(title, int(13 * inches / width), break_on_hyphens=False).replace("\xa0", " "), fontsize=8
        )
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(which="both", labelsize=8)
        axes.xaxis.label.set_size(8)
        panels.append((axes, groups[index][1]))
    for axes in grid.flat[len(shown) :]:
        axes.set_axis_off()
    if len(groups) > size:
        add_note(figure, f"{len(groups) - size} more panels are not drawn: see the tables.")
    for row in grid:
        row[0].set_ylabel(fill(label, 30, break_on_hyphens=False), fontsize=8)
    return figure, panels


def at_most_wide(inches: float) -> AbstractContextManager[None]:
    """Return a context in which new figures are at most so wide."""
    return rc_context({"figure.figsize": (inches, inches)})


def add_legend(figure: Figure, panels: list[tuple[Axes, Table]], note: str) -> None:
    """Add one legend of all panels at the top, and a note at the bottom; the figure grows by their lines."""
    entries = dict[str, Any]()  # handles by label
    for axes, _ in panels:
        entries |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    columns = max(1, int(figure.get_figwidth() / (0.52 + 0.05 * max(map(len, entries), default=0))))
    lines = max(1, -(-len(entries) // columns))
    columns = max(1, -(-len(entries) // lines))  # entries are spread evenly over the lines
    figure.set_figheight(figure.get_figheight() + 0.15 * max(0, lines - 2))
    style = dict[str, Any](ncols=columns, columnspacing=1.2, handlelength=3, frameon=False, fontsize=7)
    figure.legend([*entries.values()], [*entries], loc="outside upper center" if entries else "center", **style)
    add_note(figure, note)


def add_note(figure: Figure, note: str) -> None:
    """Add lines to the note at the bottom; the figure grows by them."""
    if note:
        width = int(17 * figure.get_figwidth())
        lines = [line for part in note.splitlines() if part.strip() for line in even_lines(part, width)]
        figure.set_figheight(figure.get_figheight() + 0.12 * len(lines))
        figure.supxlabel("\n".join([figure.get_supxlabel(), *lines]).strip(), fontsize=7, color="#444444")
