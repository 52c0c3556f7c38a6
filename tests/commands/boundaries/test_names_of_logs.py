"""Names of logs and columns: any text is written, read back and selected."""

import csv
import io
import os
from pathlib import Path

import pytest

from exaul import run
from exaul.commands.main import main
from exaul.engine.logs import files
from exaul.engine.logs.log import Layout, load_log
from tests.commands.boundaries.helpers import ROWS, SMALL
from tests.experiments.scale import small_scale

NAMES = {
    "NA.csv": "NA",
    "1.csv": "1",
    "a$b.csv": "a$b",
    "c$\\frac.csv": "c$\\frac",
    "x.json.csv": "x.json",
    "gpt-4.0.csv": "gpt-4.0",
    "new\nline.csv": "new\\nline",
    "'=quoted.csv": "'=quoted",
    "=cmd.csv": "=cmd",
    "@sum.csv": "@sum",
}


def test_a_log_may_have_any_name():
    """What it is called in tables must be read back: see the tests below."""
    for file, name in NAMES.items():
        Path(file).write_text(ROWS)
        assert load_log(file, Layout()).name == name


@pytest.mark.parametrize("file", ["NA.csv", "c$\\frac.csv", "new\nline.csv", "=cmd.csv"])
def test_a_log_of_any_name_is_swept_and_read_back(file, few_figures):
    """Names may look like numbers or empty cells in CSV, like mathematics in a figure, or like formulas."""
    Path(file).write_text(ROWS)
    assert main(["sweep", "--logs", file, *SMALL, "--out", "out"]) == 0
    assert set(files.load(Path("out/trials.csv"))["source"]) == {NAMES[file]}
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


def test_logs_of_one_name_get_distinct_names(few_figures):
    for folder, error in (("a", "0"), ("b", "1")):
        Path(folder).mkdir()
        Path(folder, "log.csv").write_text(f"score,error\n0.5,{error}\n0.9,0\n")
    for second, name in (("b", "log -> log (2)"), ("a", "log -> log")):
        argv = ["sweep", *SMALL, "--environment", "single-shift", "--logs", "a/log.csv", f"{second}/log.csv"]
        assert main([*argv, "--out", f"with {second}"]) == 0
        assert set(files.load(Path(f"with {second}/trials.csv"))["source"]) == {name}


@pytest.mark.parametrize("names", [("gpt-4.0.csv", "gpt-4.1.csv"), ("a/log.csv", "b/log.csv")])
def test_experiments_run_both_directions_of_logs_that_differ(names, monkeypatch):
    """Data that figures share is identified by content, not by name."""
    from experiments import run as running
    from experiments.paper import Paper

    for name, rows in zip(names, (ROWS, "score,error\n0.5,1\n0.9,1\n0.2,1\n"), strict=True):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(rows)
    runs = []
    monkeypatch.setattr(running, "run", lambda sweep, records: runs.append(records) or run(sweep, records))
    runner = running.Runner(Paper(logs=names))
    with small_scale(256):
        trials = runner.tables("single-shift").trials
    first, second = (one.name for one in runner.records)
    assert first != second
    assert set(trials["source"]) == {f"{first} -> {second}", f"{second} -> {first}"}
    assert len(runs) == 2
