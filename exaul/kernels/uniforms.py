"""A counter-based generator of uniforms: the number of a round depends on seed, trial and round, never on history.

Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). One
source serves NumPy, JAX and Numba, which draw the same bits.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

# streams: draws of learners, orders of records, draws of environments, whether an answer gets its feedback, and
# when
LEARNER, RECORDS, ENVIRONMENT, FEEDBACK, DELAYS = range(5)

Function = Callable[..., Any]


class Draws(NamedTuple):
    """What is drawn in a round, an array for each stream: uniforms, or their keys (two uint32 arrays)."""

    decision: Any  # of the stream ``LEARNER``
    feedback: Any = None  # of ``FEEDBACK``; None where feedback is perfect
    delay: Any = None  # of ``DELAYS``, likewise


class Generator(NamedTuple):
    """The functions of the generator, of arrays or of numbers; a key and a counter are two uint32.

    Attributes:
        threefry: ``threefry(key, counter)`` encrypts a counter under a key, to two uint32 of the broadcast shape.
        uniform: ``uniform(key, block, number)`` is the uniform in [0, 1), of 53 bits, of a round of a block of 256:
            Threefry encrypts (block, number of the round) under the key.
    """

    threefry: Function
    uniform: Function


def compile_for(compiled: Function, word: Function, real: Function) -> Generator:
    """Write the functions for arrays or for Numba, from one source and with the same bits.

    Args:
        compiled: makes each function ready to be called by others: a decorator of Numba, or nothing for arrays.
        word: ``word(x)`` is x as a uint32.
        real: ``real(x)`` is x as a float64.

    Returns:
        The functions.
    """

    @compiled
    def mixed(pair: Any, rotation: int) -> Any:
        x, y = pair
        x = word(x + y)
        return x, word(word(word(y << word(rotation)) | (y >> word(32 - rotation))) ^ x)

    @compiled
    def even(pair: Any) -> Any:
        return mixed(mixed(mixed(mixed(pair, 13), 15), 26), 6)

    @compiled
    def odd(pair: Any) -> Any:
        return mixed(mixed(mixed(mixed(pair, 17), 29), 16), 24)

    @compiled
    def added(pair: Any, first: Any, second: Any, number: int) -> Any:
        return word(pair[0] + first), word(pair[1] + word(second + word(number)))

    @compiled
    def threefry(key: Any, counter: Any) -> Any:
        a, b = key
        c = word(word(a ^ b) ^ word(0x1BD11BDA))
        pair = added(even(added(counter, a, b, 0)), b, c, 1)
        pair = added(even(added(odd(pair), c, a, 2)), a, b, 3)
        return added(even(added(odd(pair), b, c, 4)), c, a, 5)

    @compiled
    def uniform(key: Any, block: Any, number: Any) -> Any:
        x, y = threefry(key, (block, number))
        return (real(x >> word(5)) * 67108864.0 + real(y >> word(6))) * 2.0**-53

    return Generator(threefry, uniform)


def _word(x: Any) -> Any:
    """Arrays of uint32 as they are, numbers as uint32."""
    return x if hasattr(x, "dtype") else np.uint32(x)


threefry, uniform = compile_for(  # for arrays of NumPy or of JAX
    lambda function: function, _word, lambda x: x.astype(np.float64)
)


def trial_keys(seed: int, stream: ArrayLike, trials: NDArray[np.integer]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Derive the key of each trial: (stream, trial), encrypted by Threefry under the seed.

    Args:
        seed: in 0..2**64-1.
        stream: ``LEARNER``, ``RECORDS``, ``ENVIRONMENT``, ``FEEDBACK`` or ``DELAYS``, [] or [B].
        trials: [B] trial numbers, from 0.

    Returns:
        Two uint32 arrays [B].
    """
    words = np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32)
    number = np.asarray(trials, np.uint32)
    return threefry((words[:1], words[1:]), (np.full_like(number, stream), number))


def draw_keys(seed: int, trials: NDArray[np.integer], imperfect: bool) -> Draws:
    """Derive the keys of what learners draw.

    Args:
        seed: in 0..2**64-1.
        trials: [U] trial numbers, from 0.
        imperfect: whether feedback is.

    Returns:
        Keys of two uint32 arrays [U] each.
    """
    streams = (LEARNER, FEEDBACK, DELAYS) if imperfect else (LEARNER,)
    return Draws(*(trial_keys(seed, stream, trials) for stream in streams))


def draws(keys: Draws, block: Any, rounds: Any) -> Draws:
    """Draw the uniforms of some rounds of one block, as ``uniforms``, from each stream that has keys."""
    return Draws(*(None if key is None else uniforms(key, block, rounds) for key in keys))


def uniforms(keys: tuple[Any, Any], block: Any, rounds: Any) -> Any:
    """Draw the uniforms of some rounds of one block.

    Args:
        keys: two uint32 arrays [B], from ``trial_keys``.
        block: uint32, the number of the block of 256 rounds.
        rounds: [C, 1] uint32, numbers of the rounds within the block.

    Returns:
        [C, B] float64 in [0, 1).
    """
    return uniform(keys, rounds * np.uint32(0) + block, rounds)
