"""Records: the scored answers of a log or a profile, the input of a sweep."""

import hashlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Records(NamedTuple):
    """The scored answers of one log or profile."""

    name: str  # file name without ending, and selection; or profile; never a path
    scores: NDArray[np.float64]  # [N] in [0, 1]
    errors: NDArray[np.float64]  # [N] in [0, 1], 1 = wrong
    dropped: int  # rows left out for an empty score or label
    sha256: str | None  # of the file; None for a profile
    groups: NDArray[Any] | None = None  # [N] group of each question, or None

    def take(self, rows: NDArray[Any]) -> "Records":
        """Return the records of some rows, by number or as a mask [N]."""
        groups = None if self.groups is None else self.groups[rows]
        return self._replace(scores=self.scores[rows], errors=self.errors[rows], groups=groups)

    def content(self) -> str:
        """Return a hash of scores, errors and groups. The name does not enter."""
        digest = hashlib.sha256(self.scores.tobytes() + self.errors.tobytes())
        if self.groups is not None:
            digest.update(repr(self.groups.tolist()).encode())
        return digest.hexdigest()
