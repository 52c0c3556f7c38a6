"""A device uses a backend only after the backend has decided there as ``dense`` does."""

from unittest import mock

import numpy as np
import pytest

from exaul import Sweep
from exaul.engine import machine, registry
from exaul.engine.simulation import agreement
from exaul.engine.simulation.chunks import NativeSimulation
from exaul.engine.simulation.prepare_learner import choose_backend
from exaul.kernels.game import Rates
from tests.games import ENVIRONMENTS, LEARNERS, answer_once_more

RATES = Rates(np.array([0.01]), np.array([0.01]))


@pytest.fixture(autouse=True)
def native_is_to_be_checked(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    agreement.device_agrees.cache_clear()
    agreement._reported.clear()
    monkeypatch.setattr(machine, "platform", lambda: "gpu")  # whose backends are checked
    monkeypatch.setitem(registry.FASTEST, "gpu", ("native",))


def chosen(name="exaul", **fields):
    return choose_backend(name, LEARNERS[name], Sweep(**fields), ENVIRONMENTS["stochastic"], RATES, 1000)[0]


@pytest.mark.parametrize(
    ("name", "precision"), [("exaul", "float64"), ("exaul", "float32"), ("aci-rank", "float64")]
)
def test_a_backend_that_decides_as_dense_does_is_used_and_tried_once(name, precision, capsys, monkeypatch):
    monkeypatch.setattr(agreement, "simulate_briefly", tried := mock.Mock(wraps=agreement.simulate_briefly))
    assert chosen(name, precision=precision) == "native"
    pair = [registry.backend_of(LEARNERS[name], *each) for each in (("native", precision), ("dense", "float64"))]
    assert [call.args[1] for call in tried.call_args_list] == pair
    assert capsys.readouterr().err.endswith(f"{name} on native, first time on cpu: cpu: decides as dense does\n")
    monkeypatch.setattr(agreement, "simulate_briefly", None)
    agreement.device_agrees.cache_clear()  # as in the next process
    assert chosen(name, precision=precision) == "native"
    assert capsys.readouterr().err == ""


def test_a_backend_that_does_not_is_left_for_the_next(capsys, monkeypatch):
    answer_once_more(monkeypatch)
    for said in (
        "exaul on native, first time on cpu: cpu: differs from dense in 1 of 32 copies, and is not used\n",
        "",
    ):
        assert chosen() == "dense"
        assert capsys.readouterr().err == said
        agreement.device_agrees.cache_clear()


def test_a_backend_that_fails_is_left_and_tried_again_by_the_next_process(capsys, monkeypatch):
    with monkeypatch.context() as patch:
        fail = mock.Mock(side_effect=RuntimeError("its compiler is too old\nand more"))
        patch.setattr(NativeSimulation, "submit", fail)
        assert chosen() == chosen("ew") == "dense"  # the reason is said once
    assert chosen() == "dense"
    prefix = "exaul on native, first time on cpu: cpu"
    said = capsys.readouterr().err
    failed = "fails (RuntimeError: its compiler is too old) and is not used; --backend dense skips the check"
    assert said == f"{prefix}: {failed}\n"
    agreement.device_agrees.cache_clear()
    assert chosen() == "native"
    assert capsys.readouterr().err == f"{prefix}: decides as dense does\n"
