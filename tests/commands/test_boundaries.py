"""Input and output at their limits: names, paths, numbers, manifests; terminals, pipes and full disks."""

import csv
import gzip
import io
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow
import pytest
from pyarrow import parquet

from exaul import BadInput, Sweep, run
from exaul.commands import terminal
from exaul.commands.main import COMMANDS, main
from exaul.engine.data import tables
from exaul.engine.data.layout import Layout
from exaul.engine.data.logs import load_log
from exaul.engine.machine import memory
from exaul.engine.results import figures
from exaul.engine.results.run_folder import RunFolder
from exaul.engine.simulation import schedule
from experiments.__main__ import main as experiments

ROOT = Path(__file__).parents[2]
SMALL = ["--trials", "2", "--horizon", "300", "--arms", "20", "--learners", "exaul", "--progress", "quiet"]
ROWS = "score,error\n0.5,1\n0.9,0\n0.8,0\n"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    """Each test stands in a folder of its own, with a log."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text(ROWS)


@pytest.fixture
def few_figures(monkeypatch):
    monkeypatch.setattr(figures, "draw", lambda trials, curves, parts: {"final-fdr": figures.final_fdr(trials)})


def refused(capsys, argv, *words, program=main):
    """Return the one line on stderr; nothing is written, and the status is 2."""
    before = sorted(Path.cwd().rglob("*"))
    capsys.readouterr()
    assert program(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert sorted(Path.cwd().rglob("*")) == before
    for word in words:
        assert word in err
    return err


def process(argv, before="", **options):
    """A command in a process of its own."""
    code = f"{before}\nfrom exaul.commands.main import entry; entry()"
    env = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"} | options.pop("env", {})
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run([sys.executable, "-c", code, *argv], env=env, check=False, timeout=300, **options)


def names_of(folder):
    return set(pd.read_csv(folder / "trials.csv", dtype=str, keep_default_na=False)["source"])


# names


@pytest.mark.parametrize(
    ("file", "name"),
    {
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
    }.items(),
)
def test_a_log_of_any_name_is_swept_and_read_back(file, name, few_figures):
    """Also what CSV takes for a number or for nothing, a figure for mathematics, a spreadsheet for a formula."""
    Path(file).write_text(ROWS)
    assert load_log(file, Layout()).name == name
    assert main(["sweep", "--logs", file, *SMALL, "--out", "out"]) == 0
    saved = tables.load(Path("out/trials.csv"))
    assert set(saved["source"]) == {name}
    with open("out/trials.csv", newline="") as stream:
        cells = {
            cell for row in csv.DictReader(stream) for cell in row.values() if not cell.replace("-", "").isdigit()
        }
    assert not any(cell[:1] in "=+@\t\r" for cell in cells if cell)


def test_escaped_text_is_read_back():
    names = ["=a", "'=a", "''=a", "'a", "+1", "-x", "@", "\tb", "NA", "", "1.0", "nan"]
    tables.save(tables.frame({"source": names, "fdr": range(len(names))}), Path("t.csv"))
    cells = [row["source"] for row in csv.DictReader(io.StringIO(Path("t.csv").read_text()))]
    assert not any(cell[:1] in tuple("=+-@\t\r") for cell in cells if cell)
    found = tables.load(Path("t.csv"))["source"].fillna("").tolist()
    assert found == names


def test_a_name_that_is_not_utf_8_is_refused_at_once(capsys):
    name = os.fsdecode(b"bad\xff.csv")
    Path(name).write_text(ROWS)
    refused(
        capsys, ["sweep", "--logs", name, *SMALL, "--out", "out"], "logs: 'bad\\udcff.csv' found; it must be UTF-8"
    )
    refused(capsys, ["sweep", *SMALL, "--out", os.fsdecode(b"\xff")], "out: ", "must be UTF-8")
    refused(capsys, ["inspect", name], "log: ", "must be UTF-8")


def test_logs_of_one_name_get_distinct_names(few_figures):
    for folder, error in (("a", "0"), ("b", "1")):
        Path(folder).mkdir()
        Path(folder, "log.csv").write_text(f"score,error\n0.5,{error}\n0.9,0\n")
    argv = ["sweep", *SMALL, "--environment", "single-shift", "--out"]
    assert main([*argv, "ab", "--logs", "a/log.csv", "b/log.csv"]) == 0
    assert names_of(Path("ab")) == {"log -> log (2)"}
    assert main([*argv, "aa", "--logs", "a/log.csv", "a/log.csv"]) == 0
    assert names_of(Path("aa")) == {"log -> log"}


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
    monkeypatch.setattr(Paper, "rounds", lambda self, horizon: 256)
    runner = running.Runner(Paper(quick=True, logs=names))
    trials = runner.tables("single-shift").trials
    first, second = (one.name for one in runner.records)
    assert first != second
    assert set(trials["source"]) == {f"{first} -> {second}", f"{second} -> {first}"}
    assert len(runs) == 2


def test_a_column_is_selected_once(capsys):
    refused(capsys, ["sweep", "--logs", "log.csv:model=a,model=b", *SMALL], "a column may be given only once")


# paths and folders


LONG = "x" * 300


@pytest.mark.parametrize(
    "argv",
    [
        ["sweep", "--logs", f"{LONG}.csv", *SMALL],
        ["sweep", "--logs", f"{LONG}.csv:a=b", *SMALL],
        ["sweep", *SMALL, "--out", LONG],
        ["sweep", "--resume", LONG],
        ["sweep", *SMALL[:-4], "--learners", f"{LONG}:y"],
        ["inspect", "log.csv", "--out", LONG],
        ["inspect", LONG],
        ["rerun", LONG],
        ["merge", LONG, "--out", "out"],
    ],
    ids=range(9),
)
def test_names_that_are_too_long(argv, capsys):
    refused(capsys, argv, LONG[:100])


def test_a_path_with_a_line_break_is_one_line(capsys):
    refused(capsys, ["inspect", "a\nb\x1b[31m.csv"], "a\\nb\\x1b[31m.csv: no such file")


@pytest.mark.parametrize("there", [True, False], ids=["a folder", "nothing"])
@pytest.mark.parametrize(
    "argv", [["sweep", *SMALL], ["inspect", "log.csv"], ["merge", "one"], ["rerun", "one/manifest.json"]]
)
def test_a_link_leads_to_the_folder(argv, there, few_figures):
    assert main(["sweep", *SMALL, "--shard", "1/1", "--out", "one"]) == 0
    if there:
        Path("real").mkdir()
    Path("link").symlink_to("real")
    assert main([*argv, "--out", "link"]) == 0
    assert Path("link").is_symlink()
    assert any(Path("real").glob("*.csv"))
    assert not any(Path("real").glob(".*"))


def test_experiments_write_through_a_link():
    Path("real").mkdir()
    Path("link").symlink_to("real")
    assert experiments(["scores", "--quick", "--out", "link"]) == 0
    assert Path("real/index.html").exists()


def test_links_in_a_circle(capsys):
    Path("loop").symlink_to("loop")
    refused(capsys, ["sweep", *SMALL, "--out", "loop"], "loop cannot be")
    refused(capsys, ["inspect", "loop"], "loop: unreadable")


@pytest.mark.parametrize("mask", [0o077, 0o027, 0o002])
def test_modes_follow_the_umask(mask, few_figures):
    before = os.umask(mask)
    try:
        assert main(["sweep", *SMALL, "--shard", "1/1", "--out", "a/one"]) == 0
        assert main(["merge", "a/one", "--out", "merged"]) == 0
        assert main(["inspect", "log.csv", "--out", "look"]) == 0
    finally:
        os.umask(before)
    for path in (*Path("a").rglob("*"), *Path("merged").rglob("*"), *Path("look").rglob("*"), Path("look")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o777 if path.is_dir() else 0o666) & ~mask, path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_folder_of_another_user(few_figures, capsys):
    """As the user ``nobody`` in folders of root, sweeps, new or resumed, and reports end in one line."""
    assert main(["sweep", *SMALL, "--out", "one"]) == 0
    assert main(["inspect", "log.csv", "--out", "look"]) == 0  # all that it imports is there
    about = json.loads(Path("one/manifest.json").read_text())
    Path("one/manifest.json").write_text(json.dumps(about | {"end": None}))
    for folder in (Path.cwd(), *Path.cwd().parents[:3]):
        folder.chmod(0o755)
    Path("shut").mkdir(mode=0o700)
    commands = [
        ["sweep", "--resume", "one"],
        ["sweep", *SMALL, "--out", "two"],
        ["inspect", "log.csv", "--out", "x"],
    ]
    commands += [["sweep", *SMALL, "--out", "shut/two"], ["sweep", "--resume", "shut"], ["inspect", "shut/log.csv"]]
    for argv in commands:
        os.seteuid(65534)
        try:
            status = main(argv)
        finally:
            os.seteuid(0)
        err = capsys.readouterr().err
        assert status == 2, argv
        assert err.count("\n") == 1
        assert "Permission denied" in err or "cannot be written" in err
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["log.csv", "look", "one", "shut"]


def test_nothing_is_left_where_writing_fails(capsys, monkeypatch):
    """The new folder, its new parents and files that were already moved are removed."""

    def full(figure, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(figures, "save", full)
    refused(capsys, ["inspect", "log.csv", "--out", "a/b/c"], "No space left on device")


# manifests, states, shards


def interrupted(*more):
    """The folder of a sweep that was stopped as it was saved, and its manifest."""
    argv = ["sweep", "--trials", "3", "--horizon", "1500", "--arms", "20", "--learners", "exaul", *more]
    save = RunFolder.save

    def stop(self, *given):
        save(self, *given)
        raise KeyboardInterrupt

    with mock.patch.object(schedule, "CHUNK", 2**10), mock.patch.object(RunFolder, "save", stop):
        assert main([*argv, "--out", "out", "--save-every", "0"]) == 130
    return json.loads(Path("out/manifest.json").read_text())


def test_an_interrupted_command_says_how_to_continue(capsys):
    interrupted()
    assert capsys.readouterr().err == "exaul: interrupted; continue with: exaul sweep --resume out\n"


def edited(about, **changes):
    Path("out/manifest.json").write_text(json.dumps(about | changes))


def test_a_seed_that_is_edited_between_is_refused(capsys):
    about = interrupted()
    edited(about, configuration=about["configuration"] | {"seed": 1})
    refused(capsys, ["sweep", "--resume", "out"], "now.npz: of another sweep: configuration: seed is 0 there, 1 in")
    edited(about)
    assert main(["sweep", "--resume", "out"]) == 0


MODULE = "from exaul.kernels.learners.exaul import exaul as mine\n"


def test_a_module_that_has_changed_between_is_refused(capsys, few_figures):
    Path("own.py").write_text(MODULE)
    about = interrupted("--learners", "own:mine")
    assert set(about["sources"]) == {"exaul", "own:mine"}
    del sys.modules["own"]
    refused(capsys, ["sweep", "--resume", "out"], "the manifest names own:mine, whose code would run; --trust")
    refused(capsys, ["rerun", "out"], "the manifest names own:mine, whose code would run; --trust")
    assert "own" not in sys.modules  # nor was it imported
    Path("own.py").write_text(MODULE + "# changed\n")
    refused(capsys, ["sweep", "--resume", "out", "--trust"], "sources: own:mine is")
    del sys.modules["own"]
    Path("own.py").write_text(MODULE)
    assert main(["sweep", "--resume", "out", "--trust"]) == 0
    assert main(["rerun", "out", "--trust", "--out", "again"]) == 0
    assert Path("again/trials.csv").read_bytes() == Path("out/trials.csv").read_bytes()
    del sys.modules["own"]


@pytest.mark.parametrize(
    "what", ["no part", "blocks", "another file", "a folder", "another state", "garbage", "bytes"]
)
def test_a_state_that_is_not_its_own(what, capsys):
    interrupted()
    path = Path("out/state/now.npz")
    arrays = dict(np.load(path))
    words = "changed since it was written"
    if what == "no part":
        del arrays["0001"]
        np.savez(path, **arrays)
    elif what == "blocks":
        np.savez(path, **arrays | {"blocks": np.array(-3)})
    elif what == "another file":
        np.save(path.with_suffix(".npy"), np.zeros(3))
        path.with_suffix(".npy").replace(path)
        words = "unreadable"
    elif what == "a folder":
        path.unlink()
        path.mkdir()
        words = "unreadable (Is a directory)"
    elif what == "another state":
        Path("out").replace("first")
        interrupted("--seed", "5")
        shutil.copy("first/state/now.npz", path)
        words = "of another sweep: configuration: seed is 0 there, 5 in"
    elif what == "garbage":
        path.write_bytes(b"PK\x03\x04" + bytes(50))
        words = "unreadable"
    else:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        words = "now.npz: "
    refused(capsys, ["sweep", "--resume", "out"], words)


def test_files_in_the_way_of_results_stay(capsys, few_figures):
    """A file in the place of the states; a folder, with something in it, in the place of a figure."""
    interrupted()
    shutil.copytree("out", "other")
    shutil.rmtree("other/state")
    Path("other/state").write_text("mine")
    refused(capsys, ["sweep", "--resume", "other"], "other cannot be written (File exists)")
    Path("out/final-fdr.png").mkdir()
    Path("out/final-fdr.png/notes").write_text("mine")
    assert main(["sweep", "--resume", "out", "--progress", "quiet"]) == 2
    advice = "the saved state is kept, use --resume to continue"
    assert f"cannot be written (Is a directory); {advice}" in capsys.readouterr().err
    assert Path("out/final-fdr.png/notes").read_text() == "mine"
    assert not list(Path("out").glob(".exaul*"))
    shutil.rmtree("out/final-fdr.png")
    assert main(["sweep", "--resume", "out"]) == 0


WRONG = {
    "configuration": (None, [], {}, {"seed": 1}, 3),
    "end": (0, [], {}),
    "batch": (0, -1, 2.5, "1", True, None),
    "start": (None, 3),
    "players": (None, {}, "x", [{"learner": "ew", "backend": "native"}]),
    "records": (None, [], [1], "x"),
    "horizon": (None, "1500", 7, 1e300),
    "segments": (None, 9),
    "sources": (None, {}, {"exaul": "x"}),
    "versions": (None, {}, []),
    "device": (None, "tpu"),
}
VALUES = {
    "environment": (None, 1, "nowhere", ["stochastic"]),
    "logs": ([1], [None], "x", 5),
    "seed": (2.5, "1", None, -1, True, 10**400),
    "alphas": ([], ["a"], [2], None, 0.1, [0.1, 0.1], {"a": 1}),
    "arms": (1, 1e9, None, [3]),
    "anytime": (1, "yes", None),
    "learners": ([None], ["x:y:z"], [["exaul"]]),
    "shard": (1, "2/1", "x"),
    "step": ([], "x"),
    "tunables": (["x"], [1]),
    "backend": (1, "x"),
}


def test_manifests_of_wrong_types(capsys, tmp_path):
    """Of a sweep that ended, of one that was stopped, and of a shard: each field, with each wrong value."""
    about = interrupted()
    cases = [({name: value}, {}) for name, values in WRONG.items() for value in values]
    cases += [({}, {name: value}) for name, values in VALUES.items() for value in values]
    cases += [({}, {"colour": "blue"})]
    for whole, part in cases:
        configuration = about["configuration"] | part
        edited(about, **({"configuration": configuration} | whole))
        refused(capsys, ["sweep", "--resume", "out"])
        refused(capsys, ["rerun", "out"])
        refused(capsys, ["merge", "out"])
    for text in ("", "[]", "null", "3", '"x"', "{", "[" * 100_000, '{"configuration": {}}', "\x00", '{"a": NaN}'):
        Path("out/manifest.json").write_text(text)
        refused(capsys, ["sweep", "--resume", "out"], "manifest.json")
        refused(capsys, ["merge", "out", "--out", "whole"], "manifest.json")
    Path("out/manifest.json").write_bytes(b"\xff\xfe")
    refused(capsys, ["rerun", "out"], "manifest.json: unreadable")


def test_a_shard_of_another_sweep_is_not_merged(capsys, few_figures):
    for i, seed in ((1, 0), (2, 0), (2, 1)):
        flags = ["--shard", f"{i}/2", "--seed", str(seed), "--out", f"{i}-{seed}"]
        assert main(["sweep", *SMALL, *flags]) == 0
    shutil.copy("2-1/counts.npz", "2-0/counts.npz")
    refused(capsys, ["merge", "1-0", "2-0"], "counts.npz: of another sweep: configuration: seed is 1 there, 0 in")


def test_a_dry_run_of_resume_describes_what_is_resumed(capsys):
    interrupted()
    before = sorted((path, path.stat().st_mtime_ns) for path in Path("out").rglob("*"))
    assert main(["sweep", "--resume", "out", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "1 (alphas x lambdas x learners)" in told
    assert "1,500 of each copy, 4,500 in all" in told
    assert sorted((path, path.stat().st_mtime_ns) for path in Path("out").rglob("*")) == before
    refused(capsys, ["sweep", "--resume", "out", "--trials", "100", "--dry-run"], "trials is 100 here, 3 in out")
    refused(capsys, ["sweep", "--resume", "out", "--trials", "100"], "trials is 100 here, 3 in out")
    assert main(["sweep", "--resume", "out", "--trials", "3", "--alphas", "0.05"]) == 0
    assert main(["sweep", "--resume", "out", "--dry-run"]) == 0
    assert "nothing to resume" in capsys.readouterr().out


# numbers and logs


def test_numbers_beyond_all_bounds(capsys, monkeypatch):
    refused(capsys, ["plan", "--arms", str(2**64)], "arms: 18446744073709551616 found")
    refused(capsys, ["plan", "--arms", "9" * 350], "it must be from 2 to")
    refused(capsys, ["plan", "--arms", "9" * 5000])
    refused(capsys, ["sweep", "--trials", "9" * 350], "it must be from 1 to")
    monkeypatch.setattr(memory, "host_memory", lambda: 2**33)
    refused(capsys, ["inspect", "log.csv", "--arms", "2147483647"], "arms: 2147483647 found; they need")
    refused(
        capsys, ["inspect", "log.csv", "--arms", "20000000", "--out", "look"], "arms: 20000000 found; they need"
    )
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


@pytest.mark.parametrize(
    "name", ["x.json.csv", "x.parquet.csv", "x.jsonl.CSV", "jsonl", "x.csv.gz", "x.json.csv.gz"]
)
def test_the_last_ending_says_the_format(name):
    data = gzip.compress(ROWS.encode()) if name.endswith("gz") else ROWS.encode()
    Path(name).write_bytes(data)
    assert len(load_log(name, Layout()).scores) == 3


def test_archives_that_would_not_fit_are_refused_early(capsys, monkeypatch):
    """A gigabyte of one line, then of rows, within 64 MiB of what the process takes anyway."""
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
    monkeypatch.setattr(tables, "host_memory", lambda: 2**30)
    before = memory.resident_bytes()
    refused(capsys, ["inspect", "line.csv.gz"], "line.csv.gz: a line of more than 16 MiB")
    refused(capsys, ["inspect", "rows.csv.gz"], "rows.csv.gz: over 82 MiB of text")
    refused(capsys, ["inspect", "one.jsonl.gz"], "a line of more than 16 MiB")
    monkeypatch.setattr(tables, "host_memory", lambda: 2**27)
    refused(capsys, ["inspect", "rows.parquet"], "rows.parquet: 1,048,576 rows")
    assert memory.resident_bytes() - before < 2**26


def test_no_warnings_at_the_edges(recwarn):
    """No warning where numbers overflow or nothing can be drawn; warnings are errors in tests."""
    drawn = [
        ["--lambdas", "0", "1e308", "1e-308", "--horizon", "3"],
        ["--learners", "threshold", "--step", "1", "--drift", "1", "--horizon", "1"],
    ]
    accepted = [["--eta", "1e-308", "--gamma", "1e308"], ["--eta", "1e308", "--gamma", "0"], ["--delta", "1e-308"]]
    for i, edge in enumerate(drawn):
        assert main(["sweep", *SMALL, *edge, "--out", f"edge-{i}"]) == 0
    for edge in accepted:
        assert main(["sweep", *SMALL, *edge, "--horizon", "3"]) == 0
    assert not recwarn.list


# memory of containers


@pytest.mark.parametrize("version", [1, 2])
def test_limits_of_containers_count(version, tmp_path, monkeypatch):
    """The limit of a group around the process's own, less the memory in use without caches that can be dropped."""
    root = tmp_path / "cgroup" / ("memory" if version == 1 else "")
    inner = root / "outer" / "inner"
    inner.mkdir(parents=True)
    limit, used, cache = memory.LIMITS[2 - version]
    for folder, most, taken in ((root / "outer", "500000", "300000"), (inner, "max", "200000")):
        (folder / limit).write_text(most + "\n")
        (folder / used).write_text(taken + "\n")
        (folder / "memory.stat").write_text(f"anon 5\n{cache} 40000\n")
    own = tmp_path / "own"
    own.write_text("4:memory:/outer/inner\n1:cpu:/\n" if version == 1 else "0::/outer/inner\n")
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "OWN", own)
    assert memory.host_memory() == 240_000
    own.write_text("")
    assert memory.host_memory() > 2**20


# figures


@pytest.mark.parametrize(("horizon", "label", "end"), [(200, "round $t$", 200), (5000, "round $t$ (thousands)", 5)])
def test_few_rounds_are_not_shown_in_thousands(horizon, label, end):
    same = {"learner": "exaul", "source": "s", "alpha": 0.1, "lambda": 1.0}
    curves = tables.frame([same | {"t": t, "rise_mean": t / 2} for t in (horizon // 2, horizon)])
    figure = figures.over_time(curves, "rise", "rise")
    (axes,) = [axes for axes in figure.axes if axes.lines]
    assert axes.get_xlabel() == label
    assert axes.get_xlim() == (0, end)


def test_of_many_panels_some_are_drawn_and_it_says_which_are_not(tmp_path):
    alphas = np.linspace(0.01, 0.9, 200)
    trials = tables.frame(
        [{"learner": "exaul", "source": "s", "alpha": a, "lambda": 1.0, "fdr": a} for a in alphas]
    )
    trials = tables.stack([trials, trials.assign(fdr=trials["fdr"] / 2)])
    figure = figures.final_fdr(trials)
    drawn = [axes for axes in figure.axes if axes.collections]
    assert len(drawn) == figures.PANELS - 1
    titles = [axes.get_title() for axes in drawn]
    assert "0.01" in titles[0]
    assert "0.9" in titles[-1]
    (text,) = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert text.startswith("not drawn, see the tables:\n")
    assert text.endswith(f"and {200 - len(drawn) - 8} more")
    assert text.splitlines()[1] not in titles


# ends


def test_verify_says_where_nothing_was_compared(capsys):
    refused(
        capsys,
        ["verify", *SMALL[:6], "--learners", "no-abstention", "threshold"],
        "threshold found; at least one must have weights",
    )
    assert main(["verify", *SMALL[:6], "--learners", "exaul", "no-abstention"]) == 0
    assert "no-abstention: has no weights; nothing to compare" in capsys.readouterr().out
    refused(capsys, ["verify", "--out", "x"], "out: given, but verify writes no results")


def test_a_module_that_ends_the_process(capsys):
    Path("quits.py").write_text("import sys; sys.exit(0)")
    refused(capsys, ["sweep", "--learners", "quits:x"], "'quits:x' cannot be imported (SystemExit: 0)")
    assert terminal.run_guarded("exaul", lambda: sys.exit(0)) == 2
    assert "ended the process" in capsys.readouterr().err


OBLIVIOUS_ENVIRONMENTS = """
from exaul.engine.environments.oblivious import Oblivious

old = Oblivious(2, True, lambda t, horizon, uniforms: t % 2)
outside = Oblivious(2, True, lambda where, t, horizon, u: where(t < 5, 0, 2))
arrays = Oblivious(2, True, lambda where, t, horizon, u: (t % 2).astype(int))
"""


ADAPTIVE_ENVIRONMENTS = """
import jax.numpy as jnp

from exaul.engine.environments.adaptive import Adaptive, AskedRecord


def environment(ask=lambda state, *_: AskedRecord(jnp.int32(1), jnp.zeros(())), see=lambda state, *_: state):
    return Adaptive(1, 1, lambda pool: jnp.zeros(1), ask, see)


fails = environment(ask=lambda state, pool, *_: pool.nothing)
branches = environment(see=lambda state, question, answered: state + 1 if answered else state)
grows = environment(see=lambda state, *_: jnp.concatenate([state, state]))
several = environment(ask=lambda *_: AskedRecord(jnp.ones(2, jnp.int32), jnp.zeros(2)))
first = environment(ask=lambda *_: AskedRecord(jnp.int32(0), jnp.zeros(())))
percent = environment(ask=lambda *_: AskedRecord(jnp.int32(1), jnp.full((), 100.0)))
"""


OWN = {"oblivious": OBLIVIOUS_ENVIRONMENTS, "adaptive": ADAPTIVE_ENVIRONMENTS}


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("oblivious:old", "choose_pool of oblivious:old cannot be run (TypeError: "),
        ("oblivious:outside", "choose_pool of oblivious:outside returns 2; it must be from 0 to 1"),
        ("oblivious:arrays", "choose_pool of oblivious:arrays cannot be run (TypingError: "),
        (
            "adaptive:fails",
            "functions of adaptive:fails cannot be run (AttributeError: 'AdaptivePool' object has no attribute",
        ),
        ("adaptive:branches", "functions of adaptive:branches cannot be run (TracerBoolConversionError: "),
        (
            "adaptive:grows",
            "see returns a state of form ((2,), 'float64'); it must be that of init, ((1,), 'float64')",
        ),
        ("adaptive:several", "ask returns cut as int32 of shape (2,); it must be as in AskedRecord"),
        ("adaptive:first", "ask returns cut [0, 0]; it must be from 1 to"),
        ("adaptive:percent", "ask returns error [100.0, 100.0]; it must be from 0 to 1"),
    ],
)
def test_an_environment_whose_function_fails_is_refused(place, sentence, capsys):
    module = place.partition(":")[0]
    Path(f"{module}.py").write_text(OWN[module])
    refused(capsys, ["sweep", "--environment", place, "--horizon", "300"], sentence)


LEARNERS = """
import helpers
from helpers import again
from exaul.kernels.learners.learner import Learner, Sided
from exaul.kernels.learners.rates import anytime, rates


def learner(rule):
    return Learner("bandit", Sided(rule), rates, anytime)


by_module = learner(lambda where, P, Q, answered, error, parameters: (helpers.half(error), 0.0))
circular = learner(lambda where, P, Q, answered, error, parameters: (again(error), 0.0))
text = learner(lambda where, P, Q, answered, error, parameters: (error + "x", 0.0))
one = learner(lambda where, P, Q, answered, error, parameters: error)
branches = learner(lambda where, P, Q, answered, error, parameters: (error if answered else 0.0, 0.0))
"""
HELPERS = """
def half(x):
    return x / 2


def again(x):
    return again(x - 1) if x > 0 else x
"""


@pytest.mark.parametrize(
    ("name", "backend", "sentence"),
    [
        ("by_module", "native", "TypingError: Unknown attribute 'half' of type Module"),
        ("by_module", "native", "'>), rules.py line 13); it must be written with where"),
        ("circular", "native", "TypingError: Untyped global name 'again': Cannot determine Numba type"),
        ("text", "native", "TypingError: No implementation of function"),
        ("one", "native", "TypingError: failed to unpack float64)"),
        ("branches", "dense", "rules.py line 17); it must be written with where"),
    ],
)
def test_a_learner_whose_rule_cannot_be_compiled(name, backend, sentence, capsys):
    Path("rules.py").write_text(LEARNERS)
    Path("helpers.py").write_text(HELPERS)
    argv = ["sweep", "--learners", f"rules:{name}", "--backend", backend, "--out", "out"]
    said = refused(capsys, argv, f"learners: rules:{name} cannot be run (", sentence)
    assert len(said) < 600
    for module in ("rules", "helpers"):
        del sys.modules[module]


def test_a_reader_that_has_gone_ends_it_quietly():
    read, write = os.pipe()
    os.close(read)
    done = process(["profiles"], stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("argv", [["profiles"], ["sweep", *SMALL]])
def test_a_full_device_is_one_line(argv):
    with open("/dev/full", "w") as full:
        done = process(argv, stdout=full)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), done.stderr
    assert b"No space left on device" in done.stderr


def test_terminals_without_the_characters():
    """An ASCII terminal, and a POSIX locale without UTF-8; a log's name is escaped."""
    Path("lög.csv").write_text(ROWS)
    done = process(["sweep", *SMALL, "--logs", "lög.csv"], env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert b"+-" in done.stdout
    assert b"l\\xf6g at alpha" in done.stdout
    posix = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = process(["inspect", "log.csv", "--out", "out"], env=posix)
    assert done.returncode == 0, done.stderr
    assert Path("out/risk-coverage.csv").exists()


def test_a_defect_has_a_status_of_its_own(capsys):
    """1 is a failed check and nothing else."""

    def defect():
        raise AssertionError("defect")

    with pytest.raises(SystemExit) as end:
        terminal.entry(defect)
    assert end.value.code == terminal.DEFECT == 70
    assert "AssertionError: defect" in capsys.readouterr().err


def test_a_device_that_is_not_there():
    done = process(["sweep", *SMALL], env={"JAX_PLATFORMS": "rocm"})
    assert done.returncode == 2
    assert b"JAX_PLATFORMS: 'rocm' found; JAX finds no such device here" in done.stderr.splitlines()[-1]
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "profiles"])
def test_terminated_it_leaves_no_hidden_folder(name, monkeypatch, capsys):
    """Wherever the signal comes as results are written."""
    if name in ("plan", "verify", "journal verify", "journal export", "convert", "collect", "live"):
        pytest.skip("writes no folder, or has a test of its own in tests/models")
    monkeypatch.setattr(figures, "draw", lambda trials, curves, parts: {"final-fdr": figures.final_fdr(trials)})
    assert main(["sweep", *SMALL, "--shard", "1/1", "--out", "one"]) == 0
    monkeypatch.setattr(figures, "save", lambda *given: os.kill(os.getpid(), signal.SIGTERM) or time.sleep(5))
    argv = {"sweep": SMALL, "inspect": ["log.csv"], "merge": ["one"], "rerun": ["one"]}[name]
    assert main([name, *argv, "--out", "out"]) == 143
    assert "interrupted" in capsys.readouterr().err
    assert not list(Path.cwd().rglob(".exaul*"))
    left = {path.name for path in Path("out").iterdir()} if Path("out").exists() else set()
    assert left <= {"manifest.json", "state", "curves.csv"}
    assert name in ("sweep", "rerun") or not left


def test_configurations_in_python_are_checked_too():
    for field, value in (
        ("anytime", 1),
        ("seed", 2.5),
        ("logs", [1]),
        ("trials", True),
        ("alphas", "0.1"),
        ("out", 3),
        ("eta", 1j),
    ):
        with pytest.raises(BadInput, match=f"^{field}: "):
            Sweep(**{field: value})
    sweep = Sweep(
        alphas=np.array([0.1, 0.2]), trials=np.int64(3), eta=1, lambdas=(x for x in (1, 2)), anytime=np.True_
    )
    assert (sweep.alphas, sweep.trials, sweep.eta, sweep.lambdas, sweep.anytime) == (
        (0.1, 0.2),
        3,
        1.0,
        (1.0, 2.0),
        True,
    )
    assert json.dumps(sweep.alphas) == "[0.1, 0.2]"
