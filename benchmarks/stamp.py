"""Files of results: rows stamped with device, versions, commit and date, and their figure."""

import os
import platform
import re
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
from matplotlib.figure import Figure

from exaul.engine import settings
from exaul.engine.manifest import versions
from exaul.engine.results import figures

RESULTS = Path(__file__).parent / "results"


def stamp() -> dict[str, Any]:
    """Return device, processor, versions, commit and date."""
    device, info = jax.devices()[0], Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    commit = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    return {
        "device": f"{device.platform}: {device.device_kind}",
        "cpu": model[1].strip() if model else platform.processor(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "versions": versions(),
        "commit": subprocess.run(commit, cwd=RESULTS.parent, capture_output=True, text=True).stdout.strip(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def nvidia() -> dict[str, Any]:
    """Return driver, clocks and power limit of NVIDIA devices, as far as known."""
    fields = "driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.limit"
    found: dict[str, Any] = {}
    with suppress(OSError, ValueError, subprocess.CalledProcessError):
        command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        found |= dict(zip(fields, lines[0].split(", "), strict=True)) if lines else {}
    return found


def path_of(name: str, stamped: dict[str, Any]) -> Path:
    """Return the path of a benchmark's results, by device and date; create its folder."""
    where = stamped["cpu"] if stamped["device"].startswith("cpu") else stamped["device"].split(": ")[1]
    slug = re.sub(r"[^a-z0-9]+", "-", where.lower()).strip("-")
    RESULTS.mkdir(exist_ok=True)
    return RESULTS / f"{name}-{slug}-{stamped['date'][:10]}.json"


def save(name: str, rows: list[dict[str, Any]], figure: Figure) -> Path:
    """Write rows, stamped, and their figure. Return the path."""
    stamped = stamp()
    path = path_of(name, stamped)
    settings.save_json({**stamped, "rows": rows}, path)
    figures.save(figure, path.with_suffix(""))
    return path
