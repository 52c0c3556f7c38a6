"""The machine: free memory, devices, and programs kept on disk.

JAX takes longer to import than a small sweep to run, so it is imported only where it is needed: compiled loops on a
CPU do without it.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from exaul.engine.checks import BadInput
from exaul.kernels.cache import cache_folder

CGROUPS, OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")  # Linux, see cgroups(7)
CGROUP_FILES = (  # limit, use, and the part of the use that is a cache which the kernel can drop
    ("memory.max", "memory.current", "inactive_file"),  # version 2
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),  # version 1
)


def host_memory() -> int:
    """Return the bytes that are free on the host or, if fewer, left to the container."""
    with open("/proc/meminfo") as lines:  # MemAvailable includes what the system can reclaim
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    return max(0, min([free, *(remaining for group in _groups() for remaining in _cgroup_free(group))]))


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
    for limit, used, droppable in CGROUP_FILES:
        with suppress(OSError, ValueError, KeyError):  # the other version, or no limit ("max")
            limit_bytes, used_bytes = int((group / limit).read_text()), int((group / used).read_text())
            stat = dict(line.split(" ", 1) for line in (group / "memory.stat").read_text().splitlines())
            yield limit_bytes - used_bytes + int(stat[droppable])


def resident_bytes() -> int:
    """Return the resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def show_bytes(count: float) -> str:
    """Format a number of bytes."""
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


USABLE_SHARE = 0.8  # share of the free memory that may be planned for (chosen)
# By default JAX reserves most of a device's memory at its start, which leaves little to other processes.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def is_one_cpu() -> bool:
    """Return True if it is certain, without importing JAX, that JAX would find one CPU and nothing else.

    Other platforms come with a plug-in, or are asked for by a variable; a variable can also divide the CPU.
    """
    if "jax" in sys.modules:  # the program may have configured it
        return False
    platforms = [os.environ.get(name, "") for name in ("JAX_PLATFORMS", "JAX_PLATFORM_NAME")]
    variables = ("JAX_NUM_CPU_DEVICES", "PJRT_NAMES_AND_LIBRARY_PATHS")
    if any(name in os.environ for name in variables) or "device_count" in os.environ.get("XLA_FLAGS", ""):
        return False
    if any(platforms):
        return set(platforms) <= {"", "cpu"}
    return not _has_plugins()


@cache
def _has_plugins() -> bool:
    """Return whether packages of other platforms are installed, as JAX looks for them."""
    return any(map(find_spec, ("jax_plugins", "libtpu"))) or bool(entry_points(group="jax_plugins"))


def platform() -> str:
    """Return the platform of JAX: ``cpu``, ``gpu`` or another; BadInput if JAX_PLATFORMS cannot be satisfied."""
    if is_one_cpu():
        return "cpu"
    import jax

    try:
        return jax.default_backend()
    except (RuntimeError, AssertionError) as error:  # AssertionError: the platform's plug-in is missing
        platforms = jax.config.values["jax_platforms"]
        reason = f" ({error})" if str(error) else ""
        raise BadInput(f"JAX_PLATFORMS: {platforms!r} found; JAX finds no such device here{reason}") from error


def device_memory() -> int:
    """Return the free bytes of a device, or those of the host if the device does not report its memory."""
    if is_one_cpu():
        return host_memory()
    import jax

    stats = jax.local_devices()[0].memory_stats() or {}
    return stats["bytes_limit"] - stats["bytes_in_use"] if "bytes_limit" in stats else host_memory()


SHORTEST_COMPILATION = 0.1  # seconds; programs that compile faster are not stored
MOST_MAPS = 20_000  # of the 65,530 memory maps that Linux allows a process; JAX takes some 30 for a function


def forget_programs() -> None:
    """Free JAX's compiled programs if they hold many memory maps: a process that needs more than its limit crashes.

    They are loaded again from the cache folder when they are needed.
    """
    with suppress(OSError), open("/proc/self/maps") as lines:
        if sum(1 for _ in lines) > MOST_MAPS:
            import jax

            jax.clear_caches()


def use_compilation_cache() -> None:
    """Let JAX store programs in the user's cache folder, unless a folder is configured or none can be made."""
    folder = cache_folder()
    if "jax" not in sys.modules:  # it reads these when it is imported, if ever
        if folder is not None and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
            os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder / "jax")
            os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = str(SHORTEST_COMPILATION)
        return
    import jax

    if jax.config.values["jax_compilation_cache_dir"] is None and folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", SHORTEST_COMPILATION)
