"""Storage of model replies in one SQLite file, so that no call is made twice."""

import hashlib
import json
import math
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from exaul.engine.checks import BadInput


class Reply(NamedTuple):
    """The reply of a model to one request."""

    text: str  # without <think> part and surrounding white space
    logprobs: list[float]  # of the tokens of the text, each <= 0; empty if unknown
    first: list[tuple[str, float]]  # likeliest first tokens and their logprobs; empty if not requested
    finish: str  # finish reason: stop, length, refusal, ...
    model: str  # name that the endpoint reports
    fingerprint: str  # system fingerprint; "" if the endpoint gives none
    prompt_tokens: int  # tokens of the prompt
    reply_tokens: int  # tokens of the reply


def likelihood(logprobs: Sequence[float]) -> float:
    """Return the length-normalised likelihood of a text: exp of the mean of its logprobs; NaN if there are none."""
    return math.exp(math.fsum(logprobs) / len(logprobs)) if logprobs else math.nan


class Refusal(NamedTuple):
    """A permanent refusal of one request."""

    status: int
    message: str


def key_of(url: str, request: Mapping[str, Any], number: int = 0) -> str:
    """Return the key of a call: the SHA-256 of its address, its request and the number of the sample."""
    # Canonical JSON: the key must not depend on the order of fields. A changed form would lose every stored reply.
    text = json.dumps([url, request, number], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class Calls:
    """Replies by key. A reply is stored before any caller sees it."""

    def __init__(self, path: Path) -> None:
        """Open or create the file.

        Raises:
            BadInput: the file is not usable.
        """
        self.path = path
        try:
            self._file = sqlite3.connect(path, isolation_level=None)  # autocommit: no reply waits in a transaction
            # WAL with NORMAL syncs survives a killed process without one fsync per reply. Only a power failure
            # can lose the last replies, which are then requested again.
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
            self._file.execute(
                "CREATE TABLE IF NOT EXISTS calls (key TEXT PRIMARY KEY, reply TEXT NOT NULL, dollars REAL)"
            )
        except sqlite3.Error as error:
            raise BadInput(f"{path}: cannot be used ({error})") from error

    def get(self, key: str) -> Reply | Refusal | None:
        """Return the stored outcome of a call, or None.

        Raises:
            BadInput: the entry or the file is unreadable.
        """
        try:
            row = self._file.execute("SELECT reply FROM calls WHERE key = ?", (key,)).fetchone()
            if row is None:
                return None
            fields = json.loads(row[0])
            # Both kinds are stored as JSON lists; their lengths differ.
            return Refusal(*fields) if len(fields) == len(Refusal._fields) else Reply(*fields)
        except (sqlite3.Error, TypeError, ValueError) as error:
            raise BadInput(f"{self.path}: the call {key} is unreadable ({error})") from error

    def put(self, key: str, outcome: Reply | Refusal, dollars: float) -> None:
        """Store the outcome of a call and its cost in dollars, NaN if unknown.

        Raises:
            OSError: the file is not writable.
        """
        try:
            self._file.execute("INSERT OR REPLACE INTO calls VALUES (?, ?, ?)", (key, json.dumps(outcome), dollars))
        except sqlite3.Error as error:
            raise OSError(0, str(error), str(self.path)) from error

    def dollars(self) -> float:
        """Return the total cost of all stored calls; calls of unknown price count as 0.

        Raises:
            BadInput: the file is unreadable.
        """
        try:
            return float(self._file.execute("SELECT total(dollars) FROM calls").fetchone()[0])
        except sqlite3.Error as error:
            raise BadInput(f"{self.path}: unreadable ({error})") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()
