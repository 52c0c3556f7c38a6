"""Hostile logs and flags end with one clear line and status 2, and leave nothing half-written."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

from exaul import BadInput
from exaul.commands.main import main
from exaul.engine.folder import Batch, SweepFolder
from tests.commands.boundaries.helpers import process
from tests.processes import refusal_of

pytestmark = pytest.mark.usefixtures("in_folder")


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "utf-8"])
def test_logs_in_other_encodings_and_cut_archives(encoding, capsys):
    """Others are fuzzed by test_fuzz.test_edited_logs, and flags by test_ten_thousand_command_lines."""
    packed = gzip.compress("score,error,ö\n0.5,1,ä\n".encode(encoding))
    for end in [*range(0, len(packed), 7), *([] if encoding == "utf-8" else [len(packed)])]:
        Path("log.csv.gz").write_bytes(packed[:end])
        assert "log.csv.gz: " in refusal_of(["sweep", "--logs", "log.csv.gz"], capsys)


def test_no_pickle_is_ever_loaded(monkeypatch):
    """An array of objects in the place of a state is refused before it is unpickled."""
    argv = ["sweep", "--trials", "1", "--horizon", "300", "--out", "out"]
    monkeypatch.setattr("exaul.engine.run.simulate_batch", lambda *given, **named: 1 / 0)  # nothing is simulated
    with pytest.raises(ZeroDivisionError):
        main(argv)

    class Trap:
        def __reduce__(self):
            return os.mkdir, ("sprung",)

    batch = Batch(0, 0, 0)
    Path("out/batches").mkdir()
    with open(f"out/batches/now-{batch.name}.npz", "wb") as stream:
        np.savez(stream, blocks=np.array(1), **{"0000": np.array([Trap()], dtype=object)})

    manifest = json.loads(Path("out/manifest.json").read_text())
    opened = SweepFolder.open("out", manifest, 60, is_resumed=True)
    with opened as folder, pytest.raises(BadInput, match="unreadable"):
        folder.load_state(batch)
    assert not Path("sprung").exists()


@pytest.mark.slow
def test_a_log_of_a_million_rows():
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.random(10**6), rng.random(10**6) < 0.3])
    np.savetxt("million.csv", rows, "%.6g", ",", header="score,error", comments="")
    argv = ["sweep", "--logs", "million.csv", "--trials", "2", "--horizon", "3000", "--learners", "exaul"]
    assert process(argv, timeout=120).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("bytes_of_a_file", [10_000, 60_000, 200_000])
def test_a_file_size_limit_is_a_full_disk(bytes_of_a_file):
    """The operating system's own limit, at a save or at the results; what was saved is resumed to the same bits."""
    fields = ["--trials", "40", "--horizon", "20000", "--arms", "100", "--learners", "exaul", "ew"]
    fields += ["--backend", "dense", "--alphas", "0.1", "0.2"]
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    limit += f"resource.setrlimit(resource.RLIMIT_FSIZE, ({bytes_of_a_file}, {bytes_of_a_file})); "

    def sweep(*argv, before=""):
        program = f"{before}from exaul.engine.simulation import schedule; schedule.CHUNK = 2**15"
        return process(["sweep", *argv], program, text=True)

    stopped = sweep(*fields, "--out", "out", "--save-every", "0", before=limit)
    assert stopped.returncode == 2, stopped.stderr
    assert stopped.stderr.count("exaul:") == 1
    assert "Traceback" not in stopped.stderr
    assert sweep("--resume", "out").returncode == 0
    assert sweep(*fields, "--out", "whole").returncode == 0
    for name in ("trials.csv", "curves.csv", "fdr.png"):
        assert Path("out", name).read_bytes() == Path("whole", name).read_bytes()
