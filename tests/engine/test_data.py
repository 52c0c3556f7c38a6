"""Records: logs in every format, selections, profiles."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow
import pytest
from pyarrow import parquet

import exaul
from exaul import BadInput
from exaul.engine.logs.log import Layout, load_log, parse_log
from exaul.engine.logs.profiles import PROFILES, load_profile

pytestmark = pytest.mark.usefixtures("in_folder")
TABLE = pd.DataFrame({"score": [0.25, 1.0, 0.0, 0.5], "correct": [1, 0, 1, 1], "model": ["a", "a", "b", "b"]})


def write(path, table=TABLE):
    if ".csv" in path:
        table.to_csv(path, index=False)
    elif path.endswith(".parquet"):
        table.to_parquet(path)
    else:
        table.to_json(path, orient="records", lines=True)
    return path


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.jsonl", "x.jsonl.gz", "x.ndjson", "x.parquet"])
def test_formats_hold_the_same_records(name):
    records = exaul.load_log(Path(write(name)))
    assert records.name == "x"
    assert records.scores.tolist() == [0.25, 1.0, 0.0, 0.5]
    assert records.errors.tolist() == [0, 1, 0, 0]
    assert len(records.sha256) == 64
    one = load_log(write(name) + ":model=b", Layout())
    assert one.name == "x:model=b"
    assert one.scores.tolist() == [0.0, 0.5]


SPELLINGS = "0", "1", "true", "False", "TRUE", "0.25", "1.0"


def test_scores_are_read_to_the_last_bit_and_labels_in_every_spelling():
    scores = np.random.default_rng(0).random(2100)
    write("x.csv", pd.DataFrame({"s": scores, "wrong": SPELLINGS * 300}))
    errors = np.tile([0, 1, 1, 0, 1, 0.25, 1], 300)
    for label, expected in (("error", errors), ("correct", 1 - errors)):
        records = exaul.load_log("x.csv", score="s", **{label: "wrong"})
        assert (records.scores == scores).all()
        assert (records.errors == expected).all()
    Path("x.jsonl").write_text('{"score": 0.5, "error": true}\n{"score": 1, "error": 0.5}\n')
    assert load_log("x.jsonl", Layout()).errors.tolist() == [1, 0.5]


def test_missing_cells_are_left_out_and_counted_and_a_folder_is_no_log():
    with pytest.raises(BadInput, match="a folder"):
        load_log(".", Layout())
    with pytest.raises(BadInput, match="log: DataFrame found; it must be a path"):
        load_log(TABLE)
    Path("x.csv").write_text("score,error\n0.5,1\n,0\n0.25,\n0.75,0\n")
    with pytest.raises(BadInput, match=r"x\.csv, row 2: score is empty"):
        load_log("x.csv", Layout())
    records = load_log("x.csv", Layout(drop_missing=True))
    assert records.dropped == 2
    assert records.scores.tolist() == [0.5, 0.75]


def test_selection_splits_at_names_not_at_values():
    path = Path("a.csv")
    assert parse_log(f"{path}:m=x,y=z,w=1=2") == (path, {"m": "x", "y": "z", "w": "1=2"})
    assert parse_log(f"{path}:m=x, or y,n=2") == (path, {"m": "x, or y", "n": "2"})
    odd = Path("b:c=d")
    odd.write_text("score,error\n0,0\n")
    assert parse_log(str(odd)) == (odd, {})


RATES = {"triviaqa-like": 0.15, "nq-like": 0.35, "consistency-like": 0.30, "mmlu-probability": 0.19}


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_is_the_same_on_every_call_and_has_its_error_rate(name):
    """Hoeffding over 100,000 records: fails by chance below 1e-6."""
    one, other = load_profile(name), load_profile(name)
    assert (one.scores == other.scores).all()
    assert (one.errors == other.errors).all()
    assert ((one.scores >= 0) & (one.scores <= 1)).all()
    assert not name.endswith("-like") or PROFILES[name].description.startswith("synthetic")
    assert abs(one.errors.mean() - RATES.get(name, one.errors.mean())) < 0.0086


def test_real_logs(data):
    columns = Layout(score="score_msp")
    records = load_log(f"{data}/mcq-msp-llm.csv.gz:dataset=mmlu,model=gpt-4-turbo", columns)
    assert records.name == "mcq-msp-llm:dataset=mmlu,model=gpt-4-turbo"
    assert len(records.scores) > 5000
    assert abs(records.errors.mean() - 0.19) < 0.005


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", "a.csv: unreadable|a.csv: empty"),
        ("a.csv", "score,error\n", "a.csv: no row; at least one is needed"),
        ("a.csv", "score,error\n0.1,0\n1.5,0\n", "a.csv, row 2: score is '1.5'; it must be a number in"),
        ("a.csv", "score,error\nnan,0\n", "a.csv, row 1: score is 'nan'"),
        (
            "a.csv",
            "score,error\n0.1,maybe\n",
            r"error is 'maybe'; it must be a number in \[0, 1\], true, false, yes or no$",
        ),
        ("a.csv", "correct,score_msp\n1,0.5\n", "a.csv: no column 'score'; .* score=COL; did you mean score_msp"),
        ("a.csv", "msp,error,score_msp\n0.1,0,1\n", "a.csv: no column 'score'; .*; did you mean score_msp"),
        ("a.csv", "score_msp,error\n0.5,1\n", "'msp'; the log has score_msp, error; did you mean score_msp"),
        ("a.csv", "score,error\n0.1,0\n0.2,0,9\n", "a.csv: unreadable"),
        ("a.csv", "score,error,correct\n0.1,0,1\n", "a.csv: .* error and correct; .*=COL, or use exaul convert"),
        ("a.csv", "score,label\n0.1,0\n", "a.csv: no column error or correct; the log has score, label; name"),
        ("a.csv", "score;error\n0.1;0\n", "a.csv: no column .*; the log has score;error, and no comma sep"),
        ("a.csv", "score\terror\n0.1\t0\n", r"a.csv: no column .*; the log has score\\terror, and no comma sep"),
        ("a.csv", b"score,error\n\xff\xfe0.1,0\n", "a.csv: unreadable"),
        ("a.csv.gz", gzip.compress(b"score,error\n" + b"0.123,1\n" * 9999)[:-20], "a.csv.gz: unreadable"),
        ("a.jsonl", '{"score": 0.1, "error": 0}\n{"score": 0.1,\n', "a.jsonl, row 2: not JSON"),
        ("a.jsonl", "[1, 2]\n", "a.jsonl, row 1: not a JSON object"),
        ("a.csv", "score,error,score\n0.1,0,0.2\n", "a.csv: unreadable .2 columns are named 'score'; names"),
        ("a.jsonl", '{"score": 0.1, "error": 0, "score": 1}\n', "row 1: not JSON .2 columns are named 'score'"),
        ("a.jsonl", '{"score": true, "error": 0}\n', "a.jsonl, row 1: score is 'True'"),
        ("a.parquet", "not parquet", "a.parquet: unreadable"),
    ],
)
def test_bad_logs(name, content, message):
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadInput, match=message) as caught:
        load_log(name, Layout(score="msp") if "'msp'" in message else Layout())
    assert "\n" not in str(caught.value)


def test_parquet_files_of_other_tools():
    """A label that is pandas' index, an empty cell of a nullable type, two columns of one name."""
    path = "x.parquet"
    TABLE.set_index("correct").to_parquet(path)
    assert load_log(path, Layout()).errors.tolist() == [0, 1, 0, 0]
    TABLE.assign(correct=pd.array([1, None, 1, 1], "Int64"), n=pd.array([7, 7, None, 8], "Int64")).to_parquet(path)
    with pytest.raises(BadInput, match=r"x\.parquet, row 2: correct is empty"):
        load_log(path, Layout())
    records = load_log(path + ":n=7", Layout(drop_missing=True))
    assert (records.errors.tolist(), records.dropped) == ([0], 1)
    column = pyarrow.array([0.5])
    parquet.write_table(pyarrow.Table.from_arrays([column] * 3, names=["score", "error", "error"]), path)
    with pytest.raises(BadInput, match=r"x\.parquet: unreadable \(2 columns are named 'error'"):
        load_log(path, Layout())
    text = pyarrow.StringArray.from_buffers(1, pyarrow.py_buffer(b"\0\0\0\0\1\0\0\0"), pyarrow.py_buffer(b"\xff"))
    parquet.write_table(pyarrow.table({"score": text, "error": [1]}), path)
    with pytest.raises(BadInput, match=r"x\.parquet: unreadable \(.*UTF8"):
        load_log(path, Layout())
