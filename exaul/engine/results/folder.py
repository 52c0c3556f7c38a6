"""A folder of results: tables and figures, all of them or nothing."""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from exaul.engine.checks import BadInput
from exaul.engine.data import tables


class Busy(BadInput):
    """A folder that another process has locked."""


PARTIAL = ".exaul-"  # begins the name of what is not yet in its place
LAST = "manifest.json"  # moves there last: where it is, all else is


def beside(place: Path) -> Path:
    """Where a file or folder is made before it moves to its place, in one step."""
    return place.with_name(PARTIAL + place.name)


def claim(out: str) -> Path:
    """The folder that results may go to, behind all links: absent or empty, in a place that can be written.

    Raises:
        BadInput: it is in use, is a file, or cannot be made.
    """
    try:
        folder = Path(out).resolve()
        there = sorted(folder.iterdir()) if folder.is_dir() else folder.exists()
    except (OSError, RuntimeError) as error:  # a name that is too long; links in a circle
        raise BadInput(f"out: {out} cannot be used ({getattr(error, 'strerror', None) or error})") from error
    if there:
        what = "in use" if folder.is_dir() else "a file"
        raise BadInput(f"out: {out} is {what}; a folder that is absent or empty is needed")
    nearest = next(p for p in (folder, *folder.parents) if p.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise BadInput(f"out: {out} cannot be written; {nearest} is not a folder that can be")
    return folder


@contextmanager
def explaining(folder: Path, advice: str = "") -> Iterator[None]:
    """Turn what the system says of a folder that cannot be written into one sentence, with some advice.

    Raises:
        BadInput: it cannot be written.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadInput(f"out: {folder} cannot be written ({reason}){advice}") from error


def lock(folder: Path) -> int:
    """The operating system's lock on a folder, until its handle is closed or the process ends.

    Raises:
        Busy: another process has it.
        BadInput: the folder cannot be written.
    """
    with explaining(folder):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            raise Busy(f"out: {folder} is in use by another process") from None
        raise BadInput(f"out: {folder} cannot be locked ({error.strerror})") from None
    return handle


@contextmanager
def made(folder: Path) -> Iterator[None]:
    """Make a folder, and those above it; on any end but a good one those that were made go again if empty."""
    absent = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for path in absent:
            with suppress(OSError):
                path.rmdir()
        raise


@contextmanager
def filling(folder: Path, advice: str = "") -> Iterator[Path]:
    """A hidden folder within a folder, to be filled; at the end all of it moves up, or nothing is left."""
    partial = beside(folder / "results")
    moved: list[Path] = []
    with explaining(folder, advice), made(folder):
        try:
            _remove(partial)  # left by a process that was killed
            partial.mkdir()
            yield partial
            for path in sorted(partial.iterdir(), key=lambda path: path.name == LAST):
                moved.append(path.replace(folder / path.name))
            partial.rmdir()
        except BaseException:
            for path in (partial, *moved):
                _remove(path)
            raise


def _remove(path: Path) -> None:
    """Remove a file or a folder, if it is there and can be removed."""
    with suppress(OSError):
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def write_beside(place: Path, save: Callable[[Path], object]) -> None:
    """Write a file, and move it to its place: a reader sees the whole file or what was there before."""
    partial = beside(place)
    try:
        place.parent.mkdir(exist_ok=True)
        save(partial)
        partial.replace(place)
    except BaseException:
        _remove(partial)
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
