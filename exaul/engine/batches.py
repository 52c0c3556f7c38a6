"""Prepare a sweep and its sources, and run its missing batches: in this process, or on the workers of a cluster."""

import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from exaul.engine import machine, registry, settings
from exaul.engine.checks import BadInput, resume_advice
from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.executors import BatchFailed, Mismatch, cancel_on_error, cause_of, describe_error
from exaul.engine.folder import Arrays, Batch, SweepFolder
from exaul.engine.logs.log import Records, describe_log, describe_records, number_repeats, parse_log
from exaul.engine.logs.traces import Trace, is_folder, load_traces, log_files, neighbours, short_names
from exaul.engine.manifest import (
    engine_hash,
    first_difference,
    identity,
    module_hash,
    sweep_manifest,
)
from exaul.engine.results import totals
from exaul.engine.results.trials import curves_table
from exaul.engine.simulation.batch import simulate_batch
from exaul.engine.simulation.prepare import Prepared, prepare
from exaul.engine.simulation.resources import largest_batch
from exaul.engine.sweep import Sweep
from exaul.kernels.learners.learner import fitted_share


def is_over_traces(sweep: Sweep) -> bool:
    """Return whether a sweep is over traces: a log is a folder, or columns tell traces apart."""
    return bool(sweep.each) or any(is_folder(log) for log in sweep.logs)


def prepare_sources(
    sweep: Sweep, records: Sequence[Records] | None = None
) -> tuple[tuple[Prepared, ...], int | None]:
    """Prepare the sources of a sweep; also return the number of traces that are too short, or None without traces.

    Args:
        sweep: the configuration.
        records: records in memory that replace its logs or sources; not over traces.

    Raises:
        BadInput: as of ``prepare``, for any source; or over traces, a column of ``each`` is in no log, no trace is
            long enough, none has a neighbour to shift to, or a field excludes traces.
    """
    if not is_over_traces(sweep):
        return (prepare(sweep, records),), None
    number = _number_of_sources(sweep)
    traces = _load_all(sweep)
    long = [trace for trace in traces if len(trace.records.scores) >= sweep.least]
    if not long:
        raise BadInput(f"least: {sweep.least} found; no trace has that many records with score and label")
    named = [
        trace._replace(records=trace.records._replace(name=name))
        for trace, name in zip(long, number_repeats(short_names(long), range(len(long))), strict=True)
    ]
    windows = neighbours(named, sweep.each, number)
    if not windows:
        raise BadInput(
            f"environment: {sweep.environment} found; it needs {number} traces that differ only in the last "
            "column of each, or logs of a folder with the same column of scores"
        )
    return tuple(_prepare_traces(sweep, window) for window in windows), len(traces) - len(long)


def _number_of_sources(sweep: Sweep) -> int:
    """Return the number of traces that the environment plays; BadInput if it is adaptive."""
    environment = registry.resolve("environment", sweep.environment, registry.ENVIRONMENTS, (Oblivious, Adaptive))
    if not isinstance(environment, Oblivious):
        raise BadInput(f"environment: {sweep.environment} found; a sweep over traces needs an oblivious one")
    return environment.sources


def _load_all(sweep: Sweep) -> list[Trace]:
    if not sweep.logs:
        raise BadInput("logs: none given; a sweep over traces needs at least one")
    traces = [
        trace for log in sweep.logs for file in log_files(log) for trace in load_traces(file, sweep, sweep.each)
    ]
    columns = {name for trace in traces for name in parse_log(trace.log)[1]}
    for name in sweep.each:
        if name not in columns:
            raise BadInput(f"each: no log has a column {name!r}")
    return traces


def _prepare_traces(sweep: Sweep, traces: Sequence[Trace]) -> Prepared:
    """Prepare the sweep over traces; BadInput if, for example, a replay needs more rounds than one has."""
    logs = tuple(trace.log for trace in traces)
    one_sweep = replace(sweep, logs=logs, score=traces[0].score, drop_missing=True, each=(), least=1)
    # the records are in memory already
    return replace(prepare(replace(one_sweep, logs=()), [trace.records for trace in traces]), sweep=one_sweep)


class PreparedSweep(NamedTuple):
    """A sweep, or the rest of an interrupted one, before it runs. Nothing is written yet."""

    sweep: Sweep
    sources: tuple[Prepared, ...]
    manifest: dict[str, Any]
    is_resumed: bool = False


def prepare_sweep(sweep: Sweep, records: Sequence[Records] | None = None) -> PreparedSweep:
    """Prepare a sweep: read its logs and check the configuration.

    Args:
        sweep: the configuration.
        records: records in memory that replace its logs or sources, in their order.

    Raises:
        BadInput: as of ``prepare_sources``.
    """
    start = settings.timestamp()
    sources, left_out = prepare_sources(sweep, records)
    names = sweep.environment, *(learner.name for learner in sources[0].learners)
    code = {"exaul": engine_hash()} | {name: module_hash(name) for name in names if registry.is_user_code(name)}
    manifest = sweep_manifest(sweep, [_describe(source) for source in sources], left_out, code, start)
    return PreparedSweep(sweep, sources, manifest)


def _describe(source: Prepared) -> dict[str, Any]:
    """Return the entry of a source in the manifest."""
    learners = [
        {
            "learner": learner.name,
            "backend": learner.backend_name,
            "feedback": learner.definition.feedback,
            "bound_by_answers": learner.bound_by_answers(len(source.grid), source.horizon),
        }
        for learner in source.learners
    ]
    return {
        "name": source.name,
        "horizon": source.horizon,
        "segments": getattr(source.environment, "segments", 1),
        "learners": learners,
        "records": list(map(describe_records, source.records)),
        "warm_start": _describe_log(source),
    }


def _describe_log(source: Prepared) -> dict[str, Any] | None:
    """Return the log from which learners start, and the first share of those that fit one, by alpha; or None."""
    if source.log is None:
        return None
    shares = {
        learner.name: dict(zip(map(str, learner.cells.alpha), share.tolist(), strict=True))
        for learner in source.learners
        if (share := fitted_share(learner.definition.rule, learner.first[0])) is not None
    }
    return describe_log(source.log) | {"shares": shares}


class Batches:
    """The batches of a sweep that are missing, and two ways to run them.

    If the memory is too small for a batch, it is cut into halves, and so are those of its source that follow.
    """

    def __init__(
        self, prepared: PreparedSweep, folder: SweepFolder, report: Callable[[int], object], least: int
    ) -> None:
        """Cut the trials into at least ``least`` batches.

        ``report`` is called with the rounds simulated since its last call, of all copies together.
        """
        self.prepared, self.folder, self.report = prepared, folder, report
        self.trials = prepared.sweep.trial_numbers
        self.size = -(-len(self.trials) // least)
        for batch in folder.done:
            report(_trials_of(prepared.sources, batch).rounds_of_copies)

    def run_here(self, source: int) -> None:
        """Run the missing batches of a source in this process."""
        size = min(self.size, largest_batch(self.prepared.sources[source]))
        while missing := self.folder.missing([source], self.trials, size):
            for batch in missing:
                if not self._simulate(batch):
                    size = min(size, self._halved(batch))
                    break

    def _simulate(self, batch: Batch) -> bool:
        """Simulate and save a batch; return False if the memory is too small."""
        reported = 0

        def report(rounds: int) -> None:
            nonlocal reported
            reported += rounds
            self.report(rounds)

        try:
            result = simulate_batch(_trials_of(self.prepared.sources, batch), report, (self.folder, batch))
        except MemoryError:
            self.report(-reported)
            return False
        self._save(batch, result)
        return True

    def run_on(self, executor: Executor) -> None:
        """Run the missing batches of all sources on the workers of an executor.

        Raises:
            Mismatch: a worker has another device, version or log.
            BatchFailed: a batch failed for another reason than memory; the others have run.
        """
        sources, size, run = range(len(self.prepared.sources)), self.size, uuid.uuid4().hex
        while missing := self.folder.missing(sources, self.trials, size):
            failed, too_large = dict[Batch, str](), list[Batch]()
            sent = dict[Future[tuple[dict[str, Any], Arrays]], Batch]()
            with cancel_on_error(sent):
                for batch in missing:
                    try:  # a broken executor raises here; the batches that were sent still count
                        sent[executor.submit(run_batch, self.prepared.sweep, run, batch)] = batch
                    except Exception as error:
                        failed[batch] = describe_error(error)
                for future in as_completed(sent):
                    batch = sent[future]
                    try:
                        there, arrays = future.result()
                    except Exception as error:
                        if isinstance(cause_of(error), MemoryError):
                            too_large.append(batch)
                        else:
                            failed[batch] = describe_error(error)
                        continue
                    mine = identity(self.prepared.manifest, batch.source)
                    differs = first_difference(there, mine, "on a worker", "here")
                    if differs is not None:
                        raise Mismatch(differs)
                    self._save(batch, arrays)
                    self.report(_trials_of(self.prepared.sources, batch).rounds_of_copies)
            if failed:
                raise BatchFailed(self._failure_text(failed, len(missing)))
            if too_large:
                size = min(size, self._halved(min(too_large, key=lambda batch: len(batch.trials))))

    def _save(self, batch: Batch, arrays: Arrays) -> None:
        """Save a finished batch and, if a save is due, the curves of the finished batches of its source."""
        folder = self.folder
        folder.save(batch, arrays)
        if folder.due():
            many = sum(len(each.trials) for each in folder.finished(batch.source))
            folder.save_curves(curves_table(totals.join(folder.take(batch.source), many)))

    def _halved(self, batch: Batch) -> int:
        """Return half the size of a batch for which the memory is too small; BadInput if it has one trial."""
        if len(batch.trials) == 1:
            raise BadInput(
                "arms: a single trial does not fit the memory; use fewer arms, alphas, lambdas or learners"
            )
        self.folder.forget_states()
        return -(-len(batch.trials) // 2)

    def _failure_text(self, failed: dict[Batch, str], many: int) -> str:
        names = [source.name for source in self.prepared.sources]
        each = "; ".join(
            f"trials {batch.first} to {batch.last} of {names[batch.source]}: {reason}"
            for batch, reason in sorted(failed.items())[:3]
        )
        more = f"; and {len(failed) - 3} more" if len(failed) > 3 else ""
        out = self.prepared.sweep.out
        kept = f"; {many - len(failed)} of {many} batches are done and kept; {resume_advice(out)}" if out else ""
        return f"{each}{more}{kept}"


def run_batch(sweep: Sweep, run: str, batch: Batch) -> tuple[dict[str, Any], Arrays]:
    """Run a batch on a worker. Return what its bits depend on, and its totals.

    Args:
        sweep: the configuration.
        run: a name of this run; logs may have changed since an earlier run of the sweep.
        batch: of the sweep.

    Raises:
        MemoryError: the memory of this machine is too small for it.
    """
    machine.use_compilation_cache()
    prepared = _prepared_on_worker(sweep, run)
    if len(batch.trials) > largest_batch(prepared.sources[batch.source]):
        raise MemoryError(f"{len(batch.trials)} trials do not fit the memory")
    result = simulate_batch(_trials_of(prepared.sources, batch), lambda rounds: None)
    return identity(prepared.manifest, batch.source), result


@lru_cache(maxsize=1)  # a worker runs many batches of a sweep, and reads its logs once
def _prepared_on_worker(sweep: Sweep, run: str) -> PreparedSweep:
    return prepare_sweep(sweep)


def _trials_of(sources: Sequence[Prepared], batch: Batch) -> Prepared:
    return replace(sources[batch.source], trials=batch.trials)
