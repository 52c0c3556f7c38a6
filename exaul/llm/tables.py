"""Read files that other tools wrote: rows with nested fields, and tables of scored answers as rows of a log."""

import ast
import json
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from exaul.engine.checks import BadInput, Configuration, as_typed, check_holds, check_legible, quote, setting
from exaul.engine.logs import files
from exaul.engine.logs.log import is_missing, listed, parse_label, parse_number, parse_score

LogRows = list[dict[str, Any]]  # of a log to write, each by column
EARLIEST = datetime.min.replace(tzinfo=UTC)  # stands for an unknown time
RIGHT_LABELS = {"correct": 1.0, "right": 1.0, "incorrect": 0.0, "wrong": 0.0}  # labels of answers, not of errors
SCALAR = str, int, float, type(None)
LOG_COLUMNS = "score", "error", "correct"  # columns of a table that a log would take for its own
LABEL_FORMS = "0 or 1, true or false, yes or no, correct or incorrect, or a number in [0, 1]"


class Row(NamedTuple):
    """A row of a file, or an object within one. Fields can be nested: ``a.b`` is also the field b of a."""

    where: str  # file and number of the row, for messages
    cells: Mapping[str, Any]

    def get(self, *names: str) -> Any:
        """Return the first of some fields that is not empty, or None."""
        return next((value for name in names if not is_missing(value := self._field(name))), None)

    def _field(self, name: str) -> Any:
        if name in self.cells:
            return self.cells[name]
        for n, character in enumerate(name):
            if character == "." and name[:n] in self.cells:
                inner = unpack(self.cells[name[:n]])
                value = Row(self.where, inner).get(name[n + 1 :]) if isinstance(inner, dict) else None
                if value is not None:
                    return value
        return None

    def text(self, name: str) -> str:
        """Return a field as a text, "" if it is empty. Raise BadInput if it holds something else."""
        cell = self.get(name)
        if cell is None:
            return ""
        if not isinstance(cell, (str, int)) or isinstance(cell, bool):
            raise BadInput(f"{self.where}: {name} is {quote(cell)}; it must be a text")
        return check_legible(f"{self.where}: {name}", str(cell))

    def time(self, *names: str) -> datetime:
        """Return the first of some fields that is not empty as a time, EARLIEST if all are.

        A time is a number since 1970, or ISO 8601 (UTC without an offset). Raise BadInput if it is something else.
        """
        cell = self.get(*names)
        if cell is None:
            return EARLIEST
        try:
            text = str(cell).strip()  # eight digits are a date: seconds since 1970 have nine or more, from 1973 on
            if len(text) == 8 or (isinstance(cell, str) and not text.replace(".", "", 1).isdigit()):
                cell = datetime.fromisoformat(text)
            if isinstance(cell, datetime):
                return (cell if cell.tzinfo else cell.replace(tzinfo=UTC)).astimezone(UTC)
            if not isinstance(cell, bool):
                seconds = float(cell)
                for _ in range(3):  # in seconds, ms, us or ns
                    seconds /= 1000 if seconds >= 1e11 else 1
                return datetime.fromtimestamp(seconds, UTC)
        except (ValueError, TypeError, OverflowError, OSError):
            pass
        name = " or ".join(names)
        raise BadInput(f"{self.where}: {name} is {quote(cell)}; it must be a time, as 2026-01-31T12:00:00Z")

    def rows(self, name: str) -> "list[Row]":
        """Return the objects of a list, none if the field is empty. Raise BadInput if it holds something else."""
        cell = unpack(self.get(name))
        cells = [] if cell is None else [*map(unpack, cell)] if isinstance(cell, list) else [cell, None]
        if not all(isinstance(item, dict) for item in cells):
            raise BadInput(f"{self.where}: {name} is {quote(cell)}; it must be a list of objects")
        return [Row(self.where, item) for item in cells]


def read_file(path: Path) -> tuple[list[str], Iterator[tuple[int, dict[str, Any]]]]:
    """Return the columns of a file, and its rows with their numbers. Raise BadInput if the file cannot be read."""
    columns = files.columns(path)
    numbers, cells = files.read(path, columns)
    numbered_rows = zip(numbers, zip(*cells.values(), strict=True), strict=True)
    return columns, ((number, dict(zip(columns, map(_plain, row), strict=True))) for number, row in numbered_rows)


def read_rows(path: Path, rename: Callable[[str], str] = str) -> tuple[list[str], Iterator[Row]]:
    """Return the columns of a file, and its rows. Raise BadInput if the file cannot be read."""
    columns, rows = read_file(path)
    names = list(map(rename, columns))
    return names, (Row(f"{path}, row {n}", dict(zip(names, row.values(), strict=True))) for n, row in rows)


def _plain(cell: Any) -> Any:
    """Return the text of a cell that is binary, as in Parquet, and None for pandas' missing time."""
    if isinstance(cell, bytes):
        return cell.decode(errors="replace")
    return None if isinstance(cell, datetime) and cell != cell else cell  # that time is unequal to itself


def unpack(cell: Any) -> Any:
    """Return the list or object that a text holds, in JSON or as Python prints it; other cells as they are."""
    if hasattr(cell, "tolist"):  # a list in Parquet is an array, as are the lists in it
        return [item.tolist() if hasattr(item, "tolist") else item for item in cell]
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


def require_fields(path: Path, columns: Sequence[str], fields: Iterable[str], hint: str = "") -> None:
    """Raise BadInput unless a file has all fields, which may be nested: the column ``a`` can hold ``a.b``.

    The message has the columns of the file and, with a ``hint``, how to read any table.
    """
    for field in fields:
        if not any(f"{field}.".startswith(f"{name}.") for name in columns):
            raise BadInput(f"{path}: no column {field}{hint}{table_hint(path) if hint else f'; {listed(columns)}'}")


def table_hint(path: Path) -> str:
    """Return the clause that says which columns a file has, and how to read any table; "" if it is no table."""
    command = as_typed("convert", "table", str(path), "--score", "COL", "--correct", "COL")
    with suppress(BadInput):
        return f"; {listed(files.columns(path))}; for a table of answers use {command}"
    return ""


def comparison_key(value: Any) -> str:
    """Return a value as a text that is equal for equal values: " A" and "a" are "a"; 1, 1.0 and "1" are "1"."""
    text = str(value).strip().casefold()
    try:
        return f"{float(text):.15g}"
    except ValueError:
        return text


def share_of(name: str, cell: Any) -> float:
    """Return a cell as a number in [0, 1]; raise BadInput, with its ``name``, if it is none."""
    if math.isnan(share := parse_score(cell)):
        raise BadInput(f"{name} is {quote(cell)}; it must be a number in [0, 1]")
    return share


class Columns(Configuration):
    """What the columns of a table mean. Every field is a flag of ``exaul convert table``."""

    score: str | None = setting(None, "table: column of the confidence; a.b is the field b of the object a", "COL")
    scale: str | None = setting(None, "its least and most confident value, as 0:10; 85% needs none", "LOW:HIGH")
    correct: str | None = setting(None, "table: column of labels that say whether the answer is right", "COL")
    error: str | None = setting(None, "table: column of labels that say whether it is wrong", "COL")
    equal: tuple[str, ...] = setting((), "table: two columns; the answer is right if they are equal", "COL")
    drop_missing: bool = setting(False, "table: leave out rows with an empty score or label, and count them")

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.range()
        check_holds("scale", self.scale, low != high and math.isfinite(high - low), "two numbers, as 0:10")
        check_holds("equal", self.equal, len(self.equal) in (0, 2), "two columns")

    def range(self) -> tuple[float, float]:
        """Return the least and the most confident score; NaN if ``scale`` has another form."""
        low, _, high = (self.scale or "0:1").partition(":")
        return parse_number(low), parse_number(high)


def read_table(paths: Sequence[str], columns: Columns) -> tuple[LogRows, list[str]]:
    """Return the rows of a log, and lines that say what was read.

    A row has ``score`` in [0, 1], ``error``, and those columns of the table that hold only texts, numbers and truth
    values.

    Raises:
        BadInput: a file is unreadable or lacks a column, or a cell is empty or has no meaning.
    """
    choices = [choice for choice in (columns.equal, (columns.correct,), (columns.error,)) if any(choice)]
    names = [str(name) for name in (columns.score, *choices[0])] if len(choices) == 1 and columns.score else []
    rows, dropped = LogRows(), 0
    for path in map(Path, paths):
        header, row_iterator = read_rows(path)
        if not names:
            flags = "--score COL and one of --correct COL, --error COL and --equal COL COL"
            raise BadInput(f"{path}: {flags} must name its columns; {listed(header)}")
        file_rows = list(row_iterator)
        lists = [name for name in header if len(file_rows) == 1 and isinstance(file_rows[0].cells[name], list)]
        hint = f" in its only row; save the list {lists[0]} alone, as an array" if lists else ""
        require_fields(path, header, names, hint)
        other_names = [name for name in header if name not in LOG_COLUMNS]
        kept_names = [name for name in other_names if all(isinstance(row.cells[name], SCALAR) for row in file_rows)]
        for row in file_rows:
            empty_names = [name for name in names if row.get(name) is None]
            dropped += bool(empty_names)
            if not empty_names:
                cells = {writable(name): writable(row.cells[name]) for name in kept_names}
                score, error = _score(row, names[0], columns), _error(row, names[1:], columns)
                rows.append(cells | {"score": score, "error": error})
            elif not columns.drop_missing:
                raise BadInput(f"{row.where}: {empty_names[0]} is empty; --drop-missing leaves out such rows")
    if not rows:
        raise BadInput(f"{', '.join(paths)}: no row has both a score and a label; at least one is needed")
    wrong = sum(row["error"] for row in rows)
    rule = "; equal apart from case, surrounding spaces and the form of numbers" * bool(columns.equal)
    return rows, [f"wrong: {wrong:g}{rule}", f"left out for an empty score or label: {dropped}"]


def _score(row: Row, name: str, columns: Columns) -> float:
    if isinstance(cell := unpack(row.get(name)), list):
        raise BadInput(f"{row.where}: {name} is a list; each answer must have a row of its own (DataFrame.explode)")
    text = str(cell).strip()
    low, high = (0.0, 100.0) if text.endswith("%") else columns.range()
    score = (parse_number(text.removesuffix("%")) - low) / (high - low)
    if not 0 <= score <= 1:
        hint = " (--scale LOW:HIGH reads other scales)" if columns.scale is None else ""
        raise BadInput(f"{row.where}: {name} is {quote(cell)}; it must be a number from {low:g} to {high:g}{hint}")
    return score


def _error(row: Row, names: Sequence[str], columns: Columns) -> float:
    label, *other_labels = map(row.get, names)
    if other_labels:
        return float(comparison_key(label) != comparison_key(other_labels[0]))
    right = RIGHT_LABELS.get(comparison_key(label))
    if right is None:
        right = parse_label(label) if columns.correct else 1 - parse_label(label)
    if math.isnan(right):
        raise BadInput(f"{row.where}: {names[0]} is {quote(label)}; it must be {LABEL_FORMS}")
    return 1 - right


def writable(cell: Any) -> Any:
    """Return a cell that a UTF-8 file can hold, with unpaired surrogates escaped."""
    return cell.encode("utf-8", "backslashreplace").decode() if isinstance(cell, str) else cell
