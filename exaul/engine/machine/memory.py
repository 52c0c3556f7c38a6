"""Free memory of the machine, or of the container that this process runs in."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from exaul.engine.checks import BadInput

CGROUPS, OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")  # Linux, see cgroups(7)
LIMITS = (  # files of a control group: limit, use, and the part of the use that is a cache the kernel can drop
    ("memory.max", "memory.current", "inactive_file"),  # version 2
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),  # version 1
)


def host_memory() -> int:
    """Return the bytes that are free on the host or, if fewer, left to the container."""
    try:
        with open("/proc/meminfo") as lines:  # MemAvailable includes what the system can reclaim
            free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(0, min([free, *(left for group in _groups() for left in _cgroup_free(group))]))


def _groups() -> Iterator[Path]:
    """Yield the folders of the process's control groups and of their ancestors: each may set a limit."""
    try:
        lines = OWN_CGROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            root = CGROUPS / controllers
            group = root / path.lstrip("/")
            yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(root))


def _cgroup_free(group: Path) -> Iterator[int]:
    """Yield the bytes that a control group may still take, if it has a limit."""
    for limit, used, cache in LIMITS:
        with suppress(OSError, ValueError, KeyError):  # the other version, or no limit ("max")
            most, taken = int((group / limit).read_text()), int((group / used).read_text())
            stat = dict(line.split(" ", 1) for line in (group / "memory.stat").read_text().splitlines())
            yield most - taken + int(stat[cache])


def check_fits(fields: str, least: int) -> None:
    """Raise BadInput if fewer than ``least`` bytes are free; ``fields`` names those that need them."""
    if least > host_memory():
        raise BadInput(
            f"{fields}; they need at least {show_bytes(least)} of memory, and {show_bytes(host_memory())} is free"
        )


def resident_bytes() -> int:
    """Return the resident bytes of this process; 0 if unknown."""
    try:
        with open("/proc/self/statm") as line:
            return int(line.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def show_bytes(count: float) -> str:
    """Format a number of bytes."""
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
