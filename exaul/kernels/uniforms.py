"""A counter-based generator of uniforms: a uniform depends on seed, trial and round only, never on history.

It is Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). NumPy, JAX
and Numba run the same source and draw the same bits.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Streams of uniforms: decisions, records (orders, choice of pools), adaptive environments, whether feedback comes
# (in an ``Abstainer``, which answers are audited), and when.
LEARNER_STREAM, RECORDS_STREAM, ENVIRONMENT_STREAM, FEEDBACK_STREAM, DELAYS_STREAM = range(5)

Function = Callable[..., Any]


class Draws(NamedTuple):
    """A learner's uniforms in [0, 1), one array per stream; or their keys, two uint32 arrays per stream."""

    decision: Any  # of the stream ``LEARNER_STREAM``
    feedback: Any = None  # of ``FEEDBACK_STREAM``; None if feedback is perfect
    delay: Any = None  # of ``DELAYS_STREAM``, likewise


def compile_uniforms(compiled: Function, word: Function, real: Function) -> tuple[Function, Function]:
    """Build the functions of the generator for arrays or for Numba, with the same bits.

    ``compiled`` decorates a function, the identity for arrays; ``word(x)`` casts x to uint32, ``real(x)`` to
    float64.

    Returns:
        Two functions; a key and a counter are two uint32 each. ``threefry(key, counter)`` encrypts a counter under
        a key, to two uint32 of the broadcast shape. ``uniform(key, block, number)`` returns a uniform in [0, 1)
        with 53 bits: the counter is (number of the block, number of the round within this block of 256).
    """
    # Numba widens uint32 to 64 bits in every operation, so each result is cast back with ``word``.

    @compiled
    def mix(pair: Any, rotation: int) -> Any:
        x, y = pair
        x = word(x + y)
        # rotate y to the left, then xor: one round of Threefry
        return x, word(word(word(y << word(rotation)) | (y >> word(32 - rotation))) ^ x)

    @compiled
    def mix_even(pair: Any) -> Any:
        return mix(mix(mix(mix(pair, 13), 15), 26), 6)

    @compiled
    def mix_odd(pair: Any) -> Any:
        return mix(mix(mix(mix(pair, 17), 29), 16), 24)

    @compiled
    def add_key(pair: Any, first: Any, second: Any, number: int) -> Any:
        return word(pair[0] + first), word(pair[1] + word(second + word(number)))

    # 20 rounds: four rounds of ``mix_even`` or ``mix_odd`` in turn, and a key injection after each four.
    @compiled
    def threefry(key: Any, counter: Any) -> Any:
        a, b = key
        c = word(word(a ^ b) ^ word(0x1BD11BDA))  # the third key word; the constant is that of Skein, for 32 bits
        pair = add_key(mix_even(add_key(counter, a, b, 0)), b, c, 1)
        pair = add_key(mix_even(add_key(mix_odd(pair), c, a, 2)), a, b, 3)
        return add_key(mix_even(add_key(mix_odd(pair), b, c, 4)), c, a, 5)

    @compiled
    def uniform(key: Any, block: Any, number: Any) -> Any:
        x, y = threefry(key, (block, number))
        # 27 bits of x and 26 of y make a 53-bit integer, so every result is an exact float64 below 1.
        return (real(x >> word(5)) * 67108864.0 + real(y >> word(6))) * 2.0**-53

    return threefry, uniform


def _word(x: Any) -> Any:
    return x if hasattr(x, "dtype") else np.uint32(x)


# For arrays of NumPy or of JAX. ``uniform(key, block, number)`` are uniforms in [0, 1) of rounds of a block; a key
# is two uint32 arrays, as from ``trial_keys``; all arrays broadcast.
threefry, uniform = compile_uniforms(lambda function: function, _word, lambda x: x.astype(np.float64))


# a number that no trial has (trials are below 2**31), for draws that all trials share
NO_TRIAL = np.array([2**32 - 1])


def trial_keys(seed: int, stream: ArrayLike, trials: NDArray[np.integer]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Derive the key of each trial, two uint32 arrays [B]: (stream, trial), encrypted by Threefry under the seed.

    Args:
        seed: in 0..2**64-1.
        stream: ``LEARNER_STREAM`` or another of the streams above, [] or [B].
        trials: [B] trial numbers, from 0.
    """
    words = np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32)
    number = np.asarray(trials, np.uint32)
    return threefry((words[:1], words[1:]), (np.full_like(number, stream), number))


def draw_keys(seed: int, trials: NDArray[np.integer], is_imperfect: bool) -> Draws:
    """Derive the keys of learners' draws for trials [U]; feedback and delay get keys only if ``is_imperfect``."""
    streams = (LEARNER_STREAM, FEEDBACK_STREAM, DELAYS_STREAM) if is_imperfect else (LEARNER_STREAM,)
    return Draws(*(trial_keys(seed, stream, trials) for stream in streams))
