"""The file of a journal, which one process changes: how it is opened and checked, and how entries are appended."""

import errno
import json
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from weakref import finalize

from exaul.engine.checks import BadInput, as_typed, check_holds, check_legible, quote
from exaul.serving.configuration import AbstainerConfiguration, SharedConfiguration
from exaul.serving.entries import SHOWN, SNAPSHOT, START, VERDICT, JournalEntry, digest_of
from exaul.serving.lock import is_locked, lock_file
from exaul.serving.wal import UnreadableJournal, check_wal, is_in_wal_mode

FILE_VERSION = 6  # of the file
RELEASES = {"4": "0.1", "5": "0.2"}  # of exaul that read files of earlier versions
_EXPORT = (
    "; begin a new file with --warm-start LOG, a log of all answers of the model (`exaul journal export FILE LOG` "
    "of exaul {} writes those with feedback alone)"
)

# what reading or writing a file raises; a UnicodeError, if the message of SQLite has text of a damaged file
FILE_ERRORS = sqlite3.Error, UnicodeError

BY_KIND = START, SNAPSHOT, SHOWN, VERDICT  # the kinds in the index of this name
IS_BY_KIND = f"kind IN {BY_KIND}"  # with this condition a query uses it
_SCHEMA = (  # files of all versions have the first table
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
    f"CREATE INDEX by_kind ON journal (key, kind, seq) WHERE {IS_BY_KIND}",
)
# ``closed`` in ``meta``, once the file is closed: its latest entry, or 0; empty while the file is in use
_LAST = "coalesce((SELECT seq || ' ' || chain FROM journal ORDER BY seq DESC LIMIT 1), '0')"
_COLUMNS = ", ".join(JournalEntry._fields)
_ENTRIES = (
    f"SELECT {_COLUMNS}, chain, (SELECT chain FROM journal AS earlier WHERE earlier.seq = journal.seq - 1)"
    " FROM journal "
)
_APPEND = f"INSERT INTO journal ({_COLUMNS}, chain) VALUES (?{', ?' * len(JournalEntry._fields)})"
logger = logging.getLogger("exaul.serving")
_ENCODER = json.JSONEncoder(default=repr)  # of an entry, for its digest; repr is for bytes in an edited file


class JournalFile:
    """The open file of a journal. The caller serializes all calls.

    Methods raise one of FILE_ERRORS if SQLite cannot use the file, OSError if it was closed, replaced or cut off,
    and UnreadableJournal if its content cannot be used.
    """

    def __init__(
        self,
        path: Path,
        configuration: dict[str, Any] | None = None,
        accept_loss: bool = False,
        log_flags: Callable[[str], Sequence[str]] = lambda _: (),
    ) -> None:
        """Open a file: to read it, or, with a configuration, to change it, as its only writer.

        Args:
            path: of the file.
            configuration: as the arguments of ``Abstainers``; None: read alone.
            accept_loss: as in ``Abstainers``.
            log_flags: the flags of ``exaul journal start`` that name the log of a key, for errors.

        Raises:
            BadInput: as ``Abstainers``.
        """
        _check_path(path, must_exist=configuration is None)
        self.path, self._log_flags = path, log_flags
        # device, inode and size of the file and FILE-wal, which stay until the file is closed, and do not shrink
        self._identities = dict[Path, tuple[int, int, int]]()
        with ExitStack() as opened, explain_file_errors(path):
            self._lock = None if configuration is None else opened.enter_context(lock_file(path))
            if path.stat().st_nlink > 1:
                # SQLite keeps the newest entries in another file, beside the name by which it opened this one
                raise BadInput(f"{path}: has several names (hard links); it must have one")
            self._absolute = path.resolve()  # the process may change its folder
            self._remember(self._absolute)
            self._wal = self._absolute.with_name(f"{self._absolute.name}-wal")
            # Check it before any change: SQLite would move an unchecked FILE-wal into it.
            is_new = self._verify_read_only(configuration or {}, accept_loss)
            if configuration is not None:
                self._connect("mode=rw")
                # Also if nobody calls ``close``, SQLite closes the file, at the latest when the process ends.
                opened.callback(finalize(self, _mark_closed, self._connection, os.getpid()))
                self._begin_writing(configuration, is_new)
                self._opened = opened.pop_all()  # of which the lock is closed last: nobody else may open it earlier

    def _connect(self, mode: str) -> None:
        # threads share the connection
        self._connection = sqlite3.connect(
            f"{self._absolute.as_uri()}?{mode}", uri=True, check_same_thread=False, isolation_level=None
        )

    def _verify_read_only(self, configuration: dict[str, Any], accept_loss: bool) -> bool:
        """Verify the file, and that its configuration is the given one, by reads alone. Return whether it is new.

        A file that another process uses is opened read-only: whoever closes a file last moves FILE-wal into it, and
        a reader may wrongly be the last, since a process that copies its own file loses its locks on it.
        """
        reads_only, ending = self._lock is None, None
        is_in_use = reads_only and is_locked(self._absolute)  # and may change while it is read
        lacks_wal = not self._wal.exists()  # checked now, since SQLite creates FILE-wal
        wal_is_empty = lacks_wal or not self._wal.stat().st_size
        if not self._absolute.stat().st_size:
            if not wal_is_empty:
                raise UnreadableJournal(f"{self.path}: is empty or missing, and {self._wal.name} is not")
            if not reads_only:
                return True
        if not (is_in_use or wal_is_empty):
            check_wal(self._wal)
        # ``VACUUM INTO`` writes all entries, to a file that is not in SQLite's mode WAL
        is_bare = wal_is_empty and is_in_wal_mode(self._absolute)
        if not (lacks_wal or is_in_use):
            self._connect("mode=ro&immutable=1")  # the file without FILE-wal
            with closing(self._connection):
                ending = self._read_ending()
        is_writable = all(os.access(path, os.W_OK) for path in (self._absolute, self._absolute.parent))
        mode = "mode=rw" if reads_only and is_writable and not self._is_hot() else "mode=ro&immutable=1"
        self._connect(mode if lacks_wal else "mode=ro")
        with ExitStack() as opened:
            opened.enter_context(closing(self._connection))
            self._connection.execute("PRAGMA query_only = TRUE")
            self._connection.execute("BEGIN")  # all reads see one state, also if the file is in use
            is_new = not (reads_only or self._schema())
            if not is_new:
                self.config = self._verify_content(is_bare, ending, accept_loss)
                if self.last_seq():
                    self._check_same_settings(configuration)
            if reads_only:
                self._opened = opened.pop_all()
        return is_new

    def _is_hot(self) -> bool:
        """Return whether a program that is not exaul was interrupted as it changed the file."""
        return self._absolute.with_name(f"{self._absolute.name}-journal").exists()

    def _schema(self) -> set[str]:
        # all but what SQLite itself adds: indexes without text, and the tables of ANALYZE
        query = (
            "SELECT sql FROM sqlite_master WHERE sql NOT NULL AND NOT (type = 'table' AND name GLOB 'sqlite_stat?')"
        )
        return {sql for (sql,) in self._connection.execute(query)}

    def _read_ending(self) -> tuple[Any, Any] | None:
        """Return the configuration and the latest entry, if they can be read: a kill may tear the file itself."""
        with suppress(*FILE_ERRORS):
            text = self._connection.execute("SELECT value FROM meta WHERE name = 'config'").fetchone()
            entry = self._connection.execute("SELECT seq, chain FROM journal ORDER BY seq DESC LIMIT 1").fetchone()
            return text, entry
        return None

    def _verify_content(
        self, is_bare: bool, ending: tuple[Any, Any] | None, accept_loss: bool
    ) -> AbstainerConfiguration:
        """Verify the tables and the entries, of which none may be missing. Return the configuration.

        Args:
            is_bare: FILE-wal is missing or empty, as after Abstainers closed the file, or after a loss.
            ending: configuration and latest entry of the file without FILE-wal, if known.
            accept_loss: the latest entries may be missing.
        """
        schema = self._schema()
        if _SCHEMA[0] not in schema:
            raise BadInput(f"{self.path}: not a journal; it must be a file of Abstainers")
        meta = dict(self._connection.execute("SELECT name, value FROM meta"))
        if (version := meta.get("version")) != str(FILE_VERSION):
            hint = _EXPORT.format(RELEASES[version]) if version in RELEASES else ""
            raise BadInput(f"{self.path}: version {quote(version)} found; it must be {FILE_VERSION}{hint}")
        if schema != set(_SCHEMA):
            raise UnreadableJournal(f"{self.path}: the tables were changed; they must be as Abstainers made them")
        config = None
        with suppress(ValueError, LookupError, RecursionError):  # of an edited file
            config = json.loads(meta["config"])
        config = AbstainerConfiguration.of(str(self.path), config)
        if self._is_hot():
            raise UnreadableJournal(
                f"{self.path}: another program was interrupted, and left {self.path.name}-journal"
            )
        text, entry = ending or (None, None)
        query = "SELECT seq, chain FROM journal WHERE seq = ?"
        is_same = entry is None or self._connection.execute(query, entry[:1]).fetchone() == entry
        # without entries, a start that was killed may have changed the settings
        if not is_same or (entry and text != (meta["config"],)):
            raise UnreadableJournal(f"{self.path}: {self._wal.name} is of another file, or of an earlier time")
        self._first_link = digest_of(str(FILE_VERSION), meta["config"])
        closed = meta.get("closed")
        if is_bare and not closed and not accept_loss:
            raise UnreadableJournal(
                f"{self.path}: was copied while it was in use, or {self._wal.name} was removed or emptied, perhaps "
                "by another program after a crash: the latest entries may be missing; exaul serve "
                "--accept-loss (in Python: accept_loss=True) goes on with those that are there, and says how many"
            )
        if closed and self._connection.execute(f"SELECT {_LAST}").fetchone() != (closed,):
            raise UnreadableJournal(f"{self.path}: the latest entries are not those with which it was closed")
        if closed and is_bare and self._lock is not None:  # the file is used soon after a service has ended
            # the first entry covers the configuration
            list(self._entries("WHERE seq IN (1, ?)", self.last_seq()))
        else:
            self._verify_entries()
        return config

    def _check_same_settings(self, arguments: dict[str, Any]) -> None:
        """Raise BadInput unless ``arguments`` agree with the configuration of the file, whose seed is secret."""
        configuration, path = SharedConfiguration(**arguments), self.path
        for name in arguments:
            value, saved = getattr(configuration, name), getattr(self.config, name)
            if name == "seed" and value not in (None, saved):
                raise BadInput(f"seed: {value} found; {path} was begun with another")
            if name != "seed" and value != saved:
                began = "none" if saved is None else quote(saved)
                way = "another takes a new file"
                if name == "alpha" and self.all_keys(1):
                    (key,) = self.all_keys(1)
                    flags = "--key", key, "--alpha", str(value), *self._log_flags(key)
                    way += f" or, for one key, {as_typed('journal', 'start', str(path), *flags)}"
                    starts = self._entries(f"WHERE {IS_BY_KIND} AND kind = ? ORDER BY seq", START)
                    alphas = {entry.key: json.loads(entry.data or "")["alpha"] for entry in starts}
                    for key in [key for key, alpha in alphas.items() if alpha == value][:1]:
                        way = f"key {quote(key)} already has {value}: leave alpha out, or give {saved}"
                raise BadInput(f"{name}: {quote(value)} found; {path} was begun with {began}, which stays; {way}")

    def _begin_writing(self, configuration: dict[str, Any], is_new: bool) -> None:
        """Prepare the file to append to it."""
        # With WAL, readers do not block the writer. With NORMAL, a commit is handed to the operating system, and
        # only checkpoints are flushed to disk (fsync): commits survive a crash of the process, and a power failure
        # may lose the last ones without damaging the file.
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        saved = {} if is_new else asdict(self.config)
        given = {name: x for name, x in configuration.items() if name != "seed" or x is not None}
        config = AbstainerConfiguration(**saved | given).with_seed()
        changed = [name for name, value in asdict(config).items() if saved.get(name) != value]
        if changed:  # the file is new, or has no entries: else the settings are its own
            self.config, text = config, json.dumps(asdict(config))
            self._first_link = digest_of(str(FILE_VERSION), text)
            self.begin_transaction()  # a file has all or nothing, whenever the process ends
            for sql in _SCHEMA * is_new:
                self._connection.execute(sql)
            rows = ("version", str(FILE_VERSION)), ("config", text), ("closed", "0")
            self._connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)
            self.commit()
        if changed and not is_new:
            logger.warning(f"{self.path}: settings changed, as nothing was decided yet: {', '.join(changed)}")
        _set_in_use(self._connection, True)
        self._remember(self._wal)

    def close(self) -> None:
        """Close the file and release its lock."""
        self._opened.close()

    def check_open(self) -> None:
        """Raise OSError if the file was closed, or was opened before this process was forked."""
        if self._lock is None or self._lock.closed:
            reason = "is closed, or was opened before a fork; open it in this process"
            raise OSError(errno.EBADF, reason, str(self.path))

    def begin_transaction(self) -> None:
        """Begin a transaction, unless the file was replaced: SQLite would write what no later process reads."""
        self._check_not_replaced(self._absolute, self._wal)
        self._connection.execute("BEGIN")

    def commit(self) -> None:
        """Commit what was written since the last commit, if anything."""
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")
            self._check_not_replaced(self._wal)

    def roll_back(self) -> None:
        """Undo what was written since the last commit, if anything."""
        self._connection.rollback()

    def _remember(self, path: Path) -> None:
        """Note which file is at a path; its size is noted when it is first checked."""
        status = os.stat(path)
        self._identities[path] = status.st_dev, status.st_ino, 0

    def _check_not_replaced(self, *paths: Path) -> None:
        """Raise OSError unless the files at these paths are those that were opened, and no shorter."""
        for path in self._identities.keys() & paths:
            (*identity, size), status = self._identities[path], os.stat(path)
            if identity != [status.st_dev, status.st_ino]:
                raise OSError(errno.ESTALE, "was replaced while it is open", str(path))
            if status.st_size < size:
                raise OSError(errno.EIO, "was cut off while it is open", str(path))
            self._identities[path] = status.st_dev, status.st_ino, status.st_size

    def all_keys(self, limit: int = -1, offset: int = 0) -> list[str]:
        """Return all keys in the order of first use; or at most ``limit`` of them, from number ``offset`` on."""
        page = self._connection.execute("SELECT key FROM keys ORDER BY number LIMIT ? OFFSET ?", (limit, offset))
        keys = [key for (key,) in page]
        for key in keys:
            if not isinstance(key, str):
                raise UnreadableJournal(f"{self.path}: key {quote(key)} found; it must be a text")
        return keys

    def count_keys(self) -> int:
        """Return the number of keys."""
        return int(self._connection.execute("SELECT count(*) FROM keys").fetchone()[0])

    def unreadable(self, entry: JournalEntry, reason: str) -> UnreadableJournal:
        """Return the error that an entry cannot be used."""
        return UnreadableJournal(f"{self.path}: entry {entry.seq}: {reason}")

    def last_seq(self) -> int:
        """Return the number of the latest entry, 0 if there is none."""
        return int(self._connection.execute("SELECT coalesce(max(seq), 0) FROM journal").fetchone()[0])

    def _entries(self, condition: str, *values: Any) -> Iterator[JournalEntry]:
        """Yield entries. Raise UnreadableJournal unless each is as it was appended, after the one before it."""
        # closed at once: else an error, which refers to them, would keep the file open
        with closing(self._connection.execute(_ENTRIES + condition, values)) as rows:
            for *row, digest, link in rows:
                entry = JournalEntry._make(row)
                if link is None and entry.seq > 1:
                    raise UnreadableJournal(f"{self.path}: entry {entry.seq - 1} is missing")
                if digest_of(self._first_link if link is None else link, _ENCODER.encode(row)) != digest:
                    raise UnreadableJournal(
                        f"{self.path}: entry {entry.seq} or one before it was changed, or is of another file"
                    )
                yield entry

    def _verify_entries(self) -> None:
        """Raise UnreadableJournal if the file's pages or tables contradict each other, or an entry was changed."""
        (message,) = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
        if message != "ok":
            raise UnreadableJournal(f"{self.path}: is damaged ({message})")
        for _ in self._entries("ORDER BY seq"):
            pass
        query = "SELECT key FROM journal GROUP BY key ORDER BY min(seq)"
        if [key for (key,) in self._connection.execute(query)] != self.all_keys():
            raise UnreadableJournal(f"{self.path}: the keys are not those of the journal")

    def append(self, **columns: Any) -> None:
        """Append an entry with the given fields of ``JournalEntry``, for the next commit."""
        if not self._connection.in_transaction:
            self.begin_transaction()
        row = self._connection.execute("SELECT seq, chain FROM journal ORDER BY seq DESC LIMIT 1").fetchone()
        seq, link = row or (0, self._first_link)  # always from the file: a copy in memory could be ahead of it
        entry = JournalEntry(seq=seq + 1, at=time.time(), **columns)
        self._connection.execute(_APPEND, (*entry, digest_of(link, _ENCODER.encode(entry))))
        if entry.kind in (START, SHOWN):  # what a key begins with
            self._connection.execute("INSERT OR IGNORE INTO keys (key) VALUES (?)", (entry.key,))


def _set_in_use(connection: sqlite3.Connection, is_in_use: bool) -> None:
    """Write into the file itself that it is in use, or with which entry it was closed.

    A copy of a file in use, without FILE-wal, lacks the latest entries. FILE-wal is not emptied here, as
    TRUNCATE would: whoever finds it empty beside a file in use knows that entries may be missing.
    """
    value = "''" if is_in_use else _LAST
    connection.execute(f"INSERT OR REPLACE INTO meta SELECT 'closed', {value}")
    connection.execute("PRAGMA wal_checkpoint(FULL)")


def _mark_closed(connection: sqlite3.Connection, process_id: int) -> None:
    """Mark a file as closed, and close it, in the process that opened it."""
    if os.getpid() != process_id:  # a fork must not use the connection of its parent
        return
    with suppress(*FILE_ERRORS):  # as after a kill: whoever opens it next checks more
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        try:
            _set_in_use(connection, False)
        except KeyboardInterrupt:
            _set_in_use(connection, False)
            raise
    connection.close()


@contextmanager
def explain_file_errors(path: Path) -> Iterator[None]:
    """Turn FILE_ERRORS of the body into UnreadableJournal, and its OSErrors into BadInput."""
    try:
        yield
    except FILE_ERRORS as error:
        raise UnreadableJournal(f"{path}: cannot be used ({error})") from error
    except OSError as error:
        raise BadInput(f"{path}: cannot be used ({error.strerror})") from error


def _check_path(path: Path, must_exist: bool) -> None:
    """Raise BadInput unless a path can be that of a journal; SQLite takes some names for databases in memory."""
    check_holds("path", str(path), not str(path).startswith((":memory:", "file:")), "the path of a file")
    check_legible("path", str(path))
    with explain_file_errors(path):
        if must_exist and not path.exists():
            raise BadInput(f"{path}: no such file")
        if not path.parent.is_dir():
            raise BadInput(f"{path}: its folder is missing; make it first")
        if path.exists() and not path.is_file():
            raise BadInput(f"{path}: is not a file; it must be one")
