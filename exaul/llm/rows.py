"""Rows of files that other tools wrote: nested fields, and cells as texts and times."""

import ast
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from exaul.engine.checks import BadInput, check_legible, quote, typed
from exaul.engine.logs import files
from exaul.engine.logs.log import is_missing, listed

EARLIEST = datetime.min.replace(tzinfo=UTC)  # the time of what has none


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
                inner = unpacked(self.cells[name[:n]])
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
            if isinstance(cell, str) and not cell.strip().replace(".", "", 1).isdigit():
                cell = datetime.fromisoformat(cell.strip())
            if isinstance(cell, datetime):
                return (cell if cell.tzinfo else cell.replace(tzinfo=UTC)).astimezone(UTC)
            if not isinstance(cell, bool):
                since = float(cell)
                for _ in range(3):  # in seconds, ms, us or ns
                    since /= 1000 if since >= 1e11 else 1
                return datetime.fromtimestamp(since, UTC)
        except (ValueError, TypeError, OverflowError, OSError):
            pass
        name = " or ".join(names)
        raise BadInput(f"{self.where}: {name} is {quote(cell)}; it must be a time, as 2026-01-31T12:00:00Z")

    def rows(self, name: str) -> "list[Row]":
        """Return the objects of a list, none if the field is empty. Raise BadInput if it holds something else."""
        cell = unpacked(self.get(name))
        cells = [] if cell is None else cell if isinstance(cell, list) else [cell]
        objects = [Row(self.where, each) for each in map(unpacked, cells) if isinstance(each, dict)]
        if len(objects) < len(cells) or isinstance(cell, dict):
            raise BadInput(f"{self.where}: {name} is {quote(cell)}; it must be a list of objects")
        return objects


def read_rows(path: Path, rename: Callable[[str], str] = str) -> tuple[list[str], Iterator[Row]]:
    """Return the columns of a file, and its rows. Raise BadInput if the file cannot be read."""
    present = files.columns(path)
    cells, names = files.read(path, present), list(map(rename, present))
    each = zip(cells.rows, zip(*cells.columns.values(), strict=True), strict=True)
    return names, (
        Row(f"{path}, row {number}", dict(zip(names, map(_plain, values), strict=True))) for number, values in each
    )


def _plain(cell: Any) -> Any:
    """Return the text of a cell that is binary, as in Parquet, and None for pandas' missing time."""
    if isinstance(cell, bytes):
        return cell.decode(errors="replace")
    return None if isinstance(cell, datetime) and cell != cell else cell  # that time is unequal to itself


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


def require_fields(path: Path, present: Sequence[str], fields: Iterable[str], why: str = "") -> None:
    """Raise BadInput unless a file has all fields, which may be nested: the column ``a`` can hold ``a.b``.

    The sentence says what the file has and, if there is a ``why``, how to read any table.
    """
    for field in fields:
        if not any(f"{field}.".startswith(f"{name}.") for name in present):
            how = typed("convert", "table", str(path), "--score", "COL", "--correct", "COL")
            hint = f"; for a table of answers use {how}" if why else ""
            raise BadInput(f"{path}: no column {field}{why}; {listed(present)}{hint}")
