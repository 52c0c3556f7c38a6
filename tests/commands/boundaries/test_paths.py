"""Paths and folders: long names, links, permissions, other users, full disks."""

import json
import os
import stat
from pathlib import Path
from unittest import mock

import pytest

from exaul.commands.main import main
from exaul.engine.results import figures
from experiments.__main__ import main as experiments
from tests.commands.boundaries.helpers import SMALL
from tests.experiments.scale import small_scale

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
        ["inspect", "a\nb\x1b[31m.csv"],
    ],
    ids=range(10),
)
def test_names_that_are_too_long_or_have_a_line_break(argv, refused):
    refused(argv, LONG[:100] if LONG in str(argv) else "a\\nb\\x1b[31m.csv: no such file")


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


def test_experiments_write_through_a_link():
    Path("real").mkdir()
    Path("link").symlink_to("real")
    with small_scale():
        assert experiments(["scores", "--out", "link"]) in (0, 1)  # whether the limits hold
    assert Path("real/index.html").exists()


def test_links_in_a_circle(refused):
    Path("loop").symlink_to("loop")
    refused(["sweep", *SMALL, "--out", "loop"], "loop cannot be")
    refused(["inspect", "loop"], "loop: unreadable")


@pytest.mark.parametrize("mask", [0o077, 0o002])
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
    """New and resumed sweeps and reports of the user ``nobody`` in folders of root end in one line."""
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


def test_nothing_is_left_where_writing_fails(refused, monkeypatch):
    """The new folder, its new parents and files that were already moved are removed."""
    monkeypatch.setattr(figures, "save", mock.Mock(side_effect=OSError(28, "No space left on device")))
    refused(["inspect", "log.csv", "--out", "a/b/c"], "No space left on device")
