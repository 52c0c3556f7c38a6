"""The house: which way imports run, what stands behind one door, and what a command imports at its start."""

import ast
import graphlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from exaul import Sweep, run
from exaul.engine import registry
from exaul.engine.commands.main import COMMANDS

ROOT = Path(__file__).parents[2]
ROOMS = {  # what each may import
    "exaul.kernels": set(),
    "exaul.engine": {"exaul.kernels"},
    "experiments": {"exaul.kernels", "exaul.engine"},
    "benchmarks": {"exaul.kernels", "exaul.engine"},
}
DOORS = {
    "pandas": {"engine/data/tables.py"},
    "matplotlib": {"engine/results/figures.py", "experiments/plots.py"},
}
HEAVY = ("jax", "jaxlib", "pandas", "matplotlib", "scipy", "numba", "optax", "chex")


def files(room):
    return sorted((ROOT / room.removeprefix("exaul.")).rglob("*.py"))


def module_of(path):
    """The name that a file of a room is imported by."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts).removesuffix(".__init__")
    return f"exaul.{name}" if f"exaul.{parts[0]}" in ROOMS else name


FILES = {module_of(path): path for room in ROOMS for path in files(room)}
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
    """The modules of the house that one imports by a text: the tables of the registry, and the commands."""
    places = [*registry.LEARNERS.values(), *registry.ENVIRONMENTS.values()]
    places += [place for pair in registry.BACKENDS.values() for place in pair]
    commands = [f"exaul.engine.commands.{name}" for name in COMMANDS]
    return {
        "exaul.engine.registry": [place.split(":")[0] for place in places],
        "exaul.engine.commands.main": commands,
    }


def room_of(name):
    """The room of a module, or None."""
    return next((room for room in ROOMS if f"{name}.".startswith(f"{room}.")), None)


def test_the_graph_is_that_of_the_house():
    """Else the tests below would hold for nothing."""
    assert "exaul.kernels.game" in set(imports(FILES["exaul.engine.play.prepare"]))
    assert "exaul.engine.results.figures" in set(imports(FILES["exaul.engine.run"]))  # within a function
    assert "exaul.engine.sweep" in set(imports(FILES["exaul"]))  # for the type checker
    for modules in by_name().values():
        assert FILES.keys() >= set(modules)


@pytest.mark.parametrize("room", ROOMS)
def test_imports_run_one_way(room):
    for path in files(room):
        for name in imports(path):
            there = room_of(name)
            assert there is None or there == room or there in ROOMS[room], f"{path} imports {name}"
            assert f"exaul.{name.split('.')[0]}" not in ROOMS, f"{path} imports {name}, not exaul.{name}"


def test_no_imports_run_in_a_circle():
    """Nor do those by name: what a table names never imports the table."""
    graph = {name: {x for x in imports(path) if x in FILES} for name, path in FILES.items()}
    for name, modules in by_name().items():
        graph[name] |= set(modules)
    graphlib.TopologicalSorter(graph).prepare()  # CycleError has the circle


@pytest.mark.parametrize("library", DOORS)
def test_one_door(library):
    for room in ("exaul.kernels", "exaul.engine", "experiments"):
        for path in files(room):
            if any(name.split(".")[0] == library for name in imports(path)):
                assert path.relative_to(ROOT).as_posix() in DOORS[library]


@pytest.mark.parametrize("table", [registry.LEARNERS, registry.ENVIRONMENTS], ids=["learners", "environments"])
def test_learners_and_environments_do_not_import_each_other(table):
    """What several share is in a file of their folder that is no line of the table."""
    named = {place.split(":")[0] for place in table.values()}
    assert len({name.rpartition(".")[0] for name in named}) == 1
    for name in named:
        assert not named & set(imports(FILES[name])) - {name}, name


def test_the_reference_imports_numpy_only():
    assert set(imports(ROOT / "tests" / "reference.py")) == {"numpy"}


def python(code, *argv, folder=ROOT):
    """What a process of its own prints, as JSON, on its last line."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("argv", ["--help", "sweep --help", "plan --help", "profiles", "sweep --alphas 0"])
def test_what_plays_nothing_imports_nothing_heavy(argv, tmp_path):
    code = "import json, sys\nfrom exaul.engine.commands.main import main\n"
    code += "try: status = main(sys.argv[1:])\nexcept SystemExit as end: status = end.code\n"
    code += "print(); print(json.dumps([status, list(sys.modules)]))"
    status, modules = python(code, *argv.split(), folder=tmp_path)
    assert status == (2 if "--alphas" in argv else 0)
    assert not {name.split(".")[0] for name in modules} & set(HEAVY)


def test_no_file_is_imported_under_two_names(tmp_path):
    """Though ``exaul/engine`` and ``exaul/kernels`` are links to folders of the checkout, which is on the path."""
    code = "import json, sys, exaul\n"
    code += "exaul.run(exaul.Sweep(trials=2, horizon=300, arms=20, out='out'))\n"
    code += "print(json.dumps([[k, getattr(m, '__file__', None)] for k, m in sys.modules.items()]))"
    modules = python(code, folder=tmp_path)
    names = {name.split(".")[0] for name, _ in modules}
    assert "exaul" in names
    assert not names & {"engine", "kernels"}
    own = [(name, os.path.realpath(file)) for name, file in modules if file and name.split(".")[0] == "exaul"]
    assert len({file for _, file in own}) == len(own) > 40


def worked_examples():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_the_worked_examples_of_contributing_play(monkeypatch, tmp_path):
    """A learner and two environments, of one file each, from a folder of the path."""
    names = "hedged", "weekend", "grudge"
    for name, code in zip(names, worked_examples(), strict=True):
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    small = {"learners": ["hedged:hedged"], "horizon": 300, "trials": 2, "arms": 20}
    result = run(Sweep(environment="weekend:weekend", sources=["nq-like", "triviaqa-like"], **small))
    assert result.lemma_holds
    assert set(result.trials["environment"]) == {"weekend:weekend"}
    assert set(result.trials["learner"]) == {"hedged:hedged"}
    result = run(Sweep(environment="grudge:grudge", **small))
    assert result.lemma_holds
    assert result.asked["hard_mean"].mean() > 0.3
    for name in names:
        del sys.modules[name]
