"""Thousands of Abstainers in one SQLite file, with a journal that survives crashes.

Every call first changes the Abstainer in memory, then commits the journal entry, then returns. Therefore:

- If the process is killed before the commit, the caller has no result and the journal has no entry.
- If it is killed after the commit, the entry is replayed when its key is next used.
- If the commit fails, the Abstainer in memory is ahead of the journal. It is dropped and rebuilt from the file.

A power failure may lose the last commits, but does not damage the file (``journal.py``).
"""

import errno
import json
import math
import operator
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import wraps
from itertools import groupby
from pathlib import Path
from typing import Any, Concatenate, NoReturn, ParamSpec, Self, TypeVar

import numpy as np

from exaul.engine.checks import BadInput, check_holds, check_known, quote
from exaul.engine.logs.log import Layout, Records
from exaul.kernels.online import Uniforms
from exaul.kernels.uniforms import FEEDBACK as FEEDBACK_STREAM
from exaul.serving.abstainer import (
    UNUSABLE_STATE,
    Abstainer,
    AbstainerConfiguration,
    AbstainerDecision,
    AbstainersConfiguration,
    AbstainerStart,
    as_error,
    as_score,
    as_text,
    limit_of,
    read_start_log,
    refuse_copy,
    start_after,
)
from exaul.serving.journal import (
    DECIDE,
    FEEDBACK,
    FILE_ERRORS,
    SHOWN,
    SNAPSHOT,
    START,
    VERDICT,
    WITHDRAW,
    Journal,
    JournalEntry,
    read_journal,
)
from exaul.serving.wal import UnreadableJournal

MOST_LOADED = 1000  # keys in memory (chosen): some 50 MB without their open answers
SNAPSHOT_EVERY = 2000  # entries of a key between snapshots (chosen), the longest replay: some 30 ms
KEY = "key:"  # before the name of a key whose answers are the log of another
OF_SHADOW = 2**32 - 1  # the number of no start: it separates the audits of shadow mode from all others
ADDED = (  # figures of the starts of a key that add up
    *("questions", "answers", "audited", "withdrawn", "observed", "learned", "open"),
    *("wrong", "feedback_risk", "feedback_risk_bound"),
)

Given = ParamSpec("Given")
Returned = TypeVar("Returned")


class _KeyAbstainer(Abstainer):
    """The Abstainer of a key. The journal knows the closed ids, so none are kept in memory."""

    REMEMBERED = 0

    @classmethod
    def begun(cls, config: Mapping[str, Any], start: tuple[float, Any], seq: int) -> Self:
        """Return the Abstainer that a start, entry number ``seq``, began, before its first question."""
        alpha, saved = start
        made = cls.__new__(cls)
        one = AbstainerConfiguration(**{**config, "alpha": alpha, "key": seq % 2**32})
        made._begin(one, start_after(one, None) if saved is None else AbstainerStart.of(saved))
        return made

    def resume(self, state: dict[str, Any], entries: Iterator[JournalEntry]) -> None:
        """Continue from a ``summary``, and the entries before it, the latest first, which have the open answers.

        Errors are those of ``_resume``.
        """
        question, answer, left = int(state["sums"]["questions"]), state["answers"], state["sums"]["open"]
        closed, open_answers = set(), list[tuple[Any, ...]]()
        for entry in entries:
            if len(open_answers) == left or entry.kind == START:  # older ones have expired
                break
            if entry.kind in (FEEDBACK, WITHDRAW):
                closed.add(entry.id)
            if entry.kind != DECIDE:
                continue
            question, answer = question - 1, answer - (entry.answered or 0)
            waits = entry.answered and (entry.audit or self.config.audit is None)
            if waits and entry.id not in closed:
                cut = self.cut_of(entry.score or 0.0)
                open_answers.append((entry.id, question, answer, cut, entry.probability))
        self._resume(state, open_answers[::-1], ())


@dataclass(slots=True)
class _LoadedKey:
    """A key in memory."""

    abstainer: _KeyAbstainer  # since the latest start
    earlier: list[dict[str, float]]  # figures of the earlier starts
    unsaved: int = 0  # entries since the last snapshot

    def figures(self) -> dict[str, float]:
        """Return the figures of all starts together: counts, risks and their bounds add up."""
        spans = [*self.earlier, self.abstainer.figures()]
        figures = dict(spans[-1])
        if self.earlier:
            figures |= {name: sum(span[name] for span in spans) for name in ADDED}
            observed = figures["observed"]
            figures["fdr_observed"] = figures["wrong"] / observed if observed else math.nan
            found = figures["wrong"] + figures["audited"] - observed
            answers, withdrawn = figures["answers"], figures["withdrawn"]
            figures["fdr_limit"] = limit_of(self.abstainer.config, found, answers, withdrawn)
        return figures


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
            if not self._settled:  # Ctrl-C ended the last call: what is in memory may be ahead of the journal
                self._forget()
            self._settled = False
            try:
                result = method(self, *given, **named)
            except Exception as error:
                self._settled = True
                if not isinstance(error, (*FILE_ERRORS, UnreadableJournal)):
                    raise
                reason = str(error).removeprefix(f"{self.path}: ")
                raise OSError(errno.EIO, reason, str(self.path)) from error
            self._settled = True
            return result

    return call


class Abstainers:
    """One Abstainer per key, in one file, for one process with any number of threads."""

    def __init__(
        self,
        path: str | Path,
        *,
        warm_start: Any = None,
        score: str = "score",
        error: str | None = None,
        correct: str | None = None,
        drop_missing: bool = False,
        keys: Mapping[str, Mapping[str, Any]] | None = None,
        accept_loss: bool = False,
        **configuration: Any,
    ) -> None:
        """Open or create a file.

        Args:
            path: path of the file. SQLite keeps ``PATH-wal`` and ``PATH-shm`` beside it while it is open.
            warm_start: the log from which each new key starts, as of ``Abstainer``; likewise ``score``, ``error``,
                ``correct`` and ``drop_missing``, the columns of all logs. ``key:NAME`` are the answers of another
                key with feedback at that time; if there are none, the key starts cold.
            score, error, correct, drop_missing: see ``warm_start``.
            keys: by key, another ``alpha`` or ``warm_start``.
            accept_loss: go on with a file that was copied while it was in use, and may lack its latest entries.
            configuration: fields of ``AbstainersConfiguration``, for all keys. For an existing file they may be
                omitted, or must be equal to its own.

        Raises:
            BadInput: the file is in use, damaged, or of another program or version; a log cannot be read; or the
                configuration differs.
        """
        check_holds("path", path, isinstance(path, (str, Path)), "the path of a file")
        self.path = Path(path)
        check_known("abstainers", configuration, [f.name for f in fields(AbstainersConfiguration)])
        AbstainersConfiguration(**configuration)
        self._layout = layout = Layout(score=score, error=error, correct=correct, drop_missing=drop_missing)
        self._logs: dict[str, Records | str | None] = {"": _read_source(warm_start, layout)}
        self._alphas = dict[str, float]()
        for key, own in (keys or {}).items():
            check_known(f"keys: {quote(key)}", own, ("alpha", "warm_start"))
            if "alpha" in own:
                self._alphas[key] = AbstainersConfiguration(**{**configuration, "alpha": own["alpha"]}).alpha
            if "warm_start" in own:
                self._logs[key] = _read_source(own["warm_start"], layout)
        self._settled = True  # the last call came to its end
        self._lock, self._loaded = threading.RLock(), OrderedDict[str, _LoadedKey]()
        self._journal = Journal(self.path, configuration, accept_loss)
        self._config = self._journal.config
        self._starts = dict[tuple[str, float], dict[str, Any] | None]()
        self._shadow = dict[str, tuple[int, list[float]]]()  # by key, an entry and the sums up to it
        self._coins = Uniforms(self._config["seed"], FEEDBACK_STREAM, OF_SHADOW)

    @property
    def configuration(self) -> dict[str, Any]:
        """The fields of ``AbstainerConfiguration`` that all keys share, without the seed, which is secret."""
        return {name: value for name, value in self._config.items() if name not in ("seed", "key")}

    @_uses_file
    def decide(
        self, score: float, key: str = "", id: str | None = None, ref: str | None = None
    ) -> AbstainerDecision:
        """Decide whether to show an answer, as ``Abstainer.decide``, and journal the decision.

        Args:
            score: confidence in the answer, in [0, 1].
            key: selects the Abstainer; a new key creates one.
            id: as in ``Abstainer.decide``; unique over all keys.
            ref: another name of the answer, which ``feedback`` and ``withdraw`` take, too; unique over all keys.

        Raises:
            BadInput: the score is not in [0, 1], the key is not a text, or the id or ref was used before.
            OSError: the journal cannot be written; do not show the answer. In both cases the state is unchanged.
        """
        score, key = as_score(score), as_text("key", key)
        id, ref = self._new("id", id), self._new("ref", ref)

        def decide(abstainer: _KeyAbstainer) -> AbstainerDecision:
            decision = abstainer.decide(score, id)
            self._journal.append(
                key=key,
                kind=DECIDE,
                id=decision.id,
                ref=ref,
                score=score,
                probability=decision.probability,
                answered=int(decision.answer),
                audit=int(decision.audit),
            )
            return decision

        return self._change(key, decide)

    @_uses_file
    def show(self, score: float, key: str = "", id: str | None = None, ref: str | None = None) -> AbstainerDecision:
        """Record an answer that is shown whatever its score: *shadow mode*, before a key begins to decide.

        A key that begins to decide later ranks scores among those shown, and first answers above the lowest
        threshold where at most alpha of the audited answers (of the rated, if none was audited) were wrong.

        Arguments and errors are those of ``decide``.

        Returns:
            A decision to answer. Feedback on it is kept, and moves no learner.
        """
        score, key = as_score(score), as_text("key", key)
        id, ref = self._new("id", id) or secrets.token_hex(16), self._new("ref", ref)
        with self._journal.transaction():
            self._journal.add_key(key)
            audit, coin = self._config["audit"], self._coins.at(self._journal.last_seq())
            is_audited = audit is not None and coin < audit
            self._journal.append(key=key, kind=SHOWN, id=id, ref=ref, score=score, audit=int(is_audited))
        return AbstainerDecision(id, True, 1.0, is_audited)

    def _new(self, name: str, given: str | None) -> str | None:
        """Return a name of an answer. Raise BadInput if it was used before."""
        if given is None:
            return None
        given = as_text(name, given)
        if not given or self._journal.entries_of(given):
            raise BadInput(f"{name}: {quote(given)} found; it must not be empty, nor have been used before")
        return given

    @_uses_file
    def open_audits(self, limit: int) -> list[JournalEntry]:
        """Return the oldest audited answers that wait for feedback, at most ``limit``."""
        return self._journal.open_audits(limit)

    @_uses_file
    def count_open_audits(self) -> int:
        """Return the number of audited answers that wait for feedback."""
        return self._journal.count_open_audits()

    @_uses_file
    def begin(self, key: str, alpha: float | None = None, warm_start: Any = None) -> str:
        """Begin a key anew, because its model changed: what it has learned is forgotten, and its figures go on.

        Open answers close as ``late``. The bound of the feedback risk is then the sum of those of both learners.

        Args:
            key: the key, which may be new.
            alpha: its target from now on; None: it stays.
            warm_start: the log or the key from which it starts, as of ``Abstainers``; None: that of a new key.

        Returns:
            What the key starts with, as ``Abstainer.started``.

        Raises:
            BadInput: an argument is invalid; nothing has changed.
            OSError: as in ``decide``.
        """
        key = as_text("key", key)
        known = self._journal.latest_start(key)
        config = self._configuration_of(key, alpha)
        if known and alpha is None:
            config = replace(config, alpha=self._journal.start_of(known[0])[0])
        source = self._logs.get(key, self._logs[""])
        if warm_start is not None:
            source = _read_source(warm_start, self._layout)
        start = self._start_after(config, source)
        if warm_start is not None and start is None:
            raise BadInput(f"warm_start: {quote(source)} has no answers with feedback")
        self._loaded.pop(key, None)
        with self._journal.transaction():
            self._journal.add_start(key, config.alpha, start)
        return self._load(key).abstainer.started

    @_uses_file
    def beginnings(self, limit: int) -> dict[str, str]:
        """Return, as ``Abstainer.started``, what keys start with that have not yet; ``""`` is any new key.

        Of the keys in the file, the first ``limit`` are looked at.
        """
        keys = dict.fromkeys([*self._logs, *self._alphas, *self._journal.all_keys(limit)])
        new = (key for key in keys if not self._journal.latest_start(key))
        return {key: _KeyAbstainer.begun(self._config, self._start_of_new(key), 0).started for key in new}

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

        If answers were shown in shadow mode, also shadow_answers, shadow_audited, shadow_observed, shadow_wrong and
        shadow_fdr_limit, the bound of the share of wrong answers among all of them. They are in no other figure.

        Raises:
            BadInput: the key is unknown.
        """
        as_text("key", key)
        shadow = self._shadow_figures(key)
        if key in self._loaded or self._journal.latest_start(key):
            figures = self._load(key).figures()
            self._unload_oldest()
        elif shadow:
            figures = Abstainer(**asdict(self._configuration_of(key))).figures()  # before the first question
        else:
            raise BadInput(f"key: {quote(key)} found; it must be one that was used in decide")
        return figures | shadow

    def _shadow_figures(self, key: str) -> dict[str, float]:
        """Return the figures of shadow mode, if any answer of a key was shown in it."""
        seq, known = self._shadow.get(key, (0, [0.0] * 6))
        latest = self._journal.last_seq()
        if latest > seq:  # the entries since the last call
            known = [old + new for old, new in zip(known, self._journal.shadow_counts(key, seq), strict=True)]
            self._shadow[key] = latest, known
        answers, audited, observed, wrong, judged, found = known
        if not answers:
            return {}
        config = AbstainerConfiguration(**self._config)
        return {
            "shadow_answers": float(answers),
            "shadow_audited": float(audited),
            "shadow_observed": float(observed),
            "shadow_wrong": wrong,
            "shadow_fdr_limit": limit_of(config, found + audited - judged, answers, 0),
        }

    @_uses_file
    def fdr_limit(self) -> float:
        """Bound the FDR of the answers of all keys together (``docs/proofs.md``, F1), as ``Abstainer.figures``.

        With probability .95 it holds at all times at once. The limits in ``figures`` hold with probability .95 for
        each key. NaN without audits or answers.

        The first call reads the whole journal; later calls read the newer entries.
        """
        config = AbstainerConfiguration(**self._config)
        if config.audit is None:
            return math.nan
        totals = self._journal.load_totals()
        found = totals.wrong + totals.audited - totals.observed
        return limit_of(config, found, totals.answers, totals.withdrawn)

    def close(self) -> None:
        """Close the file and release its lock. Later calls do nothing; other methods raise OSError.

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
        self._loaded.clear()
        self._journal.close()

    @_uses_file
    def _give_feedback(self, id: str, kind: str, error: float | None) -> str:
        # the journal answers first: it knows all ids, an Abstainer only the open ones
        entries = self._journal.entries_of(as_text("id", id))
        if not entries:
            return "unknown"
        first, kinds = entries[0], {entry.kind for entry in entries}
        if not first.answered:
            return self._keep_verdict(first, kinds, error)
        if WITHDRAW in kinds:
            return "withdrawn"
        if kind == FEEDBACK and not first.audit and self._config["audit"] is not None:
            return "unaudited"
        if kind == FEEDBACK and FEEDBACK in kinds:
            return "repeated"

        def close(abstainer: _KeyAbstainer) -> str:
            if error is None:
                abstainer.withdraw(first.id)  # counts one, also if the id is not open and so not known to it
                outcome = "withdrawn"
            else:
                outcome = abstainer.feedback(first.id, error)
            if outcome in ("counted", "withdrawn"):
                self._journal.append(key=first.key, kind=kind, id=first.id, error=error)
            # shown, without feedback, and no longer open: expired
            return outcome if outcome in ("counted", "withdrawn") else "late"

        return self._change(first.key, close)

    def _keep_verdict(self, first: JournalEntry, kinds: set[str], error: float | None) -> str:
        """Keep feedback on an answer of shadow mode, or on a withheld one, for the starts of keys alone."""
        if error is not None and VERDICT not in kinds:
            with self._journal.transaction():
                self._journal.append(key=first.key, kind=VERDICT, id=first.id, error=error)
        if first.kind == DECIDE:
            return "withheld"
        # a withdrawal: the answer is as good a sample as if it had been seen
        return "shadow" if error is None else "repeated" if VERDICT in kinds else "counted"

    def _forget(self) -> None:
        """Undo what is not committed, and forget what was computed from it; the journal has the rest."""
        self._journal.roll_back()
        self._loaded.clear()
        self._shadow.clear()

    def _change(self, key: str, act: Callable[[_KeyAbstainer], Returned]) -> Returned:
        """Return what a function returns for the Abstainer of a key, and commit its entries."""
        try:
            with self._journal.transaction():
                loaded = self._load(key)
                result = act(loaded.abstainer)
        except BaseException:
            self._loaded.pop(key, None)  # it may be ahead of the journal; rebuild it when next used
            raise
        loaded.unsaved += 1
        if loaded.unsaved % SNAPSHOT_EVERY == 0:
            # After the commit of the entries: if it fails, as on a full disk, the next restart takes longer.
            with suppress(OSError, UnreadableJournal, *FILE_ERRORS), self._journal.transaction():
                self._journal.append(key=key, kind=SNAPSHOT, data=json.dumps(loaded.abstainer.summary()))
        self._unload_oldest()
        return result

    def _load(self, key: str) -> _LoadedKey:
        if key not in self._loaded:
            self._loaded[key] = self._restore(key)
        self._loaded.move_to_end(key)
        return self._loaded[key]

    def _unload_oldest(self) -> None:
        while len(self._loaded) > MOST_LOADED:
            self._loaded.popitem(last=False)

    def _configuration_of(self, key: str, alpha: float | None = None) -> AbstainerConfiguration:
        """Return the configuration of a new key, or with another target."""
        alpha = self._alphas.get(key, self._config["alpha"]) if alpha is None else alpha
        return AbstainerConfiguration(**{**self._config, "alpha": alpha})

    def _start_of_new(self, key: str) -> tuple[float, dict[str, Any] | None]:
        """Return the target of a new key, and what it begins with, or None."""
        config, name = self._configuration_of(key), key if key in self._logs else ""
        source, known = self._logs[name], (name, config.alpha)
        own = self._start_after(config, f"{KEY}{key}")  # after shadow mode
        if own is not None or isinstance(source, str):
            return config.alpha, own or self._start_after(config, source)
        if known not in self._starts:  # of thousands of keys
            self._starts[known] = self._start_after(config, source)
        return config.alpha, self._starts[known]

    def _start_after(self, config: AbstainerConfiguration, source: Records | str | None) -> dict[str, Any] | None:
        """Return what a learner begins with after a log, or after the answers of ``key:NAME``; None if cold."""
        if isinstance(source, str):
            key = source.removeprefix(KEY)
            answers, name = self._journal.scored(key), f"answers of key {quote(key)}"
            known = any(error is not None for _, _, error in answers)
            return start_after_answers(config, answers, name).as_json() if known else None
        return None if source is None else start_after(config, source).as_json()

    def _restore(self, key: str) -> _LoadedKey:
        """Return a key: its latest snapshot, and the later entries of the journal replayed."""
        journal = self._journal
        known = journal.latest_start(key)
        if not known:  # in the transaction of its first decision
            journal.add_start(key, *self._start_of_new(key))
            known = journal.latest_start(key)
        if not known:
            raise UnreadableJournal(f"{self.path}: the start of key {quote(key)} is not found; an index is damaged")
        begun, *snapshots = known
        earlier = list(self._earlier_spans(key, begun.seq))
        loaded, since = _LoadedKey(self._begun(begun), earlier), begun.seq
        for snapshot in snapshots:  # one at most
            since = snapshot.seq
            try:
                loaded.abstainer.resume(json.loads(snapshot.data or ""), journal.entries_until(key, since))
            except UNUSABLE_STATE as error:
                raise UnreadableJournal(f"{self.path}: entry {since}: {error}") from error
        for entry in journal.entries_after(key, since):
            loaded.unsaved += entry.kind not in (SHOWN, VERDICT)
            if not replay_entry(loaded.abstainer, entry):
                raise UnreadableJournal(
                    f"{self.path}: entry {entry.seq}: {entry.kind} found, which a replay does not repeat"
                )
        return loaded

    def _begun(self, start: JournalEntry) -> _KeyAbstainer:
        return _KeyAbstainer.begun(self._config, self._journal.start_of(start), start.seq)

    def _earlier_spans(self, key: str, seq: int) -> Iterator[dict[str, float]]:
        """Yield the figures of the starts of a key before an entry, each when the next one replaced it."""
        abstainer: _KeyAbstainer | None = None
        for entry in self._journal.entries_between_starts(key, seq):
            if entry.kind != START and abstainer is not None:
                replay_entry(abstainer, entry)
                continue
            if abstainer is not None:
                yield abstainer.figures() | {"open": 0.0}  # its open answers are late
            abstainer = self._begun(entry) if entry.seq < seq else None


def _read_source(warm_start: Any, layout: Layout) -> Records | str | None:
    """Return a log, ``key:NAME``, or None."""
    if isinstance(warm_start, str) and warm_start.startswith(KEY):
        return warm_start
    return None if warm_start is None else read_start_log(warm_start, layout)


def start_after_answers(
    config: AbstainerConfiguration, answers: Sequence[tuple[float, int, float | None]], name: str
) -> AbstainerStart:
    """Return what a learner begins with after answers, of which some have feedback.

    Args:
        config: of the key.
        answers: score, audit and error, None without feedback, of each answer in order.
        name: of the answers.
    """
    scores, observed = np.array([score for score, *_ in answers]), [row for row in answers if row[2] is not None]
    # audited answers are a random sample; users choose what they rate
    rows = [row for row in observed if row[1]] or observed
    sample = Records(
        name, np.array([row[0] for row in rows]), np.array([row[2] for row in rows], np.float64), 0, None
    )
    return start_after(config, sample, scores)


def replay_entry(abstainer: _KeyAbstainer, entry: JournalEntry) -> bool:
    """Repeat an entry. Return whether the outcome is the recorded one, numbers up to rounding."""
    if entry.kind == DECIDE:
        assert entry.score is not None
        _, answer, probability, audit = abstainer.decide(entry.score, entry.id)
        return (entry.answered, entry.audit) == (answer, audit) and _is_close(entry.probability, probability)
    if entry.kind == WITHDRAW:
        abstainer.withdraw(entry.id)
        return True
    if entry.kind in (SHOWN, VERDICT):
        return True  # nobody decided on it
    if entry.kind == SNAPSHOT:
        return _is_same(entry.data or "", abstainer.summary())
    assert entry.error is not None
    return abstainer.feedback(entry.id, entry.error) == "counted"


def _is_close(value: float | None, other: float | None) -> bool:
    """Return whether two numbers are equal up to rounding, which differs between machines."""
    return value is not None and other is not None and math.isclose(value, other, rel_tol=1e-6, abs_tol=1e-6)


def replayed(path: str | Path) -> Iterator[tuple[JournalEntry, bool]]:
    """Repeat all entries of a journal, key by key, from the entries alone.

    Args:
        path: the file, which another process may have open.

    Yields:
        An entry, and whether its outcome is the recorded one.

    Raises:
        BadInput: as ``read_journal``, the file is damaged, or an entry is missing or was changed.
    """
    with read_journal(path) as journal:
        journal.check_integrity()
        for key, entries in groupby(journal.entries("key, seq"), key=operator.attrgetter("key")):
            abstainer: _KeyAbstainer | None = None
            for entry in entries:
                if entry.kind == START:
                    abstainer, same = _KeyAbstainer.begun(journal.config, journal.start_of(entry), entry.seq), True
                elif abstainer is not None:
                    same = replay_entry(abstainer, entry)
                elif entry.kind in (SHOWN, VERDICT):
                    same = True
                else:
                    raise UnreadableJournal(f"{path}: entry {entry.seq}: key {quote(key)} has no start")
                if entry.kind == WITHDRAW:  # the Abstainer does not know the ids of closed answers
                    first = journal.entries_of(entry.id)[0]
                    same = first.key == key and first.seq < entry.seq and first.answered == 1
                yield entry, same


def _is_same(text: str, other: dict[str, Any]) -> bool:
    """Return whether two summaries, one of them as JSON, are equal up to rounding."""

    def numbers(summary: dict[str, Any]) -> list[float]:
        counts = [summary[name] for name in ("answers", "audited", "withdrawn")]
        return [*summary["numbers"], *summary["table"], *summary["sums"].values(), *counts]

    try:
        return np.allclose(numbers(json.loads(text)), numbers(other), rtol=1e-6, atol=1e-6)
    except UNUSABLE_STATE:
        return False
