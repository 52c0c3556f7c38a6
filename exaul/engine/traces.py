"""Run a sweep on each trace of some logs, each in its own folder, with one table over all."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from exaul.engine import registry, settings
from exaul.engine.checks import BadInput, typed
from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.job import NO_FIELDS, FolderJob, SweepJob, hashes_of, manifest_of, sweep_of, unfinished
from exaul.engine.logs import files
from exaul.engine.logs.files import Table
from exaul.engine.logs.log import Records, parse_log, with_distinct_names
from exaul.engine.logs.traces import Trace, load_traces, log_files, neighbours, short_names
from exaul.engine.progress import Progress
from exaul.engine.results import advice, folder, overview, redraw
from exaul.engine.results.manifest import (
    TRACES_KINDS,
    check_unchanged,
    describe_records,
    read_manifest,
    traces_manifest,
)
from exaul.engine.results.summary import shares_answerable
from exaul.engine.results.text_table import COMMAND, wrap
from exaul.engine.results.trials import lemma_holds, risk_holds
from exaul.engine.simulation import resources
from exaul.engine.simulation.prepare import Prepared, prepare
from exaul.engine.sweep import Sweep

RESERVED = (folder.MANIFEST, "traces.csv", "traces.png", "traces.pdf")  # files beside the traces' folders
LONGEST = 200  # bytes of a folder's name; file systems allow 255, and a number may be added


class TraceRun(NamedTuple):
    """A trace, or as many as the environment has sources, and their sweep."""

    traces: tuple[Trace, ...]
    folder: str  # its name, relative to the folder of the sweep over traces
    prepared: Prepared
    saved: Mapping[str, Any] | None = None  # the manifest in its folder, if the run was begun

    @property
    def name(self) -> str:
        """The names of its traces, in their order."""
        return _joined_name(self.traces)

    @property
    def records(self) -> list[Records]:
        """The records of its traces."""
        return [trace.records for trace in self.traces]

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

    def tables(self, save_every: float, bar: Progress) -> tuple[Table, Table]:
        """Return trials and advice, from their files if the run has finished; otherwise run the rest first."""
        if self.finished:
            bar.update(self.prepared.rounds)
            out = Path(str(self.prepared.sweep.out))
            return files.load(out / "trials.csv"), advice.load(out)
        job = SweepJob.of(settings.timestamp(), self.prepared)
        if self.saved is not None:
            job = job.continued(self.saved)
        with job.open(save_every) as opened:
            # drawing takes longer than most sweeps over a trace, and few of so many figures are looked at
            result = job.finish(opened, bar.update, with_figures=False)
        return result.trials, result.advice

    def rows(self, trials: Table, advised: Table) -> list[dict[str, Any]]:
        """Return the trace's rows of the table over all."""
        sweep, environment = self.prepared.sweep, self.prepared.environment
        assert isinstance(environment, Oblivious)
        best = shares_answerable(self.prepared.records, self.prepared.grid, environment.segments, sweep.alphas)
        return overview.trace_rows(self.name, self.records, best, trials, advice.advised(advised))


@dataclass(frozen=True)
class TracesResult:
    """The result of a sweep over traces.

    ``table`` has one row per trace or pair, learner, alpha and lambda; ``docs/tables.md`` defines its columns.
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

    def summary(self, width: int | None = None) -> str:
        """Return the most important numbers as text; ``width`` is as in ``Result.summary``."""
        texts = [
            overview.advise(self.table),
            f"traces: {self.table['trace'].nunique()}{_left_out_text(self.sweep, self.left_out)}",
        ]
        if self.dropped:
            texts.append(f"{self.dropped} rows without score or label left out")
        if self.sweep.out is not None:
            texts.append(f"figures of each trace:\n{COMMAND}{typed('figures', self.sweep.out)}")
        table = overview.summarize(self.table, len(self.sweep.lambdas) > 1, width)
        return "\n\n".join([table, *(wrap(text, width) for text in texts)])


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
            BadInput: a log cannot be used, a column of ``each`` is in no log, no trace is long enough, none has
                a neighbour to shift to, or a field excludes a sweep over traces.
        """
        start, number = settings.timestamp(), _number_of_sources(sweep)
        traces = _traces(sweep)
        long = [trace for trace in traces if len(trace.records.scores) >= sweep.least]
        if not long:
            raise BadInput(f"least: {sweep.least} found; no trace has that many records with score and label")
        names = _distinct_names(short_names(long), "{} ({})")
        named = [trace._replace(name=name) for trace, name in zip(long, names, strict=True)]
        played = neighbours(named, sweep.each, number)
        if not played:
            raise BadInput(
                f"environment: {sweep.environment} found; it needs {number} traces that differ only in the last "
                "column of each, or logs of a folder with the same column of scores"
            )
        folders = _distinct_names((_folder_name(_joined_name(each)) for each in played), "{}-{}", RESERVED)
        runs = [
            TraceRun(each, trace_folder, _prepare_traces(sweep, each, trace_folder))
            for each, trace_folder in zip(played, folders, strict=True)
        ]
        trace_entries = [
            {"folder": run.folder, "name": run.name, "records": describe_records(run.records)} for run in runs
        ]
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
        largest = max(
            left or self.runs, key=lambda run: (run.prepared.horizon, *(len(r.scores) for r in run.records))
        )
        number = f"{len(self.runs):,}{_left_out_text(self.sweep, self.left_out)}"
        number += f", {finished:,} of them finished" if finished else ""
        first = f"{'traces':<10}{number}; below is the largest, {largest.name}"
        return f"{first}\n{resources.describe(largest.prepared)}"

    def run(self, *, progress: str = "quiet", save_every: float = 60) -> TracesResult:
        """Run the unfinished traces, and write the table over all."""
        rows, lemma, risk = list[dict[str, Any]](), True, True
        rounds = sum(run.prepared.rounds for run in self.runs)
        with self.open(save_every) as opened:
            with Progress(progress, rounds) as bar:
                for number, run in enumerate(self.runs, 1):
                    bar.begin(number, len(self.runs), run.name)
                    trials, advised = run.tables(save_every, bar)
                    rows += run.rows(trials, advised)
                    lemma &= bool(lemma_holds(trials).all())
                    risk &= bool(risk_holds(trials).all())
            table, manifest = files.frame(rows), self.manifest | {"end": settings.timestamp()}
            tabled = {"traces": table}
            opened.close(lambda path: folder.write_files(path, tabled, redraw.draw(tabled)), manifest)
        played = {trace.name: trace.records.dropped for run in self.runs for trace in run.traces}
        return TracesResult(self.sweep, table, manifest, lemma, risk, self.left_out, sum(played.values()))


def _number_of_sources(sweep: Sweep) -> int:
    """Return the number of traces that the environment plays; BadInput if it is adaptive."""
    environment = registry.resolve("environment", sweep.environment, registry.ENVIRONMENTS, (Oblivious, Adaptive))
    if not isinstance(environment, Oblivious):
        raise BadInput(f"environment: {sweep.environment} found; a sweep over traces needs an oblivious one")
    return environment.sources


def _traces(sweep: Sweep) -> list[Trace]:
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
    plain = re.sub(r"[^\w.=,+-]+", "-", name.replace(" -> ", " to ")).strip(".-")
    return plain.encode()[:LONGEST].decode(errors="ignore") or "trace"


def _joined_name(traces: Sequence[Trace]) -> str:
    return " -> ".join(trace.name for trace in traces)


def _prepare_traces(sweep: Sweep, traces: Sequence[Trace], folder_name: str) -> Prepared:
    """Prepare the sweep over traces; BadInput if, for example, a replay needs more rounds than one has."""
    out = None if sweep.out is None else str(Path(sweep.out) / folder_name)
    logs = tuple(trace.log for trace in traces)
    one_sweep = replace(sweep, logs=logs, score=traces[0].score, drop_missing=True, each=(), least=1, out=out)
    # the records are in memory already; the manifest names the logs, so that the folder can be rerun alone
    records = with_distinct_names([trace.records for trace in traces])
    return replace(prepare(replace(one_sweep, logs=()), records), sweep=one_sweep)
