"""What the readers share: rows, nested fields, and cells as texts, times and likelihoods."""

import ast
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from exaul.engine.checks import BadInput, check_legible, quote
from exaul.engine.logs import files
from exaul.engine.logs.log import is_missing
from exaul.llm.replies import Unreadable, likelihood, reply_of

Row = dict[str, Any]  # cells by column: of a file, or of the log
LIKELIHOOD = ""  # name of the score that is computed from the logprobs in an answer's output
EPOCHS = ((1e11, 1), (1e14, 1e3), (1e17, 1e6), (math.inf, 1e9))  # largest number that counts in s, ms, us, ns


class Note(NamedTuple):
    """A score of an answer or feedback on it, as one row of an export says."""

    path: Path
    row: int  # number of the row in the file
    id: str  # of the answer: an observation, span, trace or message
    trace: str  # id of the trace that the answer is part of; "" if unknown
    name: str  # of the score or feedback; LIKELIHOOD: the likelihood of the output
    value: Any  # as in the file; None or empty: there is none
    time: datetime | None  # of the last change, with time zone
    source: str  # where feedback comes from, in the tool's words
    human: bool  # whether it can be a user's feedback: not an evaluator's


def read_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, Row]]:
    """Yield the number and cells of each row. Raise BadInput if the file cannot be read."""
    cells = files.read(path, columns)
    each = zip(*(cells.columns[column] for column in columns), strict=True)
    for number, values in zip(cells.rows, each, strict=True):
        yield number, dict(zip(columns, values, strict=True))


def holding(present: Sequence[str], fields: Sequence[str]) -> list[str]:
    """Return the columns that hold one of the fields, which may be nested: ``a`` holds ``a.b``."""
    return [name for name in present if any(f"{each}.".startswith(f"{name}.") for each in fields)]


def field(cells: Mapping[str, Any], name: str) -> Any:
    """Return a field of a row or object, or None. Fields can be nested: ``a.b`` is also the field b of a."""
    if name in cells:
        return cells[name]
    for n, character in enumerate(name):
        if character == "." and name[:n] in cells:
            inner = unpacked(cells[name[:n]])
            value = field(inner, name[n + 1 :]) if isinstance(inner, dict) else None
            if value is not None:
                return value
    return None


def unpacked(cell: Any) -> Any:
    """Return the list or object that a text holds, in JSON or as Python prints it; other cells as they are."""
    if hasattr(cell, "tolist"):  # a list in Parquet is an array
        return cell.tolist()
    if not isinstance(cell, str) or cell[:1] not in ("{", "["):
        return cell
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in the text
            return ast.literal_eval(cell)  # pandas writes lists and objects to CSV as Python prints them
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return cell


def text_cell(path: Path, row: int, name: str, cell: Any) -> str:
    """Return a cell as a text, "" if it is empty. Raise BadInput if it holds something else."""
    if isinstance(cell, str) and cell.isprintable():  # the usual case: neither surrogates nor null characters
        return "" if cell.isspace() else cell
    try:
        if isinstance(cell, bytes):  # text in Parquet can be binary
            cell = cell.decode()
        if is_missing(cell):
            return ""
        if isinstance(cell, (str, int)) and not isinstance(cell, bool):
            return check_legible(f"{path}, row {row}: {name}", str(cell))
    except ValueError as error:
        if isinstance(error, BadInput):
            raise
    raise BadInput(f"{path}, row {row}: {name} is {quote(cell)}; it must be a text")


def time_cell(path: Path, row: int, name: str, cell: Any) -> datetime | None:
    """Return a cell as a time, None if it is empty: a number since 1970, or ISO 8601 (UTC without an offset)."""
    if is_missing(cell) or (
        isinstance(cell, datetime) and cell != cell
    ):  # pandas' missing time is unequal to itself
        return None
    try:
        if isinstance(cell, str) and not cell.strip().replace(".", "", 1).isdigit():
            cell = datetime.fromisoformat(cell.strip())
        if isinstance(cell, datetime):
            return (cell if cell.tzinfo else cell.replace(tzinfo=UTC)).astimezone(UTC)
        if isinstance(cell, (int, float, str)) and not isinstance(cell, bool):
            since = float(cell)
            return datetime.fromtimestamp(since / next(unit for most, unit in EPOCHS if since < most), UTC)
    except (ValueError, OverflowError, OSError, StopIteration):
        pass
    raise BadInput(f"{path}, row {row}: {name} is {quote(cell)}; it must be a time, as 2026-01-31T12:00:00Z")


def likelihood_of(output: Any) -> float | None:
    """Return the likelihood of the answer in a chat completion, by its logprobs; None if there are none."""
    body = unpacked(output)
    if not isinstance(body, dict) or "choices" not in body:
        return None
    try:
        raw = json.dumps(body, default=lambda array: array.tolist()).encode()
        logprobs = reply_of(raw, str).logprobs
    except (Unreadable, ValueError, TypeError, AttributeError, RecursionError):
        return None
    return likelihood(logprobs) if logprobs else None
