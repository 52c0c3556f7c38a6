"""Storage of model replies in one SQLite file, so that no call is made twice."""

import hashlib
import json
import math
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from exaul.engine.checks import BadInput, join_lines
from exaul.llm.replies import Reply, checked

FORMAT = 2  # version of the file, its ``user_version``
_SCHEMA = f"""
    BEGIN;
    CREATE TABLE calls (
        key TEXT UNIQUE, -- NULL: a call that was paid for, whose reply is unreadable
        reply TEXT NOT NULL,
        prompt_tokens INTEGER, -- NULL, as the next two: a refusal, which costs nothing
        reply_tokens INTEGER,
        dollars REAL -- NULL: unknown
    );
    PRAGMA user_version = {FORMAT};
    COMMIT;
"""


class CallTotals(NamedTuple):
    """What all calls of a file took."""

    calls: int
    prompt_tokens: int
    reply_tokens: int
    dollars: float  # NaN if the price of a call is unknown


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
            (version,) = self._file.execute("PRAGMA user_version").fetchone()
            if version == 0 and not self._file.execute("SELECT 1 FROM sqlite_master").fetchone():
                self._file.executescript(_SCHEMA)  # one transaction: a killed process leaves no half of it
            elif version != FORMAT:
                self._file.close()
                raise BadInput(f"{path}: written by another version of exaul; a new folder is needed")
            # WAL with NORMAL syncs survives a killed process without one fsync per reply. Only a power failure
            # can lose the last replies, which are then requested again.
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
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
            if len(fields) > len(Refusal._fields):  # both kinds are stored as JSON lists
                return checked(*fields)
            status, message = fields
            return Refusal(int(status), join_lines(message))
        except (sqlite3.Error, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise BadInput(f"{self.path}: the call {key} is unreadable ({error})") from error

    def put(self, key: str | None, outcome: Reply | Refusal, dollars: float) -> None:
        """Store the outcome of a call and its cost in dollars, NaN if unknown.

        ``key`` None stores an unreadable reply, which counts in ``totals`` and is not used again.

        Raises:
            OSError: the file is not writable.
        """
        paid = (*outcome[-2:], dollars) if isinstance(outcome, Reply) else (None, None, None)
        try:
            self._file.execute(
                "INSERT OR REPLACE INTO calls VALUES (?, ?, ?, ?, ?)", (key, json.dumps(outcome), *paid)
            )
        except sqlite3.Error as error:
            raise OSError(0, str(error), str(self.path)) from error

    def totals(self) -> CallTotals:
        """Return what all stored calls took.

        Raises:
            BadInput: the file is unreadable.
        """
        try:
            calls, prompts, replies, dollars, priced = self._file.execute(
                "SELECT count(prompt_tokens), total(prompt_tokens), total(reply_tokens), total(dollars),"
                " count(dollars) FROM calls"
            ).fetchone()
            return CallTotals(calls, int(prompts), int(replies), dollars if priced == calls else math.nan)
        except (sqlite3.Error, OverflowError) as error:
            raise BadInput(f"{self.path}: unreadable ({error})") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()
