"""Oblivious environments: the records of a trial do not depend on the learner's decisions."""

from collections.abc import Callable
from typing import Any, NamedTuple

from exaul.kernels.game import Array


class Oblivious(NamedTuple):
    """A rule that chooses from which source the record of each round comes.

    ``choose_pool(where, t, horizon, u)`` returns the number of a source, from 0, and so its pool; t is the round,
    from 1 to the horizon, and u the uniform in [0, 1) of the round and trial. It is written with ``where`` and
    operators, so that it runs on arrays (JAX, NumPy) and on numbers (Numba).
    """

    pool_count: int  # number of logs or profiles, each a pool of records
    shuffled: bool  # each trial reads a pool in a random order, a new one per lap; else in its own order
    choose_pool: Callable[..., Any]  # ``choose_pool(where, t, horizon, u)``
    segments: int = 1  # number of segments of rounds that use one pool each; 1 if rounds mix pools


def segmented_pool(segments: int, shuffled: bool = True) -> Oblivious:
    """Alternate two pools over n segments: segment j, from 0, ends with round ``floor((j + 1) T / n)``.

    With one segment there is one pool. ``shuffled`` is as in ``Oblivious``.
    """

    def choose_pool(where: Callable[..., Any], t: Array, horizon: Array, u: Array) -> Array:
        segment = 0 * t  # a zero of the type and shape of t, for arrays and numbers
        for j in range(1, segments):
            segment = segment + where(t > j * horizon // segments, 1, 0)
        return segment % 2

    return Oblivious(min(segments, 2), shuffled, choose_pool, segments)


stochastic = segmented_pool(1)  # one pool in random order, without replacement until it is used up
single_shift = segmented_pool(2)  # half of the rounds from the first pool, then half from the second
alternating_shift = segmented_pool(10)  # ten equal segments, alternating between two pools
# the second pool with probability t / T, and the first otherwise
gradual_shift = Oblivious(2, shuffled=True, choose_pool=lambda where, t, horizon, u: where(u < t / horizon, 1, 0))
# a log in its own order, once; trials differ only in the learner's draws
replay = segmented_pool(1, shuffled=False)
