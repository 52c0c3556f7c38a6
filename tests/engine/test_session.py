"""Sweeps that are killed and resumed, cut into batches, or sharded and merged have the same bits."""

import json
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from exaul import BadInput, Sweep, merge, resume, run
from exaul.commands.main import main
from exaul.engine import manifest
from exaul.engine import run as sweeps
from exaul.engine.folder import Batch, SweepFolder
from exaul.engine.logs import files as tables
from exaul.engine.simulation import batch, chunks
from tests.conftest import draw_few_figures
from tests.processes import output_of, python, variables

GAME = {"trials": 5, "horizon": 1500, "arms": 40, "alphas": (0.1, 0.3), "checkpoints": 31}

LONG = {"horizon": 2100}
pytestmark = pytest.mark.usefixtures("in_folder")


class Stop(Exception):
    """Raised in place of a kill."""


def files_in(folder):
    """Return the files of a folder without the manifest, which has times."""
    files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}
    manifest = json.loads(files.pop("manifest.json"))
    assert manifest.pop("end") is not None
    assert manifest.pop("start") is not None
    manifest["configuration"].pop("out")
    return files, manifest


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 2**11)


@pytest.fixture(scope="module")
def unstopped(tmp_path_factory):
    """The folder of a sweep that was never stopped, with one figure."""
    out = tmp_path_factory.mktemp("whole") / "out"
    with pytest.MonkeyPatch.context() as patch:
        draw_few_figures(patch)
        run(Sweep(**GAME, out=str(out)))
    return out


def stop_at(owner, name, sweep, out, first=lambda *arguments: None, **fields):
    """Run a sweep that is stopped where it calls a function, perhaps after the function."""

    def stop(*arguments):
        first(*arguments)
        raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, stop)
        with pytest.raises(Stop):
            run(Sweep(**sweep, out=out), **fields)


LATE = {"feedback_rate": 0.3, "delay": 300}


@pytest.mark.parametrize(
    ("environment", "more"),
    [
        ("single-shift", {"learners": ("exaul", "exp3-ix", "aci-rank", "best-fixed")}),
        ("replay", {"backend": "dense", "learners": ("exaul", "best-fixed")}),
        ("adversary-history", {"learners": ("exaul",)}),
        ("stochastic", {"learners": ("aci-rank", "ew")} | LATE),
        pytest.param("adversary-history", {"learners": ("aci-rank",)} | LATE, marks=pytest.mark.slow),
    ],
)
def test_stopped_at_every_save_it_comes_to_the_same_bits(environment, more, monkeypatch, small_chunks, few_figures):
    """A batch with a saved state is not cut anew: the free memory may be another when a sweep is resumed."""
    sweep = GAME | LONG | {"environment": environment} | more
    run(Sweep(**sweep, out="whole"))
    save, stops, sizes, real = SweepFolder.save_state, [], set(), sweeps.simulate_batch

    def saved(self, *arguments):
        save(self, *arguments)
        stops.append(arguments[0])
        raise Stop

    def simulate(prepared, *arguments):
        sizes.add(len(prepared.trials))
        return real(prepared, *arguments)

    monkeypatch.setattr(SweepFolder, "save_state", saved)
    monkeypatch.setattr(sweeps, "simulate_batch", simulate)
    for error, words in ((Stop, None), (BadInput, "not empty")):
        with pytest.raises(error, match=words):
            run(Sweep(**sweep, out="parts"), save_every=0)
    for _ in range(100):
        assert len(list(Path("parts").glob("batches/now-*.npz"))) == 1
        try:
            assert resume("parts", save_every=0, batches=5) is not None
            break
        except Stop:
            pass
    assert len(stops) >= 2
    assert sizes == {GAME["trials"]}
    assert files_in("parts") == files_in("whole")


def test_without_a_state_it_starts_over_and_finished_nothing_changes(unstopped, capsys, few_figures):
    """Files of the killed process are removed, and those of others are not."""
    out = Path("out")
    stop_at(batch, "simulate_pass", GAME, "out")
    assert {path.name for path in out.iterdir()} == {"manifest.json"}
    for name in ("batches", ".exaul-results", ".ipynb_checkpoints"):
        (out / name).mkdir()
    half = ".exaul-curves.csv", "batches/.exaul-0-0000000-0000004.npz", ".exaul-results/fdr.png"
    for name in (*half, ".notes"):
        (out / name).write_text("half")
    resume("out")
    assert {path.name for path in out.glob(".*")} == {".notes", ".ipynb_checkpoints"}
    assert (out / ".notes").read_text() == "half"
    (out / ".notes").unlink()
    (out / ".ipynb_checkpoints").rmdir()
    assert files_in(out) == files_in(unstopped)
    files = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in out.iterdir()}
    assert "nothing to resume" in output_of(["sweep", "--resume", "out"], capsys)
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in out.iterdir()} == files


def test_finished_batches_are_kept_with_their_curves(monkeypatch, unstopped, few_figures):
    """The curves are there while it runs; and it does not matter into how many batches the rest is cut."""
    simulated, has_curves, real = [], [], sweeps.simulate_batch

    def simulate(prepared, *arguments):
        has_curves.append(Path("out/curves.csv").exists())
        if len(simulated) == 2:
            raise Stop
        simulated.append(list(prepared.trials))
        return real(prepared, *arguments)

    monkeypatch.setattr(sweeps, "simulate_batch", simulate)
    with pytest.raises(Stop):
        run(Sweep(**GAME, out="out"), batches=5, save_every=0)
    assert simulated == [[0], [1]]
    assert has_curves == [False, True, True]
    saved = tables.load(Path("out/curves.csv"))
    simulated[:] = []
    pd.testing.assert_frame_equal(saved, run(Sweep(**GAME | {"trials": 2})).curves, check_exact=True)
    assert len(list(Path("out").glob("batches/*.npz"))) == 2
    simulated[:] = []
    resume("out", batches=2)
    assert simulated == [[2, 3, 4]]
    assert files_in("out")[0].keys() == files_in(unstopped)[0].keys()
    assert files_in("out") == files_in(unstopped)


def test_shards_merge_to_the_whole(unstopped, few_figures):
    for i in "12":
        run(Sweep(**GAME, shard=f"{i}/2", out=i))
    merge("21", "out")
    assert files_in("out") == files_in(unstopped)


def test_one_process_a_folder():
    with SweepFolder.locked("out", {"configuration": {}}, 60):
        for resumed, words in ((False, "not empty"), (True, "in use")):
            with pytest.raises(BadInput, match=words):
                SweepFolder.locked("out", {}, 60, is_resumed=resumed).__enter__()
    with SweepFolder.locked("out", {}, 60, is_resumed=True):
        pass


def test_a_full_disk_is_one_line_and_keeps_what_was_saved(monkeypatch, capsys, small_chunks, few_figures):
    saves = []
    argv = ["sweep", "--trials", "4", "--horizon", "3000", "--arms", "30", "--learners", "exaul"]
    assert main([*argv, "--out", "whole"]) == 0
    savez = np.savez

    def full(stream, **arrays):
        saves.append(1)
        if len(saves) > 2:
            stream.write(b"half")
            raise OSError(28, "No space left on device")
        savez(stream, **arrays)

    monkeypatch.setattr(np, "savez", full)
    capsys.readouterr()
    assert main([*argv, "--out", "out", "--save-every", "0"]) == 2
    error = capsys.readouterr().err
    assert "No space left on device" in error
    assert "Traceback" not in error
    assert not list(Path("out").rglob(".*"))
    monkeypatch.undo()
    assert main(["sweep", "--resume", "out"]) == 0
    assert files_in("out") == files_in("whole")


def test_a_folder_that_cannot_be_begun_is_removed(monkeypatch):
    """In Python, too, with one sentence."""
    full = mock.Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr("exaul.engine.folder.save_json", full)
    with pytest.raises(BadInput, match=r"^out: .*new/out cannot be written \(No space left on device\)"):
        run(Sweep(**GAME, out="new/out"))
    assert not Path("new").exists()


def test_bits_depend_on_the_code_that_simulates_and_on_the_source_of_the_batch(monkeypatch):
    hashed = []
    monkeypatch.setattr(manifest, "hash_of", lambda _, paths: hashed.extend(paths) or "")
    manifest.engine_hash.__wrapped__()
    kinds = {f"{path.parent.name}/*{path.suffix}" for path in hashed}
    assert kinds == {"engine/*.py", "environments/*.py", "logs/*.py", "logs/*.csv", "simulation/*.py"}
    assert manifest.identity({"sources": ["first", "second"]}, 1)["sources"] == ["second"]


def test_a_begun_batch_is_not_cut_anew_beside_finished_ones():
    folder = SweepFolder(None, {})
    folder.finished, folder.begun = {Batch(0, 5, 9)}, {Batch(0, 2, 4)}
    assert folder.missing([0], range(12), 4) == [Batch(0, 0, 1), Batch(0, 2, 4), Batch(0, 10, 11)]


def test_progress_as_json_lines(capsys):
    argv = ["sweep", "--trials", "2", "--horizon", "600", "--arms", "20", "--learners", "exaul"]
    assert main([*argv, "--progress", "json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert lines[-1]["rounds"] == lines[-1]["total"] == 1200
    assert lines[-1].keys() == {"rounds", "total", "seconds", "rate", "left"}
    assert main([*argv, "--progress", "quiet"]) == 0
    assert capsys.readouterr().err == ""


SWEEP = """
import sys
from exaul.commands.main import main
from exaul.engine.simulation import chunks
chunks.CHUNK = 2**13
sys.exit(main(["sweep", *sys.argv[1:]]))
"""


@pytest.mark.slow
def test_killed_fifty_times_as_it_saves_it_comes_to_the_same_bits():
    """SIGKILL while the file of a state, of a batch or of results is written, and again right after it resumes."""
    fields = ["--trials", "8", "--horizon", "200000", "--learners", "exaul", "best-fixed", "--arms", "3000"]
    fields += ["--backend", "dense", "--environment", "single-shift", "--checkpoints", "5"]
    unstopped, out = Path("whole"), Path("out")
    python(SWEEP, *fields, "--out", "whole")
    rng, argv, hit = np.random.default_rng(1), [*fields, "--out", "out"], 0
    quiet = {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    for _ in range(200):
        command = [sys.executable, "-c", SWEEP, *argv, "--save-every", "0", "--batches", "4"]
        process = subprocess.Popen(command, env=variables(), **quiet)
        skip = int(rng.integers(1, 4))  # saves that are let pass
        while process.poll() is None and skip:
            if any(out.rglob(".exaul-*")):
                skip -= 1
                time.sleep(rng.random() * 0.01)
        hit += bool(process.poll() is None and any(out.rglob(".exaul-*")))
        process.kill()
        process.wait()
        argv = ["--resume", "out"] if (out / "manifest.json").exists() else argv
        if hit == 50:
            break
    assert hit == 50
    python(SWEEP, *argv)
    assert files_in(out) == files_in(unstopped)


def test_threads_of_another_machine_do_not_matter(monkeypatch, small_chunks, few_figures):
    """The layout of the native backend depends on the number of threads; the saved state does not."""
    sweep = GAME | {"environment": "replay", "learners": ("exaul",), "horizon": 2000, "trials": 200}
    run(Sweep(**sweep, out="whole"))
    stop_at(SweepFolder, "save_state", sweep, "parts", first=SweepFolder.save_state, save_every=0)
    monkeypatch.setattr("exaul.kernels.native.backend.processor_count", lambda: 3)
    resume("parts")
    assert files_in("parts")[0] == files_in("whole")[0]
