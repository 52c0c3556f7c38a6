"""``exaul inspect``: describe a log before a sweep."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from typing import Any

import numpy as np

from exaul.commands.flags import Command
from exaul.commands.terminal import terminal_width
from exaul.engine import folder, machine
from exaul.engine.checks import MOST, BadInput, check_holds, join_lines, setting, typed
from exaul.engine.logs import files
from exaul.engine.logs.diagnosis import WORDS, Categories, categories, diagnose
from exaul.engine.logs.log import Layout, load_rows, parse_log
from exaul.engine.logs.traces import Trace, is_folder, load_traces, log_files
from exaul.engine.results.advice import FEASIBLE
from exaul.engine.results.text_table import COMMAND, align_decimals, format_table, wrap
from exaul.kernels.coverage import best_coverage, coverage_by_grid, every_threshold, risk_coverage, separation
from exaul.kernels.game import GRIDS

ANSWERABLE = "answerable_"  # prefix of the columns of shares; the alpha follows
SHARES = "largest share that a threshold answers with an FDR of at most alpha"
FIXED_GRIDS = [name for name in GRIDS if name != "quantile"]  # that grid looks ahead
PER_ARM = {False: 80, True: 700}  # bytes of memory per threshold, without and with ``out``


@dataclass(frozen=True, kw_only=True)
class Inspect(Layout):
    """The log to inspect. Every field is a flag of ``exaul inspect``."""

    log: str = setting(
        MISSING, "log of scored answers, or folder of logs, as for '{exaul} sweep --logs'", "PATH[:COL=VALUE,...]"
    )
    each: tuple[str, ...] = setting((), "a table of all traces: the rows with equal values in these columns", "COL")
    alphas: tuple[float, ...] = setting((0.01, 0.05, 0.1, 0.2), "target FDR(s), each in (0, 1)", "ALPHA")
    arms: int = setting(1000, "number H of thresholds of a grid, at least 2", "H")
    out: str | None = setting(
        None, "folder (absent or empty) for a figure of risk against coverage, or the table of traces", "DIR"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for alpha in self.alphas:
            check_holds("alphas", alpha, 0 < alpha < 1, "in (0, 1), such as 0.1 or 10%")
        check_holds("arms", self.arms, 2 <= self.arms < MOST, f"from 2 to {MOST - 1}")


def main(given: Mapping[str, Any]) -> int:
    """Print error rate, ties, and what fixed thresholds answer; with ``out``, also draw risk against coverage."""
    config = Inspect(**given)
    if config.each or is_folder(config.log):
        print(_inspect_traces(config))
        return 0
    present = () if "score" in given else files.columns(parse_log(config.log)[0])
    several = [name for name in present if name.startswith(f"{config.score}_")]
    if config.score not in present and len(several) > 1:
        print(_side_by_side(config, several))
        return 0
    machine.check_fits(f"arms: {config.arms} found", PER_ARM[config.out is not None] * config.arms)
    records, places = load_rows(config.log, config)
    words = _typed_log(config, config.log, config.score)
    findings = diagnose(words, categories(config.log, config), records, places, config.alphas)
    scores, errors = records.scores, records.errors
    if config.out is not None:
        folder.check_output_folder(config.out)
        grids = {"all thresholds": every_threshold(scores)}
        grids |= {name: make(config.arms, scores) for name, make in GRIDS.items()}
        curves = {name: risk_coverage(grid, scores, errors) for name, grid in grids.items()}
        from exaul.engine.results import figures

        reached = {alpha: best_coverage(grids["all thresholds"], scores, errors, alpha) for alpha in config.alphas}
        drawn = {"risk-coverage": figures.risk_coverage(curves, float(errors.mean()), reached)}
        drawn["reliability"] = figures.reliability(scores, errors)
        points = [
            files.frame({"grid": name, "threshold": grids[name], "coverage": coverage, "risk": risk})
            for name, (coverage, risk) in curves.items()
        ]
        folder.write(config.out, {"risk-coverage": files.stack(points)}, drawn)
    rows = [
        ("log", records.name),
        ("rows", f"{len(scores)}" + (f" ({records.dropped} left out)" if records.dropped else "")),
        ("error rate", f"{errors.mean():.4f}"),
        ("distinct scores", f"{len(np.unique(scores))}"),
        ("ties at 1", f"{np.count_nonzero(scores == 1)} ({(scores == 1).mean():.1%})"),
        ("above 0.999", f"{(scores > 0.999).mean():.1%}"),
    ]
    width = terminal_width()
    print(wrap("\n".join(f"{name:<18}{value}" for name, value in rows), width))
    for finding in findings:
        print(f"\n{wrap(finding.text, width)}")
        if finding.command:
            print(f"{COMMAND}{finding.command}")
    best = {alpha: coverage_by_grid(config.arms, scores, errors, alpha) for alpha in config.alphas}
    print(f"\n{wrap(f'{SHARES} ({config.arms} arms per grid)', width)}")
    by_grid = {name: [f"{each[name]:.1%}" for each in best.values()] for name in next(iter(best.values()))}
    print(format_table({"alpha": align_decimals(best), **by_grid}, width))
    chosen = _best_grid(best)
    for alpha, shares in best.items():
        if shares["all thresholds"] == 0:
            text = f"no threshold reaches alpha = {alpha:g} on this log; a learner would mostly abstain"
            print(wrap(text, width))
        elif shares["all thresholds"] >= FEASIBLE and shares[chosen] == 0:
            text = (
                f"at alpha = {alpha:g} no threshold of the {chosen} grid answers anything, though "
                f"{shares['all thresholds']:.1%} is possible: none lies between the scores; use --grid log, with a "
                "log for --warm-start"
            )
            print(wrap(text, width))
    print(f"\n{wrap(recommend_grid(best), width)}")
    if config.out is not None:
        print(f"\nfigures and table: {config.out}")
    return 0


def _side_by_side(config: Inspect, names: Sequence[str]) -> str:
    if config.out is not None:
        raise BadInput(f"out: given, but a figure shows one score; choose one with --score: {', '.join(names)}")
    loaded = {name: load_rows(config.log, replace(config, score=name)) for name in names}
    columns = categories(config.log, config)
    traces = [Trace(name, config.log, name, *pair, {}) for name, pair in loaded.items()]
    rows = [_row(config, trace, columns) for trace in traces]
    each = [records for records, _ in loaded.values()]
    extra = {
        "right above wrong": [f"{separation(records.scores, records.errors):.3f}" for records in each],
        "distinct scores": [f"{len(np.unique(records.scores))}" for records in each],
        "ties at 1": [f"{(records.scores == 1).mean():.1%}" for records in each],
    }
    meanings = {"right above wrong": "probability that a right answer scores above a wrong one (chance: 1/2)"}
    totals = {row["trace"]: sum(row[name] for name in row if name.startswith(ANSWERABLE)) for row in rows}
    chosen = max(totals, key=lambda name: totals[name])
    further = typed("sweep", "--logs", config.log, "--score", chosen, "--grid", "logit")
    advice = f"{join_lines(chosen)} answers most:\n{COMMAND}{join_lines(further)}"
    width = terminal_width()
    return "\n".join(
        [
            wrap(f"log: {each[0].name}", width),
            wrap(SHARES, width),
            format_table(_trace_columns("score", rows) | extra, width, meanings, names=2),
            "",
            wrap(
                advice
                if totals[chosen] > 0
                else "no threshold of these scores reaches alpha; a learner would mostly abstain",
                width,
            ),
        ]
    )


def _best_grid(best: Mapping[float, Mapping[str, float]]) -> str:
    """Return the grid whose thresholds answer most, from shares by alpha and grid."""
    return max(FIXED_GRIDS, key=lambda name: sum(shares[name] for shares in best.values()))


def recommend_grid(best: dict[float, dict[str, float]]) -> str:
    """Return a sentence that recommends a grid, from shares by alpha and grid; ``quantile`` looks ahead."""
    chosen = _best_grid(best)
    others = [name for name in FIXED_GRIDS if name != chosen]
    gains = {alpha: (shares[chosen], max(shares[name] for name in others)) for alpha, shares in best.items()}
    alpha, (chosen_share, other_share) = max(gains.items(), key=lambda item: item[1][0] - item[1][1])
    if chosen_share - other_share < 0.005:  # too small to leave the paper's grid
        return "recommended: --grid uniform, the paper's; --grid logit would answer at most 0.5 points more"
    return (
        f"recommended: --grid {chosen}; at alpha = {alpha:g} its best threshold answers {chosen_share:.1%}, "
        f"that of {' and '.join(others)} {other_share:.1%}"
    )


def _inspect_traces(config: Inspect) -> str:
    """Return a table with a line per trace; with ``out``, also write it."""
    if config.out is not None:
        folder.check_output_folder(config.out)
    rows = []
    for file in log_files(config.log):
        columns = categories(file, config)
        rows += [_row(config, trace, columns) for trace in load_traces(file, config, config.each)]
    if config.out is not None:
        folder.write(config.out, {"inspection": files.frame(rows)}, {})
    meanings = [f"{word}: {text}" for word, text in WORDS.items() if any(word in row["defects"] for row in rows)]
    with_numbers = [f"with numbers: {typed('inspect', 'LOG:COL=VALUE')}"] if meanings else []
    width = terminal_width()
    parts = [
        f"{wrap(SHARES, width)}\n{format_table(_trace_columns('trace', rows), width, names=2)}",
        wrap("\n".join([*meanings, *with_numbers]), width),
        f"table: {config.out}" if config.out is not None else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _trace_columns(title: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the columns of a table with a line per trace, or per column of scores."""
    answerable = {name.removeprefix(ANSWERABLE): name for name in rows[0] if name.startswith(ANSWERABLE)}
    shares = {
        shown: ["-" if math.isnan(row[name]) else f"{row[name]:.1%}" for row in rows]
        for shown, name in (answerable | {"error rate": "error_rate"}).items()
    }
    return {
        title: [row["trace"] for row in rows],
        "defects": [row["defects"] for row in rows],
        **shares,
        "rows": [f"{row['records']}" + (f" (-{row['dropped']})" if row["dropped"] else "") for row in rows],
    }


def _row(config: Inspect, trace: Trace, columns: Categories) -> dict[str, Any]:
    """Return the row of a trace in ``inspection.csv``."""
    scores, errors = trace.records.scores, trace.records.errors
    known = len(scores) > 0
    shares = {
        f"{ANSWERABLE}{alpha:g}": best_coverage(every_threshold(scores), scores, errors, alpha)
        if known
        else math.nan
        for alpha in config.alphas
    }
    findings = diagnose(
        _typed_log(config, trace.log, trace.score), columns, trace.records, trace.rows, config.alphas
    )
    return {
        "trace": trace.name,
        "records": len(scores),
        "dropped": trace.records.dropped,
        "error_rate": float(errors.mean()) if known else math.nan,
        **shares,
        "defects": " ".join(finding.word for finding in findings),
    }


def _typed_log(config: Inspect, log: str, score: str) -> list[str]:
    """Return a log and the flags of its columns, as they are typed."""
    columns = {"--score": score if score != "score" else None, "--error": config.error, "--correct": config.correct}
    flags = [word for flag, name in columns.items() if name is not None for word in (flag, name)]
    return [log, *flags, *(["--drop-missing"] if config.drop_missing else [])]


COMMANDS = {"inspect": Command((Inspect,), main)}
