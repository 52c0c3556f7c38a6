"""Split logs into traces: the rows with the same values in some columns, with one column of scores."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine.checks import BadInput, name_with_values, quote
from exaul.engine.logs import files
from exaul.engine.logs.log import (
    Layout,
    Records,
    file_hash,
    label_of,
    listed,
    log_name,
    parse_log,
    parse_score,
    read_cells,
    require_columns,
)

ENDINGS = (".csv", ".csv.gz", ".jsonl", ".ndjson", ".parquet")  # endings of logs in a folder
SCORE_KEY = "by"  # key of the column of scores in the name of a trace


class Trace(NamedTuple):
    """The rows of a log with the same values in some columns, with one column of scores.

    ``load_log(log)`` with the score column ``score`` and ``drop_missing`` reads the same records.
    """

    path: Path  # of the log
    log: str  # PATH:COL=VALUE,...
    score: str  # name of the score column
    records: Records  # N >= 0; named by the log, the values, and the score column if the log has several
    rows: NDArray[np.intp]  # [N] positions of the records in the file
    values: dict[str, str]  # by column; with ``by``, the score column, if the log has several


def is_folder(log: str) -> bool:
    """Return whether a log is a folder of logs: ``DIR`` or ``DIR:COL=VALUE,...``."""
    return os.path.isdir(parse_log(log)[0])


def log_files(log: str) -> list[str]:
    """Return the logs of a folder, sorted by name, with its selection; or the log itself. No logs: BadInput."""
    path, selection = parse_log(log)
    if not os.path.isdir(path):
        return [log]
    names = sorted(name for name in os.listdir(path) if name.lower().endswith(ENDINGS) and name[0] != ".")
    logs = [name_with_values(str(path / name), selection) for name in names if os.path.isfile(path / name)]
    if not logs:
        raise BadInput(f"{path}: the folder contains no logs; a log must end in {', '.join(ENDINGS)}")
    return logs


def check_columns(each: Sequence[str], logs: Sequence[str]) -> None:
    """Raise BadInput unless each column is in the selection of one of the logs (``Trace.log``)."""
    for name in each:
        if not any(name in parse_log(log)[1] for log in logs):
            raise BadInput(f"each: no log has a column {name!r}")


def load_traces(log: str, layout: Layout, each: Sequence[str]) -> list[Trace]:
    """Return all traces of a log, by score column in the order of the file, then sorted by values.

    Rows without score or label are left out.

    Args:
        log: as in ``load_rows``, with the same errors.
        layout: names of its columns. Without a column ``layout.score``, every column whose name begins with it
            gives separate traces.
        each: columns whose values separate traces; those that the log lacks are ignored.
    """
    path, selection = parse_log(log)
    columns = files.columns(path)
    label = label_of(path, columns, layout)
    require_columns(path, columns, (label[0], *selection))
    separating = [name for name in each if name in columns]
    scores = [name for name in columns if name.startswith(layout.score) and name not in (label[0], *separating)]
    scores = [layout.score] if layout.score in columns else scores
    if not scores:
        raise BadInput(f"{path}: no column {layout.score!r} or beginning with it; {listed(columns)}")
    cells = read_cells(path, list(dict.fromkeys([label[0], *scores, *separating, *selection])), selection)
    errors = cells.errors(label, drop_missing=True)
    positions: dict[tuple[str, ...], list[int]] = {}
    keys = zip(*map(cells.texts, separating), strict=True) if separating else [()] * len(errors)
    for position, key in enumerate(keys):
        positions.setdefault(key, []).append(position)
    sha256, traces = file_hash(path), []
    for score in scores:
        score_value = {SCORE_KEY: score} if len(scores) > 1 else {}
        values = cells.numbers(score, parse_score, drop_missing=True)
        for key in sorted(positions):
            rows = np.array(positions[key])
            complete = rows[~np.isnan(values[rows] + errors[rows])]
            terms = selection | dict(zip(separating, key, strict=True))
            trace_log = name_with_values(str(path), terms)
            # a value such as "b,c=d" would be read back as two terms
            if parse_log(trace_log) != (path, terms):
                raise BadInput(
                    f"each: {quote(trace_log)} found; its values must not contain a comma followed by NAME="
                )
            name, missing = log_name(path, terms | score_value), len(rows) - len(complete)
            records = Records(name, values[complete], errors[complete], missing, sha256)
            traces.append(Trace(path, trace_log, score, records, cells.chosen[complete], terms | score_value))
    return traces


def neighbours(traces: Sequence[Trace], each: Sequence[str], number: int) -> list[tuple[Trace, ...]]:
    """Return every ``number`` traces of one kind that follow one another, in the order of the first.

    Traces are told apart by their log, then by the columns ``each``. Those of one kind have the same column of
    scores, and differ in the last of these alone.
    """
    kinds: dict[tuple[str | None, ...], list[int]] = {}
    for position, trace in enumerate(traces):
        selection = {name: value for name, value in trace.values.items() if name not in (*each, SCORE_KEY)}
        log = name_with_values(str(trace.path), selection)
        *all_but_last, _ = log, *(trace.values.get(name) for name in each)
        kinds.setdefault((trace.score, *all_but_last), []).append(position)
    windows = [kind[first : first + number] for kind in kinds.values() for first in range(len(kind))]
    return [tuple(traces[i] for i in window) for window in sorted(windows) if len(window) == number]


def short_names(traces: Sequence[Trace], each: Sequence[str]) -> list[str]:
    """Return names without repetitions: without the values of ``each`` that all traces share or their log names.

    The selection of a log stays: traces of another selection must have other names. A value is in the name of its
    log only if all traces of the log have it. If two short names would be the same, they keep what the log's name
    says.
    """
    in_sweep = _distinct_values(traces)
    in_log = {path: _distinct_values([x for x in traces if x.path == path]) for path in {x.path for x in traces}}
    names, short = [], []
    for trace in traces:
        values = {x: y for x, y in trace.values.items() if len(in_sweep[x]) > 1 or x not in (*each, SCORE_KEY)}
        stem = _letters(files.stem(trace.path))
        in_stem = {x for x, value in values.items() if len(in_log[trace.path][x]) == 1 and _letters(value) in stem}
        names.append(log_name(trace.path, values))
        short.append(log_name(trace.path, {x: value for x, value in values.items() if x not in in_stem}))
    counts = Counter(short)
    return [name if counts[shorter] > 1 else shorter for name, shorter in zip(names, short, strict=True)]


def _letters(text: str) -> str:
    """Return the letters and digits of a text, in lower case: file names replace spaces and the like."""
    return re.sub(r"[\W_]+", "", text).lower()


def _distinct_values(traces: Sequence[Trace]) -> dict[str, set[str | None]]:
    """Return the values of each column; None stands for a trace without the column."""
    columns = {name for trace in traces for name in trace.values}
    return {name: {trace.values.get(name) for trace in traces} for name in columns}
