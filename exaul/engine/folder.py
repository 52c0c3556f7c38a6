"""Folders of results, and that of a sweep, which keeps finished batches whatever happens.

    manifest.json                   written first; ``end`` is null until all results are written
    batches/0-0000000-0000099.npz   a finished batch: number of the source, first and last trial
    batches/now-0-0000000-0000099.npz   the state of a batch at its last save
    curves.csv                      the curves of the finished batches of one source
    trials.csv, ...                 the results, tables first; then ``batches`` is removed, unless of a shard

Files are written under names that begin with ``.exaul-``, in the same folder, hence on the same file system, and
renamed, so that none is ever half written. The operating system's lock on the folder ends with the process.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from exaul.engine.checks import BadInput
from exaul.engine.logs import files
from exaul.engine.manifest import MANIFEST, first_difference, identity, save_json
from exaul.engine.sweep import Sweep

Arrays = dict[str, NDArray[Any]]
PARTIAL_PREFIX = ".exaul-"  # prefix of a file or folder that is not complete
STATE_PREFIX = "now-"  # prefix of the name of a batch's state at its last save
RESUME_HINT = "; what is finished is kept, use --resume to continue"
_IDENTITY, _DIGEST = "about.json", "sha256"


class Batch(NamedTuple):
    """Some trials of all learners and cells on one source: the unit of work."""

    source_number: int  # from 0, in the order of the manifest
    first: int  # number of its first trial
    last: int  # number of its last trial

    @property
    def name(self) -> str:
        """The name of its file, without the ending."""
        return f"{self.source_number}-{self.first:07}-{self.last:07}"

    @property
    def trials(self) -> NDArray[np.int64]:
        """The numbers of its trials."""
        return np.arange(self.first, self.last + 1)

    def overlaps(self, batch: "Batch") -> bool:
        """Return whether another batch shares a trial with it."""
        return self.source_number == batch.source_number and self.first <= batch.last and batch.first <= self.last


class SweepFolder:
    """The finished batches of a sweep, and saves of begun ones, in a folder or, without a path, in memory."""

    def __init__(self, path: Path | None, manifest: dict[str, Any], save_every: float = 0) -> None:
        """Use an existing folder, which must be locked to write; save at most once in ``save_every`` seconds.

        Raise BadInput if a file in ``batches`` is no batch of this sweep, or two of them overlap.
        """
        self.path, self.manifest, self.save_every, self.saved_at = path, manifest, save_every, time.monotonic()
        self.in_memory: dict[Batch, Arrays] = {}
        self.finished, self.begun = set(self._listed("")), set(self._listed(STATE_PREFIX))

    @classmethod
    @contextmanager
    def locked(
        cls, out: str | None, manifest: dict[str, Any], save_every: float, is_resumed: bool = False
    ) -> Iterator[Self]:
        """Lock a new folder and write its manifest; or, if ``is_resumed``, lock the folder of an interrupted sweep.

        Raise BadInput if another process has locked it, a new one is not empty, or it cannot be written.
        """
        with nullcontext() if out is None else lock(Path(out)) if is_resumed else lock_new(out) as path:
            if path is not None and not is_resumed:
                write_manifest(path, manifest)
            yield cls(path, manifest, save_every)

    def finished_of(self, source_number: int) -> list[Batch]:
        """Return the finished batches of a source, in the order of their trials."""
        return sorted(batch for batch in self.finished if batch.source_number == source_number)

    def missing(self, source_numbers: Sequence[int], trials: range, size: int) -> list[Batch]:
        """Return batches of at most ``size`` trials that cover what no finished batch covers.

        A batch that has a saved state is not cut anew, whatever its size.
        """
        missing = list[Batch]()
        for number in source_numbers:
            first = trials.start
            finished = self.finished_of(number)
            begun = [x for x in self.begun if x.source_number == number and not any(map(x.overlaps, finished))]
            for batch in sorted([*finished, *begun, Batch(number, trials.stop, trials.stop)]):
                while first < batch.first:
                    last = min(first + size, batch.first) - 1
                    missing.append(Batch(number, first, last))
                    first = last + 1
                if batch in begun and batch.first >= first:
                    missing.append(batch)
                first = max(first, batch.last + 1)
        return missing

    def save(self, batch: Batch, arrays: Arrays) -> None:
        """Save a finished batch; BadInput if it cannot be written."""
        if self.path is None:
            self.in_memory[batch] = arrays
        else:
            self._write("", batch, arrays)
            # only now: until the batch is on disk, the saved state is needed to repeat its last rounds
            self.forget_states(batch)
        self.finished.add(batch)

    def pop_totals(self, source_number: int) -> Iterator[Arrays]:
        """Yield the totals of finished batches of a source in the order of their trials; memory then lacks them."""
        for batch in self.finished_of(source_number):
            yield self.in_memory.pop(batch) if self.path is None else self.load(batch)

    def is_save_due(self) -> bool:
        """Return whether ``save_every`` seconds have passed since the last save."""
        return self.path is not None and time.monotonic() - self.saved_at >= self.save_every

    def save_state(self, batch: Batch, blocks: int, leaves: Sequence[Any]) -> None:
        """Save the state of a batch after ``blocks`` blocks."""
        arrays = {f"{i:04}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        self._write(STATE_PREFIX, batch, {"blocks": np.array(blocks)} | arrays)
        self.begun.add(batch)
        self.saved_at = time.monotonic()

    def load_state(self, batch: Batch) -> tuple[int, list[NDArray[Any]]]:
        """Return (blocks, leaves) of a batch at its last save, or (0, []) without one."""
        if batch not in self.begun:
            return 0, []
        saved = self.load(batch, STATE_PREFIX)
        return int(saved.pop("blocks")), [saved[name] for name in sorted(saved)]

    def forget_states(self, batch: Batch | None = None) -> None:
        """Remove the saved states, or those that overlap a batch; their trials may then be cut anew."""
        for state in [x for x in self.begun if batch is None or x.overlaps(batch)]:
            with explain_errors(self._file(STATE_PREFIX, state).parent, RESUME_HINT):
                self._file(STATE_PREFIX, state).unlink(missing_ok=True)
            self.begun.discard(state)

    def save_curves(self, curves: files.Table) -> None:
        """Write the curves of the finished batches of a source."""
        if self.path is not None:
            with explain_errors(self.path, RESUME_HINT):
                write_table(self.path / "curves.csv", curves)
        self.saved_at = time.monotonic()

    def save_results(
        self, fills: Sequence[Callable[[Path], object]], manifest: Mapping[str, Any], keep_batches: bool
    ) -> None:
        """Write the results, one part after the other, then the final manifest; remove the batches if not kept.

        A kill in between can be resumed.
        """
        if self.path is None:
            return
        for path in (*self.path.glob(f"{PARTIAL_PREFIX}*"), *self.path.glob(f"batches/{PARTIAL_PREFIX}*")):
            _remove(path)  # left by a process that was killed while writing
        for fill in fills:
            with fill_atomically(self.path, RESUME_HINT) as partial:
                fill(partial)
        with explain_errors(self.path, RESUME_HINT):
            write_manifest(self.path, manifest)
        self.forget_states()
        if not keep_batches:
            shutil.rmtree(self.path / "batches", ignore_errors=True)

    def _file(self, prefix: str, batch: Batch) -> Path:
        assert self.path is not None
        return self.path / "batches" / f"{prefix}{batch.name}.npz"

    def _listed(self, prefix: str) -> list[Batch]:
        """Return the batches that have a file with this prefix, in order.

        Raise BadInput if a file with the name of a batch is not of this sweep, or two finished ones overlap.
        """
        if self.path is None or not (self.path / "batches").exists():
            return []
        if not (self.path / "batches").is_dir():
            raise BadInput(f"{self.path / 'batches'}: a file, where the finished batches belong; remove it")
        trials, sources = Sweep(**self.manifest["configuration"]).trial_numbers, len(self.manifest["sources"])
        batches = list[Batch]()
        for path in self.path.glob(f"batches/{prefix}[0-9]*"):
            numbers = re.fullmatch(rf"{prefix}(\d+)-(\d+)-(\d+)\.npz", path.name, re.ASCII)
            batch = Batch(*map(int, numbers.groups())) if numbers else Batch(0, 0, -1)
            is_in_sweep = batch.source_number < sources and trials.start <= batch.first <= batch.last < trials.stop
            if path != self._file(prefix, batch) or not is_in_sweep:
                raise BadInput(f"{path}: no batch of this sweep; remove it")
            batches.append(batch)
        batches.sort()
        for batch, following in pairwise(batches):
            if batch.overlaps(following) and not prefix:
                names = self._file(prefix, batch), self._file(prefix, following).name
                raise BadInput(f"{names[0]}: has trials that {names[1]} has, too; remove one of them")
        return batches

    def _write(self, prefix: str, batch: Batch, arrays: Arrays) -> None:
        content = arrays | {_IDENTITY: np.array(json.dumps(self._identity(prefix, batch)))}
        content |= {_DIGEST: np.array(_digest(content))}
        assert self.path is not None
        with explain_errors(self.path, RESUME_HINT):
            write_beside(self._file(prefix, batch), partial(_save, content))

    def load(self, batch: Batch, prefix: str = "") -> Arrays:
        """Return the arrays in the file of a batch; BadInput if it is unreadable, changed or of another sweep."""
        path = self._file(prefix, batch)
        advice = "remove it to run that batch again"
        try:
            with path.open("rb") as stream:
                archive = np.load(stream, allow_pickle=False)  # a pickle could run code
                content = {key: archive[key] for key in archive.files}
            is_unchanged = str(content.pop(_DIGEST)) == _digest(content)
            # parsed only if the digest is right, so that a damaged file is reported as changed
            saved_identity = json.loads(str(content.pop(_IDENTITY))) if is_unchanged else {}
        except Exception as error:  # zipfile and NumPy raise almost anything for a damaged file
            raise BadInput(f"{path}: unreadable ({getattr(error, 'strerror', None) or error}); {advice}") from error
        if not is_unchanged:
            raise BadInput(f"{path}: changed since it was written; {advice}")
        expected = self._identity(prefix, batch)
        difference = first_difference(saved_identity, expected, "in it", "in the manifest", ("out", "shard"))
        if difference is not None:
            raise BadInput(f"{path}: of another sweep: {difference}; {advice}")
        return content

    def _identity(self, prefix: str, batch: Batch) -> dict[str, Any]:
        """Return all that the bits of a file depend on, and its name."""
        return identity(self.manifest, batch.source_number) | {"name": prefix + batch.name}


def _save(content: Arrays, path: Path) -> None:
    with path.open("wb") as stream:
        np.savez(stream, **content)  # type: ignore[arg-type]
        stream.flush()
        os.fsync(stream.fileno())  # a power cut must not leave an empty file under the final name


def _digest(arrays: Arrays) -> str:
    # names, types and shapes enter, too: different arrays may have equal bytes
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def check_output_folder(out: str) -> Path:
    """Return the path of an output folder, links resolved; BadInput unless it is absent or empty, and writable.

    What a killed process left under a temporary name does not count.
    """
    try:
        folder = Path(out).resolve()
        is_occupied = folder.exists()
        if folder.is_dir():
            is_occupied = not all(path.name.startswith(PARTIAL_PREFIX) for path in folder.iterdir())
    except (OSError, RuntimeError) as error:  # a name that is too long, or a cycle of links
        raise BadInput(f"out: {out} cannot be used ({getattr(error, 'strerror', None) or error})") from error
    if is_occupied:
        state = "not empty" if folder.is_dir() else "a file"
        raise BadInput(f"out: {out} is {state}; it must be an absent or empty folder")
    # permissions are checked now, so that a sweep of hours does not fail at its end
    nearest = next(p for p in (folder, *folder.parents) if p.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise BadInput(f"out: {out} cannot be written; {nearest} must be a writable folder")
    return folder


@contextmanager
def explain_errors(folder: Path, advice: str = "") -> Iterator[None]:
    """Turn an OSError into BadInput: a sentence that names the folder and ends with ``advice``."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadInput(f"out: {folder} cannot be written ({reason}){advice}") from error


@contextmanager
def lock(folder: Path) -> Iterator[Path]:
    """Hold the operating system's lock on a folder; it ends with the process. Raise BadInput if it is held."""
    with explain_errors(folder):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        # the lock is on the folder itself: a lock file would remain after a crash
        handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput(f"out: {folder} is in use by another process") from None
        except OSError as error:
            raise BadInput(f"out: {folder} cannot be locked ({error.strerror})") from None
        yield folder
    finally:
        os.close(handle)


@contextmanager
def lock_new(out: str) -> Iterator[Path]:
    """Create and lock a folder, and yield it with links resolved; BadInput for an OSError, and if it is in use.

    If the body raises, the folders that were created, it and its parents, are removed if they are empty.
    """
    folder = check_output_folder(out)
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        with explain_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with lock(folder):
                check_output_folder(out)  # again under the lock: another process may have filled it in between
                yield folder
    except BaseException:
        for path in new_folders:
            with suppress(OSError):
                path.rmdir()
        raise


@contextmanager
def fill_new(out: str) -> Iterator[Path]:
    """Lock a new folder and fill it, as ``fill_atomically`` does. Raise BadInput if it is in use."""
    with lock_new(out) as folder, fill_atomically(folder) as partial:
        yield partial


@contextmanager
def fill_atomically(folder: Path, advice: str = "") -> Iterator[Path]:
    """Yield a hidden subfolder, whose files are moved into the folder at the end, or removed if the body raises.

    The folder must be locked, because what another process left in it is removed.
    """
    partial = folder / f"{PARTIAL_PREFIX}results"
    moved: list[Path] = []
    with explain_errors(folder, advice):
        try:
            _remove(partial)  # left by a process that was killed
            partial.mkdir()
            yield partial
            for path in sorted(partial.iterdir(), key=lambda path: path.name == MANIFEST):  # it moves last
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
    unfinished = path.with_name(PARTIAL_PREFIX + path.name)
    try:
        path.parent.mkdir(exist_ok=True)
        save(unfinished)
        unfinished.replace(path)
    except BaseException:
        _remove(unfinished)
        raise


def write_table(path: Path, table: files.Table) -> None:
    """Write a table, as ``write_beside``."""
    write_beside(path, partial(files.save, table))


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest of a folder."""
    write_beside(folder / MANIFEST, partial(save_json, manifest))


def write_new(out: str, tabled: Mapping[str, files.Table], drawn: Mapping[str, Any]) -> None:
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
