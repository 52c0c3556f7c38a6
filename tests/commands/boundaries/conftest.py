"""Fixtures of the tests of input and output at their limits."""

import pytest

from exaul.engine.results import figures
from tests.commands.boundaries.helpers import ROWS


@pytest.fixture(autouse=True)
def _folder_with_log(tmp_path, monkeypatch):
    """Run each test in its own folder, with a log."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text(ROWS)


@pytest.fixture
def few_figures(monkeypatch):
    monkeypatch.setattr(figures, "draw", lambda trials, curves, parts: {"final-fdr": figures.final_fdr(trials)})
