"""Run experiments, or read the tables of an earlier report; then make figures and claims from the tables."""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from tqdm import tqdm

from exaul import Result, run
from exaul.engine import folder as folders
from exaul.engine import machine
from exaul.engine.checks import BadInput, check_holds
from exaul.engine.logs import files
from exaul.engine.logs.files import Table
from exaul.engine.logs.log import Records
from exaul.engine.logs.profiles import PROFILES
from exaul.engine.manifest import check_manifest, load_json, save_json
from experiments import impostors
from experiments.claims import Tables
from experiments.experiment import Parts, join_tables
from experiments.paper import Paper
from experiments.registry import EXPERIMENTS, OVER_TRACES, find_experiment
from experiments.report import claims_table, page

# the fields of a manifest, and of its records
MANIFEST_FIELDS: dict[str, tuple[type, ...]] = {"configuration": (dict,), "records": (list,), "seconds": (dict,)}
TABLE_NAMES = "trials", "curves", "coverage", "asked", "advice"  # the last two only of some experiments
RECORD_KEYS = {"name": str, "records": int, "dropped": int, "error_rate": float}


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
            "configuration": asdict(self.paper) | {"out": None, "redraw": None},
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
        pairs = list(zip(true_results, parts, strict=True))
        posed = {
            impostor: [part._replace(sweep=impostors.impostor_sweep(learner, result)) for result, part in pairs]
            for impostor, learner in impostors.IMPOSTORS.items()
        }
        self._results(f"{name}, impostors", [part for impostor_parts in posed.values() for part in impostor_parts])
        judged = {}
        for impostor, impostor_parts in posed.items():
            results = list(zip(true_results, self._results(impostor, impostor_parts), strict=True))
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


class ReportReader:
    """Reads the tables of an earlier report, to draw it again."""

    def __init__(self, folder: Path) -> None:
        """Open the folder of a report; raise BadInput if it holds none."""
        self.folder, path = folder, folder / "manifest.json"
        try:
            self.manifest = load_json(path)
            check_holds(str(path), self.manifest, isinstance(self.manifest, dict), "an object")
            check_manifest(path, self.manifest, MANIFEST_FIELDS, Paper)
            for record in self.manifest["records"]:
                valid = isinstance(record, dict) and all(type(record.get(k)) is x for k, x in RECORD_KEYS.items())
                check_holds(f"{path}: records", record, valid, f"an object with {', '.join(RECORD_KEYS)}")
        except BadInput as error:
            raise BadInput(f"redraw: {folder} holds no report ({error})") from error

    def tables(self, name: str) -> Tables:
        """Return the stored tables of an experiment; raise BadInput if they or its seconds are missing."""
        tabled, seconds = read_tables(self.folder / name), self.manifest["seconds"].get(name)
        check_holds(f"{self.folder}: seconds of {name}", seconds, isinstance(seconds, (int, float)), "a number")
        return tabled

    def broken_claims(self, name: str, tables: Tables) -> Table:
        """Return the stored table of impostors; raise BadInput if it is missing."""
        return files.load(self.folder / name / "impostors.csv")


def read_tables(folder: Path) -> Tables:
    """Read the tables of an experiment from its folder; raise BadInput if one is missing or unreadable."""
    paths = {name: folder / f"{name}.csv" for name in TABLE_NAMES}
    return {name: files.load(path) for name, path in paths.items() if name not in TABLE_NAMES[3:] or path.exists()}


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
    runner = Runner(paper) if paper.redraw is None else ReportReader(Path(paper.redraw))
    claims: dict[str, Table] = {}
    derived: dict[str, Tables] = {}
    broken: dict[str, Table] = {}
    with nullcontext() if paper.out is None else folders.fill_new(paper.out) as folder:
        for name in names:
            experiment, tables = find_experiment(name), runner.tables(name)
            if folder is not None:
                # Claims and figures use the tables as read back, so that --redraw gives the same report.
                (folder / name).mkdir()
                folders.write_files(folder / name, tables, {})
                tables = read_tables(folder / name)
            derived[name] = experiment.derive(tables)
            claims[name] = experiment.judge(tables)
            broken |= {name: runner.broken_claims(name, tables)} if with_impostors else {}
            if folder is not None:
                written = {**derived[name], **({"impostors": broken[name]} if with_impostors else {})}
                folders.write_files(folder / name, written, experiment.figures({**tables, **derived[name]}))
        manifest = runner.manifest
        table = claims_table(claims, broken, manifest["configuration"])
        if folder is not None:
            save_json(manifest, folder / "manifest.json")
            files.save(table, folder / "claims.csv")
            text = page(folder, table, derived, broken, manifest)
            (folder / "index.html").write_text(text, encoding="utf-8")
    return table
