"""The commands and programs of the README and of the documentation run, and print what the pages say.

The examples do, too. Blocks of bash are for a cluster or a machine with services, and those of other languages are
files.
"""

import json
import re
import shlex
import shutil
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest

import exaul
from examples import abstainer, many_games, one_game
from exaul import Sweep
from exaul.commands.main import main
from exaul.engine.results import figures

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LONG = "run exaul sweep\n|adversary-history --horizon|exaul verify --trials|regret_scaling|in_axes"
NOT_RUN = {  # why a command, program or output is not run, or not compared: a part of it
    "these tests": "uv run pytest",
    "a server; tests/serving/http/test_five_minutes.py": "exaul serve|curl -s|import OpenAI",
    "a model, or exports of other tools; tests/models": "http://127.0.0.1:8000|convert langfuse|feedback 'thumb'",
    "hours; tests/experiments, tests/benchmarks": "experiments|-m benchmarks",
    "changes the installation; tests/test_package.py": "pip install numpy|pip install --no-deps",
    "a cluster; tests/engine/test_executors.py": "--extra ray|--extra dask|ProcessPoolExecutor",
    "a GPU": "--extra cuda12",
    "words, or a file": "sweep > source|# tokens: scopes|exaul-backup",
    "an error; tests/engine/test_data.py": "row 2: score is",
}
EXCEPTIONS = "|".join(NOT_RUN.values())
WORDS = EXCEPTIONS.replace("exaul serve|", "")  # an output may name that command


def run(command, small):
    """Run a command of exaul, or a program of one line; a sweep whose output is not shown is smaller."""
    words = shlex.split(command.split("&& ")[-1])
    if words[:4] == ["uv", "run", "python", "-c"]:
        exec(words[4], {})
        return
    words = words[words.index("exaul") + 1 :]
    if small and words[0] == "sweep":
        words += ["--trials", "2", "--arms", "20"] + ([] if "replay" in words else ["--horizon", "300"])
        words += ["--least", "20"] if "--each" in words else []
    assert main(words) == 0, command


def smaller(**fields):
    """A sweep of a program whose output is not shown."""
    return Sweep(**{"trials": 2, "arms": 20, "horizon": 300} | fields)


def one_line(text):
    """An output without its breaks of lines, and without sizes, which depend on the machine."""
    return " ".join(re.sub(r"[\d.]+ [MG]iB", "", text).split())


@pytest.fixture
def folder(tmp_path, monkeypatch, few_figures):
    """A folder with what the pages take for granted: the examples, logs of the reader, tables of other tools.

    Figures, of which no page shows one, are not written: that takes longer than all else.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(figures, "save", lambda figure, path: None)
    shutil.copytree(ROOT / "examples", "examples")
    rng = np.random.default_rng(0)
    columns = {"model": ["a", "b"] * 25, "dataset": "c", "score_exact": rng.random(50)}
    log = pd.DataFrame({"score": rng.random(50), "correct": rng.integers(0, 2, 50)} | columns)
    for name in ("my-log", "before", "after", "billing", "new", "trivia/log", "my-logs/first", "my-logs/second"):
        Path(name).parent.mkdir(exist_ok=True)
        log.to_csv(f"{name}.csv", index=False)
    rows = [{"result": {"confidence": k}, "prediction": "Paris ", "answer": "paris"} for k in range(10)]
    Path("results.json").write_text(json.dumps(rows))
    Path("results.tsv").write_text("confidence\tis_correct\n85%\tyes\n")


CASES = [(page, False) for page in PAGES] + [
    pytest.param(page, True, marks=pytest.mark.slow) for page in PAGES if re.search(LONG, page.read_text("utf-8"))
]


@pytest.mark.parametrize(("page", "long"), CASES, ids=lambda of: getattr(of, "stem", None))
def test_a_page_prints_what_it_shows(page, long, folder, capsys, monkeypatch):
    """Its blocks run in their order; those in LONG only if ``long``. Three dots are what an output leaves out."""
    scope, printed = {"__name__": "page"}, []
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    for (language, text), (after, _) in pairwise([*found, ("end", "")]):
        is_shown = after in ("", "text")
        monkeypatch.setattr(exaul, "Sweep", Sweep if is_shown else smaller)
        is_output = language in ("", "text")
        if not long and (re.search(LONG, text) or (is_output and printed[-1:] == [None])):
            printed.append(None)  # not run, and what follows is not compared
            continue
        if is_output and not re.search(WORDS, text):
            parts = ".*".join(re.escape(one_line(part)) for part in text.split("..."))
            assert any(re.search(parts, one or "") for one in printed), text
        elif language == "python" and not re.search(EXCEPTIONS, text):
            with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # as a reader has it
                exec(text, scope)
            if "abstainers" in scope:
                scope["abstainers"].close()  # as at the end of a program
            if name := re.match(r"# (\w+\.py)\n", text):
                Path(name[1]).write_text(text)
        elif language == "sh":
            whole_lines = text.replace("\\\n", " ").replace(",\n", ", ")  # also within quoted JSON
            for command in re.sub(r"^#.*\n", "", whole_lines, flags=re.MULTILINE).splitlines():
                if not re.search(EXCEPTIONS, command):
                    run(command, small=not is_shown)
        printed.append(one_line(capsys.readouterr().out))


def test_no_exception_is_out_of_date():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [part for part in f"{EXCEPTIONS}|{LONG}".split("|") if part not in text] == []


def test_one_game(capsys):
    one_game.main()
    assert "of 10,000 questions" in capsys.readouterr().out


def test_many_games_are_those_of_one(tmp_path, monkeypatch, capsys):
    """The regrets fall from the smallest rate on, and a figure is drawn."""
    monkeypatch.setattr(many_games, "SEEDS", 5)
    many_games.main(str(tmp_path / "regret.png"))
    lines = capsys.readouterr().out.splitlines()
    names = [*(f"eta x {x:g}" for x in many_games.SCALES), "the regret after each round"]
    assert [line.split(":")[0] for line in lines] == names
    regrets = [float(line.split()[4]) for line in lines[:-1]]
    assert regrets[0] > regrets[2] > 0
    assert (tmp_path / "regret.png").stat().st_size > 10_000


def test_an_abstainer_decides_twenty_questions(capsys):
    abstainer.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("aci-rank starts by answering")
    assert len(lines) == 22
    assert "feedback" in lines[1]  # the log is enough to answer the first question
    shown = [line for line in lines[1:-1] if "feedback" in line]
    assert 0 < len(shown) < 20
    assert lines[-1].startswith(f"{len(shown)} answers shown")
