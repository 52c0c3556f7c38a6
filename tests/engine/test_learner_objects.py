"""A sweep takes ``Learner`` objects, and names each so that its manifest can load it again."""

import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exaul
from exaul import BadInput, Sweep, run
from exaul.engine import registry
from exaul.engine.logs.log import Records
from exaul.kernels.learners import exaul as exaul_module
from exaul.kernels.learners.learner import Learner, Own
from exaul.kernels.play import Decision
from tests.engine.test_games import logs
from tests.games import ENVIRONMENTS, LEARNERS
from tests.kernels.test_testing import Share

SMALL = {"trials": 2, "horizon": 300, "arms": 20}
mine = LEARNERS["exaul"]._replace(risk_bound=None)
share = Learner(feedback="bandit", rule=Own(Share))
no_rates = mine._replace(rates=None, anytime=None)


@jax.tree_util.register_static
class Peeker(Share):
    """Abstains until it sees an error."""

    def decide(self, state, params, cut, u):
        return state, Decision(state > 0.5, state)

    def learn(self, state, params, cut, decision, error):
        return jnp.maximum(state, error)


peeks, sees = (Learner(feedback=feedback, rule=Own(Peeker)) for feedback in ("bandit", "full"))


def test_an_object_is_run_under_its_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    sys.modules["__main__"].again = mine
    sweep = Sweep(learners=["ew", exaul_module.exaul, mine], **SMALL)
    assert sweep.learners == ("ew", "exaul", f"{__name__}:mine")
    assert Sweep(learners=mine).learners == (f"{__name__}:mine",)
    trials = run(sweep).trials
    by_learner = [trials[trials["learner"] == name]["loss"].tolist() for name in sweep.learners]
    assert by_learner[1] == by_learner[2] != by_learner[0]


def test_a_program_of_one_file_has_its_learner_in_main(monkeypatch):
    alone = mine._replace(rate="step")
    monkeypatch.setattr(sys.modules["__main__"], "mine", alone, raising=False)
    assert Sweep(learners=[alone]).learners == ("__main__:mine",)
    assert registry.resolve("learners", "__main__:mine", registry.LEARNERS, (type(mine),)) is alone


def test_an_object_without_a_name_is_refused():
    with pytest.raises(BadInput, match=r"^learners: a Learner found that is no global of a module"):
        Sweep(learners=[mine._replace(rate="step")])
    with pytest.raises(BadInput, match=r"^learners: 5 found; it must be a string"):
        Sweep(learners=[5])


@pytest.mark.parametrize(
    ("field", "reason"),
    [({"environment": "adversary-omniscient"}, "has no masses"), ({"delay": 9}, "cannot learn")],
)
def test_what_an_object_of_one_game_cannot_do_is_said(field, reason):
    with pytest.raises(BadInput, match=f"^learners: {__name__}:share .*{reason}"):
        run(Sweep(learners=[share], **SMALL, **field))


@pytest.mark.parametrize("environment", ["stochastic", "adversary-history"])
def test_an_object_of_one_game_is_swept_and_made_into_the_same_games(environment):
    records = [Records("log", *log, 0, None) for log in zip(*logs(ENVIRONMENTS[environment].sources), strict=True)]
    swept = run(Sweep(learners=[share], environment=environment, **SMALL), records).trials.set_index("trial")
    learner, params = exaul.make(share, 20, alpha=0.05, horizon=300)
    scores, errors = zip(*(log[1:3] for log in records), strict=True)
    game, pool = exaul.environment(environment, list(scores), list(errors), exaul.grid("uniform", 20))
    play = jax.jit(lambda key: exaul.play_in(learner, params, game, pool, key, 300))
    for trial, row in swept.iterrows():
        answers, cuts, wrong = play(jax.tree.map(lambda x, trial=trial: x[trial], exaul.keys(0, 2)))
        assert 0 < answers.sum() == row["answered"] < 300
        regret = exaul.regret(learner, params, cuts, wrong, answers)[-1]
        assert float(regret) == pytest.approx(row["regret"])


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("cuts", [0.5, 0.9], r"^cuts: 'float64' found; it must be integers, as exaul.cuts"),
        ("cuts", [0, 1], r"^cuts: \[0\] found; it must be from 1 to 19"),
        ("cuts", [1, 20], r"^cuts: \[20\] found; it must be from 1 to 19"),
        ("errors", [1.0, np.nan], r"^errors: \[nan\] found; it must be from 0 to 1"),
        ("uniforms", [-0.1, 0.5], r"^uniforms: \[-0.1\] found; it must be from 0 to 1"),
        ("uniforms", [0.5], r"^cuts, errors, uniforms: .*; it must be \[T\] each"),
    ],
)
def test_play_refuses_what_is_no_game(name, value, sentence):
    """Within a ``jit`` the types are still checked."""
    learner, params = exaul.make("exaul", 20, alpha=0.1, horizon=300)
    given = {"cuts": np.array([1, 19]), "errors": np.array([0.0, 1.0]), "uniforms": np.array([0.0, 0.5])}
    assert exaul.play(learner, params, **given).shape == (2,)
    with pytest.raises(BadInput, match=sentence):
        exaul.play(learner, params, **given | {name: np.array(value)})
    with pytest.raises(BadInput, match="must be integers"):
        jax.jit(lambda cuts: exaul.play(learner, params, cuts, cuts, cuts))(given["errors"])
    with pytest.raises(BadInput, match=r"^eta: \(2,\) found; it must be \[\] or \[3\]"):
        exaul.play(learner, params._replace(eta=np.ones(2)), *[np.ones(600, int)] * 3)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: exaul.cuts([0.0, 1.0], [np.nan]), r"^scores: \[nan\] found"),
        (lambda: exaul.cuts([0.5, 0.2], [0.1]), "^grid: .*increasing"),
        (lambda: exaul.grid("uniform", 1), "^arms: 1 found"),
        (lambda: exaul.make("exaul", grid=[0, 1], alpha=0.1, horizon=9, log=([0.5], [1])), "does not start from"),
        (lambda: exaul.make(no_rates, alpha=0.1, horizon=9), "^eta: not given"),
        (lambda: run(Sweep(learners=[no_rates], **SMALL)), "has weights and no rates"),
    ],
)
def test_what_would_give_wrong_numbers_is_refused(call, sentence):
    with pytest.raises(BadInput, match=sentence):
        call()


def test_a_sweep_hides_the_errors_that_a_learner_declares_not_to_see():
    swept = run(Sweep(learners=[peeks, sees], **SMALL)).trials["answered"]
    assert (swept > 0).tolist() == [False] * 2 + [True] * 2
