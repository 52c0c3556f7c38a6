"""Environments that do not react: what a trial meets in a round depends on nothing that it did."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Oblivious(NamedTuple):
    """A rule that says from which pool of records each round comes.

    ``pool(where, t, horizon, u)`` is the number of a pool, from 0. It is written with ``where`` and operators, so
    that it plays on arrays and on numbers, inside compiled loops: t is the round, from 1 to the horizon, and u a
    uniform in [0, 1) that is drawn for each round and trial, for those that need one. Each trial plays each pool in
    its own shuffled order, another one whenever it is spent, or in the pool's own order if not ``shuffled``.
    ``parts`` is how many segments of one pool each the rounds fall into.
    """

    sources: int
    shuffled: bool
    pool: Callable[..., Any]
    parts: int = 1


def segmented_pool(parts: int, shuffled: bool = True) -> Oblivious:
    """Pools in turn over equal segments: segment j of n holds rounds floor(j T / n) + 1 to floor((j + 1) T / n)."""

    def pool(where: Callable[..., Any], t: Any, horizon: Any, u: Any) -> Any:
        segment = 0 * t
        for j in range(1, parts):
            segment = segment + where(t > j * horizon // parts, 1, 0)
        return segment % 2

    return Oblivious(min(parts, 2), shuffled, pool, parts)


def segment_ends(parts: int, horizon: int) -> NDArray[np.int64]:
    """The last round [parts] of each of some equal segments of T rounds."""
    return np.arange(1, parts + 1) * horizon // parts
