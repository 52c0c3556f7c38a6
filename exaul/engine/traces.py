"""A sweep over traces: every trace of some logs is played by itself, in one process, with one table over all."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from exaul.engine import registry, run
from exaul.engine.checks import BadInput
from exaul.engine.data import settings, tables
from exaul.engine.data.logs import parse_log
from exaul.engine.data.tables import Table
from exaul.engine.data.traces import Trace, files, is_folder, load_traces
from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.machine.progress import Progress
from exaul.engine.play import need
from exaul.engine.play.prepare import Prepared, prepare
from exaul.engine.results import folder, overview
from exaul.engine.results.manifest import TRACES, described, manifest_of_traces, read_manifest, refuse_changes
from exaul.engine.results.session import Session
from exaul.engine.results.trials import lemma_holds, risk_holds
from exaul.engine.sweep import Sweep
from exaul.kernels.coverage import best_coverage

OWN = ("manifest.json", "traces.csv", "traces.png", "traces.pdf")  # of the folder, which no trace may be called
LONGEST = 200  # bytes of the name of a trace's folder


class Game(NamedTuple):
    """A trace, and the sweep that plays it."""

    trace: Trace
    folder: str  # its name, in the folder of the sweep over traces
    prepared: Prepared
    there: Mapping[str, Any] | None = None  # the manifest in that folder, where it is resumed

    @property
    def ended(self) -> bool:
        """Whether it was played to its end before."""
        return self.there is not None and self.there["end"] is not None


class Games(NamedTuple):
    """What a sweep over traces plays."""

    sweep: Sweep
    games: tuple[Game, ...]
    left_out: int  # traces that were too short


@dataclass(frozen=True)
class Traces:
    """What a sweep over traces showed.

    ``table`` has one row per trace, learner, alpha and lambda; ``docs/tables.md`` says what its columns mean.
    ``manifest`` is what it takes to go on with it; ``lemma_holds`` and ``risk_holds`` are as of ``Result``, of all
    traces. ``left_out`` traces were too short, and ``dropped`` rows had no score or no label.
    """

    sweep: Sweep
    table: Table
    manifest: dict[str, Any]
    lemma_holds: bool
    risk_holds: bool
    left_out: int
    dropped: int

    def summary(self) -> str:
        """The numbers that matter, as text."""
        parts = [overview.summarize(self.table, len(self.sweep.lambdas) > 1), overview.explain()]
        parts.append(f"traces played: {self.table['trace'].nunique()}{_short(self.sweep, self.left_out)}")
        if self.dropped:
            parts.append(f"{self.dropped} rows without score or label left out")
        return "\n\n".join(parts)


def over_traces(sweep: Sweep) -> bool:
    """Whether a sweep plays traces: a log is a folder, or columns tell them apart."""
    return bool(sweep.each) or any(is_folder(log) for log in sweep.logs)


def are_in(path: str) -> bool:
    """Whether a folder of results is that of a sweep over traces.

    Raises:
        BadInput: it has no manifest.
    """
    found = settings.load_json(Path(path) / "manifest.json")
    return isinstance(found, dict) and "traces" in found


def run_each(sweep: Sweep, *, progress: str = "quiet", save_every: float = 60) -> Traces:
    """Play every trace of the logs of a sweep by itself, and write its folder if it names one.

    Args:
        sweep: what to play; its ``logs`` may be folders, and its ``each`` names columns that tell traces apart.
        progress: as in ``run``.
        save_every: as in ``run``.

    Raises:
        BadInput: a log, a trace or the output folder cannot be used; nothing was written.
    """
    start = settings.now()
    games = plan(sweep)
    with Session.begin(sweep.out, save_every, _about(games, start)) as session:
        return _play(games, session, progress)


def resume_each(
    path: str,
    given: Mapping[str, Any] = run.NOTHING,
    *,
    trust: bool = False,
    progress: str = "quiet",
    save_every: float = 60,
) -> Traces | None:
    """Go on with the traces that have not ended, to the same bits; None if all had, and nothing changes.

    Args:
        path: the folder of the sweep over traces.
        given: as in ``resume``.
        trust: as in ``resume``.
        progress: as in ``run``.
        save_every: as in ``run``.

    Raises:
        BadInput: as in ``resume``.
    """
    games = recall_each(path, given, trust=trust)
    if games is None:
        return None
    about = _about(games, read_manifest(Path(path), TRACES)["start"])
    with Session.again(Path(path), save_every, about) as session:
        return _play(games, session, progress)


def recall_each(path: str, given: Mapping[str, Any] = run.NOTHING, *, trust: bool = False) -> Games | None:
    """What ``resume_each`` would go on with, and its arguments; nothing is played."""
    there = run.unfinished(read_manifest(Path(path), TRACES), path, given)
    if there is None:
        return None
    sweep = Sweep(**(there["configuration"] | {"out": path}))
    run.check_trust(sweep, "resume", trust)
    games = plan(sweep)
    refuse_changes(there, _about(games, there["start"]), "resume")
    return games._replace(games=tuple(map(_recalled, games.games)))


def _recalled(game: Game) -> Game:
    """A trace with the manifest in its folder, if it was begun.

    Raises:
        BadInput: it is that of another sweep.
    """
    out = Path(str(game.prepared.sweep.out))
    if not (out / folder.LAST).exists():
        return game
    there = read_manifest(out)
    refuse_changes(there, run.manifest_of(game.prepared, there["start"]), "resume")
    return game._replace(there=there)


def plan(sweep: Sweep) -> Games:
    """Read all traces of a sweep, and make the sweep of each ready.

    Raises:
        BadInput: a log cannot be used, no log has one of the columns, no trace is long enough, or what is given is
            not for a sweep over traces.
    """
    environment = registry.find("environment", sweep.environment, registry.ENVIRONMENTS, (Oblivious, Adaptive))
    if not isinstance(environment, Oblivious) or environment.sources > 1:
        raise BadInput(f"environment: {sweep.environment} found; traces are played in stochastic or replay")
    if not sweep.logs:
        raise BadInput("logs: none given; traces are those of logs")
    if sweep.shard is not None:
        raise BadInput("shard: given, but all trials of a trace are played in one process")
    traces = [trace for log in sweep.logs for one in files(log) for trace in load_traces(one, sweep, sweep.each)]
    there = {name for trace in traces for name in parse_log(trace.log)[1]}
    for name in sweep.each:
        if name not in there:
            raise BadInput(f"each: no log has a column {name!r}")
    long = [trace for trace in traces if len(trace.records.scores) >= sweep.least]
    if not long:
        raise BadInput(f"least: {sweep.least} found; no trace has as many records with score and label")
    names = _apart((trace.name for trace in long), "{} ({})")
    folders = _apart((_safe(name) for name in names), "{}-{}", OWN)
    games = (
        Game(trace._replace(name=name), place, _prepared(sweep, trace, place))
        for trace, name, place in zip(long, names, folders, strict=True)
    )
    return Games(sweep, tuple(games), len(traces) - len(long))


def describe(games: Games) -> str:
    """What a sweep over traces would take, before it starts."""
    left = [game for game in games.games if not game.ended]
    many, ended = f"{len(games.games):,}{_short(games.sweep, games.left_out)}", len(games.games) - len(left)
    largest = max(left or games.games, key=lambda game: (game.prepared.horizon, len(game.trace.records.scores)))
    many += f", {ended:,} of them played" if ended else ""
    return f"{'traces':<10}{many}; below is the largest, {largest.trace.name}\n{need.describe(largest.prepared)}"


def _short(sweep: Sweep, left_out: int) -> str:
    records = "no record" if sweep.least == 1 else f"fewer than {sweep.least} records"
    return f" ({left_out} with {records} left out)" if left_out else ""


def _apart(names: Iterable[str], numbered: str, taken: Sequence[str] = ()) -> list[str]:
    """Names of which no two are the same in any case of letters, nor as one that is taken: a number follows."""
    there, found = {name.lower() for name in taken}, []
    for name in names:
        new, number = name, 1
        while new.lower() in there:
            number += 1
            new = numbered.format(name, number)
        there.add(new.lower())
        found.append(new)
    return found


def _safe(name: str) -> str:
    """The name of a folder on any system."""
    plain = re.sub(r"[^\w.=,+-]+", "-", name).strip(".-")
    return plain.encode()[:LONGEST].decode(errors="ignore") or "trace"


def _prepared(sweep: Sweep, trace: Trace, place: str) -> Prepared:
    """The sweep of a trace, with its records in memory: as if it were read as the sweep says.

    Raises:
        BadInput: it cannot be played, as a replay of more rounds than it has.
    """
    out = None if sweep.out is None else str(Path(sweep.out) / place)
    one = replace(sweep, logs=(trace.log,), score=trace.score, drop_missing=True, each=(), least=1, out=out)
    return replace(prepare(replace(one, logs=()), [trace.records]), sweep=one)


def _about(games: Games, start: str) -> dict[str, Any]:
    records = described([game.trace.records._replace(name=game.trace.name) for game in games.games])
    traces = [{"folder": game.folder} | one for game, one in zip(games.games, records, strict=True)]
    return manifest_of_traces(games.sweep, traces, run.hashes_of(games.games[0].prepared), start)


def _play(games: Games, session: Session, progress: str) -> Traces:
    """Play the traces that have not ended, and write the table over all."""
    rows, held, many = [], [], len(games.games)
    with Progress(progress, sum(game.prepared.rounds for game in games.games)) as bar:
        for number, game in enumerate(games.games, 1):
            bar.begin(number, many, game.trace.name)
            trials = _trials(game, session.every, bar)
            records, prepared = game.trace.records, game.prepared
            best = {
                alpha: best_coverage(prepared.grid, records.scores, records.errors, alpha)
                for alpha in games.sweep.alphas
            }
            rows += overview.rows_of(game.trace.name, records, best, trials)
            held.append((bool(lemma_holds(trials).all()), bool(risk_holds(trials).all())))
    table, about = tables.frame(rows), {**session.about, "end": settings.now()}
    lemma, risk = (all(each) for each in zip(*held, strict=True))
    dropped = sum(game.trace.records.dropped for game in games.games)
    result = Traces(games.sweep, table, about, lemma, risk, games.left_out, dropped)
    session.close(lambda path: _write(path, table), about)
    return result


def _write(path: Path, table: Table) -> None:
    from exaul.engine.results import figures  # only where something is drawn: it imports matplotlib

    folder.fill(path, {"traces": table}, {"traces": figures.overview(table)})


def _trials(game: Game, save_every: float, bar: Progress) -> Table:
    """The trials of a trace: played from its first round or from its last save, or read where it has ended."""
    prepared, out = game.prepared, str(game.prepared.sweep.out)
    if game.ended:
        bar.update(prepared.rounds)
        return tables.load(Path(out) / "trials.csv")
    about, there = run.manifest_of(prepared, settings.now()), game.there
    begun = run.begun(prepared, about, save_every) if there is None else run.resumed(out, there, about, save_every)
    with begun as session:
        return run.finish(prepared, session, bar.update).trials
