"""Run experiments, or read the tables of an earlier report; then make figures and claims from the tables."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import nullcontext
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from exaul import Result, Sweep, run
from exaul.engine import folder as folders
from exaul.engine import machine
from exaul.engine.checks import BadInput, check_holds
from exaul.engine.executors import BatchFailed, Mismatch, cancel_on_error, cause_of, check_workers, describe_error
from exaul.engine.logs import files
from exaul.engine.logs.files import Table
from exaul.engine.logs.log import Records
from exaul.engine.logs.profiles import PROFILES
from exaul.engine.manifest import check_manifest, load_json, save_json
from experiments import impostors
from experiments.claims import Tables
from experiments.experiment import ExperimentPart, Parts, join_tables
from experiments.paper import Paper
from experiments.registry import EXPERIMENTS, OVER_TRACES, find_experiment
from experiments.report import claims_table, page

# the fields of a manifest, and of its records
MANIFEST_FIELDS: dict[str, tuple[type, ...]] = {"configuration": (dict,), "records": (list,), "seconds": (dict,)}
TABLE_NAMES = "trials", "curves", "coverage", "asked", "advice"  # the last two only of some experiments
RECORD_KEYS = {"name": str, "records": int, "dropped": int, "error_rate": float}


def result_of(future: Future[Any], name: str) -> Any:
    """Return the result of a call on a worker; ``name`` names the call in errors.

    Raises:
        BadInput: the call raised it.
        BatchFailed: the call failed for another reason.
    """
    try:
        return future.result()
    except Exception as error:
        cause = cause_of(error)
        if isinstance(cause, BadInput):
            raise cause from error
        raise BatchFailed(f"{name}: {describe_error(error)}") from error


class Runner:
    """Runs experiments. A sweep that several experiments share is run once."""

    def __init__(self, paper: Paper, executor: Executor | None = None, names: Sequence[str] = ()) -> None:
        """Read the records. Sweeps run in the executor, or in this process if it is None.

        Those of the experiments ``names`` are sent to the executor at once, so that none waits for an earlier one.
        """
        check_workers(executor)
        self.paper, self.records, self.executor = paper, paper.load(), executor
        self.parts = cache(lambda name: find_experiment(name).parts(paper, self.records))
        self.getters: dict[Any, Callable[[], Result]] = {}
        self.futures: list[Future[Result]] = []
        self.worker_state: dict[str, Any] = {}  # versions and device, which must be equal in all results
        self.sources: dict[str, Records] = {}  # logs and profiles used, without sources derived from them
        self.seconds: dict[str, float] = {}
        for name in names:
            list(map(self._getter, self.parts(name)))

    @property
    def manifest(self) -> dict[str, Any]:
        """All that is needed to run this again, and the seconds of each experiment."""
        sources = self.sources.values()
        return {
            "configuration": asdict(self.paper) | {"out": None, "redraw": None},
            "records": [x.describe() | {"error_rate": float(x.errors.mean())} for x in sources],
            **self.worker_state,
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
        """Return the results of the parts; raise Mismatch if workers differ in versions or devices."""
        results: list[Result] = []
        with cancel_on_error(self.futures):
            calls = [self._getter(part) for part in parts]
            for call in tqdm(calls, desc=name, unit=" sweeps", disable=None, leave=False):
                results.append(call())
                worker = {key: results[-1].manifest[key] for key in ("versions", "device")}
                self.worker_state = self.worker_state or worker
                if worker != self.worker_state:
                    raise Mismatch(f"{name}: workers differ: {worker} and {self.worker_state}")
        return results

    def _getter(self, part: ExperimentPart) -> Callable[[], Result]:
        """Return a function that returns the sweep's result; without an executor its first call runs the sweep."""
        key = part.sweep, tuple(source.digest() for source in part.records)
        if key not in self.getters:
            if self.executor is None:
                self.getters[key] = cache(partial(run_sweep, *part))
            else:
                label = f"{part.sweep.environment} on {', '.join(source.name for source in part.records)}"
                self.futures.append(self.executor.submit(run_sweep, *part))
                self.getters[key] = partial(result_of, self.futures[-1], label)
        return self.getters[key]


def run_sweep(sweep: Sweep, records: Sequence[Records]) -> Result:
    """Run a sweep, here or in a worker."""
    machine.use_compilation_cache()
    return run(sweep, records)


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


def run_experiments(
    paper: Paper, names: Sequence[str], with_impostors: bool = False, executor: Executor | None = None
) -> Table:
    """Run experiments, and write their report if the configuration names a folder.

    Return the ``claims_table`` of all. Nothing is written if an error is raised.

    Raises:
        BadInput: a log or a folder is unusable.
        Mismatch: the workers differ in versions or devices.
        BatchFailed: a worker failed.
    """
    check_fields_used(paper, names)
    runner = Runner(paper, executor, names) if paper.redraw is None else ReportReader(Path(paper.redraw))
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
