"""The folder of a sweep while it is played: configuration, state and a lock, so that any end can be resumed.

    manifest.json   what is played, from the first moment; ``end`` is empty until all is written
    state/          a file of results for each unit (some trials of some learners) that is finished, and one of the
                    unit that is being played, as of the last save
    curves.csv      as of the last save

Every file is written beside its place and moved there, so that none is ever half there. What is saved is sealed: it
is refused by any other sweep. The lock is the operating system's, on the folder: it ends with the process.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np

from exaul.engine.checks import BadInput
from exaul.engine.data import settings, tables
from exaul.engine.results import sealed
from exaul.engine.results.folder import beside, claim, explaining, filling, lock, made, write_beside
from exaul.engine.results.sealed import Arrays

NOW = "now"  # the unit that is being played
ADVICE = "; what was saved is still there for --resume"


class Session:
    """The saves of a sweep that is being played; none where it has no folder."""

    def __init__(self, folder: Path | None, every: float, about: Mapping[str, Any]) -> None:
        """Save in a folder that exists, at most once in so many seconds, the sweep of a manifest."""
        self.folder, self.every, self.about, self.saved = folder, every, about, time.monotonic()

    @classmethod
    @contextmanager
    def begin(cls, out: str | None, every: float, about: Mapping[str, Any]) -> Iterator[Self]:
        """A new folder, locked, with its manifest.

        Raises:
            BadInput: it is in use, or cannot be written.
        """
        if out is None:
            yield cls(None, every, about)
            return
        with _held(_begun(out, about)):
            yield cls(Path(out).resolve(), every, about)

    @classmethod
    @contextmanager
    def again(cls, folder: Path, every: float, about: Mapping[str, Any]) -> Iterator[Self]:
        """The folder of a sweep that was not finished, locked.

        Raises:
            BadInput: another process holds it, or it cannot be written.
        """
        with _held(lock(folder)):
            yield cls(folder, every, about)

    def due(self) -> bool:
        """Whether it is time to save."""
        return self.folder is not None and time.monotonic() - self.saved >= self.every

    def finished(self, unit: str) -> Arrays | None:
        """The results of a unit that was finished, or None."""
        return self._load(f"state/{unit}.npz")

    def finish(self, unit: str, results: Arrays) -> None:
        """Save the results of a unit that is finished."""
        self._save(f"state/{unit}.npz", results)
        if self.folder is not None:
            (self.folder / "state" / f"{NOW}.npz").unlink(missing_ok=True)
        self.saved = time.monotonic()

    def save(self, unit: str, blocks: int, tree: Any, curves: Callable[[], tables.Table]) -> None:
        """Save where a unit stands after some blocks, and the curves so far."""
        leaves = {f"{i:04}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}
        self._save(f"state/{NOW}.npz", {"unit": np.array(unit), "blocks": np.array(blocks), **leaves})
        self.show(curves())

    def show(self, curves: tables.Table) -> None:
        """Write the curves so far."""
        self._write("curves.csv", lambda path: tables.save(curves, path))
        self.saved = time.monotonic()

    def restore(self, unit: str, like: Any) -> tuple[int, Any]:
        """Blocks and tree of a unit at its last save; 0 and the tree it starts from where there is none."""
        found = self._load(f"state/{NOW}.npz")
        if found is None or str(found["unit"]) != unit:
            return 0, like
        leaves, tree = jax.tree.flatten(like)
        saved = [found[f"{i:04}"] for i in range(len(found) - 2)]
        shapes = [[(np.shape(x), np.asarray(x).dtype) for x in each] for each in (leaves, saved)]
        if shapes[0] != shapes[1]:
            raise BadInput(f"resume: the state in {self.folder} has another shape than this program's")
        return int(found["blocks"]), jax.tree.unflatten(tree, saved)

    def close(self, fill: Callable[[Path], object], about: Mapping[str, Any]) -> None:
        """Write the results, the manifest last, and remove the state."""
        if self.folder is None:
            return
        for name in ("curves.csv", "manifest.json"):
            with suppress(OSError):
                beside(self.folder / name).unlink()  # left by a process that was killed as it wrote
        with filling(self.folder, ADVICE) as partial:
            fill(partial)
        self._write("manifest.json", lambda path: settings.save_json(about, path))
        shutil.rmtree(self.folder / "state", ignore_errors=True)

    def _load(self, name: str) -> Arrays | None:
        return None if self.folder is None else sealed.load(self.folder / name, self.about)

    def _save(self, name: str, arrays: Arrays) -> None:
        def save(path: Path) -> None:
            with path.open("wb") as stream:
                sealed.write(stream, arrays, self.about)
                stream.flush()
                os.fsync(stream.fileno())

        self._write(name, save)

    def _write(self, name: str, save: Callable[[Path], object]) -> None:
        if self.folder is not None:
            with explaining(self.folder, ADVICE):
                write_beside(self.folder / name, save)


@contextmanager
def _held(handle: int) -> Iterator[None]:
    """Hold the lock of a file handle, and release it at the end."""
    try:
        yield
    finally:
        os.close(handle)


def _begun(out: str, about: Mapping[str, Any]) -> int:
    """Make a folder with its manifest, and lock it."""
    folder = claim(out)
    with explaining(folder), made(folder):
        handle = lock(folder)
        try:
            claim(out)  # nobody was faster
            write_beside(folder / "manifest.json", lambda path: settings.save_json(about, path))
        except BaseException:
            os.close(handle)
            raise
    return handle
