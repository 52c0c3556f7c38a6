"""A folder of results: tables and figures, all of them or nothing."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from exaul.engine.checks import BadInput
from exaul.engine.data import tables


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
    drawn: Mapping[str, Any],
) -> None:
    """Write tables and figures, by name, all of them or nothing."""
    with filling(folder) as partial:
        fill(partial, tabled, drawn)


def fill(folder: Path, tabled: Mapping[str, tables.Table], drawn: Mapping[str, Any]) -> None:
    """Write tables and figures, by name, into a folder that exists."""
    from exaul.engine.results import figures  # only where something is drawn: it imports matplotlib

    for name, table in tabled.items():
        tables.save(table, folder / f"{name}.csv")
    for name, figure in drawn.items():
        figures.save(figure, folder / name)
