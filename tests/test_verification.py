"""The certificate: that it can be had, and that it can be refused."""

import numpy as np
import pytest

from engine import Sweep, verification
from engine.cli import main
from engine.game import load, prepare
from engine.learners import LEARNERS
from engine.verification import CERTIFIED, TOLERANCE, certify, holds
from kernels.learner import HostBackend

SMALL = ["--trials", "3", "--horizon", "600", "--arms", "50", "--alphas", "0.1", "0.2"]


@pytest.mark.parametrize("precision", TOLERANCE)
def test_a_sound_backend_is_certified(precision, capsys):
    assert main(["verify", *SMALL, "--precision", precision]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "certified: yes"
    assert sum("decisions that differ" in line for line in lines) == 3


def test_an_unsound_backend_is_refused(capsys, monkeypatch):
    """A backend whose probabilities are off by 1e-6, and whose decisions all differ."""
    advance = verification.advance_blocks

    def wrong(backend, state, block, parameters):
        state, outcome = advance(backend, state, block, parameters)
        if isinstance(backend, HostBackend):
            off = np.asarray(outcome.probability) + 1e-6
            outcome = outcome._replace(answered=~np.asarray(outcome.answered), probability=off, middle=None)
        return state, outcome

    monkeypatch.setattr(verification, "advance_blocks", wrong)
    assert main(["verify", *SMALL, "--learners", "exaul"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "certified: no"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, learner in LEARNERS.items() if learner.kind in CERTIFIED])
@pytest.mark.parametrize("precision", TOLERANCE)
def test_errors_stay_small_over_300_000_rounds_and_a_shift(name, precision, monkeypatch):
    monkeypatch.setattr(verification, "REPLAYED", 300_000)
    sweep = Sweep(environment="single-shift", horizon=300_000, learners=[name], precision=precision)
    certificate = certify(prepare(sweep, load(sweep), np.arange(2)), name)
    assert certificate.largest <= TOLERANCE[precision]
    assert holds(certificate, precision)
