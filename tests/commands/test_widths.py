"""What commands print within terminals of 40 to 200 columns, with hostile names; and in a pipe."""

import re
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exaul import Sweep, run
from exaul.commands.verify import Certificate, certificate_text
from exaul.engine import run as engine_run
from exaul.engine.logs.log import Records
from exaul.engine.results.text_table import COMMAND, wrap
from tests.engine.test_text_table import cells
from tests.processes import output_of

WIDTHS = st.integers(40, 200)
LOG = "answers of 2026,model=语言模型 " + "x" * 90
NAMES = {
    "exaul": "company.research.abstention.learners.version_2:exaul_with_decay",
    "ew": "学习者:ew",
    "aci-rank": "a:b\n\x1b[2J",
}


def too_long(text, width):
    """The lines that a terminal would wrap, other than commands to copy."""
    return [line for line in text.split("\n") if cells(line) > width and not line.startswith(COMMAND)]


@pytest.fixture(scope="module")
def result():
    """The result of a sweep whose learners and log have hostile names; feedback is imperfect, lambda varies."""
    rng = np.random.default_rng(0)
    scores = rng.random(300)
    records = Records(LOG, scores, (rng.random(300) > scores).astype(float), 3, None)
    sweep = Sweep(
        trials=2, horizon=300, arms=20, alphas=(0.1, 0.25), lambdas=(3, 20), learners=tuple(NAMES), delay=2
    )
    plain = run(sweep, [records])
    (source,) = plain.manifest["sources"]
    learners = [learner | {"learner": NAMES[learner["learner"]]} for learner in source["learners"]]
    return replace(
        plain,
        trials=plain.trials.replace({"learner": NAMES}),
        manifest=plain.manifest | {"sources": [source | {"learners": learners}]},
    )


@pytest.fixture(scope="module")
def whole(result):
    """The columns that a pipe gets."""
    return theory_table(result.summary(None, theory=True))


def theory_table(text):
    """The cells of the first table of --theory by title, of columns of numbers."""
    _, head, *lines = next(
        part for part in text.split("\n\n") if re.search(r"\n *learner .* alpha .*regret(  |\n)", part)
    ).splitlines()
    titles = re.split("  +", head.strip())[1:]
    rows = [re.split("  +", line)[-len(titles) :] for line in lines]
    return {title: [row[n] for row in rows] for n, title in enumerate(titles)}


@settings(max_examples=15)
@given(width=WIDTHS)
def test_the_summary_of_a_sweep(result, whole, width):
    """Its numbers do not depend on the width."""
    text = result.summary(width, theory=True)
    narrow = theory_table(text)
    assert too_long(text, width) == []
    assert {"alpha", "lambda", "regret"} <= narrow.keys() <= whole.keys()
    assert narrow == {title: whole[title] for title in narrow}


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """The result of a sweep over traces, and its folder with the log; the names are hostile."""
    folder = tmp_path_factory.mktemp("logs")
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"score": rng.random(400), "error": rng.integers(0, 2, 400)})
    table.loc[300:, "error"] = 1  # defects, of which ``inspect`` tells in long sentences
    table["model"] = np.repeat(["m" * 80, "语言模型 " * 6, "a,b", "c"], 100)
    table.to_csv(folder / "log.csv", index=False)
    sweep = Sweep(
        logs=str(folder), each="model", trials=2, arms=20, alphas=(0.05, 0.3, 0.6), learners=("exaul", "ew")
    )
    result = run(sweep)
    return replace(result, trials=result.trials.replace({"learner": NAMES})), folder


@settings(max_examples=15)
@given(width=WIDTHS)
def test_the_summary_over_traces(traces, width):
    assert too_long(traces[0].summary(width), width) == []


@given(width=WIDTHS)
def test_a_certificate(width):
    changes = {name: np.array([1e-3, -2e-5]) for name in ("FDR", "inefficiency", "regret a round")}
    certificates = [Certificate(name, "rows", 3, 384_000, changes) for name in NAMES.values()]
    text = certificate_text(certificates, ["no-abstention" * 9], "float32", width)
    assert too_long(wrap(text, width), width) == []


COMMANDS = {
    "inspect": ["inspect", "LOG"],
    "inspect traces": ["inspect", "FOLDER", "--each", "model"],
    "inspect scores": ["inspect", "SCORES"],
    "plan": ["plan", "--slack", "0.05", "--audit", "0.3", "--horizon", "123456789"],
    "profiles": ["profiles"],
    "sweep": ["sweep", "--trials", "2", "--horizon", "300", "--arms", "20", "--theory"],
    "dry run": ["sweep", "--trials", "2", "--horizon", "300", "--arms", "20", "--dry-run"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_fit_the_terminal_and_a_pipe_gets_all_columns(name, traces, tmp_path, monkeypatch, capsys):
    finish, found = engine_run.finish, []  # of the widths, all print one result
    monkeypatch.setattr(engine_run, "finish", lambda *given: (found or found.append(finish(*given)) or found)[0])
    rng = np.random.default_rng(0)
    scores = {f"score_{x}": np.sort(rng.random(400)) for x in ("a", "of_a_name" * 5, "语言", "d", "e")}
    pd.DataFrame(scores | {"error": rng.integers(0, 2, 400)}).to_csv(tmp_path / "scores.csv", index=False)
    words = {"LOG": traces[1] / "log.csv", "FOLDER": traces[1], "SCORES": tmp_path / "scores.csv"}
    argv = [str(words.get(word, word)) for word in COMMANDS[name]]
    printed = {}
    for width in (None, 40, 61, 80, 100, 137, 1000):
        monkeypatch.setattr(sys.stdout, "isatty", lambda width=width: width is not None, raising=False)
        monkeypatch.setenv("COLUMNS", f"{width or 40}")
        printed[width] = re.sub(r"[\d.]+ [GM]iB", "1 GiB", output_of(argv, capsys))  # memory varies
        if width is not None:
            assert too_long(printed[width], width) == []
    assert printed[None] == printed[1000]
    left_out = "a wider terminal, or a pipe, also"
    assert (left_out in printed[40]) == (name not in ("inspect", "dry run"))
    assert left_out not in printed[None]
