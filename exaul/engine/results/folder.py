"""Write a folder of results: either all tables and figures, or nothing.

Files are built under names that begin with ``.exaul-``, in the same folder and so on the same file system, where a
rename is atomic.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from exaul.engine import settings
from exaul.engine.checks import BadInput
from exaul.engine.logs import files


class FolderLocked(BadInput):
    """Another process has locked the folder."""


PARTIAL = ".exaul-"  # prefix of a file or folder that is not complete
MANIFEST = "manifest.json"  # moved into place last: if it exists, so do the other files


def temporary_path(path: Path) -> Path:
    """Return the path where a file or folder is built before it is renamed to its final path."""
    return path.with_name(PARTIAL + path.name)


def check_output_folder(out: str) -> Path:
    """Return the path of an output folder, with links resolved. Raise BadInput unless it is empty and writable.

    What a killed process left under a temporary name does not count.
    """
    try:
        folder = Path(out).resolve()
        there = not _is_empty(folder) if folder.is_dir() else folder.exists()
    except (OSError, RuntimeError) as error:  # a name that is too long, or a cycle of links
        raise BadInput(f"out: {out} cannot be used ({getattr(error, 'strerror', None) or error})") from error
    if there:
        what = "in use" if folder.is_dir() else "a file"
        raise BadInput(f"out: {out} is {what}; it must be an absent or empty folder")
    # permissions are checked now, so that a sweep of hours does not fail at its end
    nearest = next(p for p in (folder, *folder.parents) if p.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise BadInput(f"out: {out} cannot be written; {nearest} must be a writable folder")
    return folder


def _is_empty(folder: Path) -> bool:
    return all(path.name.startswith(PARTIAL) for path in folder.iterdir())


@contextmanager
def explain_errors(folder: Path, advice: str = "") -> Iterator[None]:
    """Turn an OSError into BadInput: a sentence that names the folder and ends with ``advice``."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadInput(f"out: {folder} cannot be written ({reason}){advice}") from error


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold the operating system's lock on a folder; it ends with the process. Raise FolderLocked if it is held."""
    with explain_errors(folder):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        # the lock is on the folder itself: a lock file would remain after a crash
        handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderLocked(f"out: {folder} is in use by another process") from None
        except OSError as error:
            raise BadInput(f"out: {folder} cannot be locked ({error.strerror})") from None
        yield
    finally:
        os.close(handle)


@contextmanager
def create_folder(folder: Path) -> Iterator[None]:
    """Create a folder and its parents. If the body raises, remove the new ones that are empty."""
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
def fill_new(out: str) -> Iterator[Path]:
    """Lock a new folder and fill it, as ``fill_atomically`` does. Raise BadInput if it is in use."""
    folder = check_output_folder(out)
    with explain_errors(folder), create_folder(folder), lock(folder):
        check_output_folder(out)  # again under the lock: another process may have filled the folder in between
        with fill_atomically(folder) as partial:
            yield partial


@contextmanager
def fill_atomically(folder: Path, advice: str = "") -> Iterator[Path]:
    """Yield a hidden subfolder, whose files are moved into the folder at the end, or removed if the body raises.

    The folder must be locked, because what another process left in it is removed.
    """
    partial = temporary_path(folder / "results")
    moved: list[Path] = []
    with explain_errors(folder, advice), create_folder(folder):
        try:
            _remove(partial)  # left by a process that was killed
            partial.mkdir()
            yield partial
            # the manifest moves last
            for path in sorted(partial.iterdir(), key=lambda path: path.name == MANIFEST):
                moved.append(path.replace(folder / path.name))
            partial.rmdir()
        except BaseException:
            for path in (partial, *moved):
                _remove(path)
            raise


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def write_beside(path: Path, save: Callable[[Path], object]) -> None:
    """Write a file under a temporary name and rename it, so that a reader never sees half of it."""
    partial = temporary_path(path)
    try:
        path.parent.mkdir(exist_ok=True)
        save(partial)
        partial.replace(path)
    except BaseException:
        _remove(partial)
        raise


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest of a folder."""
    write_beside(folder / MANIFEST, lambda path: settings.save_json(manifest, path))


def write(out: str, tabled: Mapping[str, files.Table], drawn: Mapping[str, Any]) -> None:
    """Write tables and figures by name to a new folder: either all of them, or nothing."""
    with fill_new(out) as partial:
        write_files(partial, tabled, drawn)


def write_files(folder: Path, tabled: Mapping[str, files.Table], drawn: Mapping[str, Any]) -> None:
    """Write tables and figures by name into an existing folder."""
    from exaul.engine.results import figures  # imports matplotlib

    for name, table in tabled.items():
        files.save(table, folder / f"{name}.csv")
    for name, figure in drawn.items():
        figures.save(figure, folder / name)
