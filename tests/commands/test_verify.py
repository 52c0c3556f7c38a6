"""The certificate: that it can be had, and that it can be refused."""

import pytest

from exaul import Sweep
from exaul.commands import verify
from exaul.engine.simulation.prepare import prepare_source
from tests.games import LEARNING, WEIGHTED, answer_once_more
from tests.processes import output_of

SMALL = ["--trials", "3", "--horizon", "600", "--arms", "50", "--alphas", "0.1", "0.2"]
LATE = "--precision float32 --delay 5 --feedback-rate 0.5 --learners exaul aci-rank"


@pytest.mark.parametrize(
    ("flags", "learners"), [("", {*LEARNING, "aci-rank", "aci-rank-from-log"}), (LATE, {"exaul", "aci-rank"})]
)
def test_a_sound_backend_is_certified(flags, learners, capsys):
    lines = output_of(["verify", *SMALL, *flags.split()], capsys).splitlines()
    assert lines[-1] == "certified: yes"
    assert {line.split()[0] for line in lines[3 : lines.index("", 3)]} == learners


@pytest.mark.parametrize("precision", verify.TOLERANCE)
def test_a_backend_with_one_other_decision_is_refused(precision, capsys, monkeypatch):
    """Of 3,600 decisions; float32 may differ in one of 200,000."""
    answer_once_more(monkeypatch)
    said = output_of(["verify", *SMALL, "--learners", "exaul", "--precision", precision], capsys, 1).splitlines()
    assert said[-1] == "certified: no"
    (row,) = (line.split() for line in said if line.startswith("exaul "))
    assert row[2:4] == ["1", f"{5 * 600 + 264:,}"]


@pytest.mark.slow
@pytest.mark.parametrize("name", WEIGHTED)
@pytest.mark.parametrize("precision", verify.TOLERANCE)
def test_decisions_agree_over_300_000_rounds_and_a_shift(name, precision, monkeypatch):
    monkeypatch.setattr(verify, "MOST_ROUNDS", 300_000)
    sweep = Sweep(environment="single-shift", horizon=300_000, trials=2, learners=[name], precision=precision)
    prepared = prepare_source(sweep)
    (found,) = verify.certify_all(prepared)
    assert found.decisions > 200_000
    assert found.holds(precision)
