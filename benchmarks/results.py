"""Rows of a benchmark: their table, the file with device, versions, commit and date, and the page."""

import os
import platform
import re
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from exaul.engine.manifest import save_json, versions

Row = dict[str, Any]  # what was measured, by column
FOLDER = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "speed.md"  # with a table of each benchmark, between comments


def table(rows: Sequence[Row]) -> str:
    """Return a Markdown table with the columns that any row has. The backends of a case share a line."""
    lines = list[Row]()
    for row in rows:
        if "order" in row:
            ratio = f" ({row['over dense']:.3g})" if "over dense" in row else ""
            case = {name: row[name] for name in ("learner", "order", "copies")}
            line = lines.pop() if lines and lines[-1].items() >= case.items() else case
            row = line | {row["backend"]: _text(row["value"]) + ratio}
        lines.append(row)
    names = list(dict.fromkeys(name for line in lines for name in line))
    texts = [[_text(line.get(name)) for name in names] for line in lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [names, ["---"] * len(names), *texts])


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    return f"{cell:.3g}" if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else str(cell)


def stamp() -> Row:
    """Return device, processor, versions, commit and date."""
    import jax  # not before the process that measures sets its platform

    device, info = jax.devices()[0], Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    cpu = model[1].strip() if model else platform.processor()
    commit = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    return {
        "device": f"{device.platform}: {device.device_kind}",
        "chip": cpu if device.platform == "cpu" else device.device_kind,
        "cpu": cpu,
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "versions": versions(),
        "commit": subprocess.run(commit, cwd=FOLDER.parent, capture_output=True, text=True).stdout.strip(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def save(name: str, rows: Sequence[Row]) -> Path:
    """Write rows, stamped, in the place of earlier ones; and their table to the page."""
    stamped = stamp()
    slug = re.sub(r"[^a-z0-9]+", "-", stamped["chip"].lower()).strip("-")
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}-{slug}-{stamped['date'][:10]}.json"
    for earlier in FOLDER.glob(f"{name}-*"):
        earlier.unlink()
    save_json({**stamped, "rows": rows}, path)
    origin = f"{stamped['chip']}, {stamped['cpus']} CPUs, {stamped['date'][:10]}, commit {stamped['commit'][:12]}"
    text = f"Measured on {origin}; all rows: `benchmarks/results/{path.name}`\n\n{table(rows)}"
    begin, end = f"<!-- begin {name} -->\n", f"\n<!-- end {name} -->"
    head, _, tail = PAGE.read_text(encoding="utf-8").partition(begin)
    PAGE.write_text(f"{head}{begin}{text}{end}{tail.partition(end)[2]}", encoding="utf-8")
    return path
