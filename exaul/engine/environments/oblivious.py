"""Oblivious environments: the records of a trial do not depend on the learner's decisions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Oblivious(NamedTuple):
    """A rule that chooses the pool of records for each round.

    ``pool(where, t, horizon, u)`` returns the number of a pool, from 0; t is the round, from 1 to the horizon, and
    u the uniform in [0, 1) of the round and trial. It is written with ``where`` and operators, so that it runs on
    arrays (JAX, NumPy) and on numbers (Numba).
    """

    sources: int  # number of pools
    shuffled: bool  # each trial reads a pool in a random order, a new one per pass; else in its own order
    pool: Callable[..., Any]
    parts: int = 1  # number of segments of rounds that use one pool each


def segmented_pool(parts: int, shuffled: bool = True) -> Oblivious:
    """Alternate two pools over n segments; segment j has the rounds floor(j T / n) + 1 to floor((j + 1) T / n)."""

    def pool(where: Callable[..., Any], t: Any, horizon: Any, u: Any) -> Any:
        segment = 0 * t  # a zero of the type and shape of t, for arrays and numbers
        for j in range(1, parts):
            segment = segment + where(t > j * horizon // parts, 1, 0)
        return segment % 2

    return Oblivious(min(parts, 2), shuffled, pool, parts)


def segment_ends(parts: int, horizon: int) -> NDArray[np.int64]:
    """Return the last round of each segment, [parts] int64."""
    return np.arange(1, parts + 1) * horizon // parts
