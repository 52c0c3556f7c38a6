"""A block of copies in JAX: vmap adds copies to one game."""

from functools import partial

import jax
import numpy as np
import pytest

from exaul.engine.simulation.learners import backend_of
from exaul.kernels.backend import advance_copies, initial_states
from exaul.kernels.game import ROUNDS, Block, Parameters, SharedParameters, compute_costs
from exaul.kernels.rates import block_rates
from exaul.kernels.uniforms import Draws
from tests.games import LEARNERS, first_of

ARMS, HORIZON = 40, 200


def game(name, copies, seed=0):
    """A block of records of each copy, [C, B], of which 200 rounds are active, and the parameters."""
    rng, shape = np.random.default_rng(seed), (ROUNDS, copies)
    cuts, active = rng.integers(1, ARMS, shape).astype(np.int32), np.arange(ROUNDS) < HORIZON
    block = Block(cuts, (rng.random(shape) * ARMS > cuts).astype(np.float64), Draws(rng.random(shape)), active)
    rates = block_rates(LEARNERS[name], HORIZON, ARMS, False, None, None)
    eta, gamma = (np.full(copies, np.nan_to_num(x[0])) for x in rates)
    alpha = rng.choice([0.05, 0.2], copies)
    numbers = Parameters(
        eta, gamma, alpha, *compute_costs(alpha, np.full(copies, 10.0)), shared=SharedParameters(np.uint32(0))
    )
    return block, numbers


def changed(block, change):
    """The block with the records and draws of its copies changed."""
    return jax.tree.map(change, block._replace(active=None))._replace(active=block.active)


@pytest.mark.parametrize("where", ["dense", "rows", "blocks"])
def test_a_copy_decides_as_in_a_batch_of_its_own_copies(where):
    """Its bits do not depend on what the other copies of a batch of eight are."""
    learner = backend_of(LEARNERS["exaul"], where, "float64").kernels.game(ARMS)
    block, numbers = game("exaul", 8)
    alone = np.full(8, 5)
    itself = changed(block, lambda x: x[:, alone])
    numbers_alone = numbers._replace(**{x: getattr(numbers, x)[alone] for x in numbers._fields[:5]})
    with jax.enable_x64(True):
        first = initial_states(learner, first_of(LEARNERS["exaul"].rule, ARMS, 8))
        found = [
            jax.jit(partial(advance_copies, learner, same_records=False))(first, *x)
            for x in ((block, numbers), (itself, numbers_alone))
        ]
    for one, other in zip(*map(jax.tree.leaves, found), strict=True):
        axis = 0 if one.shape[0] == 8 else 1
        np.testing.assert_array_equal(np.asarray(one).take(5, axis), np.asarray(other).take(0, axis))
