"""Results of other tools as logs."""

import json
import math
import sys

import pandas as pd
import pytest

from exaul.commands.main import main
from tests.refusals import refusal_of

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


NO_FIELDS = ["metadata", "trace_metadata", "tags"]  # objects here, which Parquet holds only with fields


def save(rows, path):
    """Write a text, or rows in the format of a file's name, as the tools and pandas do."""
    if isinstance(rows, str):
        path.write_text(rows)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        pd.DataFrame(rows).drop(columns=NO_FIELDS, errors="ignore").to_parquet(path)
    else:
        pd.DataFrame(rows).to_csv(path, index=False)
    return str(path)


def conversion(tmp_path, tool, files, *flags):
    """Write the files, and return the command that makes log.csv of them."""
    paths = [save(rows, tmp_path / name) for name, rows in files.items()]
    return ["convert", tool, *paths, "--out", str(tmp_path / "log.csv"), *flags]


def converted(tmp_path, *given):
    """The log that a tool's files become."""
    (tmp_path / "log.csv").unlink(missing_ok=True)
    assert main(conversion(tmp_path, *given)) == 0
    return pd.read_csv(tmp_path / "log.csv")


def test_a_multiple_choice_of_lm_eval(tmp_path):
    log = converted(tmp_path, "lm-eval", {"samples_task.jsonl": [CHOICE, CHOICE | {"doc_id": 1, "acc": 0.0}]})
    likely = [math.exp(x) for x in (-0.109, -0.551, -0.707)]
    assert list(log["score_logprob"]) == pytest.approx(2 * [likely[0] / sum(likely)])
    assert list(log["error"]) == [0, 1]
    assert list(log["id"]) == ["samples_task-0", "samples_task-1"]
    assert list(converted(tmp_path, "lm-eval", {"x.jsonl": [CHOICE]}, "--metric", "acc_norm")["error"]) == [1]


def test_filters_of_lm_eval(tmp_path, capsys):
    files = {"x.jsonl": [TEXT, TEXT | {"filter": "flexible-extract", "exact_match": 0.0}]}
    said = refusal_of(conversion(tmp_path, "lm-eval", files), capsys)
    assert "several filters, flexible-extract, strict-match; --filter chooses one" in said
    assert list(converted(tmp_path, "lm-eval", files, "--filter", "flexible-extract")["error"]) == [1]


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
    assert sentence in refusal_of(conversion(tmp_path, "lm-eval", {"samples_task.jsonl": [row]}), capsys)
    assert not (tmp_path / "log.csv").exists()


def test_a_file_is_converted_once_and_to_a_csv(tmp_path, capsys):
    name = "samples_task.jsonl"
    said = refusal_of(conversion(tmp_path, "lm-eval", {name: [CHOICE], f"./{name}": [CHOICE]}), capsys)
    assert "files: the id 'samples_task-0' occurs twice in 'samples_task'; is a file" in said
    argv = conversion(tmp_path, "lm-eval", {name: [CHOICE]}, "--out", str(tmp_path / "x.parquet"))
    assert "x.parquet' found; it must be a name that ends in .csv" in refusal_of(argv, capsys)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def sample(id, epoch, answer, value, logprobs=None, **scores):
    """A sample of a log of Inspect."""
    content = {"content": [{"token": "x", "logprob": x} for x in logprobs or []]}
    output = {"choices": [{"logprobs": content if logprobs else None}], "completion": answer}
    scores = {"match": {"value": value, "answer": answer}} | scores
    return {"id": id, "epoch": epoch, "error": None, "output": output, "scores": scores}


@pytest.mark.usefixtures("inspect_ai")
def test_epochs_of_inspect_are_one_row(tmp_path):
    samples = [
        sample("q1", 2, "Lyon", "I"),
        sample("q1", 1, "Paris", "C", [-0.2, -0.4]),
        sample("q1", 3, "paris.", "C"),
        sample("q2", 1, "Bonn", "P", [-1.0]),
        sample("q2", 2, "Bonn", "C"),
        sample("q3", 1, "", "I") | {"error": {"message": "broken"}},
        sample("q4", 1, "", "I") | {"scores": {}},
    ]
    log = converted(tmp_path, "inspect", {"run.json": {"samples": samples}})
    assert list(log["id"]) == ["q1", "q2"]
    assert list(log["score_logprob"]) == pytest.approx([math.exp(-0.3), math.exp(-1)])
    assert list(log["score_exact"]) == [0.5, 1]
    assert list(log["error"]) == [0, 0.5]


@pytest.mark.usefixtures("inspect_ai")
@pytest.mark.parametrize(
    ("value", "logprobs", "more", "sentence"),
    [
        ("C", [-1.0], {"other": {"value": 0.25}}, "several scorers, match, other; --metric chooses one"),
        (math.nan, [-1.0], {}, "sample q has the score nan; it must be in [0, 1]"),
        pytest.param(10**400, [-1.0], {}, "sample q has the score 1000", id="huge"),
        ([0.5], [-1.0], {}, "sample q has the score [0.5]; it must"),
        ("C", [-1.0, 3.5], {}, "neither usable logprobs nor further epochs"),
    ],
)
def test_a_log_of_inspect_without_a_score_is_one_sentence(tmp_path, value, logprobs, more, sentence, capsys):
    files = {"run.json": {"samples": [sample("q", 1, "x", value, logprobs, **more)]}}
    assert sentence in refusal_of(conversion(tmp_path, "inspect", files), capsys)
    if more:
        assert list(converted(tmp_path, "inspect", files, "--metric", "other")["error"]) == [0.75]


def test_what_is_no_log_of_inspect_may_be_a_table(tmp_path, inspect_ai, monkeypatch, capsys):
    """The sentence has its columns, and the command that reads it; also if Inspect is not installed."""

    def said(row):
        return refusal_of(conversion(tmp_path, "inspect", {"x.json": row}), capsys)

    hint = "; the log has said; for a table of answers use exaul convert table"
    told = said({"said": "a"})
    assert "x.json: no log of Inspect (" in told
    assert hint in told
    assert "for a table" not in said(0)
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    assert f"x.json: needs inspect-ai; pip install inspect-ai{hint}" in said({"said": "a"})
