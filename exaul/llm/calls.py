"""The replies of language models that were paid for, in one SQLite file: what is there is not asked for again."""

import hashlib
import json
import math
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from exaul.engine.checks import BadInput


class Reply(NamedTuple):
    """What a model replied to one request."""

    text: str  # without what it thought aloud before, and without white space around it
    logprobs: list[float]  # of the tokens of the text, each at most 0; empty where they are not known
    first: list[tuple[str, float]]  # the likeliest first tokens, with theirs; empty where not asked for
    finish: str  # why it ended: stop, length, refusal, ...
    model: str  # as it calls itself
    fingerprint: str  # of the system behind it; empty where it gives none
    asked: int  # tokens of the prompt
    written: int  # tokens of the reply


def likelihood(logprobs: Sequence[float]) -> float:
    """A text's likelihood, normalised for its length: ``exp`` of the mean of its logprobs; NaN of none."""
    return math.exp(math.fsum(logprobs) / len(logprobs)) if logprobs else math.nan


class Refusal(NamedTuple):
    """Why an endpoint will never reply to one request."""

    status: int
    said: str


def key_of(url: str, request: Mapping[str, Any], number: int = 0) -> str:
    """The name of a call: a digest of where it goes, what is asked, and which of several samples it is."""
    text = json.dumps([url, request, number], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class Calls:
    """Replies by key. Each is in the file before anyone sees it."""

    def __init__(self, path: Path) -> None:
        """Open a file, or begin one.

        Raises:
            BadInput: it cannot be used.
        """
        self.path = path
        try:
            self._file = sqlite3.connect(path, isolation_level=None)  # each statement is in the file when it ends
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
            self._file.execute(
                "CREATE TABLE IF NOT EXISTS calls (key TEXT PRIMARY KEY, reply TEXT NOT NULL, dollars REAL)"
            )
        except sqlite3.Error as error:
            raise BadInput(f"{path}: cannot be used ({error})") from error

    def get(self, key: str) -> Reply | Refusal | None:
        """What came of a call, if it is there.

        Raises:
            BadInput: what is there is neither, or the file cannot be read.
        """
        try:
            row = self._file.execute("SELECT reply FROM calls WHERE key = ?", (key,)).fetchone()
            if row is None:
                return None
            found = json.loads(row[0])
            return Refusal(*found) if len(found) == len(Refusal._fields) else Reply(*found)
        except (sqlite3.Error, TypeError, ValueError) as error:
            raise BadInput(f"{self.path}: the call {key} is unreadable ({error})") from error

    def put(self, key: str, found: Reply | Refusal, dollars: float) -> None:
        """Keep what came of a call, and what it cost, NaN where that is not known.

        Raises:
            OSError: the file cannot be written.
        """
        try:
            self._file.execute("INSERT OR REPLACE INTO calls VALUES (?, ?, ?)", (key, json.dumps(found), dollars))
        except sqlite3.Error as error:
            raise OSError(0, str(error), str(self.path)) from error

    def dollars(self) -> float:
        """What all calls of the file have cost, those left out whose price was not known.

        Raises:
            BadInput: the file cannot be read.
        """
        try:
            return float(self._file.execute("SELECT total(dollars) FROM calls").fetchone()[0])
        except sqlite3.Error as error:
            raise BadInput(f"{self.path}: unreadable ({error})") from error

    def close(self) -> None:
        """Leave the file."""
        self._file.close()
