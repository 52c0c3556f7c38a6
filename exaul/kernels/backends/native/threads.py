"""The threads that play copies, and the arrays that each of them works in."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from exaul.kernels.game import ROUNDS, Outcome


def available() -> int:
    """Count the processors that this process may use, at most OMP_NUM_THREADS, which clusters give their workers.

    Returns:
        At least 1.
    """
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    told = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(here, int(told))) if told.isdecimal() else here


@cache
def pool() -> ThreadPoolExecutor:
    """Start the threads of this process when they are first needed: compiled loops release Python's lock.

    Returns:
        The same pool at every call.
    """
    return ThreadPoolExecutor(available())


def run_in_parts(copies: int, each: int, part: Callable[[int, int], object]) -> list[Future[Any]]:
    """Start to play copies, some at a time.

    Args:
        copies: B.
        each: how many copies a part has, at most.
        part: ``part(first, last)`` plays the copies first..last-1.

    Returns:
        A future for each part.
    """
    return [pool().submit(part, first, min(first + each, copies)) for first in range(0, copies, each)]


class _Scratch(threading.local):
    """Arrays of one thread that are allocated once and used by every call."""

    def __init__(self) -> None:
        self.arrays: dict[tuple[Any, ...], tuple[Any, ...]] = {}


_scratch = _Scratch()


def scratch(make: Callable[..., tuple[Any, ...]], *sizes: Any) -> tuple[Any, ...]:
    """Arrays of this thread to work in, with whatever an earlier call left in them.

    Args:
        make: ``make(*sizes)`` allocates them, once for each thread and sizes.
        sizes: numbers, and names of dtypes.

    Returns:
        What ``make`` returned, arrays of any shape.
    """
    if (make, *sizes) not in _scratch.arrays:
        _scratch.arrays[make, *sizes] = make(*sizes)
    return _scratch.arrays[make, *sizes]


def _outcome_block(lanes: int, kinds: int) -> tuple[Any, ...]:
    """Room for the answers of one block, and for one row of each other kind of outcome, which nobody reads."""
    return np.empty((ROUNDS, lanes), np.bool_), *(np.empty((1, lanes)) for _ in range(kinds))


def outcome_arrays(outcome: Outcome | None, first: int, lanes: int, kinds: int) -> tuple[Any, ...]:
    """Find where a loop writes the outcomes of its copies.

    Args:
        outcome: arrays [K C, B], or None where only the tally is wanted.
        first: the loop's first copy.
        lanes: the largest number of copies of a loop.
        kinds: how many arrays an outcome has beside ``answered``.

    Returns:
        The column of the first copy, then the arrays [K C, B]; or 0, then arrays of this thread, [C, L] for
        ``answered`` and [1, L] for the others. A loop writes round i to row ``i % rows``.
    """
    if outcome is None:
        return 0, *scratch(_outcome_block, lanes, kinds)
    return first, *outcome[: kinds + 1]
