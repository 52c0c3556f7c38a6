"""Figures of few rounds and of many panels."""

import numpy as np
import pytest

from exaul.engine.data import tables
from exaul.engine.results import figures


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
