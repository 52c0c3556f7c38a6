"""The sources of a sweep: its logs or profiles or, over traces, each trace or pair of traces of its logs."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from exaul.engine import registry
from exaul.engine.checks import BadInput
from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.logs.log import Records, parse_log
from exaul.engine.logs.traces import Trace, is_folder, load_traces, log_files, neighbours, short_names
from exaul.engine.simulation.prepare import Prepared, prepare
from exaul.engine.sweep import Sweep


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
        for trace, name in zip(long, _distinct(short_names(long)), strict=True)
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


def _distinct(names: Iterable[str]) -> list[str]:
    """Append numbers to names until they differ from each other."""
    distinct: list[str] = []
    for name in names:
        new, number = name, 1
        while new in distinct:
            number += 1
            new = f"{name} ({number})"
        distinct.append(new)
    return distinct


def _prepare_traces(sweep: Sweep, traces: Sequence[Trace]) -> Prepared:
    """Prepare the sweep over traces; BadInput if, for example, a replay needs more rounds than one has."""
    logs = tuple(trace.log for trace in traces)
    one_sweep = replace(sweep, logs=logs, score=traces[0].score, drop_missing=True, each=(), least=1)
    # the records are in memory already
    return replace(prepare(replace(one_sweep, logs=()), [trace.records for trace in traces]), sweep=one_sweep)
