"""Figures of few rounds, of many panels, of lines that coincide, and drawn again from the tables of a folder."""

import os
import signal
import time
from dataclasses import asdict, replace
from itertools import combinations, pairwise, product
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from exaul import Sweep, resume, run
from exaul.commands import inspect
from exaul.commands.main import main
from exaul.engine import folder
from exaul.engine.logs import files
from exaul.engine.registry import LEARNERS
from exaul.engine.results import answered_figure, figures, sweep_figures, trace_figures
from exaul.engine.results.result import draw
from exaul.engine.results.text_table import RATE_COLUMNS, short_learner_names, values_of, with_rates
from tests.commands.boundaries.helpers import SMALL, interrupted


def test_of_many_panels_some_are_drawn_and_it_says_how_many_are_not():
    alphas = np.linspace(0.01, 0.9, 200)
    trials = files.Table([{"learner": "exaul", "source": "s", "alpha": a, "lambda": 1.0, "fdr": a} for a in alphas])
    trials = files.stack([trials, trials.assign(fdr=trials["fdr"] / 2)])
    figure = answered_figure.answered_against_wrong(trials.assign(inefficiency=0.5, step=np.nan, trial=0))
    omitted = "184 more panels are not drawn: see the tables."
    assert figure.get_supxlabel().splitlines() == [omitted]  # no spread of one trial
    drawn = [axes for axes in figure.axes if axes.collections]
    assert len(drawn) == 16  # 4 rows of 4 columns, which fit on a page
    assert figure.get_figheight() < 10
    titles = [axes.get_title() for axes in drawn]
    assert "1%" in titles[0]
    assert "90%" in titles[-1]


def rates(**values):
    """A row of a table with rates, which are empty if not given."""
    return dict.fromkeys(RATE_COLUMNS, np.nan) | values


def lightness(style):
    return np.dot(to_rgb(style["color"]), [0.299, 0.587, 0.114])


def test_learners_and_target_differ_also_in_grey():
    """Each has its own marker; two with the same line differ in lightness; the target has a line of its own.

    A learner has one color and marker, whatever else is drawn; its later rates are lighter, and filled otherwise.
    """
    each = [(name, style) for style, name, _ in figures.styled_lines(files.Table({"learner": list(LEARNERS)}))]
    assert len({style["marker"] for _, style in each}) == len(LEARNERS)
    target = figures.TARGET_STYLE
    for (name, style), (other, second) in combinations(each, 2):
        same = style["linestyle"] == second["linestyle"]
        assert not same or abs(lightness(style) - lightness(second)) > 0.15, (name, other)
    assert all(style["linestyle"] != target["linestyle"] for _, style in each)
    assert lightness(target) < min(lightness(style) for _, style in each) - 0.1
    names = ["mine:a", "ew, eta x 1", "ew, eta x 2"]
    _, first, second = (style for style, _, _ in figures.styled_lines(files.Table({"learner": names})))
    assert first == next(figures.styled_lines(files.Table({"learner": ["ew"]})))[0]
    assert lightness(second) > lightness(first) + 0.15
    assert (second["marker"], second["fillstyle"]) == (first["marker"], "none")
    names = ["mine:a", "x:b", "y:b", "mine:ew"]
    assert [*short_learner_names(files.Table({"learner": names}))["learner"]] == ["a", *names[1:]]


def test_a_map_of_traces_has_the_shares_answered_and_marks_what_is_above_alpha():
    """At the first lambda; traces beyond the most are counted; those of which little can be answered come last."""
    rows = [
        rates(trace=f"t{n:02}", learner=name, alpha=0.1, answered=n / lam, fdr_within_01=int(name == "ew"))
        | {"lambda": lam, "answerable": 0.5 if n >= 30 else 0.04, "trials": 1, "horizon": n + 9, "advised": "ew"}
        for n in range(42)
        for name in ("exaul", "ew")
        for lam in (100, 200)
    ]
    figure = trace_figures.traces_by_learner(files.Table(rows))
    (axes,), numbers = figure.axes, [*range(30, 42), *range(28)]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["answerable", "exaul", "ew"]
    assert [text.get_text() for text in axes.get_yticklabels()] == [f"t{n:02}" for n in numbers]
    shares = [(50 if n >= 30 else 4, n, n) for n in numbers]
    assert [text.get_text() for text in axes.texts] == [f"{share}" for row in shares for share in row]
    assert [text.get_alpha() < 1 for text in axes.texts] == [n < 30 for n in numbers for _ in range(3)]
    shades = np.asarray(axes.images[0].get_array())
    assert (shades[12:] == 0).all()  # no shade beside a pale number
    assert (shades[:, 1] == 0).all()  # nor beside a cross
    assert [box.get_xy()[0, 0] for box in axes.patches] == [1.54] * 40  # ew is advised
    assert [line.get_xydata()[0].tolist() for line in axes.lines] == [[1.38, n - 0.3] for n in range(40)]
    note = " 2 more traces are in traces.csv. 42 traces: 1 trial of 9 to 50 rounds."
    assert " ".join(figure.get_supxlabel().split()).endswith(note)
    table = files.stack([files.Table(rows).assign(alpha=alpha, trace="x" * 50) for alpha in (0.1, 0.2, 0.3, 0.4)])
    for width in (3.3, 6.4):  # four panels of three columns fit only into the wider one
        with figures.at_most_wide(width):
            figure = trace_figures.traces_by_learner(table)
        assert figure.get_figwidth() <= width
        assert all(len(text.get_text()) <= 40 for text in figure.axes[0].get_yticklabels())


def test_ticks_are_at_the_lambdas_that_were_swept_and_few_rounds_are_not_shown_in_thousands():
    """None overlaps another; from 0 on, the axis is not logarithmic. A row of panels has the alphas in order."""
    rows = [{"learner": "exaul", "source": "s", "alpha": 0.1, "lambda": lam, "fdr": 0.1} for lam in (5, 50, 30_000)]
    (axes,) = sweep_figures.against(files.Table(rows), "lambda", "fdr").axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["5", "50", "30,000"]
    assert axes.get_xscale() == "log"
    many = [rows[0] | {"lambda": lam} for lam in range(20)]
    figure = sweep_figures.against(files.Table(many), "lambda", "fdr")
    (axes,) = figure.axes
    figure.draw_without_rendering()
    shown = [int(text.get_text()) for text in axes.get_xticklabels()]
    assert (shown[0], shown[-1], len(shown) > 5, axes.get_xscale()) == (0, 19, True, "linear")
    for left, right in pairwise(text.get_window_extent() for text in axes.get_xticklabels()):
        assert left.x1 < right.x0
    rise = dict.fromkeys(("rise_mean", "rise_q05", "rise_q95"), 9.0)
    thousands = "round $t$ (thousands)"
    for horizon, label, end in ((200, "round $t$", 200), (2999, thousands, 2.999), (5000, thousands, 5)):
        curves = files.Table([rows[0] | rise | {"t": t} for t in (horizon // 2, horizon)])
        figure = sweep_figures.over_time(curves, "rise", "rise")
        (axes,) = [axes for axes in figure.axes if axes.lines]
        figure.draw_without_rendering()
        ticks = [x.get_text() for x in axes.get_xticklabels()]
        assert len({*ticks}) == len(ticks) > 2
        assert float(ticks[1]) in (0.5, 1, 20, 50)  # round
        vacuous = sweep_figures.over_time(
            curves.assign(risk_bound=2.0 * horizon), "rise", "rise", dotted="risk_bound"
        )
        vacuous.draw_without_rendering()
        assert (axes.get_xlabel(), axes.get_xlim()) == (label, (0, end))
    row = rows[0] | {"fdr_q05": 0.1, "fdr_mean": 0.2, "fdr_q95": 0.3}
    shares = files.Table([row | {"t": t} for t in range(1, 5001)])
    (band,) = sweep_figures.over_time(shares, "fdr", "FDR").axes[0].collections
    assert band.get_paths()[0].get_extents().x0 == pytest.approx(0.001)  # from the first round, as the line
    # a column for each alpha, and at most four rows; what is left out is left out at all alphas
    for lambdas, width, columns, shown in (3, 6.4, 2, "001122"), (7, 20.0, 2, "00224466"), (4, 3.0, 1, "0123"):
        panels = files.Table({"lambda": [*range(lambdas)] * 2, "alpha": [0.1] * lambdas + [0.2] * lambdas})
        with figures.at_most_wide(width):
            figure, _ = figures.panel_grid(panels, "y", ["alpha", "lambda"])
        assert [axes.get_title()[-1] for axes in figure.axes] == [*shown]
        assert figure.axes[0].get_gridspec().ncols == columns
        assert figure.get_figwidth() <= width


def test_what_was_asked_names_its_cell():
    kinds = [f"{kind}_{x}" for kind in ("hard", "overconfident", "underconfident") for x in ("mean", "q05", "q95")]
    row = rates(learner="exaul", environment="e", alpha=0.1, **dict.fromkeys(kinds, 0.5))
    one = files.Table([row | {"lambda": 5.0, "t": t} for t in (100, 200)])
    several = files.stack([one, one.assign(alpha=0.2)])
    cell = "at $\\alpha$ = 10% and $\\lambda$ = 5"
    assert f"{cell}." in " ".join(sweep_figures.asked_figure(one).get_supxlabel().split())
    assert f"{cell} (the first)." in " ".join(sweep_figures.asked_figure(several).get_supxlabel().split())


def test_figures_are_drawn_again_from_the_tables(refused, monkeypatch, one_figure):
    assert main(["sweep", *SMALL, "--environment", "always-wrong", "--out", "out"]) == 0
    assert Path("out/table.tex").read_text().startswith("% triviaqa-like: 2 trials of 300 rounds; ")
    files = {path: path.read_bytes() for path in Path("out").iterdir()}
    drawn = {path for path in files if path.suffix in (".png", ".pdf")}
    assert {path.stem for path in drawn} == {"answered", "asked"}
    for path in drawn:
        path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(figures, "save", lambda *given: os.kill(os.getpid(), signal.SIGTERM) or time.sleep(5))
        assert main(["figures", "out"]) == 143
    assert {*Path("out").iterdir()} == files.keys() - drawn
    assert main(["figures", "out", "--width", "2.5"]) == 0
    for path in (path for path in drawn if path.suffix == ".png"):
        assert imread(path).shape[1] == 2.5 * figures.DPI
    assert main(["figures", "out"]) == 0
    assert {path: path.read_bytes() for path in Path("out").iterdir()} == files
    refused(["figures", "out", "--width", "1"], "exaul: --width: 1.0 found; it must be from 2 to 40 inches")


def test_chosen_learners_and_cells_are_drawn_elsewhere(refused, monkeypatch):
    """A learner without the rate is drawn at all its rates; the folder of the sweep stays."""
    sweep = Sweep(
        trials=2,
        horizon=300,
        arms=20,
        learners=("exaul", "aci-rank", "no-abstention"),
        alphas=(0.1, 0.2),
        eta_scales=(1.0, 2.0),
        steps=(0.05, 0.1),
    )
    run(replace(sweep, out="out"))
    written, drawn = {path: path.read_bytes() for path in Path("out").iterdir()}, {}
    monkeypatch.setattr(figures, "save", lambda figure, path: drawn.update({path.name: figure}))
    chosen = ["--learners", "exaul", "aci-rank", "--eta-scales", "2", "--alphas", "20%"]
    assert main(["figures", "out", *chosen, "--out", "chosen"]) == 0
    assert {*drawn} == {"answered", *sweep_figures.OVER_TIME, *(f"{x}-by-step" for x in sweep_figures.AT_HORIZON)}
    named = [text.get_text() for text in drawn["fdr"].legends[0].get_texts()]
    assert named == ["exaul, $\\eta\\times2$", "aci-rank, step 0.05", "aci-rank, step 0.1", figures.TARGET]
    assert len(drawn["fdr"].axes) == 1
    assert [x.get_fillstyle() for x in drawn["fdr"].axes[0].lines[:3]] == ["none", "full", "none"]  # as ever
    assert Path("chosen/table.tex").read_text().count("\naci-rank") == 2
    assert {path: path.read_bytes() for path in Path("out").iterdir()} == written
    refused(["figures", "out", "--steps", "0.1"], "--steps: given without --out DIR, the folder for what is chosen")
    refused(["figures", "out", "--steps", "0.2", "--out", "x"], "--steps: 0.2 is not in out, which has 0.05; 0.1")
    refused(
        ["figures", "out", "--learners", "ew", "--out", "x"],
        "--learners: ew is not in out, which has exaul, eta x 1; exaul, eta x 2; aci-rank, step 0.05; aci-rank, ",
    )
    refused(["figures", "out", "--learners", "aci-rank, step 2", "--out", "x"], "; aci-rank, step 0.05; aci-rank, ")
    unused = ["figures", "out", "--learners", "aci-rank", "--eta-scales", "2", "--out", "x"]
    refused(unused, "--eta-scales: given, but none of the learners has it: aci-rank")


def test_what_cannot_be_drawn(refused, one_figure):
    interrupted()
    refused(["figures", "out"], "out: not finished; continue with: ", "sweep --resume out")
    assert main(["sweep", "--resume", "out"]) == 0
    with folder.lock(Path("out")):
        refused(["figures", "out"], "out: out is in use by another process")
    trials = Path("out/trials.csv").read_text()
    for old, new in (("fdr,", "x,"), ("\nexaul,", "\nexaul,,"), (trials[trials.index("\n") :], "\n")):
        Path("out/trials.csv").write_text(trials.replace(old, new))
        refused(["figures", "out"], "exaul: out")
    Path("out/trials.csv").unlink()
    refused(["figures", "out"], "out/trials.csv: no such file")
    refused(["figures", "none"], "none/manifest.json: no such file")
    Path("scaling").mkdir()
    refused(["figures", "scaling"], "scaling/manifest.json: no such file; scaling is no folder of a sweep")
    refused(["figures", "log.csv"], "log.csv/manifest.json: ")


def test_of_traces_whole_ones_are_drawn_first_those_that_can_be_answered_most(monkeypatch):
    """With a ring where a learner is advised, and all learners in the legend that any panel has.

    The default lambda, which depends on the length of a trace, has no panels; it says how many are not drawn.
    """
    game = {"trials": 2, "horizon": 300, "arms": 20, "learners": ("aci-rank", "no-abstention", "best-fixed")}
    result = run(Sweep(**game, alphas=(0.1, 0.2)))
    answerable = {"a": (0.1, 0.6), "b": (0.9, 0.3), "c": (0.5, 0.5)}  # most at the last alpha: a
    trials, curves = (
        files.stack(
            [x.assign(source=name, **{"lambda": n, "horizon": n}) for n, name in enumerate(answerable, 300)]
        )
        for x in (result.trials, result.curves)
    )
    trials, curves = (x.replace("no-abstention", "mine:no") for x in (trials, curves))
    trials, curves = (x[(x["source"] != "b") | (x["learner"] != "mine:no")] for x in (trials, curves))
    row = rates(learner="aci-rank", fdr=0.1, answered=0.5, of_answerable=1, fdr_within_01=1, trials=2, horizon=9)
    rows = [
        row | {"trace": name, "alpha": alpha, "answerable": share, "advised": advised}
        for name, shares in answerable.items()
        for alpha, share, advised in zip(
            (0.1, 0.2), shares, ("none", "aci-rank" if name == "c" else "none"), strict=True
        )
    ]
    monkeypatch.setattr(figures, "ROWS", 2)
    tabled = {"traces": files.Table(rows), "trials": trials, "curves": curves}
    sources = [{"name": name, "segments": 1, "answerable": {"0.1": 0.7}} for name in answerable]
    manifest = {"configuration": asdict(Sweep()), "sources": sources}
    unstarted = draw(tabled, manifest)["answered"]
    assert [answered_figure.CEILING in dots for dots in map(labels_of, unstarted.axes)] == [
        True,
        False,
        True,
        False,
    ]
    assert not any(line.get_markersize() == 14 for axes in unstarted.axes for line in axes.lines)
    assert "Advised in 1 of 4 panels, but not played here, is aci-rank" in " ".join(
        unstarted.get_supxlabel().split()
    )
    drawn = draw(tabled | {"trials": trials.assign(warm_start="a log")}, manifest)
    panels = drawn["answered"].axes
    assert [axes.get_title() for axes in panels] == [f"{x}, $\\alpha$ = {y}%" for x in "bc" for y in (10, 20)]
    assert [sum(line.get_markersize() == 14 for line in axes.lines) for axes in panels] == [0, 0, 0, 1]
    for name, others in (
        ("fdr", ["best-fixed", "target $\\alpha$", "advised"]),
        ("regret-by-alpha", []),
    ):  # best-fixed has none
        named = [text.get_text() for text in drawn[name].legends[0].get_texts()]
        assert {*named} == {"aci-rank", "no", *others}
    assert {name for name in drawn if "-by-" in name} == {
        "traces-by-learner",
        *(f"{name}-by-alpha" for name in ("fdr", "answered", "regret")),
    }
    said = drawn["answered"].get_supxlabel()
    assert said.endswith("\n1 more traces are not drawn: see traces.csv.")
    assert "learner is advised where there is no ring." in " ".join(said.split())


def labels_of(axes):
    return [line.get_label() for line in axes.lines]


def dots_of(axes):
    """The dots by name, and the one in the ring."""
    dots = {line.get_label(): (line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines}
    (ringed,) = [dots.pop(label) for label in [*dots] if label.startswith("_")]
    return dots, ringed


def test_the_first_figure_has_a_dot_for_each_learner_that_answers():
    """At its means of wrong and of answered, with its name. Figures of R_t and regret name who has no bound.

    Of several steps, that of programs has the ring.
    """
    result = run(Sweep(trials=2, horizon=300, arms=20, alphas=(0.1,), checkpoints=("log",)))
    best = {(result.trials["source"].iloc[0], 0.1): "aci-rank"}
    drawn = sweep_figures.draw(
        result.trials, result.curves, 1, best, dict.fromkeys(best, 1.4) | {("other", 0.1): 9.0}
    )
    assert 1.4 < drawn["answered"].axes[0].get_ylim()[1] < 2  # as what is not drawn has no tick
    assert dots_of(drawn["answered"].axes[0])[0][answered_figure.CEILING] == (0.1, 1.4)
    drawn["answered"] = answered_figure.answered_against_wrong(result.trials, best)
    assert next(iter(drawn)) == "answered"
    (axes,) = drawn["answered"].axes
    dots, ringed = dots_of(axes)
    assert ringed == dots["aci-rank"]
    assert not any(
        line.get_clip_on() for line in axes.lines if line.get_label() != "target $\\alpha$"
    )  # also at an FDR of 0
    first = result.trials[result.trials["learner"] == "aci-rank"].assign(step=0.3, fdr=0.0)
    steps = with_rates(files.stack([first, result.trials]))
    (labelled,) = answered_figure.answered_against_wrong(steps, best).axes
    several, ringed = dots_of(labelled)
    assert ringed == several["aci-rank, step 0.025"]
    assert {text.get_text() for text in axes.texts} == dots.keys() - {figures.TARGET}
    assert len({text.get_color()[0] for text in axes.texts}) == len(axes.texts)  # each in that of its mark
    spread = result.trials.assign(fdr=result.trials["fdr"] + 0.1 * result.trials["trial"])
    (wide,) = answered_figure.answered_against_wrong(spread, best).axes
    wide.figure.draw_without_rendering()  # places the names
    for lines, text in product(wide.collections, wide.texts):  # no name is on the line of a learner
        ends = wide.transData.transform(lines.get_segments()[0])
        assert not Bbox(ends).padded(1).overlaps(Text.get_window_extent(text))
    assert not labelled.texts  # of longer names there is a legend
    spreads = iter(lines.get_segments()[0][:, 0] for lines in axes.collections)
    assert dots.pop(figures.TARGET)[0] == 0.1
    for name in "fdr", "answered":
        assert " Without answers: always-abstain." in " ".join(drawn[name].get_supxlabel().split())
    of_learners = dict(iter(result.trials.groupby("learner", sort=False)))
    for name, dot in dots.items():
        rows = of_learners[name]
        assert dot == pytest.approx((rows["fdr"].mean(), (rows["answered"] / 300).mean()))
        np.testing.assert_allclose(next(spreads), rows["fdr"].quantile([0.05, 0.95]))
    learners = [*of_learners]
    assert {*learners} - {*dots} == {"always-abstain"}
    with_bounds = {
        "risk": {"always-abstain", "aci-rank", "aci-rank-from-log"},
        "regret": {"exaul", "exp3-ix", "ew"},
    }
    for name, bounded in with_bounds.items():
        (axes,) = drawn[name].axes
        is_regret = name == "regret"
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log" if is_regret else "linear")
        shown = [name for name in learners if name != "best-fixed" or not is_regret]  # below 1, not on the axis
        assert axes.get_legend_handles_labels()[1] == [*shown, "proven bound"]
        dotted = {x.get_marker() for x in axes.lines if x.get_linewidth() == sweep_figures.BOUND_STYLE["linewidth"]}
        markers = {x.get_label(): x.get_marker() for x in axes.lines}
        assert dotted <= {markers[x] for x in bounded} | {"None"}
        assert "; others have none." in " ".join(drawn[name].get_supxlabel().split())


def test_a_title_breaks_between_its_parts():
    """And has no start that all sources share, which the caption names."""
    values, by = {"alpha": [0.1, 0.2]}, ["source", "alpha"]
    sources = {"model of 22 characters": "model of 22 characters,\n$\\alpha$ = 10%"}
    sources["an adversary tuned against b"] = "an adversary tuned against\nb, $\\alpha$ = 10%"
    for source, title in sources.items():
        with figures.at_most_wide(4.2):
            figure, _ = figures.panel_grid(files.Table({"source": [source, "b"]} | values), "y", by)
        assert figure.axes[0].get_title() == title
    figure, _ = figures.panel_grid(files.Table({"source": ["log:model=a$", "log:model=b"]} | values), "y", by)
    assert [axes.get_title()[:3] for axes in figure.axes] == ["a\\$", "b, "]
    assert figure.get_supxlabel() == "Each title begins with log:model="


def test_labels_beside_lines_stand_around_their_ends_without_overlap():
    figure, ((axes, _),) = figures.panel_grid(files.Table({"x": [1]}), "y")
    axes.set_ylim(0, 1)
    figures.end_labels(axes, [(0.9, "c", "red"), (0.5, "a", "red"), (0.5, "b", "red")])
    figure.draw_without_rendering()
    low, high, alone = sorted((text.get_window_extent() for text in axes.texts), key=lambda box: box.y0)
    assert low.y1 < high.y0
    middles = [axes.transAxes.inverted().transform((0, y))[1] for y in ((low.y0 + high.y1) / 2, alone.y0)]
    assert middles == pytest.approx([0.5, 0.87], abs=0.03)


def test_the_lowest_panels_name_the_x_axis_and_the_fullest_orders_the_legend():
    figure, panels = figures.panel_grid(files.Table({"lambda": range(5)}), "y", ["lambda"])
    for axes, _ in panels:
        axes.set_xlabel("x")
    for panel, label in (0, "b"), (1, "a"), (1, "b"):
        panels[panel][0].plot([0, 1], label=label)
    figures.add_legend(figure, panels, "")
    assert [axes.get_xlabel() for axes, _ in panels] == ["", "", "x", "x", "x"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]


def test_a_logarithmic_figure_begins_where_a_line_is_above_its_lower_end():
    row = {"learner": "ew", "source": "s", "alpha": 0.1, "lambda": 1.0}
    regrets = {1: 0.5, 10: 2.0, 100: 20.0, 1000: 200.0}
    rows = [
        row | dict.fromkeys(["r_mean", "r_q05", "r_q95"], r) | {"t": t, "regret_bound": 900.0}
        for t, r in regrets.items()
    ]
    figure = sweep_figures.over_time(files.Table(rows), "r", "r", dotted="regret_bound")
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_yscale(), axes.get_xlim()[0]) == ("log", "log", 10)
    small = [x | {"learner": "a"} | dict.fromkeys(["r_mean", "r_q05", "r_q95"], x["r_mean"] / 250) for x in rows]
    (axes,) = sweep_figures.over_time(files.Table([*rows, *small]), "r", "r", dotted="regret_bound").axes
    assert axes.get_ylim()[0] == pytest.approx(0.4)  # half of the regret of the other at T, which is below 1


def test_an_axis_holds_the_bands_after_a_tenth_of_the_rounds():
    row = {"source": "s", "alpha": 0.1, "lambda": 1.0, "learner": "a", "fdr_mean": 0.2, "fdr_q05": 0.1}
    rows = files.Table(
        [row | {"t": t, "fdr_q95": top} for t, top in ((50, 1.0), (90, 1.0), (300, 0.8), (600, 0.3), (1000, 0.3))]
    )
    figure = sweep_figures.over_time(rows, "fdr", "FDR")
    assert figure.axes[0].get_ylim()[1] == pytest.approx(0.8 * 1.16)
    assert "Until $t$ = 90, values beyond the axis are not shown." in " ".join(figure.get_supxlabel().split())
    spread = [row | {"t": t, "fdr_mean": mean, "fdr_q95": 0.3} for t, mean in ((20, 0.9), (90, 0.5), (1000, 0.2))]
    figure = sweep_figures.over_time(
        files.Table(spread), "fdr", "FDR"
    )  # in logarithms, where early rounds are wide
    assert figure.axes[0].get_ylim()[1] == pytest.approx(0.9 * 1.16)


def test_an_axis_of_sums_is_that_of_the_learners_with_a_limit():
    row = {"source": "s", "alpha": 0.1, "lambda": 1.0, "t": [500, 1000]}
    ends = {"a": (10.0, 20.0), "b": (50.0, np.nan), "c": (70.0, np.nan), "d": (-70.0, np.nan)}
    rows = [
        files.Table(row | dict.fromkeys(["r_mean", "r_q05", "r_q95"], r) | {"learner": name, "risk_bound": limit})
        for name, (r, limit) in ends.items()
    ]
    within = rows[0].assign(learner="b", alpha=0.2)  # at another alpha
    cases = (
        (rows[:2], (0, 50), ""),
        (rows, (0, 20), "b (50); c (70); d (-70)"),
        ([*rows, within], (0, 20), "b at $\\alpha$ = 10% (50); c (70); d (-70)"),
    )
    for shown, (low, high), beyond in cases:
        figure = sweep_figures.over_time(files.stack(shown), "r", "r", dotted="risk_bound")
        assert figure.axes[0].get_ylim() == pytest.approx((low - 0.04 * high, high + 0.16 * high))
        said = " ".join(figure.get_supxlabel().split())
        assert said.partition("Beyond the axis at $T$: ")[2].partition(".")[0] == beyond
    wide = rows[0].assign(learner="e", r_mean=15.0, r_q95=100.0, risk_bound=np.nan)  # only its band is beyond
    figure = sweep_figures.over_time(files.stack([rows[0], wide]), "r", "r", dotted="risk_bound")
    assert "middle 90%. Values beyond the axis are not shown. Dotted" in " ".join(figure.get_supxlabel().split())


def test_names_keep_their_columns_where_values_are_equal():
    assert values_of(["m=a,d=b", "m=a,d=c"]) == ["a, b", "a, c"]
    assert values_of(["m=a,d=b", "m=a,e=b"]) == ["m=a,d=b", "m=a,e=b"]


def test_a_caption_names_who_shows_nothing_and_at_which_alpha():
    rows = files.Table({"learner": ["a", "a", "b", "b", "c"], "alpha": [0.1, 0.2, 0.1, 0.2, 0.1]})
    said = figures.missing_note(rows, np.array([True, False, False, False, True]))
    assert said == " Without answers: a at $\\alpha$ = 20%; b."


def test_a_caption_fills_the_width_and_values_stay_beside_their_names():
    """A long name breaks between its parts, but not within a word; a number keeps its comma."""
    figure = figures.Figure(figsize=(2.4, 2))
    figures.add_note(figure, "log:model=Llama-3-70B-Instruct,dataset=mmlu: 20 trials of 1,500 rounds, $H$ = 400.")
    lines = ["log:model=Llama-3-70B-Instruct,", "dataset=mmlu: 20 trials of 1,500 rounds,", "$H$ = 400."]
    assert figure.get_supxlabel().splitlines() == lines
    figures.add_note(figure, "word " * 99)
    caption = next(text for text in figure.texts if text.get_text()).get_window_extent()
    assert (caption.x0, caption.x1) == pytest.approx((5, 235), abs=25)  # of 240 dots


def test_figures_of_answers_mark_the_advised_learner_and_those_whose_fdr_misses_alpha():
    """Also over rounds; the legend names the marks last. Figures of FDRs have the target, and no cross."""
    result = run(Sweep(trials=2, horizon=600, arms=20, alphas=(0.05, 0.3)))
    best = {(result.trials["source"].iloc[0], alpha): "aci-rank-from-log" for alpha in (0.05, 0.3)}
    drawn = sweep_figures.draw(result.trials, result.curves, 1, best)
    crossed = set(
        result.trials.query("alpha == 0.05").groupby("learner")["fdr"].mean().loc[lambda x: x > 0.06].index
    )
    for name in "answered-over-time", "answered-by-alpha", "fdr", "fdr-by-alpha":
        axes, legend = drawn[name].axes[0], [x.get_text() for x in drawn[name].legends[0].get_texts()]
        ringed, missing = (
            [x for x in axes.lines if x.get_label() == label] for *_, label in figures.MARKS.values()
        )
        assert ringed
        has_crosses = name.startswith("answered")
        assert len(missing) == len(crossed) * has_crosses
        assert legend[-1 - has_crosses :] == ["advised", "FDR at $T$ above $\\alpha$ + 1%"][: 1 + has_crosses]
        of_advised = next(x for x in axes.lines if x.get_label() == "aci-rank-from-log")
        assert {*ringed[0].get_xdata()} <= {*of_advised.get_xdata()}
        assert {*ringed[0].get_ydata()} <= {*of_advised.get_ydata()}
    stepped = files.stack([result.trials, result.trials.query("learner == 'aci-rank-from-log'").assign(step=0.1)])
    assert (
        answered_figure.is_advised(stepped, best).sum() == 4
    )  # of two trials at two alphas, at the step of programs
    unstarted = sweep_figures.draw(result.trials.assign(warm_start=None), result.curves, 1, best)
    assert "advised" not in [x.get_label() for x in unstarted["fdr"].axes[0].lines]  # no ring without a start


def test_no_line_joins_two_values_and_bars_show_the_spread():
    """A small regret is not at a tick 0."""
    row = {"learner": "exaul", "source": "s", "lambda": 1.0}
    rows = [row | {"alpha": a, "regret": x * a} for a in (0.1, 0.2) for x in (1, 2, 4)]
    (axes,) = sweep_figures.against(files.Table(rows), "alpha", "regret").axes
    (parting, marks), (bars,) = axes.lines, axes.collections
    assert [*parting.get_xdata()] == [0.5, 0.5]
    assert marks.get_linestyle() == "None"
    ends = [segment[:, 1] for segment in bars.get_segments()]
    np.testing.assert_allclose(ends, [np.quantile([a, 2 * a, 4 * a], [0.05, 0.95]) for a in (0.1, 0.2)])
    assert "Mark: mean over trials; bar: middle 90%." in axes.figure.get_supxlabel()
    (axes,) = sweep_figures.against(files.Table(rows).assign(fdr=0.2), "alpha", "fdr").axes
    targets = [line.get_ydata() for line in axes.lines if line.get_label() == "target $\\alpha$"]
    np.testing.assert_allclose(targets, [[0.1, 0.1, 0.2, 0.2]])  # flat, so that no mark is on its wrong side
    (axes,) = sweep_figures.against(files.Table(rows), "alpha", "regret").axes
    assert axes.yaxis.get_major_formatter()(0.1) == "0.1"


@pytest.mark.parametrize("values", [2, 4])
def test_of_many_learners_the_bars_at_a_value_stand_apart(values):
    """They take about a third of the gap between values."""
    names = [*LEARNERS][:7]
    rows = [
        {"learner": name, "source": "s", "lambda": 1.0, "alpha": 0.05 * n, "fdr": x}
        for name in names
        for n in range(1, values + 1)
        for x in (0.1, 0.12)
    ]
    figure = sweep_figures.against(files.Table(rows), "alpha", "fdr")
    (axes,) = figure.axes
    figure.draw_without_rendering()
    lines = [line for line in axes.lines if line.get_label() in names]
    assert {line.get_linestyle() for line in lines} == {"None"}
    marks = np.array([line.get_transform().transform(line.get_xydata())[:, 0] for line in lines])
    bars = [bars.get_transform().transform(bars.get_segments()[0])[0, 0] for bars in axes.collections]
    np.testing.assert_allclose(bars, marks[:, 0])
    assert 0.2 < np.ptp(marks[:, 0]) / (marks[0, 1] - marks[0, 0]) < 0.5
    low, high = axes.bbox.intervalx
    assert low < marks.min() < marks.max() < high


@pytest.mark.parametrize(("least", "start"), [(0.3, 0.285), (0.2, 0.0)])
def test_an_axis_of_fdrs_begins_below_the_least_if_that_is_above_half_of_the_largest(least, start):
    """Over time, many lines have bars right of the axis; shares of the first rounds may be below it."""
    quantiles = {"fdr_q05": least, "fdr_q95": 0.45}
    row = {"source": "s", "alpha": 0.35, "lambda": 1.0, "fdr": 0.4, "fdr_mean": 0.4} | quantiles
    rows = [row | {"learner": name, "t": t} for name in LEARNERS for t in (20, 1000, 2000)]
    curves = files.Table(rows)
    curves.loc[curves["t"] == 20, "fdr_mean"] = 0.1
    figure = sweep_figures.over_time(curves, "fdr", "FDR")
    (axes,) = figure.axes
    figure.draw_without_rendering()
    assert axes.get_ylim()[0] == pytest.approx(start - 0.04 * (0.45 - start))
    said = " ".join(figure.get_supxlabel().split())
    assert "bar at its end: middle 90%" in said
    assert ("Until $t$ = 20, values beyond the axis are not shown." in said) == (start > 0)
    bars = [line for line in axes.lines if not line.get_clip_on()]
    ends = np.array([bar.get_transform().transform(bar.get_xydata()) for bar in bars])
    assert len(bars) == len(LEARNERS)
    assert (np.diff([axes.bbox.x1, *ends[:, 0, 0], figure.bbox.x1]) > 1).all()  # side by side, right of the panel
    for bar in bars:
        np.testing.assert_allclose(bar.get_ydata(), [least, 0.45])
    trials = files.Table([row | {"learner": "ew", "step": np.nan, "trial": n, "inefficiency": 0.5} for n in (0, 1)])
    trials["fdr"] = [least, 0.45]
    (axes,) = answered_figure.answered_against_wrong(trials).axes
    assert (axes.get_xlim()[0] > 0.2) == (start > 0)
    assert axes.get_xlim()[0] < axes.collections[0].get_segments()[0][:, 0].min()
    for alpha, fdr, is_shared in (0.4, 0.5, True), (0.01, 0.02, start == 0):  # unless it were twice as long
        both = files.stack([trials, trials.assign(alpha=alpha, fdr=fdr)])
        panels = answered_figure.answered_against_wrong(both).axes
        assert (panels[0].get_xlim() == panels[1].get_xlim()) == is_shared
    (axes,) = sweep_figures.against(files.stack([trials, trials.assign(alpha=0.45)]), "alpha", "fdr").axes
    assert (axes.get_ylim()[0] > 0.2) == (start > 0)


def test_a_curve_of_fdrs_begins_where_half_of_the_trials_have_ten_answers():
    result = run(Sweep(trials=3, horizon=300, arms=20, learners=("exaul",)))
    for n, most in (40, 30), (60, 30), (149, 4):  # or all their answers, if these are fewer
        answers = np.where(result.curves.index < n, min(9, most - 1), most)
        curves = result.curves.assign(inefficiency_q50=1 - answers / result.curves["t"], inefficiency_q95=1.0)
        figure = sweep_figures.draw(result.trials, curves)["fdr"]
        assert figure.axes[0].lines[0].get_xdata()[0] == curves["t"][n]
        said = " ".join(figure.get_supxlabel().split())
        assert "Until a trial answers, its FDR counts as $\\alpha$." in said
        assert "A line begins where half of the trials have 10 answers." in said


def test_a_pdf_has_no_font_of_type_3(tmp_path):
    """Which some publishers refuse. Nor is there a warning if the x axis spans all floats."""
    rows = {"learner": "exaul", "source": "s", "alpha": 0.1, "lambda": [1e-300, 1e300], "fdr": 0.1}
    figure = sweep_figures.against(files.Table(rows), "lambda", "fdr")
    figures.save(figure, tmp_path / "x")
    written = (tmp_path / "x.pdf").read_bytes()
    assert (b"/Type3" in written, b"/CIDFontType2" in written) == (False, True)


def test_a_learner_has_no_line_where_it_shows_nothing():
    result = run(Sweep(trials=2, horizon=300, arms=20, learners=("no-abstention",), alphas=(0.1, 0.2)))
    silent = result.curves["alpha"] == 0.1
    result.curves.loc[silent, [name for name in result.curves if name.startswith("inefficiency_")]] = 1.0
    drawn = sweep_figures.draw(result.trials, result.curves)
    assert [len(axes.lines) for axes in drawn["fdr"].axes] == [1, 2]  # the target, and beside it the learner
    for name, bound in ("risk", "limit on any sequence"), ("regret", "bound of the regret"):
        said = " ".join(drawn[name].get_supxlabel().split())
        assert f"No learner here has a proven {bound}." in said
        lam = ", $\\lambda$ = 17.32" * (name == "regret")  # without which a regret has no unit
        assert said.endswith(f"triviaqa-like: 2 trials of 300 rounds{lam}, $H$ = 20.")


def test_a_bound_above_the_horizon_is_not_drawn_but_named():
    """No regret is above T. A learner without the rate is named, too."""
    learners = "exp3-ix", "ew", "aci-rank"
    sweep = Sweep(trials=2, horizon=600, arms=20, learners=learners, eta_scales=(1, 2), alphas=(0.1,))
    result = run(sweep)
    above = result.trials["learner"] == "exp3-ix"
    bounds = result.trials.groupby(above)["regret_bound"].agg(["min", "max"])
    assert bounds.loc[False, "max"] < 600 < bounds.loc[True, "min"]
    manifest = result.manifest | {"configuration": asdict(sweep) | {"delta": 0.2, "score": "score_own"}}
    drawn = draw({"trials": result.trials, "curves": result.curves}, manifest)
    for name in ("regret", "regret-by-eta-scale"):
        (axes,) = drawn[name].axes
        dotted = [line for line in axes.lines if line.get_linewidth() == sweep_figures.BOUND_STYLE["linewidth"]]
        heights = np.concatenate([line.get_ydata()[np.isfinite(line.get_ydata())] for line in dotted])
        assert 0 < heights.max() < axes.get_ylim()[1] < 2 * 600
        said = " ".join(drawn[name].get_supxlabel().split())
        assert "; not drawn, since near $T$ or above: exp3-ix." in said.replace("; others have none", "")
    assert " bound of the regret with probability 0.8, drawn where below $T$; not drawn" in said
    assert said.endswith(
        " triviaqa-like, column score_own: 2 trials of 600 rounds, $\\alpha$ = 10%, $\\lambda$ = 24.49, $H$ = 20."
    )
    assert drawn["answered-by-eta-scale"].axes[0].get_ylim()[1] < 0.9
    assert " Not drawn, without this rate: aci-rank." in said
    lines = [line for line in drawn["fdr"].axes[0].lines if str(line.get_label()).startswith("ew, ")]
    assert [line.get_fillstyle() for line in lines] == ["full", "none"]  # also of a learner without gamma
    assert axes.get_xlabel() == "factor of $\\eta$ and $\\gamma$"


def test_reliability_is_of_groups_of_as_many_rows():
    """Also if there are fewer rows than groups."""
    scores, errors = np.linspace(0, 1, 100), np.repeat([1.0, 0.0], 50)
    line = inspect.draw_reliability(scores[::-1], errors[::-1]).axes[0].lines[1]
    np.testing.assert_allclose(line.get_xdata(), scores.reshape(10, 10).mean(axis=1))
    np.testing.assert_allclose(line.get_ydata(), 1 - errors.reshape(10, 10).mean(axis=1))
    (crowded,) = inspect.draw_reliability(1 - (1 - scores[1:]) ** 9, errors[1:]).axes  # most scores are near 1
    assert (line.axes.get_xscale(), crowded.get_xscale()) == ("linear", "logit")
    assert crowded.get_xlim()[0] <= crowded.lines[1].get_xdata()[0]
    few = np.r_[np.linspace(0.3, 0.6, 80), np.full(10, 1 - 1e-8), np.full(10, 1 - 1e-9)]  # a fifth is crowded
    figure = inspect.draw_reliability(few, errors)
    assert figure.axes[0].get_xscale() == "logit"
    assert "Means above 0.999999 are at it." in " ".join(figure.get_supxlabel().split())
    bar = figure.axes[0].collections[0].get_segments()[0][:, 1]
    np.testing.assert_allclose(bar, [0, 0.2775], atol=1e-4)  # of 0 in 10
    assert len(inspect.draw_reliability(scores[:3], errors[:3]).axes[0].lines[1].get_xdata()) == 3


def test_reliability_never_splits_rows_of_one_score():
    few = np.repeat([0.2, 0.9, 0.95, 1.0], [3, 20, 70, 7])
    (axes,) = inspect.draw_reliability(few, np.tile([0.0, 1.0], 50)).axes
    points = axes.lines[1]
    assert points.get_xdata() == pytest.approx([0.2, 0.9, 0.95, inspect.HIGHEST])
    assert (points.get_label(), points.get_linestyle()) == ("each score: 3 to 70 rows", "None")
    assert (axes.get_xlabel(), axes.get_xscale()) == ("score", "linear")
    many = np.r_[np.linspace(0.1, 0.2, 11), np.full(78, 0.5), np.linspace(0.6, 0.7, 11)]
    points = inspect.draw_reliability(many, np.zeros(100)).axes[0].lines[1]
    assert points.get_label() == "groups of 10 to 79 rows"  # .2 is in that of .5
    assert len(points.get_xdata()) == 3


def test_no_line_of_thresholds_crosses_where_rows_tie():
    """A threshold answers 2% or 70%; at alpha = .1 the dot is at the FDR of the first, .02."""
    curve = files.Table({"coverage": [1.0, 1.0, 0.7, 0.02, 0.01, 0.0], "risk": [0.2, 0.2, 0.12, 0.02, 0.0, np.nan]})
    figure = inspect.draw_risk(curve, 0.2, 3000, {0.1: ("0.99", 0.02, 0.02)})
    line, _, _, dot = figure.axes[0].lines
    nan = [np.nan] * 2
    np.testing.assert_equal(line.get_xydata(), [[1, 0.2], [1, 0.2], nan, [0.7, 0.12], nan, [0.02, 0.02], [0.01, 0]])
    assert list(line.get_markevery()) == [1, 3, 5]
    assert dot.get_xydata().tolist() == [[0.02, 0.02]]
    assert "No threshold lies in a gap between circles." in " ".join(figure.get_supxlabel().split())


def test_each_alpha_is_marked_with_its_share_or_said_to_be_not_reached():
    curve = files.Table({"coverage": [1.0, 0.0], "risk": [0.4, 1.0]})
    figure = inspect.draw_risk(
        curve, 0.2, 3000, {0.1: ("0.8", 0.25, 0.08), 0.15: ("0.8", 0.25, 0.08), 0.2: ("0.7", 0.5, 0.2), 0.05: None}
    )
    (axes,) = figure.axes
    labels = ["$\\alpha$: answered, least score", "5%: not reached", "10%, 15%: 25.0%, 0.8", "20%: 50.0%, 0.7"]
    assert [x.get_text() for x in axes.texts] == labels
    marks = [line.get_xydata().tolist() for line in axes.lines[2:]]
    assert marks[::2] == [[[1, 0.1], [0.25, 0.1], [0.25, 0]], [[1, 0.2], [0.5, 0.2], [0.5, 0]]]
    assert marks[1::2] == [[[0.25, 0.08]], [[0.5, 0.2]]]
    curve = files.Table({"coverage": [1.0, 0.02, 0.009, 0.0], "risk": [0.4, 0.2, 1.0, np.nan]})
    figure = inspect.draw_risk(curve, 0.4, 3000, {0.3: ("0.9", 0.02, 0.2)})
    assert figure.axes[0].get_ylim() == (0, pytest.approx(0.44))  # whatever the first rows
    assert "Thresholds that answer less than 1% are not drawn." in " ".join(figure.get_supxlabel().split())


def test_tables_are_kept_if_a_figure_fails(monkeypatch):
    monkeypatch.setattr(sweep_figures, "draw", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(Sweep(trials=2, horizon=300, arms=20, learners=("ew",), out="out"))
    assert {"trials.csv", "curves.csv"} < {path.name for path in Path("out").iterdir()}
    monkeypatch.undo()
    assert resume("out").trials.shape[0] == 2
