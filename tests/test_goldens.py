"""No result changes: the hashes of ``goldens.json``."""

import json

import pytest

from tests import goldens

SAVED = json.loads(goldens.PATH.read_text())
CASES = {name: arguments for name, *arguments in goldens.cases()}


def test_the_table_has_every_case():
    assert list(SAVED["cases"]) == [*CASES, *(f"Abstainer, {name}" for name in goldens.ABSTAINERS)]


@pytest.fixture
def same_machine():
    """Fail rather than skip: a table of another machine proves nothing, and a skip would go unnoticed."""
    if goldens.stamp() != SAVED["stamp"]:
        pytest.fail("taken on another machine or with other versions; CONTRIBUTING.md says how to take it anew")


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_no_sweep_changes(name, same_machine):
    hashes, saved = goldens.hashes(*CASES[name]), SAVED["cases"][name]
    assert {learner: hashes[learner] for learner in saved} == saved


@pytest.mark.slow
@pytest.mark.parametrize("name", goldens.ABSTAINERS)
def test_no_decision_of_a_program_changes(name, same_machine):
    assert goldens.abstained(goldens.ABSTAINERS[name]) == SAVED["cases"][f"Abstainer, {name}"]
