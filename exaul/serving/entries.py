"""The entries of a journal: their kinds, and what each kind has."""

import hashlib
from typing import Literal, NamedTuple

START, DECIDE, FEEDBACK, WITHDRAW, SNAPSHOT = "start", "decide", "feedback", "withdraw", "snapshot"
SHOWN = "shown"  # an answer in shadow mode, on which no learner decided
VERDICT = "verdict"  # feedback that no learner learns from: on an answer in shadow mode, or a withheld one

# what feedback or a withdrawal was; ``docs/online.md`` says what each means
Outcome = Literal["counted", "repeated", "late", "withdrawn", "withheld", "unaudited", "unknown", "shadow"]


class JournalEntry(NamedTuple):
    """One entry of the journal. Fields that do not apply to its kind are None."""

    seq: int
    at: float  # seconds since 1970
    key: str
    kind: str  # start, decide, feedback, withdraw, snapshot, shown or verdict
    id: str = ""  # of the decision; empty for a start or a snapshot
    ref: str | None = None  # another name of the answer, from the caller
    score: float | None = None
    probability: float | None = None
    answered: int | None = None
    audit: int | None = None
    error: float | None = None
    data: str | None = None  # JSON: of a start {"alpha", "start"}, of a snapshot ``Abstainer.summary``


def digest_of(*parts: str) -> str:
    """Return a digest, which finds accidents and edits by hand."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(f"{len(part)} {part}".encode())
    return digest.hexdigest()
