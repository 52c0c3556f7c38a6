"""A block of copies in JAX: vmap adds copies to one game."""

from functools import partial

import jax
import numpy as np
import pytest

from exaul.engine.simulation.learners import backend_of
from exaul.kernels.backend import advance_copies, initial_states
from exaul.kernels.game import ROUNDS, Block, Parameters, SharedParameters, compute_costs
from exaul.kernels.uniforms import Draws
from tests.games import LEARNERS, first_of

ARMS, COPIES = 40, 8


@pytest.mark.parametrize("where", ["dense", "rows", "blocks"])
def test_a_copy_decides_as_in_a_batch_of_its_own_copies(where):
    """Its bits do not depend on what the other copies of a batch of eight are."""
    rng, shape = np.random.default_rng(0), (ROUNDS, COPIES)
    cuts = rng.integers(1, ARMS, shape).astype(np.int32)
    records = cuts, (rng.random(shape) * ARMS > cuts) * 1.0, Draws(rng.random(shape))
    alpha = rng.choice([0.05, 0.2], COPIES)
    numbers = alpha, alpha, alpha, *compute_costs(alpha, 10.0)  # eta and gamma may be any numbers
    learner = backend_of(LEARNERS["exaul"], where, "float64").kernels.game(ARMS)
    simulate = jax.jit(partial(advance_copies, learner, same_records=False))
    found = []
    with jax.enable_x64(True):
        first = initial_states(learner, first_of(LEARNERS["exaul"].rule, ARMS, COPIES))
        for copies in (np.arange(COPIES), np.full(COPIES, 5)):
            block = Block(*jax.tree.map(lambda x, copies=copies: x[:, copies], records), np.arange(ROUNDS) < 200)
            given = Parameters(*(x[copies] for x in numbers), shared=SharedParameters(np.uint32(0)))
            found.append(simulate(first, block, given))
    for one, other in zip(*map(jax.tree.leaves, found), strict=True):
        axis = int(one.shape[0] != COPIES)
        np.testing.assert_array_equal(np.asarray(one).take(5, axis), np.asarray(other).take(0, axis))
