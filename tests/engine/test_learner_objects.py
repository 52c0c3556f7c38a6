"""A sweep takes ``Learner`` objects, and names each so that its manifest can load it again."""

import sys
import types

import pytest

from exaul import BadInput, Sweep, run
from exaul.engine import registry
from exaul.kernels.learners.exaul import exaul
from exaul.kernels.learners.learner import Learner, Own
from tests.games import LEARNERS
from tests.kernels.test_testing import Share

SMALL = {"trials": 2, "horizon": 300, "arms": 20}
mine = LEARNERS["exaul"]._replace(risk_bound=None)
share = Learner(feedback="bandit", rule=Own(Share))


def test_an_object_is_run_under_its_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    sys.modules["__main__"].again = mine
    sweep = Sweep(learners=["ew", exaul, mine], **SMALL)
    assert sweep.learners == ("ew", "exaul", f"{__name__}:mine")
    assert Sweep(learners=mine).learners == (f"{__name__}:mine",)
    trials = run(sweep).trials
    by_learner = [trials[trials["learner"] == name]["loss"].tolist() for name in sweep.learners]
    assert by_learner[1] == by_learner[2] != by_learner[0]


def test_a_program_of_one_file_has_its_learner_in_main(monkeypatch):
    alone = mine._replace(rate="step")
    monkeypatch.setattr(sys.modules["__main__"], "mine", alone, raising=False)
    assert Sweep(learners=[alone]).learners == ("__main__:mine",)
    assert registry.resolve("learners", "__main__:mine", registry.LEARNERS, (type(mine),)) is alone


def test_an_object_without_a_name_is_refused():
    with pytest.raises(BadInput, match=r"^learners: a Learner found that is no global of a module"):
        Sweep(learners=[mine._replace(rate="step")])
    with pytest.raises(BadInput, match=r"^learners: 5 found; it must be a string"):
        Sweep(learners=[5])


@pytest.mark.parametrize("environment", ["stochastic", "adversary-history"])
def test_an_object_of_one_game_is_swept(environment):
    found = run(Sweep(learners=[share, "no-abstention"], environment=environment, **SMALL)).trials["answered"]
    assert (found[:2] < found[2:].to_numpy()).all()


@pytest.mark.parametrize(
    ("field", "reason"),
    [({"environment": "adversary-omniscient"}, "has no masses"), ({"delay": 9}, "cannot learn")],
)
def test_what_an_object_of_one_game_cannot_do_is_said(field, reason):
    with pytest.raises(BadInput, match=f"^learners: {__name__}:share .*{reason}"):
        run(Sweep(learners=[share], **SMALL, **field))
