"""The folder of a running sweep: manifest, saved state and a lock, so that an interrupted run can be resumed.

    manifest.json   written first; ``end`` is empty until all results are written
    state/          one file for each finished unit (some trials of some learners), and one for the current unit,
                    as of the last save
    curves.csv      as of the last save

Each file is written under a temporary name and renamed, so no file is ever half written. Saved files are sealed:
any other sweep refuses them. The lock is the operating system's, on the folder: it ends with the process.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np

from exaul.engine.checks import BadInput
from exaul.engine.data import tables
from exaul.engine.results import folder, sealed
from exaul.engine.results.sealed import Arrays

CURRENT = "now"  # file of the unit that is being simulated
ADVICE = "; what was saved is still there for --resume"


class RunFolder:
    """Saves the state of a running sweep. Without a path, nothing is saved."""

    def __init__(self, path: Path | None, manifest: Mapping[str, Any], save_every: float) -> None:
        """Save the state of a manifest's sweep in an existing folder, at most once in ``save_every`` seconds."""
        self.path, self.manifest, self.save_every, self.saved_at = path, manifest, save_every, time.monotonic()

    @classmethod
    @contextmanager
    def open(
        cls, out: str | None, manifest: Mapping[str, Any], save_every: float, resumed: bool = False
    ) -> Iterator[Self]:
        """Lock a new folder and write its manifest, or lock the folder of an interrupted run.

        Raises:
            BadInput: another process holds the folder, a new one is in use, or the folder cannot be written.
        """
        with ExitStack() as stack:
            if out is None:
                path = None
            elif resumed:
                path = Path(out)
                stack.enter_context(folder.lock(path))
            else:
                path = folder.check_output_folder(out)
                with folder.explain_errors(path), folder.create_folder(path):
                    stack.enter_context(folder.lock(path))
                    # again, now that it is locked: another process may have been faster
                    folder.check_output_folder(out)
                    folder.write_manifest(path, manifest)
            yield cls(path, manifest, save_every)

    def due(self) -> bool:
        """Return whether it is time to save."""
        return self.path is not None and time.monotonic() - self.saved_at >= self.save_every

    def finished(self, unit: str) -> Arrays | None:
        """Return the results of a finished unit, or None."""
        return self._load(f"state/{unit}.npz")

    def finish(self, unit: str, results: Arrays) -> None:
        """Save the results of a finished unit."""
        self._save(f"state/{unit}.npz", results)
        if self.path is not None:
            (self.path / "state" / f"{CURRENT}.npz").unlink(missing_ok=True)
        self.saved_at = time.monotonic()

    def save(self, unit: str, blocks: int, tree: Any, curves: Callable[[], tables.Table]) -> None:
        """Save the state of a unit after some blocks, and the curves so far."""
        leaves = {f"{i:04}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}
        self._save(f"state/{CURRENT}.npz", {"unit": np.array(unit), "blocks": np.array(blocks), **leaves})
        self.save_curves(curves())

    def save_curves(self, curves: tables.Table) -> None:
        """Write the curves so far."""
        self._write("curves.csv", lambda path: tables.save(curves, path))
        self.saved_at = time.monotonic()

    def restore(self, unit: str, like: Any) -> tuple[int, Any]:
        """Return the blocks and the tree of a unit at its last save; 0 and ``like`` if it was not saved."""
        found = self._load(f"state/{CURRENT}.npz")
        if found is None or str(found["unit"]) != unit:
            return 0, like
        leaves, tree = jax.tree.flatten(like)
        saved = [found[f"{i:04}"] for i in range(len(found) - 2)]
        shapes = [[(np.shape(x), np.asarray(x).dtype) for x in each] for each in (leaves, saved)]
        if shapes[0] != shapes[1]:
            raise BadInput(f"resume: the state in {self.path} has another shape than this program's")
        return int(found["blocks"]), jax.tree.unflatten(tree, saved)

    def close(self, fill: Callable[[Path], object], manifest: Mapping[str, Any]) -> None:
        """Write the results, then the manifest, and remove the state."""
        if self.path is None:
            return
        for name in ("curves.csv", folder.MANIFEST):
            with suppress(OSError):
                folder.temporary_path(self.path / name).unlink()  # left by a process that was killed while it wrote
        with folder.fill_atomically(self.path, ADVICE) as partial:
            fill(partial)
        with folder.explain_errors(self.path, ADVICE):
            folder.write_manifest(self.path, manifest)
        shutil.rmtree(self.path / "state", ignore_errors=True)

    def _load(self, name: str) -> Arrays | None:
        return None if self.path is None else sealed.load(self.path / name, self.manifest)

    def _save(self, name: str, arrays: Arrays) -> None:
        def save(path: Path) -> None:
            with path.open("wb") as stream:
                sealed.write(stream, arrays, self.manifest)
                stream.flush()
                os.fsync(stream.fileno())

        self._write(name, save)

    def _write(self, name: str, save: Callable[[Path], object]) -> None:
        if self.path is not None:
            with folder.explain_errors(self.path, ADVICE):
                folder.write_beside(self.path / name, save)
