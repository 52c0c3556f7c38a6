"""The SQLite file of Abstainers: a journal of all that they did.

    meta      version and configuration, the same for all keys; whether the file is in use
    keys      the keys, in the order of first use
    starts    what a key may begin with: thresholds and the first state of its learner, by digest
    journal   all starts of keys, decisions, feedback, withdrawals and snapshots, and what is shown in shadow mode
              and its feedback, in order; entries never change

Each entry has a digest of itself and of the digest before it, so that an edited, missing or foreign entry is
found. The chain is checked from its beginning if the file was not closed, and by ``exaul journal verify``. A
snapshot is the state of a key after the entries before it; it only saves the time to replay them. Whoever edits the
file finds this module between the rows and the rest of the program: what leaves it is a checked record.
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
from weakref import WeakValueDictionary, finalize

from exaul.engine.checks import BadInput, check_holds, check_legible, quote
from exaul.serving.abstainer import AbstainerConfiguration, AbstainersConfiguration, new_seed, saved_configuration
from exaul.serving.wal import UnreadableJournal, check_wal

VERSION = 6  # of the file
RELEASES = {"4": "0.1", "5": "0.2"}  # of exaul that read files of earlier versions
START, DECIDE, FEEDBACK, WITHDRAW, SNAPSHOT = "start", "decide", "feedback", "withdraw", "snapshot"
SHOWN, VERDICT = "shown", "verdict"  # in shadow mode: an answer that nobody decided on, and its feedback

# what reading or writing a file raises; a UnicodeError, if the message of SQLite has text of a damaged file
FILE_ERRORS = sqlite3.Error, UnicodeError

_SCHEMA = (  # the first table is that of all versions
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE keys (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE)",
    "CREATE TABLE starts (digest TEXT PRIMARY KEY, start TEXT NOT NULL)",
    """CREATE TABLE journal (
        seq INTEGER PRIMARY KEY, at REAL NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL,
        id TEXT NOT NULL, ref TEXT,
        score REAL, probability REAL, answered INTEGER, audit INTEGER, error REAL, data TEXT, chain TEXT NOT NULL
    )""",
    "CREATE UNIQUE INDEX by_id ON journal (id, kind) WHERE id <> ''",
    "CREATE UNIQUE INDEX by_ref ON journal (ref) WHERE ref NOT NULL",
    "CREATE INDEX by_key ON journal (key, seq)",
    "CREATE INDEX by_audit ON journal (seq) WHERE audit = 1",
    "CREATE INDEX by_kind ON journal (key, kind, seq) WHERE kind IN ('start', 'snapshot', 'shown', 'verdict')",
)


class JournalEntry(NamedTuple):
    """One entry of the journal. Fields that do not apply to its kind are None."""

    seq: int
    at: float  # seconds since 1970
    key: str
    kind: str  # start, decide, feedback, withdraw, snapshot, shown or verdict
    id: str = ""  # of the decision; empty for a start or a snapshot
    ref: str | None = None  # another name of the answer, given by whoever asked
    score: float | None = None
    probability: float | None = None
    answered: int | None = None
    audit: int | None = None
    error: float | None = None
    data: str | None = None  # JSON: of a start {"alpha", "start"}, of a snapshot ``Abstainer.summary``


_OF_KIND = "kind = ? AND kind IN ('start', 'snapshot', 'shown', 'verdict')"  # so that the index by_kind is used
_LATER = "SELECT 1 FROM journal AS later WHERE later.id = journal.id AND later.id <> '' AND later.seq > journal.seq"
_OPEN_AUDIT = f"audit = 1 AND NOT EXISTS ({_LATER})"
_LAST = "coalesce((SELECT seq || ' ' || chain FROM journal ORDER BY seq DESC LIMIT 1), '0')"
_OF_ALL = {"seq", "at", "key", "kind", "id"}
_COLUMNS = ", ".join(JournalEntry._fields)
_APPEND = f"INSERT INTO journal ({_COLUMNS}, chain) VALUES (?{', ?' * len(JournalEntry._fields)})"


class JournalTotals(NamedTuple):
    """Sums over the entries of a journal, of all keys."""

    seq: int = 0  # of the last entry in the sums
    answers: int = 0
    audited: int = 0
    observed: int = 0  # feedback
    wrong: float = 0.0  # sum of its errors
    withdrawn: int = 0


class _Transaction:
    """The context of ``Journal.transaction``.

    It is no generator: one that Ctrl-C interrupts is closed when its traceback is freed, and would then undo the
    transaction of another call.
    """

    def __init__(self, journal: "Journal") -> None:
        self._journal = journal

    def __enter__(self) -> None:
        self._journal.begin()

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._journal.commit()
                kind = True  # it is done
        finally:
            if kind is not True:
                self._journal.roll_back()


class Journal:
    """An open file of Abstainers. The caller serializes all calls.

    All methods raise one of FILE_ERRORS if the file cannot be used, and UnreadableJournal if its content cannot.
    """

    def __init__(self, path: Path, configuration: dict[str, Any] | None = None, accept_loss: bool = False) -> None:
        """Open a file: to read it, or, with a configuration, to change it, as the only one who may.

        Raises:
            BadInput: as ``Abstainers``.
        """
        _check_path(path, must_exist=configuration is None)
        self.path = path
        self._totals = JournalTotals()
        self._latest: tuple[int, str] | None = None  # number and digest of the latest entry, if known
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
                self._absolute = path.resolve()  # the process may change its folder
                self._wal = self._absolute.with_name(f"{self._absolute.name}-wal")
                # First without changing it: SQLite would move what is beside the file into it, whatever that is.
                known = self._look(configuration is None, accept_loss)
                if known is not None:
                    _check_same(path, configuration or {}, known)
                    self.config = known
                if configuration is not None:
                    self._begin_writing(configuration, known is None)
        except BaseException:
            if self._lock is not None:
                self._lock.close()
            raise

    def _connect(self, mode: str) -> None:
        # threads share the connection
        self._file = sqlite3.connect(
            f"{self._absolute.as_uri()}?{mode}", uri=True, check_same_thread=False, isolation_level=None
        )

    def _look(self, reads: bool, accept_loss: bool) -> dict[str, Any] | None:
        """Check the file without changing it, and return its configuration, or None if it is to be created.

        A file that another process uses is opened read-only: who closes a file last moves FILE-wal into it, and a
        reader can take itself for the last, since a process that copies the file it uses loses its locks.
        """
        if not self._absolute.stat().st_size and self._wal.exists() and self._wal.stat().st_size:
            raise UnreadableJournal(f"{self.path}: is empty or missing, and {self._wal.name} is not")
        if not reads and not self._absolute.stat().st_size:
            return None
        changes = reads and _is_locked(self._absolute)  # while it is read
        if not changes:
            check_wal(self._wal)
        alone, last_words = not self._wal.exists(), None  # now, for SQLite creates FILE-wal
        # ``VACUUM INTO`` writes all entries, to a file that is not in SQLite's mode WAL
        bare = alone and _is_in_wal_mode(self._absolute)
        if not (alone or changes):
            self._connect("mode=ro&immutable=1")  # the file alone, without what is beside it
            try:
                last_words = self._last_words()
            finally:
                self._file.close()
        quiet = "mode=rw" if reads and self._is_writable() and not self._is_hot() else "mode=ro&immutable=1"
        self._connect(quiet if alone else "mode=ro")
        try:
            self._file.execute("PRAGMA query_only = TRUE")
            self._file.execute("BEGIN")  # all that is read is of one moment, also if the file is in use
            known = self._checked(bare, last_words, accept_loss) if reads or self._schema() else None
        except BaseException:
            self._file.close()
            raise
        if not reads:
            self._file.close()
        return known

    def _is_writable(self) -> bool:
        return os.access(self._absolute, os.W_OK) and os.access(self._absolute.parent, os.W_OK)

    def _is_hot(self) -> bool:
        """Return whether a program that is not exaul was interrupted as it changed the file."""
        return self._absolute.with_name(f"{self._absolute.name}-journal").exists()

    def _schema(self) -> set[str]:
        # all but what SQLite itself adds: indexes without text, and the tables of ANALYZE
        query = (
            "SELECT sql FROM sqlite_master WHERE sql NOT NULL AND NOT (type = 'table' AND name GLOB 'sqlite_stat?')"
        )
        return {sql for (sql,) in self._file.execute(query)}

    def _last_words(self) -> tuple[Any, Any] | None:
        """Return the configuration and the latest entry, if they can be read: a kill may tear the file itself."""
        with suppress(*FILE_ERRORS):
            text = self._file.execute("SELECT value FROM meta WHERE name = 'config'").fetchone()
            entry = self._file.execute("SELECT seq, chain FROM journal ORDER BY seq DESC LIMIT 1").fetchone()
            return text, entry
        return None

    def _checked(self, bare: bool, last_words: tuple[Any, Any] | None, accept_loss: bool) -> dict[str, Any]:
        """Return the configuration after all checks of a file.

        Args:
            bare: nothing is beside a file of Abstainers, as after they closed it, or after a part of it was lost.
            last_words: its configuration and latest entry without what is beside it, if known.
            accept_loss: its latest entries may be missing.
        """
        schema = self._schema()
        if _SCHEMA[0] not in schema:
            raise BadInput(f"{self.path}: not a journal; it must be a file of Abstainers")
        meta = dict(self._file.execute("SELECT name, value FROM meta"))
        if meta.get("version") != str(VERSION):
            version = meta.get("version")
            other = f"; exaul {RELEASES[version]} reads it" if version in RELEASES else ""
            raise BadInput(f"{self.path}: version {quote(version)} found; it must be {VERSION}{other}")
        if schema != set(_SCHEMA):
            raise UnreadableJournal(f"{self.path}: the tables were changed; they must be as Abstainers made them")
        config = None
        with suppress(ValueError, LookupError, RecursionError):  # whoever edited it
            config = json.loads(meta["config"])
        config = saved_configuration(str(self.path), config)
        if self._is_hot():
            raise UnreadableJournal(
                f"{self.path}: another program was interrupted, and left {self.path.name}-journal"
            )
        text, entry = last_words or (None, None)
        query = "SELECT seq, chain FROM journal WHERE seq = ?"
        same = entry is None or self._file.execute(query, entry[:1]).fetchone() == entry
        if text not in (None, (meta["config"],)) or not same:
            raise UnreadableJournal(f"{self.path}: {self._wal.name} is of another file, or of an earlier time")
        self._first_link = _digest_of(str(VERSION), meta["config"])
        closed = meta.get("closed")
        if bare and not closed and not accept_loss:
            raise UnreadableJournal(
                f"{self.path}: was copied while it was in use, or {self._wal.name} was removed, perhaps by another "
                "program after a crash: the latest entries may be missing; accept_loss (--accept-loss) goes on "
                "with those that are there"
            )
        if closed and self._file.execute(f"SELECT {_LAST}").fetchone() != (closed,):
            raise UnreadableJournal(f"{self.path}: the latest entries are not those with which it was closed")
        if closed and bare:
            self._check_chain(self.last_seq())
        else:
            self._check_pages()
            self._check_chain(1)
        return config

    def _begin_writing(self, configuration: dict[str, Any], new: bool) -> None:
        """Open the file to append to it."""
        self._connect("mode=rw")
        try:
            # With WAL, readers do not block the writer. With NORMAL, a commit is handed to the operating system,
            # and only checkpoints are flushed to disk (fsync): commits survive a crash of the process, and a power
            # failure may lose the last ones without damaging the file.
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
            if new:
                self.config = _new_configuration(configuration)
                text = json.dumps(self.config)
                self._first_link = _digest_of(str(VERSION), text)
                with self.transaction():  # a file has all or nothing, whenever the process ends
                    for sql in _SCHEMA:
                        self._file.execute(sql)
                    rows = ("version", str(VERSION)), ("config", text), ("closed", "0")
                    self._file.executemany("INSERT INTO meta VALUES (?, ?)", rows)
            _set_in_use(self._file, True)
            self._wal_size = 0
        except BaseException:
            _leave(self._file, os.getpid())
            raise
        # Also if nobody calls ``close``, SQLite closes the file, at the latest when the process ends.
        self._leave = finalize(self, _leave, self._file, os.getpid())

    def close(self) -> None:
        """Close the file and release its lock."""
        try:
            if self._lock is not None:
                self._leave()
            self._file.close()
        finally:
            if self._lock is not None:
                self._lock.close()  # last: nobody else may open the file earlier

    def check_usable(self) -> None:
        """Raise OSError if the file was closed, or was opened before this process was forked."""
        if self._lock is None or self._lock.closed:
            raise OSError(errno.EBADF, "is closed, or was opened before a fork; open it in this process", self.path)

    def transaction(self) -> "_Transaction":
        """Return a context that commits what its body writes, or nothing if that raises.

        It raises OSError if others have moved, removed or cut off the file: SQLite would go on to write what no
        later process reads.
        """
        return _Transaction(self)

    def begin(self) -> None:
        """Begin a transaction."""
        self._check_files()
        if self._file.in_transaction:  # Ctrl-C may have ended the last call before it was undone
            self.roll_back()
        self._file.execute("BEGIN")

    def commit(self) -> None:
        """Commit the transaction."""
        self._file.execute("COMMIT")
        self._wal_size = os.stat(self._wal).st_size

    def roll_back(self) -> None:
        """Undo the transaction that is open, if any, and forget what was computed in it."""
        self._totals, self._latest = JournalTotals(), None  # first: Ctrl-C may come in between
        if self._file.in_transaction:
            self._file.execute("ROLLBACK")

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
        self._wal_inode = status.st_ino

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

    def add_key(self, key: str) -> None:
        """List a key, unless it is known."""
        self._file.execute("INSERT OR IGNORE INTO keys (key) VALUES (?)", (key,))

    def add_start(self, key: str, alpha: float, start: dict[str, Any] | None) -> None:
        """Let a key begin, or begin anew, with a target and what ``AbstainerStart.as_json`` returned, if anything.

        The number of the entry separates the draws of this start from those of all others.
        """
        self.add_key(key)
        digest = None
        if start is not None:  # thousands of keys may begin with the same log
            text = json.dumps(start)
            digest = _digest_of(text)
            self._file.execute("INSERT OR IGNORE INTO starts VALUES (?, ?)", (digest, text))
        self.append(key=key, kind=START, data=json.dumps({"alpha": alpha, "start": digest}))

    def start_of(self, entry: JournalEntry) -> tuple[float, Any]:
        """Return the target of a start, and what it begins with, or None."""
        with suppress(ValueError, LookupError, TypeError, RecursionError):
            data = json.loads(entry.data or "")
            alpha, digest = float(data["alpha"]), data["start"]
            if digest is None:
                return alpha, None
            (text,) = self._file.execute("SELECT start FROM starts WHERE digest = ?", (digest,)).fetchone()
            if _digest_of(text) == digest:
                return alpha, json.loads(text)
        raise UnreadableJournal(f"{self.path}: entry {entry.seq}: a start that was never written")

    def last_seq(self) -> int:
        """Return the number of the latest entry, 0 if there is none."""
        return int(self._file.execute("SELECT coalesce(max(seq), 0) FROM journal").fetchone()[0])

    def _check_chain(self, since: int) -> None:
        """Raise UnreadableJournal unless the entries from number ``since`` on are those that were appended."""
        row = self._file.execute("SELECT chain FROM journal WHERE seq = ?", (since - 1,)).fetchone()
        link, expected = self._first_link if row is None else row[0], max(since, 1)
        rows = self._file.execute(f"SELECT {_COLUMNS}, chain FROM journal WHERE seq >= ? ORDER BY seq", (since,))
        for *entry, written in rows:
            if entry[0] != expected:
                raise UnreadableJournal(f"{self.path}: entry {expected} is missing")
            link = _digest_of(link, json.dumps(entry, default=repr))
            if link != written:
                raise UnreadableJournal(
                    f"{self.path}: entry {expected} or one before it was changed, or is of another file"
                )
            expected += 1

    def _check_pages(self) -> None:
        (message,) = self._file.execute("PRAGMA integrity_check(1)").fetchone()
        if message != "ok":
            raise UnreadableJournal(f"{self.path}: is damaged ({message})")

    def check_integrity(self) -> None:
        """Raise UnreadableJournal if the file's pages or tables contradict each other, or an entry was changed."""
        self._check_pages()
        self._check_chain(1)
        query = "SELECT key FROM journal GROUP BY key ORDER BY min(seq)"
        if [key for (key,) in self._file.execute(query)] != self.all_keys():
            raise UnreadableJournal(f"{self.path}: the keys are not those of the journal")

    def entries(self, order: str = "seq") -> Iterator[JournalEntry]:
        """Yield all entries, in the order of some columns."""
        return self._entries(f"ORDER BY {order}")

    def entries_of(self, id: str) -> list[JournalEntry]:
        """Return the entries of an answer, its decision first. Its ``ref`` names it as well."""
        entries = list(self._entries("WHERE id = ? AND id <> '' ORDER BY seq", id))  # so that by_id is used
        if not entries:
            named = self._file.execute("SELECT id FROM journal WHERE ref = ?", (id,)).fetchone()
            return [] if named is None else self.entries_of(named[0])
        kinds = [entry.kind for entry in entries]
        if entries and (kinds[0] not in (DECIDE, SHOWN) or len(set(kinds)) < len(kinds)):
            raise UnreadableJournal(f"{self.path}: entry {entries[0].seq}: {kinds} of one id; the first must be it")
        return entries

    def latest_start(self, key: str) -> list[JournalEntry]:
        """Return the latest start of a key, and the latest snapshot after it; nothing if the key is new."""
        latest = list[JournalEntry]()
        for kind in (START, SNAPSHOT):
            latest += self._entries(f"WHERE key = ? AND {_OF_KIND} ORDER BY seq DESC LIMIT 1", key, kind)
        return latest[:1] if len(latest) == 2 and latest[1].seq < latest[0].seq else latest

    def scored(self, key: str) -> list[tuple[float, int, float | None]]:
        """Return score, audit and error (or None) of all answers of a key, also of those not shown, in order."""
        later = "SELECT later.error FROM journal AS later WHERE later.id = journal.id AND later.id <> ''"
        query = f"""SELECT score, audit, ({later} AND later.error NOT NULL) FROM journal
            WHERE key = ? AND score NOT NULL ORDER BY seq"""
        return self._file.execute(query, (key,)).fetchall()

    def shadow_counts(self, key: str, seq: int) -> list[float]:
        """Return sums over the entries of shadow mode of a key after an entry.

        They are: answers; audited ones; feedback; its errors; feedback on audited answers; its errors.
        """
        where = f"FROM journal WHERE key = ? AND {_OF_KIND} AND seq > ?"
        first = "SELECT first.audit FROM journal AS first WHERE first.id = later.id AND first.id <> ''"
        given = f"""
            SELECT count(*), sum(error), sum(audited), sum(error * audited)
            FROM (SELECT error, ({first} AND first.kind = 'shown') AS audited FROM (SELECT * {where}) AS later)
            WHERE audited NOT NULL"""
        counts = [
            *self._file.execute(f"SELECT count(*), sum(audit) {where}", (key, SHOWN, seq)).fetchone(),
            *self._file.execute(given, (key, VERDICT, seq)).fetchone(),
        ]
        return [count or 0 for count in counts]  # the sum of no numbers is None

    def open_audits(self, limit: int) -> list[JournalEntry]:
        """Return the oldest audited answers that have neither feedback nor a withdrawal, at most ``limit``."""
        return list(self._entries(f"WHERE {_OPEN_AUDIT} ORDER BY seq LIMIT ?", limit))

    def count_open_audits(self) -> int:
        """Return the number of such answers."""
        return int(self._file.execute(f"SELECT count(*) FROM journal WHERE {_OPEN_AUDIT}").fetchone()[0])

    def entries_between_starts(self, key: str, seq: int) -> Iterator[JournalEntry]:
        """Yield the entries of a key from its first start to its start ``seq``; nothing if that is the first."""
        query = f"SELECT min(seq) FROM journal WHERE key = ? AND {_OF_KIND}"
        (first,) = self._file.execute(query, (key, START)).fetchone()
        if first != seq:
            yield from self._entries("WHERE key = ? AND seq BETWEEN ? AND ? ORDER BY seq", key, first, seq)

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
        if self._latest is None:
            row = self._file.execute("SELECT seq, chain FROM journal ORDER BY seq DESC LIMIT 1").fetchone()
            self._latest = row or (0, self._first_link)
        seq, link = self._latest
        entry = JournalEntry(seq=seq + 1, at=time.time(), **columns)
        link = _digest_of(link, json.dumps(entry))
        self._file.execute(_APPEND, (*entry, link))
        self._latest = seq + 1, link

    def load_totals(self) -> JournalTotals:
        """Return the totals of the journal: the known ones, and the entries after them."""
        known = self._totals
        seq, *added = self._file.execute(
            "SELECT max(seq), sum(answered), sum(audit), sum(kind = ?), sum(error), sum(kind = ?)"
            " FROM journal WHERE seq > ? AND kind NOT IN (?, ?)",
            (FEEDBACK, WITHDRAW, known.seq, SHOWN, VERDICT),
        ).fetchone()
        if seq is not None:  # else no entry is new
            added = [value or 0 for value in added]  # the sum of no numbers is None
            self._totals = JournalTotals(seq, *map(operator.add, known[1:], added))
        return self._totals


def _set_in_use(file: sqlite3.Connection, in_use: bool) -> None:
    """Write into the file itself that it is in use, or with which entry it was closed.

    A copy of a file in use, without what is beside it, lacks the latest entries.
    """
    value = "''" if in_use else _LAST
    file.execute(f"INSERT OR REPLACE INTO meta SELECT 'closed', {value}")
    file.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _leave(file: sqlite3.Connection, process: int) -> None:
    """Mark a file as closed, and close it, in the process that opened it."""
    if os.getpid() != process:  # a fork must not use the connection of its parent
        return
    with suppress(*FILE_ERRORS):  # as after a kill: whoever opens it next checks more
        if file.in_transaction:
            file.execute("ROLLBACK")
        try:
            _set_in_use(file, False)
        except KeyboardInterrupt:
            _set_in_use(file, False)
            raise
    file.close()


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
    seq, at, key, kind, id, ref, score, probability, answered, audit, error, data = entry
    # numbers begin at 1, and after 2**63 - 1 SQLite would draw them at random
    if not (0 < seq < 2**62 and type(key) is str and type(at) is float):
        return False
    if type(id) is not str or not (ref is None or type(ref) is str):
        return False
    given = {name for name, value in zip(entry._fields, entry, strict=True) if value is not None} - _OF_ALL
    match kind:
        case "shown":
            return _in_unit(score) and id != "" and given - {"ref"} == {"score", "audit"} and audit in (0, 1)
        case "decide":
            numbers = _in_unit(score) and _in_unit(probability) and answered in (0, 1) and audit in (0, 1)
            return numbers and id != "" and given - {"ref"} == {"score", "probability", "answered", "audit"}
        case "feedback" | "verdict":
            return id != "" and given == {"error"} and _in_unit(error)
        case "withdraw":
            return id != "" and not given
    return kind in (START, SNAPSHOT) and id == "" and given == {"data"} and type(data) is str


def _in_unit(value: Any) -> bool:
    return type(value) is float and 0 <= value <= 1


def _new_configuration(configuration: dict[str, Any]) -> dict[str, Any]:
    config = asdict(AbstainerConfiguration(**configuration))
    config["seed"] = new_seed() if config["seed"] is None else config["seed"]
    return config


def _check_same(path: Path, given: dict[str, Any], config: dict[str, Any]) -> None:
    """Raise BadInput unless the given fields are those of a file, whose seed is secret."""
    for name, value in asdict(AbstainersConfiguration(**given)).items():
        if name == "seed" and value not in (None, config["seed"]):
            raise BadInput(f"seed: {value} found; {path} was begun with another")
        if name in given and name != "seed" and value != config[name]:
            raise BadInput(f"{name}: {quote(value)} found; {path} was begun with {quote(config[name])}")


def _digest_of(*parts: str) -> str:
    """Return a digest, which finds accidents and edits by hand."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(f"{len(part)} {part}".encode())
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


def _is_in_wal_mode(path: Path) -> bool:
    """Return whether SQLite keeps the newest pages of a file beside it ("Database Header" of its documentation).

    Nobody may have the file open in this process: to close any handle of it releases SQLite's locks.
    """
    with path.open("rb") as handle:
        return handle.read(19)[-1:] == b"\x02"


def _is_locked(path: Path) -> bool:
    """Return whether this or another process has a file open to change it."""
    known = _locks.get((path.stat().st_dev, path.stat().st_ino))
    if known is not None:
        return not known.closed
    with path.open("rb") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _forget_locks() -> None:
    """Close the handles that a forked process has inherited: the lock stays with its parent, and ends with it."""
    for handle in _locks.values():
        handle.close()
    _locking.release()


os.register_at_fork(before=_locking.acquire, after_in_parent=_locking.release, after_in_child=_forget_locks)
