"""The benchmark of GPUs with made-up cases: what fails, hangs or is killed loses no other case."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import gpu, results
from benchmarks.__main__ import main
from benchmarks.worker import DIED, TOO_LONG, Worker
from tests.benchmarks.made_up import Case, measure

SRC = Path(__file__).parents[2]


@pytest.fixture
def worker():
    found = Worker()
    yield found
    found.close()


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_failures_are_rows_and_the_next_case_is_measured(worker, tmp_path):
    names = "good", "fails", "does not fit", "other", "dies", "last"
    path = tmp_path / "gpu.jsonl"
    rows, left = gpu.run([Case(x) for x in names], measure, path, {"device": "gpu: made up"}, 5, worker)
    assert left == []
    assert lines(path) == [{"device": "gpu: made up"}, *rows]
    assert [row["name"] for row in rows] == [*names]
    assert [row.get("failure") for row in rows] == [
        None,
        "ValueError: no such kernel\\nand more",
        "MemoryError: CUDA device 0: CUDA_ERROR_OUT_OF_MEMORY",
        None,
        DIED,
        None,
    ]
    assert rows[0]["process"] == rows[3]["process"] != rows[5]["process"]
    assert "| fails |  |  | ValueError: no such kernel\\nand more |" in results.table(rows)


def test_cases_without_time_are_left_out(worker, tmp_path):
    todo = [Case("good"), Case("hangs"), Case("other")]
    rows, left = gpu.run(todo, measure, tmp_path / "gpu.jsonl", {}, 0.2, worker)
    assert [row["name"] for row in rows] == ["good"]
    assert left == todo[1:]


def test_a_case_that_hangs_is_a_row_where_there_is_time_for_others(worker, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "LONGEST", 8.0)
    rows, left = gpu.run([Case("hangs"), Case("other")], measure, tmp_path / "gpu.jsonl", {}, 5, worker)
    assert left == []
    assert [row.get("failure") for row in rows] == [TOO_LONG, None]


KILLED = """
from pathlib import Path
from unittest import mock
from benchmarks import gpu
from benchmarks.worker import Worker
from tests.benchmarks.made_up import Case, measure

if __name__ == "__main__":
    gpu.run([Case("good"), Case("fails"), Case("hangs")], measure, Path("{path}"), {{}}, 5, Worker())
"""


def test_rows_before_a_kill_are_there_and_no_process_stays(tmp_path):
    path, script = tmp_path / "gpu.jsonl", tmp_path / "run.py"
    script.write_text(KILLED.format(path=path))
    environment = os.environ | {"PYTHONPATH": str(SRC)}
    running = subprocess.Popen([sys.executable, script], cwd=SRC, env=environment, stderr=subprocess.DEVNULL)
    while not (path.exists() and path.read_text().count("\n") == 3):
        assert running.poll() is None
        time.sleep(0.05)
    running.kill()
    running.wait()
    assert [row.get("name") for row in lines(path)] == [None, "good", "fails"]
    worker, end = Path(f"/proc/{lines(path)[1]['process']}"), time.monotonic() + 30
    while worker.exists():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_without_a_device_one_sentence(capsys):
    assert main(["gpu", "--minutes", "1"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("benchmarks: gpu: no GPU is found (JAX computes on cpu: cpu)")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("minutes", ["0", "-1", "nan"])
def test_minutes_that_are_none(minutes, capsys):
    assert main(["gpu", "--minutes", minutes]) == 2
    assert "minutes: " in capsys.readouterr().err


def test_every_case_can_be_measured(monkeypatch):
    """On this machine, by the CPU's backends in the place of the device's, at a small size."""
    values = {"LEARNERS": ("exaul", "aci-rank"), "BACKENDS": ("native",), "COPIES": (40,)}
    for name, value in (values | {"ARMS": 20}).items():
        monkeypatch.setattr(gpu, name, value)
    cases = [case for case in gpu.cases() if not case.kind.startswith("launches")]
    found = {case: gpu.measure(case) for case in cases}
    assert [case.kind for case in found] == 2 * ["rate"]
    assert all(row["rounds_per_second"] > 0 for row in found.values())


@pytest.mark.parametrize("failure", [DIED, TOO_LONG])
def test_a_worker_that_does_not_answer_is_one_sentence(failure, monkeypatch, capsys):
    monkeypatch.setattr(Worker, "call", lambda *_, seconds: (None, failure))
    assert main(["gpu", "--minutes", "1"]) == 2
    err = capsys.readouterr().err
    assert failure in err
    assert len(err.splitlines()) == 1
