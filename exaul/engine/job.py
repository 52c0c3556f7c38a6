"""Jobs: prepare a sweep, or the rest of an interrupted one, then describe or run it.

Three classes follow the ``Job`` protocol: ``SweepJob`` (below) runs a sweep in this process, ``TracesJob``
(``traces.py``) a sweep over traces, and ``PartsJob`` (``parts.py``) a sweep in parts on an executor. Preparing a
job reads logs and checks the configuration; only ``run`` writes files.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, Self

import jax

from exaul.engine import settings
from exaul.engine.checks import BadInput, quote
from exaul.engine.logs.log import Records, describe_log
from exaul.engine.progress import Progress
from exaul.engine.results import manifest as manifests
from exaul.engine.results.counts import Counts
from exaul.engine.results.manifest import check_unchanged, engine_hash, module_hash, read_manifest
from exaul.engine.results.result import Result, tabulate
from exaul.engine.results.run_folder import RunFolder
from exaul.engine.simulation import resources, units
from exaul.engine.simulation.prepare import Prepared, prepare
from exaul.engine.simulation.resources import largest_batch, split_trials
from exaul.engine.sweep import Sweep
from exaul.kernels.learners.start import fitted_share

NO_FIELDS: Mapping[str, Any] = MappingProxyType({})


class Job(Protocol):
    """Prepared work.

    Each kind also has two class methods, whose arguments differ. ``begin`` prepares a job from a configuration.
    ``resume`` prepares it from the manifest in a folder, or returns None if that run has finished.
    """

    def describe(self) -> str:
        """Return the memory and disk that the job needs, as text, without running it."""

    def run(self, *, progress: str = "quiet", save_every: float = 60) -> Any:
        """Run the job, write its folder if it names one, and return its result."""


@dataclass(frozen=True, kw_only=True)
class FolderJob:
    """Base of all jobs: a manifest, and a folder that is new or holds an interrupted run."""

    manifest: dict[str, Any]
    resumed: bool = False

    def continued(self, saved: Mapping[str, Any], field: str = "resume") -> Self:
        """Continue the run of a saved manifest; BadInput if something that results depend on has changed."""
        check_unchanged(saved, self.manifest, field)
        kept = {name: saved[name] for name in ("start", "batch") if name in saved}
        return replace(self, manifest=self.manifest | kept, resumed=True)

    def open(self, save_every: float) -> AbstractContextManager[RunFolder]:
        """Open the folder of the job, new or interrupted."""
        return RunFolder.open(self.manifest["configuration"]["out"], self.manifest, save_every, self.resumed)


@dataclass(frozen=True)
class SweepJob(FolderJob):
    """A sweep in this process."""

    prepared: Prepared

    @classmethod
    def begin(cls, sweep: Sweep, records: Sequence[Records] | None = None) -> Self:
        """Prepare a sweep; ``records`` in memory replace its logs or sources."""
        return cls.of(settings.timestamp(), prepare(sweep, records))

    @classmethod
    def resume(cls, path: str, given: Mapping[str, Any] = NO_FIELDS, *, trust: bool = False) -> Self | None:
        """Prepare the rest of an interrupted sweep."""
        saved = unfinished(path, given)
        return None if saved is None else cls.begin(sweep_of(saved, path, "resume", trust)).continued(saved)

    @classmethod
    def of(cls, start: str, prepared: Prepared) -> Self:
        """Return the job of a prepared sweep that starts at the given time."""
        return cls(prepared, manifest=manifest_of(prepared, start) | {"batch": largest_batch(prepared)})

    def describe(self) -> str:
        """Return the memory and disk that the sweep needs."""
        return resources.describe(self.prepared)

    def run(self, *, progress: str = "quiet", save_every: float = 60) -> Result:
        """Run the sweep."""
        with self.open(save_every) as folder, Progress(progress, self.prepared.rounds) as bar:
            return self.finish(folder, bar.update)

    def finish(self, folder: RunFolder, report: Callable[[int], object], with_figures: bool = True) -> Result:
        """Simulate the rest of the sweep, and write its results; arguments as in ``simulate`` and ``write``."""
        prepared, counted = self.prepared, self.simulate(folder, report)
        manifest = self.manifest | {"end": settings.timestamp()}
        result = tabulate(prepared.sweep, counted, prepared.records, manifest, prepared.sources)
        folder.close(lambda path: result.write(path, counted, with_figures), result.manifest)
        return result

    def simulate(self, folder: RunFolder, report: Callable[[int], object]) -> Counts:
        """Simulate the rest of the sweep; ``report`` receives the rounds of all copies since its last call."""
        with jax.enable_x64(True):
            return units.simulate_sweep(
                self.prepared, split_trials(self.prepared, self.manifest["batch"]), folder, report
            )


def unfinished(
    path: str, given: Mapping[str, Any], kinds: Mapping[str, tuple[type, ...]] = manifests.KINDS
) -> dict[str, Any] | None:
    """Return the manifest of an interrupted run, or None if the run has finished.

    Args:
        path: the folder of the run.
        given: fields of the sweep by name; they must equal those of the manifest.
        kinds: fields that the manifest must have, and their types.

    Raises:
        BadInput: the manifest is missing, or differs from a given value.
    """
    saved = read_manifest(Path(path), kinds)
    if "out" in given:
        raise BadInput("out: given together with resume, which names the folder")
    wanted = Sweep(**given)
    for name in given:
        wanted_value, saved_value = settings.round_trip_json(getattr(wanted, name)), saved["configuration"][name]
        if wanted_value != saved_value:
            raise BadInput(f"resume: {name} is {quote(wanted_value)} here, {quote(saved_value)} in {path}")
    return saved if saved["end"] is None else None


def sweep_of(saved: Mapping[str, Any], out: str | None, field: str, trust: bool) -> Sweep:
    """Return the sweep of a manifest, with folder ``out``; BadInput if it names user modules, unless ``trust``."""
    sweep = Sweep(**(saved["configuration"] | {"out": out}))
    foreign = [name for name in (sweep.environment, *sweep.learners) if ":" in name]
    if foreign and not trust:
        raise BadInput(f"{field}: the manifest names {', '.join(foreign)}, whose code would run; --trust allows it")
    return sweep


def manifest_of(prepared: Prepared, start: str) -> dict[str, Any]:
    """Return the manifest of a sweep on this machine, without its batch size."""
    segments = getattr(prepared.environment, "segments", 1)
    players = [
        {
            "learner": player.name,
            "backend": player.backend.name,
            "feedback": player.learner.feedback,
            "bound_by_answers": player.bound_by_answers(len(prepared.grid), prepared.horizon),
        }
        for player in prepared.players
    ]
    return manifests.sweep_manifest(
        prepared.sweep,
        warm_start=_describe_log(prepared),
        horizon=prepared.horizon,
        segments=segments,
        players=players,
        records=prepared.records,
        sources=hashes_of(prepared),
        start=start,
    )


def _describe_log(prepared: Prepared) -> dict[str, Any] | None:
    """Return the log from which learners start, and the first share of those that fit one, by alpha; or None."""
    if prepared.log is None:
        return None
    shares = {
        player.name: dict(zip(map(str, prepared.alpha), share.tolist(), strict=True))
        for player in prepared.players
        if (share := fitted_share(player.learner.rule, player.first[0])) is not None
    }
    return describe_log(prepared.log) | {"shares": shares}


def hashes_of(prepared: Prepared) -> dict[str, str]:
    """Return hashes of the sources of exaul and of the sweep's user modules, by name."""
    names = prepared.sweep.environment, *(player.name for player in prepared.players)
    return {"exaul": engine_hash()} | {name: module_hash(name) for name in names if ":" in name}
