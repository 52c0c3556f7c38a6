"""Abstainers as a service needs them, without HTTP: repeatable decisions, and the latest ones."""

import math
import threading
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from exaul.engine.checks import quote
from exaul.serving.abstainer import Abstainer, as_error, as_score, as_text
from exaul.serving.abstainers import Abstainers
from exaul.serving.journal import DECIDE, FEEDBACK, WITHDRAW, JournalEntry, JournalTotals

ON_ERROR = "refuse", "abstain", "answer"  # what a client gets if the file cannot be used
LATEST = 100  # decisions that ``overview`` shows
SHOWN = 20  # keys that ``overview`` shows: those used last
LONGEST = 4_000  # characters of a question or an answer in the list of the latest decisions
COUNTED_KEYS = 10_000  # keys whose decisions are counted, at most
Z = 1.959964  # quantile of the normal distribution for 95% intervals
ACCEPTED = {FEEDBACK: "counted", WITHDRAW: "withdrawn"}  # the outcome that changes something


class Conflict(ValueError):
    """An id was decided before, with another score or key."""


class ServedDecision(NamedTuple):
    """The decision for one answer."""

    id: str
    key: str
    score: float
    probability: float  # of answering before the draw, in [0, 1]
    answer: bool  # show the answer, or say "I don't know"
    audit: bool  # find out whether the answer is right and report it


@dataclass(slots=True)
class LatestDecision:
    """A decision in the list of the latest ones."""

    decision: ServedDecision
    at: float  # seconds since 1970
    error: float | None = None  # of its feedback
    withdrawn: bool = False
    question: str | None = None  # this and ``text``, the answer: known to the gateway only, never stored
    text: str | None = None

    def __post_init__(self) -> None:
        """Cut long texts, since each change sends all of them to each page that is open."""
        self.question, self.text = _cut(self.question), _cut(self.text)


class Service:
    """Decisions and feedback for many keys, in one file. All methods are thread-safe."""

    def __init__(self, path: str | Path, **configuration: Any) -> None:
        """Open or create a file; arguments and errors are those of ``Abstainers``."""
        self._abstainers = Abstainers(path, **configuration)
        self.configuration = self._abstainers.configuration
        Abstainer(**self.configuration).compile()  # now, and not during the first request
        self.changes = 0  # decisions, feedback and withdrawals since the start
        # events since the start, by kind and outcome; feedback that is repeated with another error is "changed"
        self.outcomes = Counter[tuple[str, str]]()
        self._lock = threading.RLock()
        self._decisions = Counter[str]()  # by key, since the start and a little before
        self._used = OrderedDict[str, None]()  # keys used last; the last one is at the end
        self._latest = OrderedDict[str, LatestDecision]()  # by id; the oldest is first
        # each of the latest decisions may be followed by feedback and a withdrawal
        for entry in self._abstainers.latest_entries(3 * LATEST):
            if entry.kind == DECIDE:
                self._add_latest(LatestDecision(_decision_of(entry), entry.at))
            else:
                self._update_latest(entry.id, entry.kind, entry.error)
            self._note_use(entry.key, entry.kind)

    def decide(
        self,
        score: float,
        key: str = "",
        id: str | None = None,
        question: str | None = None,
        text: str | None = None,
    ) -> ServedDecision:
        """Decide whether to show an answer. The same id, score and key return the same decision again.

        Args:
            score: confidence in the answer, in [0, 1].
            key: selects the Abstainer; a new key creates one.
            id: as in ``Abstainers.decide``.
            question: for the list of the latest decisions, as ``text``, the answer; kept in memory only.
            text: see ``question``.

        Raises:
            BadInput: an argument is invalid.
            Conflict: the id was decided with another score or key.
            OSError: the file cannot be used; do not show the answer. Nothing has changed.
        """
        score, key = as_score(score), as_text("key", key)
        with self._lock:
            entries = self._abstainers.entries_of(as_text("id", id)) if id is not None else []
            if entries:
                decision = _decision_of(entries[0])
                if (decision.score, decision.key) != (score, key):
                    raise Conflict(
                        f"id: {quote(id)} was decided with score {decision.score} and key {quote(decision.key)}; "
                        "it must be new, or have the same score and key"
                    )
                return decision
            decided = self._abstainers.decide(score, key, id)
            decision = ServedDecision(decided.id, key, score, decided.probability, decided.answer, decided.audit)
            self._add_latest(LatestDecision(decision, time.time(), question=question, text=text))
            self.changes += 1
            self.outcomes[DECIDE, "answered" if decided.answer else "withheld"] += 1
            self._note_use(key, DECIDE)
        return decision

    def feedback(self, id: str, error: float | bool | str) -> str:
        """Learn from feedback, as ``Abstainers.feedback``."""
        error = as_error(error)
        return self._close_answer(id, FEEDBACK, error)

    def withdraw(self, id: str) -> str:
        """Record that an answer was not shown, as ``Abstainers.withdraw``."""
        return self._close_answer(id, WITHDRAW, None)

    def all_keys(self, limit: int = -1, offset: int = 0) -> list[str]:
        """Return keys, as ``Abstainers.all_keys``. ``OSError`` as in ``decide``."""
        return self._abstainers.all_keys(limit, offset)

    def count_keys(self) -> int:
        """Return the number of keys. ``OSError`` as in ``decide``."""
        return self._abstainers.count_keys()

    def figures(self, key: str) -> dict[str, Any]:
        """Return the figures of a key, as ``Abstainers.figures``."""
        return self._abstainers.figures(key)

    def overview(self) -> dict[str, Any]:
        """Return what the page shows: the limit over all keys, the keys used last, and the latest decisions.

        Beside the figures, a key has ``fdr_interval`` (95% Wilson score interval of ``fdr_observed``, as if the
        rated answers were a random sample). NaN stands for figures that are not defined. ``OSError`` as in
        ``decide``.
        """
        with self._lock:
            return {
                "configuration": {name: self.configuration[name] for name in ("alpha", "learner", "audit")},
                "fdr_limit": self._abstainers.fdr_limit(),
                "total": self._abstainers.count_keys(),
                "keys": [self._overview_of(key) for key in reversed(self._used)],
                "latest": [_row_of(latest) for latest in reversed(self._latest.values())],
            }

    def busiest_keys(self, count: int) -> list[str]:
        """Return the keys with the most decisions since the start, at most ``count``; the busiest is first."""
        with self._lock:
            return [key for key, _ in self._decisions.most_common(count)]

    def fdr_limit(self) -> float:
        """Bound the FDR of all keys together, as ``Abstainers.fdr_limit``."""
        return self._abstainers.fdr_limit()

    def totals(self) -> JournalTotals:
        """Return sums over all keys, as ``Abstainers.totals``."""
        return self._abstainers.totals()

    def _overview_of(self, key: str) -> dict[str, Any]:
        figures = self.figures(key)
        interval = wilson_interval(figures["fdr_observed"], figures["observed"])
        return {"key": key} | figures | {"fdr_interval": interval}

    def check_usable(self) -> None:
        """Raise OSError if the file cannot be written."""
        self._abstainers.check_usable()

    def close(self) -> None:
        """Save states and close the file, as ``Abstainers.close``."""
        self._abstainers.close()

    def _close_answer(self, id: str, kind: str, error: float | None) -> str:
        with self._lock:
            entries = self._abstainers.entries_of(as_text("id", id))
            earlier = [entry.error for entry in entries if entry.kind == kind]
            outcome = self._abstainers.withdraw(id) if error is None else self._abstainers.feedback(id, error)
            if outcome == ACCEPTED[kind] and not earlier:
                self._update_latest(id, kind, error)
                self._note_use(entries[0].key, kind)
                self.changes += 1
            counted = "repeated" if earlier and outcome == ACCEPTED[kind] else outcome
            self.outcomes[kind, "changed" if counted == "repeated" and error not in earlier else counted] += 1
        return outcome

    def _note_use(self, key: str, kind: str) -> None:
        self._used[key] = None
        self._used.move_to_end(key)
        if len(self._used) > SHOWN:
            self._used.popitem(last=False)
        self._decisions[key] += kind == DECIDE
        if len(self._decisions) > COUNTED_KEYS:  # keep the busier half
            self._decisions = Counter(dict(self._decisions.most_common(COUNTED_KEYS // 2)))

    def _add_latest(self, latest: LatestDecision) -> None:
        self._latest[latest.decision.id] = latest
        if len(self._latest) > LATEST:
            self._latest.popitem(last=False)

    def _update_latest(self, id: str, kind: str, error: float | None) -> None:
        if id in self._latest:
            if kind == WITHDRAW:
                self._latest[id].withdrawn = True
            else:
                self._latest[id].error = error


def _decision_of(entry: JournalEntry) -> ServedDecision:
    assert entry.score is not None
    assert entry.probability is not None
    return ServedDecision(
        entry.id, entry.key, entry.score, entry.probability, bool(entry.answered), bool(entry.audit)
    )


def wilson_interval(share: float, count: float) -> list[float]:
    """Return the limits of the 95% Wilson score interval of a share of ``count`` events; NaN if there are none."""
    if not count:
        return [math.nan, math.nan]
    weight = Z * Z / count
    center = (share + weight / 2) / (1 + weight)
    half = Z / (1 + weight) * math.sqrt((share * (1 - share) + weight / 4) / count)
    return [max(0.0, center - half), min(1.0, center + half)]


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _row_of(latest: LatestDecision) -> dict[str, Any]:
    return latest.decision._asdict() | {
        name: getattr(latest, name) for name in ("at", "error", "withdrawn", "question", "text")
    }


def without_nan(value: Any) -> Any:
    """Return a value for JSON, which has no NaN: None stands for it."""
    if isinstance(value, dict):
        return {name: without_nan(each) for name, each in value.items()}
    if isinstance(value, list):
        return [without_nan(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
