"""The SQLite file of Abstainers: a journal of all that they did.

    meta      version and configuration, the same for all keys; whether the file is in use
    keys      the keys, in the order of first use
    starts    what a key may begin with: thresholds and the first state of its learner, by digest
    journal   all starts of keys, decisions, feedback, withdrawals and snapshots, what is shown in shadow mode, and
              feedback that no learner learns from, in order; entries never change

Each entry has a digest of itself and of the digest before it, so that an edited, missing or foreign entry is
found when it or the next one is read. All are read if the file was not closed, and by ``exaul journal``. A
snapshot is the state of a key after the entries before it; it only saves the time to replay them.
"""

import json
import operator
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from exaul.engine.checks import BadInput, as_typed, quote
from exaul.serving.entries import DECIDE, SHOWN, START, JournalEntry, digest_of
from exaul.serving.file import BY_KIND, IS_BY_KIND, JournalFile, explain_file_errors

_LATER = "SELECT 1 FROM journal AS later WHERE later.id = journal.id AND later.id <> '' AND later.seq > journal.seq"
_LATER_START = f"""SELECT 1 FROM journal AS later WHERE later.key = journal.key AND {IS_BY_KIND}
    AND later.kind = 'start' AND later.seq > journal.seq"""  # after it, a verdict is late, but on a shown answer
_OPEN_AUDIT = f"audit = 1 AND NOT EXISTS ({_LATER}) AND (kind = 'shown' OR NOT EXISTS ({_LATER_START}))"
_SUMS = """SELECT sum(coalesce(answered, kind = 'shown')), sum(audit), sum(kind = 'withdraw'), count(error),
    sum(error) FROM journal WHERE seq > :since AND {}"""
_DECIDED_ENTRIES = "kind NOT IN ('shown', 'verdict')"
_SHADOW_ENTRIES = f"""key = :key AND {IS_BY_KIND} AND (kind = 'shown' OR kind = 'verdict' AND EXISTS (
    SELECT 1 FROM journal AS first WHERE first.id = journal.id AND first.id <> '' AND first.kind = 'shown'))"""


class JournalSums(NamedTuple):
    """Sums over some answers of a journal."""

    seq: int = 0  # of the last entry in the sums
    answers: int = 0
    audited: int = 0
    withdrawn: int = 0
    observed: int = 0  # answers with feedback; with audits, only audited ones have it
    wrong: float = 0.0  # sum of its errors


class Journal(JournalFile):
    """The journal of a file, whose methods raise the errors of JournalFile."""

    @cached_property
    def _sums(self) -> dict[str | None, JournalSums]:
        """The latest sums, by key."""
        return {}

    def add_start(self, key: str, alpha: float, start: dict[str, Any] | None) -> None:
        """Let a key begin, or begin anew, with a target and what ``AbstainerStart.as_json`` returned.

        The number of the entry separates the draws of this start from those of all others.
        """
        text = json.dumps(start)
        digest = None if start is None else digest_of(text)
        self.append(key=key, kind=START, data=json.dumps({"alpha": alpha, "start": digest}))
        if digest is not None:  # thousands of keys may begin with the same log
            self._connection.execute("INSERT OR IGNORE INTO starts VALUES (?, ?)", (digest, text))

    def starts(self, key: str) -> list[JournalEntry]:
        """Return the entries with which a key began, and began anew."""
        return list(self.entries(START, key=key))

    def read_start(self, entry: JournalEntry) -> tuple[float, Any]:
        """Return the target of a start, and its ``AbstainerStart.as_json``."""
        data = json.loads(entry.data or "")
        alpha, digest = data["alpha"], data["start"]
        if digest is None:
            return alpha, None
        row = self._connection.execute("SELECT start FROM starts WHERE digest = ?", (digest,)).fetchone()
        if row is None or digest_of(*row) != digest:
            raise self.unreadable(entry, "a start that was never written")
        return alpha, json.loads(*row)

    def count_decisions(self, key: str, since: int) -> tuple[int, float]:
        """Return how many decisions a key has from an entry on, and which share of them are answers."""
        of_key = "SELECT count(*), ifnull(avg(answered), 0) FROM journal WHERE key = ? AND seq >= ? AND kind = ?"
        count, share = self._connection.execute(of_key, (key, since, DECIDE)).fetchone()
        return count, share

    def entries(
        self, *kinds: str, key: str | None = None, since: int = 0, until: int = 2**62, latest_first: bool = False
    ) -> Iterator[JournalEntry]:
        """Yield the entries from ``since`` to ``until`` in order (of ``kinds`` and ``key``, if given)."""
        conditions, values = ["seq BETWEEN ? AND ?"], [since, until, *kinds]
        if kinds:
            conditions.append(f"kind IN (?{', ?' * (len(kinds) - 1)})")
        if key is not None:
            conditions += ["key = ?"] + [IS_BY_KIND] * (kinds != () and {*BY_KIND}.issuperset(kinds))
            values.append(key)
        order = "DESC" if latest_first else "ASC"
        return self._entries(f"WHERE {' AND '.join(conditions)} ORDER BY seq {order}", *values)

    def answers(self, key: str | None = None) -> list[JournalEntry]:
        """Return the decisions and shown answers of all keys, or of a key, in order, each with its feedback."""
        answers = dict[str, JournalEntry]()
        for entry in self.entries(key=key):
            if entry.score is not None:
                answers[entry.id] = entry
            elif entry.error is not None and entry.id in answers:
                answers[entry.id] = answers[entry.id]._replace(error=entry.error)
            elif entry.error is not None:
                raise self.unreadable(entry, f"{quote(entry.id)} has feedback but no decision")
        return list(answers.values())

    def entries_of(self, id: str) -> list[JournalEntry]:
        """Return the entries of an answer, its decision first. ``id`` may be its ref."""
        entries = list(self._entries("WHERE id = ? AND id <> '' ORDER BY seq", id))  # so that by_id is used
        if not entries:
            row = self._connection.execute("SELECT id FROM journal WHERE ref = ?", (id,)).fetchone()
            return [] if row is None else self.entries_of(row[0])
        kinds = [entry.kind for entry in entries]
        if kinds[0] not in (DECIDE, SHOWN) or len(set(kinds)) < len(kinds):
            raise self.unreadable(entries[0], f"{kinds} of one id; the first must be it")
        return entries

    def open_audits(self, limit: int, offset: int) -> tuple[int, list[JournalEntry]]:
        """Return how many audited answers wait for feedback that counts, and some, oldest first."""
        (total,) = self._connection.execute(f"SELECT count(*) FROM journal WHERE {_OPEN_AUDIT}").fetchone()
        return total, list(self._entries(f"WHERE {_OPEN_AUDIT} ORDER BY seq LIMIT ? OFFSET ?", limit, offset))

    def check_judged(self, key: str) -> None:
        """Raise BadInput if audited answers of a key have no verdict, since after another start they get none."""
        of_key = f"SELECT count(*) FROM journal WHERE {_OPEN_AUDIT} AND kind = ? AND key = ?"
        if count := self._connection.execute(of_key, (DECIDE, key)).fetchone()[0]:
            command = as_typed("audits", str(self.path))
            raise BadInput(
                f"abandon_audits: missing; audited answers of key {quote(key)} without a verdict: {count}; they "
                f"could get none later, and would count as wrong for ever; judge them first: {command} lists them, "
                "and says how"
            )

    def note(self, name: str, value: str) -> None:
        """Store a value in ``meta`` under a name."""
        self.begin_transaction()
        self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))
        self.commit()

    def noted(self, name: str) -> str | None:
        """Return the value in ``meta`` under a name, or None."""
        row = self._connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return row and str(row[0])

    def check_writable(self) -> None:
        """Raise OSError or an error of SQLite if the file cannot take some new pages.

        A change of a page that the file already has would succeed on a full disk.
        """
        self.begin_transaction()
        self._connection.execute("INSERT INTO meta VALUES ('room', zeroblob(65536))")
        self._connection.execute("DELETE FROM meta WHERE name = 'room'")
        self.commit()

    def sums(self, key: str | None = None) -> JournalSums:
        """Return the sums over the answers that a key showed in shadow mode; or over all that were decided on.

        The first call reads all entries, later calls the newer ones. There must be no transaction.
        """
        sums, latest = self._sums.get(key, JournalSums()), self.last_seq()
        if latest > sums.seq:
            condition = _DECIDED_ENTRIES if key is None else _SHADOW_ENTRIES
            values = {"since": sums.seq, "key": key}
            added = self._connection.execute(_SUMS.format(condition), values).fetchone()
            added = [value or 0 for value in added]  # the sum of no numbers is None
            sums = JournalSums(latest, *map(operator.add, sums[1:], added))
            if sums.answers or key is None:  # clients may ask for any number of keys that do not exist
                self._sums[key] = sums
        return sums


@contextmanager
def read_journal(path: str | Path) -> Iterator[Journal]:
    """Yield a journal that another process may have open, after all of it was checked.

    Raise BadInput if the file is missing, not a journal, has another version, or has content that cannot be used.
    """
    with explain_file_errors(Path(path)), closing(Journal(Path(path))) as journal:
        yield journal
