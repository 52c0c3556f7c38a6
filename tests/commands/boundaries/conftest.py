"""Fixtures of the tests of input and output at their limits."""

from functools import partial
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from exaul.engine.results import answered_figure, sweep_figures
from tests.commands.boundaries import helpers


@pytest.fixture(autouse=True)
def _folder_with_log(in_folder):
    """Run each test in its own folder, with a log."""
    Path("log.csv").write_text(helpers.ROWS)


@pytest.fixture
def one_figure(monkeypatch):
    """Draw one of the figures of a sweep."""
    monkeypatch.setattr(
        sweep_figures, "draw", lambda trials, *more: {"answered": answered_figure.answered_against_wrong(trials)}
    )


@pytest.fixture
def laid_out(monkeypatch):
    """Lay out figures, with all their texts, and write no files of them."""
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figure.draw_without_rendering())


@pytest.fixture
def refused(capsys):
    """Run a command that is refused; return its one line."""
    return partial(helpers.refused, capsys)
