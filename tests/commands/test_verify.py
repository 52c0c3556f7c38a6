"""The certificate: that it can be had, and that it can be refused."""

import numpy as np
import pytest

from exaul import Sweep
from exaul.commands.main import main
from exaul.engine.simulation import certify
from exaul.engine.simulation.compiled import CompiledSimulation
from exaul.engine.simulation.prepare import prepare
from tests.games import LEARNING, WEIGHTED

SMALL = ["--trials", "3", "--horizon", "600", "--arms", "50", "--alphas", "0.1", "0.2"]


@pytest.mark.parametrize("precision", certify.TOLERANCE)
def test_a_sound_backend_is_certified(precision, capsys):
    assert main(["verify", *SMALL, "--precision", precision]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "certified: yes"
    names = {line.split()[0] for line in lines[3 : lines.index("", 3)]}
    assert names == set(LEARNING) & set(WEIGHTED)


def test_an_unsound_backend_is_refused(capsys, monkeypatch):
    """A backend whose probabilities are off by 1e-6, and whose decisions all differ."""
    advance = CompiledSimulation.advance

    def wrong(self, *given):
        outcome = advance(self, *given)
        off = np.asarray(outcome.probability) + 1e-6
        return outcome._replace(answered=~np.asarray(outcome.answered), probability=off, middle=None)

    monkeypatch.setattr(CompiledSimulation, "advance", wrong)
    assert main(["verify", *SMALL, "--learners", "exaul"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "certified: no"


@pytest.mark.slow
@pytest.mark.parametrize("name", WEIGHTED)
@pytest.mark.parametrize("precision", certify.TOLERANCE)
def test_errors_stay_small_over_300_000_rounds_and_a_shift(name, precision, monkeypatch):
    monkeypatch.setattr(certify, "REPLAYED_ROUNDS", 300_000)
    sweep = Sweep(environment="single-shift", horizon=300_000, learners=[name], precision=precision)
    prepared = prepare(sweep, trials=np.arange(2))
    certificate = certify.certify(prepared, prepared.players[0])
    assert certificate.largest <= certify.TOLERANCE[precision]
    assert certify.is_certified(certificate, precision)
