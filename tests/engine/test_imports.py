"""Which way imports run, which file alone imports a library, and what a command imports at its start."""

import ast
import graphlib
import json
import os
import re
import sys
from importlib import import_module

import pytest

from exaul import Sweep, run
from exaul.commands.main import COMMAND_MODULES
from exaul.engine import machine, registry
from tests.games import records_of, save_log
from tests.models.test_scores import scored
from tests.processes import ROOT, python, variables

PACKAGES = {  # what each may import; a part of a package comes before it
    "exaul.serving.http": {"exaul.kernels", "exaul.engine", "exaul.serving", "exaul.llm"},
    "exaul.kernels": set(),
    "exaul.engine": {"exaul.kernels"},
    "exaul.serving": {"exaul.kernels", "exaul.engine"},
    "exaul.llm": {"exaul.kernels", "exaul.engine"},
    "exaul.commands": {"exaul.kernels", "exaul.engine", "exaul.serving", "exaul.serving.http", "exaul.llm"},
    "examples": {"exaul.kernels", "exaul.engine", "exaul.serving"},
    "experiments": {"exaul.kernels", "exaul.engine", "exaul.serving", "exaul.commands"},
    "benchmarks": {"exaul.kernels", "exaul.engine", "exaul.serving", "exaul.commands"},
}
WRAPPERS = {  # the only files that import a library
    "pandas": "exaul/engine/logs/files.py",
    "matplotlib": "exaul/engine/results/figures.py",
}
HEAVY = ("jax", "jaxlib", "pandas", "matplotlib", "scipy", "numba", "optax", "chex")


def package_of(name):
    """The package of a module, or None."""
    return next((package for package in PACKAGES if f"{name}.".startswith(f"{package}.")), None)


def files(package):
    """The files of a package that belong to no other entry of PACKAGES."""
    paths = sorted((ROOT / package.replace(".", "/")).rglob("*.py"))
    return [path for path in paths if package_of(module_of(path)) == package]


def module_of(path):
    """The name that a file is imported by."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


FILES = {module_of(path): path for package in PACKAGES for path in files(package)}
FILES["exaul"] = ROOT / "exaul" / "__init__.py"


def imports(path):
    """Every name that a file imports: at its top, within functions, and for the type checker alone."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            for name in node.names:
                full = f"{node.module}.{name.name}"
                yield full if full in FILES else node.module


def by_name():
    """The modules that are imported by a text: the tables of the registry, and the commands."""
    texts = [*registry.LEARNERS.values(), *registry.ENVIRONMENTS.values(), *registry.BACKENDS.values()]
    commands = [f"exaul.commands.{module}" for module, _ in COMMAND_MODULES.values()]
    return {"exaul.engine.registry": [text.split(":")[0] for text in texts], "exaul.commands.main": commands}


def test_the_graph_is_that_of_the_project():
    """Check the graph itself; the tests below depend on it."""
    assert "exaul.kernels.game" in set(imports(FILES["exaul.engine.simulation.prepare"]))
    assert "exaul.engine.results.figures" in set(imports(FILES["exaul.engine.results.result"]))  # within a function
    assert "exaul.engine.sweep" in set(imports(FILES["exaul"]))  # for the type checker
    for modules in by_name().values():
        assert FILES.keys() >= set(modules)


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_run_one_way(package):
    for path in files(package):
        for name in imports(path):
            imported = package_of(name)
            assert imported in (None, package, *PACKAGES[package]), f"{path} imports {name}"
            assert name.split(".")[0] not in ("engine", "kernels"), f"{path} imports {name} through a link"


def test_a_sweep_is_data_and_the_simulation_imports_no_tables():
    """The configuration reaches no code that simulates."""
    reached, waiting = set(), ["exaul.engine.sweep"]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += [x for x in imports(FILES[name]) if x in FILES]
    simulation = {name for name in FILES if name.startswith("exaul.engine.simulation")}
    assert not reached & simulation
    imported = {x for name in simulation for x in imports(FILES[name])}
    assert not [x for x in imported if x.startswith("exaul.engine.results")]


def test_no_imports_run_in_a_circle():
    """Imports by name count too: a module that a table names never imports the table."""
    graph = {name: {x for x in imports(path) if x in FILES} for name, path in FILES.items()}
    for name, modules in by_name().items():
        graph[name] |= set(modules)
    graphlib.TopologicalSorter(graph).prepare()  # CycleError has the circle


def test_one_file_imports_a_library():
    for name, path in FILES.items():
        if name.startswith(("exaul", "experiments")):
            for library in WRAPPERS.keys() & {x.split(".")[0] for x in imports(path)}:
                assert path.relative_to(ROOT).as_posix() == WRAPPERS[library]


@pytest.mark.parametrize("table", [registry.LEARNERS, registry.ENVIRONMENTS], ids=["learners", "environments"])
def test_learners_and_environments_do_not_import_each_other(table):
    """Shared code is in files of the folder that the table does not list."""
    named = {reference.split(":")[0] for reference in table.values()}
    assert len({name.rpartition(".")[0] for name in named}) == 1
    named.discard("exaul.engine.environments.oblivious")  # has the type, too
    for name in named:
        assert not named & set(imports(FILES[name])) - {name}, name


def test_the_reference_imports_numpy_only():
    assert set(imports(ROOT / "tests" / "reference.py")) == {"numpy"}


LIGHT = """
import json, sys
from exaul.commands.main import main
ends = []
for line in sys.argv[1:]:
    try:
        ends.append(main(line.split()))
    except SystemExit as end:
        ends.append(end.code)
print()
print(json.dumps([ends, list(sys.modules)]))
"""


def test_commands_that_simulate_nothing_import_nothing_heavy(tmp_path):
    lines = "--help", "--version", "sweep --help", "plan --help", "sweep --alphas 0"
    ends, modules = json.loads(python(LIGHT, *lines, folder=tmp_path).stdout.splitlines()[-1])
    assert ends == [0, 0, 0, 0, 2]
    assert not {name.split(".")[0] for name in modules} & set(HEAVY)


SWEEP = """
import json, sys
{first}
from exaul.commands.main import main
from exaul.engine.folder import SweepFolder
from exaul.engine.results import sweep_figures
from exaul.engine.simulation import chunks
sweep_figures.draw = lambda *arguments: {{}}  # which would take longer than all else
chunks.CHUNK, save = 1, SweepFolder.save_state
def stop(*arguments):
    save(*arguments)
    SweepFolder.save_state = save
    raise KeyboardInterrupt
SweepFolder.save_state = stop  # the first save; the sweep goes on from it, and saves again
log = ["--logs", "log.csv", "--warm-start", "0.5"]
main(["sweep", *log, "--trials", "3", "--horizon", "2100", "--save-every", "0", "--out", "{out}"])
status = main(["sweep", "--resume", "{out}", "--save-every", "0"])
print(json.dumps({{name: getattr(module, "__file__", None) for name, module in sys.modules.items()}}))
raise SystemExit(status)
"""


def swept(tmp_path, out, first=""):
    """The modules that a sweep has imported, stopped and resumed in a process of its own, and its tables."""
    save_log(records_of(300), tmp_path / "log.csv")
    env = {name: x for name, x in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    process = python(SWEEP.format(first=first, out=out), folder=tmp_path, env=env | {"PYTHONPATH": str(ROOT)})
    tables = [(tmp_path / out / name).read_bytes() for name in ("trials.csv", "curves.csv", "advice.csv")]
    manifest = json.loads((tmp_path / out / "manifest.json").read_text())
    return json.loads(process.stdout.splitlines()[-1]), (tables, manifest["device"], manifest["versions"])


def test_a_sweep_on_a_cpu_needs_no_jax(tmp_path):
    """It is the sweep of a process that has JAX."""
    modules, without = swept(tmp_path, "without")
    assert not {"jax", "jaxlib", "chex", "optax"} & modules.keys()
    more, has_jax = swept(tmp_path, "with", first="import jax")
    assert "jax" in more
    assert without == has_jax
    # the links ``engine`` and ``kernels`` are on the path; by them, a file would be imported under two names
    assert not {name.split(".")[0] for name in modules} & {"engine", "kernels"}
    paths = [os.path.realpath(file) for name, file in modules.items() if file and name.split(".")[0] == "exaul"]
    assert len(set(paths)) == len(paths) > 40


@pytest.mark.parametrize(
    ("variable", "value", "is_cpu"),
    [
        ("JAX_PLATFORMS", "cpu", True),
        ("JAX_PLATFORMS", "cuda,cpu", False),
        ("XLA_FLAGS", "--xla_force_host_platform_device_count=2", False),
    ],
)
def test_what_asks_for_devices_is_asked_of_jax(variable, value, is_cpu, monkeypatch):
    for name in ("JAX_PLATFORMS", "XLA_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)
    assert not machine.is_one_cpu()  # JAX is imported here
    monkeypatch.delitem(sys.modules, "jax")
    assert machine.is_one_cpu() == is_cpu


def test_a_platform_that_jax_does_not_find_is_refused():
    program = "from exaul.commands.main import main; raise SystemExit(main(['sweep']))"
    error = python(program, env=variables(JAX_PLATFORMS="no-such"), status=2).stderr
    assert error.startswith("exaul: JAX_PLATFORMS: 'no-such' found; JAX finds no such device here")


def worked_examples():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_the_worked_examples_of_contributing_run(monkeypatch, tmp_path):
    """A learner, two environments, a score and a table, of one file each, from a folder of the path."""
    names = "hedged", "weekend", "grudge", "sure", "learners"
    for name, code in zip(names, worked_examples(), strict=True):
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    small = {"learners": ["hedged:hedged"], "horizon": 300, "trials": 2, "arms": 20}
    result = run(Sweep(environment="weekend:weekend", sources=["nq-like", "triviaqa-like"], **small))
    assert result.lemma_holds
    assert set(result.trials["environment"]) == {"weekend:weekend"}
    assert set(result.trials["learner"]) == {"hedged:hedged"}
    (row,) = import_module("learners").learners_table(result.trials).to_dict("records")
    assert (row["learner"], row["fdr"]) == ("hedged:hedged", result.trials["fdr"].mean())
    result = run(Sweep(environment="grudge:grudge", **small))
    assert result.lemma_holds
    assert result.asked["hard_mean"].mean() > 0.3
    assert [scored("sure:sure", [reply])[0] for reply in ("Yes.", "no")] == [1, 0]
    for name in names:
        del sys.modules[name]
