"""Read tables of scored answers, in the shapes in which they are published, as rows of a log."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exaul.engine.checks import BadInput, Configuration, check_holds, quote, setting
from exaul.engine.logs.log import listed, parse_label, parse_number, scale_hint
from exaul.llm.joining import comparable
from exaul.llm.rows import Row, read_rows, require_fields, unpacked

RIGHT = {"correct": 1.0, "right": 1.0, "incorrect": 0.0, "wrong": 0.0}  # labels of answers, not of errors
SCALAR = str, int, float, type(None)
REPLACED = "score", "error", "correct"  # columns of a table that a log would take for its own
LABELS = "0 or 1, true or false, yes or no, correct or incorrect, or a number in [0, 1]"


@dataclass(frozen=True, kw_only=True)
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


def read_table(paths: Sequence[str], columns: Columns) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows of a log, and lines that say what was read.

    A row has ``score`` in [0, 1], ``error``, and those columns of the table that hold only texts, numbers and truth
    values.

    Raises:
        BadInput: a file is unreadable or lacks a column, or a cell is empty or has no meaning.
    """
    ways = [way for way in (columns.equal, (columns.correct,), (columns.error,)) if any(way)]
    names = [str(name) for name in (columns.score, *ways[0])] if len(ways) == 1 and columns.score else []
    rows, dropped = list[dict[str, Any]](), 0
    for path in map(Path, paths):
        present, each = read_rows(path)
        if not names:
            flags = "--score COL and one of --correct COL, --error COL and --equal COL COL"
            raise BadInput(f"{path}: {flags} must name its columns; {listed(present)}")
        require_fields(path, present, names)
        every = list(each)
        others = [name for name in present if name not in REPLACED]
        kept = [name for name in others if all(isinstance(row.cells[name], SCALAR) for row in every)]
        for row in every:
            empty = [name for name in names if row.get(name) is None]
            dropped += bool(empty)
            if not empty:
                other = {_writable(name): _writable(row.cells[name]) for name in kept}
                score, error = _score(row, names[0], columns), _error(row, names[1:], columns)
                rows.append(other | {"score": score, "error": error})
            elif not columns.drop_missing:
                raise BadInput(f"{row.where}: {empty[0]} is empty; --drop-missing leaves out such rows")
    if not rows:
        raise BadInput(f"{', '.join(paths)}: no row has both a score and a label; at least one is needed")
    wrong = sum(row["error"] for row in rows)
    how = "; equal apart from case, surrounding spaces and the form of numbers" * bool(columns.equal)
    return rows, [f"wrong: {wrong:g}{how}", f"left out for an empty score or label: {dropped}"]


def _score(row: Row, name: str, columns: Columns) -> float:
    if isinstance(cell := unpacked(row.get(name)), list):
        raise BadInput(f"{row.where}: {name} is a list; each answer must have a row of its own (DataFrame.explode)")
    text = str(cell).strip()
    low, high = (0.0, 100.0) if text.endswith("%") else columns.range()
    score = (parse_number(text.removesuffix("%")) - low) / (high - low)
    if not 0 <= score <= 1:
        hint = scale_hint(text) if columns.scale is None else ""
        raise BadInput(f"{row.where}: {name} is {quote(cell)}; it must be a number from {low:g} to {high:g}{hint}")
    return score


def _error(row: Row, names: Sequence[str], columns: Columns) -> float:
    label, *other = map(row.get, names)
    if other:
        return float(comparable(label) != comparable(other[0]))
    right = RIGHT.get(comparable(label))
    if right is None:
        right = parse_label(label) if columns.correct else 1 - parse_label(label)
    if math.isnan(right):
        raise BadInput(f"{row.where}: {names[0]} is {quote(label)}; it must be {LABELS}")
    return 1 - right


def _writable(cell: Any) -> Any:
    """Return a cell without what no UTF-8 file can hold."""
    return cell.encode("utf-8", "backslashreplace").decode() if isinstance(cell, str) else cell
