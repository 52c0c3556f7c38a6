"""``play_in`` plays the trials of a sweep in a program of the user's own, against every environment."""

import inspect
from functools import partial

import jax
import numpy as np
import pytest

import exaul
from exaul import BadInput, Sweep, run
from exaul.engine.logs.log import Records
from tests.games import ENVIRONMENTS

T, ARMS, TRIALS, ALPHA = 600, 40, 3, 0.2
TUNED = {
    "adversary-history": {"groups": "score", "knows": "rates", "temperature": 0.1},
    "adversary-omniscient": {"objective": "risk", "patience": 0.5},
}


def logs(count):
    """Scores and errors of some logs, the second harder."""
    rng = np.random.default_rng(0)
    scores = [
        np.where(rng.random(500) < 0.3, rng.integers(0, 6, 500) / 5, rng.beta(4, 1, 500)) for _ in range(count)
    ]
    errors = [(rng.random(500) > f ** (0.3 + i)).astype(np.float64) for i, f in enumerate(scores)]
    return scores, errors


EVERY = {  # environments in which every kind of learner plays; one does in the others
    "stochastic": ("exaul", "exp3-ix", "aci-rank", "ew"),
    "adversary-history": ("exaul", "exp3-ix", "aci-rank"),
}
CASES = [(name, {}) for name in ENVIRONMENTS] + list(TUNED.items())


@pytest.mark.parametrize(("name", "tunables"), CASES)
def test_games_are_the_trials_of_a_sweep(name, tunables):
    scores, errors = logs(ENVIRONMENTS[name].sources)
    horizon = 500 if name == "replay" else T
    grid = exaul.grid("uniform", ARMS)
    game, pool = exaul.environment(name, scores, errors, grid, horizon=horizon, seed=7, tunables=tunables)
    if tunables.get("groups") == "score":
        bins = (len(np.unique(np.minimum(f * 10, 9).astype(int))) for f in scores)
        assert len(pool.records.group_sizes) == sum(bins) > 2
    learners = ("exaul",) if tunables else EVERY.get(name, ("exaul",))
    values = [f"{key}={value}" for key, value in tunables.items()]
    numbers = {"alphas": (ALPHA,), "arms": ARMS, "trials": TRIALS, "horizon": horizon, "seed": 7}
    sweep = Sweep(environment=name, learners=learners, tunables=values, **numbers)
    logs_of_sweep = [Records(f"log {i}", *x, 0, None) for i, x in enumerate(zip(scores, errors, strict=True))]
    trials = run(sweep, logs_of_sweep).trials
    for of in learners:
        learner, params = exaul.make(of, ARMS, alpha=ALPHA, horizon=horizon)
        play = jax.jit(jax.vmap(lambda key, x=(learner, params): exaul.play_in(*x, game, pool, key, horizon)))
        answers, cuts, wrong = map(np.asarray, play(exaul.keys(7, TRIALS)))
        expected = trials[trials["learner"] == of]
        np.testing.assert_array_equal(answers.sum(axis=1), expected["answered"])
        np.testing.assert_allclose((answers * wrong).sum(axis=1), expected["fdr"] * expected["answered"], atol=1e-9)
        regret = jax.vmap(lambda *x, of=(learner, params): exaul.regret(*of, *x))(cuts, wrong, answers)[:, -1]
        np.testing.assert_allclose(regret, expected["regret"], atol=1e-8)


@pytest.mark.parametrize(("name", "anytime"), [("gradual-shift", True), ("adversary-omniscient", False)])
def test_any_number_is_an_axis(name, anytime):
    """``vmap`` over rates and keys is a loop of single games, also at falling rates; so is ``shard_map``."""
    scores, errors = logs(2)
    game, pool = exaul.environment(name, scores, errors, exaul.grid("uniform", ARMS), horizon=T)
    learner, params = exaul.make("exaul", ARMS, alpha=ALPHA, horizon=T, anytime=anytime)
    keys, etas = exaul.keys(0, [5, 9]), np.multiply.outer([0.5, 2.0], params.eta)

    def play(key, eta):
        mine = params._replace(eta=eta)
        answers, cuts, wrong = exaul.play_in(learner, mine, game, pool, key, T)
        return answers, exaul.regret(learner, mine, cuts, wrong, answers)

    together = jax.jit(jax.vmap(play))(keys, etas)
    mesh, axis = jax.sharding.Mesh(jax.devices(), ("x",)), jax.sharding.PartitionSpec("x")
    on_devices = jax.jit(jax.shard_map(jax.vmap(play), mesh=mesh, in_specs=axis, out_specs=axis))(keys, etas)
    jax.tree.map(np.testing.assert_array_equal, together, on_devices)
    for k in range(2):
        one = jax.jit(play)(jax.tree.map(lambda x, k=k: x[k], keys), etas[k])
        jax.tree.map(lambda x, y, k=k: np.testing.assert_array_equal(x[k], y), together, one)


@pytest.mark.parametrize("function", [exaul.play_in, exaul.regret], ids=["play_in", "regret"])
def test_nothing_is_played_in_float32(function):
    count = len(inspect.signature(function).parameters)
    with jax.enable_x64(False), pytest.raises(BadInput, match=r"^JAX computes in float32"):
        function(*[None] * count)


def test_a_grid_of_quantiles_may_be_traced():
    scores = logs(1)[0][0]
    for arms in (2, 10, 700):
        grid = jax.jit(partial(exaul.grid, "quantile", arms))(scores)
        np.testing.assert_array_equal(grid, exaul.grid("quantile", arms, scores))
    with pytest.raises(BadInput, match=r"^scores: traced by JAX, but how many are"):
        jax.jit(partial(exaul.grid, "log", 10))(scores)
    with pytest.raises(BadInput, match=r"^log: not given, and aci-rank-from-log starts from one; give grid="):
        exaul.make("aci-rank-from-log", ARMS, alpha=ALPHA)


def test_tunables_may_be_an_axis():
    scores, errors = logs(2)
    game, pool = exaul.environment("adversary-history", scores, errors, exaul.grid("uniform", ARMS))
    learner, params = exaul.make("exaul", ARMS, alpha=ALPHA, horizon=T)
    key = jax.tree.map(lambda x: x[0], exaul.keys(0, 1))
    numbers = np.repeat(pool.tunables[None], 2, axis=0)
    numbers[1, [x.name for x in game.environment.tunables].index("temperature")] = 1.0
    play = jax.vmap(lambda x: exaul.play_in(learner, params, game, pool._replace(tunables=x), key, T)[1])
    cuts = np.asarray(play(numbers))
    assert (cuts[0] != cuts[1]).any()


@pytest.mark.parametrize(
    ("name", "count", "given", "sentence"),
    [
        ("nothing", 1, {}, "^environment: 'nothing' is unknown"),
        ("single-shift", 1, {}, r"^scores: 1 found; it must be 2 arrays"),
        ("stochastic", 2, {}, r"^scores: 2 found; it must be 1 array,"),
        ("stochastic", 1, {"tunables": {"groups": "score"}}, r"^tunables: stochastic has no tunable 'groups'"),
        ("adversary-history", 2, {"tunables": {"temperature": 9}}, r"^tunables: temperature=9 found"),
        ("adversary-omniscient", 2, {}, "^horizon: not given"),
    ],
)
def test_bad_input_is_one_sentence(name, count, given, sentence):
    with pytest.raises(BadInput, match=sentence):
        exaul.environment(name, *logs(count), exaul.grid("uniform", ARMS), **given)
