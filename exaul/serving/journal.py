"""The SQLite file of Abstainers: a journal of decisions, feedback and withdrawals, and saved states.

    meta      version and configuration, the same for all keys; totals over all keys after some entry
    keys      number of each key, in the order of first use; it separates the draws of the keys
    journal   all decisions, feedback and withdrawals in order; entries never change
    states    saved state of each key after some entry of the journal

The journal alone restores every key. States and totals only save time: each has a seal, a digest of it and of all
that it depends on, and one that does not fit its seal is not used. Whoever edits the file finds this module between
the rows and the rest of the program: what leaves it is a checked record.
"""

import errno
import fcntl
import hashlib
import json
import operator
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from weakref import WeakValueDictionary

from exaul.engine.checks import BadInput, check_holds, check_legible, quote
from exaul.serving.abstainer import VERSION as STATE
from exaul.serving.abstainer import Abstainer, AbstainerConfiguration, check_trusted, new_seed, saved_configuration

VERSION = 5  # of the file
RELEASES = {"4": "0.1"}  # of exaul that read files of earlier versions
TOTALS_EVERY = 1000  # entries between saves of the totals
DECIDE, FEEDBACK, WITHDRAW = "decide", "feedback", "withdraw"

# what reading or writing a file raises; a UnicodeError, if the message of SQLite has text of a damaged file
FILE_ERRORS = sqlite3.Error, UnicodeError

_SCHEMA = (  # the first table is that of all versions
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE keys (key TEXT PRIMARY KEY NOT NULL, number INTEGER NOT NULL UNIQUE)",
    """CREATE TABLE journal (
        seq INTEGER PRIMARY KEY, at REAL NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL,
        score REAL, probability REAL, answered INTEGER, audit INTEGER, arm INTEGER, weight REAL, error REAL
    )""",
    "CREATE UNIQUE INDEX by_id ON journal (id, kind)",
    "CREATE INDEX by_key ON journal (key, seq)",
    """CREATE TABLE states (
        key TEXT PRIMARY KEY NOT NULL, seq INTEGER NOT NULL, state TEXT NOT NULL, seal TEXT NOT NULL
    )""",
)
_MISSING_ENTRY = "entry {} of key {} is missing, but the state after it was saved"
_MISSING = {  # what is missing: how to find it
    "entry {} is missing": "SELECT first.seq + 1 FROM (SELECT 0 AS seq UNION ALL SELECT seq FROM journal) AS first"
    " WHERE first.seq < (SELECT max(seq) FROM journal) AND first.seq + 1 NOT IN (SELECT seq FROM journal) LIMIT 1",
    _MISSING_ENTRY: "SELECT seq, key FROM states"
    " WHERE NOT EXISTS (SELECT 1 FROM journal WHERE journal.seq = states.seq AND journal.key = states.key) LIMIT 1",
    "the number of key {} is missing": "SELECT key FROM journal WHERE key NOT IN (SELECT key FROM keys) LIMIT 1",
    "all entries of key {} are missing": "SELECT key FROM keys WHERE key NOT IN (SELECT key FROM journal) LIMIT 1",
}


class UnreadableJournal(BadInput):
    """A file whose content cannot be used, although it is a journal."""


class JournalEntry(NamedTuple):
    """One entry of the journal. Fields that do not apply to its kind are None."""

    seq: int
    at: float  # seconds since 1970
    key: str
    kind: str  # decide, feedback or withdraw
    id: str
    score: float | None = None
    probability: float | None = None
    answered: int | None = None
    audit: int | None = None
    arm: int | None = None  # this and ``weight``: of a shown answer that waits for feedback, as ``OnlineDecision``
    weight: float | None = None
    error: float | None = None


_COLUMNS = ", ".join(JournalEntry._fields)
_APPEND = f"INSERT INTO journal ({_COLUMNS}) VALUES (NULL{', ?' * (len(JournalEntry._fields) - 1)})"


class JournalTotals(NamedTuple):
    """Sums over the entries of a journal, of all keys."""

    seq: int = 0  # of the last entry in the sums
    answers: int = 0
    audited: int = 0
    observed: int = 0  # feedback
    wrong: float = 0.0  # sum of its errors
    withdrawn: int = 0


class Journal:
    """An open file of Abstainers. The caller serializes all calls.

    All methods raise one of FILE_ERRORS if the file cannot be used, and UnreadableJournal if its content cannot.
    """

    def __init__(self, path: Path, configuration: dict[str, Any] | None = None) -> None:
        """Open a file: to read it, or, with a configuration, to change it, as the only one who may.

        Raises:
            BadInput: as ``Abstainers``.
        """
        _check_path(path, must_exist=configuration is None)
        self.path = path
        self._totals: JournalTotals | None = None  # as of the last call of ``load_totals``
        self._size = 0  # bytes of the file, which SQLite does not shrink
        # of ``PATH-wal``, which stays until the file is closed, and does not shrink
        self._wal_inode: int | None = None
        self._wal_size = 0
        self._lock = None if configuration is None else _lock(path)
        try:
            with readable(path):
                self._inode = path.stat().st_dev, path.stat().st_ino
                if path.stat().st_nlink > 1:
                    # SQLite keeps the newest entries in another file, beside the name by which it opened this one
                    raise BadInput(f"{path}: has several names (hard links); it must have one")
                # SQLite moves what is beside a file into it when the last connection closes. A reader would take
                # itself for the last if the process that uses the file copies it, because this releases its locks.
                self._absolute = path.resolve()  # the process may change its folder
                self._wal = self._absolute.with_name(f"{self._absolute.name}-wal")
                in_use = self._wal.exists()
                uri = f"{self._absolute.as_uri()}?mode={'ro' if configuration is None and in_use else 'rw'}"
                # threads share the connection
                self._file = sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)
                try:
                    self.config = self._begin(configuration)
                except BaseException:
                    self._file.close()
                    raise
        except BaseException:
            if self._lock is not None:
                self._lock.close()
            raise

    def _begin(self, configuration: dict[str, Any] | None) -> dict[str, Any]:
        """Return the file's configuration; create the tables of a new file. A file of others is not changed."""
        # all but what SQLite itself adds: indexes without text, and the tables of ANALYZE
        query = (
            "SELECT sql FROM sqlite_master WHERE sql NOT NULL AND NOT (type = 'table' AND name GLOB 'sqlite_stat?')"
        )
        schema = {sql for (sql,) in self._file.execute(query)}
        if configuration is None:
            config = self._read_configuration(schema)
            self._file.execute("PRAGMA query_only = TRUE")
            self._file.execute("BEGIN")  # all that is read is of one moment, also if the file is in use
            return config
        config = self._read_configuration(schema) if schema else _new_configuration(configuration)
        _check_same(self.path, configuration, config)
        # With WAL, readers do not block the writer. With NORMAL, a commit is handed to the operating system, and
        # only checkpoints are flushed to disk (fsync): commits survive a crash of the process, and a power failure
        # may lose the last ones without damaging the file.
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = NORMAL")
        if not schema:
            text = json.dumps(config)
            rows = ("version", str(VERSION)), ("config", text), ("seal", _seal_of(VERSION, text))
            with self.transaction():  # a file has all or nothing, whenever the process ends
                for sql in _SCHEMA:
                    self._file.execute(sql)
                self._file.executemany("INSERT INTO meta VALUES (?, ?)", rows)
        return config

    def _read_configuration(self, schema: set[str]) -> dict[str, Any]:
        if _SCHEMA[0] not in schema:
            raise BadInput(f"{self.path}: not a journal; it must be a file of Abstainers")
        meta = dict(self._file.execute("SELECT name, value FROM meta"))
        if meta.get("version") != str(VERSION):
            version = meta.get("version")
            other = f"; exaul {RELEASES[version]} reads it" if version in RELEASES else ""
            raise BadInput(f"{self.path}: version {quote(version)} found; it must be {VERSION}{other}")
        if schema != set(_SCHEMA):
            raise UnreadableJournal(f"{self.path}: the tables were changed; they must be as Abstainers made them")
        if meta.get("seal") != _seal_of(VERSION, meta.get("config")):
            raise UnreadableJournal(f"{self.path}: the configuration was changed; it must be as it was written")
        config = None
        with suppress(ValueError, RecursionError):  # the seal of an edited configuration may fit
            config = json.loads(meta["config"])
        return saved_configuration(str(self.path), config)

    def close(self) -> None:
        """Close the file and release its lock."""
        try:
            self._file.close()
        finally:
            if self._lock is not None:
                self._lock.close()  # last: nobody else may open the file earlier

    def check_usable(self) -> None:
        """Raise OSError if the file was closed, or was opened before this process was forked."""
        if self._lock is None or self._lock.closed:
            raise OSError(errno.EBADF, "is closed, or was opened before a fork; open it in this process", self.path)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what the body writes, or nothing if it raises; raise OSError if the file was changed by others.

        It must not have been moved, removed or cut off: SQLite would go on to write what no later process reads.
        """
        self._check_files()
        self._roll_back()  # Ctrl-C may have ended the last call before it did
        try:
            self._file.execute("BEGIN")
            yield
            self._file.execute("COMMIT")
        finally:
            self._roll_back()

    def _check_files(self) -> None:
        status = os.stat(self._absolute)
        if (status.st_dev, status.st_ino) != self._inode:
            raise OSError(errno.ESTALE, "was replaced while it is open", str(self.path))
        if status.st_size < self._size:
            raise OSError(errno.EIO, "was cut off while it is open", str(self.path))
        self._size = status.st_size
        if self._wal_inode is None and not self._wal.exists():
            return
        status = os.stat(self._wal)
        if self._wal_inode not in (None, status.st_ino):
            raise OSError(errno.ESTALE, "was replaced while it is open", str(self._wal))
        if status.st_size < self._wal_size:
            raise OSError(errno.EIO, "was cut off while it is open", str(self._wal))
        self._wal_inode, self._wal_size = status.st_ino, status.st_size

    def _roll_back(self) -> None:
        if self._file.in_transaction:
            self._file.execute("ROLLBACK")

    def count_keys(self) -> int:
        """Return the number of keys."""
        return int(self._file.execute("SELECT count(*) FROM keys").fetchone()[0])

    def all_keys(self, limit: int = -1, offset: int = 0) -> list[str]:
        """Return all keys in the order of first use; or at most ``limit`` of them, from number ``offset`` on."""
        page = self._file.execute("SELECT key FROM keys ORDER BY number LIMIT ? OFFSET ?", (limit, offset))
        keys = [key for (key,) in page]
        for key in keys:
            if not isinstance(key, str):
                raise UnreadableJournal(f"{self.path}: key {quote(key)} found; it must be a text")
        return keys

    def number_of(self, key: str) -> int | None:
        """Return the number of a key, or None for a new one."""
        row = self._file.execute("SELECT number FROM keys WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        if not isinstance(row[0], int) or not 0 <= row[0] < 2**32:
            raise UnreadableJournal(
                f"{self.path}: number {quote(row[0])} of key {quote(key)}; it must be an integer"
            )
        return row[0]

    def add_key(self, key: str) -> int:
        """Give a new key the next number, and return it."""
        if next(self.entries_after(key, 0), None) is not None:
            raise UnreadableJournal(f"{self.path}: the number of key {quote(key)} is missing")
        self._file.execute("INSERT INTO keys SELECT ?, coalesce(max(number) + 1, 0) FROM keys", (key,))
        number = self.number_of(key)
        assert number is not None
        return number

    def check_integrity(self) -> None:
        """Raise UnreadableJournal if the file's pages or tables contradict each other, or entries are missing."""
        (message,) = self._file.execute("PRAGMA integrity_check(1)").fetchone()
        if message != "ok":
            raise UnreadableJournal(f"{self.path}: is damaged ({message})")
        for what, query in _MISSING.items():
            row = self._file.execute(query).fetchone()
            if row is not None:
                raise UnreadableJournal(f"{self.path}: {what.format(*map(quote, row))}")

    def entries(self, order: str = "seq") -> Iterator[JournalEntry]:
        """Yield all entries, in the order of some columns."""
        return self._entries(f"ORDER BY {order}")

    def entries_of(self, id: str) -> list[JournalEntry]:
        """Return the entries of an answer, its decision first."""
        entries = list(self._entries("WHERE id = ? ORDER BY seq", id))
        kinds = [entry.kind for entry in entries]
        if entries and (kinds[0] != DECIDE or len(set(kinds)) < len(kinds)):
            raise UnreadableJournal(
                f"{self.path}: entry {entries[0].seq}: {kinds} of one id; the first must decide"
            )
        return entries

    def entries_after(self, key: str, seq: int) -> Iterator[JournalEntry]:
        """Yield the entries of a key after an entry, in order."""
        return self._entries("WHERE key = ? AND seq > ? ORDER BY seq", key, seq)

    def entries_until(self, key: str, seq: int) -> Iterator[JournalEntry]:
        """Yield the entries of a key up to an entry, the latest first."""
        return self._entries("WHERE key = ? AND seq <= ? ORDER BY seq DESC", key, seq)

    def latest_entries(self, count: int, **columns: str) -> list[JournalEntry]:
        """Return the latest ``count`` entries with the given values of some columns, the oldest first."""
        condition = " AND ".join(f"{name} = ?" for name in columns) or "true"
        return list(self._entries(f"WHERE {condition} ORDER BY seq DESC LIMIT ?", *columns.values(), count))[::-1]

    def check_writable(self) -> None:
        """Raise an error of SQLite if the file cannot take some new pages; in a transaction.

        A change of a page that the file already has would succeed on a full disk.
        """
        self._file.execute("INSERT INTO meta VALUES ('room', zeroblob(65536))")
        self._file.execute("DELETE FROM meta WHERE name = 'room'")

    def _entries(self, condition: str, *values: Any) -> Iterator[JournalEntry]:
        for row in self._file.execute(f"SELECT {_COLUMNS} FROM journal {condition}", values):
            entry = JournalEntry(*row)
            if not _is_valid(entry):
                raise UnreadableJournal(
                    f"{self.path}: entry {entry.seq}: {quote(row)} found, which was never written"
                )
            yield entry

    def append(self, **columns: Any) -> None:
        """Append an entry with the given fields of ``JournalEntry``."""
        entry = JournalEntry(seq=0, at=time.time(), **columns)
        self._file.execute(_APPEND, entry[1:])

    def save_state(self, key: str, state: dict[str, Any]) -> None:
        """Save the state of a key after its last entry."""
        with self.transaction():  # entry number and state are committed together: a replay starts after that entry
            (seq,) = self._file.execute("SELECT max(seq) FROM journal WHERE key = ?", (key,)).fetchone()
            row = key, seq, json.dumps(state)
            self._file.execute("INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?)", (*row, self._seal(*row)))

    def saved_state(self, key: str) -> tuple[int, Any] | None:
        """Return the entry after which the state of a key was saved, and the state; or None.

        The state is None, too, if it does not fit its seal.
        """
        row = self._file.execute("SELECT key, seq, state, seal FROM states WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        seq, state = row[1], None
        with suppress(ValueError, RecursionError):  # the seal of an edited state may fit
            state = json.loads(row[2]) if row[3] == self._seal(*row[:3]) else None
        if state is not None and [entry.key for entry in self._entries("WHERE seq = ?", seq)] != [key]:
            raise UnreadableJournal(f"{self.path}: {_MISSING_ENTRY.format(quote(seq), quote(key))}")
        return seq, state

    def _seal(self, key: str, *content: Any) -> str:
        return _seal_of(STATE, self.config, key, self.number_of(key), *content)

    def load_totals(self) -> JournalTotals:
        """Return the totals of the journal: the known ones, and the entries after them."""
        known = self._totals or self._saved_totals()
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
                with suppress(*FILE_ERRORS):
                    row = json.dumps([totals, _seal_of(self.config, totals)])
                    self._file.execute("INSERT OR REPLACE INTO meta VALUES ('totals', ?)", (row,))
        self._totals = totals
        return totals

    def _saved_totals(self) -> JournalTotals:
        row = self._file.execute("SELECT value FROM meta WHERE name = 'totals'").fetchone()
        with suppress(TypeError, ValueError, RecursionError):  # no row, or one that was edited
            totals, seal = json.loads(row[0])
            if seal == _seal_of(self.config, totals):
                return JournalTotals(*totals)
        return JournalTotals()


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raise UnreadableJournal if the body cannot use a file."""
    try:
        yield
    except FILE_ERRORS as error:
        raise UnreadableJournal(f"{path}: cannot be used ({error})") from error
    except OSError as error:
        raise BadInput(f"{path}: cannot be used ({error.strerror})") from error


@contextmanager
def read_journal(path: str | Path) -> Iterator[Journal]:
    """Yield a journal that another process may have open.

    Raise BadInput if the file is missing, not a journal, has another version, or has content that cannot be used.
    """
    with readable(Path(path)):
        journal = Journal(Path(path))
        try:
            yield journal
        finally:
            journal.close()


def _check_path(path: Path, must_exist: bool) -> None:
    """Raise BadInput unless a path can be that of a journal; SQLite takes some names for databases in memory."""
    check_holds("path", str(path), not str(path).startswith((":memory:", "file:")), "the path of a file")
    check_legible("path", str(path))
    with readable(path):
        if must_exist and not path.exists():
            raise BadInput(f"{path}: no such file")
        if path.exists() and not path.is_file():
            raise BadInput(f"{path}: is not a file; it must be one")


def _is_valid(entry: JournalEntry) -> bool:
    """Return whether an entry has the fields of its kind, in their ranges."""
    seq, at, key, kind, id, score, *decision, error = entry
    probability, answered, audit, arm, weight = decision
    # numbers begin at 1, and after 2**63 - 1 SQLite would draw them at random
    texts = 0 < seq < 2**62 and type(key) is type(id) is str and type(at) is float
    if kind == DECIDE:
        waits = answered == 1 and type(arm) is int and _in_unit(weight)
        waits_not = arm is None and weight is None
        ranges = _in_unit(score) and _in_unit(probability) and answered in (0, 1) and audit in (0, 1)
        return texts and ranges and (waits or waits_not) and error is None
    nothing = score is None and decision == [None] * len(decision)
    return texts and nothing and ((kind == FEEDBACK and _in_unit(error)) or (kind == WITHDRAW and error is None))


def _in_unit(value: Any) -> bool:
    return type(value) is float and 0 <= value <= 1


def _new_configuration(configuration: dict[str, Any]) -> dict[str, Any]:
    config = asdict(AbstainerConfiguration(**configuration))
    config["seed"] = new_seed() if config["seed"] is None else config["seed"]
    Abstainer(**config)  # raises BadInput before anything is written
    return config


def _check_same(path: Path, given: dict[str, Any], config: dict[str, Any]) -> None:
    """Raise BadInput unless the given fields are those of a file, whose seed is secret.

    A learner of the user's own must be given: opening the file runs its code.
    """
    check_trusted(str(path), config["learner"], "learner" in given, f"learner={config['learner']!r}")
    for name, value in asdict(AbstainerConfiguration(**given)).items():
        if name == "seed" and value not in (None, config["seed"]):
            raise BadInput(f"seed: {value} found; {path} was begun with another")
        if name in given and name != "seed" and value != config[name]:
            raise BadInput(f"{name}: {quote(value)} found; {path} was begun with {quote(config[name])}")


def _seal_of(*content: Any) -> str:
    """Return a digest, which finds accidents and edits by hand."""
    digest = hashlib.blake2b(digest_size=16)
    for part in content:
        text = part if isinstance(part, str) else json.dumps(part, default=repr)
        digest.update(f"{len(text)} {text}".encode())
    return digest.hexdigest()


# of this process, by device and inode
_locks: WeakValueDictionary[tuple[int, int], BinaryIO] = WeakValueDictionary()
_locking = threading.Lock()


def _lock(path: Path) -> BinaryIO:
    """Lock a file, and create it if it is missing. The lock ends when the handle is closed, or with the process.

    The lock is on the file itself, whatever its name, and apart from SQLite's own. Closing any handle of a file
    releases SQLite's locks in the same process, so a file that this process has locked is not opened again.
    """
    with _locking, readable(path):
        if path.exists():
            known = _locks.get((path.stat().st_dev, path.stat().st_ino))
            if known is not None and not known.closed:
                raise BadInput(f"{path}: is in use by this process")
        # others must not read a new file: whoever knows its seed can compute the draws
        handle = os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            handle.close()
            raise BadInput(f"{path}: is in use by another process") from error
        status = os.fstat(handle.fileno())
        _locks[status.st_dev, status.st_ino] = handle
        return handle


def _forget_locks() -> None:
    """Close the handles that a forked process has inherited: the lock stays with its parent, and ends with it."""
    for handle in _locks.values():
        handle.close()
    _locking.release()


os.register_at_fork(before=_locking.acquire, after_in_parent=_locking.release, after_in_child=_forget_locks)
