"""Draw the figures of a sweep from ``trials.csv``, ``curves.csv`` and ``asked.csv``."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exaul.engine.logs.files import Table, stack
from exaul.engine.results.advice import FDR_TOLERANCE
from exaul.engine.results.answered_figure import answered_against_wrong, is_advised
from exaul.engine.results.figures import (
    ANSWERED,
    COUNT,
    FDR,
    LETTERS,
    MARKS,
    MIDDLE,
    PANEL,
    ROUND,
    TARGET,
    TARGET_STYLE,
    Axes,
    Figure,
    add_legend,
    add_note,
    end_bars,
    end_labels,
    fdr_start,
    in_percent,
    mark,
    missing_note,
    panel_grid,
    styled_lines,
    tick_count,
    with_trials,
)
from exaul.engine.results.text_table import as_label, plain, rounded, with_answered, with_rates

REGRET = "regret (in units of the loss)"
OVER_TIME = {  # by name of the figure: ``curve``, ``label`` and ``dotted`` of ``over_time``
    "fdr": ("fdr", FDR, ""),
    "answered-over-time": ("answered", ANSWERED, ""),
    "risk": ("fdr_risk", "wrong above the target, $R_t$", "risk_bound"),
    "regret": ("regret", REGRET, "regret_bound"),
}
SWEPT = {
    "alpha": "target FDR $\\alpha$",
    "lambda": "weight of the FDR $\\lambda$",
    "eta_scale": "factor of $\\eta$ and $\\gamma$",
    "gamma_scale": "factor of $\\gamma$",
    "step": "step",
    "horizon": "rounds $T$",
    "arms": "arms $H$",
}
AT_HORIZON = {"fdr": FDR, "answered": ANSWERED, "regret": REGRET}
BOUNDS = {
    "risk_bound": "limit on any sequence (largest of the trials)",
    "regret_bound": "bound of the regret with probability {probability}",
    "mean_bound": "bound of the mean",
}
BOUND_STYLE: dict[str, Any] = {"linewidth": 1.0, "linestyle": (0, (1, 2)), "markersize": 2.5}
LARGE, LEAST_REGRET = 10, 0.1  # regret from which its figure is logarithmic, and the least in it (chosen)
NEAR = 0.9  # share of T from which a bound says too little to be drawn (chosen)
FEW_ANSWERS = 10  # of half of the trials, from which on an FDR is drawn (chosen)
BEYOND = 3  # how many times as far as the learners with a limit an axis of R_t reaches at most (chosen)
LOG_HORIZON = 1_000_000  # T from which the rounds are on a logarithmic axis (chosen)
EARLY, SETTLED = 0.03, 0.1  # of the rounds: earlier noise does not set an axis, nor does that of FDRs (chosen)
EARLIEST = 0.001  # of logarithmic rounds: that of shares is not drawn before (chosen)
MARKERS = 0.22 * np.arange(4)  # where a line over rounds has its markers, in parts of the axis (chosen)
ASKED = 20  # points of a line of what was asked (chosen)
GREYS = ("black", "-"), ("#737373", "--"), ("#525252", ":")  # styles of lines that are no learners
BARS = 6  # most values that stand apart, each with its marks and bars (chosen)
BANDS = 4  # most lines of a panel that have bands; more would hide one another (chosen)


def draw(
    trials: Table,
    curves: Table,
    segments: int = 1,
    best: Mapping[Any, str] = {},
    ceilings: Mapping[Any, float] = {},
) -> dict[str, Figure]:
    """Return all figures of a sweep, by file name without ending, from ``trials.csv`` and ``curves.csv``.

    Lines show the shifts between ``segments`` of one source each. By source and alpha, ``best`` is the advised
    learner (NONE if there is none), and ``ceilings`` the largest share that a threshold answers.
    """
    curves, named, cells = with_answered(with_rates(curves)), with_rates(trials), [*PANEL, "learner"]
    drawn = {"answered": answered_against_wrong(named, best, ceilings)}
    at_end = curves.groupby(cells)["fdr_mean"].transform("last"), named.groupby(cells)["fdr"].transform("mean")
    ringed = best if trials["warm_start"].notna().any() else {}
    curves, trials = (
        x.assign(advised=is_advised(x, ringed), misses=fdr > x["alpha"] + FDR_TOLERANCE)
        for x, fdr in zip((curves, trials), at_end, strict=True)
    )
    ends = curves.groupby(cells)[["t", "answered_mean", "regret_bound"]].transform("max")
    curves.loc[ends["answered_mean"] == 0, ["fdr_mean", "answered_mean"]] = np.nan  # no FDR without answers
    answers = ((1 - curves["inefficiency_q50"]) * curves["t"]).round()
    enough = answers.groupby([curves[x] for x in cells]).transform("max").clip(1, FEW_ANSWERS)
    curves.loc[answers < enough, "fdr_mean"] = np.nan  # of few answers, it would be noise
    curves.loc[curves["regret_bound"] == 0, "regret_bound"] = np.nan  # the bound of best-fixed holds at T alone
    curves.loc[ends["regret_bound"] >= NEAR * ends["t"], "regret_bound"] = np.inf  # no regret is above T
    trials = trials.assign(answered=1 - trials["inefficiency"])
    trials.loc[trials.groupby("learner")["answered"].transform("max") == 0, "answered"] = np.nan
    trials.loc[trials["regret_bound"] >= trials["horizon"], "regret_bound"] = np.inf
    trials.loc[trials["learner"] == "best-fixed", "regret"] = np.nan  # 0 at T, by definition
    for name, (curve, label, bound) in OVER_TIME.items():
        if curves[f"{curve}_mean"].notna().any():
            drawn[name] = over_time(curves, curve, label, segments, dotted=bound)
    starts = curves.dropna(subset="fdr_mean").groupby(cells)["t"].min()
    if (starts > SETTLED * curves["t"].max()).any():
        add_note(drawn["fdr"], f"A line begins where half of the trials have {FEW_ANSWERS} answers.")
    if ((curves["inefficiency_q95"] == 1) & curves["fdr_mean"].notna()).any():
        add_note(drawn["fdr"], "Until a trial answers, its FDR counts as $\\alpha$.")
    for swept in (x for x in SWEPT if x in trials and trials.groupby("source")[x].nunique().max() > 1):
        played = with_rates(trials[trials[swept].notna()], but=swept)
        lacking = ", ".join(trials.loc[trials[swept].isna(), "learner"].unique())
        for column in (column for column in AT_HORIZON if played[column].notna().any()):
            name = f"{column}-by-{swept.replace('_', '-')}"
            drawn[name] = against(played, swept, column, bound="regret_bound" * (column == "regret"))
            add_note(drawn[name], f"Not drawn, without this rate: {plain(lacking)}." * bool(lacking))
    return with_trials(drawn, trials)


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

    If a panel has more than ``BANDS`` lines, or several of one learner, whose bands would be of one color, bars
    from 5% to 95% at T, right of the panel, replace the bands. A line that never meets the axis is not drawn.

    Args:
        curves, segments: as in ``draw``.
        curve, label: name of the column, without ``_mean`` (with ``fdr``, alpha is drawn), and of the y axis.
        lines, by: column with a line per value, and columns with a panel per combination of values.
        dotted: column to draw dotted beside each line, unless empty.
    """
    are_shares, cells = curve in ("fdr", "answered"), [x for x in by if x != lines]
    figure, panels = panel_grid(curves, label, cells)
    drawn, horizon = curves[curves[f"{curve}_mean"].notna()], curves["t"].max()
    # the rounds are logarithmic if T is large, or if checkpoints or the regrets are; bands of few rounds are wide
    is_log = horizon >= LOG_HORIZON or curves["t"].median() < horizon / 4
    are_rates = drawn[lines].nunique() > drawn[lines].astype(str).str.partition(", ")[0].nunique()
    is_crowded = bool((drawn.groupby(cells)[lines].nunique() > BANDS).any()) or are_rates or (is_log and are_shares)
    last = drawn.groupby([*cells, lines]).tail(1)
    scale, ends = _y_axis(drawn, last[: len(last) * is_crowded], curve, dotted, is_log)
    is_log |= scale == "log"
    unit, rounds = (1000, "round $t$ (thousands)") if horizon >= 1000 and not is_log else (1, "round $t$")
    above = drawn[drawn[f"{curve}_mean"] > ends[0]] if scale == "log" else drawn
    start = max(above["t"].min(), EARLIEST * horizon * are_shares)  # shares of few rounds are noise
    for axes, rows in panels:
        axes.set_xscale("log" if is_log else "linear", **{"subs": [3]} if is_log else {})
        axes.set(xlabel=rounds, xlim=(start * is_log, rows["t"].max() / unit))
        axes.set_yscale(scale, **{"subs": [3]} if scale == "log" else {})
        axes.set_ylim(ends)
        bars = list[tuple[float, float, dict[str, Any]]]()
        for number, (style, name, line) in enumerate(styled_lines(rows.dropna(subset=f"{curve}_mean"), lines)):
            mean = line[f"{curve}_mean"]
            if not mean.between(*ends).any():
                continue
            places = 0.05 + 0.02 * number + MARKERS  # parts of the axis, others for each line
            t = np.log(line["t"]) if is_log else line["t"]
            marked = np.searchsorted(t, t.iloc[0] + places % 0.95 * (t.iloc[-1] - t.iloc[0]))
            spaced = style | {"markevery": np.unique(marked).tolist()}
            end = line.iloc[[marked.max()]]  # the last marker
            mark(axes, end["t"] / unit, end[f"{curve}_mean"], end, curve)
            if not is_crowded:
                _band(axes, line["t"] / unit, line, curve, style)
            axes.plot(line["t"] / unit, mean, label=as_label(lines, name), **spaced)
            bars.append((line[f"{curve}_q05"].iloc[-1], line[f"{curve}_q95"].iloc[-1], style))
            if dotted:
                bound = line[dotted].where(line[dotted] < line["t"])  # no R_t and no regret is above t
                if bound.count() > 1:
                    axes.plot(line["t"] / unit, bound, **spaced | BOUND_STYLE)
        if is_crowded:
            end_bars(axes, bars)
        if curve == "fdr":
            axes.axhline(rows["alpha"].iloc[0], label=TARGET, **TARGET_STYLE)
        for end in np.arange(1, segments) * rows["t"].max() // segments:
            axes.axvline(end / unit, color="#525252", linewidth=0.8, linestyle=":", label="shift")
        axes.xaxis.set_major_formatter(COUNT)
        if is_log:  # a few decades have room for labels between them
            axes.xaxis.set_minor_formatter(COUNT if horizon < 100 * start else "")
        else:
            axes.locator_params(axis="x", steps=ROUND, nbins=tick_count(axes))
        if dotted:
            axes.yaxis.set(major_formatter=COUNT, minor_formatter=COUNT)
        if are_shares:
            in_percent(axes.yaxis)
    spread, until = "bar at its end" if is_crowded else "band", " up to round $t$" * are_shares
    note = _spread_note(drawn, curve, "Line", spread, until)
    at_end = drawn.groupby([*cells, lines])[f"{curve}_mean"].transform("last")
    stays = at_end.between(*ends)
    columns = [f"{curve}_mean", *[f"{curve}_q05", f"{curve}_q95"] * (not is_crowded)]
    shown = drawn[stays].set_index("t")[columns]
    cut = shown.index[((shown < ends[0]) | (shown > ends[1])).any(axis=1)] if scale == "linear" else []
    until = f"Until $t$ = {max(cut):,}, values" if len(cut) and max(cut) < horizon else "Values"
    note += f" {until} beyond the axis are not shown." * bool(len(cut))
    note += missing_note(drawn, stays, "Beyond the axis at $T$", at_end)
    note += missing_note(curves, curves[f"{curve}_mean"].notna())
    if dotted:
        note += _bound_note(panels[0][0], drawn, dotted, where=", drawn where below $t$")
    add_legend(figure, panels, note)
    return figure


def _y_axis(drawn: Table, final: Table, curve: str, dotted: str, is_log: bool) -> tuple[str, tuple[float, float]]:
    """Return the scale and the ends of the y axis of ``over_time``.

    ``final`` are the rows whose bars are drawn; ``is_log`` says whether the rounds are logarithmic.
    """
    early = EARLIEST if is_log else SETTLED if curve == "fdr" else EARLY
    late = drawn[drawn["t"] > early * drawn["t"].max()]
    low_end, high_end = ("mean", "mean") if len(final) else ("q05", "q95")  # of what is drawn
    lowest = min(late[f"{curve}_{low_end}"].min(), *final[f"{curve}_q05"], np.inf)
    top = max(late[f"{curve}_{high_end}"].max(), *final[f"{curve}_q95"], -np.inf)
    low = max(lowest - 0.05, 0.0) if curve == "answered" else min(lowest, 0.0)
    if curve == "fdr":
        top = max(top, drawn["alpha"].max())
        low = fdr_start(min(lowest, drawn["alpha"].min()), top)
    held = late[late[dotted].replace(np.inf, np.nan).notna()] if dotted else late[:0]
    if len(held):
        bounded = max(held[dotted].max(), held[f"{curve}_q95"].max())
        if dotted == "risk_bound" and max(top, -low) > BEYOND * bounded:  # these must stay readable
            top, low = 0.0, min(held[f"{curve}_q05"].min(), 0.0)
        top = max(top, bounded)
    if dotted == "regret_bound" and top > LARGE:  # a power of t is a straight line
        positive = drawn[drawn[f"{curve}_mean"] > 0].set_index("t")[f"{curve}_mean"]
        at_end = positive[positive.index == drawn["t"].max()].min()
        return "log", (max(positive.min() / 2, min(1, at_end / 2), LEAST_REGRET), 2 * top)
    margin = 0.04 * (top - low) or 0.01  # a constant curve has no range
    return "linear", (low - margin, top + 4 * margin)


def against(table: Table, swept: str, column: str, by: Sequence[str] = tuple(PANEL), bound: str = "") -> Figure:
    """Draw a column at T, one of ``AT_HORIZON``, against one of ``SWEPT``, as in ``over_time``, on the same y axis.

    If there are two values, or up to ``BARS`` and many learners, each value has a place on the x axis, where the
    marks of the learners stand side by side with bars. A bound with a single point is not drawn, but named.

    Args:
        table: as ``trials.csv``, with the share ``answered``. One with a ``slope`` is of ``regret_scaling``: it has
            the quantiles, a grey line has the slope 1/2, and slopes, with their interval from ``low`` to ``high``,
            are in the legend; those of several panels are beside the lines.
        swept, column: of the x and the y axis.
        by, bound: as ``by`` and ``dotted`` of ``over_time``.
    """
    figure, panels = panel_grid(table, AT_HORIZON[column], [x for x in by if x != swept])
    values, learners, is_growth = np.unique(table[swept]), table["learner"].nunique(), "slope" in table
    are_apart = not is_growth and (len(values) == 2 or (learners > BANDS and len(values) <= BARS))
    drawn = []
    for axes, rows in panels:
        styled = styled_lines(rows.dropna(subset=column))
        lines = [(style, name, _means_by_value(line, swept, column, bound)) for style, name, line in styled]
        drawn.append((axes, rows, lines))
    bound_style = BOUND_STYLE | ({"linestyle": "", "marker": "_", "markersize": 6} if are_apart else {})
    means = [line for *_, lines in drawn for line in lines]
    points = stack([line for *_, line in means])
    if not are_apart and learners > BANDS:  # no spread is drawn
        points[f"{column}_q05"] = points[f"{column}_q95"] = points[f"{column}_mean"]
    scale, ends = _y_axis_at(points, table, column)
    for axes, rows, lines in drawn:
        axes.set(xlabel=SWEPT[swept])
        axes.set_yscale(**scale)
        axes.set_ylim(ends)
        if are_apart:
            axes.set_xticks(range(len(values)), [_name_of(value, swept) for value in values])
            axes.set_xlim(-0.5, len(values) - 0.5)
            for number in range(1, len(values)):
                axes.axvline(number - 0.5, color="#d9d9d9", linewidth=0.6, zorder=0)
        else:
            _tick_values(axes, values, swept)
        for number, (style, name, line) in enumerate(lines):
            x, label, look = line.index.to_numpy(), plain(str(name)), style
            if is_growth and len(panels) == 1 and line["slope"].iloc[0] > 0:
                label += f": slope {_with_interval(line.iloc[0])}"
            if are_apart:
                x = np.searchsorted(values, x) + (number - (learners - 1) / 2) * min(0.5 / learners, 0.12)
                look = style | {"linestyle": ""}
                axes.vlines(x, line[f"{column}_q05"], line[f"{column}_q95"], style["color"], linewidth=0.8)
            elif learners <= BANDS:
                _band(axes, x, line, column, style)
            axes.plot(x, line[f"{column}_mean"], label=label, **look)
            if bound and line[bound].count() > (0 if are_apart else 1):
                axes.plot(x, line[bound], **style | bound_style)
            mark(axes, x, line[f"{column}_mean"], line, column)
        if column == "fdr":
            target = rows.groupby(swept)["alpha"].first()
            middle = np.searchsorted(values, target.index)
            steps = np.ravel([middle - 0.5, middle + 0.5], "F"), np.repeat(target, 2)  # a step for each value
            axes.plot(*(steps if are_apart else (target.index, target)), label=TARGET, **TARGET_STYLE)
        if column == "regret":
            axes.yaxis.set(major_formatter=COUNT, minor_formatter=COUNT)
        else:
            in_percent(axes.yaxis)
        if is_growth and lines:
            _draw_slopes(axes, lines, len(panels) > 1)
    note = _spread_note(points, column, *("Mark", "bar") if are_apart else ("Line", "band"))
    note += " The number beside a line is its slope." * (is_growth and len(panels) > 1)
    note += missing_note(table, table[column].notna(), "With a regret of 0" if bound else "Without answers")
    if bound:
        is_cut = bool((table[bound] == np.inf).any())
        where, known = ", drawn where below $T$" * is_cut, table.dropna(subset=column)
        note += _bound_note(panels[0][0], known, bound, where, bound_style)
        lone = plain(", ".join(dict.fromkeys(str(name) for _, name, line in means if line[bound].count() == 1)))
        note += f" A bound with a single point is not drawn: {lone}." * (bool(lone) and not are_apart)
    add_legend(figure, panels, note)
    return figure


def _means_by_value(line: Table, swept: str, column: str, bound: str) -> Table:
    """Return mean and quantiles of a column at each value, with a bound and slopes if there are any."""
    groups = line.groupby(swept)
    means = groups[column].mean().to_frame(f"{column}_mean")
    for q in (5, 95):
        name = f"{column}_q{q:02}"
        means[name] = groups[name].mean() if name in line else groups[column].quantile(q / 100)
    means = means.join(groups[[x for x in MARKS if x in line]].any())
    if bound:
        means[bound] = groups[bound].mean().replace(np.inf, np.nan)
    return means.assign(**{x: line[x].iloc[0] for x in ("slope", "low", "high") if x in line})


def _y_axis_at(means: Table, table: Table, column: str) -> tuple[dict[str, Any], tuple[float, float]]:
    """Return the scale and the ends of the y axis of ``against``."""
    shown = means.filter(regex=f"^{column}_|bound$")
    lowest, largest = shown.min(axis=None), shown.max(axis=None)
    if column == "answered":
        return {"value": "linear"}, (max(lowest - 0.05, -0.02 * largest), 1.04 * largest or 1)
    if column == "fdr":
        lowest, largest = min(lowest, table["alpha"].min()), max(largest, table["alpha"].max())
        start = fdr_start(lowest, largest)
        return {"value": "linear"}, (start, start + 1.04 * (largest - start) or 1)
    positive = shown.where(shown > 0).min(axis=None)
    if not (means[f"{column}_mean"] > 0).all():
        margin = 0.04 * (largest - lowest) or 1
        return {"value": "linear"}, (lowest - margin, largest + margin)
    low = positive / 2
    return {"value": "log", "subs": [2, 3, 5] if largest < 100 * max(low, 1) else [3]}, (low, 2 * largest + 1)


def _draw_slopes(axes: Axes, lines: Sequence[tuple[Any, Any, Table]], are_beside: bool) -> None:
    """Draw a line of slope 1/2 below all lines and, if asked for, the slopes beside the lines."""
    if axes.get_yscale() == "log":
        T = lines[0][2].index.to_numpy()
        starts = ((x["regret_bound"].isna().all(), (x.iloc[:, 0] / np.sqrt(x.index)).min()) for *_, x in lines)
        height = 0.8 * min(starts)[1]  # below the learners with a bound, if any
        axes.plot(T, height * np.sqrt(T), color="#969696", linewidth=0.6, label="slope 1/2", zorder=0)
    sloped = [(style, line) for style, _, line in lines if line["slope"].iloc[0] > 0]
    if are_beside:
        end_labels(axes, [(x.iloc[-1, 0], f"{x['slope'].iloc[0]:.2f}", style["color"]) for style, x in sloped])


def _with_interval(row: Any) -> str:
    """Return a slope and its interval, if there is one."""
    return f"{row['slope']:.2f}" + (f" ({row['low']:.2f} to {row['high']:.2f})" if row["low"] > -np.inf else "")


def _name_of(value: float, swept: str) -> str:
    """Return a value that was swept as text."""
    return f"{100 * value:.4g}%" if swept == "alpha" else rounded(value)


def _tick_values(axes: Axes, values: Any, swept: str) -> None:
    """Put ticks at some of the values that were measured. The axis is logarithmic, but not with 0 or for shares."""
    names = np.array([_name_of(value, swept) for value in values])
    is_log = values[0] > 0 and swept != "alpha"
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
    axes.set_xticks([], minor=True)


def asked_figure(table: Table) -> Figure:
    """Draw what an adaptive environment asked over rounds, one panel per learner, at the first alpha and lambda."""
    table = with_rates(table)
    alpha, lam = table.iloc[0][["alpha", "lambda"]]
    first = table[(table["alpha"] == alpha) & (table["lambda"] == lam)]
    kinds = {"hard": "hard: the answer is wrong", "overconfident": "wrong, score above the pool's mean"}
    kinds["underconfident"] = "right, score below the pool's mean"
    figure, panels = panel_grid(first, "share of the questions asked", by=["learner"])
    for axes, rows in panels:
        asked = rows["t"].diff().fillna(rows["t"])
        part = np.arange(len(rows)) * ASKED // max(len(rows), ASKED)  # of the rounds; fewer questions are noise
        for (kind, label), (color, dashes) in zip(kinds.items(), GREYS, strict=True):
            share = (rows[f"{kind}_mean"] * asked).groupby(part).sum() / asked.groupby(part).sum()
            axes.plot(rows["t"].groupby(part).max(), share, dashes, color=color, linewidth=1.2, label=label)
        axes.set(xlim=(0, rows["t"].max()), xlabel="round $t$")
        axes.locator_params(axis="x", nbins=3)
        axes.xaxis.set_major_formatter(COUNT)
        axes.set_title(plain(rows["learner"].iloc[0]), fontsize=8)
        in_percent(axes.yaxis)
    cell = f"{as_label('alpha', alpha)} and {as_label('lambda', lam)}" + " (the first)" * (len(first) < len(table))
    add_legend(figure, panels, f"Shares of each twentieth of the rounds, mean over trials, at {cell}.")
    return figure


def _band(axes: Axes, x: Any, rows: Table, curve: str, style: Mapping[str, Any]) -> None:
    """Draw the band from 5% to 95% of a curve, if trials differ."""
    low, high = rows[f"{curve}_q05"].clip(lower=axes.get_ylim()[0]), rows[f"{curve}_q95"]  # a log has no 0
    if (high > low).any():
        axes.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)


def _spread_note(rows: Table, curve: str, shown: str, spread: str, until: str = "") -> str:
    """Return what the lines or marks of a curve show, and their bands or bars, unless trials are equal."""
    has_spread = bool((rows[f"{curve}_q95"] > rows[f"{curve}_q05"]).any())
    return f"{shown}: mean over trials{until}{f'; {spread}: {MIDDLE}' * has_spread}."


def _bound_note(axes: Axes, rows: Table, bound: str, where: str, style: Mapping[str, Any] = BOUND_STYLE) -> str:
    """Add a bound, dotted or dashes, to the legend. Return what it is and where, and if learners have none."""
    meaning, names = BOUNDS[bound], rows["learner"].str.partition(", ")[0]
    if rows[bound].isna().all():
        return f" No learner here has a proven {meaning.partition(' (')[0].partition(' with')[0]}."
    axes.plot([], [], color="#525252", label="proven bound", **style)
    shown = "Dash" if "marker" in style else "Dotted"
    note = f" {shown}: {meaning.format_map({'probability': '1 - delta'} | dict(rows.iloc[0]))}{where}"
    above, lacking = (
        x.groupby(rows["learner"]).transform("all") for x in (rows[bound] == np.inf, rows[bound].isna())
    )
    listed = names.where(above.groupby(names).transform("all"), rows["learner"])  # one name for all rates
    note += f"; not drawn, since near $T$ or above: {plain(', '.join(listed[above].unique()))}" * bool(above.any())
    return note + "; others have\xa0none" * bool(lacking.any()) + "."
