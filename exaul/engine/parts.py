"""Run a sweep in parts: each part has some of the trials and runs on an executor of ``concurrent.futures``."""

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self, TypeVar

from exaul.engine import machine, settings
from exaul.engine.checks import BadInput, check_holds, join_lines, resume_advice
from exaul.engine.job import FolderJob, SweepJob, sweep_of, unfinished
from exaul.engine.progress import Progress
from exaul.engine.results import counts, sealed
from exaul.engine.results.folder import MANIFEST, FolderLocked
from exaul.engine.results.manifest import read_manifest
from exaul.engine.results.result import Result, Shard, join
from exaul.engine.results.run_folder import RunFolder
from exaul.engine.results.trials import curves_table
from exaul.engine.simulation import resources
from exaul.engine.simulation.prepare import Prepared
from exaul.engine.sweep import Sweep

LOCK_TIMEOUT = 30.0  # seconds that a part waits for the lock of its folder, whose holder may be a lost machine
T = TypeVar("T")


class PartsFailed(RuntimeError):
    """A call that was sent to a worker failed; the message names it and, if possible, how to continue."""


@dataclass(frozen=True)
class PartsJob(FolderJob):
    """A sweep in parts on an executor."""

    prepared: Prepared
    executor: Executor
    parts: int

    @classmethod
    def begin(cls, sweep: Sweep, executor: Executor, parts: int | None) -> Self:
        """Prepare a sweep in some number of parts.

        Raises:
            BadInput: ``parts`` is missing or out of range, the sweep is a shard, or the workers are forked.
        """
        whole = parts is not None and 1 <= parts <= sweep.trials
        check_holds("parts", parts, whole, f"from 1 to {sweep.trials}, the number of trials")
        assert parts is not None
        if sweep.shard is not None:
            raise BadInput("shard: given, but the parts of a sweep are its shards")
        check_workers(executor)
        job = SweepJob.begin(sweep)
        # each part chooses the batch size for its worker; that of this machine would mean nothing
        manifest = job.manifest | {"batch": 1, "parts": parts}
        return cls(job.prepared, executor, parts, manifest=manifest)

    @classmethod
    def resume(cls, path: str, given: Mapping[str, Any], executor: Executor, *, trust: bool = False) -> Self | None:
        """Prepare the rest of an interrupted sweep; BadInput if it was not begun in parts."""
        saved = unfinished(path, given)
        if saved is None:
            return None
        parts = saved.get("parts")
        if not isinstance(parts, int):
            raise BadInput(f"resume: the sweep in {path} was not begun in parts; {resume_advice(path)}")
        return cls.begin(sweep_of(saved, path, "resume", trust), executor, parts).continued(saved)

    def describe(self) -> str:
        """Return what the sweep would need in one process."""
        return resources.describe(self.prepared)

    def run(self, *, progress: str = "quiet", save_every: float = 60) -> Result:
        """Send all parts to the executor, collect their counts and write the results; errors as in ``run.run``."""
        sweep = self.prepared.sweep
        with self.open(save_every) as folder, Progress(progress, self.prepared.rounds) as bar:
            shards = self._run_parts(folder, bar)
            result, joined = join(shards, self.prepared.records, self.prepared.sources, sweep.out)
            folder.close(lambda path: result.write(path, joined), result.manifest | {"end": settings.timestamp()})
        return result

    def _run_parts(self, folder: RunFolder, bar: Progress) -> list[Shard]:
        sweep, done, failed = self.prepared.sweep, list[Shard](), dict[int, str]()
        sent = dict[Future[tuple[dict[str, Any], bytes]], int]()
        with TemporaryDirectory() as temporary, cancel_on_error(sent):
            parent = Path(temporary) if folder.path is None else folder.path / "state"
            places = {k: parent / "parts" / str(k) for k in range(1, self.parts + 1)}
            for k, path in places.items():
                shard = replace(sweep, shard=f"{k}/{self.parts}", out=str(path))
                try:  # a broken executor raises here; the parts that were sent still count
                    sent[self.executor.submit(run_part, asdict(shard), folder.save_every)] = k
                except Exception as error:
                    failed[k] = _reason(error)
            for future in as_completed(sent):
                k = sent[future]
                try:
                    manifest, content = future.result()
                    counted = counts.from_arrays(sealed.read(BytesIO(content), f"part {k}", manifest))
                    done.append((places[k], manifest, counted))
                    bar.update(self.prepared.rounds * len(counted.trials) // sweep.trials)
                    if folder.due():
                        some = [shard_counts for _, _, shard_counts in done]
                        folder.save_curves(
                            curves_table(
                                counts.join_counts(some, sum(len(shard_counts.trials) for shard_counts in some))
                            )
                        )
                except Exception as error:
                    failed[k] = _reason(error)
        if failed:
            raise PartsFailed(_failure_text(failed, self.parts, sweep.out))
        return done


def check_workers(executor: Executor | None) -> None:
    """Raise BadInput if an executor forks its workers from this process."""
    # private, but the only place where ProcessPoolExecutor keeps its start method
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        raise BadInput(
            'executor: its workers are forked, which JAX does not survive; use mp_context=get_context("spawn")'
        )


@contextmanager
def cancel_on_error(sent: Iterable[Future[Any]]) -> Iterator[None]:
    """Cancel the calls that have not started if the body raises."""
    try:
        yield
    except BaseException:
        for future in sent:
            future.cancel()
        raise


def result_of(future: Future[T], what: str) -> T:
    """Return the result of a call on a worker; ``what`` names the call in errors.

    Raises:
        BadInput: the call raised it.
        PartsFailed: the call failed for another reason.
    """
    try:
        return future.result()
    except Exception as error:
        cause = _cause(error)
        if isinstance(cause, BadInput):
            raise cause from error
        raise PartsFailed(f"{what}: {_reason(error)}") from error


def _cause(error: Exception) -> Exception:
    """Return the exception that a worker raised, without the one that Ray wraps around it."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, Exception) else error


def _reason(error: Exception) -> str:
    error = _cause(error)
    return join_lines(f"{type(error).__name__}: {error}")


def _failure_text(failed: Mapping[int, str], parts: int, out: str | None) -> str:
    each = "; ".join(f"part {k} of {parts}: {reason}" for k, reason in sorted(failed.items())[:3])
    more = f"; and {len(failed) - 3} more" if len(failed) > 3 else ""
    kept = f"; {parts - len(failed)} are done and kept; {resume_advice(out)}" if out else ""
    return f"{each}{more}{kept}"


def run_part(configuration: Mapping[str, Any], save_every: float) -> tuple[dict[str, Any], bytes]:
    """Run or resume a shard in its folder, on a worker. Return its manifest, and its counts as ``npz``."""
    machine.use_compilation_cache()
    sweep = Sweep(**configuration)
    end = time.monotonic() + LOCK_TIMEOUT
    while time.monotonic() < end:
        try:
            return _run_shard(sweep, save_every)
        except FolderLocked:
            # An executor may send a part twice: the first worker still runs it, or its machine was lost. A network
            # file system may keep the lock of a lost machine, so the wait is bounded.
            time.sleep(0.5)
    # Still locked: start again in a private folder. The result is the same to the bit, whichever worker returns it.
    with TemporaryDirectory() as temporary:
        return _run_shard(replace(sweep, out=f"{temporary}/part"), save_every)


def _run_shard(sweep: Sweep, save_every: float) -> tuple[dict[str, Any], bytes]:
    out = Path(str(sweep.out))
    saved = read_manifest(out) if (out / MANIFEST).is_file() else None
    if saved is not None and saved["end"] is not None:
        return saved, (out / "counts.npz").read_bytes()  # an earlier attempt finished the part
    job = SweepJob.begin(sweep)
    if saved is not None:
        job = job.continued(saved, f"part {sweep.shard}")
    with job.open(save_every) as folder:
        counted = job.simulate(folder, lambda rounds: None)  # a part is reported when it has finished
        manifest, stream = job.manifest | {"end": settings.timestamp()}, BytesIO()
        sealed.write(stream, counts.arrays(counted), manifest)
        folder.close(lambda path: (path / "counts.npz").write_bytes(stream.getvalue()), manifest)
    return manifest, stream.getvalue()
