"""Every backend against the dense one: the same decisions, and no copies of the state in compiled loops."""

import re
from functools import lru_cache, partial

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exaul import Sweep
from exaul.engine.simulation import agreement, learners
from exaul.engine.simulation.learners import backend_of, choose_backend
from exaul.kernels.game import GRIDS, ROUNDS, Block, Parameters, Rates, compute_cuts
from exaul.kernels.learners.learner import block_rates, has_weights
from exaul.kernels.play import advance_copies, initial_states
from exaul.kernels.uniforms import Draws
from tests import games
from tests.games import LEARNERS

FAST = [pair for pair in games.LOOPS if pair[1] != "dense"]
COPIES = 100


def game(kind, rounds, arms, seed=0, streams=COPIES, ratings=False):
    rng = np.random.default_rng(seed)
    scores = np.stack([games.scores_of(kind, rng, rounds) for _ in range(streams)], axis=1)
    errors = rng.random(scores.shape) > scores**0.5
    errors = rng.random(scores.shape) if ratings else errors.astype(float)
    place = compute_cuts(GRIDS["uniform"](arms, ()), scores.ravel()).reshape(scores.shape)
    alpha = rng.choice([0.05, 0.2, 0.5], COPIES)
    lam = rng.choice([0.0, 1.0, max(rounds, 1) ** 0.5], COPIES)
    record = np.arange(COPIES, dtype=np.int32) % streams
    return place, errors, rng.random((rounds, COPIES)), alpha, lam, record


@lru_cache(maxsize=16)  # dense runs once for all backends that are compared with it
def simulate(name, where, kind, rounds, arms, precision, anytime, **more):
    rates = block_rates(LEARNERS[name], rounds, arms, anytime, None, None)
    place, errors, uniforms, *rest = game(kind, rounds, arms, **more)
    made = backend_of(LEARNERS[name], where, precision)
    rule = LEARNERS[name].rule
    state, decisions = games.simulate(rule, made, arms, 0, place, errors, uniforms, rates, *rest)
    weighs = has_weights(LEARNERS[name])
    return decisions, games.losses_of(rule, made, arms, state)[:COPIES] if weighs else np.zeros(0)


def both(name, where, kind, rounds, arms, precision="float64", anytime=False, **more):
    compared = (where, precision), ("dense", "float64")
    return tuple(simulate(name, on, kind, rounds, arms, of, anytime, **more) for on, of in compared)


@pytest.mark.parametrize(("name", "where"), games.pytest_params(FAST))
def test_no_decision_differs_from_dense_on_shared_records(name, where):
    """One stream of records for all copies, of six levels."""
    test_no_decision_differs_from_dense(name, where, "levels", 1536, 1)


FIRST = [next(pair for pair in FAST if pair[1] == where) for where in games.SLOW]  # of each


@pytest.mark.parametrize(
    ("name", "where"), [*FIRST, *games.pytest_params(pair for pair in FAST if pair not in FIRST)]
)
@pytest.mark.parametrize(
    ("kind", "rounds", "streams"),
    [("continuous", 1536, COPIES), ("one level", 700, COPIES), ("ends", 100, COPIES)],
)
def test_no_decision_differs_from_dense(name, where, kind, rounds, streams):
    """Own orders of records, one level, T not a multiple of the block, T < C."""
    fast, dense = both(name, where, kind, rounds, 1000, streams=streams)
    assert (fast[0] != dense[0]).sum() == 0
    np.testing.assert_allclose(fast[1], dense[1], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("name", "where"), games.pytest_params(FAST))
def test_no_decision_differs_from_dense_with_two_arms_and_ratings(name, where):
    fast, dense = both(name, where, "continuous", 600, 2, ratings=True, anytime=True)
    assert (fast[0] != dense[0]).sum() == 0


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([pair for pair in FAST if pair[1] == "native"]),
    st.sampled_from(games.SCORES),
    st.integers(1, 600),
    st.sampled_from((2, 3, 31, 32, 33, 90, 1024)),  # about powers of two
    st.integers(0, 10**6),
    st.booleans(),
    st.sampled_from([1, 3, COPIES]),
)
def test_random_games(pair, kind, rounds, arms, seed, ratings, streams):
    fast, dense = both(*pair, kind, rounds, arms, seed=seed, ratings=ratings, streams=streams)
    assert (fast[0] != dense[0]).sum() == 0


@pytest.mark.parametrize(
    ("name", "where"),
    games.pytest_params(pair for pair in FAST if pair[1] in ("blocks", "rows")),
)
def test_no_copy_of_the_state_in_the_compiled_loop(name, where):
    """The optimised program moves the state at block edges only: no copy of its shape in a loop over rounds."""
    arms, copies = 1000, 128
    learner = backend_of(LEARNERS[name], where, "float64").game(arms)
    nothing = np.zeros((ROUNDS, copies))
    block = Block(nothing.astype(np.int32) + 1, nothing, Draws(nothing), np.ones(ROUNDS, bool))
    numbers = Parameters(np.full(copies, 0.1), np.full(copies, 0.05), *3 * [np.ones(copies)])
    state = initial_states(learner, games.first_of(LEARNERS[name].rule, arms, copies))
    advance = partial(advance_copies, learner, same_records=False)
    program = jax.jit(advance, donate_argnums=0).lower(state, block, numbers).compile().as_text()
    computations = {text.split(" ")[0].lstrip("%"): text for text in program.split("\n\n")}
    loops = set(re.findall(r"body=%?([\w.\-]+)", program))
    assert loops
    for loop in loops:
        assert not re.search(r"= f64\[(128,1000|1000,128|128,32,32|32,32,128)\]\S* copy\(", computations[loop])


def test_a_device_leaves_large_rates_to_rows(monkeypatch):
    monkeypatch.setattr(agreement, "device_agrees", lambda *given: True)

    def chosen(eta, platform, rounds=1000, name="exaul", precision="float64"):
        monkeypatch.setattr(learners.machine, "platform", lambda: platform)
        rates, sweep = Rates(np.array([eta]), np.array([0.1])), Sweep(precision=precision)
        return choose_backend(name, LEARNERS[name], sweep, games.ENVIRONMENTS["stochastic"], rates, rounds)[0]

    assert chosen(2.0, "cpu") == "native"
    assert chosen(2.0, "gpu") == "rows"
    assert chosen(2.0, "gpu", rounds=100) == "blocks"
    assert chosen(0.2, "gpu", precision="float32") == "rows"
    assert chosen(0.2, "gpu") == "blocks"
    assert chosen(0.2, "gpu", name="aci-rank") == "blocks"
    assert chosen(0.2, "gpu", name="exp3-ix") == "rows"
