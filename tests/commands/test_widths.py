"""What commands print within terminals of 40 to 1,000 columns, with hostile names; and in a pipe."""

import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from exaul.commands import verify
from exaul.engine import run as engine_run
from exaul.engine.results.text_table import COMMAND
from tests.engine.test_summary import cells
from tests.processes import output_of

LOG = "answers of 2026,model=语言模型 " + "x" * 90
MODULE = "company_research_abstention_learners_version_2"
SMALL = ["--trials", "2", "--horizon", "300", "--arms", "20"]
CELLS = f"--alphas 0.1 0.25 --lambdas 3 20 --delay 2 --learners {MODULE}:exaul_with_decay aci-rank"
COMMANDS = {
    "inspect": ["inspect", f"{LOG}.csv"],
    "inspect traces": ["inspect", "logs", "--each", "model"],
    "inspect scores": ["inspect", "scores.csv"],
    "plan": ["plan", "--slack", "0.05", "--audit", "0.3", "--horizon", "123456789"],
    "profiles": ["profiles"],
    "sweep": ["sweep", *SMALL, "--theory", "--logs", f"{LOG}.csv", *CELLS.split()],
    "sweep over traces": ["sweep", *SMALL, "--logs", "logs", "--each", "model", "--alphas", "0.05", "0.3", "0.6"],
    "dry run": ["sweep", *SMALL, "--dry-run"],
    "verify": ["verify", *SMALL, "--learners", f"{MODULE}:exaul_with_decay", "学习者:ew", "no-abstention"],
}


def too_long(text, width):
    """The lines that a terminal would wrap, other than commands to copy."""
    return [line for line in text.split("\n") if cells(line) > width and not line.startswith(COMMAND)]


@pytest.fixture
def folder(in_folder):
    """Logs and learners whose names are hostile; ``inspect`` tells of their defects in long sentences."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"score": rng.random(400), "error": rng.integers(0, 2, 400)})
    table.loc[300:, "error"] = 1
    table["model"] = np.repeat(["m" * 80, "语言模型 " * 6, "a,b", "c"], 100)
    Path("logs").mkdir()
    for path in (f"{LOG}.csv", "logs/log.csv"):
        table.to_csv(path, index=False)
    scores = {f"score_{x}": np.sort(rng.random(400)) for x in ("a", "of_a_name" * 5, "语言", "d", "e")}
    pd.DataFrame(scores | {"error": np.arange(400) % 2}).to_csv("scores.csv", index=False)  # none reaches alpha
    Path(f"{MODULE}.py").write_text("from exaul.kernels.learners.exaul import exaul as exaul_with_decay\n")
    Path("学习者.py").write_text("from exaul.kernels.learners.ew import ew\n")
    yield
    for module in (MODULE, "学习者"):
        sys.modules.pop(module, None)


def once(monkeypatch, module, name):
    """Of all widths, the first computes; the others print what it has computed."""
    compute, found = getattr(module, name), []
    monkeypatch.setattr(module, name, lambda *x, **y: (found or found.append(compute(*x, **y)) or found)[0])


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_fit_the_terminal_and_a_pipe_gets_all_columns(name, folder, monkeypatch, capsys):
    for module, function in ((engine_run, "prepare_sweep"), (engine_run, "run_prepared"), (verify, "certify_all")):
        once(monkeypatch, module, function)
    printed = {}
    for width in (None, 40, 61, 80, 100, 137, 1000):
        monkeypatch.setattr(sys.stdout, "isatty", lambda width=width: width is not None, raising=False)
        monkeypatch.setenv("COLUMNS", f"{width or 40}")
        printed[width] = re.sub(r"[\d.]+ [GM]iB", "1 GiB", output_of(COMMANDS[name], capsys))  # memory varies
        if width is not None:
            assert too_long(printed[width], width) == []
    assert printed[None] == printed[1000]
    left_out = "a wider terminal, or a pipe, also"
    assert (left_out in printed[40]) == (name not in ("inspect", "dry run"))
    assert left_out not in printed[None]
