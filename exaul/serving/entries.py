"""The entries of a journal: their kinds, and what each kind has."""

import hashlib
from typing import Literal, NamedTuple

START, DECIDE, FEEDBACK, WITHDRAW, SNAPSHOT = "start", "decide", "feedback", "withdraw", "snapshot"
SHOWN = "shown"  # an answer in shadow mode, on which no learner decided
VERDICT = "verdict"  # feedback that no learner learns from: on an answer in shadow mode, or a withheld one

# what became of feedback or of a withdrawal
Outcome = Literal["counted", "repeated", "late", "withdrawn", "withheld", "unaudited", "unknown", "shadow"]


class JournalEntry(NamedTuple):
    """One entry of the journal. Fields that do not apply to its kind are None."""

    seq: int  # number of the entry in the file, from 1
    at: float  # when it was written, in seconds since 1970
    key: str  # key of the learner
    kind: str  # start, decide, feedback, withdraw, snapshot, shown or verdict
    id: str = ""  # id of the decision; empty for a start or a snapshot
    ref: str | None = None  # another name of the answer, from the caller
    score: float | None = None  # confidence in the answer, in [0, 1]
    probability: float | None = None  # probability of answering before the draw, in [0, 1]
    answered: int | None = None  # 1: the answer was shown; 0: it was withheld
    audit: int | None = None  # 1: the answer is audited; 0: it is not
    error: float | None = None  # what was reported, in [0, 1]; 1 is wrong
    data: str | None = None  # JSON: of a start {"alpha", "start"}, of a snapshot the state of the learner


def digest_of(*parts: str) -> str:
    """Return a digest, which finds accidents and edits by hand."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(f"{len(part)} {part}".encode())
    return digest.hexdigest()
