"""The Python functions that run, resume, rerun and merge sweeps; ``jobs.py`` chooses what they run."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from exaul.engine.checks import BadInput, resume_advice
from exaul.engine.job import NO_FIELDS, SweepJob, sweep_of
from exaul.engine.jobs import begin_job, resume_job
from exaul.engine.logs.log import Records
from exaul.engine.results import advice, counts, folder, sealed
from exaul.engine.results.manifest import check_unchanged, read_manifest
from exaul.engine.results.result import Mismatch as Mismatch
from exaul.engine.results.result import Result, Shard, join
from exaul.engine.sweep import Sweep
from exaul.engine.traces import TracesJob, TracesResult


def run(
    sweep: Sweep,
    records: Sequence[Records] | None = None,
    *,
    executor: Executor | None = None,
    parts: int | None = None,
    progress: str = "quiet",
    save_every: float = 60,
) -> Result:
    """Run a sweep, and write its folder if it names one.

    With an executor, the trials run in parts, as many at once as there are workers, with the same results to the
    bit. If all workers share the sweep's folder, a part that is retried continues from its last save; otherwise it
    starts again.

    Args:
        sweep: the configuration.
        records: records in memory that replace the sweep's logs or sources, in their order; not with an executor.
        executor: where the parts run. Workers must not be forked, because JAX does not survive a fork: for
            processes, use ``ProcessPoolExecutor(mp_context=get_context("spawn"))``.
        parts: number of parts for the executor, from 1 to the number of trials.
        progress: report on stderr: ``bar``, ``json`` (a line every ten seconds) or ``quiet``.
        save_every: seconds between saves of the state, from which ``resume`` continues.

    Raises:
        BadInput: a log or the output folder cannot be used, or the workers are forked; nothing was written.
        Mismatch: devices, versions or sources differ between the workers.
        PartsFailed: a part failed; the finished parts are kept in the sweep's folder.
    """
    return begin_job(sweep, records, executor, parts).run(progress=progress, save_every=save_every)


def resume(
    path: str,
    given: Mapping[str, Any] = NO_FIELDS,
    *,
    executor: Executor | None = None,
    trust: bool = False,
    progress: str = "quiet",
    save_every: float = 60,
) -> Result | None:
    """Continue an interrupted sweep; the results are the same to the bit. Return None if the sweep has finished.

    Args:
        path: the folder of the sweep.
        given: fields of the sweep by name; they must equal those of the folder.
        executor: as in ``run``, for a sweep that was begun in parts.
        trust: whether to import modules that the manifest names.
        progress: as in ``run``.
        save_every: as in ``run``.

    Raises:
        BadInput: there is no such sweep, another process runs it, or the configuration, a log, a version, or the
            source of exaul or of a user module has changed.
        Mismatch: as in ``run``.
        PartsFailed: as in ``run``.
    """
    job = resume_job(path, given, executor, trust)
    return None if job is None else job.run(progress=progress, save_every=save_every)


def rerun(
    path: str, out: str | None = None, *, trust: bool = False, progress: str = "quiet", save_every: float = 60
) -> Result:
    """Run the sweep of a folder again; the results are the same to the bit.

    Args:
        path: the folder of the first run.
        out: folder for the new results, or None.
        trust: as in ``resume``.
        progress: as in ``resume``.
        save_every: as in ``resume``.

    Raises:
        BadInput: as in ``resume``, or ``out`` cannot be used.
    """
    saved = read_manifest(Path(path))
    job = SweepJob.begin(sweep_of(saved, out, "rerun", trust))
    check_unchanged(saved, job.manifest, "rerun")
    return job.run(progress=progress, save_every=save_every)


def merge(paths: Sequence[str], out: str | None = None) -> Result:
    """Join the shards of a sweep, in any order.

    Args:
        paths: folders of all its shards.
        out: folder for the joined results, or None.

    Raises:
        BadInput: a folder has no finished shard, or the output folder cannot be used.
        Mismatch: the shards differ in more than their trials, overlap, or miss a trial.
    """
    result, joined = join([_shard(Path(path)) for path in paths], (), (), out, advice.load(Path(paths[0])))
    if out is not None:
        with folder.fill_new(out) as partial:
            result.write(partial, joined)
            folder.write_manifest(partial, result.manifest)
    return result


def _shard(path: Path) -> Shard:
    """Read a finished shard; BadInput if it is unfinished, or its counts are missing or of another sweep."""
    manifest = read_manifest(path)
    if manifest.get("end") is None:
        raise BadInput(f"{path}: not finished; {resume_advice(str(path))}")
    arrays = sealed.load(path / "counts.npz", manifest)
    if arrays is None:
        raise BadInput(f"{path / 'counts.npz'}: no such file; only a sweep with --shard leaves it")
    return path, manifest, counts.from_arrays(arrays)


def run_traces(sweep: Sweep, *, progress: str = "quiet", save_every: float = 60) -> TracesResult:
    """Run a sweep on each trace of its logs, one after the other, and write its folder if it names one.

    Args:
        sweep: the configuration; ``logs`` may be folders, and the columns in ``each`` separate traces.
        progress: as in ``run``.
        save_every: as in ``run``.

    Raises:
        BadInput: a log, a trace or the output folder cannot be used; nothing was written.
    """
    return TracesJob.begin(sweep).run(progress=progress, save_every=save_every)


def resume_traces(
    path: str,
    given: Mapping[str, Any] = NO_FIELDS,
    *,
    trust: bool = False,
    progress: str = "quiet",
    save_every: float = 60,
) -> TracesResult | None:
    """Run the unfinished traces of a folder, or return None; arguments and errors as in ``resume``."""
    job = TracesJob.resume(path, given, trust=trust)
    return None if job is None else job.run(progress=progress, save_every=save_every)
