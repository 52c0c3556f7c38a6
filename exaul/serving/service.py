"""Abstainers as a service needs them, without HTTP: the latest decisions, their texts, and metrics."""

import errno
import logging
import math
import shutil
import sqlite3
import time
from collections import OrderedDict, deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.engine.checks import check_holds, check_known
from exaul.engine.logs.log import Records
from exaul.kernels.metrics import wilson_interval
from exaul.serving.abstainer import AbstainerDecision
from exaul.serving.abstainers import Abstainers
from exaul.serving.entries import DECIDE, FEEDBACK, SHOWN, VERDICT, WITHDRAW, JournalEntry, Outcome
from exaul.serving.prometheus import MOST_KEYS, ServiceMetrics
from exaul.serving.texts import AnswerText, AnswerTexts

LATEST, LATEST_KEYS = 100, 20  # decisions, and keys, that ``overview`` shows
LONGEST_SHOWN = 4000  # characters of a question and an answer in memory, for the latest decisions
READY_SECONDS = 1.0  # between checks that the file is usable, each of which writes some pages
LEAST_BYTES = 64 * 1024 * 1024  # that must be free on the disk
TEXTS = "none", "audited", "all"  # of which answers the texts are kept
UNSCORED = "no_score", "score_timeout", "score_failed"  # reasons why an answer is not decided
ANSWER_KINDS = DECIDE, SHOWN, FEEDBACK, VERDICT, WITHDRAW  # kinds of entries
logger = logging.getLogger("exaul.serving")


class Service(Abstainers):
    """The Abstainers of one file, as a service needs them. One thread calls what uses the file, that of ``app``."""

    def __init__(
        self,
        path: str | Path,
        *,
        shadow: bool = False,
        texts: str | None = None,
        retain_days: float = 30.0,
        **configuration: Any,
    ) -> None:
        """Open or create a file.

        Args:
            path: of the file.
            shadow: show every answer, as ``show``.
            texts: one of TEXTS, the answers whose texts are kept; None: the audited ones.
            retain_days: days to keep a text after its verdict, >= 0.
            configuration: the other arguments of ``Abstainers``, which raises the errors, too.
        """
        check_known("texts", () if texts is None else (texts,), TEXTS)
        check_holds("retain_days", retain_days, 0 <= retain_days < math.inf, "a number of at least 0")
        super().__init__(path, **configuration)
        self._folder = self.path.resolve().parent  # now: the process may change its folder
        self.metrics = ServiceMetrics(self.all_keys(MOST_KEYS))
        self.shadow, self._text_rule = shadow, texts or "audited"
        keeps = self._text_rule == "all" or (self._text_rule == "audited" and self._config.audit is not None)
        has_old_texts = Path(f"{self.path}.texts").exists()  # which are still deleted in time
        self._texts = AnswerTexts(self.path, retain_days) if keeps or has_old_texts else None
        self._ready_at = -math.inf  # when the file was last found usable
        self.change_count = 0  # decisions, feedback, withdrawals and replies without a decision since the start
        self._undecided = dict[str, dict[str, Any]]()  # replies without a decision, by reason, as in ``overview``
        self._unscored = deque[bool](maxlen=LATEST)  # of the latest answers, whether they have no score
        self._recent_keys = dict[str, None]()  # keys, the last used at the end
        for entry in self.latest_entries(3 * LATEST, *ANSWER_KINDS):
            self._note_use(entry.key)
        self._recent_texts = OrderedDict[str, AnswerText]()  # of the latest decisions, by id
        earlier = self.latest_entries(LATEST, DECIDE, SHOWN)
        for entry in earlier:
            if kept := self._texts and self._texts.of(entry.id):
                self._recent_texts[entry.id] = AnswerText(*(x[:LONGEST_SHOWN] for x in kept))
        # the latest decision of an earlier process; a gateway, which notes its score, had all texts in memory
        self._last_lost = earlier[-1].seq if earlier and self.noted("score") else 0

    def decide(
        self,
        score: float,
        key: str = "",
        id: str | None = None,
        ref: str | None = None,
        only_shown: bool = False,
        question: str | None = None,
        text: str | None = None,
    ) -> AbstainerDecision:
        """Decide whether to show an answer, as ``Abstainers.decide``.

        ``question`` and ``text``, the answer, are for the latest decisions, in memory, and for audits.
        """
        arguments = score, key, id, ref
        decision = self.show(*arguments) if self.shadow else super().decide(*arguments, only_shown)
        if text is not None:
            self._keep_text(decision, question or "", text)
        self.metrics.count_decision(key, score, decision.answer)
        self._note_use(key)
        self._unscored.append(False)
        self.change_count += 1
        return decision

    def _keep_text(self, decision: AbstainerDecision, question: str, text: str) -> None:
        keeps = self._text_rule == "all" or (self._text_rule == "audited" and decision.audit)
        if self._texts is not None and keeps:
            try:
                self._texts.add(decision.id, AnswerText(question, text))
            except sqlite3.Error as error:  # the decision stands, and the answer waits for its audit
                logger.error("a text for an audit cannot be kept: %s", error)
        self._recent_texts[decision.id] = AnswerText(question[:LONGEST_SHOWN], text[:LONGEST_SHOWN])
        if len(self._recent_texts) > LATEST:
            self._recent_texts.popitem(last=False)

    def count_undecided(self, key: str, reason: str, rule: str) -> None:
        """Count a reply without a decision, to which a rule was applied: ``answer``, ``abstain`` or ``error``."""
        replies = self._undecided.get(reason, {"replies": 0})["replies"] + 1
        self._undecided[reason] = {"reason": reason, "replies": replies, "rule": rule}
        self.metrics.count_undecided(key, reason)
        self._unscored.extend([True] * (reason in UNSCORED))
        self.change_count += 1

    def audits(self, limit: int, offset: int = 0, id: str | None = None) -> tuple[int, list[dict[str, Any]]]:
        """Return how many audited answers have no verdict, and some, oldest first, with text and outcome.

        With an ``id``, return the answer that it names instead, with or without a verdict, if it is audited.
        """
        total, entries = self.open_audits(limit, offset)
        if id is not None:
            entries = [entry for entry in self.entries_of(id)[:1] if entry.audit]
        texts = (None if self._texts is None else self._texts.of(entry.id) for entry in entries)
        return total, list(map(self._row_of, entries, texts))

    def _row_of(self, entry: JournalEntry, kept: AnswerText | None) -> dict[str, Any]:
        """Return a decision, with what is kept of its texts, and its outcome."""
        question, text = kept or (None, None)
        outcomes = self.entries_of(entry.id)[1:]
        decision = decision_of(entry)
        return decision._asdict() | {
            "at": entry.at,  # seconds since 1970
            "key": entry.key,
            "score": entry.score,
            "question": question,
            "text": text,
            "error": next((x.error for x in outcomes if x.error is not None and decision.answer), None),
            "withdrawn": any(x.kind == WITHDRAW for x in outcomes),
        }

    @property
    def log_scores(self) -> NDArray[np.float64]:
        """The scores [N], in [0, 1], of the log of new keys; none if its argument is missing or names a key."""
        return self._source.scores if isinstance(self._source, Records) else np.empty(0)

    def overview(self, texts: bool = True) -> dict[str, Any]:
        """Return what the page shows: the limit over all keys, the keys used last, and the latest decisions.

        ``undecided`` has the replies without a decision since the start, by reason, with the rule last applied.
        ``unscored`` and ``scored`` are, of the latest 100 answers since then, the numbers without and with a score.

        Besides its figures, a key has ``fdr_interval``, the ``wilson_interval`` of ``fdr_observed`` since it last
        began. NaN stands for figures that are not defined. Without ``texts``, questions and answers are None. A
        decision has ``text_lost`` if a gateway had its text in memory before this start. ``OSError`` as in
        ``decide``.
        """
        latest = list[dict[str, Any]]()
        for entry in reversed(self.latest_entries(LATEST, DECIDE, SHOWN)):
            kept = self._recent_texts.get(entry.id) if texts else None
            is_lost = texts and kept is None and entry.seq <= self._last_lost
            latest.append(self._row_of(entry, kept) | {"text_lost": is_lost})
        keys: list[dict[str, Any]] = [{"key": key, **self.figures(key)} for key in reversed(self._recent_keys)]
        for row in keys:
            latest_figures = (row.get(f"{name}_since_start", row[name]) for name in ("fdr_observed", "observed"))
            row["fdr_interval"] = wilson_interval(*latest_figures)
        return {
            "configuration": {x: self.configuration[x] for x in ("alpha", "learner", "audit")}
            | {"shadow": self.shadow},
            "fdr_limit": self.fdr_limit(),
            "total": self.count_keys(),
            "audits_open": self.open_audits(0)[0],
            "undecided": list(self._undecided.values()),
            "unscored": self._unscored.count(True),
            "scored": self._unscored.count(False),
            "keys": keys,
            "latest": latest,
        }

    def free_bytes(self) -> int:
        """Return the bytes that are free on the disk of the file. ``OSError``: its folder is gone."""
        return shutil.disk_usage(self._folder).free

    def check_ready(self) -> None:
        """Raise OSError if nothing can be committed, or less than LEAST_BYTES are free on the disk."""
        if self.free_bytes() < LEAST_BYTES:
            raise OSError(errno.ENOSPC, "less than 64 MiB are free")
        if time.monotonic() - self._ready_at > READY_SECONDS:
            self.check_writable()
            self._ready_at = time.monotonic()

    def record_outcome(
        self, id: str, error: float | None, judges: bool = True
    ) -> tuple[Outcome, JournalEntry | None, bool]:
        """Learn from feedback or a withdrawal, as ``Abstainers.record_outcome``, and count it."""
        outcome, decision, changed = result = super().record_outcome(id, error, judges)
        if error is not None:
            self.metrics.count_feedback(decision and decision.key, outcome, error)
        if decision is not None and changed:
            if self._texts is not None:
                with suppress(sqlite3.Error):  # as in ``_keep_text``
                    self._texts.close_text(decision.id)
            self._note_use(decision.key)
            self.change_count += 1
        return result

    def delete_old_texts(self) -> None:
        """Delete old texts, as each new text and each verdict does."""
        with suppress(sqlite3.Error):
            if self._texts is not None:
                self._texts.delete_old()

    def close(self) -> None:
        """Close the files, as ``Abstainers.close``."""
        super().close()
        if self._texts is not None:
            self._texts.close()

    def _note_use(self, key: str) -> None:
        self._recent_keys.pop(key, None)
        self._recent_keys = dict.fromkeys([*self._recent_keys, key][-LATEST_KEYS:])


def decision_of(entry: JournalEntry) -> AbstainerDecision:
    """Return the decision of an entry; in shadow mode, to answer."""
    answered, probability = (1, 1.0) if entry.kind == SHOWN else (entry.answered, entry.probability or 0.0)
    return AbstainerDecision(entry.id, bool(answered), probability, bool(entry.audit))


def for_json(value: Any, secret: str = "") -> Any:
    """Return a value for JSON, which has no NaN: None replaces it, and ``[key]`` a secret text."""
    if isinstance(value, dict):
        return {for_json(name, secret): for_json(item, secret) for name, item in value.items()}
    if isinstance(value, list):
        return [for_json(item, secret) for item in value]
    if isinstance(value, str):
        return value.replace(secret, "[key]") if secret else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
