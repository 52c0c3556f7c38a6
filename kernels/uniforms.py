"""A counter-based generator of uniforms: the number of a round depends on seed, trial and round, never on history.

Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). It is
written with the operators that NumPy and JAX share, so both draw the same bits.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

LEARNER, RECORDS, ENVIRONMENT = 0, 1, 2  # streams: draws of learners, orders of records, draws of environments

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def threefry(key: tuple[Any, Any], counter: tuple[Any, Any]) -> tuple[Any, Any]:
    """Encrypt a counter under a key: Threefry-2x32-20.

    Args:
        key: two uint32 arrays, NumPy or JAX, of shapes that broadcast with the counter's.
        counter: two uint32 arrays.

    Returns:
        Two uint32 arrays of the broadcast shape; for counters that differ, they pass tests of independence.
    """
    words = (*key, key[0] ^ key[1] ^ _PARITY)
    x, y = counter[0] + words[0], counter[1] + words[1]
    for injection in range(1, 6):
        for r in _ROTATIONS[(injection - 1) % 2]:
            x = x + y
            y = (y << np.uint32(r)) | (y >> np.uint32(32 - r))
            y = y ^ x
        x = x + words[injection % 3]
        y = y + words[(injection + 1) % 3] + np.uint32(injection)
    return x, y


def trial_keys(seed: int, stream: int, trials: NDArray[np.integer]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Derive the key of each trial: (stream, trial), encrypted by Threefry under the seed.

    Args:
        seed: in 0..2**64-1.
        stream: ``LEARNER``, ``RECORDS`` or ``ENVIRONMENT``.
        trials: [B] trial numbers, from 0.

    Returns:
        Two uint32 arrays [B].
    """
    words = np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32)
    number = np.asarray(trials, np.uint32)
    return threefry((words[:1], words[1:]), (np.full_like(number, stream), number))


def uniforms(keys: tuple[Any, Any], block: Any, rounds: Any) -> Any:
    """Draw the uniforms of some rounds of one block, 53 bits each: Threefry encrypts (block, round) under the key.

    Args:
        keys: two uint32 arrays [B], from ``trial_keys``.
        block: [] uint32, the number of the block of 256 rounds.
        rounds: [C, 1] uint32, numbers of the rounds within the block.

    Returns:
        [C, B] float64 in [0, 1).
    """
    x, y = threefry(keys, (rounds * np.uint32(0) + block, rounds))
    high, low = (x >> np.uint32(5)).astype(np.float64), (y >> np.uint32(6)).astype(np.float64)
    return (high * 2.0**26 + low) * 2.0**-53
