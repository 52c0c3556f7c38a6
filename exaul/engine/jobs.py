"""Choose the job of a sweep: in this process, in parts on an executor, or over traces."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from exaul.engine.checks import BadInput
from exaul.engine.executors import ClusterFlags
from exaul.engine.job import Job, SweepJob
from exaul.engine.logs.log import Records
from exaul.engine.logs.traces import is_folder
from exaul.engine.parts import PartsJob
from exaul.engine.results.redraw import holds_traces
from exaul.engine.sweep import Sweep
from exaul.engine.traces import TracesJob

PARTS_PER_WORKER = 4  # few workers are idle at the end, and repeating a lost part is cheap


@contextmanager
def open_job(
    sweep: Sweep,
    given: Mapping[str, Any],
    cluster: ClusterFlags,
    *,
    resume: str | None = None,
    parts: int | None = None,
    trust: bool = False,
    connect: bool = True,
) -> Iterator[Job | None]:
    """Prepare the job of ``exaul sweep``, and connect to its cluster if one is named.

    Args:
        sweep: the configuration.
        given: its fields that were given, by name; with ``resume`` they must equal those of the folder.
        cluster: where parts of the trials run, if it is named.
        resume: folder of an interrupted sweep to continue; the job is None if that sweep has finished.
        parts: number of parts on the cluster; None for four per worker.
        trust: whether to import modules that the manifest in ``resume`` names.
        connect: whether to connect to the cluster; if not, the job is that of one process.

    Raises:
        BadInput: as in ``run.run``, ``run.resume`` or ``run.run_traces``, or the cluster cannot be used.
    """
    over_traces = _is_over_traces(sweep) if resume is None else holds_traces(Path(resume))
    if over_traces and cluster.named:
        raise BadInput(f"{cluster.flag}: given, but a sweep over traces runs on one machine")
    if over_traces:
        yield TracesJob.begin(sweep) if resume is None else TracesJob.resume(resume, given, trust=trust)
        return
    with cluster.workers() if cluster.named and connect else nullcontext((None, 0)) as (executor, workers):
        if resume is not None:
            yield resume_job(resume, given, executor, trust)
        else:
            many = None if executor is None else min(sweep.trials, parts or PARTS_PER_WORKER * workers)
            yield begin_job(sweep, None, executor, many)


def begin_job(sweep: Sweep, records: Sequence[Records] | None, executor: Executor | None, parts: int | None) -> Job:
    """Prepare the job of ``run.run``; arguments and errors as there."""
    if executor is None and parts is not None:
        raise BadInput(f"parts: {parts} given, but no executor is")
    if executor is not None and records is not None:
        raise BadInput("records: given together with an executor, whose workers read logs and sources themselves")
    return SweepJob.begin(sweep, records) if executor is None else PartsJob.begin(sweep, executor, parts)


def resume_job(path: str, given: Mapping[str, Any], executor: Executor | None, trust: bool) -> Job | None:
    """Prepare the job of ``run.resume``, or None if the sweep has finished; arguments and errors as there."""
    if executor is None:
        return SweepJob.resume(path, given, trust=trust)
    return PartsJob.resume(path, given, executor, trust=trust)


def _is_over_traces(sweep: Sweep) -> bool:
    """Return whether a sweep is over traces: a log is a folder, or columns tell traces apart."""
    return bool(sweep.each) or any(is_folder(log) for log in sweep.logs)
