"""Results of other tools as logs."""

import json
import math
import sys
from types import ModuleType, SimpleNamespace

import pandas as pd
import pytest

from exaul.commands.main import main

CHOICE = {
    "doc_id": 0,
    "target": "1",
    "resps": [[["-0.109", "False"]], [["-0.551", "True"]], [["-0.707", "False"]]],
    "filtered_resps": [["-0.109", "False"], ["-0.551", "True"], ["-0.707", "False"]],
    "filter": "none",
    "metrics": ["acc", "acc_norm"],
    "acc": 1.0,
    "acc_norm": 0.0,
}
TEXT = {
    "doc_id": 7,
    "target": "['Paris']",
    "resps": [["Paris", "the Paris.", "Lyon"]],
    "filtered_resps": ["Paris"],
    "filter": "strict-match",
    "metrics": ["exact_match"],
    "exact_match": 1.0,
}


def converted(tmp_path, rows, *flags, name="samples_task.jsonl", tool="lm-eval"):
    """The status, and the log."""
    (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    log = tmp_path / "log.csv"
    status = main(["convert", tool, str(tmp_path / name), "--out", str(log), *flags])
    return status, pd.read_csv(log) if log.exists() else None


def test_a_multiple_choice_of_lm_eval(tmp_path):
    status, log = converted(tmp_path, [CHOICE, CHOICE | {"doc_id": 1, "acc": 0.0}])
    assert status == 0
    likely = [math.exp(x) for x in (-0.109, -0.551, -0.707)]
    assert list(log["score_std"]) == pytest.approx(2 * [likely[0] / sum(likely)])
    assert list(log["error"]) == [0, 1]
    assert list(log["id"]) == ["samples_task-0", "samples_task-1"]
    (tmp_path / "log.csv").unlink()
    assert list(converted(tmp_path, [CHOICE], "--metric", "acc_norm")[1]["error"]) == [1]


def test_repeats_of_lm_eval(tmp_path):
    _, log = converted(tmp_path, [TEXT])
    assert list(log["score_con"]) == pytest.approx([2 / 3])
    assert list(log["error"]) == [0]


def test_filters_of_lm_eval(tmp_path, capsys):
    rows = [TEXT, TEXT | {"filter": "flexible-extract", "exact_match": 0.0}]
    assert converted(tmp_path, rows)[0] == 2
    assert "several filters, flexible-extract, strict-match; --filter chooses one" in capsys.readouterr().err
    _, log = converted(tmp_path, rows, "--filter", "flexible-extract")
    assert list(log["error"]) == [1]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (TEXT | {"resps": [["Paris"]]}, "row 1: the text was generated once"),
        (TEXT | {"exact_match": [1, 2]}, "row 1: exact_match is [1, 2]; it must be a number in [0, 1]"),
        (
            {"doc_id": 1, "resps": [], "filtered_resps": []},
            "no column acc (--metric names the correctness); the log has",
        ),
        (CHOICE | {"filtered_resps": [["x", "y"]]}, "row 1: filtered_resps is"),
        (CHOICE | {"filtered_resps": [["-1.0", "True"]]}, "row 1: one log-likelihood only; a score needs"),
        (
            CHOICE | {"filtered_resps": [["NaN", "x"], ["-1", "y"]]},
            "row 1: filtered_resps is [['NaN', 'x'], ['-1', 'y']]; log",
        ),
        (CHOICE | {"filtered_resps": [["-inf", "x"], ["-inf", "y"]]}, "must be at most 0, not all -inf"),
        (CHOICE | {"filtered_resps": [[10**400, "x"], ["-1", "y"]]}, "row 1: filtered_resps is"),
        (CHOICE | {"doc_id": "\ud800"}, "files: an id: 'samples_task-\\ud800' found; it must be UTF-8"),
        (TEXT | {"resps": [[None, None]], "filtered_resps": [None]}, "row 1: resps or filtered_resps has a repeat"),
        (TEXT | {"filtered_resps": ["42"]}, "row 1: the filter changed the text"),
    ],
)
def test_a_file_without_results_is_one_sentence(tmp_path, capsys, row, sentence):
    assert converted(tmp_path, [row])[0] == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert not (tmp_path / "log.csv").exists()


def test_a_file_is_converted_once_and_to_a_csv(tmp_path, capsys):
    path = tmp_path / "samples_task.jsonl"
    path.write_text(json.dumps(CHOICE))
    argv = ["convert", "lm-eval", str(path), f"{tmp_path}/./{path.name}", "--out", str(tmp_path / "log.csv")]
    assert main(argv) == 2
    assert "files: the id 'samples_task-0' occurs twice in 'samples_task'; is a file" in capsys.readouterr().err
    assert main([*argv[:3], "--out", str(tmp_path / "x.parquet")]) == 2
    assert "x.parquet' found; it must be a name that ends in .csv" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [path.name]


def sample(id, epoch, answer, value, logprobs=None, **scores):
    """A sample as Inspect's reader returns one."""
    content = SimpleNamespace(content=[SimpleNamespace(logprob=x) for x in logprobs or []])
    choice = SimpleNamespace(logprobs=content if logprobs else None)
    output = SimpleNamespace(choices=[choice], completion=answer)
    one = SimpleNamespace(value=value, answer=answer)
    return SimpleNamespace(id=id, epoch=epoch, error=None, output=output, scores={"match": one} | scores)


@pytest.fixture
def inspect_ai(monkeypatch):
    """Inspect's reader, as far as it is used; a list to put samples in."""
    samples = []
    log, scorer = ModuleType("inspect_ai.log"), ModuleType("inspect_ai.scorer")
    log.read_eval_log = lambda path: SimpleNamespace(samples=samples)
    scorer.value_to_float = lambda: lambda value: {"C": 1.0, "P": 0.5, "I": 0.0}.get(value, value)
    for module in (ModuleType("inspect_ai"), log, scorer):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return samples


def test_epochs_of_inspect_are_one_row(tmp_path, inspect_ai):
    inspect_ai += [
        sample("q1", 2, "Lyon", "I"),
        sample("q1", 1, "Paris", "C", [-0.2, -0.4]),
        sample("q1", 3, "paris.", "C"),
        sample("q2", 1, "Bonn", "P", [-1.0]),
        sample("q2", 2, "Bonn", "C"),
        SimpleNamespace(id="q3", epoch=1, error="broken", scores=None),
        SimpleNamespace(id="q4", epoch=1, error=None, scores={}),
    ]
    status, log = converted(tmp_path, [], name="run.eval", tool="inspect")
    assert status == 0
    assert list(log["id"]) == ["q1", "q2"]
    assert list(log["score_std"]) == pytest.approx([math.exp(-0.3), math.exp(-1)])
    assert list(log["score_con"]) == [0.5, 1]
    assert list(log["error"]) == [0, 0.5]


def test_scorers_of_inspect(tmp_path, inspect_ai, capsys):
    inspect_ai.append(sample("q", 1, "x", "C", [-1.0], other=SimpleNamespace(value=0.25, answer="x")))
    assert converted(tmp_path, [], name="run.eval", tool="inspect")[0] == 2
    assert "several scorers, match, other; --metric chooses one" in capsys.readouterr().err
    _, log = converted(tmp_path, [], "--metric", "other", name="run.eval", tool="inspect")
    assert list(log["error"]) == [0.75]
    inspect_ai[:] = [sample("q", 1, "x", math.nan, [-1.0])]
    (tmp_path / "log.csv").unlink()
    assert converted(tmp_path, [], name="run.eval", tool="inspect")[0] == 2
    assert "sample q has the score nan; it must be in [0, 1]" in capsys.readouterr().err
    inspect_ai[:] = [sample("q", 1, "x", "C", [-1.0, 3.5])]
    assert converted(tmp_path, [], name="run.eval", tool="inspect")[0] == 2
    assert "neither usable logprobs nor further epochs" in capsys.readouterr().err
