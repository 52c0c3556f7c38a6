"""Manifests, saved states and shards: what was edited, or belongs elsewhere, is refused."""

import json
import os
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
from tests.commands.boundaries.helpers import SMALL, interrupted
from tests.processes import output_of, refusal_of

RESUME = ["sweep", "--resume", "out"]


MODULE = "from exaul.kernels.learners.exaul import exaul as mine\n"


def test_a_module_that_has_changed_between_is_refused(capsys, refused, few_figures):
    Path("changing.py").write_text(MODULE)
    about = interrupted("--learners", "changing:mine")
    assert capsys.readouterr().err.endswith("exaul sweep --resume out --trust\n")
    assert set(about["code"]) == {"exaul", "changing:mine"}
    del sys.modules["changing"]
    refused(RESUME, "the manifest names changing:mine, whose code would run; --trust")
    refused(["rerun", "out"], "the manifest names changing:mine, whose code would run; --trust")
    assert "changing" not in sys.modules  # nor was it imported
    Path("changing.py").write_text(MODULE + "changed = True\n")
    refused([*RESUME, "--trust"], "code: changing:mine is")
    del sys.modules["changing"]
    Path("changing.py").write_text(MODULE + "# the code has not changed\n")
    assert "\ntables, figures and manifest: out\n" in output_of([*RESUME, "--trust"], capsys)
    assert main(["rerun", "out", "--trust", "--out", "again"]) == 0
    assert Path("again/trials.csv").read_bytes() == Path("out/trials.csv").read_bytes()
    del sys.modules["changing"]


def array_alone(path):
    with path.open("wb") as stream:
        np.save(stream, np.zeros(3))


def of_another_sweep(path):
    """Copy the state into the folder of a sweep that differs in its seed."""
    Path("out").replace("first")
    interrupted("--seed", "5")
    shutil.copy(Path("first/batches") / path.name, path)


def changed(path):
    """Save the arrays of a state again, with another number of blocks."""
    np.savez(path, **{**np.load(path), "blocks": np.array(-3)})


NOT_ITS_OWN = {
    "blocks": (changed, "changed since it was written"),
    "another file": (array_alone, "unreadable"),
    "a folder": (lambda path: path.unlink() or path.mkdir(), "unreadable (Is a directory)"),
    "another state": (of_another_sweep, "of another sweep: configuration: seed is 0 in it, 5 in"),
}


@pytest.mark.parametrize("what", NOT_ITS_OWN)
def test_a_state_that_is_not_its_own(what, refused):
    interrupted()
    (path,) = Path("out/batches").iterdir()
    damage, words = NOT_ITS_OWN[what]
    damage(path)
    refused(RESUME, words)


def test_files_in_the_way_of_results_stay(capsys, refused, few_figures):
    """A file has the name of the folder of batches; a folder that is not empty has the name of a figure."""
    interrupted()
    shutil.copytree("out", "other")
    shutil.rmtree("other/batches")
    Path("other/batches").write_text("mine")
    refused(["sweep", "--resume", "other"], "other/batches: a file, where the finished batches belong")
    Path("out/answered.png").mkdir()
    Path("out/answered.png/notes").write_text("mine")
    assert main([*RESUME, "--progress", "quiet"]) == 2
    advice = "what is finished is kept, use --resume to continue"
    assert f"cannot be written (Is a directory); {advice}" in capsys.readouterr().err
    assert Path("out/answered.png/notes").read_text() == "mine"
    kept = {"manifest.json", "batches", "trials.csv", "curves.csv", "advice.csv", "table.tex"}
    assert {path.name for path in Path("out").iterdir()} == {*kept, "answered.png"}
    shutil.rmtree("out/answered.png")
    assert main(RESUME) == 0


def test_a_manifest_of_another_version_is_refused(refused):
    """Whatever is wrong in one; test_fuzz.test_each_value_of_a_manifest replaces each value."""
    about = interrupted()
    jax, colour = about["versions"] | {"jax": "0.1"}, about["configuration"] | {"colour": "blue"}
    for change, words in (({"versions": jax}, "versions: jax is"), ({"configuration": colour}, "colour")):
        Path("out/manifest.json").write_text(json.dumps(about | change))
        refused(RESUME, words)
    for text in ("", "[]", "null", "3", '"x"', "{", "[" * 100_000, '{"configuration": {}}', "\x00", '{"a": NaN}'):
        Path("out/manifest.json").write_text(text)
        refused(RESUME, "manifest.json")
        refused(["merge", "out", "--out", "whole"], "manifest.json")
    Path("out/manifest.json").write_bytes(b"\xff\xfe")
    refused(["rerun", "out"], "manifest.json: unreadable")
    refused(["sweep", "--resume", "."], "manifest.json: no such file")


def test_a_shard_of_another_sweep_is_not_merged(refused, few_figures):
    for i, seed in ((1, 0), (2, 0), (2, 1)):
        flags = ["--shard", f"{i}/2", "--seed", str(seed), "--out", f"{i}-{seed}"]
        assert main(["sweep", *SMALL, *flags]) == 0
    name = "batches/0-0000001-0000001.npz"
    shutil.copy(Path("2-1") / name, Path("2-0") / name)
    refused(["merge", "1-0", "2-0"], f"{name}: of another sweep: configuration: seed is 1 in it, 0 in")


def test_how_to_continue_is_said_and_described_by_a_dry_run(capsys, refused, few_figures):
    interrupted()
    assert capsys.readouterr().err == "exaul: interrupted; continue with: exaul sweep --resume out\n"
    before = sorted((path, path.stat().st_mtime_ns) for path in Path("out").rglob("*"))
    told = output_of([*RESUME, "--dry-run"], capsys)
    assert "1 (alphas x lambdas x rates, of all learners)" in told
    assert "1,500 of each copy, 4,500 in all" in told
    assert sorted((path, path.stat().st_mtime_ns) for path in Path("out").rglob("*")) == before
    for more in ([], ["--dry-run"]):
        refused([*RESUME, "--trials", "100", *more], "trials is 100 here, 3 in out")
    assert main([*RESUME, "--trials", "3", "--alphas", "0.05"]) == 0
    assert "nothing to resume" in output_of([*RESUME, "--dry-run"], capsys)


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A folder with ``out``, in which two of four batches have finished, and ``now.npz``; the result of all."""
    fields, saved = {"trials": 12, "horizon": 300, "arms": 20, "learners": ("exaul",)}, []

    def save(self, batch, arrays, real=SweepFolder.save):
        if len(saved) == 2:
            raise KeyboardInterrupt
        saved.append(batch)
        real(self, batch, arrays)

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder := tmp_path_factory.mktemp("begun"))
        interrupted()
        (state,) = Path("out/batches").iterdir()
        state.rename("now.npz")
        shutil.rmtree("out")
        patch.setattr(SweepFolder, "save", save)
        with pytest.raises(KeyboardInterrupt):
            run(Sweep(**fields, out="out"), batches=4)
    assert sorted(path.name for path in (folder / "out/batches").iterdir()) == [
        "0-0000000-0000002.npz",
        "0-0000003-0000005.npz",
    ]
    return folder, run(Sweep(**fields))


@pytest.fixture
def halfway(begun, few_figures):
    """A copy of that folder, and the result."""
    shutil.copytree(begun[0], ".", dirs_exist_ok=True)
    return begun[1]


def test_a_file_that_is_no_batch_or_another_one_is_named(halfway, capsys, refused):
    """Numbers are not as exaul writes them, or of no trials or source of this sweep; or the ending is another."""
    names = ["0-6-8.npz", "0-0000006-0000_008.npz", "now-0-0-11.npz", "0-0000090-0000099.npz"]
    names += ["0-0000011-0000003.npz", "1-0000006-0000008.npz", "0-0000006-0000008.npz.bak", "0-0000006-0000008"]
    for name in names:
        Path("out/batches", name).touch()
        refused(RESUME, f"out/batches/{name}: no batch of this sweep; remove it")
        Path("out/batches", name).unlink()
    first, second = (Path("out/batches", f"0-{name}.npz") for name in ("0000000-0000002", "0000003-0000005"))
    for other in ("0-0000006-0000008", "now-0-0000006-0000008"):
        shutil.copy(first, f"out/batches/{other}.npz")
        sentence = f"{other}.npz: of another sweep: name is '0-0000000-0000002' in it, '{other}' in"
        assert sentence in refusal_of([*RESUME, "--progress", "quiet"], capsys)
        Path(f"out/batches/{other}.npz").unlink()
    shutil.copy(first, "out/batches/0-0000002-0000004.npz")
    refused(RESUME, "has trials that 0-0000002-0000004.npz has, too; remove one")
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


def test_a_damaged_file_is_one_line(halfway):
    """Zipfile and NumPy raise whatever they like; about a quarter of the bits change nothing that is read."""
    path, batch = Path("out/batches/0-0000003-0000005.npz"), Batch(0, 3, 5)
    content, rng = path.read_bytes(), np.random.default_rng(0)
    folder = SweepFolder(Path("out"), json.loads(Path("out/manifest.json").read_text()))
    whole, advice = folder.load(batch), "remove it to run that batch again"
    for place in rng.choice(len(content), 300):
        path.write_bytes(content[:place] + bytes([content[place] ^ (1 << rng.integers(8))]) + content[place + 1 :])
        try:
            np.testing.assert_equal(folder.load(batch), whole)
        except BadInput as error:
            assert advice in str(error)  # noqa: PT017  most flips are refused
        path.write_bytes(content[:place])
        with pytest.raises(BadInput, match=advice):
            folder.load(batch)

    class Trap:
        def __reduce__(self):
            return os.mkdir, ("sprung",)

    np.savez(path, blocks=np.array([Trap()], dtype=object))
    with pytest.raises(BadInput, match="unreadable"):
        folder.load(batch)
    assert not Path("sprung").exists()
