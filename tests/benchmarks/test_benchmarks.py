"""The benchmarks run and say what they measured; no test asserts a time.

That of GPUs runs on a CPU in the place of a device.
"""

import json
import os
import re
from contextlib import nullcontext
from pathlib import Path
from timeit import Timer
from types import SimpleNamespace

import pytest

from benchmarks import gpu, results, scaling, service, start, throughput
from benchmarks.__main__ import PUBLISHED, main
from benchmarks.peers import PEERS, PeerCase
from exaul.engine import machine
from exaul.engine.simulation import chunks
from tests import games
from tests.processes import refusal_of


class Once(Timer):
    """Takes the time of one call, however short it is."""

    def autorange(self, callback=None):
        return 1, self.timeit(1)


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Every kind of case and every size, as small as possible; results go to a folder of their own."""
    first, cache = start.SWEEPS[True], os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    pairs = ("dense", "own"), ("native", "own"), ("native", "shared"), ("rows", "adaptive")
    cases = [PeerCase("exp3-ix", *pair, 40, 20) for pair in pairs]
    cases += [PeerCase("exp3-ix", "numpy", "shared", 1, 20), PeerCase("exaul", "numba-dense", "shared", 1, 20)]
    page = tmp_path / "page.md"
    page.write_text("".join(f"before {x}\n<!-- begin {x} -->\nold\n<!-- end {x} -->\nafter\n" for x in PUBLISHED))
    monkeypatch.setattr(throughput, "groups", lambda quick: [cases[-1:] if quick else cases])
    monkeypatch.setitem(throughput.REPETITIONS, False, 1)
    for module, name, value in (
        (scaling, "SIZES", {"copies": (8, 16), "arms": (20, 40), "rounds": (256, 512)}),
        (service, "SIZES", {False: (40, 20, 4, 40)}),
        (service, "LEARNERS", {"aci-rank": 1.0}),
        (service, "repeat", lambda call, repeat, number: [Timer(call).timeit(number)]),
        # what other tests have compiled is not compiled once more
        (start, "tempfile", SimpleNamespace(TemporaryDirectory=lambda: nullcontext(cache))),
        (start, "SWEEPS", {True: {name: [*x, "--learners", "aci-rank"] for name, x in first.items()}, False: {}}),
        (throughput, "Timer", Once),
        (chunks, "CHUNK", 2**14),
        (results, "FOLDER", tmp_path / "results"),
        (results, "PAGE", page),
    ):
        monkeypatch.setattr(module, name, value)
    return cases


def test_one_command_renews_results_and_page_and_a_quick_one_writes_nothing(small, tmp_path, capsys):
    page = tmp_path / "page.md"
    assert main(["throughput", "--quick"]) == 0
    assert page.read_text().count("old") == len(PUBLISHED)
    (tmp_path / "results").mkdir()
    for name in ("throughput-old.json", "gpu-old.json"):
        (tmp_path / "results" / name).touch()
    assert main(["all"]) == 0
    out = capsys.readouterr().out
    lines = ("| exp3-ix | own | 40 |", "| arms | 40 |", "second start: programs are stored |", "decision, median |")
    assert [line for line in lines if line not in out] == []
    files = sorted(path.name for path in (tmp_path / "results").iterdir())
    assert len(files) == 1 + len(PUBLISHED)
    assert files[0] == "gpu-old.json"
    parts = re.findall(
        r"before (\w+)\n<!-- begin \1 -->\n(.*?)\n<!-- end \1 -->\nafter\n", page.read_text(), re.DOTALL
    )
    assert [name for name, _ in parts] == [*PUBLISHED]
    for name, text in parts:
        path = next((tmp_path / "results").glob(f"{name}-*.json"))
        stamped = json.loads(path.read_text())
        assert {"device", "versions"} < stamped.keys()
        assert all(row["value"] > 0 for row in stamped["rows"] if "value" in row)
        assert results.table(stamped["rows"]) in text
        assert f"`benchmarks/results/{path.name}`" in text
        if name == "throughput":
            assert [PeerCase(*(row[field] for field in PeerCase._fields)) for row in stamped["rows"]] == small
            assert ["over dense" in row for row in stamped["rows"]] == [case.order == "own" for case in small]
            assert stamped["rows"][0]["over dense"] == 1


def test_every_learner_runs_in_numpy():
    """Run the NumPy cases of the full benchmark once; the rest of it takes too long for a test."""
    cases = [case for case in throughput.groups(quick=False)[0] if case.backend == "numpy"]
    assert {case.learner for case in cases} == set(throughput.learners())
    for case in cases:
        PEERS[case.backend](case._replace(arms=20))()


def test_the_grid():
    """Every backend of every learner in all orders; the quick one a pair each."""
    cases = [case for group in throughput.groups(quick=False) for case in group]
    assert len(cases) == len(set(cases))
    assert {case.backend for case in cases} == {*games.BACKENDS, *PEERS}
    assert {case.backend for case in cases if case.order == "adaptive"} == {"rows", "dense"}
    (quick,) = throughput.groups(quick=True)
    assert set(quick) < set(cases)
    assert all(case._replace(backend="dense") in quick for case in quick)


def test_exponents_of_scaling():
    rows = [{"varied": "arms", "size": x, "value": x**0.5} for x in (100, 1000, 64_000)]
    rows += [{"varied": "rounds", "size": x, "value": 20.0} for x in (10_000, 100_000)]
    assert [row["exponent"] for row in scaling.exponents(rows)] == pytest.approx([0.5, 0])


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "required"),
        (["throughput", "--slow"], "--slow"),
        (["speed"], "speed"),
        (["gpu"], "benchmarks: gpu: JAX finds no GPU"),
    ],
)
def test_what_cannot_run_is_one_line(argv, words, monkeypatch, capsys):
    monkeypatch.setattr(machine, "platform", lambda: "cpu")
    assert words in refusal_of(argv, capsys, main)


def test_the_page_has_a_place_for_every_table():
    page = results.PAGE.read_text(encoding="utf-8")
    for name in PUBLISHED:
        assert re.search(f"^<!-- begin {name} -->\n.+\n<!-- end {name} -->\n", page, re.DOTALL | re.MULTILINE)


def test_every_learner_is_measured_on_every_backend_and_at_every_size(monkeypatch):
    def measure(cases, repetitions):
        return [case._asdict() | {"repetitions": repetitions} for case in cases]

    monkeypatch.setattr(gpu.throughput, "measure", measure)
    monkeypatch.setattr(machine, "platform", lambda: "gpu")
    rows, quick = gpu.run(quick=False), gpu.run(quick=True)
    names = "learner", "backend", "copies", "arms", "rounds", "repetitions"
    pairs = [
        (name, x) for name in gpu.LEARNERS for x in games.BACKENDS if (name, x) in games.PAIRS and x != "native"
    ]
    sizes = (1_024, gpu.ARMS, 2**15, 3), (65_536, gpu.ARMS, 2**9, 3)
    assert [tuple(row[name] for name in names) for row in rows] == [(*pair, *x) for x in sizes for pair in pairs]
    assert [row | {"repetitions": 3} for row in quick] == [
        row for row in rows[: len(quick)] if row["learner"] == "exaul"
    ]
    assert {row["repetitions"] for row in quick} == {1}
