"""Replies of models in one SQLite file, so that no call is made twice, and what they cost."""

import hashlib
import json
import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exaul.engine.checks import BadInput, join_lines
from exaul.llm.replies import Reply, checked_reply

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


class BudgetReached(Exception):
    """No further call is allowed: the budget is spent."""


class CallFailed(Exception):
    """A call without a reply after all retries."""

    def __init__(self, failure: str, reply_text: str = "", status: int = 0) -> None:
        """Store the failure, the endpoint's message and the HTTP status (0: none)."""
        super().__init__(failure)
        self.reply_text, self.status = reply_text, status


class CallRefused(CallFailed):
    """A call that the endpoint refuses permanently."""


def key_of(url: str, request: Mapping[str, Any], sample: int = 0) -> str:
    """Return the key of a call: the SHA-256 of its address, its request and the number of the sample."""
    # Canonical JSON: the key must not depend on the order of fields. A changed form would lose every stored reply.
    text = json.dumps([url, request, sample], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class Calls:
    """Replies by key, and the tokens and dollars of all calls. A reply is stored before any caller sees it."""

    def __init__(self, path: Path, budget: float | None = None) -> None:
        """Open or create the file; ``budget`` is the maximum dollars of all runs that use it, if there is one.

        Raises:
            BadInput: the file is not usable, or there is a budget and an earlier call has no price.
        """
        self.budget, self.reused = budget, 0
        self.systems = defaultdict[str, Counter[str]](Counter)  # replies by model and reported system
        self.path = path
        try:
            self._file = sqlite3.connect(path, isolation_level=None)  # autocommit: no reply waits in a transaction
            (version,) = self._file.execute("PRAGMA user_version").fetchone()
            if version == 0 and not self._file.execute("SELECT 1 FROM sqlite_master").fetchone():
                self._file.executescript(_SCHEMA)  # one transaction: a killed process leaves no half of it
            elif version != FORMAT:
                raise BadInput(f"{path}: written by another version of exaul; a new folder is needed")
            # WAL with NORMAL syncs survives a killed process without one fsync per reply. Only a power failure
            # can lose the last replies, which are then requested again.
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
            self._earlier, *_, self.spent = self._totals()  # calls of earlier runs; dollars of all, NaN if unknown
            if budget is not None and math.isnan(self.spent):
                raise BadInput(f"budget: given, but {path} has calls of unknown price; a new folder is needed")
        except BadInput:
            self._file.close()
            raise
        except sqlite3.Error as error:
            raise BadInput(f"{path}: cannot be used ({error})") from error

    def get(self, key: str) -> Reply | None:
        """Return the stored reply to a call, or None.

        Raises:
            CallRefused: the stored outcome is a refusal.
            BadInput: the entry or the file is unreadable.
        """
        try:
            row = self._file.execute("SELECT reply FROM calls WHERE key = ?", (key,)).fetchone()
            if row is None:
                return None
            fields = json.loads(row[0])
            if len(fields) > 2:  # both kinds are stored as JSON lists
                return checked_reply(*fields)
            status, message = int(fields[0]), join_lines(fields[1])
        except (sqlite3.Error, TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
            raise BadInput(f"{self.path}: the call {key} is unreadable ({error})") from error
        raise CallRefused(f"status {status}", message, status)

    def put(self, key: str | None, outcome: Reply | CallRefused, dollars: float = 0.0) -> None:
        """Store the outcome of a call and its cost in dollars, NaN if unknown. A refusal costs nothing.

        ``key`` None stores an unreadable reply, which counts in ``usage`` and is not used again.

        Raises:
            OSError: the file is not writable.
        """
        if isinstance(outcome, Reply):
            row: list[Any] = [outcome, outcome.prompt_tokens, outcome.reply_tokens, dollars]
        else:
            row = [[outcome.status, outcome.reply_text], None, None, None]
        values = key, json.dumps(row[0]), *row[1:]
        try:
            self._file.execute("INSERT OR REPLACE INTO calls VALUES (?, ?, ?, ?, ?)", values)
        except sqlite3.Error as error:
            raise OSError(0, str(error), str(self.path)) from error
        self.spent += dollars

    def usage(self) -> dict[str, Any]:
        """Return the totals of all runs, and the counts of this one, for the manifest; unknown dollars are None.

        Raises:
            BadInput: the file is unreadable.
        """
        calls, prompts, replies, dollars = self._totals()
        return {
            "calls": calls,
            "prompt tokens": prompts,
            "reply tokens": replies,
            "dollars": None if math.isnan(dollars) else dollars,
            "last run": {"calls": calls - self._earlier, "from before": self.reused},
        }

    def _totals(self) -> tuple[int, int, int, float]:
        """Return calls, tokens of prompts and of replies, and dollars, NaN if the price of a call is unknown."""
        try:
            calls, prompts, replies, dollars, priced = self._file.execute(
                "SELECT count(prompt_tokens), total(prompt_tokens), total(reply_tokens), total(dollars),"
                " count(dollars) FROM calls"
            ).fetchone()
            return calls, int(prompts), int(replies), dollars if priced == calls else math.nan
        except (sqlite3.Error, OverflowError) as error:
            raise BadInput(f"{self.path}: unreadable ({error})") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()
