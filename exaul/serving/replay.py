"""Restore the Abstainer of a key from the entries of a journal, and check that it repeats them."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from exaul.engine.checks import quote
from exaul.serving.abstainer import Abstainer, limit_of
from exaul.serving.entries import DECIDE, FEEDBACK, SHOWN, SNAPSHOT, START, VERDICT, WITHDRAW, JournalEntry
from exaul.serving.journal import Journal, read_journal
from exaul.serving.start import AbstainerStart

SUMMED_FIGURES = (  # figures of the starts of a key that add up
    *("questions", "answers", "audited", "withdrawn", "observed", "learned", "open"),
    *("wrong", "feedback_risk", "feedback_risk_bound"),
)
SINCE_START = "questions", "answers", "audited", "observed", "fdr_observed", "fdr_limit"  # of the latest start, too


class KeyAbstainer(Abstainer):
    """The Abstainer of a key since its latest start, and the figures of its earlier starts.

    The journal knows the closed ids, so none are kept in memory.
    """

    REMEMBERED = 0

    def __init__(self, journal: Journal) -> None:
        """Prepare. ``repeat`` of the key's first start sets the state, which all other methods need."""
        self._journal, self._has_begun = journal, False
        self._earlier_figures = list[dict[str, float]]()
        self.unsaved_count = 0  # entries since a snapshot was last tried

    def figures(self) -> dict[str, float]:
        """Return the figures of all starts together: counts, risks and their bounds add up.

        If the key began anew, also those of SINCE_START, each as NAME_since_start.
        """
        spans = [*self._earlier_figures, super().figures()]
        figures = spans[-1] | {name: sum(span[name] for span in spans) for name in SUMMED_FIGURES}
        observed = figures["observed"]
        figures["fdr_observed"] = figures["wrong"] / observed if observed else math.nan
        since = {f"{name}_since_start": spans[-1][name] for name in SINCE_START if len(spans) > 1}
        return figures | {"fdr_limit": limit_of(self.config, figures)} | since

    def repeat(self, entry: JournalEntry) -> bool:
        """Repeat an entry of the key. Return whether the outcome is the recorded one, numbers up to rounding."""
        if entry.kind in (SHOWN, VERDICT):  # no learner decided or learned
            return True
        if entry.kind == START:
            if self._has_begun:
                self._earlier_figures.append(super().figures() | {"open": 0})  # its open answers are late
            self._has_begun, self.unsaved_count = True, 0
            alpha, start = self._journal.read_start(entry)
            config = replace(self._journal.config, alpha=alpha, key=entry.seq % 2**32)
            self._begin(config, AbstainerStart.of(config, start))
            return True
        if not self._has_begun:
            raise self._journal.unreadable(entry, f"key {quote(entry.key)} has no start")
        if entry.kind == SNAPSHOT:
            self.unsaved_count = 0
            return _is_same(entry.data or "", self.summary())
        self.unsaved_count += 1
        if entry.kind == DECIDE:
            assert entry.score is not None
            assert entry.probability is not None
            _, answer, probability, audit = self.decide(entry.score, entry.id)
            is_same = (entry.answered, entry.audit) == (answer, audit)
            return is_same and math.isclose(entry.probability, probability, rel_tol=1e-6, abs_tol=1e-6)
        if entry.kind == WITHDRAW:
            self.withdraw(entry.id)  # "unknown", if the answer is closed
            return True
        assert entry.error is not None
        return self.feedback(entry.id, entry.error) == "counted"

    def resume(self, snapshot: JournalEntry) -> None:
        """Continue from a snapshot after the last start repeated; the entries before it have the open answers."""
        state = json.loads(snapshot.data or "")
        question, answer, open_count = int(state["sums"]["questions"]), state["answers"], state["sums"]["open"]
        closed_ids, open_answers = set(), list[tuple[Any, ...]]()
        for entry in self._journal.entries(key=snapshot.key, until=snapshot.seq, latest_first=True):
            if len(open_answers) == open_count or entry.kind == START:  # older ones have expired
                break
            if entry.kind in (FEEDBACK, WITHDRAW):
                closed_ids.add(entry.id)
            if entry.kind != DECIDE:
                continue
            question, answer = question - 1, answer - (entry.answered or 0)
            expects_feedback = entry.answered and (entry.audit or self.config.audit is None)
            if expects_feedback and entry.id not in closed_ids:
                cut = self.cut_of(entry.score or 0.0)
                open_answers.append((entry.id, question, answer, cut, entry.probability))
        if len(open_answers) != open_count:
            text = f"{open_count:g} open answers, of which the entries have {len(open_answers)}"
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


def _is_same(text: str, summary: dict[str, Any]) -> bool:
    """Return whether two summaries, one of them as JSON, are equal up to rounding."""
    counts = "answers", "audited", "withdrawn"
    first, second = (
        [*state["numbers"], *state["table"], *state["sums"].values(), *(state[name] for name in counts)]
        for state in (json.loads(text), summary)
    )
    return np.allclose(first, second, rtol=1e-6, atol=1e-6)
