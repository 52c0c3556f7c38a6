"""Thousands of Abstainers in one SQLite file, with a journal of all that happened, which survives any end.

    meta      the version and the configuration of all
    keys      the number of each key
    journal   every decision, thumb and withdrawal in its order; nothing in it is ever changed
    states    of each key its Abstainer as it was after some entry of the journal

A decision is in the journal before it is given out, and a thumb before it is confirmed. What was learned since the
last saved state is played again from the journal when a key is next asked for.
"""

import fcntl
import json
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
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
    new_seed,
)

VERSION = 2  # of the file
KEYS_MEMORY = 2**27  # bytes of keys in memory; each is taken for its arms and OWN, answers that wait come on top
KEY_OVERHEAD = 8192
SAVE_EVERY = 1000  # entries of a key after which its state is saved
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
    """One entry of the journal; what a kind does not have is None."""

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
    """The Abstainer of a key: which ids are closed is in the journal."""

    REMEMBERED = 0


class _LoadedKey(NamedTuple):
    """A key in memory."""

    abstainer: _KeyAbstainer
    saved: list[int]  # one number: entries since its state was saved


class Abstainers:
    """One Abstainer for each key, on one file, for one process and any number of its threads."""

    def __init__(self, path: str | Path, **configuration: Any) -> None:
        """Open a file, or begin one.

        Args:
            path: of the file.
            configuration: fields of ``AbstainerConfiguration`` but ``key``, the same for all keys; of a file that
                exists those that are given must be its own.

        Raises:
            BadInput: another process has the file open, it is something else or of a newer version, or the
                configuration is not its own.
        """
        self.path = Path(path)
        check_known(
            "abstainers",
            configuration,
            [name for name in AbstainerConfiguration.__dataclass_fields__ if name != "key"],
        )
        AbstainerConfiguration(**configuration)
        self._lock, self._loaded = threading.RLock(), OrderedDict[str, _LoadedKey]()
        self._handle = _lock_file(self.path)
        try:
            self._file = _open_database(self.path)
            self._config = self._load_configuration(configuration)
            self._room = max(1, KEYS_MEMORY // (8 * self._config["arms"] + KEY_OVERHEAD))  # keys in memory
        except BaseException:
            self._handle.close()
            raise

    def decide(self, score: float, key: str = "", id: str | None = None) -> AbstainerDecision:
        """Decide of one answer, as ``Abstainer.decide``.

        Args:
            score: its confidence, in [0, 1].
            key: whose Abstainer decides; a new key begins a new one.
            id: by which its feedback will be given; by default a new one that nobody can guess.

        Raises:
            BadInput: the score is not in [0, 1], the key is no text, or the id was used before; nothing has
                changed.
        """
        score = as_score(score)
        if not isinstance(key, str) or not isinstance(id, str | None):
            raise BadInput(f"{'id' if isinstance(key, str) else 'key'}: it must be a text")
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
        """Learn from the feedback on an answer, whose key is found by its id; as ``Abstainer.feedback``.

        Raises:
            BadInput: the error is none; nothing has changed.
        """
        return self._give_feedback(id, FEEDBACK, as_error(error))

    def withdraw(self, id: str) -> str:
        """Forget an answer that was never shown, as ``Abstainer.withdraw``."""
        return self._give_feedback(id, WITHDRAW, None)

    def names(self) -> list[str]:
        """All keys, in the order in which they were first asked for."""
        with self._lock:
            return [key for (key,) in self._file.execute("SELECT key FROM keys ORDER BY number")]

    def figures(self, key: str = "") -> dict[str, float]:
        """What has happened under a key, as ``Abstainer.figures``.

        Raises:
            BadInput: there is no such key.
        """
        with self._lock:
            if self._file.execute("SELECT 1 FROM keys WHERE key = ?", (key,)).fetchone() is None:
                raise BadInput(f"key: {quote(key)} found; it was never asked for")
            with self._file:
                return self._loaded_key(key).abstainer.figures()

    def close(self) -> None:
        """Save all states, and leave the file to others."""
        with self._lock:
            for key in list(self._loaded):
                self._unload(key)
            self._file.close()
            self._handle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load_configuration(self, configuration: dict[str, Any]) -> dict[str, Any]:
        """The configuration of the file, which is written if it is new."""
        with self._file:
            manifest = dict(self._file.execute("SELECT name, value FROM meta"))
            if not manifest:
                config = asdict(AbstainerConfiguration(**configuration))
                config["seed"] = new_seed() if config["seed"] is None else config["seed"]
                Abstainer(**config)
                rows = ("version", str(VERSION)), ("config", json.dumps(config))
                self._file.executemany("INSERT INTO meta VALUES (?, ?)", rows)
                return config
        config = _config_of(self.path, manifest)
        for name, value in asdict(AbstainerConfiguration(**configuration)).items():
            if name in configuration and json.loads(json.dumps(value)) != config[name]:
                raise BadInput(f"{name}: {quote(value)} found; {self.path} was begun with {quote(config[name])}")
        return config

    def _give_feedback(self, id: str, kind: str, error: float | None) -> str:
        with self._lock:
            first = self._first_entry(id) if isinstance(id, str) else None
            if first is None:
                return "unknown"
            if not first.answered:
                return "withheld"
            if not first.audit and self._config.get("audit") is not None:
                return "unaudited"
            ended = self._end_of_wait(id)
            if ended is not None:
                return "repeated" if ended == FEEDBACK else "withdrawn"
            with self._transaction(first.key) as abstainer:
                outcome = abstainer.withdraw(id) if error is None else abstainer.feedback(id, error)
                if outcome in ("counted", "withdrawn"):
                    self._write((first.key, kind, id, None, None, None, None, error))
            return outcome if outcome in ("counted", "withdrawn") else "late"

    def _first_entry(self, id: str) -> JournalEntry | None:
        found = self._file.execute("SELECT * FROM journal WHERE id = ? ORDER BY seq LIMIT 1", (id,)).fetchone()
        return None if found is None else JournalEntry(*found)

    def _end_of_wait(self, id: str) -> str | None:
        """What has ended the wait for a thumb, if anything has."""
        found = self._file.execute(
            "SELECT kind FROM journal WHERE id = ? AND kind <> ? LIMIT 1", (id, DECIDE)
        ).fetchone()
        return None if found is None else str(found[0])

    def _write(self, row: tuple[Any, ...]) -> None:
        self._file.execute(
            "INSERT INTO journal (at, key, kind, id, score, probability, answered, audit, error)"
            " VALUES (?,?,?,?,?,?,?,?,?)",
            (time.time(), *row),
        )

    @contextmanager
    def _transaction(self, key: str) -> Iterator[Abstainer]:
        """The Abstainer of a key while it changes; where the journal cannot be written, it has not changed.

        Raises:
            OSError: the file cannot be written.
        """
        try:
            with self._file:
                loaded = self._loaded_key(key)
                yield loaded.abstainer
        except BaseException as error:
            self._loaded.pop(key, None)  # it is played again from the journal
            if isinstance(error, sqlite3.Error):
                raise OSError(0, str(error), str(self.path)) from error
            raise
        loaded.saved[0] += 1
        if loaded.saved[0] >= SAVE_EVERY:
            self._save(key)

    def _loaded_key(self, key: str) -> _LoadedKey:
        if key not in self._loaded:
            self._loaded[key] = _LoadedKey(self._restore(key), [0])
            while len(self._loaded) > self._room:
                self._unload(next(iter(self._loaded)))
        self._loaded.move_to_end(key)
        return self._loaded[key]

    def _restore(self, key: str) -> _KeyAbstainer:
        """The Abstainer of a key: its last saved state, and the journal since."""
        row = self._file.execute("SELECT seq, state FROM states WHERE key = ?", (key,)).fetchone()
        since, state = (0, {}) if row is None else (row[0], json.loads(row[1]))
        if state.get("exaul") != STATE:  # there is none, or it is of another version: the journal has everything
            since = 0
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
        with self._file:
            (seq,) = self._file.execute("SELECT max(seq) FROM journal WHERE key = ?", (key,)).fetchone()
            if seq is not None:
                state = json.dumps(loaded.abstainer.state())
                self._file.execute("INSERT OR REPLACE INTO states VALUES (?, ?, ?)", (key, seq, state))
        loaded.saved[0] = 0

    def _unload(self, key: str) -> None:
        if self._loaded[key].saved[0]:
            self._save(key)
        del self._loaded[key]


def replay_entry(abstainer: Abstainer, entry: JournalEntry) -> bool:
    """Do again what an entry of a journal says; whether the decision, if it is one, is the same."""
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
    """Each entry of the journal of a file, played again; and whether its decision, if it is one, is the same.

    Raises:
        BadInput: the file is something else, or of a newer version.
    """
    rebuilt: dict[str, Abstainer] = {}
    with read_journal(path) as (config, keys, journal):
        for entry in journal:
            if entry.key not in rebuilt:
                rebuilt[entry.key] = Abstainer(**config | {"key": keys[entry.key]})
            yield entry, replay_entry(rebuilt[entry.key], entry)


@contextmanager
def read_journal(path: str | Path) -> Iterator[tuple[dict[str, Any], dict[str, int], Iterator[JournalEntry]]]:
    """The configuration, the numbers of the keys and the journal of a file, which another process may have open.

    Raises:
        BadInput: it is something else, or of a newer version.
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
    """A lock on a file's name, until it is closed or the process ends.

    Raises:
        BadInput: another process holds it, or it cannot be made.
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
    """A connection to a file that has the tables.

    Raises:
        BadInput: it is something else.
    """
    try:
        file = sqlite3.connect(path, check_same_thread=False)
        names = {name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if begin:
            file.execute("PRAGMA journal_mode = WAL")
            file.execute("PRAGMA synchronous = NORMAL")
            if not names:
                file.executescript(_TABLES)
                names = {"meta", "keys", "journal", "states"}
    except sqlite3.Error as error:
        raise BadInput(f"{path}: cannot be used ({error})") from error
    if not {"meta", "keys", "journal", "states"} <= names:
        file.close()
        raise BadInput(f"{path}: something else than a file of Abstainers")
    return file
