"""The folder of a sweep while it is played: configuration, state and a lock, so that any end can be resumed.

    manifest.json   what is played, from the first moment; ``end`` is empty until all is written
    state/          a file of figures for each unit (some trials of some learners) that is finished, and one of the
                    unit that is being played, as of the last save
    curves.csv      as of the last save

Every file is written beside its place and moved there, so that none is ever half there. The lock is the operating
system's, on the folder: it ends with the process.
"""

import fcntl
import os
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np

from engine import hosts, output, tables
from engine.errors import BadInput

NOW = "now"  # the unit that is being played
Arrays = dict[str, np.ndarray]


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder of results.

    Raises:
        BadInput: there is none, or it cannot be read.
    """
    found = tables.load_json(folder / "manifest.json")
    kinds = {"configuration": dict, "start": str, "batch": int}
    if not isinstance(found, dict) or not all(isinstance(found.get(key), kind) for key, kind in kinds.items()):
        raise BadInput(f"{folder / 'manifest.json'}: not the manifest of a sweep")
    return found


def refuse_changes(there: Mapping[str, Any], here: Mapping[str, Any], field: str) -> None:
    """Raise a sentence that says what differs between two manifests, of all that bits depend on."""
    found = difference(there, tables.as_json(here))
    if found is not None:
        name, a, b = found
        raise BadInput(f"{field}: {name} is {b!r} here, {a!r} there")


def difference(
    one: Mapping[str, Any], other: Mapping[str, Any], besides: tuple[str, ...] = ("out",)
) -> tuple[str, Any, Any] | None:
    """The first of all that bits depend on in which two manifests differ, and what it is in each; or None.

    Args:
        one: as read from JSON.
        other: as read from JSON.
        besides: fields of the configuration that may differ.
    """
    parts = ("configuration", "horizon", "records", "versions", "device")
    a, b = (tables.flat({part: _numbered(each.get(part)) for part in parts}, ": ") for each in (one, other))
    for name in (*a, *b):
        if name.removeprefix("configuration: ") not in besides and a.get(name) != b.get(name):
            return name, a.get(name), b.get(name)
    return None


def _numbered(value: Any) -> Any:
    """A list of dictionaries as a dictionary of them, from 1."""
    several = isinstance(value, list) and all(isinstance(each, dict) for each in value)
    return {str(i): each for i, each in enumerate(value, 1)} if several else value


class Session:
    """What is kept of a sweep that is being played; nothing where it has no folder."""

    def __init__(self, folder: Path | None, every: float) -> None:
        """Keep state in a folder that is there, at most once in so many seconds."""
        self.folder, self.every, self.saved = folder, every, time.monotonic()
        self.first = hosts.number() == 0
        self.state = "state" if self.first else f"state-{hosts.number()}"

    @classmethod
    @contextmanager
    def begin(cls, out: str | None, every: float, about: Mapping[str, Any]) -> Iterator[Self]:
        """A new folder, locked, with its manifest; of several hosts the first makes it.

        Raises:
            BadInput: it is in use, or cannot be written.
        """
        if out is None:
            yield cls(None, every)
            return
        with _by_the_first(lambda: _made(out, about)):
            yield cls(Path(out).absolute(), every)

    @classmethod
    @contextmanager
    def again(cls, folder: Path, every: float) -> Iterator[Self]:
        """The folder of a sweep that was not finished, locked; of several hosts the first locks it.

        Raises:
            BadInput: another process holds it.
        """
        with _by_the_first(lambda: _lock(folder)):
            yield cls(folder, every)

    def due(self) -> bool:
        """Whether it is time to save."""
        return self.folder is not None and time.monotonic() - self.saved >= self.every

    def finished(self, unit: str) -> Arrays | None:
        """The figures of a unit that was finished, or None."""
        return self._load(f"{self.state}/{unit}.npz")

    def finish(self, unit: str, figures: Arrays) -> None:
        """Keep the figures of a unit that is finished."""
        self._save(f"{self.state}/{unit}.npz", figures)
        if self.folder is not None:
            (self.folder / self.state / f"{NOW}.npz").unlink(missing_ok=True)
        self.saved = time.monotonic()

    def keep(self, unit: str, blocks: int, tree: Any, curves: Callable[[], tables.Table]) -> None:
        """Save where a unit stands after some blocks, and the curves so far."""
        leaves = {f"{i:04}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}
        self._save(f"{self.state}/{NOW}.npz", {"unit": np.array(unit), "blocks": np.array(blocks), **leaves})
        if self.folder is not None and self.first:
            self._write("curves.csv", lambda path: tables.save(curves(), path))
        self.saved = time.monotonic()

    def kept(self, unit: str, like: Any) -> tuple[int, Any]:
        """Blocks and tree of a unit at its last save; 0 and the tree it starts from where there is none."""
        found = self._load(f"{self.state}/{NOW}.npz")
        if found is None or str(found["unit"]) != unit:
            return 0, like
        leaves, tree = jax.tree.flatten(like)
        saved = [found[f"{i:04}"] for i in range(len(found) - 2)]
        shapes = [[(np.shape(x), np.asarray(x).dtype) for x in each] for each in (leaves, saved)]
        if shapes[0] != shapes[1]:
            raise BadInput(f"resume: the state in {self.folder} has another shape than this program's")
        return int(found["blocks"]), jax.tree.unflatten(tree, saved)

    def close(self, fill: Callable[[Path], object], about: Mapping[str, Any]) -> None:
        """Write the results, the manifest last, and forget the state."""
        if self.folder is None or not self.first:
            return
        partial = self.folder / ".results"
        shutil.rmtree(partial, ignore_errors=True)
        for left in self.folder.glob(".*"):  # by a process that was killed as it wrote
            left.unlink()
        with _telling(self.folder):
            partial.mkdir()
            fill(partial)
            for path in sorted(partial.iterdir()):
                path.replace(self.folder / path.name)
            partial.rmdir()
        self._write("manifest.json", lambda path: tables.save_json(about, path))
        for state in (self.folder / "state", *self.folder.glob("state-*")):
            shutil.rmtree(state, ignore_errors=True)

    def _load(self, name: str) -> Arrays | None:
        if self.folder is None or not (self.folder / name).exists():
            return None
        try:
            with np.load(self.folder / name, allow_pickle=False) as found:
                return dict(found)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise BadInput(
                f"{self.folder / name}: unreadable ({error}); remove it to play that part anew"
            ) from error

    def _save(self, name: str, arrays: Arrays) -> None:
        def save(path: Path) -> None:
            with path.open("wb") as stream:
                np.savez(stream, **arrays)  # type: ignore[arg-type]
                stream.flush()
                os.fsync(stream.fileno())

        if self.folder is not None:
            self._write(name, save)

    def _write(self, name: str, save: Callable[[Path], object]) -> None:
        assert self.folder is not None
        _write(self.folder, name, save)


def _write(folder: Path, name: str, save: Callable[[Path], object]) -> None:
    """Write a file beside its place, and move it there."""
    place = folder / name
    partial = place.with_name(f".{place.name}")
    with _telling(folder):
        try:
            place.parent.mkdir(exist_ok=True)
            save(partial)
            partial.replace(place)
        except OSError:
            with suppress(OSError):
                partial.unlink()
            raise


@contextmanager
def _telling(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadInput(
            f"out: {folder} cannot be written ({reason}); what was saved is still there for --resume"
        ) from error


@contextmanager
def _by_the_first(lock: Callable[[], int]) -> Iterator[None]:
    """Hold a lock that the first process takes; if it cannot, all raise what it says."""
    handle, trouble = None, ""
    if hosts.number() == 0:
        try:
            handle = lock()
        except BadInput as error:
            trouble = str(error)
    trouble = hosts.told(trouble.encode())[0].decode()
    if trouble:
        raise BadInput(trouble)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _made(out: str, about: Mapping[str, Any]) -> int:
    """Make a folder with its manifest, and lock it."""
    folder = output.claim(out)
    existed = folder.exists()
    with _telling(folder):
        folder.mkdir(parents=True, exist_ok=True)
    handle = _lock(folder)
    try:
        output.claim(out)  # nobody was faster
        _write(folder, "manifest.json", lambda path: tables.save_json(about, path))
    except BadInput:
        os.close(handle)
        if not existed:
            with suppress(OSError):
                folder.rmdir()  # only if it is empty
        raise
    return handle


def _lock(folder: Path) -> int:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise BadInput(f"out: {folder} is in use by another process") from None
    return handle
