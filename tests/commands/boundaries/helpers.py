"""Functions and constants that the tests of input and output at their limits share."""

import json
from pathlib import Path
from unittest import mock

from exaul.commands.main import main
from exaul.engine.folder import SweepFolder
from exaul.engine.simulation import chunks
from tests.processes import refusal_of

SMALL = ["--trials", "2", "--horizon", "300", "--arms", "20", "--learners", "exaul", "--progress", "quiet"]
ROWS = "score,error\n0.5,1\n0.9,0\n0.8,0\n"


def refused(capsys, argv, *words, program=main):
    """Run a command that is refused; return its one line on stderr. The status is 2, and nothing is written."""
    before = sorted(Path.cwd().rglob("*"))
    capsys.readouterr()
    err = refusal_of(argv, capsys, program)
    assert sorted(Path.cwd().rglob("*")) == before
    for word in words:
        assert word in err
    return err


def interrupted(*more):
    """Stop a sweep at its first save, and return the manifest of its folder ``out``."""
    argv = ["sweep", "--trials", "3", "--horizon", "1500", "--arms", "20", "--learners", "exaul", *more]
    save = SweepFolder.save_state

    def stop(self, *given):
        save(self, *given)
        raise KeyboardInterrupt

    with mock.patch.object(chunks, "CHUNK", 2**10), mock.patch.object(SweepFolder, "save_state", stop):
        assert main([*argv, "--out", "out", "--save-every", "0"]) == 130
    return json.loads(Path("out/manifest.json").read_text())
