"""``exaul score``: a column for each score in rows that exist, and no call made twice."""

import json

import numpy as np
import pandas as pd
import pytest
from starlette.responses import JSONResponse

from exaul.commands.main import main
from tests.models.stub import completion
from tests.refusals import refusal_of


def rule(body, before):
    """Verdicts on answers: the more letters an answer has, the surer."""
    prompt = body["messages"][0]["content"]
    if "in percent" not in prompt:
        return completion("blue" if body["seed"] % 2 else "green")
    answer = json.loads(prompt.partition("Proposed answer: ")[2].partition("\n")[0])
    return completion(f"{10 * len(answer)}%")


@pytest.fixture
def rows(tmp_path):
    """Six rows of somebody's log."""
    path = tmp_path / "rows.jsonl"
    answers = ["blue", "green", "red", "", "Blue.", "a blue one"]
    lines = [
        {
            "ask": f"Which colour has {n}?",
            "got": answer,
            "error": n % 2,
            "tags": ["a"],
            "hole": "=1" if n != 1 else " ",
        }
        for n, answer in enumerate(answers)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def command(stub, rows, out, *more, names=("verbal", "exact")):
    argv = ["score", str(rows), "--score", *names, "--question-column", "ask", "--answer-column", "got"]
    return [*argv, "--endpoint", stub.url, "--model", "m", "--out", str(out), "--progress", "quiet", *more]


def test_scores_are_added_to_the_rows(stub, rows, tmp_path, capsys):
    """An empty answer has none; other columns stay, but lists."""
    stub.rule = rule
    assert main(command(stub, rows, tmp_path / "out", "--samples", "4")) == 3
    log = pd.read_csv(tmp_path / "out" / "log.csv")
    assert list(log) == ["ask", "got", "error", "hole", "score_verbal", "score_exact"]
    np.testing.assert_equal(log["score_verbal"].tolist(), [0.4, 0.5, 0.3, np.nan, 0.5, 1.0])
    np.testing.assert_equal(log["score_exact"].tolist(), [0.5, 0.5, 0, np.nan, 0.5, 0])
    printed = capsys.readouterr().out
    assert f"5 of 6 rows have all scores: {tmp_path / 'out' / 'log.csv'}\n26 calls made, " in printed
    assert "  empty answers: 1\n" in printed
    prompts = [body["messages"][0]["content"] for body in stub.asked]
    assert sum("Question: Which colour has 2?\nAnswer:" in prompt for prompt in prompts) == 4
    assert main(command(stub, rows, tmp_path / "out", "--samples", "4")) == 3
    assert len(stub.asked) == 26  # one is the first question, of which the answer is not used
    assert "0 calls made" in capsys.readouterr().out
    pd.testing.assert_frame_equal(log, pd.read_csv(tmp_path / "out" / "log.csv"))


def test_texts_of_collect_are_rows(stub, sums, tmp_path):
    """Their errors come along, so that the log can be inspected; samples of collect's requests are the same."""
    flags = ["--endpoint", stub.url, "--model", "m", "--progress", "quiet"]
    assert main(["collect", str(sums), *flags, "--out", str(tmp_path / "first")]) == 0
    argv = ["score", str(tmp_path / "first" / "texts.jsonl"), *flags, "--score", "exact"]
    assert main([*argv, "--out", str(tmp_path / "second")]) == 0
    assert main(["inspect", str(tmp_path / "second" / "log.csv"), "--score", "score_exact"]) == 0
    assert main(["collect", str(sums), *flags, "--score", "exact", "--out", str(tmp_path / "third")]) == 0
    second, third = (pd.read_csv(tmp_path / name / "log.csv") for name in ("second", "third"))
    pd.testing.assert_frame_equal(second[["id", "error", "score_exact"]], third[["id", "error", "score_exact"]])


def test_what_fails_is_empty_and_counted(stub, rows, tmp_path, capsys):
    failing = "Which colour has 2?"
    stub.rule = lambda body, before: JSONResponse({}, 500) if failing in str(body) else rule(body, before)
    argv = command(stub, rows, tmp_path / "out", "--retries", "0", "--concurrent", "1")
    assert main(argv) == 3
    printed = capsys.readouterr().out
    assert "4 of 6 rows have all scores" in printed
    assert "  status 500: 1\n" in printed
    assert pd.read_csv(tmp_path / "out" / "log.csv")["score_exact"].isna().tolist() == [
        n in (2, 3) for n in range(6)
    ]
    stub.rule = rule
    assert main(argv) == 3
    assert "5 of 6 rows have all scores" in capsys.readouterr().out
    assert max(stub.counts()[text] for text in stub.counts() if failing not in text) == 1


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--score", "logprob"], "score: logprob needs a reply with log-probabilities"),
        (["--judge", "llm"], "judge: 'llm' found; rows are scored, and not judged"),
        (["--answer-column", "nothing"], "rows.jsonl: no column nothing; it has ask, got"),
        (["--score", "mine:f"], "score: 'mine:f' cannot be imported"),
        (["--question-column", "hole"], "rows.jsonl, row 2: hole is empty; each row needs a question"),
    ],
)
def test_bad_flags_and_rows_are_one_sentence(stub, rows, tmp_path, capsys, flags, sentence):
    assert sentence in refusal_of([*command(stub, rows, tmp_path / "out"), *flags], capsys)
    assert not (tmp_path / "out").exists()


def test_bad_files_are_one_sentence(stub, rows, tmp_path, capsys):
    column = '{"ask": "a", "got": "b", "score_exact": 1}', "there is a column score_exact; it must be new"
    for content, sentence in (
        column,
        ('{"ask": "a", "got": "b\\ud800"}', "rows.jsonl, row 1: "),
        ("", "rows.jsonl"),
    ):
        rows.write_text(content)
        assert sentence in refusal_of(command(stub, rows, tmp_path / "out"), capsys)
