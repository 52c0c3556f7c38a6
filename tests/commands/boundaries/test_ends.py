"""Ends of a command: closed pipes, full devices, signals, defects; and configurations in Python."""

import importlib
import io
import json
import os
import signal
import stat
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from exaul import BadInput, Sweep
from exaul.commands import terminal
from exaul.commands.main import entry, main
from exaul.engine import simulation
from exaul.engine.manifest import resume_advice
from exaul.engine.results import figures
from tests.commands.boundaries.helpers import ROWS, SMALL
from tests.processes import ENTRY, python, variables


def test_verify_says_where_nothing_was_compared(capsys, refused):
    refused(
        ["verify", *SMALL[:6], "--learners", "no-abstention", "best-fixed"],
        "best-fixed found; at least one must learn",
    )
    assert main(["verify", *SMALL[:6], "--learners", "exaul", "no-abstention"]) == 0
    assert "no-abstention: of fixed arms there is nothing to compare" in capsys.readouterr().out
    refused(["verify", "--out", "x"], "out: given, but verify writes no results")


def test_a_module_that_ends_the_process(capsys, refused):
    Path("quits.py").write_text("import sys; sys.exit(0)")
    refused(["sweep", "--learners", "quits:x"], "'quits:x' cannot be imported (SystemExit: 0)")
    assert terminal.run_guarded("exaul", lambda: sys.exit(0)) == 2
    assert "ended the process" in capsys.readouterr().err


def test_an_output_that_cannot_be_written():
    """A reader that has gone ends it quietly. A full device is one line, also at the exit, which flushes again."""
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as gone, open("/dev/full", "w") as full:
        assert python(ENTRY, "profiles", stdout=gone, status=141).stderr == ""
        error = python(ENTRY, "profiles", stdout=full, status=2).stderr
    assert error.count("\n") == 1
    assert "No space left on device" in error


def test_terminals_without_the_characters(monkeypatch):
    """A log's name is escaped for an ASCII terminal; and a command runs in a POSIX locale without UTF-8."""
    Path("lög.csv").write_text(ROWS)
    monkeypatch.setattr(sys, "argv", ["exaul", "sweep", *SMALL, "--logs", "lög.csv", "--theory"])
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(io.BytesIO(), "ascii"))
    with pytest.raises(SystemExit) as end:
        entry()
    assert end.value.code == 0
    printed = sys.stdout.buffer.getvalue()
    assert b"+-" in printed
    assert b"l\\xf6g, 3 rows" in printed
    posix = variables(LC_ALL="POSIX", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0")
    python(ENTRY, "inspect", "log.csv", "--out", "out", env=posix)
    assert Path("out/risk-coverage.csv").exists()


def test_escape_codes_and_line_breaks_do_not_reach_the_terminal(capsys):
    """Those of columns' names, and of any text that is printed, as of a defect, which has a status of its own."""
    rows = [{"score_\x1b[2J": i / 9, "score_\n\r\x9b": i / 9, "error": i % 2} for i in range(9)]
    Path("log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert main(["inspect", "log.jsonl"]) == 0
    assert terminal.run_guarded("exaul", lambda: print("\x1b[31m\u202e\r\x07 and this", end="\n") or 0) == 0
    printed = capsys.readouterr().out
    assert r"\x1b[31m\u202e\r\x07 and this" in printed
    assert all(line.isprintable() for line in printed.split("\n"))
    assert sum(r"score_\n\r\x9b" in line for line in printed.split("\n")) >= 1
    with pytest.raises(SystemExit) as end:
        terminal.entry(mock.Mock(side_effect=AssertionError("\x1b[31m")))
    assert end.value.code == terminal.BUG_STATUS == 70
    assert r"AssertionError: \x1b[31m" in capsys.readouterr().err


CALLS = {  # by its path, whether that is what the shell finds, and whether by uv
    ("/bin/exaul", True, False): "exaul",
    ("/bin/exaul", True, True): "uv run exaul",
    (".venv/bin/exaul", False, False): ".venv/bin/exaul",
    ("/clone/exaul/__main__.py", False, True): "uv run python -m exaul",
    ("mine.py", False, False): "exaul",
}


@pytest.mark.parametrize("call", CALLS)
def test_advice_names_the_command_as_it_was_typed(call, monkeypatch):
    called, is_on_path, by_uv = call
    monkeypatch.setattr(sys, "argv", [called])
    monkeypatch.setattr("shutil.which", lambda name: called if is_on_path else None)
    if by_uv:
        monkeypatch.setenv("UV", "/bin/uv")
    assert resume_advice("my out") == f"continue with: {CALLS[call]} sweep --resume 'my out'"


@pytest.mark.parametrize(("name", "value"), [("DISABLE_JIT", "1"), ("NUM_THREADS", "0"), ("NUM_THREADS", "x")])
def test_settings_of_numba_that_exaul_cannot_run_with(name, value, monkeypatch):
    monkeypatch.setenv(f"NUMBA_{name}", value)
    with pytest.raises(BadInput, match=f"^NUMBA_{name}: '{value}' found; it must be "):
        importlib.reload(simulation)


RESUMABLE = "sweep", "rerun"  # what is finished is kept
KEPT = {
    f"out/{name}" for name in ("manifest.json", "batches", "trials.csv", "curves.csv", "advice.csv", "table.tex")
}


@pytest.mark.parametrize("argv", [["sweep", *SMALL], ["inspect", "log.csv"], ["merge", "one"], ["rerun", "one"]])
def test_terminated_it_leaves_no_hidden_folder(argv, monkeypatch, capsys, few_figures):
    """The signal may come at any point while results are written."""
    if argv[1] == "one":
        assert main(["sweep", *SMALL, "--shard", "1/1", "--out", "one"]) == 0
    monkeypatch.setattr(figures, "save", lambda *given: os.kill(os.getpid(), signal.SIGTERM) or time.sleep(5))
    assert main([*argv, "--out", "a/out"]) == 143
    assert "interrupted" in capsys.readouterr().err
    left = {path.relative_to("a").as_posix().partition("/batches/")[0] for path in Path("a").rglob("*")}
    assert left == ({"out", *KEPT} if argv[0] in RESUMABLE else set())
    assert Path("a").exists() == (argv[0] in RESUMABLE)


def test_configurations_in_python_are_checked_too():
    wrong = {"anytime": 1, "seed": 2.5, "logs": [1], "trials": True, "alphas": "0.1", "out": 3, "eta": 1j}
    for field, value in wrong.items():
        with pytest.raises(BadInput, match=f"^{field}: "):
            Sweep(**{field: value})
    given = {"alphas": np.array([0.1, 0.2]), "trials": np.int64(3), "eta": 1, "anytime": np.True_}
    sweep = Sweep(**given, lambdas=(x for x in (1, 2)))
    found = sweep.alphas, sweep.trials, sweep.eta, sweep.anytime, sweep.lambdas
    assert found == ((0.1, 0.2), 3, 1.0, True, (1.0, 2.0))
    assert json.dumps(sweep.alphas) == "[0.1, 0.2]"


# Paths and folders: long names, links, permissions, other users, full disks.

LONG = "x" * 300


def test_names_that_are_too_long_or_have_a_line_break_and_links_in_a_circle(refused):
    for argv in (
        ["sweep", "--logs", f"{LONG}.csv", *SMALL],
        ["sweep", "--logs", f"{LONG}.csv:a=b", *SMALL],
        ["sweep", *SMALL, "--out", LONG],
        ["sweep", "--resume", LONG],
        ["sweep", *SMALL[:-4], "--learners", f"{LONG}:y"],
        ["inspect", "log.csv", "--out", LONG],
        ["inspect", LONG],
        ["rerun", LONG],
        ["merge", LONG, "--out", "out"],
    ):
        refused(argv, LONG[:100])
    refused(["inspect", "a\nb\x1b[31m.csv"], "a\\nb\\x1b[31m.csv: no such file")
    Path("loop").symlink_to("loop")
    refused(["sweep", *SMALL, "--out", "loop"], "loop cannot be")
    refused(["inspect", "loop"], "loop: unreadable")


def test_a_link_leads_to_the_folder(few_figures):
    """To one that is there, or that is not; each command writes its folder in the same way."""
    assert main(["sweep", *SMALL, "--shard", "1/1", "--out", "one"]) == 0
    commands = ["sweep", *SMALL], ["inspect", "log.csv"], ["merge", "one"], ["rerun", "one/manifest.json"]
    for argv, is_there in zip(commands, (True, False, True, False), strict=True):
        real, link = Path(f"{argv[0]}-{is_there}"), Path(f"link-{argv[0]}-{is_there}")
        if is_there:
            real.mkdir()
        link.symlink_to(real)
        assert main([*argv, "--out", str(link)]) == 0
        assert link.is_symlink()
        assert any(real.glob("*.csv"))
        assert not any(real.glob(".*"))


def test_modes_follow_the_umask(few_figures):
    before = os.umask(mask := 0o027)
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
    """New and resumed sweeps and reports of the user ``nobody`` in folders of root end in one line."""
    assert main(["sweep", *SMALL, "--out", "one"]) == 0
    assert main(["inspect", "log.csv", "--out", "look"]) == 0  # all that it imports is there
    about = json.loads(Path("one/manifest.json").read_text())
    Path("one/manifest.json").write_text(json.dumps(about | {"end": None}))
    for folder in (Path.cwd(), *Path.cwd().parents[:3]):
        folder.chmod(0o755)
    Path("shut").mkdir(mode=0o700)
    for argv in (
        ["sweep", "--resume", "one"],
        ["sweep", *SMALL, "--out", "two"],
        ["inspect", "log.csv", "--out", "x"],
        ["sweep", *SMALL, "--out", "shut/two"],
        ["sweep", "--resume", "shut"],
        ["inspect", "shut/log.csv"],
    ):
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
