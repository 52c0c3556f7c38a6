"""Experiments are played, or read from an earlier report; then drawn, and their claims held to the tables."""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
from tqdm import tqdm

from engine import output, run, tables
from engine.environments import ENVIRONMENTS
from engine.environments.adaptive import Adaptive
from engine.errors import BadInput
from engine.sources import PROFILES, Records
from engine.sweep import Result
from experiments import alpha, beyond, bounds, long, reactive, regret, scores, shift, stochastic, weight
from experiments.paper import Claim, Experiment, Paper, Tables, tabled
from experiments.report import claims_table, page

EXPERIMENTS: dict[str, Experiment] = {
    "stochastic-easy": stochastic.easy,
    "stochastic-hard": stochastic.hard,
    "scores": scores.scores,
    "single-shift": shift.single,
    "alternating-shift": shift.alternating,
    "gradual-shift": shift.gradual,
    "alpha-stochastic": alpha.stochastic,
    "alpha-shift": alpha.shift,
    "lambda": weight.weight,
    "long-stochastic": long.stochastic,
    "long-shift": long.shift,
    "regret": regret.regret,
    "adversary": reactive.adversary,
    "interactive": reactive.interactive,
    "bounds": bounds.bounds,
    "beyond": beyond.beyond,
}


class Play:
    """Where tables come from when experiments are played; a sweep that several share is played once."""

    def __init__(self, paper: Paper) -> None:
        """Read the records.

        Raises:
            BadInput: a log cannot be used.
        """
        self.paper, self.records = paper, paper.load()
        self.played: dict[Any, Result] = {}
        self.seen: dict[str, Records] = {}  # logs and profiles that were played, without what was made of them
        self.seconds: dict[str, float] = {}

    def about(self) -> dict[str, Any]:
        """What it takes to run this again, and how long it took."""
        seen = list(self.seen.values())
        described = output.described(seen)
        rates = [{"error_rate": float(records.errors.mean())} for records in seen]
        return {
            "configuration": asdict(self.paper) | {"out": None, "redraw": None},
            "records": [one | rate for one, rate in zip(described, rates, strict=True)],
            "versions": output.versions(),
            "device": output.device(),
            "seconds": self.seconds,
        }

    def tables(self, name: str) -> Tables:
        """The tables of an experiment."""
        start = time.perf_counter()
        parts = EXPERIMENTS[name].parts(self.paper, self.records)
        results = [self._run(sweep, records) for sweep, records in parts]
        for one in (one for part in parts for one in part.records):
            if one.name in PROFILES or one.sha256 is not None:
                self.seen[one.name] = one
        self.seconds[name] = time.perf_counter() - start
        return tabled(parts, results)

    def _run(self, sweep: Any, records: Sequence[Records]) -> Result:
        key = sweep, tuple(one.name for one in records)
        if key not in self.played:
            self.played[key] = run(sweep, records)
            if self.paper.data is not None and isinstance(ENVIRONMENTS[sweep.environment], Adaptive):
                jax.clear_caches()  # each pair of logs has its own, and too many maps are a segfault
        return self.played[key]


class Redraw:
    """Where tables come from when an earlier report is drawn again."""

    def __init__(self, folder: Path) -> None:
        """Look into the folder of a report.

        Raises:
            BadInput: it is none.
        """
        self.folder = folder
        try:
            self.saved = tables.load_json(folder / "manifest.json")
        except BadInput as error:
            raise BadInput(f"redraw: {folder} holds no report ({error})") from error

    def about(self) -> dict[str, Any]:
        """The manifest of the earlier report."""
        return self.saved

    def tables(self, name: str) -> Tables:
        """The tables of an experiment, as ``saved`` wrote them."""
        return read(self.folder / name)


def save(tabled: Tables, folder: Path) -> None:
    """Write the tables of an experiment."""
    folder.mkdir()
    output.fill(folder, {name: table for name, table in tabled._asdict().items() if table is not None}, {})


def read(folder: Path) -> Tables:
    """The tables of an experiment, as ``save`` wrote them.

    Raises:
        BadInput: one is missing or cannot be read.
    """
    trials, curves, coverage = (tables.load(folder / f"{name}.csv") for name in ("trials", "curves", "coverage"))
    asked = folder / "asked.csv"
    return Tables(trials, curves, coverage, tables.load(asked) if asked.exists() else None)


def play(paper: Paper, names: Sequence[str]) -> dict[str, list[Claim]]:
    """Run some experiments, and write their report if there is a folder for it.

    Returns:
        The claims of each.

    Raises:
        BadInput: a log or a folder cannot be used; nothing was written.
    """
    source = Play(paper) if paper.redraw is None else Redraw(Path(paper.redraw))
    wanted = None if paper.out is None else output.claim(paper.out)
    claims: dict[str, list[Claim]] = {}
    derived: dict[str, dict[str, tables.Table]] = {}
    with nullcontext() if wanted is None else output.filling(wanted) as folder:
        bar = tqdm(names, unit=" experiments", disable=None)
        for name in bar:
            bar.set_description(name)
            experiment, found = EXPERIMENTS[name], source.tables(name)
            if folder is not None:
                save(found, folder / name)
                found = read(folder / name)
            claims[name], derived[name] = list(experiment.claims(found)), dict(experiment.derived(found))
            if folder is not None:
                output.fill(folder / name, derived[name], experiment.figures(found))
        if folder is not None:
            about = source.about()
            tables.save_json(about, folder / "manifest.json")
            tables.save(claims_table(claims), folder / "claims.csv")
            chosen = {name: EXPERIMENTS[name] for name in names}
            (folder / "index.html").write_text(page(folder, chosen, claims, derived, about), encoding="utf-8")
    return claims
