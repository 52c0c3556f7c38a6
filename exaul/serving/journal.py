"""The SQLite file of Abstainers: a journal of decisions, feedback and withdrawals, and saved states.

    meta      version and configuration, the same for all keys; totals over all keys after some entry
    keys      number of each key, in the order of first use; it separates the draws of the keys
    journal   all decisions, feedback and withdrawals in order; entries never change
    states    saved state of each key after some entry of the journal

The journal alone restores every key; states and totals only save time.
"""

import fcntl
import json
import operator
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from exaul.engine.checks import BadInput, quote
from exaul.serving.abstainer import Abstainer, AbstainerConfiguration, new_seed

VERSION = 3  # of the file
TOTALS_EVERY = 1000  # entries between saves of the totals
DECIDE, FEEDBACK, WITHDRAW = "decide", "feedback", "withdraw"

_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE keys (key TEXT PRIMARY KEY, number INTEGER NOT NULL UNIQUE);
CREATE TABLE journal (
    seq INTEGER PRIMARY KEY, at REAL NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL,
    score REAL, probability REAL, answered INTEGER, audit INTEGER, error REAL
);
CREATE INDEX by_id ON journal (id);
CREATE INDEX by_key ON journal (key, seq);
CREATE TABLE states (key TEXT PRIMARY KEY, seq INTEGER NOT NULL, state TEXT NOT NULL);
"""


class JournalEntry(NamedTuple):
    """One entry of the journal. Fields that do not apply to its kind are None."""

    seq: int
    at: float  # seconds since 1970
    key: str
    kind: str  # decide, feedback or withdraw
    id: str
    score: float | None
    probability: float | None
    answered: int | None
    audit: int | None
    error: float | None


class JournalTotals(NamedTuple):
    """Sums over the entries of a journal, of all keys."""

    seq: int = 0  # of the last entry in the sums
    answers: int = 0
    audited: int = 0
    observed: int = 0  # feedback
    wrong: float = 0.0  # sum of its errors
    withdrawn: int = 0


class Journal:
    """An open file of Abstainers, which this process alone may change. The caller serializes all calls."""

    def __init__(self, path: Path, configuration: dict[str, Any]) -> None:
        """Open or create a file. Parameters and errors are those of ``Abstainers``."""
        self.path = path
        self._totals: JournalTotals | None = None  # as of the last call of ``load_totals``
        self._handle = _lock_file(path)  # before SQLite creates or reads anything
        try:
            self._file = _open_database(path)
            self.config = self._load_configuration(configuration)
        except BaseException:
            self._handle.close()
            raise

    def close(self) -> None:
        """Close the file and release its lock."""
        self._file.close()
        self._handle.close()  # last: it releases the lock

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what the body writes, or nothing if it raises."""
        with self._file:
            yield

    def all_keys(self) -> list[str]:
        """Return all keys in the order of first use."""
        return [key for (key,) in self._file.execute("SELECT key FROM keys ORDER BY number")]

    def has_key(self, key: str) -> bool:
        """Return whether a key was used in a decision."""
        return self._file.execute("SELECT 1 FROM keys WHERE key = ?", (key,)).fetchone() is not None

    def number_of(self, key: str) -> int:
        """Return the number of a key. A new key gets the next one."""
        self._file.execute("INSERT OR IGNORE INTO keys SELECT ?, count(*) FROM keys", (key,))
        number: int = self._file.execute("SELECT number FROM keys WHERE key = ?", (key,)).fetchone()[0]
        return number

    def first_entry(self, id: str) -> JournalEntry | None:
        """Return the decision with an id, or None."""
        row = self._file.execute("SELECT * FROM journal WHERE id = ? ORDER BY seq LIMIT 1", (id,)).fetchone()
        return None if row is None else JournalEntry(*row)

    def later_kinds(self, id: str) -> set[str]:
        """Return the kinds of the entries of an answer after its decision."""
        rows = self._file.execute("SELECT kind FROM journal WHERE id = ? AND kind <> ?", (id, DECIDE))
        return {kind for (kind,) in rows}

    def entries_after(self, key: str, seq: int) -> Iterator[JournalEntry]:
        """Yield the entries of a key after an entry, in order."""
        rows = self._file.execute("SELECT * FROM journal WHERE key = ? AND seq > ? ORDER BY seq", (key, seq))
        return (JournalEntry(*row) for row in rows)

    def append(self, row: tuple[Any, ...]) -> None:
        """Append an entry: the fields of ``JournalEntry`` from ``key`` on."""
        self._file.execute(
            "INSERT INTO journal (at, key, kind, id, score, probability, answered, audit, error)"
            " VALUES (?,?,?,?,?,?,?,?,?)",
            (time.time(), *row),
        )

    def saved_state(self, key: str) -> tuple[int, dict[str, Any]] | None:
        """Return the number of the entry after which the state of a key was saved, and the state; or None."""
        row = self._file.execute("SELECT seq, state FROM states WHERE key = ?", (key,)).fetchone()
        return None if row is None else (row[0], json.loads(row[1]))

    def save_state(self, key: str, state: dict[str, Any]) -> None:
        """Save the state of a key after its last entry."""
        with self._file:  # entry number and state are committed together, so replay starts at the right entry
            (seq,) = self._file.execute("SELECT max(seq) FROM journal WHERE key = ?", (key,)).fetchone()
            if seq is not None:
                row = key, seq, json.dumps(state)
                self._file.execute("INSERT OR REPLACE INTO states VALUES (?, ?, ?)", row)

    def load_totals(self) -> JournalTotals:
        """Return the totals of the journal: the known ones, and the entries after them."""
        known = self._totals
        if known is None:
            row = self._file.execute("SELECT value FROM meta WHERE name = 'totals'").fetchone()
            known = JournalTotals() if row is None else JournalTotals(*json.loads(row[0]))
        seq, *added = self._file.execute(
            "SELECT max(seq), sum(answered), sum(audit), sum(kind = ?), sum(error), sum(kind = ?)"
            " FROM journal WHERE seq > ?",
            (FEEDBACK, WITHDRAW, known.seq),
        ).fetchone()
        if seq is None:  # no entry is new
            totals = known
        else:
            added = [value or 0 for value in added]  # the sum of no numbers is None
            totals = JournalTotals(seq, *map(operator.add, known[1:], added))
            if seq // TOTALS_EVERY > known.seq // TOTALS_EVERY:
                # saved totals only shorten a later process's first call, so it is no harm if the disk is full
                with suppress(sqlite3.Error), self._file:
                    row = "totals", json.dumps(totals)
                    self._file.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", row)
        self._totals = totals
        return totals

    def _load_configuration(self, configuration: dict[str, Any]) -> dict[str, Any]:
        """Return the file's configuration; write the given one to a new file."""
        with self._file:
            manifest = dict(self._file.execute("SELECT name, value FROM meta"))
            if not manifest:
                config = asdict(AbstainerConfiguration(**configuration))
                config["seed"] = new_seed() if config["seed"] is None else config["seed"]
                Abstainer(**config)  # raises BadInput before anything is written
                # version and configuration are committed together: a file has both or neither
                rows = ("version", str(VERSION)), ("config", json.dumps(config))
                self._file.executemany("INSERT INTO meta VALUES (?, ?)", rows)
                return config
        config = _config_of(self.path, manifest)
        # compare as read back from JSON, where tuples are lists
        for name, value in asdict(AbstainerConfiguration(**configuration)).items():
            if name in configuration and json.loads(json.dumps(value)) != config[name]:
                raise BadInput(f"{name}: {quote(value)} found; {self.path} was begun with {quote(config[name])}")
        return config


@contextmanager
def read_journal(path: str | Path) -> Iterator[tuple[dict[str, Any], dict[str, int], Iterator[JournalEntry]]]:
    """Yield configuration, numbers of the keys, and entries of a file, which another process may have open.

    Raise BadInput if the file is missing, not a journal, or has another version.
    """
    path = Path(path)
    if not path.is_file():
        raise BadInput(f"{path}: no such file")
    file = _open_database(path, begin=False)
    try:
        config = _config_of(path, dict(file.execute("SELECT name, value FROM meta")))
        keys = dict(file.execute("SELECT key, number FROM keys"))
        yield config, keys, (JournalEntry(*row) for row in file.execute("SELECT * FROM journal ORDER BY seq"))
    finally:
        file.close()


def _config_of(path: Path, manifest: dict[str, str]) -> dict[str, Any]:
    version = manifest.get("version")
    if version != str(VERSION):
        raise BadInput(f"{path}: version {version} found; it must be {VERSION}")
    config: dict[str, Any] = json.loads(manifest["config"])
    return config


def _lock_file(path: Path) -> Any:
    """Lock ``PATH.lock``, until the returned handle is closed or the process ends.

    The lock is on a separate file: closing any handle of the database itself would release SQLite's own locks in
    this process. The lock file is never removed: two processes could then lock two files of the same name.
    """
    name = path.with_name(f"{path.name}.lock")
    try:
        handle = name.open("w")
    except OSError as error:
        raise BadInput(f"{path}: cannot be used ({error.strerror})") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        handle.close()
        raise BadInput(f"{path}: is in use by another process") from error
    return handle


def _open_database(path: Path, begin: bool = True) -> sqlite3.Connection:
    """Connect to a file; if ``begin``, create missing tables and set it up for writing."""
    try:
        # threads share the connection; the lock of ``Abstainers`` serializes them
        file = sqlite3.connect(path, check_same_thread=False)
        names = {name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if begin:
            # With WAL, readers such as ``read_journal`` do not block the writer. With NORMAL, a commit is handed to
            # the operating system, and only checkpoints are flushed to disk (fsync): commits survive a crash of the
            # process, and a power failure may lose the last ones without damaging the file.
            file.execute("PRAGMA journal_mode = WAL")
            file.execute("PRAGMA synchronous = NORMAL")
            if not names:
                file.executescript(_TABLES)
                names = {"meta", "keys", "journal", "states"}
    except sqlite3.Error as error:
        raise BadInput(f"{path}: cannot be used ({error})") from error
    if not {"meta", "keys", "journal", "states"} <= names:
        file.close()
        raise BadInput(f"{path}: not a journal; it must be a file of Abstainers")
    return file
