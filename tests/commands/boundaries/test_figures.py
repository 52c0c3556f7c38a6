"""Figures of few rounds and of many panels, and figures drawn again from the tables of a folder."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from exaul.commands.main import main
from exaul.engine.data import tables
from exaul.engine.results import figures
from tests.commands.boundaries.helpers import SMALL, interrupted, refused


@pytest.mark.parametrize(("horizon", "label", "end"), [(200, "round $t$", 200), (5000, "round $t$ (thousands)", 5)])
def test_few_rounds_are_not_shown_in_thousands(horizon, label, end):
    same = {"learner": "exaul", "source": "s", "alpha": 0.1, "lambda": 1.0}
    curves = tables.frame([same | {"t": t, "rise_mean": t / 2} for t in (horizon // 2, horizon)])
    figure = figures.over_time(curves, "rise", "rise")
    (axes,) = [axes for axes in figure.axes if axes.lines]
    assert axes.get_xlabel() == label
    assert axes.get_xlim() == (0, end)


def test_of_many_panels_some_are_drawn_and_it_says_which_are_not(tmp_path):
    alphas = np.linspace(0.01, 0.9, 200)
    trials = tables.frame(
        [{"learner": "exaul", "source": "s", "alpha": a, "lambda": 1.0, "fdr": a} for a in alphas]
    )
    trials = tables.stack([trials, trials.assign(fdr=trials["fdr"] / 2)])
    figure = figures.final_fdr(trials)
    drawn = [axes for axes in figure.axes if axes.collections]
    assert len(drawn) == figures.PANELS - 1
    titles = [axes.get_title() for axes in drawn]
    assert "0.01" in titles[0]
    assert "0.9" in titles[-1]
    (text,) = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert text.startswith("not drawn, see the tables:\n")
    assert text.endswith(f"and {200 - len(drawn) - 8} more")
    assert text.splitlines()[1] not in titles


def test_figures_are_drawn_again_from_the_tables(monkeypatch, few_figures):
    assert main(["sweep", *SMALL, "--environment", "always-wrong", "--out", "out"]) == 0
    files = {path: path.read_bytes() for path in Path("out").iterdir()}
    drawn = {path for path in files if path.suffix in (".png", ".pdf")}
    assert {path.stem for path in drawn} == {"final-fdr", "asked"}
    for path in drawn:
        path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(figures, "save", lambda *given: os.kill(os.getpid(), signal.SIGTERM) or time.sleep(5))
        assert main(["figures", "out"]) == 143
    assert {*Path("out").iterdir()} == files.keys() - drawn
    assert main(["figures", "out"]) == 0
    assert {path: path.read_bytes() for path in Path("out").iterdir()} == files


def test_what_cannot_be_drawn(capsys, few_figures):
    interrupted()
    refused(capsys, ["figures", "out"], "out: not finished; continue with: ", "sweep --resume out")
    assert main(["sweep", "--resume", "out"]) == 0
    trials = Path("out/trials.csv").read_text()
    for old, new in (("fdr,", "x,"), ("\nexaul,", "\nexaul,,"), (trials[trials.index("\n") :], "\n")):
        Path("out/trials.csv").write_text(trials.replace(old, new))
        refused(capsys, ["figures", "out"], "exaul: out")
    Path("out/trials.csv").unlink()
    refused(capsys, ["figures", "out"], "out/trials.csv: no such file")
    refused(capsys, ["figures", "none"], "none/manifest.json: no such file")
    refused(capsys, ["figures", "log.csv"], "log.csv/manifest.json: ")
