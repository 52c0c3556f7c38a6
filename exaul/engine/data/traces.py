"""Split logs into traces: the rows with the same values in some columns, with one column of scores."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine.checks import BadInput, quote
from exaul.engine.data import tables
from exaul.engine.data.layout import Layout
from exaul.engine.data.logs import (
    file_hash,
    label_of,
    listed,
    parse_label,
    parse_log,
    parse_numbers,
    parse_score,
    require_columns,
    select_rows,
    source_name,
    text_of,
)
from exaul.engine.data.records import Records
from exaul.engine.data.settings import name_with_values

ENDINGS = (".csv", ".csv.gz", ".jsonl", ".ndjson", ".parquet")  # endings of logs in a folder


class Trace(NamedTuple):
    """A trace. ``load_log(log)`` with the score column ``score`` and ``drop_missing`` reads the same records."""

    name: str  # name of the log, values, and the score column if the log has several
    log: str  # PATH:COL=VALUE,...
    score: str  # name of the score column
    records: Records  # N >= 0; named like the trace, without the score column
    rows: NDArray[np.intp]  # [N] positions of the records in the file


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


def load_traces(log: str, columns: Layout, each: Sequence[str]) -> list[Trace]:
    """Return all traces of a log, sorted by score column and values. Rows without score or label are left out.

    Args:
        log: as in ``load_rows``, with the same errors.
        columns: names of its columns. Without a column ``columns.score``, every column whose name begins with it
            gives separate traces.
        each: columns whose values separate traces; those that the log lacks are ignored.
    """
    path, selection = parse_log(log)
    present = tables.columns(path)
    label, inverted = label_of(path, present, columns)
    require_columns(path, present, (label, *selection))
    apart = [name for name in each if name in present]
    scores = [name for name in present if name.startswith(columns.score) and name not in (label, *apart)]
    scores = [columns.score] if columns.score in present else scores
    if not scores:
        raise BadInput(f"{path}: no column {columns.score!r} or beginning with it; {listed(present)}")
    cells = tables.read(path, list(dict.fromkeys([label, *scores, *apart, *selection])))
    chosen = select_rows(path, cells, selection)
    labels = parse_numbers(path, cells, chosen, label, parse_label, True)
    errors = 1 - labels if inverted else labels
    places: dict[tuple[str, ...], list[int]] = {}
    for position, row in enumerate(chosen):
        places.setdefault(tuple(text_of(cells.columns[name][row]) for name in apart), []).append(position)
    sha256, traces = file_hash(path), []
    for score in scores:
        by = {"by": score} if len(scores) > 1 else {}
        values = parse_numbers(path, cells, chosen, score, parse_score, True)
        for key in sorted(places):
            rows = np.array(places[key])
            whole = rows[~np.isnan(values[rows] + errors[rows])]
            kept = selection | dict(zip(apart, key, strict=True))
            trace_log = name_with_values(str(path), kept)
            # a value such as "b,c=d" would be read back as two terms
            if parse_log(trace_log) != (path, kept):
                raise BadInput(
                    f"each: {quote(trace_log)} found; its values must not contain a comma followed by NAME="
                )
            name, missing = source_name(path, kept), len(rows) - len(whole)
            records = Records(name, values[whole], errors[whole], missing, sha256)
            traces.append(Trace(source_name(path, kept | by), trace_log, score, records, chosen[whole]))
    return traces
