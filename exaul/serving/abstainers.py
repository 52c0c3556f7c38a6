"""Thousands of Abstainers in one SQLite file, with a journal that survives crashes.

Every call first changes the Abstainer in memory, then commits the journal entry, then returns. Therefore:

- If the process is killed before the commit, the caller has no result and the journal has no entry.
- If it is killed after the commit, the entry is replayed when its key is next used.
- If the commit fails, the Abstainer in memory is ahead of the journal. It is dropped and rebuilt from the file.

A saved state only shortens the replay: the journal alone restores every key. A power failure may lose the last
commits, but does not damage the file (``journal.py``).
"""

import math
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
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
)
from exaul.serving.journal import DECIDE, FEEDBACK, WITHDRAW, Journal, JournalEntry, read_journal

KEYS_MEMORY = 2**27  # bytes for keys in memory, without their open answers
KEY_OVERHEAD = 8192  # estimated bytes of a key besides 8 per arm
SAVE_EVERY = 1000  # entries of a key between saves of its state: the longest replay


class _KeyAbstainer(Abstainer):
    """The Abstainer of a key. The journal knows the closed ids, so none are kept in memory."""

    REMEMBERED = 0


class _LoadedKey(NamedTuple):
    """A key in memory."""

    abstainer: _KeyAbstainer
    unsaved: list[int]  # one number, in a list so that it can change: entries since the last save


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
        self._journal = Journal(self.path, configuration)
        self._config = self._journal.config
        self._most_loaded = max(1, KEYS_MEMORY // (8 * self._config["arms"] + KEY_OVERHEAD))  # most keys in memory

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
            if id is not None and self._journal.first_entry(check_legible("id", id)) is not None:
                raise BadInput(f"id: {quote(id)} found; it must not have been used before")
            with self._transaction(key) as abstainer:
                decision = abstainer.decide(score, id)
                outcome = decision.probability, int(decision.answer), int(decision.audit)
                self._journal.append((key, DECIDE, decision.id, score, *outcome, None))
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
            return self._journal.all_keys()

    def figures(self, key: str = "") -> dict[str, float]:
        """Return counts, risk and bounds of a key, as ``Abstainer.figures``.

        Raises:
            BadInput: the key is unknown.
        """
        with self._lock:
            if not self._journal.has_key(key):
                raise BadInput(f"key: {quote(key)} found; it must be one that was used in decide")
            with self._journal.transaction():
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
            totals = self._journal.load_totals()
        found = totals.wrong + totals.audited - totals.observed
        return limit_of(config, found, totals.answers, totals.withdrawn)

    def close(self) -> None:
        """Save all states, close the file and release its lock."""
        with self._lock:
            for key in list(self._loaded):
                self._unload(key)
            self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _give_feedback(self, id: str, kind: str, error: float | None) -> str:
        with self._lock:
            # the journal answers first: it knows all ids, an Abstainer only the open ones
            first = self._journal.first_entry(id) if isinstance(id, str) else None
            if first is None:
                return "unknown"
            if not first.answered:
                return "withheld"
            later = self._journal.later_kinds(id)
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
                    self._journal.append((first.key, kind, id, None, None, None, None, error))
            # shown, without feedback, and no longer open: expired
            return outcome if outcome in ("counted", "withdrawn") else "late"

    @contextmanager
    def _transaction(self, key: str) -> Iterator[Abstainer]:
        """Yield the Abstainer of a key, and commit the body's entries. Raise OSError if writing fails."""
        try:
            with self._journal.transaction():
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
        since, state = self._journal.saved_state(key) or (0, {})
        if state.get("exaul") != STATE:  # none, or another version: replay the whole journal
            since = 0
            # the number of a key is kept: the replay must draw the same uniforms
            abstainer = _KeyAbstainer(**self._config | {"key": self._journal.number_of(key)})
        else:
            abstainer = _KeyAbstainer.of(state)
        for entry in self._journal.entries_after(key, since):
            replay_entry(abstainer, entry)
        return abstainer

    def _save(self, key: str) -> None:
        loaded = self._loaded[key]
        self._journal.save_state(key, loaded.abstainer.state())
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
