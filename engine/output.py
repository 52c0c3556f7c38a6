"""The output folder of a sweep: tables, figures and the manifest, all of them or nothing."""

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from engine import figures, tables
from engine.errors import BadInput
from engine.sources import Records

if TYPE_CHECKING:
    from engine.sweep import Sweep


def claim(out: str) -> Path:
    """The folder that results may go to: absent or empty, in a place that can be written.

    Raises:
        BadInput: it is in use, is a file, or cannot be made.
    """
    folder = Path(out).absolute()
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"out: {out} is a file; a folder that is absent or empty is needed")
    if folder.is_dir() and any(folder.iterdir()):
        raise BadInput(f"out: {out} is in use; a folder that is absent or empty is needed")
    nearest = next(p for p in (folder, *folder.parents) if p.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise BadInput(f"out: {out} cannot be written; {nearest} is not a folder that can be")
    return folder


@contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """A folder to fill beside the one that is wanted; it moves there in one step, or nothing is left of it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield partial
        partial.chmod(0o755)
        partial.replace(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def write(
    folder: Path,
    tabled: Mapping[str, tables.Table],
    drawn: Mapping[str, figures.Figure],
    about: dict[str, Any] | None = None,
) -> None:
    """Write tables, figures and a manifest, by name, all of them or nothing."""
    with filling(folder) as partial:
        fill(partial, tabled, drawn)
        if about is not None:
            tables.save_json(about, partial / "manifest.json")


def fill(folder: Path, tabled: Mapping[str, tables.Table], drawn: Mapping[str, figures.Figure]) -> None:
    """Write tables and figures, by name, into a folder that is there."""
    for name, table in tabled.items():
        tables.save(table, folder / f"{name}.csv")
    for name, figure in drawn.items():
        figures.save(figure, folder / name)


def versions() -> dict[str, str]:
    """Of all that the bits of a result depend on."""
    packages = ("exaul", "jax", "jaxlib", "numba", "numpy")
    return {"python": platform.python_version()} | {p: metadata.version(p) for p in packages}


def device() -> str:
    """What JAX computes on."""
    one = jax.devices()[0]
    return f"{one.platform}: {one.device_kind}"


def described(records: Sequence[Records]) -> list[dict[str, Any]]:
    """What tells records from others, without a path."""
    return [{"name": r.name, "records": len(r.scores), "dropped": r.dropped, "sha256": r.sha256} for r in records]


def manifest(sweep: "Sweep", records: Sequence[Records], horizon: int, start: str) -> dict[str, Any]:
    """What it takes to run a sweep again: configuration, hashes of the logs, versions and device; not ended."""
    return {
        "configuration": asdict(sweep),
        "horizon": horizon,
        "records": described(records),
        "versions": versions(),
        "device": device(),
        "precision": sweep.precision,
        "seed": sweep.seed,
        "start": start,
        "end": None,
    }
