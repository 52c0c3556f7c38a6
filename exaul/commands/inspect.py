"""``exaul inspect``: describe a log before a sweep."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.commands.flags import Command
from exaul.commands.terminal import show, terminal_width
from exaul.engine import folder
from exaul.engine.checks import as_typed, check_alpha, join_lines, setting
from exaul.engine.logs import diagnosis, files
from exaul.engine.logs.diagnosis import WORDS, diagnose, least_alpha
from exaul.engine.logs.log import Layout, Records, label_of, load_rows, parse_log, read_cells
from exaul.engine.logs.traces import Trace, check_columns, is_folder, load_traces, log_files
from exaul.engine.results.text_table import COMMAND, format_table, plain, shared_start
from exaul.kernels.metrics import FEASIBLE, answerable, every_threshold, risk_coverage, separation, wilson_interval

SHARE_PREFIX = "answerable_"  # prefix of the columns of shares; the alpha follows
TITLE = "the largest share that a threshold answers with an FDR of at most alpha, sorted by the mean over alphas"
CHOICE = "the lowest score to answer, so that on this log the FDR (the share of wrong answers) is at most alpha"
HIGHEST = 1 - 1e-6  # score that is drawn on an axis of logits (chosen)
CROWDED = 0.97  # mean score of a group from which several lie on one another, on a linear axis (chosen)
RELIABILITY_GROUPS = 10  # most groups of rows in the figure of reliability
GAP = 0.02  # of the questions: thresholds that answer shares further apart are not joined by a line (chosen)
FEW_ANSWERS = 30  # of which an FDR is noise (chosen)
FEW_ROWS = 100  # with fewer rows, the standard error of a share may exceed .05


class Inspect(Layout):
    """The log to inspect. Every field is a flag of ``exaul inspect``."""

    log: str = setting(
        MISSING, "log of scored answers, or folder of logs, as for '{exaul} sweep --logs'", "PATH[:COL=VALUE,...]"
    )
    each: tuple[str, ...] = setting((), "compare traces: the rows with equal values in these columns", "COL")
    alphas: tuple[float, ...] = setting((0.01, 0.05, 0.1, 0.2), "target FDR(s), each in (0, 1)", "ALPHA")
    out: str | None = setting(
        None, "folder (absent or empty) for a figure of risk against coverage, or the table of traces", "DIR"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_alpha("alphas", *self.alphas)


def main(arguments: Mapping[str, Any]) -> int:
    """Print error rate, ties, and what fixed thresholds answer; with ``out``, also draw risk against coverage."""
    config = Inspect(**arguments)
    if config.out is not None:
        folder.check_output_folder(config.out)
    names = () if is_folder(config.log) else files.columns(parse_log(config.log)[0])
    score_columns = [name for name in names if name.startswith(f"{config.score}_") and config.score not in names]
    if len(score_columns) == 1:
        config = replace(config, score=score_columns[0])
    if config.each or is_folder(config.log) or len(score_columns) > 1:
        _compare(config, "trace" if config.each or is_folder(config.log) else "score")
        return 0
    records, words, cautions = inspect_log(config)
    scores, errors = records.scores, records.errors
    thresholds = every_threshold(scores)
    coverage, risk = risk_coverage(thresholds, scores, errors)
    rows, best = list[dict[str, Any]](), dict[float, tuple[str, float, float]]()
    alphas = _with_reached(config.alphas, records)
    for alpha in alphas:
        row = {"alpha": alpha, "answer from\na score of": "-", "answered": "0.0%", "FDR": "-"}
        for index in np.flatnonzero(risk <= alpha)[:1]:  # the lowest threshold that holds alpha answers most
            shortest = shortest_between(*thresholds[index - 1 : index + 1]) if index else "0 (all)"
            best[alpha] = shortest, coverage[index], risk[index]
            row |= {"answer from\na score of": shortest, "answered": f"{coverage[index]:.1%}"}
            row["FDR"] = f"{risk[index]:.2%}"
        rows.append(row)
    if config.out is not None:
        from exaul.engine.results import figures  # imports matplotlib

        table = files.Table({"threshold": thresholds, "coverage": coverage, "risk": risk})
        marked = {alpha: best.get(alpha) for alpha in alphas}
        drawn = {"risk-coverage": draw_risk(table, float(errors.mean()), len(scores), marked)}
        drawn["reliability"] = draw_reliability(scores, errors)
        for figure in drawn.values():
            figures.add_note(figure, plain(f"{records.name}, column {config.score}: {len(scores):,} rows."))
        folder.write_new(config.out, {"risk-coverage": table}, drawn)
    best_shares = {alpha: best[alpha][1] if alpha in best else 0.0 for alpha in alphas}
    numbers = {
        "log": records.name,
        **({"score": f"column {config.score}"} if score_columns else {}),
        "rows": f"{len(scores)}" + (f" ({records.dropped} left out)" if records.dropped else ""),
        "error rate": f"{errors.mean():.4f}",
        "distinct scores": f"{len(np.unique(scores))}",
        "ties at 1": f"{np.count_nonzero(scores == 1)} ({(scores == 1).mean():.1%})",
        "above 0.999": f"{(scores > 0.999).mean():.1%}",
    }
    command = _sweep_command(words, best_shares)
    share = separation(scores, errors)  # NaN if all answers are right, or all wrong
    quality = [f"right answers score above wrong ones in {share:.0%} of pairs (50%: chance)"] if share >= 0 else []
    show(
        "\n".join([*(f"{name:<18}{value}" for name, value in numbers.items()), *quality]),
        *cautions,
        CHOICE,
        format_table(rows, terminal_width(), kept=4),
        _describe_least(best_shares, records),
        f"what learners answer of it, and whether one is advised:\n{command}" if any(best_shares.values()) else "",
        f"figures and table: {config.out}" if config.out is not None else "",
    )
    return 0


def inspect_log(config: Inspect) -> tuple[Records, list[str], list[str]]:
    """Return the records of a log, the log and its flags as they are typed, and texts on its defects."""
    records, positions = load_rows(config.log, config)
    words, count = _typed_log(config, config.log, config.score, records.dropped), len(positions)
    findings = diagnose(words, diagnosis.categories(config.log, config), records, positions, config.alphas)
    texts = [f"{x.text}\n{COMMAND}{x.command}" if x.command else x.text for x in findings]
    if records.dropped:
        texts.append(_describe_left_out(config, records, positions))
    few = f"only {count} rows: what a threshold answers of others may differ"
    return records, words, [*texts, *[few] * (count < FEW_ROWS)]


def _describe_left_out(config: Inspect, records: Records, positions: NDArray[np.intp]) -> str:
    """Return a sentence if rows that are left out, not at ``positions``, have another error rate; else nothing."""
    path, selection = parse_log(config.log)
    label = label_of(path, files.columns(path), config)
    cells = read_cells(path, list(dict.fromkeys([label[0], *selection])), selection)
    errors = cells.errors(label, drop_missing=True)[~np.isin(cells.chosen, positions)]
    errors, kept = errors[~np.isnan(errors)], records.errors.mean()
    if len(errors) < diagnosis.LEAST_ROWS or abs(errors.mean() - kept) < diagnosis.LEAST_GAP:
        return ""
    return (
        f"{len(errors):,} rows without a score are left out, and {errors.mean():.1%} of them are wrong ({kept:.1%} "
        "of the others): shares are of the others, so if answers without a score are withheld, less is answered"
    )


def _with_reached(alphas: Sequence[float], records: Records) -> list[float]:
    """Return the alphas; if they are the default ones, and a part is answered at none, with up to three more.

    These are whole percents, from the least at which a threshold answers FEASIBLE to the error rate.
    """
    shares = [answerable(records.scores, records.errors, alpha) for alpha in alphas]
    if tuple(alphas) != Inspect.alphas or any(FEASIBLE <= share < 1 for share in shares):
        return list(alphas)
    percents = np.arange(math.ceil(100 * least_alpha(records)), math.ceil(100 * records.errors.mean()))
    if not len(percents):
        return list(alphas)
    return sorted({*alphas, *(percents[[0, len(percents) // 2, -1]] / 100).tolist()})


def _sweep_command(words: Sequence[str], shares: Mapping[float, float]) -> str:
    """Return a sweep of a log, at the alphas at which a part is answered, if any; ``words`` as ``_typed_log``."""
    feasible = [f"{alpha:g}" for alpha, share in shares.items() if FEASIBLE <= share < 1]
    feasible = feasible or [f"{alpha:g}" for alpha, share in shares.items() if share == 1]
    chosen = feasible if feasible and "0.05" not in feasible else ["0.05"]
    target = [] if "--alphas" in words else ["--alphas", *chosen]
    return f"{COMMAND}{join_lines(as_typed('sweep', '--logs', *words, *target, '--warm-start', '0.5'))}"


def _describe_least(shares: Mapping[float, float], records: Records) -> str:
    """Return a sentence with the alphas at which thresholds answer too little, if any; ``shares`` are by alpha."""
    few = ", ".join(f"{alpha:g}" for alpha, share in shares.items() if share < FEASIBLE)
    if not few:
        return ""
    least = f"{few} (the least alpha at which one does: {least_alpha(records):g}, the edge of these rows)"
    return f"no threshold answers {FEASIBLE:.0%} of this log at alpha = {least}; a learner would mostly abstain"


def draw_risk(
    thresholds: files.Table, error_rate: float, count: int, best: Mapping[float, tuple[str, float, float] | None]
) -> Any:
    """Draw the FDR of thresholds against the share that they answer: the risk-coverage curve.

    The line has gaps where rows tie, and so no threshold lies; circles are at their ends.

    Args:
        thresholds: columns ``coverage`` and ``risk``, which ``kernels.metrics.risk_coverage`` returns.
        error_rate: the FDR if everything is answered.
        count: number of rows; thresholds that answer fewer than ``FEW_ANSWERS`` of them are not drawn.
        best: by alpha, the lowest threshold with an FDR of at most alpha, as text, its coverage and its FDR; None
            if no threshold reaches alpha.
    """
    from exaul.engine.results import figures  # imports matplotlib

    figure, panels = figures.panel_grid(thresholds, figures.FDR)
    axes, reached = panels[0][0], [share for _, share, _ in filter(None, best.values())]
    first = min([FEW_ANSWERS / count, 0.05, *reached])  # FDRs of fewer answers are noise
    few = thresholds["coverage"] < first
    coverage, risk = (thresholds.loc[~few, column].to_numpy() for column in ("coverage", "risk"))
    gaps = 1 + np.flatnonzero(np.abs(np.diff(coverage)) > GAP)
    ends = np.unique(np.add.outer(gaps + np.arange(len(gaps)), (-1, 1)))  # beside the NaN of each gap
    style = dict[str, Any](marker="o" if len(gaps) else "", markersize=4, markerfacecolor="white", markevery=ends)
    line = np.insert(coverage, gaps, np.nan), np.insert(risk, gaps, np.nan)
    axes.plot(*line, label="all thresholds", color="#08306b", **style)
    axes.axhline(error_rate, label="all answered", **figures.TARGET_STYLE)
    labels = list[tuple[float, str, str]]()
    top = max(1.1 * np.nanmax(risk), 1.1 * min(error_rate, max(best)), 0.01)
    alphas_of = dict[tuple[str, float, float] | None, list[float]]()  # which one threshold, or none, holds
    for alpha, of_alpha in best.items():
        alphas_of.setdefault(of_alpha, []).append(alpha)
    for of_alpha, alphas in alphas_of.items():  # right of the mark, the curve is above the largest
        fdr, text = min(*alphas, error_rate), "not reached"  # the curve ends where all is answered
        if of_alpha:
            threshold, share, at_threshold = of_alpha
            axes.plot([1, share, share], [fdr, fdr, 0], color="#525252", linewidth=0.7, linestyle=":")
            axes.plot(share, at_threshold, "o", color="black", markersize=3.5, clip_on=False)
            text = f"{share:.1%}, {threshold}"
        labels.append((fdr, f"{', '.join(f'{100 * alpha:.4g}%' for alpha in alphas)}: {text}", "black"))
    axes.text(1.05, 1.03, "$\\alpha$: answered, least score", fontsize=7, transform=axes.transAxes)
    axes.set(xlabel=figures.ANSWERED, xlim=(0, 1.02), ylim=(0, top))
    figures.in_percent(axes.xaxis, axes.yaxis)
    figures.end_labels(axes, labels)
    note = "A dot is at the largest share that is answered with an FDR of at most $\\alpha$." * any(best.values())
    note += " No threshold lies in a gap between circles." * bool(len(gaps))
    is_cut = (few & (thresholds["coverage"] > 0)).any()
    note += f" Thresholds that answer less than {100 * first:.2g}% are not drawn." * bool(is_cut)
    figures.add_legend(figure, panels, note)
    return figure


def draw_reliability(scores: np.ndarray, errors: np.ndarray) -> Any:
    """Draw the share of right answers, with Wilson's 95% intervals, against the mean score.

    The rows are in at most ten groups: those of one score or, of more scores, groups of about equal size, which do
    not split a score. On the diagonal, a score is the probability that its answer is right.
    """
    from exaul.engine.results import figures  # imports matplotlib

    order, (values, sizes) = np.argsort(scores), np.unique(scores, return_counts=True)
    ends, size, is_grouped = sizes.cumsum(), len(scores) / RELIABILITY_GROUPS, len(values) > RELIABILITY_GROUPS
    borders = [0] if is_grouped else [0, *ends]
    while borders[-1] < len(scores):
        end = ends[np.searchsorted(ends, min(borders[-1] + size, len(scores)))]
        borders.append(end if len(scores) - end >= size / 2 else len(scores))
    counts = np.diff(borders)
    score, right = (np.add.reduceat(x[order], borders[:-1]) / counts for x in (scores, 1 - errors))
    figure, panels = figures.panel_grid(files.Table({"score": score}), "share of right answers")
    axes, probabilities = panels[0][0], 1 - np.geomspace(1, 1 - HIGHEST, 500)
    axes.plot(probabilities, probabilities, label="score = share right", **figures.TARGET_STYLE)
    rows = " to ".join(f"{count:,}" for count in sorted({counts.min(), counts.max()}))
    label = f"groups of {rows} rows" if is_grouped else f"each score: {rows} rows"
    style = dict[str, Any](label=label, color="#08306b", marker="o", markersize=4)
    style["linestyle"] = "-" if is_grouped else "none"
    shown = score.clip(max=HIGHEST)
    axes.plot(shown, right, **style)
    low, high = np.transpose([wilson_interval(*group) for group in zip(right, counts, strict=True)])
    axes.vlines(shown, low, high, color="#08306b", linewidth=0.8)
    axes.set_xlabel("score" + ", mean of the group" * is_grouped)
    axes.set_ylim(max(low.min() - 0.05, 0), min(max(high.max(), shown.max()) + 0.05, 1.02))  # with the diagonal
    axes.set_xlim(max(score.min() - 0.05, 0), min(score.max() + 0.05, 1.02))
    crowded = counts[score > CROWDED]
    if len(crowded) > 1 and crowded.sum() > 0.15 * len(scores) and score.min() > 0:  # they would lie on one another
        first = score.min() / (1 + score.min())  # half of its odds
        ticks = [x for x in (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, HIGHEST) if x > first]
        axes.set_xscale("logit")
        axes.set_xlabel(f"{axes.get_xlabel()} (log-odds scale)")
        axes.set_xticks(ticks, map(str, ticks))
        axes.set_xticks([], minor=True)
        axes.set_xlim(first, 1 - (1 - shown.max()) / 2)
    figures.in_percent(axes.yaxis)
    note = f" Means above {HIGHEST} are at it." * bool(score.max() > HIGHEST and axes.get_xscale() == "logit")
    figures.add_legend(figure, panels, f"Bars are 95% intervals (Wilson's).{note}")
    return figure


def shortest_between(low: float, high: float) -> str:
    """Return the decimal with the fewest digits that is above ``low`` and at most ``high``, two scores."""
    digits = (f"{math.floor(high * 10**n) / 10**n:.{n}f}" for n in range(17))
    return next((text for text in digits if low < float(text) <= high), repr(high))


def _compare(config: Inspect, title: str) -> None:
    """Print a table with a line per ``title``, a trace or a score of a log; write it to ``out``."""
    rows, lines, advice = list[dict[str, Any]](), list[dict[str, str]](), ""
    inspected, sweeps = list[list[str]](), list[str]()  # each log with its flags, as typed; the sweep of each score
    for file in log_files(config.log):
        columns = diagnosis.categories(file, config)
        for trace in load_traces(file, config, config.each):
            records = trace.records
            share = partial(answerable, records.scores, records.errors)
            shares = {alpha: share(alpha) if len(records.scores) else math.nan for alpha in config.alphas}
            inspected.append(_typed_log(config, trace.log, trace.score, records.dropped))
            findings = diagnose(inspected[-1], columns, records, trace.rows, config.alphas)
            row = {
                "trace": records.name,
                "records": len(records.scores),
                "dropped": records.dropped,
                "error_rate": float(records.errors.mean()) if len(records.scores) else math.nan,
                **{f"{SHARE_PREFIX}{alpha:g}": share for alpha, share in shares.items()},
                "defects": " ".join(finding.word for finding in findings),
            }
            rows.append(row)
            lines.append(_line(title, trace, row))
            if title == "score":
                alphas = _with_reached(config.alphas, records) if len(records.scores) else ()
                sweeps.append(_sweep_command(inspected[-1], {alpha: share(alpha) for alpha in alphas}))
    check_columns(config.each, [log for log, *_ in inspected])
    if config.out is not None:
        folder.write_new(config.out, {"inspection": files.Table(rows)}, {})
    meanings = [f"{word}: {text}" for word, text in WORDS.items() if any(word in row["defects"] for row in rows)]
    totals = np.array([sum(row[name] for name in row if name.startswith(SHARE_PREFIX)) for row in rows])
    order = np.argsort(-totals, kind="stable")  # what answers most first; NaN, which has no records, last
    complete = [n for n in order.tolist() if rows[n]["records"]]
    if title == "trace" and 0 < len(complete) < len(rows):
        meanings.append(f"traces left out, without a score or a label: {len(rows) - len(complete)}")
        order = np.array(complete)
    if any(rows[n]["dropped"] for n in order):
        meanings.append("rows in brackets: left out, without a score or a label")
    first = [join_lines(as_typed("inspect", *inspected[n])) for n in order if rows[n]["defects"]][:1]
    with_numbers = [f"the first {title} with a defect, with its numbers: {x}" for x in first]
    if title == "score":
        meanings.append("right above wrong: probability that a right answer scores above a wrong one (chance: 1/2)")
        best, is_only = order[0], np.count_nonzero(totals >= 0) == 1  # the others have no values
        says = "only {} has values:" if is_only else "over these alphas, {} answers most:"
        advice = f"{says.format(join_lines(lines[best][title]))}\n{sweeps[best]}"
        if not totals[best] > 0:
            nothing = "no threshold of these scores reaches alpha; a learner would mostly abstain"
            advice = nothing if totals[best] == 0 else "no row has a score and a label"
    start = shared_start([lines[n][title] for n in order]) if title == "trace" else ""
    heads = [TITLE, f"each name begins with {join_lines(start)}"] if start else [TITLE]
    shortened = [lines[n] | {title: lines[n][title].removeprefix(start)} for n in order]
    for line in shortened if not with_numbers else ():  # no log has a defect
        del line["defects"]
    show(
        "\n".join([*heads, format_table(shortened, terminal_width(), names=2)]),
        "\n".join([*meanings, *with_numbers]),
        advice,
        f"table: {config.out}" if config.out is not None else "",
    )


def _line(title: str, trace: Trace, row: Mapping[str, Any]) -> dict[str, str]:
    """Return the line of a trace in the table of traces or of scores, from its ``row``."""
    answerable = {f"answered\nat {x.removeprefix(SHARE_PREFIX)}": x for x in row if x.startswith(SHARE_PREFIX)}
    shares = answerable | {"error rate": "error_rate"}
    line = {
        title: trace.records.name if title == "trace" else trace.score,
        "defects": row["defects"],
        **{shown: "-" if math.isnan(row[name]) else f"{row[name]:.1%}" for shown, name in shares.items()},
        "rows": f"{row['records']}" + (f" (-{row['dropped']})" if row["dropped"] else ""),
    }
    if title == "score":
        scores = trace.records.scores
        above = separation(scores, trace.records.errors)
        line["right above wrong"] = f"{above:.3f}" if above >= 0 else "-"
        line["distinct scores"] = f"{len(np.unique(scores))}"
        line["ties at 1"] = f"{(scores == 1).mean():.1%}" if len(scores) else "-"
    return line


def _typed_log(config: Inspect, log: str, score: str, dropped: int) -> list[str]:
    """Return a log, the flags of its columns and the targets, as they are typed."""
    columns = replace(config, score=score, drop_missing=config.drop_missing or dropped > 0)
    alphas = [] if config.alphas == Inspect.alphas else ["--alphas", *(f"{alpha:g}" for alpha in config.alphas)]
    return [log, *columns.as_flags(), *alphas]


COMMANDS = {"inspect": Command((Inspect,), main)}
