"""Strict arrays in every test: no silent rank or dtype promotion, and float64 where it is asked for."""

import os
from pathlib import Path

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_debug_key_reuse", True)


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def data():
    """The folder of real logs, named by EXAUL_DATA."""
    if "EXAUL_DATA" not in os.environ:
        pytest.skip("EXAUL_DATA names no folder of real logs")
    return Path(os.environ["EXAUL_DATA"])
