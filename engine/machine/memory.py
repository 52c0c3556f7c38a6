"""Memory that is free, and a sweep that can never fit it."""

import os

import jax

from exaul.engine.checks import BadInput
from exaul.engine.machine.devices import TILE
from exaul.engine.sweep import Sweep


def on_host() -> int:
    """Bytes that are free on the host."""
    try:
        with open("/proc/meminfo") as lines:  # what the system could free counts too
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def on_device() -> int:
    """Bytes that are free on each device: where it does not say, those of the host."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats["bytes_limit"] - stats["bytes_in_use"] if "bytes_limit" in stats else on_host()


def resident() -> int:
    """Bytes of this process now."""
    try:
        with open("/proc/self/statm") as line:
            return int(line.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def size(count: float) -> str:
    """Bytes as text."""
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def check(sweep: Sweep, horizon: int, cells: int, learners: int) -> None:
    """Refuse a sweep that cannot fit the host whatever the batches, before anything is allocated.

    Raises:
        BadInput: its tables and a tile of copies are larger than what is free.
    """
    marks = min(sweep.checkpoints, horizon)
    least = 8 * (TILE * sweep.arms + sweep.trials * (1 + 2 * cells * marks * learners))
    if least > on_host():
        raise BadInput(
            f"trials, arms, checkpoints: {sweep.trials}, {sweep.arms}, {sweep.checkpoints} found; they need "
            f"{size(least)} of memory at least, and {size(on_host())} is free"
        )
