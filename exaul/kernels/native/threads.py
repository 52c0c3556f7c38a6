"""The threads that simulate copies, and their workspaces."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

Arrays = TypeVar("Arrays", bound=tuple[Any, ...])


def available() -> int:
    """Return the number of usable processors, at most OMP_NUM_THREADS, which clusters set; at least 1."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(here, int(limit))) if limit.isdecimal() else here


@cache
def pool() -> ThreadPoolExecutor:
    """Return the threads of this process, started at the first call: compiled loops release Python's lock."""
    return ThreadPoolExecutor(available())


def run_in_parts(count: int, each: int, part: Callable[[int, int], object]) -> None:
    """Call ``part(first, last)`` on threads for parts of at most ``each`` of ``count``: those first..last-1."""
    list(pool().map(lambda first: part(first, min(first + each, count)), range(0, count, each)))


class _Scratch(threading.local):
    """Arrays of one thread that are allocated once and used by every call."""

    def __init__(self) -> None:
        self.arrays: dict[tuple[Any, ...], Any] = {}


_scratch = _Scratch()


def scratch(make: Callable[..., Arrays], *sizes: Any) -> Arrays:
    """Return workspace arrays of this thread, with whatever an earlier call left in them.

    Args:
        make: ``make(*sizes)`` allocates them, once for each thread and sizes.
        sizes: numbers, and names of dtypes.
    """
    if (make, *sizes) not in _scratch.arrays:
        _scratch.arrays[make, *sizes] = make(*sizes)
    found: Arrays = _scratch.arrays[make, *sizes]
    return found
