"""The Abstainer of a key, as the entries of its journal say, and whether they are what it does again."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from exaul.engine.checks import quote
from exaul.serving.abstainer import Abstainer, limit_of
from exaul.serving.entries import DECIDE, FEEDBACK, SHOWN, SNAPSHOT, START, UNLEARNED, WITHDRAW, JournalEntry
from exaul.serving.journal import Journal, read_journal
from exaul.serving.start import AbstainerStart

ADDED = (  # figures of the starts of a key that add up
    *("questions", "answers", "audited", "withdrawn", "observed", "learned", "open"),
    *("wrong", "feedback_risk", "feedback_risk_bound"),
)


class KeyAbstainer(Abstainer):
    """The Abstainer of a key since its latest start, and the figures of its earlier starts.

    The journal knows the closed ids, so none are kept in memory.
    """

    REMEMBERED = 0

    def __init__(self, journal: Journal) -> None:
        """Prepare: the key begins with its first start."""
        self._journal, self._has_begun = journal, False
        self._earlier = list[dict[str, float]]()
        self.unsaved = 0  # entries since the last snapshot

    def figures(self) -> dict[str, float]:
        """Return the figures of all starts together: counts, risks and their bounds add up."""
        spans = [*self._earlier, super().figures()]
        figures = spans[-1] | {name: sum(span[name] for span in spans) for name in ADDED}
        observed = figures["observed"]
        figures["fdr_observed"] = figures["wrong"] / observed if observed else math.nan
        unproven = figures["wrong"] + figures["audited"] - observed
        figures["fdr_limit"] = limit_of(self.config, unproven, figures["answers"], figures["withdrawn"])
        return figures

    def repeat(self, entry: JournalEntry) -> bool:
        """Repeat an entry of the key. Return whether the outcome is the recorded one, numbers up to rounding."""
        if entry.kind in (SHOWN, UNLEARNED):  # no learner decided or learned
            return True
        if entry.kind == START:
            if self._has_begun:
                self._earlier.append(super().figures() | {"open": 0})  # its open answers are late
            self._has_begun, self.unsaved = True, 0
            alpha, start = self._journal.start_of(entry)
            config = replace(self._journal.config, alpha=alpha, key=entry.seq % 2**32)
            self._begin(config, AbstainerStart.of(config, start))
            return True
        if not self._has_begun:
            raise self._journal.unreadable(entry, f"key {quote(entry.key)} has no start")
        if entry.kind == SNAPSHOT:
            self.unsaved = 0
            return _is_same(entry.data or "", self.summary())
        self.unsaved += 1
        if entry.kind == DECIDE:
            assert entry.score is not None
            assert entry.probability is not None
            _, answer, probability, audit = self.decide(entry.score, entry.id)
            same = (entry.answered, entry.audit) == (answer, audit)
            return same and math.isclose(entry.probability, probability, rel_tol=1e-6, abs_tol=1e-6)
        if entry.kind == WITHDRAW:
            self.withdraw(entry.id)
            first = self._journal.entries_of(entry.id)[0]  # an Abstainer does not know the ids of closed answers
            return first.key == entry.key and first.seq < entry.seq and first.answered == 1
        assert entry.error is not None
        return self.feedback(entry.id, entry.error) == "counted"

    def resume(self, snapshot: JournalEntry) -> None:
        """Continue from a snapshot after the latest start; the entries before it have the open answers."""
        state = json.loads(snapshot.data or "")
        question, answer, left = int(state["sums"]["questions"]), state["answers"], state["sums"]["open"]
        closed, open_answers = set(), list[tuple[Any, ...]]()
        for entry in self._journal.entries(key=snapshot.key, until=snapshot.seq, latest_first=True):
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
        if len(open_answers) != left:
            text = f"{left:g} open answers, of which the entries have {len(open_answers)}"
            raise self._journal.unreadable(snapshot, text)
        self._resume(state | {"open": open_answers[::-1], "closed": ()})


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
        for key in journal.all_keys():
            abstainer = KeyAbstainer(journal)
            for entry in journal.entries(key=key):
                yield entry, abstainer.repeat(entry)


def _is_same(text: str, other: dict[str, Any]) -> bool:
    """Return whether two summaries, one of them as JSON, are equal up to rounding."""
    counts = "answers", "audited", "withdrawn"
    try:
        first, second = (
            [*each["numbers"], *each["table"], *each["sums"].values(), *(each[name] for name in counts)]
            for each in (json.loads(text), other)
        )
        return np.allclose(first, second, rtol=1e-6, atol=1e-6)
    except (AttributeError, LookupError, TypeError, ValueError):
        return False
