"""The entries of a journal: their kinds, and what each kind has."""

import hashlib
from types import NoneType
from typing import NamedTuple

START, DECIDE, FEEDBACK, WITHDRAW, SNAPSHOT = "start", "decide", "feedback", "withdraw", "snapshot"
SHOWN = "shown"  # an answer in shadow mode, on which no learner decided
UNLEARNED = "verdict"  # feedback that no learner learns from: on an answer in shadow mode, or a withheld one


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


_TYPES = {  # by kind: the types of score, probability, answered, audit, error and data
    **dict.fromkeys((START, SNAPSHOT), (NoneType, NoneType, NoneType, NoneType, NoneType, str)),
    DECIDE: (float, float, int, int, NoneType, NoneType),
    SHOWN: (float, NoneType, NoneType, int, NoneType, NoneType),
    **dict.fromkeys((FEEDBACK, UNLEARNED), (NoneType, NoneType, NoneType, NoneType, float, NoneType)),
    WITHDRAW: (NoneType, NoneType, NoneType, NoneType, NoneType, NoneType),
}


def is_valid(entry: JournalEntry) -> bool:
    """Return whether an entry has the fields of its kind, in their ranges."""
    seq, at, key, kind, id, ref, score, probability, answered, audit, error, data = entry
    types = type(score), type(probability), type(answered), type(audit), type(error), type(data)
    return (
        # numbers begin at 1, and after 2**63 - 1 SQLite would draw them at random
        0 < seq < 2**62
        and type(at) is float
        and type(key) is type(id) is str
        and types == _TYPES.get(kind)
        and (ref is None or (type(ref) is str and score is not None))
        and (id == "") == (data is not None)
        and all(number is None or 0 <= number <= 1 for number in (score, probability, answered, audit, error))
        and (probability != 0 or not answered)
    )


def digest_of(*parts: str) -> str:
    """Return a digest, which finds accidents and edits by hand."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(f"{len(part)} {part}".encode())
    return digest.hexdigest()
