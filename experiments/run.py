"""Run experiments; make figures and claims from their tables."""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import cache
from typing import Any

from tqdm import tqdm

from exaul import Result, run
from exaul.engine import folder as folders
from exaul.engine import machine
from exaul.engine.checks import BadInput
from exaul.engine.logs import files
from exaul.engine.logs.files import Table
from exaul.engine.logs.log import Records
from exaul.engine.logs.profiles import PROFILES
from exaul.engine.manifest import save_json
from experiments import impostors
from experiments.claims import Tables
from experiments.experiment import Parts, join_tables
from experiments.paper import Paper
from experiments.registry import EXPERIMENTS, OVER_TRACES, find_experiment
from experiments.report import claims_table, page


class Runner:
    """Runs experiments. A sweep that several experiments share is run once."""

    def __init__(self, paper: Paper) -> None:
        """Read the records."""
        machine.use_compilation_cache()
        self.paper, self.records = paper, paper.load()
        self.parts = cache(lambda name: find_experiment(name).parts(paper, self.records))
        self.results: dict[Any, Result] = {}  # by sweep and digests of its records
        self.sources: dict[str, Records] = {}  # logs and profiles used, without sources derived from them
        self.seconds: dict[str, float] = {}

    @property
    def manifest(self) -> dict[str, Any]:
        """All that is needed to run this again, and the seconds of each experiment."""
        sources, result = self.sources.values(), next(iter(self.results.values()))
        return {
            "configuration": asdict(self.paper) | {"out": None},
            "records": [x.describe() | {"error_rate": float(x.errors.mean())} for x in sources],
            **{key: result.manifest[key] for key in ("versions", "device")},  # as of all results
            "seconds": self.seconds,
        }

    def tables(self, name: str) -> Tables:
        """Run an experiment and return its tables."""
        start = time.perf_counter()
        parts = self.parts(name)
        results = self._results(name, parts)
        used = (source for part in parts for source in part.records)
        self.sources |= {x.name: x for x in used if x.name in PROFILES or x.sha256 is not None}
        self.seconds[name] = time.perf_counter() - start
        return join_tables(parts, results, find_experiment(name).has_advice)

    def broken_claims(self, name: str, tables: Tables) -> Table:
        """Return one row per claim: index, whether it holds for ``exaul``, and whether each impostor breaks it."""
        experiment = find_experiment(name)
        parts = [part for part in self.parts(name) if "exaul" in (part.sweep.learners or ("exaul",))]
        true_results = self._results(name, parts)
        judged = {}
        for impostor, learner in impostors.IMPOSTORS.items():
            sweeps = [impostors.impostor_sweep(learner, result) for result in true_results]
            posed = [part._replace(sweep=sweep) for part, sweep in zip(parts, sweeps, strict=True)]
            results = list(zip(true_results, self._results(f"{name}, {impostor}", posed), strict=True))
            judged[impostor] = experiment.judge(impostors.with_impostor_rows(tables, results))
        judged |= {impostor: experiment.judge(tables, derive) for impostor, derive in experiment.impostors.items()}
        held = experiment.judge(tables)["holds"]
        broken = {impostor: ~verdicts["holds"] for impostor, verdicts in judged.items()}
        return Table({"claim": held.index, "holds": held} | broken)

    def _results(self, name: str, parts: Parts) -> list[Result]:
        """Return the results of the parts; a sweep that ran already is not run again."""
        results: list[Result] = []
        for part in tqdm(parts, desc=name, unit=" sweeps", disable=None, leave=False):
            key = part.sweep, tuple(source.digest() for source in part.records)
            if key not in self.results:
                self.results[key] = run(*part)
            results.append(self.results[key])
        return results


def check_fields_used(paper: Paper, names: Sequence[str]) -> None:
    """Raise BadInput if no experiment uses a field that is given, or if one needs three alphas."""
    users = {"data": OVER_TRACES, "learners": {"beyond"}, "other_score": {"scores"}}
    if paper.data is not None:
        users |= dict.fromkeys(("logs", "sources"), EXPERIMENTS.keys() - OVER_TRACES)
    for field, experiments in users.items():
        if getattr(paper, field) != getattr(Paper, field) and experiments.isdisjoint(names):
            raise BadInput(f"{field}: given, but not used by {', '.join(names)}")
    if len(paper.alphas) != 3 and (paper.data is None or not OVER_TRACES.issuperset(names)):
        raise BadInput(f"alphas: {len(paper.alphas)} given; 3 are needed, except over traces (--data)")


def run_experiments(paper: Paper, names: Sequence[str], with_impostors: bool = False) -> Table:
    """Run experiments, and write their report if the configuration names a folder.

    Return the ``claims_table`` of all. Nothing is written if an error is raised.

    Raises:
        BadInput: a log or a folder is unusable.
    """
    check_fields_used(paper, names)
    runner = Runner(paper)
    claims: dict[str, Table] = {}
    derived: dict[str, Tables] = {}
    broken: dict[str, Table] = {}
    with nullcontext() if paper.out is None else folders.fill_new(paper.out) as folder:
        for name in names:
            experiment, tables = find_experiment(name), runner.tables(name)
            derived[name] = experiment.derive(tables)
            claims[name] = experiment.judge(tables)
            broken |= {name: runner.broken_claims(name, tables)} if with_impostors else {}
            if folder is not None:
                written = {**tables, **derived[name], **({"impostors": broken[name]} if with_impostors else {})}
                (folder / name).mkdir()
                folders.write_files(folder / name, written, experiment.figures(written))
        table = claims_table(claims, broken, paper.has_default_records)
        if folder is not None:
            save_json(runner.manifest, folder / "manifest.json")
            files.save(table, folder / "claims.csv")
            text = page(folder, table, derived, broken, runner.manifest)
            (folder / "index.html").write_text(text, encoding="utf-8")
    return table
