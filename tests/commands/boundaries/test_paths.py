"""Paths and folders: long names, links, permissions, other users, full disks."""

import json
import os
import stat
from pathlib import Path

import pytest

from exaul.commands.main import main
from tests.commands.boundaries.helpers import SMALL

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
