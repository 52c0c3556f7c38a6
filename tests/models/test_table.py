"""Tables of scored answers in the shapes in which they are published, as logs."""

import pytest

from tests.models.test_benchmarks import conversion, converted
from tests.refusals import refusal_of


@pytest.mark.parametrize(
    ("name", "text", "flags", "scores", "errors"),
    [
        (
            "x.json",
            '[{"c": 7, "p": " PARIS", "a": "Paris"}, {"c": "10", "p": 2, "a": "2.0"}, {"c": 0, "p": 1, "a": 3}]',
            "--score c --scale 0:10 --equal p a",
            [0.7, 1, 0],
            [0, 0, 1],
        ),
        (
            "x.jsonl",
            '{"r": {"c": "85%"}, "ok": {"v": "Yes"}}\n\n{"r": {"c": "5 %"}, "ok": {"v": false}}',
            "--score r.c --correct ok.v",
            [0.85, 0.05],
            [0, 1],
        ),
        ("x.tsv", "c\tok\n85\tCorrect\n0\tINCORRECT", "--score c --scale 0:100 --correct ok", [0.85, 0], [0, 1]),
        ("x.csv", "c,bad\n.2,true\n1,0\n1,right\n0,.25", "--score c --error bad", [0.2, 1, 1, 0], [1, 0, 0, 0.25]),
        ("x.txt", " c   ok\n0.5   1\n 1 0\n", "--score c --correct ok", [0.5, 1], [0, 1]),
        ("x.txt", "c\tok\n.5\ta 1\n", "--score c --equal c ok", [0.5], [1]),
        ("x.txt", "x y,c,ok\n0,.5, 1\n", "--score c --correct ok", [0.5], [0]),
        (
            "x.parquet",
            [{"c": 3, "ok": 1}, {"c": 1, "ok": 0}],
            "--score c --scale 5:1 --correct ok",
            [0.5, 1],
            [0, 1],
        ),
    ],
)
def test_published_shapes(tmp_path, name, text, flags, scores, errors):
    log = converted(tmp_path, "table", {name: text}, *flags.split())
    assert list(log["score"]) == pytest.approx(scores)
    assert list(log["error"]) == errors


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--score c --correct ok", "x.csv, row 2: c is empty; --drop-missing leaves out such rows"),
        ("--score c --correct no", "x.csv, row 1: no is empty; --drop-missing leaves out such rows"),
        ("--score c --correct no --drop-missing", "x.csv: no row has both a score and a label"),
        (
            "--score d --correct ok",
            "row 1: d is '7'; it must be a number from 0 to 1 (exaul convert table --scale 0:10",
        ),
        ("--score d --scale 0:5 --correct ok", "x.csv, row 1: d is '7'; it must be a number from 0 to 5\n"),
        ("--score d --scale 0:10 --correct ok", "row 2: d is 'NA'; it must be a number from 0 to 10\n"),
        ("--score c --error d", "row 1: d is '7'; it must be 0 or 1, true or false, yes or no"),
        ("--score c --equal d z", "x.csv: no column z; the log has c, d, ok, no"),
        ("--score c", "x.csv: --score COL and one of --correct COL, --error COL and --equal COL COL must name its"),
        ("--score c --error ok --correct ok", "must name its columns; the log has c, d, ok, no"),
        ("--score c --scale 1:1 --correct ok", "scale: '1:1' found; it must be two numbers, as 0:10"),
        ("--score c --scale 10 --correct ok", "scale: '10' found; it must be two numbers, as 0:10"),
        ("--score c --equal d", "equal: ('d',) found; it must be two columns"),
        ("--score c --metric x", "metric: 'x' found; it must be absent with table"),
    ],
)
def test_a_table_without_meaning_is_one_sentence(tmp_path, capsys, flags, sentence):
    argv = conversion(tmp_path, "table", {"x.csv": "c,d,ok,no\n0.5,7,1,\n,NA,0,\n"}, *flags.split())
    assert sentence in refusal_of(argv, capsys)
    assert not (tmp_path / "log.csv").exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            '[{"c": [0.5, 1], "ok": [0, 1]}]',
            ", row 1: c is a list; each answer must have a row of its own (DataFrame.",
        ),
        ('{"by": "m", "results": [{"c": 1}]}', ": no column c in its only row; save the list results alone, as an"),
    ],
)
def test_lists_of_all_answers_in_one_row_are_one_sentence(tmp_path, capsys, text, sentence):
    argv = conversion(tmp_path, "table", {"x.json": text}, "--score", "c", "--correct", "ok")
    assert f"x.json{sentence}" in refusal_of(argv, capsys)


def test_what_is_left_out_is_counted_and_other_columns_are_kept(tmp_path, capsys):
    """But not lists, nor a column that the log would take for its own; what UTF-8 cannot hold is escaped."""
    text = '[{"c": 1, "id": "a\\ud800", "error": 2, "x": [], "p": 1}, {"c": ""}, {"c": 0, "id": "=", "p": 2}]'
    log = converted(tmp_path, "table", {"x.json": text}, *["--score", "c", "--equal", "c", "p", "--drop-missing"])
    printed = capsys.readouterr().out
    assert "left out for an empty score or label: 1\n" in printed
    assert "wrong: 1; equal apart from case, surrounding spaces and the form of numbers\n" in printed
    assert list(log) == ["c", "id", "p", "score", "error"]
    assert log.to_numpy().tolist() == [[1, r"a\ud800", 1, 1, 0], [0, "'=", 2, 0, 1]]
