"""Records: what a log or a profile gives to a sweep."""

import hashlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Records(NamedTuple):
    """Scored answers, from one log or profile."""

    name: str  # file stem plus selection, or profile; never a path
    scores: NDArray[np.float64]  # [N] in [0, 1]
    errors: NDArray[np.float64]  # [N] in [0, 1], 1 = wrong
    dropped: int  # rows left out for an empty score or label
    sha256: str | None  # of the file
    groups: NDArray[Any] | None = None  # [N], labels of the groups of questions, where a log has them

    def content(self) -> str:
        """A hash of all that is played, whatever its name."""
        digest = hashlib.sha256(self.scores.tobytes() + self.errors.tobytes())
        if self.groups is not None:
            digest.update(repr(self.groups.tolist()).encode())
        return digest.hexdigest()
