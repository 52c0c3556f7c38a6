"""A block of copies in JAX: vmap adds copies to one game."""

import jax
import numpy as np
import pytest

from exaul.engine.registry import backend_of
from tests import games
from tests.games import LEARNERS

ARMS, ROUNDS = 40, 200


@pytest.mark.parametrize("where", ["dense", "rows", "blocks"])
def test_a_copy_decides_as_in_a_batch_of_its_own_copies(where):
    """Its bits do not depend on what the other copies of a batch of eight are."""
    rng = np.random.default_rng(0)
    cuts, uniforms = rng.integers(1, ARMS, (ROUNDS, 8)), rng.random((ROUNDS, 8))
    errors, alpha = (rng.random(cuts.shape) * ARMS > cuts) * 1.0, rng.choice([0.05, 0.2], 8)
    made, rates = backend_of(LEARNERS["exaul"], where, "float64"), (np.full(1, 0.1), np.full(1, 0.05))
    found = []
    for copies in (np.arange(8), np.full(8, 5)):
        records = (x[:, copies] for x in (cuts, errors, uniforms))
        game = games.simulate(
            LEARNERS["exaul"].rule, made, ARMS, 0, *records, rates, alpha[copies], np.full(8, 10.0)
        )
        found.append((jax.tree.map(lambda x: np.asarray(x)[5], game[0]), game[1][:, 5]))
    jax.tree.map(np.testing.assert_array_equal, *found)
