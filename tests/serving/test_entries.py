"""Which entries of a journal are valid: the fields of their kind, in their ranges."""

import pytest

from exaul.serving.entries import (
    DECIDE,
    FEEDBACK,
    SHOWN,
    SNAPSHOT,
    START,
    UNLEARNED,
    WITHDRAW,
    JournalEntry,
    is_valid,
)

FIELDS = {
    START: {"data": "{}"},
    SNAPSHOT: {"data": "{}"},
    DECIDE: {"id": "i", "score": 0.5, "probability": 0.5, "answered": 1, "audit": 0},
    SHOWN: {"id": "i", "score": 1.0, "audit": 1},
    FEEDBACK: {"id": "i", "error": 0.0},
    UNLEARNED: {"id": "i", "error": 1.0},
    WITHDRAW: {"id": "i"},
}
WRONG = {  # values that no kind has; an answer is not shown with probability 0
    "seq": (0, 2**62),
    "at": (None, 1),
    "key": (None, b"k"),
    "kind": ("guess", b"decide", None),
    "id": (None, b"i"),
    "ref": (1, b"r"),
    "score": (-0.1, 1.1, 1, "x"),
    "probability": (-0.1, 1.1, 0.0, 1),
    "answered": (-1, 2, 0.5),
    "audit": (-1, 2, 0.5),
    "error": (-0.1, 1.1, 1),
    "data": (1, b"{}"),
}


@pytest.mark.parametrize("kind", FIELDS)
def test_an_entry_has_the_fields_of_its_kind_in_their_ranges(kind):
    entry = JournalEntry(1, 1.0, "", kind, **FIELDS[kind])
    assert is_valid(entry)
    changes = [(name, value) for name, values in WRONG.items() for value in values]
    changes += [(name, None) for name in FIELDS[kind]]
    changes.append(("id", "" if entry.id else "i"))
    for name, value in changes:
        assert not is_valid(entry._replace(**{name: value})), (name, value)
    assert is_valid(entry._replace(ref="r")) == (kind in (DECIDE, SHOWN))
    assert kind != DECIDE or is_valid(entry._replace(answered=0, probability=0.0))
