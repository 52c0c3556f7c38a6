"""Run, resume and rerun a sweep, or merge its shards, and make tables of the batches."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from types import MappingProxyType
from typing import Any

from exaul.engine import folder, registry, settings
from exaul.engine.batches import Batches, PreparedSweep, prepare_sweep
from exaul.engine.checks import BadInput, check_count, quote
from exaul.engine.executors import Mismatch, check_workers
from exaul.engine.folder import Arrays, Batch, SweepFolder
from exaul.engine.logs import files
from exaul.engine.logs.files import Table
from exaul.engine.logs.log import Records
from exaul.engine.manifest import check_unchanged, first_difference, identity, read_finished, read_manifest
from exaul.engine.progress import Progress
from exaul.engine.results import totals
from exaul.engine.results.result import Result, Source, load_tables
from exaul.engine.results.summary import describe_left_out
from exaul.engine.results.trials import asked_table, curves_table, trials_table
from exaul.engine.simulation import resources
from exaul.engine.sweep import Sweep

NO_FIELDS: Mapping[str, Any] = MappingProxyType({})


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
        BadInput: a log or the output folder cannot be used, or the workers are forked; nothing was written.
        Mismatch: devices, versions or sources differ between this process and a worker.
        BatchFailed: a batch failed on a worker; the finished batches are kept in the sweep's folder.
    """
    if executor is not None and records is not None:
        raise BadInput("records: given together with an executor, whose workers read logs and sources themselves")
    return finish(prepare_sweep(sweep, records), executor, batches, progress, save_every)


def resume(
    path: str,
    given: Mapping[str, Any] = NO_FIELDS,
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
        executor, batches, progress, save_every: as in ``run``; none has to be that of the interrupted run.
        trust: whether to import modules that the manifest names.

    Raises:
        BadInput: there is no such sweep, another process runs it, or the configuration, a log, a version, or the
            source of exaul or of a user module has changed.
        Mismatch, BatchFailed: as in ``run``.
    """
    prepared = reopen(path, given, trust)
    return None if prepared is None else finish(prepared, executor, batches, progress, save_every)


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
    prepared = prepare_sweep(_sweep_of(saved, out, "rerun", trust))
    check_unchanged(saved, prepared.manifest, "rerun")
    return finish(prepared, progress=progress, save_every=save_every)


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
    shards = [SweepFolder(Path(path), read_finished(Path(path))) for path in paths]
    first = shards[0]
    for shard in shards:
        if not shard.finished(0):
            raise BadInput(f"{shard.path}/batches: no finished batch; only a sweep with --shard keeps them")
        both = identity(shard.manifest), identity(first.manifest)
        differs = first_difference(*both, f"in {shard.path}", f"in {first.path}", ("out", "shard", "logs"))
        if differs is not None:
            raise Mismatch(differs)
    trials = first.manifest["configuration"]["trials"]
    tables, names = [], [source["name"] for source in first.manifest["sources"]]
    for source in range(len(names)):
        each = [(batch, shard) for shard in shards for batch in shard.finished(source)]
        each.sort(key=lambda pair: pair[0])
        _check_cover([(batch, shard.path) for batch, shard in each], range(trials), names[source])
        tables.append(_tabulate((shard.load(batch) for batch, shard in each), trials))
    manifest = first.manifest | {
        "configuration": first.manifest["configuration"] | {"shard": None, "out": out},
        "start": min(shard.manifest["start"] for shard in shards),
        "end": max(shard.manifest["end"] for shard in shards),
    }
    loaded: dict[str, Table] = {"advice": files.frame([])} | load_tables(Path(paths[0]), ("advice", "traces"))
    if first.manifest["left_out"] is not None and "traces" not in loaded:
        raise BadInput(f"{first.path}/traces.csv: no such file")
    result = Result(Sweep(**manifest["configuration"]), *_stack(tables), manifest, (), loaded)
    if out is not None:
        with folder.fill_new(out) as partial:
            result.write(partial)
            folder.write_manifest(partial, result.manifest)
    return result


def reopen(path: str, given: Mapping[str, Any] = NO_FIELDS, trust: bool = False) -> PreparedSweep | None:
    """Prepare the rest of an interrupted sweep, or return None if it has finished; as ``resume``."""
    saved = read_manifest(Path(path))
    if "out" in given:
        raise BadInput("out: given together with resume, which names the folder")
    wanted = Sweep(**given)
    for name in given:
        wanted_value, saved_value = settings.round_trip_json(getattr(wanted, name)), saved["configuration"][name]
        if wanted_value != saved_value:
            raise BadInput(f"resume: {name} is {quote(wanted_value)} here, {quote(saved_value)} in {path}")
    if saved["end"] is not None:
        return None
    prepared = prepare_sweep(_sweep_of(saved, path, "resume", trust))
    check_unchanged(saved, prepared.manifest, "resume")
    return prepared._replace(manifest=prepared.manifest | {"start": saved["start"]}, is_resumed=True)


def finish(
    prepared: PreparedSweep,
    executor: Executor | None = None,
    batches: int | None = None,
    progress: str = "quiet",
    save_every: float = 60,
) -> Result:
    """Run the missing batches of a prepared sweep, and write its folder; arguments and errors as of ``run``."""
    sweep, sources, manifest = prepared.sweep, prepared.sources, prepared.manifest
    check_workers(executor)
    check_count("batches", batches)
    tables = []
    with (
        SweepFolder.open(sweep.out, manifest, save_every, prepared.is_resumed) as opened,
        Progress(progress, sum(source.rounds_of_copies for source in sources)) as bar,
    ):
        work = Batches(prepared, opened, bar.update, batches or 1)
        if executor is not None:
            work.run_on(executor)
        for number, source in enumerate(sources):
            if manifest["left_out"] is not None:
                bar.begin(number + 1, len(sources), source.name)
            work.run_here(number)  # with an executor, nothing is missing
            tables.append(_tabulate(opened.take(number), len(work.trials)))
        played = tuple(Source(source.name, source.records, source.all_records, source.grid) for source in sources)
        result = Result(sweep, *_stack(tables), manifest | {"end": settings.timestamp()}, played)
        opened.close(result.write, result.manifest, keep=sweep.shard is not None)
    return result


def describe(prepared: PreparedSweep) -> str:
    """Return the memory and disk that a prepared sweep needs, as text, without running it.

    Of several traces, these are the needs of the largest that has not finished.
    """
    manifest, sources = prepared.manifest, prepared.sources
    if manifest["left_out"] is None:
        return resources.describe(sources[0])
    opened = SweepFolder(Path(str(prepared.sweep.out)) if prepared.is_resumed else None, manifest)
    trials = prepared.sweep.trial_numbers
    left = [source for n, source in enumerate(sources) if opened.missing([n], trials, len(trials))]
    largest = max(
        left or sources, key=lambda source: (source.horizon, *(len(each.scores) for each in source.records))
    )
    number = f"{len(sources):,}{describe_left_out(prepared.sweep, manifest['left_out'])}"
    number += f", {len(sources) - len(left):,} of them finished" if len(left) < len(sources) else ""
    return f"{'traces':<10}{number}; below is the largest, {largest.name}\n{resources.describe(largest)}"


def _tabulate(arrays: Iterable[Arrays], trials: int) -> tuple[Table, Table, Table | None]:
    """Return the tables trials, curves and asked of the batches of a source."""
    joined = totals.join(arrays, trials)
    return trials_table(joined), curves_table(joined), asked_table(joined)


def _stack(tables: Sequence[tuple[Table, Table, Table | None]]) -> tuple[Table, Table, Table | None]:
    """Return the tables of all sources, one below the other."""
    trials, curves, asked = zip(*tables, strict=True)
    several = len(tables) > 1
    return (
        files.stack(trials) if several else trials[0],
        files.stack(curves) if several else curves[0],
        asked[0],  # an adaptive environment has one source
    )


def _check_cover(batches: Iterable[tuple[Batch, Path | None]], trials: range, name: str) -> None:
    """Raise Mismatch unless batches of a source, in order and with their folders, cover each trial once."""
    reached = trials.start
    for batch, path in batches:
        if batch.first != reached:
            what = "is missing" if batch.first > reached else "is given twice"
            raise Mismatch(
                f"trial {min(batch.first, reached)} {what} ({path} has {batch.first} to {batch.last} of {name})"
            )
        reached = batch.last + 1
    if reached != trials.stop:
        raise Mismatch(f"trial {reached} is missing (the sweep has {trials.start} to {trials.stop - 1} of {name})")


def _sweep_of(saved: Mapping[str, Any], out: str | None, field: str, trust: bool) -> Sweep:
    """Return the sweep of a manifest, with folder ``out``; BadInput if it names user modules, unless ``trust``."""
    sweep = Sweep(**(saved["configuration"] | {"out": out}))
    foreign = [name for name in (sweep.environment, *sweep.learners) if registry.is_user_code(name)]
    if foreign and not trust:
        raise BadInput(f"{field}: the manifest names {', '.join(foreign)}, whose code would run; --trust allows it")
    return sweep
