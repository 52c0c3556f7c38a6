"""Learners and environments of the user that fail, or cannot be compiled."""

import sys
from pathlib import Path

import jax
import pytest

from exaul import Sweep
from exaul.engine import registry
from exaul.engine.simulation.prepare import prepare_source
from tests.commands.boundaries.helpers import SMALL
from tests.games import of_each_rule

ENVIRONMENTS = """
import jax.numpy as jnp

from exaul.engine.environments.adaptive import Adaptive, AskedRecord
from exaul.engine.environments.oblivious import Oblivious

old = Oblivious(2, True, lambda t, horizon, uniforms: t % 2)
outside = Oblivious(2, True, lambda where, t, horizon, u: where(t < 5, 0, 2))
arrays = Oblivious(2, True, lambda where, t, horizon, u: (t % 2).astype(int))

def environment(ask=lambda state, *_: AskedRecord(jnp.int32(1), jnp.zeros(())), see=lambda state, *_: state):
    return Adaptive(1, 1, lambda pool: jnp.zeros(1), ask, see)


fails = environment(ask=lambda state, pool, *_: pool.nothing)
grows = environment(see=lambda state, *_: jnp.concatenate([state, state]))
several = environment(ask=lambda *_: AskedRecord(jnp.ones(2, jnp.int32), jnp.zeros(2)))
first = environment(ask=lambda *_: AskedRecord(jnp.int32(0), jnp.zeros(())))
above = environment(ask=lambda *_: AskedRecord(jnp.int32(1), jnp.full((), 1 + 1e-9)))
"""


REFUSED = {
    "old": "choose_pool of places:old cannot be run (TypeError: ",
    "outside": "choose_pool of places:outside returns 2; it must be from 0 to 1",
    "arrays": "choose_pool of places:arrays cannot be run (TypingError: ",
    "fails": "functions of places:fails cannot be run (AttributeError: 'AdaptivePool' object",
    "grows": "see returns a state of form ((2,), 'float64'); it must be that of init, ((1,), ",
    "several": "ask returns cut as int32 of shape (2,); it must be as in AskedRecord",
    "first": "ask returns cut [0, 0]; it must be from 1 to",
    "above": "ask returns error [1.000000001, 1.000000001]; it must be from 0 to 1",
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_environment_whose_function_fails_is_refused(name, refused):
    Path("places.py").write_text(ENVIRONMENTS)
    with jax.enable_x64(False):  # as a command begins
        refused(["sweep", "--environment", f"places:{name}", *SMALL], REFUSED[name])


LEARNERS = """
import helpers
from exaul.kernels.game import Rates
from exaul.kernels.learners.exaul import exaul, rates
from exaul.kernels.learners.learner import Drawn, Learner, Sided

INF = 1e999


def learner(rule, feedback="bandit", rates=rates, **more):
    return Learner(feedback, Sided(rule), rates, exaul.anytime, **more)


def zero(where, P, Q, answered, error, params):
    return 0.0, 0.0


def fails(where, P, Q, answered, error, params):
    raise KeyError("sorry")


by_module = learner(lambda where, P, Q, answered, error, params: (helpers.half(error), 0.0))
branches = learner(lambda where, P, Q, answered, error, params: (error if answered else 0.0, 0.0))
raises = learner(fails)
negative = learner(lambda where, P, Q, answered, error, params: (error - 0.5, 0.0))
infinite = learner(lambda where, P, Q, answered, error, params: (0.0, 1.0 / where(answered, 1.0, 0.0 * P)))
no_number = learner(lambda where, P, Q, answered, error, params: (0.0, 0.0 / (1.0 - error)))
if_unlikely = learner(lambda where, P, Q, answered, error, params: (where(P < 0.01, INF, 1.0), 0.0))
at_alpha = learner(lambda where, P, Q, answered, error, params: (where(params.alpha > 0.5, INF, 0.0), 0.0))
nonsense = learner(zero, "nonsense")
backwards = learner(zero, rates=lambda horizon, arms: Rates(-1.0, None))
certain = Learner("bandit", Sided(zero, 1.0), rates)
from exaul.kernels.learners.aci_rank import aci_rank
forgetful = aci_rank._replace(rule=aci_rank.rule._replace(decay=0.05))
words = learner(zero, risk_bound=lambda eta, t, answered, alpha, state: "none")
away = Learner("bandit", Drawn(lambda where, p, answered, error, params: INF), rates)
tuned = Learner("bandit", Sided(zero), rates)

import jax, jax.numpy as jnp
from dataclasses import dataclass
from exaul.kernels.learners.learner import Own
from exaul.kernels.play import Decision


@jax.tree_util.register_static
@dataclass(frozen=True)
class Rated:
    arms: int

    def init(self, params):
        return jnp.zeros(())

    def decide(self, state, params, cut, u):
        return state, Decision(u < params.eta, params.eta)

    def learn(self, state, params, cut, decision, error):
        return state


class Early(Rated):
    def init(self, params):
        return params.eta


no_rates, early = Learner("bandit", Own(Rated)), Learner("bandit", Own(Early), rates)
"""
AS_WHERE = "it must be written with where"
RETURNS = "returns %s if P = 0.01, answered = %s and error = %s; it must be finite"


SENTENCES = {
    "by_module": ["cannot be run (TypingError: Unknown attribute 'half' of type", f"line 22); {AS_WHERE}"],
    "branches": ["cannot be run (TracerBoolConversionError: ", f"rules.py line 23); {AS_WHERE}"],
    "raises": ["cannot be run (KeyError: 'sorry', rules.py line 19); it must be"],
    "negative": [RETURNS % (-0.5, True, 0.0) + " and at least 0"],
    "infinite": [RETURNS % ("inf", False, 0.0)],
    "no_number": [RETURNS % ("nan", True, 1.0)],
    "away": [RETURNS % ("inf", True, 0.0)],
    "if_unlikely": ["learners: the state of rules:if_unlikely is not finite; all that its rule"],
    "nonsense": ["the feedback of rules:nonsense: 'nonsense' is unknown; one of bandit, full, none"],
    "backwards": ["learners: eta of rules:backwards: [-1.0] found; it must be finite and at least 0"],
    "certain": ["learners: prior of rules:certain: 1.0 found; it must be between 0 and 1"],
    "forgetful": ["learners: decay of rules:forgetful: 0.05 found; it must be between 0.07 and 1"],
    "tuned": ["--anytime: given, but rules:tuned has no rates for an unknown T"],
    "no_rates": ["P of rules:no_rates in round 1: nan found; it must be in [0, 1]; it may read a rate"],
    "early": ["init of rules:early cannot be run (AttributeError: 'NoneType'", "it must not read params"],
    "words": ["risk_bound of rules:words cannot be run (ValueError: could not convert string to float"],
}


@pytest.mark.parametrize("name", SENTENCES)
def test_a_learner_that_cannot_be_run(name, refused, own_learners):
    flags = {"branches": ["--backend", "dense"], "tuned": ["--anytime"]}.get(name, [])
    argv = ["sweep", "--learners", f"rules:{name}", *SMALL[:6], *flags, "--out", "out"]
    assert len(refused(argv, f"rules:{name}", *SENTENCES[name])) < 600


@pytest.mark.parametrize("environment", ["stochastic", "always-wrong"])
def test_a_state_that_is_not_finite_ends_a_sweep(environment, refused, own_learners):
    """Where the trial rounds saw no such charge."""
    argv = ["sweep", "--learners", "rules:at_alpha", "--environment", environment, "--alphas", "0.6"]
    refused([*argv, *SMALL[:6]], "learners: the state of rules:at_alpha is not finite")


def test_learners_of_every_rule_pass_the_checks():
    """By their places, as if they were the user's."""
    places = [registry.LEARNERS[name] for name in of_each_rule(registry.LEARNERS)]
    assert len(prepare_source(Sweep(learners=places, trials=2, horizon=300, arms=20)).learners) == len(places)


@pytest.fixture
def own_learners():
    """Write the modules of the learners; forget them afterwards, because the next test writes its own."""
    Path("rules.py").write_text(LEARNERS)
    Path("helpers.py").write_text("def half(x):\n    return x / 2\n")
    yield
    for module in ("rules", "helpers"):
        del sys.modules[module]
