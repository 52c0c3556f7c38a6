"""Strict arrays in every test: no silent rank or dtype promotion, and float64 where it is asked for."""

import os
from pathlib import Path

import jax
import pytest
from hypothesis import settings

from engine import metrics, results, sweep

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_debug_key_reuse", True)
settings.register_profile("timeless", deadline=None)  # the first example of a test may compile
settings.load_profile("timeless")


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def _risk_is_bounded(monkeypatch):
    """In every sweep of every test, R_t is within the bound of each learner that has one, at all checkpoints."""

    def checked(played):
        for name, bound in played.risk_bound.items():
            t = played.checkpoints[: len(bound), None, None]
            risk = metrics.fdr_risk(played.answered[name], played.wrong[name], played.alphas[:, None])
            assert (risk <= bound + 1e-9 * t).all(), name
        return results.trials_table(played)

    monkeypatch.setattr(sweep, "trials_table", checked)


@pytest.fixture
def data():
    """The folder of real logs, named by EXAUL_DATA."""
    if "EXAUL_DATA" not in os.environ:
        pytest.skip("EXAUL_DATA names no folder of real logs")
    return Path(os.environ["EXAUL_DATA"])
