"""Numbers beyond all bounds, and logs in every format."""

import gzip
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from exaul.commands.main import main
from exaul.engine import machine
from exaul.engine.logs import files
from exaul.engine.logs.log import Layout, load_log
from tests.commands.boundaries.helpers import ROWS, SMALL, refused


def test_numbers_beyond_all_bounds(capsys):
    refused(capsys, ["plan", "--arms", str(2**64)], "arms: 18446744073709551616 found")
    refused(capsys, ["plan", "--arms", "9" * 350], "it must be from 2 to")
    refused(capsys, ["plan", "--arms", "9" * 5000])
    refused(capsys, ["sweep", "--trials", "9" * 350], "it must be from 1 to")
    for digits in (400, 5000):
        Path("big.jsonl").write_text(f'{{"score": 0.5, "error": {"9" * digits}}}\n')
        refused(capsys, ["inspect", "big.jsonl"], "big.jsonl, row 1: ")


def test_a_row_of_json_lines_is_a_line(capsys):
    good, bad = '{"score": 0.5, "error": 1}', '{"score": 7, "error": 1}'
    for text in (f"{good}\n\n\n{bad}\n", f"{good}\n\n\n{{\n", f"{good}\n\n\n[1]\n"):
        Path("x.jsonl").write_text(text)
        refused(capsys, ["inspect", "x.jsonl"], "x.jsonl, row 4: ")
    Path("x.csv").write_text("score,error\n0.5,1\n7,1\n")
    refused(capsys, ["inspect", "x.csv"], "x.csv, row 2: ")


def test_underscores_do_not_group_digits(capsys):
    """Python would read 0_1 as 1."""
    for row in ("0_1,1", "0.2_5,1", "0.5,0_1"):
        Path("x.csv").write_text(f"score,error\n{row}\n")
        refused(capsys, ["inspect", "x.csv"], "x.csv, row 1: ", "it must be a number in [0, 1]")


@pytest.mark.parametrize(
    ("cell", "scale"), [("7", " --scale 0:10"), ("85", " --scale 0:100"), ("5%", ""), ("300", None)]
)
def test_a_score_on_another_scale_gets_a_hint(cell, scale, capsys):
    hint = "in [0, 1]\n" if scale is None else f"in [0, 1] (exaul convert table{scale} reads such scores)\n"
    Path("x.csv").write_text(f"score,error\n{cell},0\n")
    refused(capsys, ["inspect", "x.csv"], "x.csv, row 1: ", f"score is {cell!r}; it must be a number", hint)


def test_a_log_of_many_columns_takes_the_memory_of_few(capsys):
    """Of a Parquet file, pyarrow parses the metadata of all columns."""
    cells = "1," * 59_999 + "1"
    names = ",".join(map(str, range(60_000)))
    Path("x.csv").write_text(f"score,error,{names}\n" + f"0.5,0,{cells}\n0.7,1,{cells}\n" * 30)
    columns = {"score": [0.5, 0.7] * 30, "error": [0, 1] * 30} | dict.fromkeys(
        names.split(","), pyarrow.array([1] * 60)
    )
    parquet.write_table(pyarrow.table(columns), "x.parquet")
    for path, most in (("x.csv", 300), ("x.parquet", 360)):
        inspect = f"from exaul.commands.main import main; main(['inspect', {path!r}])"
        code = f"{inspect}; print(open('/proc/self/status').read())"
        done = subprocess.check_output([sys.executable, "-c", code], text=True)
        assert int(re.search(r"VmHWM:\s+(\d+) kB", done)[1]) < most * 1024
    Path("x.csv").write_text(f"score,error,{names}\n0.5,0,{cells}\n0.5,0,{cells},1\n")
    refused(capsys, ["inspect", "x.csv"], "x.csv: ", "row 2 has 60003 cells, and the header 60002")


@pytest.mark.parametrize(
    "name", ["x.json.csv", "x.parquet.csv", "x.jsonl.CSV", "jsonl", "x.csv.gz", "x.json.csv.gz"]
)
def test_the_last_ending_says_the_format(name):
    data = gzip.compress(ROWS.encode()) if name.endswith("gz") else ROWS.encode()
    Path(name).write_bytes(data)
    assert len(load_log(name, Layout()).scores) == 3


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.jsonl", '[{"score": 0.5, "error": 1}]'),  # an array
        ("x.jsonl", ' [\n{"score": 0.5, "error": 1}\n]'),
        ("x.tsv", "score\terror\ttext\n0.5\t1\ta, b\n"),
    ],
)
def test_other_forms_of_rows(name, text):
    Path(name).write_text(text)
    records = load_log(name, Layout())
    assert (records.scores.tolist(), records.errors.tolist()) == ([0.5], [1])


def test_archives_that_would_not_fit_are_refused_early(capsys, monkeypatch):
    """A gigabyte of one line, and one of rows, need at most 64 MiB beside what the process takes anyway."""
    with gzip.open("line.csv.gz", "wb", 1) as stream:
        for _ in range(256):
            stream.write(bytes(2**22))
    with gzip.open("rows.csv.gz", "wb", 1) as stream:
        stream.write(b"score,error\n")
        for _ in range(64):
            stream.write(b"0.5,1\n" * 2**20)
    rows = pyarrow.array(np.zeros(2**20))
    parquet.write_table(pyarrow.table({"score": rows, "error": rows}), "rows.parquet")
    with gzip.open("one.jsonl.gz", "wb", 1) as stream:
        stream.write(b'{"score": "' + b"x" * 2**25)
    monkeypatch.setattr(files, "host_memory", lambda: 2**30)
    before = machine.resident_bytes()
    refused(capsys, ["inspect", "line.csv.gz"], "line.csv.gz: a line of more than 16 MiB")
    refused(capsys, ["inspect", "rows.csv.gz"], "rows.csv.gz: over 82 MiB of text")
    refused(capsys, ["inspect", "one.jsonl.gz"], "a line of more than 16 MiB")
    monkeypatch.setattr(files, "host_memory", lambda: 2**27)
    refused(capsys, ["inspect", "rows.parquet"], "rows.parquet: 1,048,576 rows")
    assert machine.resident_bytes() - before < 2**26


def test_no_warnings_at_the_edges(recwarn):
    """Nothing warns where numbers overflow or nothing can be drawn; warnings are errors in tests."""
    drawn = [
        ["--lambdas", "0", "1e308", "1e-308", "--horizon", "3"],
        ["--learners", "aci-rank", "--horizon", "1"],
    ]
    accepted = [["--eta", "1e-308", "--gamma", "1e308"], ["--eta", "1e308", "--gamma", "0"], ["--delta", "1e-308"]]
    for i, edge in enumerate(drawn):
        assert main(["sweep", *SMALL, *edge, "--out", f"edge-{i}"]) == 0
    for edge in accepted:
        assert main(["sweep", *SMALL, *edge, "--horizon", "3"]) == 0
    assert not recwarn.list
