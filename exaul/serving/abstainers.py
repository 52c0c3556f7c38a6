"""Thousands of Abstainers in one SQLite file, with a journal that survives crashes.

Every call first changes the Abstainer in memory, then commits the journal entry, then returns. Therefore:

- If the process is killed before the commit, the caller has no result and the journal has no entry.
- If it is killed after the commit, the entry is replayed when its key is next used.
- If the commit fails, the Abstainer in memory is ahead of the journal. It is dropped and rebuilt from the file.

A saved state only shortens the replay: the journal alone restores every key. A power failure may lose the last
commits, but does not damage the file (``journal.py``).
"""

import errno
import math
import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import wraps
from itertools import groupby
from pathlib import Path
from typing import Any, Concatenate, NoReturn, ParamSpec, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from exaul.engine.checks import BadInput, check_holds, check_known, quote
from exaul.serving.abstainer import (
    UNUSABLE_STATE,
    Abstainer,
    AbstainerConfiguration,
    AbstainerDecision,
    AbstainersConfiguration,
    as_error,
    as_score,
    as_text,
    check_trusted,
    limit_of,
    refuse_copy,
)
from exaul.serving.journal import (
    DECIDE,
    FEEDBACK,
    FILE_ERRORS,
    WITHDRAW,
    Journal,
    JournalEntry,
    JournalTotals,
    UnreadableJournal,
    read_journal,
)

KEYS_MEMORY = 2**27  # bytes for keys in memory, without their open answers
KEY_OVERHEAD = 8192  # estimated bytes of a key besides 8 per arm
SAVE_EVERY = 1000  # entries of a key between saves of its state: the longest replay
SHORT = 30  # entries that are replayed faster than a state is saved and read

Given = ParamSpec("Given")
Returned = TypeVar("Returned")


class _KeyAbstainer(Abstainer):
    """The Abstainer of a key. The journal knows the closed ids, so none are kept in memory."""

    REMEMBERED = 0

    def resume(self, state: dict[str, Any], entries: Iterator[JournalEntry]) -> None:
        """Continue from a ``summary``, and the entries before it, the latest first, which have the open answers.

        Errors are those of ``_resume``.
        """
        question, answer, left = int(state["sums"]["questions"]), state["answers"], state["sums"]["open"]
        closed, open_answers = set(), list[tuple[Any, ...]]()
        for entry in entries:
            if len(open_answers) == left:  # older ones have expired
                break
            if entry.kind != DECIDE:
                closed.add(entry.id)
                continue
            question, answer = question - 1, answer - (entry.answered or 0)
            if entry.weight is not None and entry.id not in closed:
                cut = min(int(np.searchsorted(self._grid, entry.score or 0.0, side="right")), len(self._grid) - 1)
                kept = entry.probability, entry.arm, entry.weight
                open_answers.append((entry.id, question, answer, cut, *kept))
        self._resume(state, open_answers[::-1], ())

    def kept(self, id: str) -> tuple[int | None, float | None]:
        """Return arm and weight of ``JournalEntry``, which an open answer needs after a restart."""
        answer = self._open.get(id)
        return (None, None) if answer is None else (answer.arm, answer.weight)


@dataclass(slots=True)
class _LoadedKey:
    """A key in memory."""

    abstainer: _KeyAbstainer
    unsaved: int  # entries since the last save


def _uses_file(
    method: Callable[Concatenate["Abstainers", Given], Returned],
) -> Callable[Concatenate["Abstainers", Given], Returned]:
    """Let one thread at a time call a method, which raises OSError if the file cannot be used."""

    @wraps(method)
    def call(self: "Abstainers", /, *given: Given.args, **named: Given.kwargs) -> Returned:
        self._journal.check_usable()  # first: a forked process may have inherited the lock of another thread
        # A signal handler or a destructor runs in the middle of a call. Within it, another would enter the journal
        # what the learner did after a decision that is not there.
        if self._lock._is_owned():  # type: ignore[attr-defined]  # no public name
            raise OSError(errno.EDEADLK, "is in use by the call that this one interrupts", str(self.path))
        with self._lock:
            try:
                return method(self, *given, **named)
            except (*FILE_ERRORS, UnreadableJournal) as error:
                reason = str(error).removeprefix(f"{self.path}: ")
                raise OSError(errno.EIO, reason, str(self.path)) from error

    return call


class Abstainers:
    """One Abstainer per key, in one file, for one process with any number of threads."""

    def __init__(self, path: str | Path, **configuration: Any) -> None:
        """Open or create a file.

        Args:
            path: path of the file. SQLite keeps ``PATH-wal`` and ``PATH-shm`` beside it while it is open.
            configuration: fields of ``AbstainersConfiguration``, for all keys. For an existing file they may be
                omitted, or must be equal to its own; a learner ``module:name`` must be given.

        Raises:
            BadInput: the file is in use, it is not a journal or has another version, or the configuration differs.
        """
        check_holds("path", path, isinstance(path, (str, Path)), "the path of a file")
        self.path = Path(path)
        check_known("abstainers", configuration, [f.name for f in fields(AbstainersConfiguration)])
        AbstainersConfiguration(**configuration)
        self._lock, self._loaded = threading.RLock(), OrderedDict[str, _LoadedKey]()
        self._journal = Journal(self.path, configuration)
        self._config = self._journal.config
        self._most_loaded = max(1, KEYS_MEMORY // (8 * self._config["arms"] + KEY_OVERHEAD))  # most keys in memory

    @property
    def configuration(self) -> dict[str, Any]:
        """The fields of ``AbstainerConfiguration`` that all keys share, without the seed, which is secret."""
        return {name: value for name, value in self._config.items() if name not in ("seed", "key")}

    @property
    def aim(self) -> float:
        """The error rate of feedback at which the FDR is alpha, as in ``figures``."""
        return AbstainerConfiguration(**self._config).aim

    @_uses_file
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
        score, key = as_score(score), as_text("key", key)
        if id is not None:
            as_text("id", id)
        if id is not None and self._journal.entries_of(id):
            raise BadInput(f"id: {quote(id)} found; it must not have been used before")
        with self._changing(key) as abstainer:
            decision = abstainer.decide(score, id)
            arm, weight = abstainer.kept(decision.id)
            self._journal.append(
                key=key,
                kind=DECIDE,
                id=decision.id,
                score=score,
                probability=decision.probability,
                answered=int(decision.answer),
                audit=int(decision.audit),
                arm=arm,
                weight=weight,
            )
        return decision

    def feedback(self, id: str, error: float | bool | str) -> str:
        """Learn from feedback, as ``Abstainer.feedback``; the id gives the key. ``OSError`` as in ``decide``."""
        return self._give_feedback(id, FEEDBACK, as_error(error))

    def withdraw(self, id: str) -> str:
        """Record that an answer was not shown, as ``Abstainer.withdraw``. ``OSError`` as in ``decide``.

        The journal knows all ids, so ``unknown`` means that an id was never given; it changes nothing.
        """
        return self._give_feedback(id, WITHDRAW, None)

    @_uses_file
    def entries_of(self, id: str) -> list[JournalEntry]:
        """Return the decision of an id, then its feedback or withdrawal; nothing if the id is unknown."""
        return self._journal.entries_of(as_text("id", id))

    @_uses_file
    def latest_entries(self, count: int, /, **columns: str) -> list[JournalEntry]:
        """Return the latest ``count`` entries with the given ``key`` or ``kind``, the oldest first."""
        return self._journal.latest_entries(count, **columns)

    @_uses_file
    def check_usable(self) -> None:
        """Raise OSError if the file cannot be written."""
        with self._journal.transaction():
            self._journal.check_writable()

    @_uses_file
    def all_keys(self, limit: int = -1, offset: int = 0) -> list[str]:
        """Return all keys in the order of first use; or at most ``limit`` of them, from number ``offset`` on."""
        return self._journal.all_keys(limit, offset)

    @_uses_file
    def count_keys(self) -> int:
        """Return the number of keys."""
        return self._journal.count_keys()

    @_uses_file
    def figures(self, key: str = "") -> dict[str, float]:
        """Return counts, risk and bounds of a key, as ``Abstainer.figures``.

        Raises:
            BadInput: the key is unknown.
        """
        as_text("key", key)
        if self._journal.number_of(key) is None:
            raise BadInput(f"key: {quote(key)} found; it must be one that was used in decide")
        figures = self._load(key).abstainer.figures()
        self._unload_oldest()
        return figures

    @_uses_file
    def fdr_limit(self) -> float:
        """Bound the FDR of the answers of all keys together (``docs/proofs.md``, F1), as ``Abstainer.figures``.

        With probability .95 it holds at all times at once. The limits in ``figures`` hold with probability .95 for
        each key. NaN without audits or answers.

        The first call reads the whole journal; later calls, also of later processes, read the newer entries.
        """
        config = AbstainerConfiguration(**self._config)
        if config.audit is None:
            return math.nan
        totals = self._journal.load_totals()
        found = totals.wrong + totals.audited - totals.observed
        return limit_of(config, found, totals.answers, totals.withdrawn)

    @_uses_file
    def totals(self) -> JournalTotals:
        """Return sums over all keys. The first call takes longer, as that of ``fdr_limit``."""
        return self._journal.load_totals()

    def close(self) -> None:
        """Save states, close the file and release its lock. Later calls do nothing; other methods raise OSError.

        It does nothing, too, if it interrupts another call, as a signal handler can.
        """
        with suppress(OSError):
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be copied or pickled."""
        refuse_copy(self)

    @_uses_file
    def _close(self) -> None:
        try:
            for key in self._loaded:
                self._save(key)
        finally:
            self._loaded.clear()
            self._journal.close()

    @_uses_file
    def _give_feedback(self, id: str, kind: str, error: float | None) -> str:
        as_text("id", id)
        # the journal answers first: it knows all ids, an Abstainer only the open ones
        entries = self._journal.entries_of(id)
        if not entries:
            return "unknown"
        first, kinds = entries[0], {entry.kind for entry in entries}
        if not first.answered:
            return "withheld"
        if WITHDRAW in kinds:
            return "withdrawn"
        if kind == FEEDBACK and not first.audit and self._config["audit"] is not None:
            return "unaudited"
        if kind == FEEDBACK and FEEDBACK in kinds:
            return "repeated"
        with self._changing(first.key) as abstainer:
            if error is None:
                abstainer.withdraw(id)  # counts one, also if the id is not open and so not known to it
                outcome = "withdrawn"
            else:
                outcome = abstainer.feedback(id, error)
            if outcome in ("counted", "withdrawn"):
                self._journal.append(key=first.key, kind=kind, id=id, error=error)
        # shown, without feedback, and no longer open: expired
        return outcome if outcome in ("counted", "withdrawn") else "late"

    @contextmanager
    def _changing(self, key: str) -> Iterator[_KeyAbstainer]:
        """Yield the Abstainer of a key, and commit the body's entries."""
        try:
            with self._journal.transaction():
                loaded = self._load(key)
                yield loaded.abstainer
        except BaseException:
            self._loaded.pop(key, None)  # it may be ahead of the journal; rebuild it when next used
            raise
        loaded.unsaved += 1
        if loaded.unsaved % SAVE_EVERY == 0:
            self._save(key)
        self._unload_oldest()

    def _load(self, key: str) -> _LoadedKey:
        if key not in self._loaded:
            self._loaded[key] = self._restore(key)
        self._loaded.move_to_end(key)
        return self._loaded[key]

    def _unload_oldest(self) -> None:
        while len(self._loaded) > self._most_loaded:
            oldest = next(iter(self._loaded))
            self._save(oldest)
            del self._loaded[oldest]

    def _save(self, key: str) -> None:
        """Save the state of a key, unless a replay of its entries is as fast.

        This is after the commit of the entries. So if it fails, nothing is lost but time: it is tried again later.
        """
        loaded = self._loaded[key]
        if loaded.unsaved >= SHORT:
            with suppress(OSError, UnreadableJournal, *FILE_ERRORS):
                self._journal.save_state(key, loaded.abstainer.summary())
                loaded.unsaved = 0

    def _restore(self, key: str) -> _LoadedKey:
        """Return a key: its saved state, and the later entries of the journal replayed."""
        journal, number, since = self._journal, self._journal.number_of(key), 0
        # a key keeps its number: the replay must draw the same uniforms
        number = journal.add_key(key) if number is None else number
        config = self._config | {"key": number}
        abstainer = _KeyAbstainer(**config)
        seq, state = journal.saved_state(key) or (0, None)
        if state is not None:  # else the journal alone restores the key
            try:
                abstainer.resume(state, journal.entries_until(key, seq))
                since = seq
            except UNUSABLE_STATE:
                abstainer = _KeyAbstainer(**config)
        loaded = _LoadedKey(abstainer, unsaved=0)
        for entry in journal.entries_after(key, since):
            loaded.unsaved += 1
            if not replay_entry(abstainer, entry):
                raise UnreadableJournal(
                    f"{self.path}: entry {entry.seq}: {entry.kind} found, which a replay does not repeat"
                )
        return loaded


def replay_entry(abstainer: _KeyAbstainer, entry: JournalEntry) -> bool:
    """Repeat an entry. Return whether the outcome is the recorded one, numbers up to rounding."""
    if entry.kind == DECIDE:
        assert entry.score is not None
        _, answer, probability, audit = abstainer.decide(entry.score, entry.id)
        outcome = answer, audit, probability, *abstainer.kept(entry.id)
        recorded = entry.answered, entry.audit, entry.probability, entry.arm, entry.weight
        return outcome == recorded or all(map(_is_close, outcome, recorded))
    if entry.kind == WITHDRAW:
        abstainer.withdraw(entry.id)
        return True
    assert entry.error is not None
    return abstainer.feedback(entry.id, entry.error) == "counted"


def _is_close(value: float | None, other: float | None) -> bool:
    """Return whether two numbers are equal up to rounding, which differs between machines."""
    return value is other or (value is not None and other is not None and math.isclose(value, other, rel_tol=1e-6))


def replayed(path: str | Path, trust: bool = False) -> Iterator[tuple[JournalEntry, bool, bool | None]]:
    """Repeat all entries of a journal, key by key, from the entries alone.

    Args:
        path: the file, which another process may have open.
        trust: import the module of a learner ``module:name``; this runs its code.

    Yields:
        An entry; whether its outcome is the recorded one; and whether the state that was saved after it is that of
        the replay, or None if no state was.

    Raises:
        BadInput: as ``read_journal``, the file is damaged, or entries are missing.
    """
    with read_journal(path) as journal:
        check_trusted(str(path), journal.config["learner"], trust, "--trust")
        journal.check_integrity()
        for key, entries in groupby(journal.entries("key, seq"), key=operator.attrgetter("key")):
            abstainer = _KeyAbstainer(**journal.config | {"key": journal.number_of(key)})
            seq, state = journal.saved_state(key) or (0, None)
            for entry in entries:
                same = replay_entry(abstainer, entry)
                if entry.kind == WITHDRAW:  # the Abstainer does not know the ids of closed answers
                    first = journal.entries_of(entry.id)[0]
                    same = first.key == key and first.seq < entry.seq and first.answered == 1
                yield entry, same, _is_same(state, abstainer.summary()) if entry.seq == seq else None


def _is_same(state: Any, other: dict[str, Any]) -> bool:
    """Return whether two summaries are equal up to rounding."""

    def numbers(summary: dict[str, Any]) -> NDArray[np.float64]:
        arrays = (np.frombuffer(bytes.fromhex(summary[name]), "<f8") for name in ("numbers", "table"))
        counts = [summary[name] for name in ("answers", "audited", "withdrawn")]
        return np.array([*(number for array in arrays for number in array), *summary["sums"].values(), *counts])

    try:
        return np.allclose(numbers(state), numbers(other), rtol=1e-6, atol=1e-6)
    except UNUSABLE_STATE:
        return False
