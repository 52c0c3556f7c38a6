"""The verbs: run a sweep, resume one that was interrupted, rerun one from its manifest, merge its shards."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax

from exaul.engine.checks import BadInput, shown
from exaul.engine.data import settings, sources
from exaul.engine.data.records import Records
from exaul.engine.data.tables import Table
from exaul.engine.machine.progress import Progress
from exaul.engine.play.need import batch, batches
from exaul.engine.play.prepare import Prepared, prepare
from exaul.engine.play.units import play
from exaul.engine.results import counts, folder, sealed, summary
from exaul.engine.results.counts import Counts
from exaul.engine.results.manifest import difference, manifest, read_manifest, refuse_changes
from exaul.engine.results.session import Session
from exaul.engine.results.trials import asked_table, curves_table, lemma_holds, risk_holds, trials_table
from exaul.engine.sweep import Sweep

NOTHING: Mapping[str, Any] = MappingProxyType({})  # was given


class Mismatch(ValueError):
    """Shards that are not the parts of one sweep; the sentence says why."""


@dataclass(frozen=True)
class Result:
    """What a sweep showed.

    ``trials`` has one row per learner, alpha, lambda and trial; ``curves`` one row per learner, alpha, lambda and
    checkpoint; ``asked`` the same of what a world that answers back asked, None elsewhere; ``docs/tables.md`` says
    what their columns mean. ``manifest`` is what it takes to run it again; ``records`` are the logs or profiles.
    """

    sweep: Sweep
    trials: Table
    curves: Table
    asked: Table | None
    manifest: dict[str, Any]
    records: tuple[Records, ...]

    def write(self, path: Path, counted: Counts) -> None:
        """Write tables and figures into a folder that exists, and of a shard the counts that are merged."""
        from exaul.engine.results import figures  # only where something is drawn: it imports matplotlib

        drawn = figures.draw(self.trials, self.curves, self.manifest["segments"])
        tabled = {"trials": self.trials, "curves": self.curves}
        if self.asked is not None:
            tabled |= {"asked": self.asked}
            drawn |= {"asked": figures.asked(self.asked)}
        folder.fill(path, tabled, drawn)
        if self.sweep.shard is not None:
            with (path / "counts.npz").open("wb") as stream:
                sealed.write(stream, counts.arrays(counted), self.manifest)

    @property
    def lemma_holds(self) -> bool:
        """Whether Lemma 1 held in every trial; if not, the accounting is wrong."""
        return bool(lemma_holds(self.trials).all())

    @property
    def risk_holds(self) -> bool:
        """Whether R_T was within the bound of every learner that has one, in every trial."""
        return bool(risk_holds(self.trials).all())

    def _played(self) -> list[Records]:
        """The records, of a log in its own order only those that were reached."""
        reached = slice(self.manifest["horizon"] if self.sweep.environment == "replay" else None)
        return [r._replace(scores=r.scores[reached], errors=r.errors[reached]) for r in self.records]

    def summary(self) -> str:
        """The numbers that matter, as text."""
        sweep = self.sweep
        dropped = [f"{r.name}: {r.dropped} rows without score or label left out" for r in self.records if r.dropped]
        feasible, answerable = "", dict[float, float]()
        if self.asked is None:  # else the world asks what it likes, and no threshold is known to be best
            feasible = summary.feasibility(self.records, sweep.grid, sweep.arms, sweep.alphas)
            more = sweep.grid, sweep.arms, self.manifest["segments"], sweep.alphas
            answerable = summary.shares_answerable(self._played(), *more)
        feedback = {player["learner"]: player["feedback"] for player in self.manifest["players"]}
        parts = [
            summary.summarize(self.trials, answerable),
            summary.explain(self.trials, sweep.delta),
            summary.heard(self.trials),
            feasible,
            summary.advise(self.trials, answerable, feedback),
            *dropped,
        ]
        return "\n\n".join(part for part in (*parts, summary.played_on(self.manifest)) if part)


def run(
    sweep: Sweep, records: Sequence[Records] | None = None, *, progress: str = "quiet", save_every: float = 60
) -> Result:
    """Play a sweep, and write its folder if it names one.

    Args:
        sweep: what to play.
        records: in memory, instead of the sweep's logs or sources, in their order.
        progress: what is reported on stderr: ``bar``, ``json`` (a line now and then) or ``quiet``.
        save_every: seconds between saves of the state, from which ``resume`` goes on.

    Raises:
        BadInput: a log or the output folder cannot be used; nothing was written.
    """
    start = settings.now()
    prepared = prepare(sweep, records)
    return _play(prepared, begun(prepared, manifest_of(prepared, start), save_every), progress)


def resume(
    path: str,
    given: Mapping[str, Any] = NOTHING,
    *,
    trust: bool = False,
    progress: str = "quiet",
    save_every: float = 60,
) -> Result | None:
    """Go on with a sweep that was interrupted, to the same bits; None if it had ended, and nothing changes.

    Args:
        path: the folder that it writes to.
        given: values of fields of the sweep, by name, which must be those of the folder.
        trust: whether modules that its manifest names may be imported.
        progress: as in ``run``.
        save_every: as in ``run``.

    Raises:
        BadInput: there is no sweep, another process plays it, or something that its bits depend on has changed: its
            configuration, a log, a version, the source of exaul or of a module of one's own.
    """
    there = unfinished(read_manifest(Path(path)), path, given)
    if there is None:
        return None
    prepared, about = recalled(there, path, "resume", trust)
    return _play(prepared, resumed(path, there, about, save_every), progress)


def recall(path: str, given: Mapping[str, Any] = NOTHING, *, trust: bool = False) -> Prepared | None:
    """What ``resume`` would go on with, and its arguments; nothing is played."""
    there = unfinished(read_manifest(Path(path)), path, given)
    return None if there is None else recalled(there, path, "resume", trust)[0]


def rerun(
    path: str,
    out: str | None = None,
    *,
    trust: bool = False,
    progress: str = "quiet",
    save_every: float = 60,
) -> Result:
    """Play the sweep of a folder again, to the same bits.

    Args:
        path: the folder with its manifest.
        out: where it is written this time, or None.
        trust: as in ``resume``.
        progress: as in ``run``.
        save_every: as in ``run``.

    Raises:
        BadInput: there is no sweep, or something that its bits depend on has changed; or the folder for the results
            cannot be used.
    """
    prepared, about = recalled(read_manifest(Path(path)), out, "rerun", trust)
    return _play(prepared, begun(prepared, about, save_every), progress)


def merge(paths: Sequence[str], out: str | None = None) -> Result:
    """Join the shards of a sweep, in any order.

    Args:
        paths: the folders of all its shards.
        out: folder for the whole, or None.

    Raises:
        BadInput: a folder has no finished shard, or the output folder cannot be used.
        Mismatch: the shards differ in more than their trials, overlap, or leave a hole.
    """
    shards = []
    for path in map(Path, paths):
        about = read_manifest(path)
        if about.get("end") is None:
            raise BadInput(f"{path}: not finished; go on with: exaul sweep --resume {path}")
        shards.append((path, about, _counts(path / "counts.npz", about)))
    result, joined = joined_of(shards, (), out)
    if out is not None:
        with folder.filling(folder.claim(out)) as path:
            result.write(path, joined)
            settings.save_json(result.manifest, path / "manifest.json")
    return result


def joined_of(
    shards: Sequence[tuple[Path, dict[str, Any], Counts]], records: Sequence[Records], out: str | None
) -> tuple[Result, Counts]:
    """The whole sweep from its shards, in any order: where each was, its manifest and its counts.

    Raises:
        Mismatch: the shards differ in more than their trials, overlap, or leave a hole.
    """
    shards = sorted(shards, key=lambda shard: int(shard[2].trials[0]))
    first, about, _ = shards[0]
    for path, other, _ in shards[1:]:
        differs = difference(about, other, besides=("out", "shard", "logs"))
        if differs is not None:
            name, here, there = differs
            raise Mismatch(f"{name} is {shown(there)} in {path}, {shown(here)} in {first}")
    trials = about["configuration"]["trials"]
    reached = 0
    for path, _, counted in shards:
        start, end = int(counted.trials[0]), int(counted.trials[-1]) + 1
        if start != reached:
            what = "is missing" if start > reached else "is there twice"
            raise Mismatch(f"trial {min(start, reached)} {what} ({path} has {start} to {end - 1})")
        reached = end
    if reached != trials:
        raise Mismatch(f"trial {reached} is missing (the sweep has 0 to {trials - 1})")
    whole = about | {
        "configuration": about["configuration"] | {"shard": None, "out": out},
        "batch": max(other["batch"] for _, other, _ in shards),
        "start": min(other["start"] for _, other, _ in shards),
        "end": max(other["end"] for _, other, _ in shards),
    }
    joined = counts.join((counted for _, _, counted in shards), trials)
    return result_of(Sweep(**whole["configuration"]), joined, records, whole), joined


def _counts(path: Path, about: Mapping[str, Any]) -> Counts:
    """The counts that a shard left.

    Raises:
        BadInput: there are none, or they are those of another sweep than its manifest's.
    """
    found = sealed.load(path, about)
    if found is None:
        raise BadInput(f"{path}: no such file; only a sweep with --shard leaves it")
    return counts.from_arrays(found)


def unfinished(there: dict[str, Any], path: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """The manifest of a folder whose sweep was interrupted; None if it had ended.

    Raises:
        BadInput: a value that was given is not that of the manifest.
    """
    if "out" in given:
        raise BadInput("out: given together with resume, which names the folder")
    wanted = Sweep(**given)
    for name in given:
        here, saved = settings.as_json(getattr(wanted, name)), there["configuration"][name]
        if here != saved:
            raise BadInput(f"resume: {name} is {shown(here)} here, {shown(saved)} in {path}")
    return None if there["end"] is not None else there


def check_trust(sweep: Sweep, field: str, trust: bool) -> None:
    """Refuse to import modules that a manifest names, unless it is trusted.

    Raises:
        BadInput: it names some, and is not.
    """
    foreign = [name for name in (sweep.environment, *sweep.learners) if ":" in name]
    if foreign and not trust:
        raise BadInput(f"{field}: the manifest names {', '.join(foreign)}, whose code would run; --trust allows it")


def recalled(there: Mapping[str, Any], out: str | None, field: str, trust: bool) -> tuple[Prepared, dict[str, Any]]:
    """The sweep of a manifest, made ready, and its manifest here and now.

    Raises:
        BadInput: what the bits depend on differs; the sentence says what. Or a module would be imported that is not
            trusted.
    """
    sweep = Sweep(**(there["configuration"] | {"out": out}))
    check_trust(sweep, field, trust)
    prepared = prepare(sweep)
    about = manifest_of(prepared, settings.now())
    refuse_changes(there, about, field)
    return prepared, about


def manifest_of(prepared: Prepared, start: str) -> dict[str, Any]:
    """The manifest of a sweep here and now, but for its batch."""
    segments = getattr(prepared.environment, "parts", 1)
    players = [
        {"learner": player.name, "backend": player.backend.name, "feedback": player.learner.feedback}
        for player in prepared.players
    ]
    hashes = hashes_of(prepared)
    return manifest(prepared.sweep, prepared.horizon, segments, players, prepared.records, hashes, start)


def hashes_of(prepared: Prepared) -> dict[str, str]:
    """Hashes of the source of exaul, and of each module of one's own that is played, by its name."""
    names = prepared.sweep.environment, *(player.name for player in prepared.players)
    return {"exaul": sources.own()} | {name: sources.of(name) for name in names if ":" in name}


def begun(prepared: Prepared, about: dict[str, Any], save_every: float) -> AbstractContextManager[Session]:
    """The session of a sweep from its first round, in a folder of its own if it names one."""
    return Session.begin(prepared.sweep.out, save_every, about | {"batch": batch(prepared)})


def resumed(
    path: str, there: Mapping[str, Any], about: dict[str, Any], save_every: float
) -> AbstractContextManager[Session]:
    """The session of a sweep that goes on in its folder, where it has a manifest."""
    return Session.again(Path(path), save_every, about | {key: there[key] for key in ("start", "batch")})


def _play(prepared: Prepared, session: AbstractContextManager[Session], progress: str) -> Result:
    with session as opened, Progress(progress, prepared.rounds) as bar:
        return finish(prepared, opened, bar.update)


def finish(prepared: Prepared, session: Session, report: Callable[[int], object]) -> Result:
    """Play what is left of a sweep, and write its results.

    Args:
        prepared: the sweep.
        session: of its folder.
        report: is called with rounds, of all copies, that were played.
    """
    counted = counted_of(prepared, session, report)
    result = result_of(prepared.sweep, counted, prepared.records, {**session.about, "end": settings.now()})
    session.close(lambda path: result.write(path, counted), result.manifest)
    return result


def counted_of(prepared: Prepared, session: Session, report: Callable[[int], object]) -> Counts:
    """Play what is left of a sweep; what it counted."""
    with jax.enable_x64(True):
        return play(prepared, batches(prepared, session.about["batch"]), session, report)


def result_of(sweep: Sweep, counted: Counts, records: Sequence[Records], about: dict[str, Any]) -> Result:
    """The tables of what was played."""
    tables = trials_table(counted), curves_table(counted), asked_table(counted)
    return Result(sweep, *tables, about, tuple(records))
