"""Read exports of Langfuse: its scores, and the observations that they are of."""

import re
from collections.abc import Iterator
from pathlib import Path

from exaul.engine.checks import BadInput
from exaul.engine.logs import files
from exaul.engine.logs.log import is_missing, listed
from exaul.llm.readers.rows import LIKELIHOOD, Note, Row, field, likelihood_of, read_rows, text_cell, time_cell

SCORES = ("trace_id", "observation_id", "name", "value", "string_value", "data_type", "source", "timestamp")
OBSERVATIONS = ("id", "trace_id", "start_time")
TEXTS = ("CATEGORICAL", "TEXT")  # types whose value is in string_value: their ``value`` is an index, or nothing


def langfuse(path: Path, score: str | None) -> Iterator[Note]:
    """Read a file of ``scores`` or ``observations``, of a blob storage export or of the button Export.

    A score of an observation or trace is its value, or an entry of the observation's metadata; without a name, the
    likelihood of a chat completion that is the output. Scores of evaluators (source EVAL) are no feedback.
    """
    present = {_snake(column): column for column in files.columns(path)}  # the button writes traceId for trace_id
    observations = set(OBSERVATIONS) <= set(present)
    needed = OBSERVATIONS if observations else SCORES
    for name in needed:
        if name not in present:
            raise BadInput(
                f"{path}: no column {name}, so it has neither scores nor observations; {listed(list(present))}"
            )
    further = ["output" if score is None else "metadata"] if observations else ["updated_at"]
    columns = {present[name]: name for name in (*needed, *further) if name in present}
    for number, cells in read_rows(path, list(columns)):
        row = {columns[column]: cell for column, cell in cells.items()}
        yield (_observation(path, number, row, score) if observations else _score(path, number, row))


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()


def _score(path: Path, number: int, row: Row) -> Note:
    texts = {name: text_cell(path, number, name, row[name]) for name in ("trace_id", "observation_id", "name")}
    kind, source = (text_cell(path, number, name, row[name]) for name in ("data_type", "source"))
    time = "timestamp" if is_missing(row.get("updated_at")) else "updated_at"  # an edited score keeps its timestamp
    return Note(
        path,
        number,
        texts["observation_id"] or texts["trace_id"],
        texts["trace_id"],
        texts["name"],
        row["string_value" if kind in TEXTS else "value"],
        time_cell(path, number, time, row[time]),
        source,
        source != "EVAL",
    )


def _observation(path: Path, number: int, row: Row, score: str | None) -> Note:
    value = likelihood_of(row.get("output")) if score is None else field(row, f"metadata.{score}")
    time = time_cell(path, number, "start_time", row["start_time"])
    id, trace = (text_cell(path, number, name, row[name]) for name in ("id", "trace_id"))
    return Note(path, number, id, trace, LIKELIHOOD if score is None else score, value, time, "", human=False)
