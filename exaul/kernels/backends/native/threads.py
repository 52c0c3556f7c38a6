"""The threads that simulate copies, and their workspaces."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from exaul.kernels.game import ROUNDS, Outcome

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


def run_in_parts(copies: int, each: int, part: Callable[[int, int], object]) -> list[Future[Any]]:
    """Start to simulate B copies, at most ``each`` at a time, and return a future for each part.

    ``part(first, last)`` simulates the copies first..last-1.
    """
    return [pool().submit(part, first, min(first + each, copies)) for first in range(0, copies, each)]


class OutcomeColumns(NamedTuple):
    """Where a loop writes the outcomes of its copies: round i to row ``i % rows``."""

    first: int  # the column of the loop's first copy
    answered: Any  # [K C, B] bool; [C, L] if only the sums are wanted
    probability: Any  # [K C, B] float64; [1, L] if only the sums are wanted


class DrawColumns(NamedTuple):
    """``OutcomeColumns`` of a rule that draws an arm."""

    first: int
    answered: Any
    probability: Any
    middle: Any  # like ``probability``


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


def run_copies(
    loop: Callable[..., Any],
    count: int,
    each: int,
    arguments: tuple[Any, ...],
    outcome: Outcome | None,
    kinds: int = 1,
    workspace: tuple[Any, ...] = (),
) -> list[Future[Any]]:
    """Start to simulate B copies with a compiled loop, and return a future for each part.

    Args:
        loop: ``loop(first, last, *arguments, out)`` simulates the copies first..last-1; ``out`` is from
            ``outcome_arrays``. If there is a workspace, it is one more argument.
        count: B.
        each: the largest number of copies of a part.
        arguments: the same for all parts. Uniforms among them must be drawn already: a thread of the pool that drew
            them would wait for the pool, and so for itself.
        outcome: as of ``outcome_arrays``.
        kinds: as of ``outcome_arrays``.
        workspace: arguments of ``scratch``, which each thread calls; empty if the loop needs no workspace.
    """

    def run_part(first: int, last: int) -> None:
        out = outcome_arrays(outcome, first, each, kinds)
        loop(first, last, *arguments, out, *((scratch(*workspace),) if workspace else ()))

    return run_in_parts(count, each, run_part)


def _outcome_block(lanes: int, kinds: int) -> tuple[Any, ...]:
    """Allocate the answers of one block, and one row, which is never read, for each other part of an outcome."""
    return np.empty((ROUNDS, lanes), np.bool_), *(np.empty((1, lanes)) for _ in range(kinds))


def outcome_arrays(outcome: Outcome | None, first: int, lanes: int, kinds: int) -> tuple[Any, ...]:
    """Return where a loop writes the outcomes of its copies.

    Args:
        outcome: arrays [K C, B], or None if only the sums are wanted.
        first: the loop's first copy.
        lanes: the largest number of copies of a loop.
        kinds: number of arrays of an outcome besides ``answered``: 2 with ``middle``, else 1.

    Returns:
        ``DrawColumns`` if there are two kinds, else ``OutcomeColumns``: those of ``outcome``, or arrays of this
        thread, of which all but ``answered`` are never read.
    """
    columns = DrawColumns if kinds == 2 else OutcomeColumns
    if outcome is None:
        return columns(0, *scratch(_outcome_block, lanes, kinds))
    return columns(first, *outcome[: kinds + 1])
