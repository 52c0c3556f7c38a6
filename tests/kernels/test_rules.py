"""A rule that calls helper functions: one source for JAX and for Numba."""

import numba as nb
import numpy as np
import pytest

from exaul.engine.registry import backend_of
from exaul.engine.simulation.agreement import simulate_briefly
from exaul.kernels.learners import exaul as paper
from exaul.kernels.learners.learner import Sided
from exaul.kernels.native.compile import compile_with_helpers
from tests.games import BACKENDS, pytest_params


def over(x, chance, gamma=0.0):
    return x / sum_of(gamma, chance)


def sum_of(x, y):
    return x + y


def written_with(cost_of):
    def rule(where, P, Q, answered, error, params):
        below = where(answered, over(cost_of(params) * error, P, params.gamma), 0.0)
        return below, where(answered, 0.0, over(params.abstain_cost, Q, params.gamma))

    return rule


RULE = written_with(lambda params: params.answer_cost)
LEARNER = paper.exaul._replace(rule=Sided(RULE))


@pytest.mark.parametrize("name", pytest_params([(x,) for x in BACKENDS]))
def test_a_rule_with_helpers_decides_as_without(name):
    """By name, by name of a helper, and by closure."""
    decisions, _ = simulate_briefly(paper.exaul, backend_of(paper.exaul, "native", "float64"))
    np.testing.assert_array_equal(simulate_briefly(LEARNER, backend_of(LEARNER, name, "float64"))[0], decisions)
    assert set(np.unique(decisions)) == {0, 1, 2}


def test_helpers_are_compiled_with_their_defaults():
    function = compile_with_helpers(over)
    call = nb.njit(lambda *arguments: function(*arguments))
    assert [call(3.0, 1.0, 0.5), call(3.0, 1.5)] == [2.0, 2.0]
