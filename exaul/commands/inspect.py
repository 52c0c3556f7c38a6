"""``exaul inspect``: describe a log before a sweep."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from typing import Any

import numpy as np

from exaul.engine.checks import MOST, BadInput, check_holds, join_lines, setting
from exaul.engine.data import tables
from exaul.engine.data.diagnosis import WORDS, diagnose
from exaul.engine.data.layout import Layout
from exaul.engine.data.logs import load_rows, parse_log
from exaul.engine.data.pooled import Categories, categories
from exaul.engine.data.traces import Trace, is_folder, load_traces, log_files
from exaul.engine.machine import memory
from exaul.engine.machine.typed import typed
from exaul.engine.results import folder
from exaul.kernels.coverage import best_coverage, coverage_by_grid, every_threshold, risk_coverage, separation
from exaul.kernels.game import GRIDS

ANSWERABLE = "answerable_"  # prefix of the columns of shares; the alpha follows
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
            check_holds("alphas", alpha, 0 < alpha < 1, "in (0, 1)")
        check_holds("arms", self.arms, 2 <= self.arms < MOST, f"from 2 to {MOST - 1}")


CONFIGURATIONS = (Inspect,)


def main(given: Mapping[str, Any]) -> int:
    """Print error rate, ties, and what fixed thresholds answer; with ``out``, also draw risk against coverage."""
    config = Inspect(**given)
    if config.each or is_folder(config.log):
        print(_inspect_traces(config))
        return 0
    several = () if "score" in given else _score_columns(config)
    if several:
        print(_side_by_side(config, several))
        return 0
    memory.check_fits(f"arms: {config.arms} found", PER_ARM[config.out is not None] * config.arms)
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

        drawn = {"risk-coverage": figures.risk_coverage(curves, float(errors.mean()))}
        folder.write(config.out, {"risk-coverage": _table(grids, curves)}, drawn)
    rows = [
        ("log", records.name),
        ("rows", f"{len(scores)}" + (f" ({records.dropped} left out)" if records.dropped else "")),
        ("error rate", f"{errors.mean():.4f}"),
        ("distinct scores", f"{len(np.unique(scores))}"),
        ("ties at 1", f"{np.count_nonzero(scores == 1)} ({(scores == 1).mean():.1%})"),
        ("above 0.999", f"{(scores > 0.999).mean():.1%}"),
    ]
    print("\n".join(f"{name:<18}{value}" for name, value in rows))
    for finding in findings:
        print(f"\n{finding.text}")
    best = {alpha: coverage_by_grid(config.arms, scores, errors, alpha) for alpha in config.alphas}
    names = list(best[config.alphas[0]])
    print(f"\nlargest share that a threshold answers with an FDR of at most alpha ({config.arms} arms per grid)")
    print(f"{'alpha':>7}" + "".join(f"{name:>16}" for name in names))
    for alpha, shares in best.items():
        print(f"{alpha:>7g}" + "".join(f"{shares[name]:>16.1%}" for name in names))
    for alpha, shares in best.items():
        if shares["all thresholds"] == 0:
            print(f"no threshold reaches alpha = {alpha:g} on this log; a learner would mostly abstain")
    print(f"\n{recommend_grid(best)}")
    if config.out is not None:
        print(f"\nfigure and table: {config.out}")
    return 0


def _score_columns(config: Inspect) -> tuple[str, ...]:
    """Return the columns ``score_...`` of a log that has several of them, and no column ``score``; else nothing."""
    present = tables.columns(parse_log(config.log)[0])
    columns = tuple(name for name in present if name.startswith(f"{config.score}_"))
    return () if config.score in present or len(columns) < 2 else columns


def _side_by_side(config: Inspect, names: Sequence[str]) -> str:
    if config.out is not None:
        raise BadInput(f"out: given, but a figure shows one score; choose one with --score: {', '.join(names)}")
    loaded = {name: load_rows(config.log, replace(config, score=name)) for name in names}
    each = {name: records for name, (records, _) in loaded.items()}
    columns = categories(config.log, config)
    first = next(iter(each.values()))
    lines = [
        ("", *names),
        (
            "rows",
            *(
                f"{len(records.scores)}" + (f" (-{records.dropped})" if records.dropped else "")
                for records in each.values()
            ),
        ),
        ("error rate", *(f"{records.errors.mean():.4f}" for records in each.values())),
        ("right above wrong", *(f"{separation(records.scores, records.errors):.3f}" for records in each.values())),
        ("distinct scores", *(f"{len(np.unique(records.scores))}" for records in each.values())),
        ("ties at 1", *(f"{(records.scores == 1).mean():.1%}" for records in each.values())),
    ]
    best = {
        name: [
            best_coverage(every_threshold(records.scores), records.scores, records.errors, x) for x in config.alphas
        ]
        for name, records in each.items()
    }
    for n, alpha in enumerate(config.alphas):
        lines.append((f"at alpha = {alpha:g}", *(f"{best[name][n]:.1%}" for name in names)))
    findings = [
        diagnose(_typed_log(config, config.log, name), columns, *loaded[name], config.alphas) for name in names
    ]
    if any(findings):  # inspect with --score says more
        lines.append(("defects", *(" ".join(finding.word for finding in several) or "-" for several in findings)))
    chosen = max(names, key=lambda name: sum(best[name]))
    further = typed("sweep", "--logs", config.log, "--score", chosen, "--grid", "logit")
    wide = [max(16, *map(len, cells)) for cells in zip(*lines, strict=True)]
    texts = ["  ".join([f"{line[0]:<18}", *map(str.rjust, map(join_lines, line[1:]), wide[1:])]) for line in lines]
    return "\n".join(
        [
            f"{'log':<20}{first.name}",
            *texts,
            "",
            "right above wrong: probability that a right answer scores above a wrong one (chance: 1/2).",
            "at alpha: largest share that a fixed threshold answers with an FDR of at most alpha.",
            join_lines(f"{chosen} answers most: {further}")
            if sum(best[chosen]) > 0
            else "no threshold of these scores reaches alpha; a learner would mostly abstain",
        ]
    )


def recommend_grid(best: dict[float, dict[str, float]]) -> str:
    """Return the recommended grid, from shares by alpha and grid. The quantile grid is excluded: it looks ahead."""
    fixed = [name for name in GRIDS if name != "quantile"]
    chosen = max(fixed, key=lambda name: sum(shares[name] for shares in best.values()))
    others = [name for name in fixed if name != chosen]
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
        folder.write(config.out, {"inspection": tables.frame(rows)}, {})
    shares = [name for name in rows[0] if name.startswith(ANSWERABLE)]
    lines = [["trace", "rows", "error rate", *(name.removeprefix(ANSWERABLE) for name in shares), "defects"]]
    for row in rows:
        count = f"{row['records']}" + (f" (-{row['dropped']})" if row["dropped"] else "")
        numbers = ["-" if math.isnan(row[name]) else f"{row[name]:.1%}" for name in ("error_rate", *shares)]
        lines.append([row["trace"], count, *numbers, row["defects"]])
    meanings = [f"{word}: {text}" for word, text in WORDS.items() if any(word in row["defects"] for row in rows)]
    return "\n".join(
        [
            "share that a threshold answers with an FDR of at most alpha",
            *_aligned(lines),
            *(["", *meanings, f"with numbers: {typed('inspect', 'LOG:COL=VALUE')}"] if meanings else []),
            *(["", f"table: {config.out}"] if config.out is not None else []),
        ]
    )


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


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: the first column and the last to the left, all others to the right."""
    wide = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return [
        "  ".join([line[0].ljust(wide[0]), *map(str.rjust, line[1:-1], wide[1:-1]), line[-1]]).rstrip()
        for line in lines
    ]


def _table(grids: dict[str, Any], curves: dict[str, Any]) -> tables.Table:
    return tables.stack(
        [
            tables.frame({"grid": name, "threshold": grids[name], "coverage": coverage, "risk": risk})
            for name, (coverage, risk) in curves.items()
        ]
    )
