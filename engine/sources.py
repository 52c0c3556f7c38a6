"""Records to play: users' logs, and built-in profiles for who has none."""

import csv
import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine import tables
from engine.errors import BadInput
from engine.flags import setting

RECORDS = 100_000  # of a built-in profile


class Records(NamedTuple):
    """Scored answers, from one log or profile."""

    name: str  # file stem plus selection, or profile; never a path
    scores: NDArray[np.float64]  # [N] in [0, 1]
    errors: NDArray[np.float64]  # [N] in [0, 1], 1 = wrong
    dropped: int  # rows left out for an empty score or label
    sha256: str | None  # of the file
    groups: NDArray | None = None  # [N], labels of the groups of questions, where a log has them


class Profile(NamedTuple):
    """A built-in source of records."""

    description: str
    draw: Callable[[np.random.Generator], tuple[NDArray, NDArray]]


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Where a log keeps its scores and labels.

    Raises:
        BadInput: both label columns are named.
    """

    score: str = setting("score", "column of confidence scores in [0, 1]", "COL")
    error: str | None = setting(
        None, "column of errors: 0/1, true/false or a number in [0, 1]; 1 is wrong (default: error)", "COL"
    )
    correct: str | None = setting(None, "column that says the opposite: 1 is right (default: correct)", "COL")
    drop_missing: bool = setting(False, "leave out, and count, rows whose score or label is empty")

    def __post_init__(self) -> None:
        if self.error is not None and self.correct is not None:
            raise BadInput("error: given together with correct; choose one of the two")


def load_log(log: str, columns: Columns, group: str | None = None) -> Records:
    """Read one log.

    Args:
        log: ``PATH`` or ``PATH:COL=VALUE,...``, which keeps the rows that match. CSV (also .gz), JSON lines
            (.jsonl, .ndjson) or Parquet.
        columns: names of its columns; where no label is named, whichever of ``error``, ``correct`` exists.
        group: a column of labels of groups of questions, or None.

    Raises:
        BadInput: with the file and row, or the column, at fault.
    """
    path, selection = parse_log(log)
    present = tables.columns(path)
    label = columns.error if columns.error is not None else columns.correct
    if label is None:
        label = _label(path, present, "choose one with --error or --correct")
    inverted = columns.correct is not None or (columns.error is None and label == "correct")
    score = columns.score
    extra = [] if group is None else [group]
    for name in (score, label, *selection, *extra):
        if name not in present:
            raise BadInput(f"{path}: no column {name!r}; it has {', '.join(present)}")

    frame = tables.read(path, list(dict.fromkeys([score, label, *selection, *extra])))
    rows = np.ones(len(frame[score]), bool)
    for name, value in selection.items():
        rows &= np.array([_text(x) == value for x in frame[name]], bool)
    chosen = np.flatnonzero(rows)
    if not len(chosen):
        wanted = " with " + ", ".join(f"{k}={v}" for k, v in selection.items()) if selection else ""
        raise BadInput(f"{path}: no row{wanted}; at least one is needed")
    scores, labels = (
        _parsed(path, frame, chosen, *each, columns.drop_missing)
        for each in ((score, parse_score), (label, parse_label))
    )
    kept = ~(np.isnan(scores) | np.isnan(labels))
    if not kept.any():
        raise BadInput(f"{path}: no row has both {score} and {label}; at least one is needed")
    errors = 1 - labels[kept] if inverted else labels[kept]
    groups = None if group is None else np.array([_text(frame[group][row]) for row in chosen[kept]])
    return Records(_named(path, selection), scores[kept], errors, int((~kept).sum()), _digest(path), groups)


def load_traces(path: Path, apart: Sequence[str], least: int) -> list[Records]:
    """Every trace of a log: one combination of values of some columns, with one of the columns ``score*``.

    Args:
        path: of the log, with a column ``error`` or ``correct``.
        apart: columns that tell traces apart, where the log has them.
        least: records that a trace must have; rows with an empty score or label are left out.

    Raises:
        BadInput: with the file and row, or the column, at fault.
    """
    present = tables.columns(path)
    label = _label(path, present, "a folder of logs needs one of them in each")
    scores = [name for name in present if name.startswith("score")]
    apart = [name for name in apart if name in present]
    frame = tables.read(path, [label, *scores, *apart])
    every = np.arange(len(frame[label]))
    labels = _parsed(path, frame, every, label, parse_label, True)
    errors = 1 - labels if label == "correct" else labels
    keys = list(zip(*(frame[name] for name in apart), strict=True)) if apart else [()] * len(every)
    places: dict[tuple, list[int]] = {}
    for row, key in enumerate(keys):
        places.setdefault(key, []).append(row)
    digest, found = _digest(path), []
    for score in scores:
        values = _parsed(path, frame, every, score, parse_score, True)
        for key, rows in sorted(places.items(), key=lambda item: tuple(map(str, item[0]))):
            kept = np.array([row for row in rows if not math.isnan(values[row] + errors[row])], np.intp)
            if len(kept) >= least:
                name = _named(path, dict(zip(apart, key, strict=True)) | ({"by": score} if len(scores) > 1 else {}))
                found.append(Records(name, values[kept], errors[kept], len(rows) - len(kept), digest))
    return found


def _label(path: Path, present: Sequence[str], advice: str) -> str:
    """Whichever of ``error``, ``correct`` is among the columns of a log.

    Raises:
        BadInput: both are, or neither.
    """
    found = [name for name in ("error", "correct") if name in present]
    if len(found) != 1:
        what = "both error and correct" if found else "neither error nor correct"
        raise BadInput(f"{path}: {what} among its columns; {advice}")
    return found[0]


def _parsed(
    path: Path, frame: dict[str, list], chosen: NDArray, name: str, parse: Callable[[Any], float], drop: bool
) -> NDArray[np.float64]:
    """Numbers of some rows of a column; NaN where a cell is empty and may be.

    Raises:
        BadInput: a cell holds no number that is allowed.
    """
    values = np.empty(len(chosen))
    for i, row in enumerate(chosen):
        value = values[i] = parse(frame[name][row])
        if math.isnan(value) and not (drop and is_missing(frame[name][row])):
            raise BadInput(f"{path}, row {row + 1}: {_complaint(name, frame[name][row])}")
    return values


def _named(path: Path, selection: Mapping[str, Any]) -> str:
    return path.name.split(".")[0] + "".join(f"{':,'[i > 0]}{k}={v}" for i, (k, v) in enumerate(selection.items()))


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def parse_log(log: str) -> tuple[Path, dict[str, str]]:
    """Split ``PATH[:COL=VALUE,...]``; an existing file of the whole name wins."""
    match = re.match(r"(?P<path>.+?):(?P<selection>[^:=]+=.*)$", log, re.DOTALL)
    if match is None or Path(log).exists():
        return Path(log), {}
    terms = re.split(r",(?=[^,=]+=)", match["selection"])
    return Path(match["path"]), dict(term.split("=", 1) for term in terms)


def is_missing(value: Any) -> bool:
    """Whether a cell is empty."""
    return (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or (isinstance(value, str) and not value.strip())
    )


def parse_score(value: Any) -> float:
    """A number in [0, 1], or NaN where the cell holds none."""
    if isinstance(value, (bool, np.bool_)):
        return math.nan
    try:
        number = float(value)
    except (TypeError, ValueError):
        return math.nan
    return number if 0 <= number <= 1 else math.nan


def parse_label(value: Any) -> float:
    """A number in [0, 1], true or false in any case, or NaN where the cell holds none."""
    truth = {"true": 1.0, "false": 0.0}.get(str(value).strip().lower())
    return parse_score(value) if truth is None else truth


def _text(value: Any) -> str:
    return "" if is_missing(value) else str(value)


def _complaint(name: str, value: Any) -> str:
    if is_missing(value):
        return f"{name} is empty; it must be in [0, 1] (--drop-missing leaves such rows out)"
    return f"{name} is {str(value)!r}; it must be a number in [0, 1]"


def load_profile(name: str) -> Records:
    """The 100,000 records of a built-in profile, the same on every call."""
    scores, errors = PROFILES[name].draw(np.random.default_rng(list(name.encode())))
    return Records(name, scores, errors.astype(np.float64), 0, None)


def _beta(error_rate: float, right: tuple[float, float], wrong: tuple[float, float]) -> Callable:
    def draw(rng: np.random.Generator) -> tuple[NDArray, NDArray]:
        errors = rng.random(RECORDS) < error_rate
        return np.where(errors, rng.beta(*wrong, RECORDS), rng.beta(*right, RECORDS)), errors

    return draw


def _levels(error_rate: float, right: float, wrong: float) -> Callable:
    def draw(rng: np.random.Generator) -> tuple[NDArray, NDArray]:
        errors = rng.random(RECORDS) < error_rate
        return rng.binomial(5, np.where(errors, wrong, right)) / 5, errors

    return draw


def _binned(name: str) -> Callable:
    def draw(rng: np.random.Generator) -> tuple[NDArray, NDArray]:
        with (resources.files("engine") / "profiles.csv").open() as stream:
            bins = [row for row in csv.DictReader(stream) if row["profile"] == name]
        lower, upper, right, wrong = (
            np.array([float(row[k]) for row in bins]) for k in ("lower", "upper", "right", "wrong")
        )
        counts = np.concatenate([right, wrong])
        cell = rng.choice(len(counts), RECORDS, p=counts / counts.sum())
        place = cell % len(bins)
        scores = lower[place] + (upper - lower)[place] * rng.random(RECORDS)
        return scores, cell >= len(bins)

    return draw


def _real(model_and_task: str) -> str:
    return f"scores redrawn from binned counts of real records: {model_and_task}"


PROFILES: dict[str, Profile] = {
    "triviaqa-like": Profile(
        "synthetic: error rate 0.15, right answers Beta(8, 1), wrong Beta(3, 2)", _beta(0.15, (8, 1), (3, 2))
    ),
    "nq-like": Profile(
        "synthetic: error rate 0.35, right answers Beta(4, 1), wrong Beta(2, 2)", _beta(0.35, (4, 1), (2, 2))
    ),
    "consistency-like": Profile(
        "synthetic: error rate 0.30, six levels of self-consistency, 0 to 1", _levels(0.30, 0.92, 0.60)
    ),
    "triviaqa-likelihood": Profile(_real("open-domain TriviaQA, likelihood"), _binned("triviaqa-likelihood")),
    "nq-likelihood": Profile(_real("open-domain NQ, likelihood"), _binned("nq-likelihood")),
    "mmlu-probability": Profile(_real("MMLU, answer probability"), _binned("mmlu-probability")),
    "hellaswag-probability": Profile(_real("HellaSwag, answer probability"), _binned("hellaswag-probability")),
}
