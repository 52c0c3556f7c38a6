"""Every trace of a log: one combination of dataset, model and prompt with one column of scores."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from exaul.engine.data import tables
from exaul.engine.data.logs import digest, label_column, numbers, parse_label, parse_score, source_name
from exaul.engine.data.records import Records


def load_traces(path: Path, apart: Sequence[str], least: int) -> list[Records]:
    """Read every trace of a log: one combination of values of some columns, with one of the columns ``score*``.

    Args:
        path: of the log, with a column ``error`` or ``correct``.
        apart: columns that tell traces apart, where the log has them.
        least: records that a trace must have; rows with an empty score or label are left out.

    Raises:
        BadInput: with the file and row, or the column, at fault.
    """
    present = tables.columns(path)
    label = label_column(path, present, "a folder of logs needs one of them in each")
    scores = [name for name in present if name.startswith("score")]
    apart = [name for name in apart if name in present]
    cells = tables.read(path, [label, *scores, *apart])
    every = np.arange(len(cells.rows))
    labels = numbers(path, cells, every, label, parse_label, True)
    errors = 1 - labels if label == "correct" else labels
    keys = list(zip(*(cells.columns[name] for name in apart), strict=True)) if apart else [()] * len(every)
    places: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(keys):
        places.setdefault(key, []).append(row)
    sha256, found = digest(path), []
    for score in scores:
        by = {"by": score} if len(scores) > 1 else {}
        values = numbers(path, cells, every, score, parse_score, True)
        for key, rows in sorted(places.items(), key=lambda item: tuple(map(str, item[0]))):
            complete = np.array([row for row in rows if not math.isnan(values[row] + errors[row])], np.intp)
            if len(complete) >= least:
                name = source_name(path, dict(zip(apart, key, strict=True)) | by)
                found.append(Records(name, values[complete], errors[complete], len(rows) - len(complete), sha256))
    return found
