"""Logs: their columns and records, how they are read, and the log from which learners start.

``files`` is imported by the functions that read one, because it imports pandas.
"""

import hashlib
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.engine.checks import (
    BadInput,
    Configuration,
    as_typed,
    check_known,
    join_lines,
    meant,
    name_with_values,
    quote,
    setting,
    shorten,
)
from exaul.kernels import uniforms
from exaul.kernels.game import BLOCK
from exaul.kernels.learners.aci_rank import SHORT_LOG
from exaul.kernels.metrics import FEASIBLE

if TYPE_CHECKING:  # which imports pandas
    from exaul.engine.logs.files import Table

WARM_START = "warm_start"  # the name of a log that is no file, and the field in its errors
MOST_LISTED = 50  # most values of a column in an error (chosen)


class Layout(Configuration):
    """Names of the columns that hold scores and labels. Only one of ``error`` and ``correct`` may be given."""

    score: str = setting("score", "column of confidence scores in [0, 1]", "COL")
    error: str | None = setting(
        None, "column of errors: 0/1, true/false or a number in [0, 1]; 1 is wrong (default: error)", "COL"
    )
    correct: str | None = setting(None, "column where 1 is right, in place of --error (default: correct)", "COL")
    drop_missing: bool = setting(False, "leave out rows with an empty score or label, and report their number")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.error is not None and self.correct is not None:
            raise BadInput("error: given together with correct; choose one of the two")

    @property
    def changed(self) -> dict[str, Any]:
        """The fields that differ from their defaults."""
        return {f.name: getattr(self, f.name) for f in fields(Layout) if getattr(self, f.name) != f.default}

    def as_flags(self, prefix: str = "--") -> list[str]:
        """Return the changed fields as flags, as a user types them; a flag that is true has no value."""
        pairs = ((prefix + name.replace("_", "-"), value) for name, value in self.changed.items())
        return [word for pair in pairs for word in pair if word is not True]

    def as_service(self, alpha: float, log: str | None, *flags: str) -> str:
        """Return the command of a service that starts from a log, or from none, as a user types it."""
        start = () if log is None else ("--warm-start", log, *self.as_flags("--log-"))
        return as_typed("serve", "--alpha", str(alpha), *flags, *start, "--state", "state.sqlite")

    @property
    def upstream_hint(self) -> str:
        """How to put that service in front of a model, whose score must be of the log's kind."""
        computed = f", with the --score that computes {self.score}," * ("score" in self.changed)
        return f"--upstream URL{computed} puts it in front of a model"

    def check_used(self, log: object) -> None:
        """Raise BadInput if a column is named, but no log is given."""
        if self.changed and log is None:
            raise BadInput(f"{', '.join(self.changed)}: given without warm_start, whose columns they name")


LAYOUT = Layout()  # the default names


class Records(NamedTuple):
    """The scored answers of one log or profile, as ``exaul.load_log`` returns them."""

    name: str  # file name without ending, and selection; or profile; never a path
    scores: NDArray[np.float64]  # [N] in [0, 1]
    errors: NDArray[np.float64]  # [N] in [0, 1], 1 = wrong
    dropped: int  # rows left out for an empty score or label
    sha256: str | None  # of the file, in hexadecimal; None for a profile, and for a table in memory
    groups: NDArray[Any] | None = None  # [N] group of each question, or None

    def take(self, rows: NDArray[Any] | slice) -> "Records":
        """Return the records of some rows, by number, as a slice or as a mask [N]."""
        groups = None if self.groups is None else self.groups[rows]
        return self._replace(scores=self.scores[rows], errors=self.errors[rows], groups=groups)

    def digest(self) -> str:
        """Return a hash of scores and errors. Neither the name nor the groups enter."""
        return hashlib.sha256(self.scores.tobytes() + self.errors.tobytes()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """Return name, size, dropped rows and hash of a log or profile, without its path, for the manifest."""
        size = {"name": self.name, "records": len(self.scores)}
        return size | {"dropped": self.dropped, "sha256": self.sha256}

    def describe_log(self) -> dict[str, Any]:
        """Return ``describe`` of a warm-start log, with its error rate and the hash of its content."""
        return self.describe() | {"error_rate": float(self.errors.mean()), "content": self.digest()}


# a file, as in ``load_log``; a DataFrame; what ``load_log`` returned; or two columns, scores [N] and errors [N]
LogLike = Union[str, PathLike[str], "Table", Records, tuple[ArrayLike, ArrayLike]]


class SelectedRows(NamedTuple):
    """Some columns of a log, and the rows of a selection."""

    path: Path
    rows: Sequence[int]  # number of each row, for messages
    columns: Mapping[str, Sequence[Any]]  # by name
    chosen: NDArray[np.intp]  # [N] positions of the selected rows

    def texts(self, name: str) -> list[str]:
        """Return the selected cells of a column as text."""
        return [cell_text(self.columns[name][row]) for row in self.chosen]

    def numbers(self, name: str, parse: Callable[[Any], float], drop_missing: bool) -> NDArray[np.float64]:
        """Return the selected cells of a column as numbers: NaN if empty and ``drop_missing``; or BadInput."""
        values = np.empty(len(self.chosen))
        for i, row in enumerate(self.chosen):
            cell = self.columns[name][row]
            value = values[i] = parse(cell)
            if math.isnan(value) and not (drop_missing and is_missing(cell)):
                where = f"{self.path}, row {self.rows[row]}"
                if is_missing(cell):
                    self.check_filled(name)
                    hint = "in [0, 1] (use --drop-missing to leave out such rows)"
                    raise BadInput(f"{where}: {name} is empty; it must be {hint}")
                scaled = f" ({as_typed('convert', 'table', '--scale', 'LOW:HIGH')} reads other scales)"
                hint = scaled if parse is parse_score else ", true, false, yes or no"
                raise BadInput(f"{where}: {name} is {quote(cell_text(cell))}; it must be a number in [0, 1]{hint}")
        return values

    def check_filled(self, name: str) -> None:
        """Raise BadInput if a column is empty in all selected rows, of which there are several."""
        if len(self.chosen) > 1 and not any(self.texts(name)):
            rows = f"{len(self.chosen):,} {'selected ' * (len(self.chosen) < len(self.rows))}rows"
            raise BadInput(f"{self.path}: {name} is empty in all {rows}; name another column")

    def errors(self, label: tuple[str, bool], drop_missing: bool) -> NDArray[np.float64]:
        """Return the errors of the selected rows, from the label column that ``label_of`` returns."""
        labels = self.numbers(label[0], parse_label, drop_missing)
        return 1 - labels if label[1] else labels

    def complete(self, score: str, label: tuple[str, bool], drop_missing: bool) -> tuple[NDArray[Any], ...]:
        """Return scores and errors of the selected rows [N] that have both, and their mask; BadInput if none do."""
        scores, errors = self.numbers(score, parse_score, drop_missing), self.errors(label, drop_missing)
        is_complete = ~np.isnan(scores + errors)
        if not is_complete.any():
            for name in (score, label[0]):
                self.check_filled(name)
            raise BadInput(f"{self.path}: no row has both {score} and {label[0]}; at least one is needed")
        return scores[is_complete], errors[is_complete], is_complete


def load_log(
    log: str | PathLike[str],
    layout: Layout = LAYOUT,
    group: str | None = None,
    *,
    score: str | None = None,
    error: str | None = None,
    correct: str | None = None,
    drop_missing: bool | None = None,
) -> Records:
    """Return the records of a log, in the order of the file: ``scores`` [N] and ``errors`` [N], among others.

    Args:
        log: ``PATH``, or ``PATH:COL=VALUE,...`` to keep only matching rows. CSV (also compressed), JSON lines
            (.jsonl, .ndjson, .json), an array of objects (.json) or Parquet.
        layout: names of its columns; default: ``score``, and ``error`` or ``correct``.
        group: column with the group of each question, or None.
        score: column of the scores, in place of that of ``layout``.
        error: column of the errors, where 1 is wrong.
        correct: column where 1 is right, in place of ``error``.
        drop_missing: whether to leave out rows with an empty score or label.

    Raises:
        BadInput: the log is unreadable, has no row, or a cell is invalid: a score or label is empty (unless the
            layout has ``drop_missing``) or not in [0, 1]. The sentence names the file and row, or the column.
    """
    if not isinstance(log, str | PathLike):
        raise BadInput(f"log: {type(log).__name__} found; it must be a path; exaul.Abstainer takes a DataFrame")
    given = {"score": score, "error": error, "correct": correct, "drop_missing": drop_missing}
    changed: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return load_rows(str(log), replace(layout, **changed), group)[0]


def load_rows(log: str, layout: Layout, group: str | None = None) -> tuple[Records, NDArray[np.intp]]:
    """Return the records of a log [N], and the positions of their rows in the file, from 0 [N].

    Arguments and errors are as in ``load_log``.
    """
    from exaul.engine.logs import files

    path, selection = parse_log(log)
    columns = files.columns(path)
    label = label_of(path, columns, layout)
    names = list(dict.fromkeys([layout.score, label[0], *selection, *([] if group is None else [group])]))
    require_columns(path, columns, names)
    cells = read_cells(path, names, selection)
    scores, errors, complete = cells.complete(layout.score, label, layout.drop_missing)
    groups = None if group is None else np.array(cells.texts(group))[complete]
    name, dropped = log_name(path, selection), len(complete) - len(scores)
    return Records(name, scores, errors, dropped, file_hash(path), groups), cells.chosen[complete]


def read_cells(path: Path, names: Sequence[str], selection: Mapping[str, str]) -> SelectedRows:
    """Read columns of a log, and select rows. Raise BadInput if none matches."""
    from exaul.engine.logs import files

    rows, cells = files.read(path, names)
    chosen = np.ones(len(rows), bool)
    for name, value in selection.items():
        chosen &= np.array([cell_text(x) == value for x in cells[name]], bool)
    if not chosen.any():
        for name, value in selection.items():
            values = dict.fromkeys(map(cell_text, cells[name]))
            if 0 < len(values) <= MOST_LISTED:
                check_known(f"{path}: {name}", (value,), values)
        clause = " with " + ", ".join(f"{k}={v}" for k, v in selection.items()) if selection else ""
        raise BadInput(f"{path}: no row{clause}; at least one is needed")
    return SelectedRows(path, rows, cells, np.flatnonzero(chosen))


def load_table(name: str, cells: dict[str, list[Any]], layout: Layout) -> Records:
    """Return the records of a table in memory, cells by column; errors as in ``load_rows``."""
    path, columns = Path(name), list(cells)
    label = label_of(path, columns, layout)
    require_columns(path, columns, (layout.score, label[0]))
    count = len(cells[label[0]])
    table = SelectedRows(path, range(1, count + 1), cells, np.arange(count))
    scores, errors, _ = table.complete(layout.score, label, layout.drop_missing)
    return Records(name, scores, errors, count - len(scores), None)


def label_of(path: Path, columns: Sequence[str], layout: Layout) -> tuple[str, bool]:
    """Return the label column of a log, and whether 1 means right in it. Raise BadInput if that is ambiguous."""
    label_columns = [name for name in (layout.error, layout.correct) if name is not None]
    label_columns = label_columns or [name for name in ("error", "correct") if name in columns]
    if len(label_columns) != 1:
        fault = "the log has columns error and correct"
        fault = fault if label_columns else f"no column error or correct; {listed(columns)}"
        hint = "; name its label column with error=COL or correct=COL, or use "
        raise BadInput(f"{path}: {fault}{hint}{as_typed('convert', 'table')}")
    if label_columns[0] == layout.score:
        raise BadInput(f"{path}: {layout.score!r} named as the column of scores and of labels; they must be two")
    return label_columns[0], layout.correct is not None or (layout.error is None and label_columns[0] == "correct")


def listed(columns: Sequence[str]) -> str:
    """Return the columns of a log as a clause of a message."""
    separator = len(columns) == 1 and re.search("[;\t| ]", columns[0])
    return f"the log has {shorten(', '.join(columns))}" + (", and no comma separates columns" if separator else "")


def require_columns(path: Path, columns: Sequence[str], names: Sequence[str]) -> None:
    """Raise BadInput if a log lacks one of the named columns."""
    for name in names:
        if name not in columns:
            hint = "; name its column of scores with score=COL"
            similar = [x for x in columns if x == f"score_{name}" or x.startswith(f"{name}_")] or [name]
            hint = hint * (name == "score") + meant(similar[:1], columns)
            raise BadInput(f"{path}: no column {name!r}; {listed(columns)}{hint}")


def log_name(path: Path, selection: Mapping[str, Any]) -> str:
    """Return the name of a log in tables: file name without ending, and the selection; never a path."""
    from exaul.engine.logs import files

    return join_lines(name_with_values(files.stem(path), selection))


def with_distinct_names(records: Sequence[Records]) -> tuple[Records, ...]:
    """Append a number to names that several files share, so that every name belongs to one file."""
    names = number_repeats([r.name for r in records], [r.sha256 for r in records])
    return tuple(r._replace(name=name) for r, name in zip(records, names, strict=True))


def number_repeats(names: Sequence[str], owners: Sequence[Any]) -> list[str]:
    """Append numbers to names until each belongs to one owner."""
    numbered: list[str] = []
    for name, owner in zip(names, owners, strict=True):
        new, number = name, 1
        while any(new == used and owner != its_owner for used, its_owner in zip(numbered, owners, strict=False)):
            number += 1
            new = f"{name} ({number})"
        numbered.append(new)
    return numbered


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def parse_log(log: str) -> tuple[Path, dict[str, str]]:
    """Split ``PATH[:COL=VALUE,...]`` into path and selection; an existing file with the whole name wins.

    Raise BadInput if a column is given twice.
    """
    match = re.match(r"(?P<path>.+?):(?P<selection>[^:=]+=.*)$", log, re.DOTALL)
    if match is None or os.path.exists(log):
        return Path(log), {}
    # a value may contain commas: only a comma before "NAME=" separates two terms
    terms = [term.split("=", 1) for term in re.split(r",(?=[^,=]+=)", match["selection"])]
    selection = dict(terms)
    if len(selection) < len(terms):
        raise BadInput(f"logs: {quote(log)} found; a column may be given only once")
    return Path(match["path"]), selection


def is_missing(value: Any) -> bool:
    """Return whether a cell is empty."""
    return (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or (isinstance(value, str) and not value.strip())
    )


def parse_number(value: Any) -> float:
    """Return a cell as a number, or NaN if it is not one."""
    # float(True) is 1 and float("0_1") too, but neither a truth value nor such a text is a number
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, str) and "_" in value):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def parse_score(value: Any) -> float:
    """Return a cell as a number in [0, 1], or NaN if it is not one."""
    number = parse_number(value)
    return number if 0 <= number <= 1 else math.nan


def parse_label(value: Any) -> float:
    """Return a cell as a number in [0, 1]; true and yes are 1, false and no 0, in any case; otherwise NaN."""
    truth = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}.get(str(value).strip().lower())
    return parse_score(value) if truth is None else truth


def cell_text(value: Any) -> str:
    """Return a cell as the text that selections are compared with."""
    return "" if is_missing(value) else str(value)


def read_log(log: Any, layout: Layout) -> Records:
    """Return the records of a log.

    Args:
        log: as ``LogLike``.
        layout: names of the columns of a file or DataFrame.

    Raises:
        BadInput: the log cannot be read, or a number is not in [0, 1].
    """
    if isinstance(log, Records):
        return _of_arrays(log.scores, log.errors)._replace(name=log.name, dropped=log.dropped, sha256=log.sha256)
    if isinstance(log, tuple) and len(log) == 2:
        return _of_arrays(*log)
    if isinstance(log, str | PathLike):
        return load_log(str(log), layout)
    if hasattr(log, "columns"):
        if not log.columns.is_unique:
            raise BadInput(f"{WARM_START}: two columns have one name")
        cells = log.astype(object).where(log.notna(), None)
        return load_table(WARM_START, {str(name): cells[name].tolist() for name in cells}, layout)
    raise BadInput(f"{WARM_START}: {quote(log)} found; it must be a file, a DataFrame, or (scores, errors)")


def _of_arrays(scores: Any, errors: Any) -> Records:
    arrays = []
    for name, values in (("scores", scores), ("errors", errors)):
        try:
            array = np.asarray(values).astype(np.float64).ravel()
        except (TypeError, ValueError) as error:
            raise BadInput(f"{WARM_START}: {name} are {quote(values)}; they must be numbers in [0, 1]") from error
        (rows,) = np.nonzero(~((array >= 0) & (array <= 1)))
        if len(rows):
            raise BadInput(f"{WARM_START}: {name}[{rows[0]}] is {array[rows[0]]}; it must be a number in [0, 1]")
        arrays.append(array)
    size, error_count = map(len, arrays)
    if size != error_count or not size:
        raise BadInput(f"{WARM_START}: {size} scores and {error_count} errors; there must be as many, at least one")
    return Records(WARM_START, arrays[0], arrays[1], 0, None)


def split_log(records: Records, fraction: float, in_order: bool, seed: int) -> tuple[Records, Records]:
    """Return a fraction of the records as the log, and the others.

    The log is their first part if they are played ``in_order``; else a random part, drawn from the seed alone.

    Raises:
        BadInput: there are too few records to start from some and play others.
    """
    total = len(records.scores)
    count = int(fraction * total)
    if not 0 < count < total:
        raise BadInput(
            f"{WARM_START}: {fraction} found; of the {total} records of {records.name}, that leaves none to "
            "start from or none to play"
        )
    is_log = np.arange(total) < count
    if not in_order:
        # the records with the smallest uniforms are the log
        key = uniforms.trial_keys(seed, uniforms.RECORDS_STREAM, uniforms.NO_TRIAL)
        number = np.arange(total, dtype=np.uint32)
        u = uniforms.uniform((key[0][0], key[1][0]), number // np.uint32(BLOCK), number % np.uint32(BLOCK))
        is_log = u <= np.partition(u, count - 1)[count - 1]
    return records.take(is_log)._replace(name=f"{fraction:g} of {records.name}"), records.take(~is_log)


def least_rows(alpha: float) -> int:
    """Return the number of rows from which on a start trusts a log at alpha."""
    return math.ceil(SHORT_LOG / alpha)


def describe_start(
    log_entry: Mapping[str, Any], learner: str, shares: Mapping[Any, float], names_sweep: bool = False
) -> str:
    """Return one line with the shares, by alpha, that a learner answers at first after a log of ``describe_log``.

    With ``names_sweep``, it names the command that finds an alpha, if the share is too small.
    """
    rows, minimum, advice = log_entry["records"], least_rows(min(map(float, shares))), ""
    silent, starts = list[str](), list[str]()
    for alpha, share in shares.items():
        if share > 0:
            starts.append(f"{share:.1%} at alpha = {float(alpha):g}")
        else:
            silent.append(f"{float(alpha):g}")
    if silent:
        starts.append(f"nothing at alpha = {', '.join(silent)}, which no threshold of the log reaches")
        advice = (
            "; it still tries a few answers there, of which more than alpha are wrong if the log is right; "
            f"{as_typed('inspect', 'LOG')} says which alpha a threshold reaches, or if the label is inverted"
        )
    elif names_sweep and min(shares.values()) < FEASIBLE:
        command = as_typed("sweep", "--logs", "LOG", "--alphas", *(f"{float(alpha):g}" for alpha in shares))
        advice = f"; take a larger alpha, such as the one that {command} names"
    few = f"; fewer than {minimum} rows say little" if rows < minimum else ""
    size = f"{rows:,} row{'s' * (rows > 1)}, {log_entry['error_rate']:.1%} wrong{few}"
    return f"{learner} starts by answering {'; '.join(starts)} ({log_entry['name']}: {size}){advice}"
