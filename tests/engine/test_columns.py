"""The columns of every table are described in one place, which the documentation and the tables follow."""

from importlib import import_module
from pathlib import Path

import pytest

from exaul import Sweep, run, run_traces
from exaul.engine.results.columns import TABLES, page

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def result():
    learners = ["exaul", "no-abstention"]
    return run(Sweep(environment="always-wrong", learners=learners, horizon=300, trials=2, arms=20))


@pytest.mark.parametrize("name", TABLES)
def test_tables_have_the_columns_that_are_described(name, result, tmp_path):
    if name == "traces":
        (tmp_path / "log.csv").write_text("score,error\n0.5,1\n0.7,0\n")
        table = run_traces(Sweep(logs=str(tmp_path), learners="exaul", horizon=300, trials=2, arms=20)).table
    else:
        table = (
            run(Sweep(learners="exaul", horizon=300, trials=1)).advice
            if name == "advice"
            else getattr(result, name)
        )
    assert list(table.columns) == [column.name for column in TABLES[name][1]]


def test_the_page_of_the_documentation_is_made_from_them():
    """``python -m exaul.engine.results.columns > docs/tables.md`` writes it."""
    assert (ROOT / "docs" / "tables.md").read_text() == page()


def test_the_function_of_a_column_exists():
    for _, columns in TABLES.values():
        for column in columns:
            assert column.meaning
            if column.kernel:
                module, name = column.kernel.rsplit(".", 1)
                assert callable(getattr(import_module(f"exaul.kernels.{module}"), name))
