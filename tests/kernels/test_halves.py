"""A round has two halves, a decision and learning from its feedback; vmap adds copies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exaul.engine.simulation.backends import backend_of
from exaul.kernels.backends.backend import initial_states, vmap_copies
from exaul.kernels.game import ROUNDS, Block, Parameters, SharedParameters, Start, compute_costs
from exaul.kernels.rates import block_rates
from exaul.kernels.uniforms import Draws
from tests.games import LEARNERS, LOOPS, first_of

ARMS, HORIZON = 40, 200
CASES = [
    (name, where) for name, where in LOOPS if where in ("dense", "rows") and LEARNERS[name].feedback != "hindsight"
]


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


def first_of_one(name):
    best, state, counts = first_of(LEARNERS[name].rule, ARMS, 1)
    return Start(best[0], jax.tree.map(lambda x: x[0], state), counts)


@pytest.mark.parametrize(("name", "where"), CASES)
def test_the_halves_are_the_round(name, where):
    """Called apart, for one copy, they end where ``advance`` ends; a decision never reads its error."""
    backend = backend_of(LEARNERS[name], where, "float64").kernels
    block, numbers = game(name, 3)
    own = Parameters(*(x[1] for x in numbers[:5]), shared=numbers.shared)
    decide, learn = jax.jit(backend.halves.decide), jax.jit(backend.halves.learn)
    advance = jax.jit(vmap_copies(backend.advance, False))
    with jax.enable_x64(True):
        state = backend.init(ARMS, first_of_one(name))
        carry, answered, changes = backend.halves.begin(state, own), [], []
        for i in range(ROUNDS):
            x = jax.tree.map(lambda part, i=i: part[i], changed(block, lambda part: part[:, 1]))
            unseen = decide(carry, x._replace(errors=1 - x.errors), own, None)
            carry, decision = decide(carry, x, own, None)
            for one, other in zip(jax.tree.leaves((carry, decision)), jax.tree.leaves(unseen), strict=True):
                np.testing.assert_array_equal(one, other)
            carry, change = learn(carry, x, decision, own)
            answered.append(bool(decision.answered))
            changes.append(change)
        apart = backend.halves.end(state, carry, jax.tree.map(lambda *x: jnp.stack(x), *changes))
        first = initial_states(backend.init, ARMS, first_of(LEARNERS[name].rule, ARMS, 3))
        together, outcome = advance(first, block, numbers)
        rest = ~block.active[:, None]  # inactive rounds may have any outcome
        other = changed(block, lambda x: np.where(rest, x[::-1], x))
        same, _ = advance(first, other, numbers)
    assert answered == np.asarray(outcome.answered)[:, 1].tolist()
    assert not any(answered[HORIZON:])
    for one, all_, again in zip(*map(jax.tree.leaves, (apart, together, same)), strict=True):
        np.testing.assert_allclose(one, all_[1], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(again, all_, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("where", ["dense", "rows", "blocks"])
def test_a_copy_decides_as_in_a_batch_of_its_own_copies(where):
    """Its bits do not depend on what the other copies of a batch of eight are."""
    backend = backend_of(LEARNERS["exaul"], where, "float64").kernels
    block, numbers = game("exaul", 8)
    alone = np.full(8, 5)
    itself = changed(block, lambda x: x[:, alone])
    numbers_alone = numbers._replace(**{x: getattr(numbers, x)[alone] for x in numbers._fields[:5]})
    with jax.enable_x64(True):
        first = initial_states(backend.init, ARMS, first_of(LEARNERS["exaul"].rule, ARMS, 8))
        found = [
            jax.jit(vmap_copies(backend.advance, False))(first, *x)
            for x in ((block, numbers), (itself, numbers_alone))
        ]
    for one, other in zip(*map(jax.tree.leaves, found), strict=True):
        axis = 0 if one.shape[0] == 8 else 1
        np.testing.assert_array_equal(np.asarray(one).take(5, axis), np.asarray(other).take(0, axis))
