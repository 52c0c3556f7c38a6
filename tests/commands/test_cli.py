"""The command line: results, files, bad input."""

import dataclasses
import json
import re
import subprocess

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import exaul
from exaul import Sweep, run
from exaul.commands import inspect as inspection
from exaul.commands.main import COMMAND_MODULES, main, parser
from exaul.engine import registry
from exaul.engine.logs.diagnosis import recommend_grid
from exaul.engine.logs.log import Layout, Records, load_log
from exaul.engine.results.summary import shares_answerable
from exaul.kernels.metrics import best_coverage, every_threshold, separation
from tests.processes import ENTRY, ROOT, output_of, python, refusal_of, variables

SMALL = ["--trials", "2", "--horizon", "300", "--arms", "20"]


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "my-log.csv"
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"score": rng.random(400), "error": rng.integers(0, 2, 400), "model": ["a", "b"] * 200})
    rows.to_csv(path, index=False)
    return path


def test_a_sweep_writes_its_folder(tmp_path, log, capsys, monkeypatch):
    """As the same sweep in Python. A flag may be singular, or given twice; a number 20% or 3e2."""
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **how: path.touch())
    out = tmp_path / "made" / "out"
    argv = ["sweep", *SMALL, "--log", f"{log}:model=a", "--alpha", "20%", "--alphas", "0.1", "--lambda", "3", "20"]
    assert main([*argv, "--out", str(out), "--checkpoints", "7", "--horizon", "3e2"]) == 0
    figures = {f"{x}-by-{axis}" for x in ("fdr", "answered", "regret") for axis in ("alpha", "lambda")}
    figures |= {"answered", "fdr", "answered-over-time", "risk", "regret"}
    expected = {"trials.csv", "curves.csv", "advice.csv", "table.tex", "manifest.json"}
    expected |= {f"{f}.{e}" for f in figures for e in ("png", "pdf")}
    assert {p.name for p in out.iterdir()} == expected

    trials = pd.read_csv(out / "trials.csv")
    fields = {"logs": f"{log}:model=a", "alphas": [0.2, 0.1], "lambdas": [3, 20]}
    result = run(Sweep(trials=2, horizon=300, arms=20, checkpoints="7", **fields))
    pd.testing.assert_frame_equal(trials, result.trials, check_exact=True, check_dtype=False)
    order = [(n, a, b, t) for n in registry.DEFAULT_LEARNERS for a in (0.2, 0.1) for b in (3, 20) for t in (0, 1)]
    assert list(trials[["learner", "alpha", "lambda", "trial"]].itertuples(index=False, name=None)) == order
    assert set(trials["source"]) == {"my-log:model=a"}
    rules = trials["learner"].isin(["no-abstention", "always-abstain"])
    assert trials.loc[rules, ["eta", "gamma", "regret_bound", "fdr_bound"]].isna().all(axis=None)
    assert (trials.loc[trials["learner"] == "best-fixed", "regret_bound"] == 0).all()
    assert (trials.loc[trials["learner"] == "best-fixed", "regret"] == 0).all()

    curves = pd.read_csv(out / "curves.csv")
    assert len(curves) == 7 * 4 * 7
    last = curves[curves["t"] == 300].set_index(["learner", "alpha", "lambda"])["fdr_mean"]
    assert (trials["fdr"].isna() == (trials["answered"] == 0)).all()
    # in curves the FDR is alpha before the first answer, as in the paper
    fdr = trials.assign(fdr=trials["fdr"].fillna(trials["alpha"]))
    means = fdr.groupby(["learner", "alpha", "lambda"], sort=False)["fdr"].mean()
    np.testing.assert_allclose(last, means.loc[last.index], rtol=1e-12)

    about = json.loads((out / "manifest.json").read_text())
    assert about["configuration"]["alphas"] == [0.2, 0.1]
    assert about["sources"][0]["records"][0]["sha256"] is not None
    assert {"versions", "device", "start", "end"} <= about.keys()
    text = capsys.readouterr().out
    assert text.endswith(f"\n\ntables, figures and manifest: {out}\n")


def test_it_is_said_when_no_threshold_reaches_alpha(tmp_path, capsys):
    path = tmp_path / "hard.csv"
    path.write_text("score,error\n" + "0.9,0\n" + "0.9,1\n0.9,0\n" * 20)
    text = output_of(["inspect", str(path), "--alphas", "0.05", "0.5"], capsys)
    assert "alpha = 0.05 (the least alpha at which one does: 0.488, the edge of these rows); a learner" in text
    assert text.endswith(f" advised:\n  exaul sweep --logs {path} --alphas 0.05 0.5 --warm-start 0.5\n")
    path.write_text("score,error\n" + "0.99,0\n" + "0.9,1\n" * 36)
    lucky = output_of(["inspect", str(path), "--alphas", "0.1"], capsys)  # one right answer is no threshold
    assert "of this log at alpha = 0.1 (the least alpha at which one does: " in lucky
    rows = "0.999999999,0.5,0\n" * 7 + "0.999999999,0.9,1\n" + "0.99999999,0.9,1\n" * 2
    path.write_text(f"score_a,score_b,error\n{rows}")
    text = output_of(["inspect", str(path)], capsys)
    assert text.endswith("--score score_a --alphas 0.2 --warm-start 0.5\n")
    path.write_text("score_msp,error\n" + "0.99999999,1\n0.999999999,0\n" * 20)
    text = output_of(["inspect", str(path)], capsys)
    assert text.endswith(f":\n  exaul sweep --logs {path} --score score_msp --alphas 0.05 --warm-start 0.5\n")


def test_inspect_shows_alphas_at_which_a_part_is_answered(tmp_path, capsys):
    path = tmp_path / "hard.csv"  # of 100 rows, 30 are wrong; above a score of .5, 26 of 100
    path.write_text("score,error\n" + "0.9,1\n" * 13 + "0.9,0\n" * 37 + "0.1,1\n" * 17 + "0.1,0\n" * 33)
    text = output_of(["inspect", str(path)], capsys)
    table = text[text.index("alpha   a score of") :].split("\n\n")[0]
    answered = {float(line.split()[0]): line.split()[-2] for line in table.splitlines()[1:]}
    assert answered == {
        0.01: "0.0%",
        0.05: "0.0%",
        0.1: "0.0%",
        0.2: "0.0%",
        0.26: "50.0%",
        0.28: "50.0%",
        0.29: "50.0%",
    }
    command = f"exaul sweep --logs {path} --alphas 0.26 0.28 0.29 --warm-start 0.5"
    assert f"of it, and whether one is advised:\n  {command}" in text  # perhaps not at the least
    assert "0.26 " not in output_of(["inspect", str(path), "--alphas", "0.1", "0.2"], capsys)


def test_inspect_says_that_a_score_is_empty_and_sweeps_the_others_where_a_part_is_answered(tmp_path, capsys):
    path = tmp_path / "log.csv"  # of 100 rows, 17 are wrong; from a score of .9, 11 of 72
    rows = "0.9,1,\n" * 11 + "0.9,0,\n" * 61 + "0.1,1,\n" * 6 + "0.1,0,\n" * 22
    path.write_text(f"score_a,error,score_empty\n{rows}")
    text = output_of(["inspect", str(path)], capsys)
    only = f"only score_a has values:\n  exaul sweep --logs {path} --score score_a"
    assert text.endswith(f"{only} --alphas 0.16 --warm-start 0.5\n")
    assert re.search(r"^score_empty( +-){5} +0 \(-100\) +- +0 +-$", text, re.MULTILINE)
    for flags in [], ["--drop-missing"]:
        assert main(["inspect", f"{path}:error=1", "--score", "score_empty", *flags]) == 2
        assert "score_empty is empty in all 17 selected rows; name another" in capsys.readouterr().err


def test_profiles(capsys):
    text = output_of(["profiles"], capsys)
    assert re.search(r"^triviaqa-like +0.151 +100000 ", text, re.MULTILINE)
    assert re.search(r"^triviaqa-like: synthetic", text, re.MULTILINE)
    assert "mmlu-probability" in text


def test_inspect(tmp_path, log, capsys):
    text = output_of(["inspect", str(log), "--alphas", "0.3", "0.5", "0.9", "--out", str(tmp_path / "o")], capsys)
    scores, errors = load_log(str(log), Layout())[1:3]
    quality = f"right answers score above wrong ones in {separation(scores, errors):.0%} of pairs (50%: chance)"
    for word in ("rows", "error rate", "distinct scores", "ties at 1", quality):
        assert word in text
    lines = [line.split() for line in text[text.index("alpha   a score of") :].splitlines()[1:3]]
    for alpha, (_, threshold, answered, fdr) in zip((0.3, 0.5), lines, strict=True):
        shown = scores >= float(threshold)
        assert (answered, fdr) == (f"{shown.mean():.1%}", f"{errors[shown].mean():.2%}")
        assert shown.mean() == best_coverage(every_threshold(scores), scores, errors, alpha)
    assert re.search(rf"0\.9 +0 \(all\) +100\.0% +{errors.mean():.2%}\n", text)
    assert {p.suffix for p in (tmp_path / "o").iterdir()} == {".png", ".pdf", ".csv"}


def test_the_shortest_decimal_between_two_scores():
    between = inspection.shortest_between
    shortest = {(0.5, 0.9): "0.9", (0.83, 0.8312): "0.831", (-1.0, 0.0): "0", (0.5, 1.0): "1"}
    assert {scores: between(*scores) for scores in shortest} == shortest
    assert float(between(0.1, 0.1 + 2e-17)) == 0.1 + 2e-17


def test_the_default_grid_is_named_where_it_loses_answers():
    """No evenly spaced threshold tells the first scores apart; the others are such thresholds themselves."""
    errors = np.tile([1.0, 0.0], 50)
    loses, suits = (Records("log", x, errors, 0, None) for x in (0.9999 - errors / 1e6, (998 - errors) / 999))
    said = (
        "thresholds, which a sweep takes by default, answer at best 0.0% at alpha = 0.05, 0.0% at alpha = 0.1: add"
    )
    hints = [recommend_grid(x, shares_answerable([x], 1, [0.6, 0.05, 0.1])) for x in (loses, suits)]
    assert said in hints[0]
    assert hints[1] == ""


def test_the_command_alone_says_what_to_do_first(capsys):
    text = output_of([], capsys)
    for command in ("sweep", "sweep --logs LOG.csv", "inspect LOG.csv", "serve --state FILE", "--help"):
        assert f"exaul {command}" in text
    assert output_of(["--help", "sweep"], capsys) == output_of(["--help"], capsys)  # which lists all commands
    assert output_of(["help"], capsys) == output_of(["--help"], capsys)
    assert output_of(["help", "plan"], capsys) == output_of(["plan", "--help"], capsys)
    assert output_of(["--version"], capsys) == f"exaul {exaul.__version__}\n"


def test_a_bad_command_is_answered_by_the_word_that_was_meant_if_there_is_one(capsys):
    words = {"swep": "sweep", "sweep --alpah 0.1": "--alphas", "sweep --warmstart log.csv": "--warm-start"}
    words["journal exprt s"] = "export"
    for argv, meant in words.items():
        assert refusal_of(argv.split(), capsys).endswith(f"; did you mean {meant}?\n")
    elsewhere = {"sweep --width 3": "--width is a flag of exaul figures"}
    elsewhere["inspect x --trials 3"] = "--trials is a flag of exaul sweep, verify"
    for argv, said in elsewhere.items():
        assert refusal_of(argv.split(), capsys).endswith(f"; {said}\n")
    assert refusal_of(["journal"], capsys).endswith(" required: start|verify|export\n")
    for argv in ("dance", "sweep --bla", "sweep --trials x", "inspect", "inspect none.csv", "inspect x --alphas 1"):
        assert "did you mean" not in refusal_of(argv.split(), capsys)


def test_each_flag_is_in_a_group(capsys):
    helps = {name: output_of([*name.split(), "--help"], capsys).partition("options:\n") for name in COMMAND_MODULES}
    for name, (usage, _, options) in helps.items():
        assert usage.startswith(f"usage: exaul {name} [FLAGS]")
        assert re.findall(r"^  (-\S+)", options.partition("\n\n")[0], re.MULTILINE) == ["-h,"], name
        for example in options.partition("\nexamples:\n")[2].splitlines():
            assert parser(example.split()[1:]).parse_args(example.split()[1:]).run
    assert all("\nexamples:\n" in helps[name][2] for name in ("serve", "plan"))
    assert "--alpha " not in helps["sweep"][2]
    assert all("--" + field.name.replace("_", "-") in helps["sweep"][2] for field in dataclasses.fields(Sweep))
    fields = Sweep.__doc__.partition("\nFields:\n")[2].splitlines()  # of help(exaul.Sweep)
    assert [line.split(":")[0].strip() for line in fields] == [field.name for field in dataclasses.fields(Sweep)]
    assert not set("{}") & {*Sweep.__doc__, *"".join(helps["sweep"])}


def test_a_broken_lemma_is_status_1(monkeypatch, capsys):
    for module in ("result", "summary"):
        name = f"exaul.engine.results.{module}.lemma_holds"
        monkeypatch.setattr(name, lambda table: (table["learner"] != "exaul").to_numpy())
    assert main(["sweep", *SMALL]) == 1
    assert "is BROKEN in 2 of 16 (exaul at alpha = 0.05: 2); the limit" in capsys.readouterr().err


@pytest.mark.slow
def test_readme_main_command_from_a_fresh_clone(tmp_path):
    subprocess.run(["git", "clone", "-q", str(ROOT), str(tmp_path / "fresh")], check=True)
    command = "pip install uv && uv run exaul sweep"
    assert command in (ROOT / "README.md").read_text()
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path / "fresh", capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "exaul" in done.stdout


def test_a_checkout_runs_without_an_installation_or_warnings_and_sets_nothing_on_import(tmp_path):
    """As on a machine whose Python has everything but exaul: no metadata of it is found."""
    before = """
from importlib import metadata

find = metadata.distribution

def distribution(name):
    if name == "exaul":
        raise metadata.PackageNotFoundError(name)
    return find(name)

metadata.distribution = distribution

import jax

before = dict(jax.config.values)
from exaul.commands import main
from exaul.engine import run
from exaul.engine.results import sweep_figures

assert dict(jax.config.values) == before and not jax.config.jax_enable_x64
sweep_figures.draw = lambda *tables: {}
"""
    # imperfect feedback is prepared before JAX is set to float64; rounding would be a warning
    flags = (
        "sweep --trials 2 --horizon 20 --arms 5 --learners aci-rank --backend dense --feedback-rate 0.3 --delay 2"
    )
    python(before + ENTRY, *flags.split(), "--out", tmp_path / "out", env=variables(PYTHONWARNINGS="error"))
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["versions"]["exaul"] == exaul.__version__
