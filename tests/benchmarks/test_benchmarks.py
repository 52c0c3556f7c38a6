"""The benchmarks run and say what they measured; no test asserts a time."""

import json

import pytest

from benchmarks import abstainer, interaction, peers, scaling, service, stamp, throughput
from benchmarks.__main__ import main
from benchmarks.peers import PEERS, PeerCase
from exaul.engine.simulation import schedule
from tests import games

FIELDS = {"learner", "backend", "order", "copies", "arms", "horizon", "precision"}
FIELDS |= {"rounds_per_second", "ratio_to_dense"}


@pytest.fixture
def small(monkeypatch):
    """Two backends of one learner, 40 copies, 20 arms; a floor and two of one copy."""
    cases = [
        PeerCase("exp3-ix", x, order, 40, 20, "float64") for order in ("own", "shared") for x in ("dense", "native")
    ]
    cases += [
        PeerCase("none", "floor", "shared", 40, 20, "float64"),
        PeerCase("exp3-ix", "numpy", "shared", 1, 20, "float64"),
    ]
    cases += [PeerCase("exaul", "numba-dense", "shared", 1, 20, "float64")]
    monkeypatch.setattr(throughput, "groups", lambda quick: [cases])
    for name in ("QUICK", "FULL"):
        monkeypatch.setattr(throughput, name, (0.0, 1e-9))
    monkeypatch.setattr(schedule, "CHUNK", 2**14)
    monkeypatch.setattr(peers, "CHUNK", 2**14)
    return cases


def test_json_rows_of_throughput(small, capsys):
    assert main(["throughput", "--quick", "--json"]) == 0
    out, err = capsys.readouterr()
    rows = json.loads(out)
    assert [PeerCase(*(row[name] for name in PeerCase._fields)) for row in rows] == small
    assert "exp3-ix native own" in err
    for row in rows:
        assert set(row) == FIELDS
        assert row["rounds_per_second"] > 0
        assert row["horizon"] % 256 == 0
        assert (row["ratio_to_dense"] is None) == (row["backend"] in PEERS)
        assert row["backend"] != "dense" or row["ratio_to_dense"] == 1


def test_every_learner_runs_in_numpy():
    """Run the NumPy cases of the full benchmark once; the rest of it takes too long for a test."""
    cases = [case for case in throughput.groups(quick=False)[0] if case.backend == "numpy"]
    assert {case.learner for case in cases} == set(throughput.learners())
    for case in cases:
        PEERS[case.backend](case._replace(arms=20)).call()


def test_results_are_written_with_device_versions_and_commit(small, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(throughput, "ARMS", 20)  # so that the figure draws every case
    monkeypatch.setattr(stamp, "RESULTS", tmp_path / "results")
    assert main(["throughput"]) == 0
    assert "| exp3-ix | native | own |" in capsys.readouterr().out
    files = sorted((tmp_path / "results").iterdir())
    assert [path.suffix for path in files] == [".json", ".pdf", ".png"]
    about = json.loads(files[0].read_text())
    assert {"device", "cpu", "cpus", "versions", "commit", "date"} < about.keys()
    assert len(about["rows"]) == len(small)


def test_games_that_answer_back_are_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(stamp, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(interaction, "learners", lambda: ["exaul", "aci-rank"])
    small = {"COPIES": 32, "ARMS": 20, "REPETITIONS": 1, "ROUNDS": {False: 256}}
    for name, value in small.items():
        monkeypatch.setattr(interaction, name, value)
    assert main(["interaction"]) == 0
    assert "| exaul | rows |" in capsys.readouterr().out
    assert len(list((tmp_path / "results").iterdir())) == 3


def test_the_abstainer_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(stamp, "RESULTS", tmp_path / "results")
    for name in ("QUESTIONS", "EVENTS", "KEYS"):
        monkeypatch.setattr(abstainer, name, {False: 40})
    monkeypatch.setattr(abstainer, "LEARNERS", ("aci-rank",))
    assert main(["abstainer"]) == 0
    assert "| replay of a journal |" in capsys.readouterr().out
    assert len(list((tmp_path / "results").iterdir())) == 3


def test_the_service_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(stamp, "RESULTS", tmp_path / "results")
    for name in ("QUESTIONS", "KEYS", "ENTRIES"):
        monkeypatch.setattr(service, name, {False: 20})
    monkeypatch.setattr(service, "SCRAPES", {False: 1})
    assert main(["service"]) == 0
    assert "| decision, 99% quantile |" in capsys.readouterr().out
    assert len(list((tmp_path / "results").iterdir())) == 3


def test_the_grid():
    """Every backend of every learner in both orders and precisions; the quick one a pair each."""
    cases = [case for group in throughput.groups(quick=False) for case in group]
    assert len(cases) == len(set(cases))
    assert {case.precision for case in cases} == {"float64", "float32"}
    assert {case.backend for case in cases} == {*games.BACKENDS, *PEERS}
    (quick,) = throughput.groups(quick=True)
    assert {(case.copies, case.arms, case.precision) for case in quick} == {(1024, 1000, "float64")}
    assert all(case._replace(backend="dense") in quick for case in quick)


def test_slopes_of_scaling():
    rows = [{"varied": "arms", "value": x, "nanoseconds": x**0.5} for x in (100, 1000, 64_000)]
    rows += [{"varied": "rounds", "value": x, "nanoseconds": 20.0} for x in (10_000, 100_000)]
    assert "arms^0.50\ncost ~ rounds^0.00" in scaling.table(rows).replace("-0.00", "0.00")
    assert len(scaling.draw(rows).axes) == 2


@pytest.mark.parametrize("argv", [[], ["throughput", "--slow"], ["scaling", "--json"], ["speed"]])
def test_bad_flags_are_one_line_and_status_2(argv, capsys):
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
