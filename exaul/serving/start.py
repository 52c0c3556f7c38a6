"""What an Abstainer begins with: nothing, a log of the past, or the answers of a key of a journal."""

import csv
import math
from collections.abc import Mapping, Sequence
from functools import cache, partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from exaul.engine.checks import BadInput, join_lines
from exaul.engine.logs.log import Layout, LogLike, Records, describe_start, file_hash, load_table, read_log
from exaul.kernels.game import ARMS, LOG_ARMS, Start, compute_cuts, log_grid, logit_grid
from exaul.kernels.learners.learner import Ranked, expected_share, start_of
from exaul.serving.configuration import SharedConfiguration, learner_of
from exaul.serving.entries import JournalEntry
from exaul.serving.lock import is_locked_here
from exaul.serving.wal import is_in_wal_mode

COLD = "without a log, most answers are withheld at first; --warm-start LOG, or --shadow with feedback, avoids that"
KEY_PREFIX = "key:"  # prefix of the name of a key whose answers are the log of another
_grid = cache(partial(logit_grid, ARMS, np.empty(0)))  # thousands of Abstainers share it


class AbstainerStart(NamedTuple):
    """What an Abstainer begins with."""

    grid: NDArray[np.float64]  # [H]
    numbers: list[float]  # of its ``OnlineCopy`` before the first question
    table: list[float]  # [H] likewise
    log: dict[str, Any] | None = None  # as in ``Records.describe_log``; None without a log

    @classmethod
    def of(cls, config: SharedConfiguration, saved: Mapping[str, Any] | None) -> Self:
        """Return what ``as_json`` returned for a learner of this configuration."""
        if saved is None:
            return cls.after(config, None)
        return cls(**{**saved, "grid": np.array(saved["grid"], np.float64)})

    @classmethod
    def after(
        cls, config: SharedConfiguration, log: Records | None, scores: NDArray[np.float64] | None = None
    ) -> Self:
        """Return what a learner begins with: after a log of the past, or with nothing known.

        ``scores`` [M], the latest last, are those of all past answers, if the log is a sample of them.
        """
        if log is None:
            grid, records, past_cuts, description = _grid(), None, None, None
        else:
            grid, description = log_grid(LOG_ARMS, log.scores if scores is None else scores), log.describe_log()
            records = compute_cuts(grid, log.scores), log.errors
            past_cuts = None if scores is None else compute_cuts(grid, scores)
        rule = learner_of(config.learner).rule
        _, numbers, counts = start_of(rule, len(grid), [config.alpha], records, past_cuts)
        table = counts.tolist() if isinstance(rule, Ranked) else [0.0] * len(grid)
        return cls(grid, [float(number[0]) for number in numbers], table, description)

    @classmethod
    def after_answers(cls, config: SharedConfiguration, answers: Sequence[JournalEntry], name: str) -> Self:
        """Return what a learner begins with after the answers of a key; with nothing known, if none has feedback.

        Args:
            config: of the key that begins.
            answers: as in ``Journal.answers``.
            name: of the answers.
        """
        # with audits, only audited answers count: they are a random sample, and users choose what they rate
        sample = [x for x in answers if x.error is not None and (x.audit or config.audit is None)]
        if not sample:
            return cls.after(config, None)
        scores, errors = np.array([[entry.score, entry.error] for entry in sample], np.float64).T
        all_scores = np.array([entry.score for entry in answers], np.float64)
        return cls.after(config, Records(name, scores, errors, 0, None), all_scores)

    def as_json(self) -> dict[str, Any] | None:
        """Return the start for JSON, which keeps the bits of floats; None without a log."""
        return None if self.log is None else self._asdict() | {"grid": self.grid.tolist()}

    def describe(self, config: SharedConfiguration) -> str:
        """Return what the learner found in the log from which it starts, in one line; empty without a log."""
        if self.log is None:
            return ""
        if not self.numbers:
            source = f"{self.log['name']}, {self.log['records']:,} rows"
            return f"{config.learner} takes its thresholds from {source}, at alpha = {config.alpha:g}"
        shares = {config.alpha: self.expected_share(config)}
        return describe_start(self.log, config.learner, shares, names_sweep=True)

    def expected_share(self, config: SharedConfiguration) -> float:
        """Return the share of the log that the learner answers at first; NaN without a log, or if it fits none."""
        rule = learner_of(config.learner).rule
        if self.log is None or not isinstance(rule, Ranked):
            return math.nan
        state = type(rule.start)(*np.array(self.numbers)[:, None])
        shares = expected_share(rule, Start(0, state, np.array(self.table)))
        return math.nan if shares is None else round(float(shares[0]), 12)  # a sum of many shares


def read_source(warm_start: LogLike | None, layout: Layout) -> Records | str | None:
    """Return a log, ``key:NAME``, or None. ``BadInput``: the log cannot be read."""
    if isinstance(warm_start, str) and warm_start.startswith(KEY_PREFIX):
        return warm_start
    return None if warm_start is None else read_start_log(warm_start, layout)


def flags_of_log(warm_start: LogLike | None, layout: Layout) -> list[str]:
    """Return the flags of ``exaul journal start`` that name a log; LOG stands for one without a path."""
    log = str(warm_start) if isinstance(warm_start, (str, PathLike)) else "LOG"
    return ["--warm-start", log, *layout.as_flags()]


def read_start_log(log: Any, layout: Layout) -> Records:
    """Return the records of a log to start from, as ``read_log``; a CSV needs no pandas."""
    path = Path(str(log).partition(":")[0]) if isinstance(log, (str, Path)) else None
    if path and path.is_file() and (is_locked_here(path) or is_in_wal_mode(path)):
        raise BadInput(f"warm_start: {path} is a journal; exaul journal export {path} --out LOG writes its log")
    try:
        return read_log(log, layout)
    except ModuleNotFoundError as error:
        if error.name == "pandas":
            return _load_csv(Path(log), layout)
        raise


def _load_csv(path: Path, layout: Layout) -> Records:
    """Return the records of a CSV where pandas is not installed, as in a small service."""
    if path.suffix.lower() != ".csv":
        raise BadInput(f"{path}: it must be a file .csv; others need pandas, which is not installed")
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            rows = [row for row in csv.reader(stream, strict=True) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise BadInput(f"{path}: unreadable ({join_lines(str(error))})") from error
    header = rows.pop(0) if rows else []
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise BadInput(f"{path}, row {number}: {len(row)} cells found; the header has {len(header)}")
    cells = {name: [row[i] for row in rows] for i, name in enumerate(header)}
    return load_table(str(path), cells, layout)._replace(name=path.stem, sha256=file_hash(path))
