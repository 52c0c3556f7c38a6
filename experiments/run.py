"""Experiments are played, or read from an earlier report; then figures and claims are made from their tables."""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
from tqdm import tqdm

from exaul import Result, Sweep, run
from exaul.engine import registry
from exaul.engine.checks import BadInput
from exaul.engine.data import settings, tables
from exaul.engine.data.profiles import PROFILES
from exaul.engine.data.records import Records
from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.results import folder as folders
from exaul.engine.results.manifest import described, device, versions
from experiments import worlds
from experiments.experiment import Claim, Experiment, Tables, tabled
from experiments.paper import Paper
from experiments.registry import EXPERIMENTS
from experiments.report import claims_table, page


def find(name: str) -> Experiment:
    """The experiment of a name."""
    return registry.load(EXPERIMENTS[name].place)


class Play:
    """Plays experiments for their tables; a sweep that several of them share is played once."""

    def __init__(self, paper: Paper) -> None:
        """Read the records.

        Raises:
            BadInput: a log cannot be used.
        """
        self.paper, self.records = paper, paper.load()
        self.played: dict[Any, Result] = {}
        self.seen: dict[str, Records] = {}  # logs and profiles that were played, but no sources made from them
        self.seconds: dict[str, float] = {}

    def about(self) -> dict[str, Any]:
        """All that is needed to run this again, and how long it took."""
        seen = list(self.seen.values())
        rates = [{"error_rate": float(records.errors.mean())} for records in seen]
        return {
            "configuration": asdict(self.paper) | {"out": None, "redraw": None},
            "records": [one | rate for one, rate in zip(described(seen), rates, strict=True)],
            "versions": versions(),
            "device": device(),
            "seconds": self.seconds,
        }

    def tables(self, name: str) -> Tables:
        """The tables of an experiment."""
        start = time.perf_counter()
        parts = find(name).parts(self.paper, self.records)
        results = [self._run(sweep, records) for sweep, records in parts]
        for one in (one for part in parts for one in part.records):
            if one.name in PROFILES or one.sha256 is not None:
                self.seen[one.name] = one
        self.seconds[name] = time.perf_counter() - start
        return tabled(parts, results)

    def _run(self, sweep: Sweep, records: Sequence[Records]) -> Result:
        key = sweep, tuple(one.content() for one in records)
        if key not in self.played:
            self.played[key] = run(sweep, records)
            if self.paper.data is not None and isinstance(worlds.environment(sweep.environment), Adaptive):
                jax.clear_caches()  # no other log can use these programs, and too many of them crash the process
        return self.played[key]


class Redraw:
    """Reads the tables of an earlier report, to draw it again."""

    def __init__(self, folder: Path) -> None:
        """Look into the folder of a report.

        Raises:
            BadInput: there is no report in it.
        """
        self.folder = folder
        try:
            self.saved = settings.load_json(folder / "manifest.json")
        except BadInput as error:
            raise BadInput(f"redraw: {folder} holds no report ({error})") from error

    def about(self) -> dict[str, Any]:
        """The manifest of the earlier report."""
        return self.saved

    def tables(self, name: str) -> Tables:
        """The tables of an experiment, as ``save`` wrote them."""
        return read(self.folder / name)


def save(tabled: Tables, folder: Path) -> None:
    """Write the tables of an experiment."""
    folder.mkdir()
    folders.fill(folder, {name: table for name, table in tabled._asdict().items() if table is not None}, {})


def read(folder: Path) -> Tables:
    """The tables of an experiment, as ``save`` wrote them.

    Raises:
        BadInput: one is missing or cannot be read.
    """
    trials, curves, coverage = (tables.load(folder / f"{name}.csv") for name in ("trials", "curves", "coverage"))
    asked = folder / "asked.csv"
    return Tables(trials, curves, coverage, tables.load(asked) if asked.exists() else None)


def play(paper: Paper, names: Sequence[str]) -> dict[str, list[Claim]]:
    """Run some experiments, and write their report if the configuration names a folder for it.

    Returns:
        The claims of each.

    Raises:
        BadInput: a log or a folder cannot be used; nothing was written.
    """
    source = Play(paper) if paper.redraw is None else Redraw(Path(paper.redraw))
    wanted = None if paper.out is None else folders.claim(paper.out)
    claims: dict[str, list[Claim]] = {}
    derived: dict[str, dict[str, tables.Table]] = {}
    with nullcontext() if wanted is None else folders.filling(wanted) as folder:
        bar = tqdm(names, unit=" experiments", disable=None)
        for name in bar:
            bar.set_description(name)
            experiment, found = find(name), source.tables(name)
            if folder is not None:
                save(found, folder / name)
                found = read(folder / name)
            claims[name], derived[name] = list(experiment.claims(found)), dict(experiment.derived(found))
            if folder is not None:
                folders.fill(folder / name, derived[name], experiment.figures(found))
        if folder is not None:
            about = source.about()
            settings.save_json(about, folder / "manifest.json")
            tables.save(claims_table(claims), folder / "claims.csv")
            chosen = {name: find(name) for name in names}
            (folder / "index.html").write_text(page(folder, chosen, claims, derived, about), encoding="utf-8")
    return claims
