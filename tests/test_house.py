"""The house: which way imports run, and what stands behind one door."""

import ast
import re
from pathlib import Path

import pytest

from engine import Sweep, run
from engine.environments import ENVIRONMENTS
from engine.learners import LEARNERS

ROOT = Path(__file__).parent.parent
ROOMS = {
    "kernels": set(),
    "engine": {"kernels"},
    "experiments": {"kernels", "engine"},
    "benchmarks": {"kernels", "engine"},
}
DOORS = {"pandas": "engine/tables.py", "matplotlib": "engine/figures.py"}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def files(room):
    return sorted((ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_imports_run_one_way(room):
    for path in files(room):
        for name in imports(path):
            top = name.split(".")[0]
            assert top not in ROOMS or top == room or top in ROOMS[room], f"{path} imports {name}"


@pytest.mark.parametrize("library", DOORS)
def test_one_door(library):
    for room in ("kernels", "engine"):
        for path in files(room):
            if any(name.split(".")[0] == library for name in imports(path)):
                assert str(path.relative_to(ROOT)) == DOORS[library]


def test_learners_and_environments_do_not_import_each_other():
    learners = {
        "exaul",
        "ew",
        "exp3_ix",
        "fixed",
        "log_price",
        "threshold",
        "ranked_threshold",
        "calibrate_then_fix",
    }
    for name in learners:
        for module in imports(ROOT / "kernels" / f"{name}.py"):
            assert module.split(".")[-1] not in learners - {name}
    shared = {"oblivious", "adaptive"}
    for path in files("engine/environments"):
        if path.name != "__init__.py":
            for module in imports(path):
                if module.startswith("engine.environments."):
                    assert module.split(".")[2] in shared, f"{path} imports {module}"


def test_the_reference_imports_numpy_only():
    assert set(imports(ROOT / "tests" / "reference.py")) == {"numpy"}


def worked_examples():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_the_worked_examples_of_contributing_play(monkeypatch):
    """A learner and an environment of one file and one line each."""
    learner, environment, adaptive = ({} for _ in range(3))
    for code, names in zip(worked_examples(), (learner, environment, adaptive), strict=True):
        exec(code, names)
    monkeypatch.setitem(LEARNERS, "hedged", learner["hedged"])
    monkeypatch.setitem(ENVIRONMENTS, "weekend", environment["weekend"])
    result = run(
        Sweep(
            learners=["hedged"],
            environment="weekend",
            sources=["nq-like", "triviaqa-like"],
            horizon=300,
            trials=2,
            arms=20,
        )
    )
    assert result.lemma_holds
    assert set(result.trials["environment"]) == {"weekend"}
    monkeypatch.setitem(ENVIRONMENTS, "grudge", adaptive["grudge"])
    result = run(Sweep(learners=["hedged"], environment="grudge", horizon=300, trials=2, arms=20))
    assert result.lemma_holds
    assert result.asked["hard_mean"].mean() > 0.3
