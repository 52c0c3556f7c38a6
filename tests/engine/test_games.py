"""A user program plays the trials of a sweep with ``play_in``, and a sweep takes ``Learner`` objects."""

import sys
import types
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exaul
from exaul import Sweep, run
from exaul.engine import registry
from exaul.kernels.learners import exaul as exaul_module
from exaul.kernels.learners.learner import Learner, Own
from exaul.kernels.play import Decision
from tests.games import ENVIRONMENTS, LEARNERS, records_of
from tests.kernels.test_testing import Share

T, ARMS, TRIALS, ALPHA = 600, 40, 3, 0.2
TUNED = {
    "adversary-history": {"groups": "score", "knows": "rates", "temperature": 0.1},
    "adversary-omniscient": {"objective": "risk", "patience": 0.5},
}
SMALL = {"trials": 2, "horizon": 300, "arms": 20}
mine = LEARNERS["exaul"]._replace(risk_bound=None)
share = Learner(feedback="bandit", rule=Own(Share))
no_rates = mine._replace(rates=None, anytime=None)
bad_bound = mine._replace(regret_bounds=mine.regret_bounds._replace(best=len))


def test_rates_for_an_unknown_horizon_are_taken_where_there_are_no_others():
    params = [
        exaul.make(learner, ARMS, alpha=ALPHA, horizon=T, anytime=anytime)[1]
        for learner, anytime in ((mine, True), (mine._replace(rates=None), False))
    ]
    np.testing.assert_array_equal(*(np.stack(each[2:]) for each in params))


@jax.tree_util.register_static
class Peeker(Share):
    """Abstains until it sees an error."""

    def decide(self, state, params, cut, u):
        return state, Decision(state > 0.5, state)

    def learn(self, state, params, cut, decision, error):
        return jnp.maximum(state, error)


peeks, sees = (Learner(feedback=feedback, rule=Own(Peeker)) for feedback in ("bandit", "full"))

PLAYED = [  # an environment and a learner: each program compiles for seconds
    ("gradual-shift", "aci-rank"),  # of the shifts, which differ in ``choose_pool``: see ``test_environments.py``
    ("replay", share),
    ("adversary-history", share),
    ("adversary-omniscient", "exaul"),
    ("interactive", "exaul"),
    ("always-wrong", "aci-rank"),
]


def logs(count, rows=500):
    """Some logs, the second harder."""
    return [records_of(rows, seed=i, right=0.3 - 0.2 * i, name=f"log {i}") for i in range(count)]


def environment_of(name, records, **more):
    """An environment on some logs, and its pool."""
    columns = ([getattr(log, x) for log in records] for x in ("scores", "errors"))
    return exaul.environment(name, *columns, exaul.grid("uniform", ARMS), horizon=T, **more)


@pytest.mark.parametrize(("name", "definition"), PLAYED)
def test_games_are_the_trials_of_a_sweep(name, definition):
    """``tests/kernels/test_functional.py`` plays every learner."""
    records, tunables = logs(ENVIRONMENTS[name].pool_count, T if name == "replay" else 500), TUNED.get(name, {})
    game, pool = environment_of(name, records, seed=7, tunables=tunables)
    if tunables.get("groups") == "score":
        bins = (len(np.unique(np.minimum(log.scores * 10, 9).astype(int))) for log in records)
        assert len(pool.records.group_sizes) == sum(bins) > 2
    learner, params = exaul.make(definition, ARMS, alpha=ALPHA, horizon=T)

    def play(key):
        answers, cuts, wrong = exaul.play_in(learner, params, game, pool, key, T)
        errors = jax.numpy.where(answers, wrong, 0.0).sum()
        return answers.sum(), errors, exaul.regret(learner, params, cuts, wrong, answers)[-1]

    answered, wrong, regret = jax.jit(jax.vmap(play))(exaul.keys(7, TRIALS))
    values = [f"{key}={value}" for key, value in tunables.items()]
    numbers = {"alphas": (ALPHA,), "arms": ARMS, "trials": TRIALS, "horizon": T, "seed": 7}
    trials = run(Sweep(environment=name, learners=(definition,), tunables=values, **numbers), records).trials
    assert set(trials["environment"]) == {f"{name}:{','.join(values)}" if values else name}
    np.testing.assert_array_equal(answered, trials["answered"])
    assert ((answered > 0) & (answered < T)).all()
    np.testing.assert_allclose(wrong, trials["fdr"] * trials["answered"], atol=1e-9)
    np.testing.assert_allclose(regret, trials["regret"], atol=1e-8)


@pytest.mark.parametrize("name", ["replay", "adversary-history"])
def test_any_number_is_an_axis(name):
    """``vmap`` over keys and falling rates and targets, or tunables, loops over games; so does ``shard_map``."""
    (game, pool), fall = environment_of(name, logs(ENVIRONMENTS[name].pool_count, T)), name == "replay"
    learner, params = exaul.make("exaul" if fall else "aci-rank", ARMS, alpha=ALPHA, horizon=T, anytime=fall)

    def play(key, number):
        if fall:
            return exaul.play_in(learner, params._replace(eta=number[0], alpha=number[1]), game, pool, key, T)
        index = [x.name for x in game.environment.tunables].index("temperature")
        asked = pool._replace(tunables=jax.numpy.asarray(pool.tunables).at[index].set(number))
        answers, cuts, wrong = exaul.play_in(learner, params, game, asked, key, T)
        return answers, cuts, exaul.regret(learner, params, cuts, wrong, answers)

    numbers = np.array([0.1, 1.0, 1.0])
    if fall:
        numbers = np.multiply.outer(numbers, params.eta), np.array([ALPHA, ALPHA, 0.4])
    inputs = exaul.keys(0, [5, 5, 9]), numbers
    mesh, axis = jax.sharding.Mesh(jax.devices(), ("x",)), jax.sharding.PartitionSpec("x")
    together = jax.jit(jax.shard_map(jax.vmap(play), mesh=mesh, in_specs=axis, out_specs=axis))(*inputs)
    alone = jax.jit(play)
    games = [alone(*jax.tree.map(lambda x, k=k: x[k], inputs)) for k in range(3)]
    jax.tree.map(lambda batched, *single: np.testing.assert_array_equal(batched, single), together, *games)
    answers, cuts, _ = map(np.asarray, together)
    changed = answers if fall else cuts
    assert (changed[0] != changed[1]).any()  # by the number alone


def test_a_grid_of_quantiles_may_be_traced():
    scores = logs(1)[0].scores
    grid = jax.jit(partial(exaul.grid, "quantile", 700))(scores)
    np.testing.assert_array_equal(grid, exaul.grid("quantile", 700, scores))


def test_an_object_is_run_under_its_name(monkeypatch):
    """Also one of a program of one file, which has it in ``__main__``; one of a module is named by the module."""
    monkeypatch.setitem(sys.modules, "__main__", main := types.ModuleType("__main__"))
    main.again, main.mine = mine, (alone := mine._replace(rate_field="step"))
    sweep = Sweep(learners=["ew", exaul_module.exaul, mine], **SMALL)
    assert sweep.learners == ("ew", "exaul", f"{__name__}:mine")
    assert Sweep(learners=mine).learners == (f"{__name__}:mine",)
    trials = run(sweep).trials
    by_learner = [trials[trials["learner"] == name]["loss"].tolist() for name in sweep.learners]
    assert by_learner[1] == by_learner[2] != by_learner[0]
    assert Sweep(learners=[alone]).learners == ("__main__:mine",)
    assert registry.resolve("learners", "__main__:mine") is alone


def test_a_sweep_hides_the_errors_that_a_learner_declares_not_to_see():
    swept = run(Sweep(learners=[peeks, sees], **SMALL)).trials["answered"]
    assert (swept > 0).tolist() == [False] * 2 + [True] * 2
