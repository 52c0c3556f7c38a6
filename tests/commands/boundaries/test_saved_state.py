"""Manifests, saved states and shards: what was edited, or belongs elsewhere, is refused."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from exaul import BadInput, Sweep, resume, run
from exaul.commands.main import main
from exaul.engine.folder import Batch, SweepFolder
from exaul.engine.progress import Progress
from tests.commands.boundaries.helpers import SMALL, interrupted, refused
from tests.refusals import refusal_of


def test_an_interrupted_command_says_how_to_continue(capsys):
    interrupted()
    assert capsys.readouterr().err == "exaul: interrupted; continue with: exaul sweep --resume out\n"


def edited(about, **changes):
    Path("out/manifest.json").write_text(json.dumps(about | changes))


MODULE = "from exaul.kernels.learners.exaul import exaul as mine\n"


def test_a_module_that_has_changed_between_is_refused(capsys, few_figures):
    Path("own.py").write_text(MODULE)
    about = interrupted("--learners", "own:mine")
    assert capsys.readouterr().err.endswith("exaul sweep --resume out --trust\n")
    assert set(about["code"]) == {"exaul", "own:mine"}
    del sys.modules["own"]
    refused(capsys, ["sweep", "--resume", "out"], "the manifest names own:mine, whose code would run; --trust")
    refused(capsys, ["rerun", "out"], "the manifest names own:mine, whose code would run; --trust")
    assert "own" not in sys.modules  # nor was it imported
    Path("own.py").write_text(MODULE + "changed = True\n")
    refused(capsys, ["sweep", "--resume", "out", "--trust"], "code: own:mine is")
    del sys.modules["own"]
    Path("own.py").write_text(MODULE + "# the code has not changed\n")
    assert main(["sweep", "--resume", "out", "--trust"]) == 0
    assert main(["rerun", "out", "--trust", "--out", "again"]) == 0
    assert Path("again/trials.csv").read_bytes() == Path("out/trials.csv").read_bytes()
    del sys.modules["own"]


@pytest.mark.parametrize(
    "what", ["no part", "blocks", "another file", "a folder", "another state", "garbage", "bytes"]
)
def test_a_state_that_is_not_its_own(what, capsys):
    interrupted()
    (path,) = Path("out/batches").iterdir()
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
        shutil.copy(Path("first/batches") / path.name, path)
        words = "of another sweep: configuration: seed is 0 in it, 5 in"
    elif what == "garbage":
        path.write_bytes(b"PK\x03\x04" + bytes(50))
        words = "unreadable"
    else:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        words = f"{path.name}: "
    refused(capsys, ["sweep", "--resume", "out"], words)


def test_files_in_the_way_of_results_stay(capsys, few_figures):
    """A file has the name of the folder of batches; a folder that is not empty has the name of a figure."""
    interrupted()
    shutil.copytree("out", "other")
    shutil.rmtree("other/batches")
    Path("other/batches").write_text("mine")
    refused(capsys, ["sweep", "--resume", "other"], "other/batches: a file, where the finished batches belong")
    Path("out/answered.png").mkdir()
    Path("out/answered.png/notes").write_text("mine")
    assert main(["sweep", "--resume", "out", "--progress", "quiet"]) == 2
    advice = "what is finished is kept, use --resume to continue"
    assert f"cannot be written (Is a directory); {advice}" in capsys.readouterr().err
    assert Path("out/answered.png/notes").read_text() == "mine"
    assert not list(Path("out").glob(".exaul*"))
    shutil.rmtree("out/answered.png")
    assert main(["sweep", "--resume", "out"]) == 0


WRONG = {
    "configuration": (None, [], {}, {"seed": 1}, 3),
    "end": (0, [], {}),
    "start": (None, 3),
    "sources": (None, {}, [], "x", [1], [{}]),
    "left_out": ("1", [], 2.5, True),
    "code": (None, {}, {"exaul": "x"}),
    "versions": (None, {}, []),
    "device": (None, "tpu"),
}
OF_SOURCE = {
    "name": (None, 1, "x"),
    "learners": (None, {}, "x", [{"learner": "ew", "backend": "native"}]),
    "records": (None, [], [1], "x"),
    "horizon": (None, "1500", 7, 1e300),
    "segments": (None, 9),
    "warm_start": (1, "x"),
}
VALUES = {
    "environment": (None, 1, "nowhere", ["stochastic"]),
    "logs": ([1], [None], "x", 5),
    "seed": (2.5, "1", None, -1, True, 10**400),
    "alphas": ([], ["a"], [2], None, 0.1, [0.1, 0.1], {"a": 1}),
    "arms": (1, 1e9, "3", [3]),
    "anytime": (1, "yes", None),
    "learners": ([None], ["x:y:z"], [["exaul"]]),
    "shard": (1, "2/1", "x"),
    "step": ([], "x", 0.0, 1.5),
    "warm_start": (1, [], "1.5"),
    "tunables": (["x"], [1]),
    "backend": (1, "x"),
}


def test_manifests_of_wrong_types(capsys, tmp_path):
    """Each field gets each wrong value, in the manifests of a finished sweep, a stopped one and a shard."""
    about = interrupted()
    cases = [({name: value}, {}) for name, values in WRONG.items() for value in values]
    cases += [({}, {name: value}) for name, values in VALUES.items() for value in values]
    cases += [({}, {"colour": "blue"})]
    (source,) = about["sources"]
    cases += [({"sources": [source | {name: value}]}, {}) for name, values in OF_SOURCE.items() for value in values]
    for whole, part in cases:
        configuration = about["configuration"] | part
        edited(about, **({"configuration": configuration} | whole))
        refused(capsys, ["sweep", "--resume", "out"])
        refused(capsys, ["rerun", "out"])
        refused(capsys, ["merge", "out"])
    jax, colour = about["versions"] | {"jax": "0.1"}, about["configuration"] | {"colour": "blue"}
    for change, words in (({"versions": jax}, "versions: jax is"), ({"configuration": colour}, "colour")):
        edited(about, **change)
        refused(capsys, ["sweep", "--resume", "out"], words)
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
    name = "batches/0-0000001-0000001.npz"
    shutil.copy(Path("2-1") / name, Path("2-0") / name)
    refused(capsys, ["merge", "1-0", "2-0"], f"{name}: of another sweep: configuration: seed is 1 in it, 0 in")


def test_a_dry_run_of_resume_describes_what_is_resumed(capsys):
    interrupted()
    before = sorted((path, path.stat().st_mtime_ns) for path in Path("out").rglob("*"))
    assert main(["sweep", "--resume", "out", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "1 (alphas x lambdas x rates, of all learners)" in told
    assert "1,500 of each copy, 4,500 in all" in told
    assert sorted((path, path.stat().st_mtime_ns) for path in Path("out").rglob("*")) == before
    refused(capsys, ["sweep", "--resume", "out", "--trials", "100", "--dry-run"], "trials is 100 here, 3 in out")
    refused(capsys, ["sweep", "--resume", "out", "--trials", "100"], "trials is 100 here, 3 in out")
    assert main(["sweep", "--resume", "out", "--trials", "3", "--alphas", "0.05"]) == 0
    assert main(["sweep", "--resume", "out", "--dry-run"]) == 0
    assert "nothing to resume" in capsys.readouterr().out


@pytest.fixture
def halfway():
    """A folder ``out`` in which two of four batches have finished, and a state ``now.npz`` of all trials."""
    interrupted()
    (state,) = Path("out/batches").iterdir()
    state.rename("now.npz")
    shutil.rmtree("out")
    fields = {"trials": 12, "horizon": 300, "arms": 20, "learners": ("exaul",)}
    with pytest.MonkeyPatch.context() as patch:
        saved = []

        def save(self, batch, arrays, real=SweepFolder.save):
            if len(saved) == 2:
                raise KeyboardInterrupt
            saved.append(batch)
            real(self, batch, arrays)

        patch.setattr(SweepFolder, "save", save)
        with pytest.raises(KeyboardInterrupt):
            run(Sweep(**fields, out="out"), batches=4)
    assert sorted(path.name for path in Path("out/batches").iterdir()) == [
        "0-0000000-0000002.npz",
        "0-0000003-0000005.npz",
    ]
    return run(Sweep(**fields))


def test_a_file_that_is_no_batch_is_named(halfway, capsys):
    """Numbers are not as exaul writes them, or of no trials or source of this sweep; or the ending is another."""
    names = ["0-6-8.npz", "0-0000006-0000_008.npz", "now-0-0-11.npz", "0-0000090-0000099.npz"]
    names += ["0-0000011-0000003.npz", "1-0000006-0000008.npz", "0-0000006-0000008.npz.bak", "0-0000006-0000008"]
    for name in names:
        Path("out/batches", name).touch()
        refused(capsys, ["sweep", "--resume", "out"], f"out/batches/{name}: no batch of this sweep; remove it")
        Path("out/batches", name).unlink()


def test_a_batch_under_another_name_is_refused(halfway, capsys):
    first, second = (Path("out/batches", f"0-{name}.npz") for name in ("0000000-0000002", "0000003-0000005"))
    for other in ("0-0000006-0000008", "now-0-0000006-0000008"):
        shutil.copy(first, f"out/batches/{other}.npz")
        sentence = f"{other}.npz: of another sweep: name is '0-0000000-0000002' in it, '{other}' in"
        assert sentence in refusal_of(["sweep", "--resume", "out", "--progress", "quiet"], capsys)
        Path(f"out/batches/{other}.npz").unlink()
    shutil.copy(first, "out/batches/0-0000002-0000004.npz")
    refused(capsys, ["sweep", "--resume", "out"], "has trials that 0-0000002-0000004.npz has, too; remove one")
    Path("out/batches/0-0000002-0000004.npz").unlink()
    second.unlink()
    result = resume("out")
    pd.testing.assert_frame_equal(result.trials, halfway.trials, check_exact=True)


def test_a_state_of_trials_that_have_finished_is_ignored(halfway, monkeypatch):
    """As it is left by a process that is killed after it has saved a batch, before it removes the state."""
    updates, update = [], Progress.update
    monkeypatch.setattr(
        Progress, "update", lambda self, more, **part: (updates.append(more), update(self, more, **part))
    )
    shutil.copy("now.npz", "out/batches/now-0-0000000-0000002.npz")
    result = resume("out")
    pd.testing.assert_frame_equal(result.trials, halfway.trials, check_exact=True)
    assert sum(updates) == 12 * 300


def test_a_flipped_bit_anywhere_in_the_headers_of_a_file_is_one_line(halfway, capsys):
    """Zipfile and NumPy raise whatever they like; about a quarter of the flips change nothing that is read."""
    path = Path("out/batches/0-0000003-0000005.npz")
    content, rng = path.read_bytes(), np.random.default_rng(0)
    folder = SweepFolder(Path("out"), json.loads(Path("out/manifest.json").read_text()))
    for place in rng.choice(len(content), 300):
        path.write_bytes(content[:place] + bytes([content[place] ^ (1 << rng.integers(8))]) + content[place + 1 :])
        try:
            folder.load(Batch(0, 3, 5))
        except BadInput as error:
            assert "remove it to run that batch again" in str(error)  # noqa: PT017  most flips are refused
