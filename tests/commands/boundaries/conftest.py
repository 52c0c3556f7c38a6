"""Fixtures of the tests of input and output at their limits."""

from functools import partial
from pathlib import Path

import pytest

from tests.commands.boundaries import helpers


@pytest.fixture(autouse=True)
def _folder_with_log(in_folder):
    """Run each test in its own folder, with a log."""
    Path("log.csv").write_text(helpers.ROWS)


@pytest.fixture
def refused(capsys):
    """Run a command that is refused; return its one line."""
    return partial(helpers.refused, capsys)
