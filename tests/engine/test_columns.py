"""``docs/results.md`` describes every column of every table, and no other."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from exaul import Sweep, run

PAGE = (Path(__file__).parents[2] / "docs" / "results.md").read_text()
COLUMN = re.compile(r"^(?:-|\|) `(\w+?)(_\*)?`(?::| \|) (.+)$", re.MULTILINE)  # of a list, or of a table


def described(name):
    """The columns of a table, by the page; ``NAME_*`` stands for a mean and three quantiles."""
    shared, *sections = re.split(
        r"^### (.*)\n", PAGE.partition("### Columns of several tables\n")[2], flags=re.MULTILINE
    )
    section = sections[sections.index(f"{name}.csv") + 1]
    listed = [each[1] for each in COLUMN.finditer(shared)]
    (also,) = re.findall(r"It also has (.*)\.", section)
    columns = listed if also == "the columns above" else re.findall(r"`(\w+)`", also)
    assert set(columns) <= set(listed)
    for each in COLUMN.finditer(section):
        columns += [f"{each[1]}_{kind}" for kind in ("mean", "q05", "q50", "q95")] if each[2] else [each[1]]
    return columns


@pytest.fixture(scope="module")
def tabled(tmp_path_factory):
    """A table of each kind, by name."""
    log = tmp_path_factory.mktemp("logs") / "log.csv"
    log.write_text("score,error\n0.5,1\n0.7,0\n")
    fields = {"learners": ["exaul", "no-abstention"], "horizon": 300, "trials": 2, "arms": 20}
    result = run(Sweep(environment="always-wrong", **fields))
    return {
        "trials": result.trials,
        "curves": result.curves,
        "asked": result.asked,
        "advice": run(Sweep(**fields)).advice,
        "traces": run(Sweep(logs=str(log.parent), **fields)).traces,
    }


@pytest.mark.parametrize("name", re.findall(r"^### (\w+)\.csv$", PAGE, re.MULTILINE))
def test_tables_have_the_columns_that_are_described(name, tabled):
    columns = described(name)
    assert len(columns) == len(set(columns))
    assert set(tabled[name].columns) == set(columns)


def test_the_function_of_a_column_exists():
    kernels = [
        text for each in COLUMN.finditer(PAGE) for text in re.findall(r"`(\w+\.[\w.]+)`(?:\]| \|)$", each[3])
    ]
    assert len(kernels) > 10
    for kernel in kernels:
        module, name = kernel.rsplit(".", 1)
        assert callable(getattr(import_module(f"exaul.kernels.{module}"), name))
