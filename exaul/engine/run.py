"""Prepare a sweep; run, resume or rerun it, here or on the workers of a cluster; or merge its shards."""

import uuid
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from contextlib import closing
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from exaul.engine import machine, registry
from exaul.engine import manifest as manifests
from exaul.engine.checks import BadInput, check_count, check_holds, check_known, quote
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.executors import BatchFailed, Mismatch, cause_of, check_workers, describe_error
from exaul.engine.folder import Batch, SweepFolder, fill_new, write_manifest
from exaul.engine.logs import files
from exaul.engine.logs.files import Table
from exaul.engine.logs.log import Records, number_repeats
from exaul.engine.logs.traces import check_columns, is_folder, load_traces, log_files, neighbours, short_names
from exaul.engine.progress import MODES, Progress
from exaul.engine.results.result import PlayedSource, Result, load_tables
from exaul.engine.results.summary import describe_left_out, shares_answerable
from exaul.engine.results.trials import asked_table, curves_table, trials_table
from exaul.engine.simulation import totals
from exaul.engine.simulation.batch import describe_needs, largest_batch, simulate_batch
from exaul.engine.simulation.prepare import PreparedSource, prepare_source
from exaul.engine.sweep import Sweep
from exaul.kernels.learners.learner import expected_share

BatchResults = Generator[tuple[Batch, totals.Totals | None], None, None]  # None: the memory is too small


class PreparedSweep(NamedTuple):
    """A sweep, or the rest of an interrupted one, before it runs. Nothing is written yet."""

    sweep: Sweep
    sources: tuple[PreparedSource, ...]
    manifest: dict[str, Any]
    is_resumed: bool = False

    def source_of(self, batch: Batch) -> PreparedSource:
        """Return the source of a batch, with the trials of the batch alone."""
        return replace(self.sources[batch.source_number], trials=batch.trials)


def prepare_sweep(sweep: Sweep, records: Sequence[Records] | None = None, hashed: bool = False) -> PreparedSweep:
    """Prepare a sweep: read its logs and check the configuration.

    Args:
        sweep: the configuration.
        records: records in memory that replace its logs or sources, in their order; not over traces.
        hashed: whether to hash the code in the manifest without an output folder, too, for a comparison.

    Raises:
        BadInput: as in ``prepare_source``, for any source; or over traces, a column of ``each`` is in no log, no
            trace is long enough, none has a neighbour to shift to, or a field excludes traces.
    """
    start, left_out = manifests.timestamp(), None
    if sweep.each or any(is_folder(log) for log in sweep.logs):
        sources, left_out = _prepare_traces(sweep)
    else:
        sources = (prepare_source(sweep, records),)
    user_hashes = {name: manifests.module_hash(name) for name in sweep.user_code}
    manifest = {
        "configuration": asdict(sweep),
        "sources": list(map(_source_entry, sources)),
        "left_out": left_out,  # traces that are too short; None unless the sweep is over traces
        "code": {"exaul": manifests.engine_hash()} | user_hashes if hashed or sweep.out is not None else None,
        "versions": manifests.versions(),
        "device": manifests.device(),
        "start": start,
        "end": None,
    }
    return PreparedSweep(sweep, sources, manifest)


def _prepare_traces(sweep: Sweep) -> tuple[tuple[PreparedSource, ...], int]:
    """Prepare a source for each trace or window of neighbours; also return the number of traces left out."""
    environment = registry.resolve("environment", sweep.environment)
    if not isinstance(environment, Oblivious):
        raise BadInput(f"environment: {sweep.environment} found; a sweep over traces needs an oblivious one")
    if not sweep.logs:
        raise BadInput("logs: none given; a sweep over traces needs at least one")
    traces = [x for log in sweep.logs for file in log_files(log) for x in load_traces(file, sweep, sweep.each)]
    check_columns(sweep.each, [trace.log for trace in traces])
    long_traces = [trace for trace in traces if len(trace.records.scores) >= sweep.least]
    if not long_traces:
        raise BadInput(f"least: {sweep.least} found; no trace has that many records with score and label")
    names = number_repeats(short_names(long_traces, sweep.each), range(len(long_traces)))
    named = [x._replace(records=x.records._replace(name=name)) for x, name in zip(long_traces, names, strict=True)]
    windows = neighbours(named, sweep.each, environment.pool_count)
    if not windows:
        raise BadInput(
            f"environment: {sweep.environment} found; it needs {environment.pool_count} traces that differ only in "
            "the last column of each, or logs of a folder with the same column of scores"
        )
    base = replace(sweep, logs=(), drop_missing=True, each=(), least=1)  # the records are in memory already
    sources = [prepare_source(replace(base, score=x[0].score), [trace.records for trace in x]) for x in windows]
    return tuple(sources), len(traces) - len(long_traces)


def _source_entry(source: PreparedSource) -> dict[str, Any]:
    """Return the entry of a source in the manifest.

    Its ``answerable`` is the largest share that a threshold answers with an FDR of at most alpha, by alpha. It is
    empty in an adaptive environment, where no threshold is the best.
    """
    learners = [
        {"learner": x.name, "backend": x.backend_name, "feedback": x.definition.feedback} for x in source.learners
    ]
    segments, shares = getattr(source.environment, "segments", 1), dict[float, float]()
    if not source.is_adaptive:
        reached = slice(source.horizon if source.sweep.environment == "replay" else None)
        shares = shares_answerable([x.take(reached) for x in source.records], segments, source.sweep.alphas)
    return {
        "name": source.name,
        "horizon": source.horizon,
        "segments": segments,
        "learners": learners,
        "records": [records.describe() for records in source.records],
        "warm_start": _warm_start_entry(source),
        "answerable": {str(alpha): share for alpha, share in shares.items()},
    }


def _warm_start_entry(source: PreparedSource) -> dict[str, Any] | None:
    """Return the log from which learners start, and the share of it that each answers first, by alpha; or None."""
    if source.warm_log is None:
        return None
    shares = {
        learner.name: dict(zip(map(str, learner.cells.alpha), share.tolist(), strict=True))
        for learner in source.learners
        if (share := expected_share(learner.definition.rule, learner.start)) is not None
    }
    return source.warm_log.describe_log() | {"shares": shares}


def run(
    sweep: Sweep,
    records: Sequence[Records] | None = None,
    *,
    executor: Executor | None = None,
    batches: int | None = None,
    progress: str = "quiet",
    save_every: float = 60,
) -> Result:
    """Run a sweep, and write its folder if it names one.

    Args:
        sweep: the configuration; ``logs`` may be folders, and the columns in ``each`` separate traces.
        records: records in memory that replace the sweep's logs or sources, in their order; not with an executor.
        executor: where batches run, as many at once as there are workers, with the same results to the bit. Workers
            must not be forked, because JAX does not survive a fork: for processes, use
            ``ProcessPoolExecutor(mp_context=get_context("spawn"))``.
        batches: least number of batches of the trials; default: as few as fit the memory.
        progress: report on stderr: ``bar``, ``json`` (a line every ten seconds) or ``quiet``.
        save_every: seconds between saves of the batch that is being simulated, from which ``resume`` continues.

    Raises:
        BadInput: a log or the output folder cannot be used, or the workers are forked, and nothing was written; or,
            later, a trial does not fit the memory, or a learner of yours fails, and finished batches are kept.
        Mismatch: devices, versions or sources differ between this process and a worker.
        BatchFailed: a batch failed on a worker; the finished batches are kept in the sweep's folder.
    """
    check_holds("sweep", sweep, isinstance(sweep, Sweep), "a Sweep")
    if executor is not None and records is not None:
        raise BadInput("records: given together with an executor, whose workers read logs and sources themselves")
    return run_prepared(
        prepare_sweep(sweep, records, hashed=executor is not None), executor, batches, progress, save_every
    )


def run_prepared(
    prepared: PreparedSweep,
    executor: Executor | None = None,
    batches: int | None = None,
    progress: str = "quiet",
    save_every: float = 60,
) -> Result:
    """Run the missing batches of a prepared sweep, and write its folder; arguments and errors as in ``run``."""
    sweep, sources, manifest = prepared.sweep, prepared.sources, prepared.manifest
    if executor is not None:
        check_workers(executor)
    check_count("batches", batches)
    check_known("progress", (progress,), MODES)
    trials, tables = sweep.trial_numbers, []
    size = -(-len(trials) // (batches or 1))
    with (
        SweepFolder.locked(sweep.out, manifest, save_every, prepared.is_resumed) as folder,
        Progress(progress, sum(source.rounds_of_copies for source in sources)) as bar,
    ):
        bar.update(sum(prepared.source_of(batch).rounds_of_copies for batch in folder.finished))
        if executor is not None:
            _run_missing(prepared, folder, range(len(sources)), size, bar, executor)
        for number, source in enumerate(sources):
            if manifests.is_over_traces(manifest):
                bar.begin(number + 1, len(sources), source.name)
            # with an executor, nothing is missing
            _run_missing(prepared, folder, [number], min(size, largest_batch(source)), bar)
            tables.append(_tabulate(folder.pop_totals(number), len(trials)))
        played = tuple(PlayedSource(x.name, x.records, x.all_records) for x in sources)
        result = Result(sweep, *_stack(tables), manifest | {"end": manifests.timestamp()}, played)
        fills = result.write_tables, result.write_figures  # the tables stay if a figure fails
        folder.save_results(fills, result.manifest, keep_batches=sweep.shard is not None)
    return result


def _run_missing(
    prepared: PreparedSweep,
    folder: SweepFolder,
    source_numbers: Sequence[int],
    size: int,
    bar: Progress,
    executor: Executor | None = None,
) -> None:
    """Run the batches of some sources until none is missing: of ``size`` trials, or fewer if the memory is small.

    An executor runs them on its workers. If a save is due, the curves of the finished batches of a source are
    written, too.
    """
    while missing := folder.missing(source_numbers, prepared.sweep.trial_numbers, size):
        too_large = list[Batch]()
        if executor is None:
            results = _locally(prepared, missing, bar, folder)
        else:
            results = _on_workers(prepared, missing, bar, executor)
        with closing(results):
            for batch, arrays in results:
                if arrays is None:  # the memory is too small
                    too_large.append(batch)
                    continue
                folder.save(batch, arrays)
                if folder.is_save_due():
                    number = batch.source_number
                    count = sum(len(x.trials) for x in folder.finished_of(number))
                    folder.save_curves(curves_table(totals.join(folder.pop_totals(number), count)))
        if too_large:
            smallest = min(len(batch.trials) for batch in too_large)
            if smallest == 1:
                raise BadInput(
                    "arms: a single trial does not fit the memory; use fewer arms, alphas, lambdas or learners"
                )
            folder.forget_states()
            size = min(size, -(-smallest // 2))


def _locally(prepared: PreparedSweep, missing: list[Batch], bar: Progress, folder: SweepFolder) -> BatchResults:
    """Run batches in this process, up to the first for which the memory is too small."""
    for batch in missing:
        rounds_done = bar.done
        try:
            result = simulate_batch(prepared.source_of(batch), bar.update, (folder, batch))
        except MemoryError:
            bar.update(rounds_done - bar.done)
            yield batch, None
            return
        yield batch, result


def _on_workers(prepared: PreparedSweep, missing: list[Batch], bar: Progress, executor: Executor) -> BatchResults:
    """Run batches on the workers of an executor.

    Raises:
        Mismatch: a worker has another device, version or log.
        BatchFailed: a batch failed for another reason than memory; the others have run.
    """
    failed, run_id = dict[Batch, str](), uuid.uuid4().hex
    sent = dict[Future[tuple[dict[str, Any], totals.Totals]], Batch]()
    try:
        for batch in missing:
            try:  # a broken executor raises here; the batches that were sent still count
                sent[executor.submit(run_batch, prepared.sweep, run_id, batch)] = batch
            except Exception as error:
                failed[batch] = describe_error(error)
        for future in as_completed(sent):
            batch = sent[future]
            try:
                actual, arrays = future.result()
            except Exception as error:
                if isinstance(cause_of(error), MemoryError):
                    yield batch, None
                else:
                    failed[batch] = describe_error(error)
                continue
            expected = manifests.identity(prepared.manifest, batch.source_number)
            difference = manifests.first_difference(actual, expected, "on a worker", "here")
            if difference is not None:
                raise Mismatch(difference)
            yield batch, arrays
            bar.update(prepared.source_of(batch).rounds_of_copies)
    finally:
        for future in sent:
            future.cancel()  # without an error, all are done, and this does nothing
    if failed:
        reasons = "; ".join(
            f"trials {batch.first} to {batch.last} of {prepared.sources[batch.source_number].name}: {reason}"
            for batch, reason in sorted(failed.items())[:3]
        )
        omitted = f"; and {len(failed) - 3} more" if len(failed) > 3 else ""
        out, done, count = prepared.sweep.out, len(missing) - len(failed), len(missing)
        progress = f"; {done} of {count} batches are done and kept; {manifests.resume_advice(out)}" if out else ""
        raise BatchFailed(f"{reasons}{omitted}{progress}")


def run_batch(sweep: Sweep, run_id: str, batch: Batch) -> tuple[dict[str, Any], totals.Totals]:
    """Run a batch of a sweep on a worker. Return what its bits depend on, and its totals.

    ``run_id`` names this run: logs may have changed since an earlier run of the sweep.

    Raises:
        MemoryError: the memory of this machine is too small for it.
    """
    machine.use_compilation_cache()
    prepared = _prepared_on_worker(sweep, run_id)
    if len(batch.trials) > largest_batch(prepared.sources[batch.source_number]):
        raise MemoryError(f"{len(batch.trials)} trials do not fit the memory")
    result = simulate_batch(prepared.source_of(batch), lambda rounds: None)
    return manifests.identity(prepared.manifest, batch.source_number), result


@lru_cache(maxsize=1)  # a worker runs many batches of a sweep, and reads its logs once
def _prepared_on_worker(sweep: Sweep, run_id: str) -> PreparedSweep:
    return prepare_sweep(sweep, hashed=True)


def _tabulate(batches: Iterable[totals.Totals], trials: int) -> tuple[Table, Table, Table | None]:
    """Return the tables ``trials``, ``curves`` and ``asked`` of the batches of a source."""
    joined = totals.join(batches, trials)
    return trials_table(joined), curves_table(joined), asked_table(joined)


def _stack(tables: Sequence[tuple[Table, Table, Table | None]]) -> tuple[Table, Table, Table | None]:
    """Return the tables of all sources, one below the other."""
    trials, curves, asked = zip(*tables, strict=True)
    return files.stack(trials), files.stack(curves), asked[0]  # over traces, which are oblivious, there is none


def describe_sweep_needs(prepared: PreparedSweep) -> str:
    """Return the memory and disk that a prepared sweep needs, as text, without running it.

    Of several traces, these are the needs of the largest that has not finished.
    """
    manifest, sources = prepared.manifest, prepared.sources
    if not manifests.is_over_traces(manifest):
        return describe_needs(sources[0])
    folder = SweepFolder(Path(str(prepared.sweep.out)) if prepared.is_resumed else None, manifest)
    trials = prepared.sweep.trial_numbers
    unfinished = [source for n, source in enumerate(sources) if folder.missing([n], trials, len(trials))]
    largest = max(unfinished or sources, key=lambda x: (x.horizon, *(len(r.scores) for r in x.records)))
    traces = f"{len(sources):,}{describe_left_out(prepared.sweep, manifest['left_out'])}"
    traces += f", {len(sources) - len(unfinished):,} of them finished" if len(unfinished) < len(sources) else ""
    return f"{'traces':<10}{traces}; below is the largest, {largest.name}\n{describe_needs(largest)}"


def resume(
    path: str,
    given: Mapping[str, Any] = {},
    *,
    executor: Executor | None = None,
    batches: int | None = None,
    trust: bool = False,
    progress: str = "quiet",
    save_every: float = 60,
) -> Result | None:
    """Continue an interrupted sweep; the results are the same to the bit. Return None if the sweep has finished.

    Args:
        path: the folder of the sweep.
        given: fields of the sweep by name; they must equal those of the folder.
        executor, batches, progress, save_every: as in ``run``; they may differ from the interrupted run.
        trust: whether to import modules that the manifest names.

    Raises:
        BadInput: there is no such sweep, another process runs it, or the configuration, a log, a version, or the
            source of exaul or of a user module has changed.
        Mismatch, BatchFailed: as in ``run``.
    """
    prepared = prepare_resumed(path, given, trust)
    return None if prepared is None else run_prepared(prepared, executor, batches, progress, save_every)


def prepare_resumed(path: str, given: Mapping[str, Any] = {}, trust: bool = False) -> PreparedSweep | None:
    """Prepare the rest of a sweep, or return None if it has finished; arguments and errors as in ``resume``."""
    saved = manifests.read_manifest(Path(path))
    if "out" in given:
        raise BadInput("out: given together with resume, which names the folder")
    requested = Sweep(**given)
    for name in given:
        value, saved_value = manifests.round_trip_json(getattr(requested, name)), saved["configuration"][name]
        if value != saved_value:
            raise BadInput(f"resume: {name} is {quote(value)} here, {quote(saved_value)} in {path}")
    if saved["end"] is not None:
        return None
    prepared = _prepare_saved(saved, path, "resume", trust)
    return prepared._replace(manifest=prepared.manifest | {"start": saved["start"]}, is_resumed=True)


def rerun(path: str, out: str | None = None, *, trust: bool = False, progress: str = "quiet") -> Result:
    """Run the sweep of a folder again; the results are the same to the bit.

    Args:
        path: the folder of the first run.
        out: folder for the new results, or None.
        trust: as in ``resume``.
        progress: as in ``run``.

    Raises:
        BadInput: as in ``resume``, or ``out`` cannot be used.
    """
    saved = manifests.read_manifest(Path(path))
    return run_prepared(_prepare_saved(saved, out, "rerun", trust), progress=progress)


def _prepare_saved(saved: Mapping[str, Any], out: str | None, field: str, trust: bool) -> PreparedSweep:
    """Prepare the sweep of a manifest, with folder ``out``.

    Raise BadInput if it names user modules, unless ``trust``; or what its bits depend on has changed.
    """
    sweep = Sweep(**(saved["configuration"] | {"out": out}))
    if sweep.user_code and not trust:
        names = ", ".join(sweep.user_code)
        raise BadInput(f"{field}: the manifest names {names}, whose code would run; --trust allows it")
    prepared = prepare_sweep(sweep, hashed=True)
    identities = manifests.identity(prepared.manifest), manifests.identity(saved)
    if difference := manifests.first_difference(*identities, "here", "there"):
        raise BadInput(f"{field}: {difference}")
    return prepared


def merge(paths: Sequence[str], out: str | None = None) -> Result:
    """Join the shards of a sweep, in any order.

    Args:
        paths: folders of all its shards.
        out: folder for the joined results, or None.

    Raises:
        BadInput: a folder has no finished shard, or the output folder cannot be used.
        Mismatch: the shards differ in more than their trials, overlap, or miss a trial.
    """
    if not paths:
        raise BadInput("shards: none given; at least one is needed")
    shards = [SweepFolder(Path(path), manifests.read_finished(Path(path))) for path in paths]
    first = shards[0]
    for shard in shards:
        if not shard.finished_of(0):
            raise BadInput(f"{shard.path}/batches: no finished batch; only a sweep with --shard keeps them")
        identities = manifests.identity(shard.manifest), manifests.identity(first.manifest)
        names = f"in {shard.path}", f"in {first.path}"
        difference = manifests.first_difference(*identities, *names, ("out", "shard", "logs"))
        if difference is not None:
            raise Mismatch(difference)
    configuration, tables = first.manifest["configuration"], []
    for number, source in enumerate(first.manifest["sources"]):
        pairs = sorted(((x, shard) for shard in shards for x in shard.finished_of(number)), key=lambda x: x[0])
        _check_cover(pairs, configuration["trials"], source["name"])
        tables.append(_tabulate((shard.load(batch) for batch, shard in pairs), configuration["trials"]))
    manifest = first.manifest | {
        "configuration": configuration | {"shard": None, "out": out},
        "start": min(shard.manifest["start"] for shard in shards),
        "end": max(shard.manifest["end"] for shard in shards),
    }
    loaded: dict[str, Table] = {"advice": files.Table([])} | load_tables(Path(paths[0]), ("advice", "traces"))
    if manifests.is_over_traces(first.manifest) and "traces" not in loaded:
        raise BadInput(f"{first.path}/traces.csv: no such file")
    result = Result(Sweep(**manifest["configuration"]), *_stack(tables), manifest, (), loaded)
    if out is not None:
        with fill_new(out) as partial:
            result.write_tables(partial)
            result.write_figures(partial)
            write_manifest(partial, result.manifest)
    return result


def _check_cover(pairs: Iterable[tuple[Batch, SweepFolder]], trials: int, name: str) -> None:
    """Raise Mismatch unless batches of a source, in order and with their shards, cover each trial once."""
    expected = 0
    for batch, shard in pairs:
        if batch.first != expected:
            problem = "is missing" if batch.first > expected else "is given twice"
            trial, covered = min(batch.first, expected), f"{batch.first} to {batch.last}"
            raise Mismatch(f"trial {trial} {problem} ({shard.path} has {covered} of {name})")
        expected = batch.last + 1
    if expected != trials:
        raise Mismatch(f"trial {expected} is missing (the sweep has 0 to {trials - 1} of {name})")
