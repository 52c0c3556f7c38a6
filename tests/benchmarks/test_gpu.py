"""The benchmark of GPUs with made-up cases: what fails loses no other case."""

import json
from typing import NamedTuple

from benchmarks import gpu, results


class Case(NamedTuple):
    """A case that ends as its name says."""

    name: str


def measure(case):
    """Measure nothing."""
    if case.name == "fails":
        raise ValueError("no such kernel\nand more")
    return {"rounds_per_second": 1e9}


def test_failures_are_rows_and_the_next_case_is_measured_while_there_is_time(tmp_path):
    path = tmp_path / "gpu.jsonl"
    assert gpu.run([Case("good")], measure, tmp_path / "none", {}, 0) == ([], [Case("good")])
    rows, left = gpu.run([Case(x) for x in ("good", "fails", "last")], measure, path, {"device": "gpu: made up"}, 5)
    assert left == []
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"device": "gpu: made up"}, *rows]
    assert [row["name"] for row in rows] == ["good", "fails", "last"]
    assert [row.get("failure") for row in rows] == [None, "ValueError: no such kernel\\nand more", None]
    assert "| fails |  | ValueError: no such kernel\\nand more |" in results.table(rows)


def test_every_case_can_be_measured(monkeypatch):
    """On this machine, by the CPU's backends in the place of the device's, at a small size."""
    small = {"LEARNERS": ("exaul", "aci-rank"), "BACKENDS": ("native",), "COPIES": (40,), "ARMS": 20}
    for name, value in small.items():
        monkeypatch.setattr(gpu, name, value)
    rates = [gpu.measure(case)["rounds_per_second"] for case in gpu.cases() if case.kind == "rate"]
    assert len(rates) == 2
    assert min(rates) > 0
