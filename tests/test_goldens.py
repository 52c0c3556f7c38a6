"""Nothing that is played changes a bit: the hashes of ``goldens.json``."""

import json

import pytest

from tests import goldens

SAVED = json.loads(goldens.PATH.read_text())
CASES = {name: given for name, *given in goldens.cases()}


def test_the_table_has_every_case():
    assert list(SAVED["cases"]) == list(CASES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_bits_are_those_of_the_table(name):
    if goldens.stamp() != SAVED["stamp"]:
        pytest.skip("taken on another machine or with other versions; python -m tests.goldens takes it anew")
    found, saved = goldens.hashes(*CASES[name]), SAVED["cases"][name]
    assert {learner: found[learner] for learner in saved} == saved
