"""Run a sweep on each trace of some logs, each in its own folder, with one table over all."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from exaul.engine import registry
from exaul.engine.checks import BadInput
from exaul.engine.data import settings, tables
from exaul.engine.data.logs import parse_log
from exaul.engine.data.tables import Table
from exaul.engine.data.traces import Trace, load_traces, log_files
from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.job import NO_FIELDS, FolderJob, SweepJob, hashes_of, manifest_of, sweep_of, unfinished
from exaul.engine.machine.progress import Progress
from exaul.engine.results import folder, overview
from exaul.engine.results.manifest import (
    TRACES_KINDS,
    check_unchanged,
    describe_records,
    read_manifest,
    traces_manifest,
)
from exaul.engine.results.trials import lemma_holds, risk_holds
from exaul.engine.simulation import resources
from exaul.engine.simulation.prepare import Prepared, prepare
from exaul.engine.sweep import Sweep
from exaul.kernels.coverage import best_coverage

RESERVED = (folder.MANIFEST, "traces.csv", "traces.png", "traces.pdf")  # files beside the traces' folders
LONGEST = 200  # bytes of a folder's name; file systems allow 255, and a number may be added


class TraceRun(NamedTuple):
    """A trace and its sweep."""

    trace: Trace
    folder: str  # its name, relative to the folder of the sweep over traces
    prepared: Prepared
    saved: Mapping[str, Any] | None = None  # the manifest in its folder, if the run was begun

    @property
    def finished(self) -> bool:
        """Whether an earlier run finished."""
        return self.saved is not None and self.saved["end"] is not None

    def with_saved(self) -> Self:
        """Add the manifest in its folder, if any; BadInput if something that results depend on has changed."""
        out = Path(str(self.prepared.sweep.out))
        if not (out / folder.MANIFEST).exists():
            return self
        saved = read_manifest(out)
        check_unchanged(saved, manifest_of(self.prepared, saved["start"]), "resume")
        return self._replace(saved=saved)

    def trials(self, save_every: float, bar: Progress) -> Table:
        """Return the table of trials, from its file if the run has finished; otherwise run the rest first."""
        if self.finished:
            bar.update(self.prepared.rounds)
            return tables.load(Path(str(self.prepared.sweep.out)) / "trials.csv")
        job = SweepJob.of(settings.timestamp(), self.prepared)
        if self.saved is not None:
            job = job.continued(self.saved)
        with job.open(save_every) as opened:
            return job.finish(opened, bar.update).trials

    def rows(self, trials: Table) -> list[dict[str, Any]]:
        """Return the trace's rows of the table over all."""
        grid, records = self.prepared.grid, self.trace.records
        best = {a: best_coverage(grid, records.scores, records.errors, a) for a in self.prepared.sweep.alphas}
        return overview.trace_rows(self.trace.name, records, best, trials)


@dataclass(frozen=True)
class TracesResult:
    """The result of a sweep over traces.

    ``table`` has one row per trace, learner, alpha and lambda; ``docs/tables.md`` defines its columns.
    ``lemma_holds`` and ``risk_holds`` are as in ``Result``, over all traces. ``left_out`` counts the traces that
    were too short, ``dropped`` the rows without score or label.
    """

    sweep: Sweep
    table: Table
    manifest: dict[str, Any]
    lemma_holds: bool
    risk_holds: bool
    left_out: int
    dropped: int

    def summary(self) -> str:
        """Return the most important numbers as text."""
        parts = [overview.summarize(self.table, len(self.sweep.lambdas) > 1), overview.explain()]
        parts.append(f"traces: {self.table['trace'].nunique()}{_left_out_text(self.sweep, self.left_out)}")
        if self.dropped:
            parts.append(f"{self.dropped} rows without score or label left out")
        return "\n\n".join(parts)


@dataclass(frozen=True)
class TracesJob(FolderJob):
    """A sweep over traces, one after the other in this process."""

    sweep: Sweep
    runs: tuple[TraceRun, ...]
    left_out: int  # traces that are too short

    @classmethod
    def begin(cls, sweep: Sweep) -> Self:
        """Read all traces of a sweep, and prepare the sweep over each.

        Raises:
            BadInput: a log cannot be used, a column of ``each`` is in no log, no trace is long enough, or a field
                excludes a sweep over traces.
        """
        start, traces = settings.timestamp(), _traces(sweep)
        long = [trace for trace in traces if len(trace.records.scores) >= sweep.least]
        if not long:
            raise BadInput(f"least: {sweep.least} found; no trace has that many records with score and label")
        names = _distinct_names((trace.name for trace in long), "{} ({})")
        folders = _distinct_names((_folder_name(name) for name in names), "{}-{}", RESERVED)
        runs = [
            TraceRun(trace._replace(name=name), trace_folder, _prepare_trace(sweep, trace, trace_folder))
            for trace, name, trace_folder in zip(long, names, folders, strict=True)
        ]
        records = describe_records([run.trace.records._replace(name=run.trace.name) for run in runs])
        trace_entries = [{"folder": run.folder} | entry for run, entry in zip(runs, records, strict=True)]
        manifest = traces_manifest(sweep, trace_entries, hashes_of(runs[0].prepared), start)
        return cls(sweep, tuple(runs), len(traces) - len(long), manifest=manifest)

    @classmethod
    def resume(cls, path: str, given: Mapping[str, Any] = NO_FIELDS, *, trust: bool = False) -> Self | None:
        """Prepare the unfinished traces, or return None if all have finished."""
        saved = unfinished(path, given, TRACES_KINDS)
        if saved is None:
            return None
        job = cls.begin(sweep_of(saved, path, "resume", trust)).continued(saved)
        return replace(job, runs=tuple(run.with_saved() for run in job.runs))

    def describe(self) -> str:
        """Return the number of traces, and what the largest one needs."""
        left = [run for run in self.runs if not run.finished]
        finished = len(self.runs) - len(left)
        largest = max(left or self.runs, key=lambda run: (run.prepared.horizon, len(run.trace.records.scores)))
        number = f"{len(self.runs):,}{_left_out_text(self.sweep, self.left_out)}"
        number += f", {finished:,} of them finished" if finished else ""
        first = f"{'traces':<10}{number}; below is the largest, {largest.trace.name}"
        return f"{first}\n{resources.describe(largest.prepared)}"

    def run(self, *, progress: str = "quiet", save_every: float = 60) -> TracesResult:
        """Run the unfinished traces, and write the table over all."""
        rows, lemma, risk = list[dict[str, Any]](), True, True
        rounds = sum(run.prepared.rounds for run in self.runs)
        with self.open(save_every) as opened:
            with Progress(progress, rounds) as bar:
                for number, run in enumerate(self.runs, 1):
                    bar.begin(number, len(self.runs), run.trace.name)
                    trials = run.trials(save_every, bar)
                    rows += run.rows(trials)
                    lemma &= bool(lemma_holds(trials).all())
                    risk &= bool(risk_holds(trials).all())
            table, manifest = tables.frame(rows), self.manifest | {"end": settings.timestamp()}
            opened.close(lambda path: _write(path, table), manifest)
        dropped = sum(run.trace.records.dropped for run in self.runs)
        return TracesResult(self.sweep, table, manifest, lemma, risk, self.left_out, dropped)


def _traces(sweep: Sweep) -> list[Trace]:
    environment = registry.resolve("environment", sweep.environment, registry.ENVIRONMENTS, (Oblivious, Adaptive))
    if not isinstance(environment, Oblivious) or environment.sources > 1:
        raise BadInput(f"environment: {sweep.environment} found; a sweep over traces needs stochastic or replay")
    if not sweep.logs:
        raise BadInput("logs: none given; a sweep over traces needs at least one")
    if sweep.shard is not None:
        raise BadInput("shard: given, but all trials of a trace run in one process")
    traces = [
        trace for log in sweep.logs for file in log_files(log) for trace in load_traces(file, sweep, sweep.each)
    ]
    columns = {name for trace in traces for name in parse_log(trace.log)[1]}
    for name in sweep.each:
        if name not in columns:
            raise BadInput(f"each: no log has a column {name!r}")
    return traces


def _left_out_text(sweep: Sweep, left_out: int) -> str:
    records = "no record" if sweep.least == 1 else f"fewer than {sweep.least} records"
    return f" ({left_out} with {records} left out)" if left_out else ""


def _distinct_names(names: Iterable[str], numbered: str, taken: Sequence[str] = ()) -> list[str]:
    """Number names until they differ from each other and from ``taken``, also on file systems that ignore case."""
    used, distinct = {name.lower() for name in taken}, []
    for name in names:
        new, number = name, 1
        while new.lower() in used:
            number += 1
            new = numbered.format(name, number)
        used.add(new.lower())
        distinct.append(new)
    return distinct


def _folder_name(name: str) -> str:
    """Return a folder name that is valid on every operating system."""
    # cut in bytes, not characters; the decoder drops a character that the cut splits
    plain = re.sub(r"[^\w.=,+-]+", "-", name).strip(".-")
    return plain.encode()[:LONGEST].decode(errors="ignore") or "trace"


def _prepare_trace(sweep: Sweep, trace: Trace, folder_name: str) -> Prepared:
    """Prepare the sweep over a trace; BadInput if, for example, a replay needs more rounds than it has."""
    out = None if sweep.out is None else str(Path(sweep.out) / folder_name)
    trace_sweep = replace(sweep, logs=(trace.log,), score=trace.score, drop_missing=True, each=(), least=1, out=out)
    # the records are in memory already; the manifest names the log, so that the trace's folder can be rerun alone
    return replace(prepare(replace(trace_sweep, logs=()), [trace.records]), sweep=trace_sweep)


def _write(path: Path, table: Table) -> None:
    from exaul.engine.results import figures  # imports matplotlib

    folder.write_files(path, {"traces": table}, {"traces": figures.traces_figure(table)})
