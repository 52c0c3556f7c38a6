"""The files of results: rows stamped with device, versions, commit and date, and their figure."""

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
from matplotlib.figure import Figure

from exaul.engine.data import settings
from exaul.engine.results import figures

RESULTS = Path(__file__).parent / "results"


def stamp() -> dict[str, Any]:
    """Where and when it was measured, and with what."""
    device, info = jax.devices()[0], Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    commit = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    packages = ("jax", "jaxlib", "numpy", "numba")
    return {
        "device": f"{device.platform}: {device.device_kind}",
        "cpu": model[1].strip() if model else platform.processor(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "versions": {"python": platform.python_version()} | {name: metadata.version(name) for name in packages},
        "commit": subprocess.run(commit, cwd=RESULTS.parent, capture_output=True, text=True).stdout.strip(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def save(name: str, rows: list[dict[str, Any]], figure: Figure) -> Path:
    """Write rows, stamped, and their figure, named by device and date."""
    about = stamp()
    where = about["cpu"] if about["device"].startswith("cpu") else about["device"].split(": ")[1]
    slug = re.sub(r"[^a-z0-9]+", "-", where.lower()).strip("-")
    path = RESULTS / f"{name}-{slug}-{about['date'][:10]}.json"
    RESULTS.mkdir(exist_ok=True)
    settings.save_json({**about, "rows": rows}, path)
    figures.save(figure, path.with_suffix(""))
    return path
