"""Logs of any name and in every format, and numbers beyond all bounds."""

import csv
import gzip
import io
import json
import os
import re
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from exaul.commands.main import main
from exaul.engine import machine
from exaul.engine.logs import files
from exaul.engine.logs.log import Layout, load_log
from tests.commands.boundaries.helpers import ROWS, SMALL
from tests.processes import ENTRY, python

NAMES = {
    "NA.csv": "NA",
    "1.csv": "1",
    "a$b.csv": "a$b",
    "c$\\frac$.csv": "c$\\frac$",
    "x.json.csv": "x.json",
    "gpt-4.0.csv": "gpt-4.0",
    "new\nline.csv": "new\\nline",
    "'=quoted.csv": "'=quoted",
    "=cmd.csv": "=cmd",
    "@sum.csv": "@sum",
}


def test_logs_of_any_names_are_swept_drawn_and_read_back(one_figure, laid_out):
    """Names may look like numbers or empty cells in CSV, like mathematics in a figure, or like formulas."""
    Path("logs").mkdir()
    for file, name in NAMES.items():
        Path("logs", file).write_text(ROWS)
        assert load_log(f"logs/{file}", Layout()).name == name
    assert main(["sweep", "--logs", "logs", "--least", "1", *SMALL, "--out", "out"]) == 0
    assert main(["figures", "out"]) == 0
    assert set(files.load(Path("out/trials.csv"))["source"]) == {*NAMES.values()}
    with open("out/trials.csv", newline="") as stream:
        cells = {cell for row in csv.DictReader(stream) for cell in row.values()}
    assert not any(cell[:1] in "=+@\t\r" for cell in cells if cell)


def test_escaped_text_is_read_back():
    names = ["=a", "'=a", "''=a", "'a", "+1", "-x", "@", "\tb", "NA", "", "1.0", "nan", *NAMES.values()]
    files.save(files.Table({"source": names, "fdr": range(len(names))}), Path("t.csv"))
    cells = [row["source"] for row in csv.DictReader(io.StringIO(Path("t.csv").read_text()))]
    assert not any(cell[:1] in tuple("=+-@\t\r") for cell in cells if cell)
    found = files.load(Path("t.csv"))["source"].fillna("").tolist()
    assert found == names


def test_a_name_that_is_not_utf_8_is_refused_at_once(refused):
    name = os.fsdecode(b"bad\xff.csv")
    Path(name).write_text(ROWS)
    refused(["sweep", "--logs", name, *SMALL, "--out", "out"], "logs: 'bad\\udcff.csv' found; it must be UTF-8")
    refused(["sweep", *SMALL, "--out", os.fsdecode(b"\xff")], "out: ", "must be UTF-8")
    refused(["inspect", name], "log: ", "must be UTF-8")


def write(name, text):
    data = text.encode()
    Path(name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)


LONG = [{"score": 0.5, "error": 1, "text": "x" * 2**24}, {"score": 0.5, "error": 1}]


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        *(
            (name, ROWS, 3)
            for name in ("x.json.csv", "x.parquet.csv", "x.jsonl.CSV", "x", "x.csv.gz", "x.json.csv.gz")
        ),
        ("x.jsonl", '[{"score": 0.5, "error": 1}]', 1),  # an array
        ("x.jsonl", ' [\n{"score": 0.5, "error": 1}\n]', 1),
        ("x.json", "\ufeff\n " + json.dumps(LONG), 2),  # in a line that is longer than one of JSON lines may be
        ("x.tsv", "score\terror\ttext\n0.5\t1\ta, b\n", 1),
    ],
    ids=range(10),
)
def test_the_last_ending_says_the_format(name, text, rows):
    write(name, text)
    records = load_log(name, Layout())
    assert (records.scores[0], records.errors[0], len(records.scores)) == (0.5, 1, rows)


GOOD = '{"score": 0.5, "error": 1}\n'
NUMBER = "it must be a number in [0, 1]"
SCALED = f"{NUMBER} (exaul convert table --scale LOW:HIGH reads other scales)\n"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        *(("x.jsonl", f'{{"score": 0.5, "error": {"9" * digits}}}\n', ["row 1: "]) for digits in (400, 5000)),
        ("x.jsonl", f'{GOOD}\n\n{{"score": 7, "error": 1}}\n', ["row 4: "]),  # a row of JSON lines is a line
        ("x.json", f'[{GOOD}, {{"score": 2, "error": 0}}]', ["row 2: score is '2'; it must"]),
        ("x.json", '[{"score": 0.5}, 3]', ["row 2: not a JSON object; each row must be one"]),
        ("x.json", '[{"score": 0.5, "score": 1}]', ["x.json: not JSON (2 columns are named 'score'"]),
        ("x.json", "[{}", ["x.json: not JSON (Expecting"]),
        ("x.json", "[]", ["x.json: empty"]),
        ("x.csv", "score,error\n,0\n", ["row 1: score is empty; it must be in [0, 1] (use --drop-missing to"]),
        ("x.csv", "score,error\n,0\n ,1\n", ["x.csv: score is empty in all 2 rows; name another column"]),
        # Python would read 0_1 as 1
        *(("x.csv", f"score,error\n{row}\n", ["row 1: ", NUMBER]) for row in ("0.2_5,1", "0.5,0_1")),
        *(("x.csv", f"score,error\n{score},0\n", [f"score is '{score}'", SCALED]) for score in ("7", "5%")),
    ],
    ids=range(14),
)
def test_the_row_of_what_is_no_number_is_named(name, text, words, refused):
    write(name, text)
    refused(["inspect", name], name, *words)


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "utf-8"])
def test_logs_in_other_encodings_and_cut_archives(encoding, refused):
    """Others are fuzzed by test_fuzz.test_edited_logs, and flags by test_ten_thousand_command_lines."""
    packed = gzip.compress("score,error,ö\n0.5,1,ä\n".encode(encoding))
    for end in [*range(0, len(packed), 7), *([] if encoding == "utf-8" else [len(packed)])]:
        Path("log.csv.gz").write_bytes(packed[:end])
        refused(["sweep", "--logs", "log.csv.gz"], "log.csv.gz: ")


@pytest.mark.slow
def test_a_log_of_a_million_rows():
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.random(10**6), rng.random(10**6) < 0.3])
    np.savetxt("million.csv", rows, "%.6g", ",", header="score,error", comments="")
    argv = ["sweep", "--logs", "million.csv", "--trials", "2", "--horizon", "3000", "--learners", "exaul"]
    python(ENTRY, *argv, timeout=120)


def test_numbers_beyond_all_bounds(refused):
    refused(["plan", "--arms", str(2**64)], "arms: 18446744073709551616 found")
    refused(["plan", "--arms", "9" * 350], "it must be from 2 to")
    refused(["plan", "--arms", "9" * 5000])
    refused(["sweep", "--trials", "9" * 350], "it must be from 1 to")


def test_a_log_of_many_columns_takes_the_memory_of_few(refused):
    """Of a Parquet file, pyarrow parses the metadata of all columns."""
    cells = "1," * 59_999 + "1"
    names = ",".join(map(str, range(60_000)))
    Path("x.csv").write_text(f"score,error,{names}\n" + f"0.5,0,{cells}\n0.7,1,{cells}\n" * 30)
    columns = {"score": [0.5, 0.7] * 30, "error": [0, 1] * 30} | dict.fromkeys(
        names.split(","), pyarrow.array([1] * 60)
    )
    parquet.write_table(pyarrow.table(columns), "x.parquet")
    inspect = "main(['inspect', {!r}]); print(open('/proc/self/status').read())".format
    code = f"from exaul.commands.main import main; {inspect('x.csv')}; {inspect('x.parquet')}"
    most = [int(size) / 1024 for size in re.findall(r"VmHWM:\s+(\d+) kB", python(code).stdout)]
    assert most[0] < 300
    assert most[1] < 400
    Path("x.csv").write_text(f"score,error,{names}\n0.5,0,{cells}\n0.5,0,{cells},1\n")
    refused(["inspect", "x.csv"], "x.csv: ", "row 2 has 60003 cells, and the header 60002")


def test_archives_that_would_not_fit_are_refused_early(refused, monkeypatch):
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
    refused(["inspect", "line.csv.gz"], "line.csv.gz: a line of more than 16 MiB")
    refused(["inspect", "rows.csv.gz"], "rows.csv.gz: over 82 MiB of text")
    refused(["inspect", "one.jsonl.gz"], "a line of more than 16 MiB")
    monkeypatch.setattr(files, "host_memory", lambda: 2**27)
    refused(["inspect", "rows.parquet"], "rows.parquet: 1,048,576 rows")
    assert machine.resident_bytes() - before < 2**26


def test_no_warnings_at_the_edges(recwarn, laid_out):
    """Nothing warns where numbers overflow or nothing can be drawn; warnings are errors in tests."""
    drawn = [["--lambdas", "0", "1e308", "1e-308", "--horizon", "3"], ["--learners", "aci-rank", "--horizon", "1"]]
    accepted = [["--eta", "1e-308", "--gamma", "1e308"], ["--eta", "1e308", "--gamma", "0"], ["--delta", "1e-308"]]
    for i, edge in enumerate(drawn):
        assert main(["sweep", *SMALL, *edge, "--out", f"edge-{i}"]) == 0
    for edge in accepted:
        assert main(["sweep", *SMALL, *edge, "--horizon", "3"]) == 0
    assert not recwarn.list
