"""Programs under test may use the learners of ``tests/constant.py``, also those that several tests share."""

import pytest

from exaul.serving import configuration


@pytest.fixture(scope="session", autouse=True)
def _constant_learners_of_all():
    places = [f"tests.constant:{name}" for name in ("answers", "abstains")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(configuration, "LEARNERS", (*configuration.LEARNERS, *places))
        yield
