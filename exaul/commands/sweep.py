"""``exaul sweep``; ``merge``, ``rerun`` and ``figures`` of finished sweeps; ``profiles``."""

import sys
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from exaul.commands.flags import Command, fields_given
from exaul.commands.terminal import refuse, show, terminal_width
from exaul.engine.checks import (
    BadInput,
    Configuration,
    check_count,
    check_holds,
    check_known,
    check_not_negative,
    setting,
)
from exaul.engine.executors import BatchFailed, Mismatch, on_dask, on_ray
from exaul.engine.logs.profiles import PROFILES, load_profile
from exaul.engine.progress import MODES
from exaul.engine.results.text_table import format_table
from exaul.engine.sweep import Sweep

BATCHES_PER_WORKER = 4  # few workers are idle at the end, and repeating a lost batch is cheap


class SummaryFlags(Configuration):
    """What the summary shows. Every field is a flag of all commands that print it."""

    theory: bool = setting(False, "also print R_T, regrets, bounds and Lemma 1")


class SweepFlags(SummaryFlags):
    """How a sweep is run. Every field is a flag of ``exaul sweep``; none changes its results."""

    ray: str | None = setting(None, "run on a Ray cluster: auto, or HOST:PORT", "ADDRESS")
    dask: str | None = setting(None, "run on a Dask cluster: local, or the address of its scheduler", "ADDRESS")
    resume: str | None = setting(None, "continue the interrupted sweep in this folder", "DIR")
    save_every: float = setting(60.0, "seconds between saves of the state in --out", "SECONDS")
    batches: int | None = setting(
        None,
        "least number of batches of the trials (default: as few as fit the memory; on a cluster four per worker)",
        "N",
    )
    dry_run: bool = setting(False, "print the memory and disk space that the sweep needs, without running it")
    progress: str = setting("bar", "progress on stderr: bar, json (one line at intervals) or quiet", "NAME")
    trust: bool = setting(False, "with --resume: import the modules that its manifest names; this runs their code")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative("save_every", self.save_every)
        check_known("progress", (self.progress,), MODES)
        check_count("batches", self.batches)
        if self.ray is not None and self.dask is not None:
            raise BadInput("ray: given together with dask; choose one of the two")

    @property
    def cluster(self) -> str:
        """The flag that names the cluster, with its value; empty if none is named."""
        return f"--dask {self.dask}" if self.dask else f"--ray {self.ray}" if self.ray else ""

    def workers(self) -> AbstractContextManager[tuple[Executor | None, int]]:
        """Return a context: the executor of the cluster, or None, and how many calls it runs at once."""
        if self.dask is not None:
            return on_dask(self.dask)
        return nullcontext((None, 0)) if self.ray is None else on_ray(self.ray)


class Merge(SummaryFlags):
    """The shards to join. Every field is a flag of ``exaul merge``."""

    shards: tuple[str, ...] = setting(MISSING, "folders of all shards of a sweep, in any order", "DIR")
    out: str | None = setting(None, "folder (absent or empty) for tables, figures and manifest", "DIR")


class Rerun(SummaryFlags):
    """The sweep to run again. Every field is a flag of ``exaul rerun``."""

    manifest: str = setting(MISSING, "manifest.json of a sweep", "DIR/manifest.json")
    out: str | None = setting(None, "folder (absent or empty) for tables, figures and manifest", "DIR")
    trust: bool = setting(False, "import the modules that the manifest names; this runs their code")


class Figures(Configuration):
    """The sweep to draw. Every field is a flag of ``exaul figures``."""

    folder: str = setting(MISSING, "folder of a finished sweep", "DIR")
    width: float = setting(
        6.4, "width of a figure, such as 3.3 for one column of a paper; of one panel, at most 3.3", "INCHES"
    )
    out: str | None = setting(
        None, "folder (absent or empty) for the figures and a table.tex of what is chosen", "DIR"
    )
    learners: tuple[str, ...] = setting(
        (), "learners to draw (default: all); 'ew, eta x 4', as in figures, is one at a rate", "NAME"
    )
    alphas: tuple[float, ...] = setting((), "target FDRs to draw", "ALPHA")
    lambdas: tuple[float, ...] = setting((), "lambdas to draw", "LAMBDA")
    eta_scales: tuple[float, ...] = setting((), "factors of eta and gamma to draw", "X")
    gamma_scales: tuple[float, ...] = setting((), "factors of gamma to draw", "X")
    steps: tuple[float, ...] = setting((), "steps to draw", "STEP")

    def __post_init__(self) -> None:
        check_holds("width", self.width, 2 <= self.width <= 40, "from 2 to 40 inches")
        if self.out is None and self.chosen:
            raise BadInput(f"{', '.join(self.chosen)}: given without --out DIR, the folder for what is chosen")

    @property
    def chosen(self) -> dict[str, tuple[Any, ...]]:
        """The fields that choose rows, if they are given."""
        names = "learners", "alphas", "lambdas", "eta_scales", "gamma_scales", "steps"
        return {name: getattr(self, name) for name in names if getattr(self, name)}


def sweep(arguments: Mapping[str, Any]) -> int:
    """Run a sweep, or continue an interrupted one, and print its summary."""
    flags, fields = SweepFlags(**fields_given(SweepFlags, arguments)), fields_given(Sweep, arguments)
    config = Sweep(**fields)
    from exaul.engine import machine, run
    from exaul.kernels.native import store

    machine.use_compilation_cache()
    path = flags.resume
    prepared = (
        run.prepare_sweep(config, hashed=bool(flags.cluster))
        if path is None
        else run.prepare_resumed(path, fields, flags.trust)
    )
    if prepared is None:
        print(f"{path}: finished; nothing to resume")
        return 0
    if flags.dry_run:
        show(run.describe_sweep_needs(prepared))
        return 0
    with flags.workers() as (executor, workers):
        batches = flags.batches or (BATCHES_PER_WORKER * workers or None)
        if flags.progress == "bar" and sys.stderr.isatty() and store.is_empty():
            print("exaul: the first sweep compiles, some 15 seconds; later ones do not", file=sys.stderr)
        try:
            result = run.run_prepared(prepared, executor, batches, flags.progress, flags.save_every)
        except (Mismatch, BatchFailed) as error:
            cluster = f" {flags.cluster}" if flags.cluster and (config.out or path) else ""
            return refuse("exaul", f"{error}{cluster}", 1)
    return print_report(result, flags.theory)


def merge(arguments: Mapping[str, Any]) -> int:
    """Join the shards of a sweep, and print its summary. Return 1 if they do not belong to one sweep."""
    from exaul.engine import run

    config = Merge(**arguments)
    try:
        result = run.merge(config.shards, config.out)
    except Mismatch as error:
        return refuse("exaul", str(error), 1)
    return print_report(result, config.theory)


def rerun(arguments: Mapping[str, Any]) -> int:
    """Run the sweep of a manifest again, and print its summary."""
    from exaul.engine import machine, run

    config = Rerun(**arguments)
    machine.use_compilation_cache()
    path = Path(config.manifest)
    folder = path.parent if path.name == "manifest.json" else path
    result = run.rerun(str(folder), config.out, progress="bar", trust=config.trust)
    return print_report(result, config.theory)


def print_report(result: Any, theory: bool) -> int:
    """Print the summary of a result. Return 1 if a proven inequality is violated, else 0."""
    from exaul.engine.results.summary import describe_checks

    out, hint, unused = result.sweep.out, "", ""
    if result.traces is not None:
        unused = "--theory: over traces no regrets are printed; traces.csv has them" * theory
    elif not theory:
        hint = "; --theory prints regrets and bounds"
    saved = f"nothing is saved without --out DIR{hint}" if out is None else f"tables, figures and manifest: {out}"
    show(result.summary(terminal_width(), theory), unused, saved)
    if result.lemma_holds and result.risk_holds:
        return 0
    reason = "this is a bug in exaul (please report it), or a bound of your own learner is false"
    print(f"{describe_checks(result.trials, result.sweep.delta)}: {reason}", file=sys.stderr)
    return 1


def figures(arguments: Mapping[str, Any]) -> int:
    """Draw all figures of a sweep again, or those of some of its learners and cells, from its tables."""
    from exaul.engine.results.result import redraw

    config = Figures(**arguments)
    redraw(Path(config.folder), config.width, config.out, config.chosen)
    print(f"figures: {config.out or config.folder}")
    return 0


def profiles(arguments: Mapping[str, Any]) -> int:
    """Print the built-in profiles."""
    rows = []
    for name in PROFILES:
        records = load_profile(name)
        row = {"profile": name, "error rate": f"{records.errors.mean():.3f}", "records": f"{len(records.scores)}"}
        rows.append(row | {"ties at 1": f"{(records.scores == 1).mean():.3f}"})
    descriptions = [f"{name}: {profile.description}" for name, profile in PROFILES.items()]
    show(format_table(rows, terminal_width()), "\n".join(descriptions))
    return 0


COMMANDS = {
    "sweep": Command((Sweep, SweepFlags), sweep),
    "merge": Command((Merge,), merge),
    "rerun": Command((Rerun,), rerun),
    "figures": Command((Figures,), figures),
    "profiles": Command((), profiles),
}
