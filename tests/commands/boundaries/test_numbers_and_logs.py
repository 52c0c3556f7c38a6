"""Numbers beyond all bounds, and logs in every format."""

import gzip
import json
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
from tests.processes import python


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
SCALED = f"{NUMBER} (exaul convert table%s reads such scores)\n"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        *(("x.jsonl", f'{{"score": 0.5, "error": {"9" * digits}}}\n', ["row 1: "]) for digits in (400, 5000)),
        # a row of JSON lines is a line
        *(("x.jsonl", f"{GOOD}\n\n{bad}\n", ["row 4: "]) for bad in ('{"score": 7, "error": 1}', "{", "[1]")),
        ("x.csv", "score,error\n0.5,1\n7,1\n", ["row 2: "]),
        ("x.json", f'[{GOOD}, {{"score": 2, "error": 0}}]', ["row 2: score is '2'; it must"]),
        ("x.json", '[{"score": 0.5}, 3]', ["row 2: not a JSON object; each row must be one"]),
        ("x.json", '[{"score": 0.5, "score": 1}]', ["x.json: not JSON (2 columns are named 'score'"]),
        ("x.json", "[{}", ["x.json: not JSON (Expecting"]),
        ("x.json", "[]", ["x.json: empty"]),
        ("x.csv", "score,error\n,0\n", ["row 1: score is empty; it must be in [0, 1] (use --drop-missing to"]),
        # Python would read 0_1 as 1
        *(("x.csv", f"score,error\n{row}\n", ["row 1: ", NUMBER]) for row in ("0_1,1", "0.2_5,1", "0.5,0_1")),
        # a score on another scale gets a hint
        ("x.csv", "score,error\n7,0\n", ["score is '7'", SCALED % " --scale 0:10"]),
        ("x.csv", "score,error\n85,0\n", ["score is '85'", SCALED % " --scale 0:100"]),
        ("x.csv", "score,error\n5%,0\n", ["score is '5%'", SCALED % ""]),
        ("x.csv", "score,error\n300,0\n", ["score is '300'", f"{NUMBER}\n"]),
    ],
    ids=range(19),
)
def test_the_row_of_what_is_no_number_is_named(name, text, words, refused):
    write(name, text)
    refused(["inspect", name], name, *words)


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
    for path, most in (("x.csv", 300), ("x.parquet", 400)):
        inspect = f"from exaul.commands.main import main; main(['inspect', {path!r}])"
        printed = python(f"{inspect}; print(open('/proc/self/status').read())").stdout
        assert int(re.search(r"VmHWM:\s+(\d+) kB", printed)[1]) < most * 1024
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


def test_no_warnings_at_the_edges(recwarn):
    """Nothing warns where numbers overflow or nothing can be drawn; warnings are errors in tests."""
    drawn = [["--lambdas", "0", "1e308", "1e-308", "--horizon", "3"], ["--learners", "aci-rank", "--horizon", "1"]]
    accepted = [["--eta", "1e-308", "--gamma", "1e308"], ["--eta", "1e308", "--gamma", "0"], ["--delta", "1e-308"]]
    for i, edge in enumerate(drawn):
        assert main(["sweep", *SMALL, *edge, "--out", f"edge-{i}"]) == 0
    for edge in accepted:
        assert main(["sweep", *SMALL, *edge, "--horizon", "3"]) == 0
    assert not recwarn.list
