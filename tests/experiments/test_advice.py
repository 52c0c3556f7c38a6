"""The measurement of the advice: when a choice is right, and that the shares follow."""

import pytest

from exaul.engine.data.tables import frame
from experiments import advice
from experiments.paper import Paper
from experiments.run import Runner
from tests.experiments.scale import small_scale


@pytest.mark.parametrize(
    ("choice", "held", "is_right"),
    [
        ("a", {"a": 0.97, "b": 1.0}, 1),
        ("a", {"a": 0.96, "b": 1.0}, 0),
        ("a", {"b": 0.1}, 0),
        ("a", {}, 0),
        (None, {}, 1),
        (None, {"b": 0.1}, 0),
    ],
)
def test_a_choice_is_right_if_it_holds_alpha_and_answers_most(choice, held, is_right):
    assert advice.right(held, choice) == is_right


def test_a_learner_that_does_not_answer_does_not_hold_alpha():
    test = frame({"learner": ["a", "b", "c"], "answered": [5, 0, 9], "horizon": 10, "fdr": [0.11, 0.1, 0.12]})
    assert advice.held_shares(test, 0.1) == {"a": 0.5}


def test_shares_are_those_of_every_way_to_choose(monkeypatch):
    monkeypatch.setattr(advice, "LONGEST", 3_000)
    with small_scale(300):
        found = Runner(Paper()).tables("advice")
    table = advice.share_table(found)
    ways = 2 + found.trials["learner"].nunique()
    assert table.groupby("case").size().to_dict() == dict.fromkeys(advice.PROTOCOLS, ways)
    rows = advice.rights(found)
    assert len(rows) == table["cells"].sum()
    first = rows[(rows["case"] == table["case"][0]) & (rows["learner"] == table["learner"][0])]
    assert table["right"][0] == first["right"].mean()
    assert [claim.claim for claim in advice._claims(found)] == ["Lemma 1: trials that violate it, of all learners"]
    monkeypatch.setattr(advice, "MANY", 1)
    assert len(advice._claims(found)) == 1 + len(advice.PROTOCOLS)
    assert set(advice._drawn(found)) == {"right"}
