"""Thousands of Abstainers in one SQLite file, with a journal that survives crashes.

    meta      version and configuration, the same for all keys; totals over all keys after some entry
    keys      number of each key, in the order of first use; it separates the draws of the keys
    journal   all decisions, feedback and withdrawals in order; entries never change
    states    saved state of each key after some entry of the journal

Every call first changes the Abstainer in memory, then commits the journal entry, then returns. Therefore:

- If the process is killed before the commit, the caller has no result and the journal has no entry.
- If it is killed after the commit, the entry is replayed when its key is next used.
- If the commit fails, the Abstainer in memory is ahead of the journal. It is dropped and rebuilt from the file.

A saved state only shortens the replay: the journal alone restores every key. A power failure may lose the last
commits, but does not damage the file (see ``_open_database``).
"""

import fcntl
import json
import math
import operator
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, Self

from exaul.engine.checks import BadInput, check_known, check_legible, quote
from exaul.serving.abstainer import VERSION as STATE
from exaul.serving.abstainer import (
    Abstainer,
    AbstainerConfiguration,
    AbstainerDecision,
    as_error,
    as_score,
    limit_of,
    new_seed,
)

VERSION = 3  # of the file
KEYS_MEMORY = 2**27  # bytes for keys in memory, without their open answers
KEY_OVERHEAD = 8192  # estimated bytes of a key besides 8 per arm
SAVE_EVERY = 1000  # entries of a key between saves of its state: the longest replay
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


class _KeyAbstainer(Abstainer):
    """The Abstainer of a key. The journal knows the closed ids, so none are kept in memory."""

    REMEMBERED = 0


class _LoadedKey(NamedTuple):
    """A key in memory."""

    abstainer: _KeyAbstainer
    unsaved: list[int]  # one number, in a list so that it can change: entries since the last save


class _Totals(NamedTuple):
    """Sums over the entries of a journal, of all keys."""

    seq: int = 0  # of the last entry in the sums
    answers: int = 0
    audited: int = 0
    observed: int = 0  # feedback
    wrong: float = 0.0  # sum of its errors
    withdrawn: int = 0


class Abstainers:
    """One Abstainer per key, in one file, for one process with any number of threads."""

    def __init__(self, path: str | Path, **configuration: Any) -> None:
        """Open or create a file.

        Args:
            path: path of the file. ``PATH.lock`` beside it is a lock file.
            configuration: fields of ``AbstainerConfiguration`` except ``key``, for all keys. For an existing file
                they may be omitted, or must be equal to its own.

        Raises:
            BadInput: another process has the file open, it is not a journal or has another version, or the
                configuration differs.
        """
        self.path = Path(path)
        check_known(
            "abstainers",
            configuration,
            [name for name in AbstainerConfiguration.__dataclass_fields__ if name != "key"],
        )
        AbstainerConfiguration(**configuration)
        self._lock, self._loaded = threading.RLock(), OrderedDict[str, _LoadedKey]()
        self._totals: _Totals | None = None  # as of the last call of ``fdr_limit``
        self._handle = _lock_file(self.path)  # before SQLite creates or reads anything
        try:
            self._file = _open_database(self.path)
            self._config = self._load_configuration(configuration)
            self._most_loaded = max(
                1, KEYS_MEMORY // (8 * self._config["arms"] + KEY_OVERHEAD)
            )  # most keys in memory
        except BaseException:
            self._handle.close()
            raise

    def decide(self, score: float, key: str = "", id: str | None = None) -> AbstainerDecision:
        """Decide whether to show an answer, as ``Abstainer.decide``, and journal the decision.

        Args:
            score: confidence in the answer, in [0, 1].
            key: selects the Abstainer; a new key creates one.
            id: as in ``Abstainer.decide``; unique over all keys.

        Raises:
            BadInput: the score is not in [0, 1], the key is not a text, or the id was used before.
            OSError: the journal cannot be written; do not show the answer. In both cases the state is unchanged.
        """
        score = as_score(score)
        if not isinstance(key, str) or not isinstance(id, str | None):
            raise BadInput(f"{'id' if isinstance(key, str) else 'key'}: not a text; it must be one")
        check_legible("key", key)
        with self._lock:
            if id is not None and self._first_entry(check_legible("id", id)) is not None:
                raise BadInput(f"id: {quote(id)} found; it must not have been used before")
            with self._transaction(key) as abstainer:
                decision = abstainer.decide(score, id)
                outcome = decision.probability, int(decision.answer), int(decision.audit)
                self._write((key, DECIDE, decision.id, score, *outcome, None))
            return decision

    def feedback(self, id: str, error: float | bool | str) -> str:
        """Learn from feedback, as ``Abstainer.feedback``; the id gives the key. ``OSError`` as in ``decide``."""
        return self._give_feedback(id, FEEDBACK, as_error(error))

    def withdraw(self, id: str) -> str:
        """Record that an answer was not shown, as ``Abstainer.withdraw``. ``OSError`` as in ``decide``.

        The journal knows all ids, so ``unknown`` means that an id was never given; it changes nothing.
        """
        return self._give_feedback(id, WITHDRAW, None)

    def all_keys(self) -> list[str]:
        """Return all keys in the order of first use."""
        with self._lock:
            return [key for (key,) in self._file.execute("SELECT key FROM keys ORDER BY number")]

    def figures(self, key: str = "") -> dict[str, float]:
        """Return counts, risk and bounds of a key, as ``Abstainer.figures``.

        Raises:
            BadInput: the key is unknown.
        """
        with self._lock:
            if self._file.execute("SELECT 1 FROM keys WHERE key = ?", (key,)).fetchone() is None:
                raise BadInput(f"key: {quote(key)} found; it must be one that was used in decide")
            with self._file:
                return self._loaded_key(key).abstainer.figures()

    def fdr_limit(self) -> float:
        """Bound the FDR of the answers of all keys together (``docs/proofs.md``, F1), as ``Abstainer.figures``.

        With probability .95 it holds at all times at once. The limits in ``figures`` hold with probability .95 for
        each key. NaN without audits or answers.

        The first call reads the whole journal; later calls, also of later processes, read the newer entries.
        """
        config = AbstainerConfiguration(**self._config)
        if config.audit is None:
            return math.nan
        with self._lock:
            totals = self._load_totals()
        found = totals.wrong + totals.audited - totals.observed
        return limit_of(config, found, totals.answers, totals.withdrawn)

    def close(self) -> None:
        """Save all states, close the file and release its lock."""
        with self._lock:
            for key in list(self._loaded):
                self._unload(key)
            self._file.close()
            self._handle.close()  # last: it releases the lock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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

    def _give_feedback(self, id: str, kind: str, error: float | None) -> str:
        with self._lock:
            # the journal answers first: it knows all ids, an Abstainer only the open ones
            first = self._first_entry(id) if isinstance(id, str) else None
            if first is None:
                return "unknown"
            if not first.answered:
                return "withheld"
            later = self._later_kinds(id)
            if WITHDRAW in later:
                return "withdrawn"
            if kind == FEEDBACK and not first.audit and self._config.get("audit") is not None:
                return "unaudited"
            if kind == FEEDBACK and FEEDBACK in later:
                return "repeated"
            with self._transaction(first.key) as abstainer:
                if error is None:
                    abstainer.withdraw(id)  # counts one, also if the id is not open and so not known to it
                    outcome = "withdrawn"
                else:
                    outcome = abstainer.feedback(id, error)
                if outcome in ("counted", "withdrawn"):
                    self._write((first.key, kind, id, None, None, None, None, error))
            # shown, without feedback, and no longer open: expired
            return outcome if outcome in ("counted", "withdrawn") else "late"

    def _first_entry(self, id: str) -> JournalEntry | None:
        found = self._file.execute("SELECT * FROM journal WHERE id = ? ORDER BY seq LIMIT 1", (id,)).fetchone()
        return None if found is None else JournalEntry(*found)

    def _later_kinds(self, id: str) -> set[str]:
        """Return the kinds of the entries of an answer after its decision."""
        rows = self._file.execute("SELECT kind FROM journal WHERE id = ? AND kind <> ?", (id, DECIDE))
        return {kind for (kind,) in rows}

    def _load_totals(self) -> _Totals:
        """Return the totals of the journal: the known ones, and the entries after them. The lock must be held."""
        known = self._totals
        if known is None:
            row = self._file.execute("SELECT value FROM meta WHERE name = 'totals'").fetchone()
            known = _Totals() if row is None else _Totals(*json.loads(row[0]))
        seq, *added = self._file.execute(
            "SELECT max(seq), sum(answered), sum(audit), sum(kind = ?), sum(error), sum(kind = ?)"
            " FROM journal WHERE seq > ?",
            (FEEDBACK, WITHDRAW, known.seq),
        ).fetchone()
        if seq is None:  # no entry is new
            totals = known
        else:
            added = [value or 0 for value in added]  # the sum of no numbers is None
            totals = _Totals(seq, *map(operator.add, known[1:], added))
            if seq // SAVE_EVERY > known.seq // SAVE_EVERY:
                # saved totals only shorten a later process's first call, so it is no harm if the disk is full
                with suppress(sqlite3.Error), self._file:
                    row = "totals", json.dumps(totals)
                    self._file.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", row)
        self._totals = totals
        return totals

    def _write(self, row: tuple[Any, ...]) -> None:
        self._file.execute(
            "INSERT INTO journal (at, key, kind, id, score, probability, answered, audit, error)"
            " VALUES (?,?,?,?,?,?,?,?,?)",
            (time.time(), *row),
        )

    @contextmanager
    def _transaction(self, key: str) -> Iterator[Abstainer]:
        """Yield the Abstainer of a key, and commit the body's entries. Raise OSError if writing fails."""
        try:
            with self._file:  # commits at the end, or rolls back if the body raises
                loaded = self._loaded_key(key)
                yield loaded.abstainer
        except BaseException as error:
            self._loaded.pop(key, None)  # it may be ahead of the journal; rebuild it when next used
            if isinstance(error, sqlite3.Error):
                raise OSError(0, str(error), str(self.path)) from error
            raise
        # a transaction of its own, after the commit: the entry cannot be lost, whatever happens to the state
        loaded.unsaved[0] += 1
        if loaded.unsaved[0] >= SAVE_EVERY:
            self._save(key)

    def _loaded_key(self, key: str) -> _LoadedKey:
        if key not in self._loaded:
            self._loaded[key] = _LoadedKey(self._restore(key), [0])
            # Unload the least recently used keys; the new one is last. Saving commits, which ends the caller's
            # transaction early, but it contains no journal entry yet.
            while len(self._loaded) > self._most_loaded:
                self._unload(next(iter(self._loaded)))
        self._loaded.move_to_end(key)
        return self._loaded[key]

    def _restore(self, key: str) -> _KeyAbstainer:
        """Return the Abstainer of a key: its saved state, and the later entries of the journal replayed."""
        row = self._file.execute("SELECT seq, state FROM states WHERE key = ?", (key,)).fetchone()
        since, state = (0, {}) if row is None else (row[0], json.loads(row[1]))
        if state.get("exaul") != STATE:  # none, or another version: replay the whole journal
            since = 0
            # a new key gets the next number, which is kept: the replay must draw the same uniforms
            self._file.execute("INSERT OR IGNORE INTO keys SELECT ?, count(*) FROM keys", (key,))
            (number,) = self._file.execute("SELECT number FROM keys WHERE key = ?", (key,)).fetchone()
            abstainer = _KeyAbstainer(**self._config | {"key": number})
        else:
            abstainer = _KeyAbstainer.of(state)
        rows = self._file.execute("SELECT * FROM journal WHERE key = ? AND seq > ? ORDER BY seq", (key, since))
        for row in rows:
            replay_entry(abstainer, JournalEntry(*row))
        return abstainer

    def _save(self, key: str) -> None:
        loaded = self._loaded[key]
        with self._file:  # entry number and state are committed together, so replay starts at the right entry
            (seq,) = self._file.execute("SELECT max(seq) FROM journal WHERE key = ?", (key,)).fetchone()
            if seq is not None:
                state = json.dumps(loaded.abstainer.state())
                self._file.execute("INSERT OR REPLACE INTO states VALUES (?, ?, ?)", (key, seq, state))
        loaded.unsaved[0] = 0

    def _unload(self, key: str) -> None:
        if self._loaded[key].unsaved[0]:  # unchanged keys need no save
            self._save(key)
        del self._loaded[key]


def replay_entry(abstainer: Abstainer, entry: JournalEntry) -> bool:
    """Repeat an entry. Return whether its decision is the same; True for feedback and withdrawals."""
    if entry.kind == DECIDE:
        assert entry.score is not None
        decision = abstainer.decide(entry.score, entry.id)
        return (decision.answer, decision.audit) == (bool(entry.answered), bool(entry.audit))
    if entry.kind == WITHDRAW:
        abstainer.withdraw(entry.id)
    else:
        assert entry.error is not None
        abstainer.feedback(entry.id, entry.error)
    return True


def replayed(path: str | Path) -> Iterator[tuple[JournalEntry, bool]]:
    """Repeat all entries of a journal. Yield each, and whether its decision is the same (``replay_entry``).

    Saved states are not used. Errors are those of ``read_journal``.
    """
    rebuilt: dict[str, Abstainer] = {}
    with read_journal(path) as (config, keys, journal):
        for entry in journal:
            if entry.key not in rebuilt:
                rebuilt[entry.key] = Abstainer(**config | {"key": keys[entry.key]})
            yield entry, replay_entry(rebuilt[entry.key], entry)


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
    found: dict[str, Any] = json.loads(manifest["config"])
    return found


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
