"""Learners and environments of the user that fail, or cannot be compiled."""

import sys
from pathlib import Path

import pytest

from tests.commands.boundaries.helpers import refused

OBLIVIOUS_ENVIRONMENTS = """
from exaul.engine.environments.oblivious import Oblivious

old = Oblivious(2, True, lambda t, horizon, uniforms: t % 2)
outside = Oblivious(2, True, lambda where, t, horizon, u: where(t < 5, 0, 2))
arrays = Oblivious(2, True, lambda where, t, horizon, u: (t % 2).astype(int))
"""


ADAPTIVE_ENVIRONMENTS = """
import jax.numpy as jnp

from exaul.engine.environments.adaptive import Adaptive, AskedRecord


def environment(ask=lambda state, *_: AskedRecord(jnp.int32(1), jnp.zeros(())), see=lambda state, *_: state):
    return Adaptive(1, 1, lambda pool: jnp.zeros(1), ask, see)


fails = environment(ask=lambda state, pool, *_: pool.nothing)
branches = environment(see=lambda state, question, answered: state + 1 if answered else state)
grows = environment(see=lambda state, *_: jnp.concatenate([state, state]))
several = environment(ask=lambda *_: AskedRecord(jnp.ones(2, jnp.int32), jnp.zeros(2)))
first = environment(ask=lambda *_: AskedRecord(jnp.int32(0), jnp.zeros(())))
percent = environment(ask=lambda *_: AskedRecord(jnp.int32(1), jnp.full((), 100.0)))
"""


OWN = {"oblivious": OBLIVIOUS_ENVIRONMENTS, "adaptive": ADAPTIVE_ENVIRONMENTS}


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("oblivious:old", "choose_pool of oblivious:old cannot be run (TypeError: "),
        ("oblivious:outside", "choose_pool of oblivious:outside returns 2; it must be from 0 to 1"),
        ("oblivious:arrays", "choose_pool of oblivious:arrays cannot be run (TypingError: "),
        (
            "adaptive:fails",
            "functions of adaptive:fails cannot be run (AttributeError: 'AdaptivePool' object has no attribute",
        ),
        ("adaptive:branches", "functions of adaptive:branches cannot be run (TracerBoolConversionError: "),
        (
            "adaptive:grows",
            "see returns a state of form ((2,), 'float64'); it must be that of init, ((1,), 'float64')",
        ),
        ("adaptive:several", "ask returns cut as int32 of shape (2,); it must be as in AskedRecord"),
        ("adaptive:first", "ask returns cut [0, 0]; it must be from 1 to"),
        ("adaptive:percent", "ask returns error [100.0, 100.0]; it must be from 0 to 1"),
    ],
)
def test_an_environment_whose_function_fails_is_refused(place, sentence, capsys):
    module = place.partition(":")[0]
    Path(f"{module}.py").write_text(OWN[module])
    refused(capsys, ["sweep", "--environment", place, "--horizon", "300"], sentence)


LEARNERS = """
import helpers
from helpers import again
from exaul.kernels.learners.learner import Learner, Sided
from exaul.kernels.learners.rates import anytime, rates


def learner(rule):
    return Learner("bandit", Sided(rule), rates, anytime)


by_module = learner(lambda where, P, Q, answered, error, parameters: (helpers.half(error), 0.0))
circular = learner(lambda where, P, Q, answered, error, parameters: (again(error), 0.0))
text = learner(lambda where, P, Q, answered, error, parameters: (error + "x", 0.0))
one = learner(lambda where, P, Q, answered, error, parameters: error)
branches = learner(lambda where, P, Q, answered, error, parameters: (error if answered else 0.0, 0.0))
"""
HELPERS = """
def half(x):
    return x / 2


def again(x):
    return again(x - 1) if x > 0 else x
"""


@pytest.mark.parametrize(
    ("name", "backend", "sentence"),
    [
        ("by_module", "native", "TypingError: Unknown attribute 'half' of type Module"),
        ("by_module", "native", "'>), rules.py line 12); it must be written with where"),
        ("circular", "native", "TypingError: Untyped global name 'again': Cannot determine Numba type"),
        ("text", "native", "TypingError: No implementation of function"),
        ("one", "native", "TypingError: failed to unpack float64)"),
        ("branches", "dense", "rules.py line 16); it must be written with where"),
    ],
)
def test_a_learner_whose_rule_cannot_be_compiled(name, backend, sentence, capsys):
    Path("rules.py").write_text(LEARNERS)
    Path("helpers.py").write_text(HELPERS)
    argv = ["sweep", "--learners", f"rules:{name}", "--backend", backend, "--out", "out"]
    said = refused(capsys, argv, f"learners: rules:{name} cannot be run (", sentence)
    assert len(said) < 600
    for module in ("rules", "helpers"):
        del sys.modules[module]
