"""Thousands of Abstainers in one SQLite file, with a journal that survives crashes.

A call that decides or learns takes the Abstainer of its key out of memory, changes it, commits the journal entry,
puts the Abstainer back, and then returns. Therefore:

- If the process is killed before the commit, the caller has no result and the journal has no entry.
- If it is killed after the commit, the entry is replayed when its key is next used.
- If the commit fails, or Ctrl-C interrupts the call, the Abstainer may be ahead of the journal. It is not put back,
  but rebuilt from the file.

A power failure may lose the last commits, but does not damage the file (``file.py``).
"""

import errno
import json
import math
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from exaul.engine.checks import BadInput, as_typed, check_holds, check_known, quote
from exaul.engine.logs.log import Layout, LogLike, Records, least_rows
from exaul.kernels.online import Uniforms
from exaul.kernels.uniforms import FEEDBACK_STREAM
from exaul.serving.abstainer import Abstainer, AbstainerDecision, as_error, as_score, as_text, limit_of, refuse_copy
from exaul.serving.configuration import LOG_FIELDS, AbstainerConfiguration, SharedConfiguration, with_fields
from exaul.serving.entries import DECIDE, FEEDBACK, SHOWN, SNAPSHOT, VERDICT, WITHDRAW, JournalEntry, Outcome
from exaul.serving.file import FILE_ERRORS
from exaul.serving.journal import Journal
from exaul.serving.replay import KeyAbstainer
from exaul.serving.start import COLD, KEY_PREFIX, AbstainerStart, flags_of_log, read_source
from exaul.serving.wal import UnreadableJournal

MOST_LOADED = 1000  # keys in memory (chosen): some 50 MB without their open answers
SNAPSHOT_EVERY = 2000  # entries of a key between snapshots (chosen), the longest replay: some 40 ms
NEW_KEY = "\0"  # any key that has no settings of its own and was not used; no key has this name
BEGUN = "; --warm-start and --keys are for new keys, and change nothing for this one; to begin it from them: "
SHADOW_START = 2**32 - 1  # number of the audits of shadow mode in their stream; no start has it
Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def _uses_file(
    method: Callable[Concatenate["Abstainers", Parameters], Returned],
) -> Callable[Concatenate["Abstainers", Parameters], Returned]:
    """Let one thread at a time call a method, which raises OSError if the file cannot be used."""

    @wraps(method)
    def call(self: "Abstainers", /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        self._journal.check_open()  # first: a forked process may have inherited the lock of another thread
        # A signal handler or a destructor runs in the middle of a call. A second call within
        # the first would undo what the first has written.
        if self._lock._is_owned():  # type: ignore[attr-defined]  # no public name
            raise OSError(errno.EDEADLK, "is in use by the call that this one interrupts", str(self.path))
        with self._lock:
            try:
                self._journal.roll_back()  # what a call that failed, or that Ctrl-C interrupted, has left
                return method(self, *args, **kwargs)
            except (*FILE_ERRORS, UnreadableJournal) as error:
                reason = str(error).removeprefix(f"{self.path}: ")
                raise OSError(errno.EIO, reason, str(self.path)) from error

    return call


class Abstainers:
    """One Abstainer per key, in one file, for one process with any number of threads. ``with`` closes it."""

    __reduce_ex__ = refuse_copy

    def __init__(
        self,
        path: str | Path,
        *,
        warm_start: "LogLike | None" = None,
        score: str = "score",
        error: str | None = None,
        correct: str | None = None,
        drop_missing: bool = False,
        keys: Mapping[str, Mapping[str, Any]] | None = None,
        accept_loss: bool = False,
        **configuration: Any,
    ) -> None:
        """Open or create a file. It keeps the configuration, which later may be omitted, or must be the same.

        Args:
            path: path of the file. SQLite keeps ``PATH-wal`` and ``PATH-shm`` beside it while it is open.
            warm_start: the log from which each new key starts, as in ``Abstainer``. ``key:NAME`` are the answers of
                another key with feedback at that time; without any, the key starts cold.
            score, error, correct, drop_missing: as in ``Abstainer``, for all logs.
            keys: by key, another ``alpha`` or ``warm_start``.
            accept_loss: go on with a file that was copied while it was in use, and may lack its latest entries.
            configuration: fields of ``SharedConfiguration``, for all keys. In a file without entries, those that
                are given replace its own.

        Raises:
            BadInput: the file is in use, damaged, or of another program or version; a log cannot be read; or the
                configuration differs.
        """
        check_holds("path", path, isinstance(path, (str, Path)), "the path of a file")
        self.path = Path(path)
        check_known("abstainers", configuration, [*LOG_FIELDS, *(f.name for f in fields(SharedConfiguration))])
        SharedConfiguration(**configuration)
        self._layout = layout = Layout(score=score, error=error, correct=correct, drop_missing=drop_missing)
        self._source = read_source(warm_start, layout)  # of keys that have none of their own
        self._sources = dict[str, Records | str | None]()
        log_flags, flags_by_key = flags_of_log(warm_start, layout), dict[str, list[str]]()
        self._log_flags = lambda key: flags_by_key.get(key, log_flags)
        self._alphas = dict[str, float]()
        check_holds("keys", keys, keys is None or isinstance(keys, Mapping), "fields by key")
        for key, settings in (keys or {}).items():
            check_known(f"keys: {quote(as_text('keys', key))}", settings, ("alpha", "warm_start"))
            try:
                if "alpha" in settings:
                    self._alphas[key] = SharedConfiguration(**configuration | {"alpha": settings["alpha"]}).alpha
                if "warm_start" in settings:
                    self._sources[key] = read_source(settings["warm_start"], layout)
                    flags_by_key[key] = flags_of_log(settings["warm_start"], layout)
            except BadInput as trouble:
                raise BadInput(f"keys: {quote(key)}: {trouble}") from trouble
        self._lock = threading.RLock()
        self._loaded = OrderedDict[str, KeyAbstainer]()  # the last used at the end
        self._journal = Journal(self.path, configuration, accept_loss, self._log_flags)
        self._config = self._journal.config
        assert self._config.seed is not None
        self._coins = Uniforms(self._config.seed, FEEDBACK_STREAM, SHADOW_START)

    __signature__ = with_fields(__init__, SharedConfiguration)

    @property
    def configuration(self) -> dict[str, Any]:
        """The configuration that all keys have in common, without the seed, which is secret."""
        return {name: value for name, value in asdict(self._config).items() if name not in ("seed", "key")}

    @_uses_file
    def decide(
        self, score: float, key: str = "", id: str | None = None, ref: str | None = None, only_shown: bool = False
    ) -> AbstainerDecision:
        """Decide whether to show an answer, as ``Abstainer.decide``, and journal the decision.

        Args:
            score: confidence in the answer, in [0, 1].
            key: selects the Abstainer; a new key creates one.
            id: as in ``Abstainer.decide``; unique over all keys.
            ref: another name of the answer, which ``feedback`` and ``withdraw`` take, too; unique over all keys.
            only_shown: keep the ref only if the answer is shown; else another answer to the question can have it.

        Raises:
            BadInput: the score is not in [0, 1], the key is not a text, or the id or ref was used before.
            OSError: the journal cannot be written; do not show the answer. In both cases the state is unchanged.
        """
        score, key = as_score(score), as_text("key", key)
        id, ref = self._check_new("id", id), self._check_new("ref", ref)
        abstainer = self._take(key)
        decision = abstainer.decide(score, id)
        ref = ref if decision.answer or not only_shown else None
        columns = {"score": score, "probability": decision.probability, "answered": int(decision.answer)}
        self._journal.append(key=key, kind=DECIDE, id=decision.id, ref=ref, audit=int(decision.audit), **columns)
        self._commit(key, abstainer)
        return decision

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
        id, ref = self._check_new("id", id) or secrets.token_hex(16), self._check_new("ref", ref)
        audit, coin = self._config.audit, self._coins.at(self._journal.last_seq())
        is_audited = audit is not None and coin < audit
        self._journal.append(key=key, kind=SHOWN, id=id, ref=ref, score=score, audit=int(is_audited))
        self._journal.commit()
        return AbstainerDecision(id, True, 1.0, is_audited)

    def _check_new(self, name: str, value: str | None) -> str | None:
        """Return an id or a ref. Raise BadInput if it is empty or was used before."""
        if value is None:
            return None
        value = as_text(name, value)
        if not value or self._journal.entries_of(value):
            raise BadInput(f"{name}: {quote(value)} found; it must not be empty, nor have been used before")
        return value

    @_uses_file
    def open_audits(self, limit: int, offset: int = 0) -> tuple[int, list[JournalEntry]]:
        """Return how many audited answers wait for feedback, and ``limit`` of them, from number ``offset`` on."""
        return self._journal.open_audits(limit, offset)

    @_uses_file
    def begin(
        self,
        key: str,
        alpha: float | None = None,
        warm_start: "LogLike | None" = None,
        abandon_audits: bool = False,
    ) -> str:
        """Begin a key anew, because its model changed, and return what it starts with, as ``Abstainer.started``.

        What it has learned is forgotten, and its figures go on. Open answers close as ``late``. The bound of the
        feedback risk is then the sum of those of both learners.

        Args:
            key: the key, which may be new.
            alpha: its target from now on; None: it stays.
            warm_start: the log or the key from which it starts, as in ``Abstainers``; None: that of a new key.
            abandon_audits: let audited answers without a verdict count as wrong for ever; else they are refused.

        Raises:
            BadInput: an argument is invalid; nothing has changed.
            OSError: as in ``decide``.
        """
        key = as_text("key", key)
        if not abandon_audits:
            self._journal.check_judged(key)
        if alpha is None and (starts := self._journal.starts(key)):
            alpha, _ = self._journal.read_start(starts[-1])
        config, source = self._configuration_of(key, alpha), self._sources.get(key, self._source)
        source = source if warm_start is None else read_source(warm_start, self._layout)
        start = self._start_after(config, source)
        if isinstance(source, str) and warm_start is not None:
            count, needed = start.log["records"] if start.log else 0, least_rows(config.alpha)
            if count < needed:  # a handful of ratings must not replace a log
                of_needed = f"{count} of the {needed} answers with feedback that are needed"
                raise BadInput(f"warm_start: {quote(source)} has {of_needed}")
        self._loaded.pop(key, None)
        self._journal.add_start(key, config.alpha, start.as_json())
        self._journal.commit()
        abstainer = self._take(key)
        self._keep(key, abstainer)
        return abstainer.started

    @_uses_file
    def describe_keys(self, limit: int) -> list[str]:
        """Return in lines what keys, at most ``limit`` of the file, start with, and what they answered since."""
        lines, used = [], self._journal.all_keys(limit)
        new = [] if "" in used else [NEW_KEY]  # a service that names no keys has no other one
        for key in dict.fromkeys([*new, *self._sources, *self._alphas, *used]):
            name = "new keys" if key == NEW_KEY else f"key {quote(key)}"
            starts, source = self._journal.starts(key), self._sources.get(key, self._source)
            if not starts:
                config, start = self._start_of_new(key)
                cold = f"without a log: {source} has too few answers with feedback"
                lines.append(f"{name}: {start.describe(config) or (cold if isinstance(source, str) else COLD)}")
                continue
            alpha, saved = self._journal.read_start(starts[-1])
            config = self._configuration_of(key, alpha)
            text = AbstainerStart.of(config, saved).describe(config) or f"without a log at alpha = {alpha:g}"
            count, share = self._journal.count_decisions(key, starts[-1].seq)
            log = saved["log"] if saved else {"sha256": "", "content": None}
            was_chosen = log["sha256"] is None  # it has no file, since it is of the answers of a key
            is_other = isinstance(source, Records) and not was_chosen and log["content"] != source.digest()
            since = f"answered since then: {share:.1%} of {count:,}" if count else "no questions since then"
            lines.append(f"{name}: {text}; {since}")
            if alpha != (listed_alpha := self._alphas.get(key, alpha)) or is_other:
                flags = "--key", key, "--alpha", str(listed_alpha), *self._log_flags(key)
                lines[-1] += BEGUN + as_typed("journal", "start", str(self.path), *flags)
        return lines

    @_uses_file
    def alphas(self, limit: int) -> set[float]:
        """Return the targets of new keys, and of keys, at most ``limit`` of the file."""
        latest = [start for key in self._journal.all_keys(limit) for start in self._journal.starts(key)[-1:]]
        return {self._config.alpha, *self._alphas.values(), *(self._journal.read_start(x)[0] for x in latest)}

    def feedback(self, id: str, error: float | bool | str, judges: bool = True) -> Outcome:
        """Learn from feedback, as ``Abstainer.feedback``; the id gives the key. ``OSError`` as in ``decide``.

        Without ``judges`` it cannot be the verdict on an audit, and its outcome there is ``unaudited``.
        """
        return self.record_outcome(id, as_error(error), judges)[0]

    def withdraw(self, id: str) -> Outcome:
        """Record that an answer was not shown, as ``Abstainer.withdraw``. ``OSError`` as in ``decide``.

        The journal knows all ids, so ``unknown`` means that an id was never given; it changes nothing. ``shadow``
        (an answer of shadow mode) changes nothing, either.
        """
        return self.record_outcome(id, None)[0]

    @_uses_file
    def entries_of(self, id: str) -> list[JournalEntry]:
        """Return the decision of an id, then its feedback or withdrawal; nothing if the id is unknown."""
        return self._journal.entries_of(as_text("id", id))

    @_uses_file
    def latest_entries(self, count: int, /, *kinds: str, key: str | None = None) -> list[JournalEntry]:
        """Return the latest ``count`` entries (of ``kinds`` and ``key``, if given), the oldest first."""
        return list(islice(self._journal.entries(*kinds, key=key, latest_first=True), count))[::-1]

    @_uses_file
    def note(self, name: str, value: str) -> None:
        """Store a value under a name. ``OSError`` as in ``decide``."""
        self._journal.note(name, value)

    @_uses_file
    def noted(self, name: str) -> str | None:
        """Return the value that was stored under a name, or None."""
        return self._journal.noted(name)

    @_uses_file
    def check_writable(self) -> None:
        """Raise OSError if the file cannot be written."""
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

        After ``begin``, also questions_since_start, answers_since_start, audited_since_start, observed_since_start,
        fdr_observed_since_start and fdr_limit_since_start; counts, risk and its bound then add up all starts.

        Raises:
            BadInput: the key is unknown.
        """
        as_text("key", key)
        sums, shadow = self._journal.sums(key), dict[str, float]()
        if sums.answers:  # in shadow mode
            shadow = {f"shadow_{x}": getattr(sums, x) for x in ("answers", "audited", "observed", "wrong")}
            shadow["shadow_fdr_limit"] = limit_of(self._config, sums._asdict())
        if key in self._loaded or self._journal.starts(key):
            abstainer = self._take(key)
            figures = abstainer.figures()
            self._keep(key, abstainer)
        else:
            check_holds("key", key, bool(shadow), "one that was used in decide")
            figures = Abstainer(**asdict(self._configuration_of(key))).figures()  # before the first question
            figures["threshold"] = figures["silent"] = math.nan  # it may start from a log
        return figures | shadow

    @_uses_file
    def fdr_limit(self) -> float:
        """Bound the FDR of the answers of all keys together (``docs/proofs.md``, F1), as ``Abstainer.figures``.

        With probability .95 it holds at all times at once. The limits in ``figures`` hold with probability .95 for
        each key. NaN without audits or answers. The first call reads the whole journal.
        """
        if self._config.audit is None:
            return math.nan
        return limit_of(self._config, self._journal.sums()._asdict())

    def close(self) -> None:
        """Close the file and release its lock. Later calls do nothing; other methods raise OSError.

        It also does nothing if it interrupts another call, as a signal handler can.
        """
        with suppress(OSError):
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @_uses_file
    def _close(self) -> None:
        self._loaded.clear()
        self._journal.close()

    @_uses_file
    def record_outcome(
        self, id: str, error: float | None, judges: bool = True
    ) -> tuple[Outcome, JournalEntry | None, bool]:
        """Learn from feedback, or from a withdrawal if the error is None.

        Args:
            id: the id of the decision, or its ref.
            error: in [0, 1], or None.
            judges: whether the feedback may be the verdict on an audit.

        Returns:
            The outcome, as in ``Abstainer.feedback`` or ``Abstainer.withdraw``; the decision, None if the id is
            unknown; and whether the journal has a new entry.
        """
        # the journal answers first: it knows all ids, an Abstainer only the open ones
        entries = self._journal.entries_of(as_text("id", id))
        if not entries:
            return "unknown", None, False
        decision, kinds, kind = entries[0], {entry.kind for entry in entries}, None
        is_audited = decision.audit and (judges or len(entries) > 1)
        outcome: Outcome
        if decision.kind == DECIDE and not decision.answered:
            # kept for the starts of keys alone, as is feedback in shadow mode
            kind, outcome = None if error is None or VERDICT in kinds else VERDICT, "withheld"
        elif decision.kind == DECIDE and (error is None or WITHDRAW in kinds):
            kind, outcome = None if WITHDRAW in kinds else WITHDRAW, "withdrawn"
        elif error is None:  # in shadow mode the answer is as good a sample as if it had been seen
            outcome = "shadow"
        elif not is_audited and self._config.audit is not None:
            outcome = "unaudited"
        elif kinds & {FEEDBACK, VERDICT}:
            outcome = "repeated"
        else:
            kind, outcome = FEEDBACK if decision.kind == DECIDE else VERDICT, "counted"
        abstainer = self._take(decision.key) if kind in (FEEDBACK, WITHDRAW) else None
        if abstainer and error is None:
            abstainer.withdraw(decision.id)  # counts also if the id is not open, and so unknown to it
        elif abstainer and error is not None and abstainer.feedback(decision.id, error) != "counted":
            # shown, without feedback, and no longer open: expired. The verdict of an audit ends its wait.
            kind, outcome = VERDICT if decision.audit else None, "late"
        if kind:
            self._journal.append(key=decision.key, kind=kind, id=decision.id, error=error)
            self._commit(decision.key, abstainer)
        elif abstainer:
            self._keep(decision.key, abstainer)
        return outcome, decision, kind is not None

    def _take(self, key: str) -> KeyAbstainer:
        """Take the Abstainer of a key out of memory, or restore it; ``_keep`` puts it back."""
        return self._loaded.pop(key, None) or self._restore(key)

    def _keep(self, key: str, abstainer: KeyAbstainer) -> None:
        """Put the Abstainer of a key into memory; it must not be ahead of the journal."""
        self._loaded[key] = abstainer
        while len(self._loaded) > MOST_LOADED:
            self._loaded.popitem(last=False)

    def _commit(self, key: str, abstainer: KeyAbstainer | None) -> None:
        """Commit the entry of a key, and put its Abstainer, if there is one, into memory."""
        self._journal.commit()
        if abstainer is None:
            return
        abstainer.unsaved_count = (abstainer.unsaved_count + 1) % SNAPSHOT_EVERY
        if abstainer.unsaved_count == 0:
            # After the commit of the entry: if it fails, as on a full disk, the next restart takes longer.
            with suppress(OSError, UnreadableJournal, *FILE_ERRORS):
                self._journal.append(key=key, kind=SNAPSHOT, data=json.dumps(abstainer.summary()))
                self._journal.commit()
        self._keep(key, abstainer)

    def _configuration_of(self, key: str, alpha: float | None = None) -> AbstainerConfiguration:
        """Return the configuration of a new key, or with another target."""
        return replace(self._config, alpha=self._alphas.get(key, self._config.alpha) if alpha is None else alpha)

    def _start_of_new(self, key: str) -> tuple[AbstainerConfiguration, AbstainerStart]:
        """Return the configuration of a new key, and what it begins with."""
        config, source = self._configuration_of(key), self._sources.get(key, self._source)
        start = self._start_after(config, f"{KEY_PREFIX}{key}")
        # the log is used if the answers of shadow mode are missing, or too few for a start to trust
        if start.log is None or (source is not None and start.log["records"] < least_rows(config.alpha)):
            start = self._start_after(config, source)
        return config, start

    def _start_after(self, config: AbstainerConfiguration, source: Records | str | None) -> AbstainerStart:
        """Return what a learner begins with after a log, or after the answers of ``key:NAME``."""
        if not isinstance(source, str):
            return AbstainerStart.after(config, source)
        key = source.removeprefix(KEY_PREFIX)
        return AbstainerStart.after_answers(config, self._journal.answers(key), f"answers of key {quote(key)}")

    def _restore(self, key: str) -> KeyAbstainer:
        """Return the Abstainer of a key: of each start the latest snapshot, and the later entries repeated."""
        journal, abstainer, starts = self._journal, KeyAbstainer(self._journal), self._journal.starts(key)
        if not starts:  # in the transaction of its first decision
            config, start = self._start_of_new(key)
            journal.add_start(key, config.alpha, start.as_json())
            starts = self._journal.starts(key)
        if not starts:
            raise UnreadableJournal(f"{self.path}: the start of key {quote(key)} is not found; an index is damaged")
        last_seqs = [entry.seq - 1 for entry in starts[1:]] + [2**62]
        for start_entry, last_seq in zip(starts, last_seqs, strict=True):
            abstainer.repeat(start_entry)
            base_seq, span = start_entry.seq, dict[str, Any](key=key, until=last_seq)
            # without a name: an error later on would keep the reading, and the file, open
            for snapshot in islice(journal.entries(SNAPSHOT, since=base_seq, latest_first=True, **span), 1):
                base_seq = snapshot.seq
                abstainer.resume(snapshot)
            for entry in journal.entries(since=base_seq + 1, **span):
                if not abstainer.repeat(entry):
                    raise journal.unreadable(entry, f"{entry.kind} found, which a replay does not repeat")
        return abstainer
