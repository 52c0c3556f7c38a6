"""The benchmark of GPUs with made-up cases: what fails loses no other case."""

import json
from typing import NamedTuple

import pytest

from benchmarks import gpu, results
from benchmarks.__main__ import main


class Case(NamedTuple):
    """A case that ends as its name says."""

    name: str


def measure(case):
    """Measure nothing."""
    if case.name == "fails":
        raise ValueError("no such kernel\nand more")
    return {"rounds_per_second": 1e9}


def test_failures_are_rows_and_the_next_case_is_measured(tmp_path):
    path = tmp_path / "gpu.jsonl"
    rows, left = gpu.run([Case(x) for x in ("good", "fails", "last")], measure, path, {"device": "gpu: made up"}, 5)
    assert left == []
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"device": "gpu: made up"}, *rows]
    assert [row["name"] for row in rows] == ["good", "fails", "last"]
    assert [row.get("failure") for row in rows] == [None, "ValueError: no such kernel\\nand more", None]
    assert "| fails |  | ValueError: no such kernel\\nand more |" in results.table(rows)


def test_cases_without_time_are_left_out(tmp_path):
    todo = [Case("good"), Case("other")]
    assert gpu.run(todo, measure, tmp_path / "gpu.jsonl", {}, 0) == ([], todo)


def test_without_a_device_one_sentence(monkeypatch, capsys):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")  # which the command sets
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
    cases = [case for case in gpu.cases() if case.kind == "rate"]
    found = {case: gpu.measure(case) for case in cases}
    assert [case.kind for case in found] == 2 * ["rate"]
    assert all(row["rounds_per_second"] > 0 for row in found.values())
