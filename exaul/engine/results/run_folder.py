"""The folder of a running sweep: manifest, saved state and a lock, so that an interrupted run can be resumed.

    manifest.json   written first; ``end`` is null until all results are written
    state/          one file per finished unit (some trials of some learners), and ``now.npz`` with the current unit
                    at the last save
    curves.csv      the curves at the last save

Files are written under a temporary name and renamed, so no file is ever half written. Saved states are sealed
(``sealed.py``): another sweep refuses them. The operating system's lock on the folder ends with the process.

A process may be killed at any point. A unit is finished when its file exists. The file of the current unit contains
the unit's name, so a stale one is ignored. ``end`` is set after all results are written: until then the run counts
as interrupted, and ``--resume`` repeats what is missing.
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
from exaul.engine.logs import files
from exaul.engine.results import folder, sealed
from exaul.engine.results.sealed import Arrays

CURRENT = "now"  # state file of the unit that is being simulated
ADVICE = "; the saved state is kept, use --resume to continue"


class RunFolder:
    """Save the state of a running sweep. Without a path, nothing is saved."""

    def __init__(self, path: Path | None, manifest: Mapping[str, Any], save_every: float) -> None:
        """Save to an existing, locked folder, at most once in ``save_every`` seconds; or to none."""
        self.path, self.manifest, self.save_every, self.saved_at = path, manifest, save_every, time.monotonic()

    @classmethod
    @contextmanager
    def open(
        cls, out: str | None, manifest: Mapping[str, Any], save_every: float, resumed: bool = False
    ) -> Iterator[Self]:
        """Lock a new folder and write its manifest; or, if ``resumed``, lock the folder of an interrupted run.

        Raise BadInput if another process has locked it, a new one is not empty, or it cannot be written.
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
                    # check again under the lock: another process may have filled the folder in between
                    folder.check_output_folder(out)
                    folder.write_manifest(path, manifest)
            yield cls(path, manifest, save_every)

    def due(self) -> bool:
        """Return whether ``save_every`` seconds have passed since the last save."""
        return self.path is not None and time.monotonic() - self.saved_at >= self.save_every

    def finished(self, unit: str) -> Arrays | None:
        """Return the results of a finished unit, or None."""
        return self._load(f"state/{unit}.npz")

    def finish(self, unit: str, results: Arrays) -> None:
        """Save the results of a finished unit."""
        self._save(f"state/{unit}.npz", results)
        if self.path is not None:
            # only now: until the results are on disk, the saved state is needed to repeat the unit's last blocks
            (self.path / "state" / f"{CURRENT}.npz").unlink(missing_ok=True)
        self.saved_at = time.monotonic()

    def save(self, unit: str, blocks: int, tree: Any, curves: Callable[[], files.Table]) -> None:
        """Save the state (a pytree) of a unit after ``blocks`` blocks, and the curves so far."""
        leaves = {f"{i:04}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}
        self._save(f"state/{CURRENT}.npz", {"unit": np.array(unit), "blocks": np.array(blocks), **leaves})
        self.save_curves(curves())

    def save_curves(self, curves: files.Table) -> None:
        """Write the curves so far."""
        self._write("curves.csv", lambda path: files.save(curves, path))
        self.saved_at = time.monotonic()

    def restore(self, unit: str, first: Callable[[], Any]) -> tuple[int, Any]:
        """Return (blocks, state) of a unit at its last save, or (0, None) without one.

        ``first`` returns the state before round 1. Raise BadInput if the shapes of the saved state differ from it.
        """
        state = self._load(f"state/{CURRENT}.npz")
        if state is None or str(state["unit"]) != unit:
            return 0, None
        leaves, tree = jax.tree.flatten(first())
        saved = [state[f"{i:04}"] for i in range(len(state) - 2)]  # all but "unit" and "blocks"
        shapes = [[(np.shape(x), np.asarray(x).dtype) for x in each] for each in (leaves, saved)]
        if shapes[0] != shapes[1]:
            raise BadInput(f"resume: the saved state in {self.path} has other shapes than this version expects")
        return int(state["blocks"]), jax.tree.unflatten(tree, saved)

    def close(self, fill: Callable[[Path], object], manifest: Mapping[str, Any]) -> None:
        """Write the results, then the final manifest, and remove the state; a kill in between can be resumed."""
        if self.path is None:
            return
        for name in ("curves.csv", folder.MANIFEST):
            with suppress(OSError):
                folder.temporary_path(self.path / name).unlink()  # left by a process that was killed while writing
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
                # the data must be on disk before the rename: after a power failure the new name could otherwise
                # point to an empty file, and the state that it replaced would be lost
                stream.flush()
                os.fsync(stream.fileno())

        self._write(name, save)

    def _write(self, name: str, save: Callable[[Path], object]) -> None:
        if self.path is not None:
            with folder.explain_errors(self.path, ADVICE):
                folder.write_beside(self.path / name, save)
