"""Fixtures of the tests of input and output at their limits."""

import pytest

from tests.commands.boundaries.helpers import ROWS


@pytest.fixture(autouse=True)
def _folder_with_log(tmp_path, monkeypatch):
    """Run each test in its own folder, with a log."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text(ROWS)
