"""A rule that calls helper functions: its helpers are compiled, too."""

import numba as nb
import numpy as np

from exaul.engine.registry import backend_of
from exaul.engine.simulation.agreement import simulate_briefly
from exaul.kernels.learners import exaul as paper
from exaul.kernels.learners.learner import Sided
from exaul.kernels.native.compile import compile_with_helpers


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


def test_a_rule_with_helpers_decides_as_without():
    """By name, by name of a helper, and by closure, compiled; JAX calls them as Python does."""
    decisions, _ = simulate_briefly(paper.exaul, backend_of(paper.exaul, "native", "float64"))
    with_helpers, _ = simulate_briefly(LEARNER, backend_of(LEARNER, "native", "float64"))
    np.testing.assert_array_equal(with_helpers, decisions)
    assert set(np.unique(decisions)) == {0, 1, 2}


def test_helpers_are_compiled_with_their_defaults():
    function = compile_with_helpers(over)
    call = nb.njit(lambda *arguments: function(*arguments))
    assert [call(3.0, 1.0, 0.5), call(3.0, 1.5)] == [2.0, 2.0]
