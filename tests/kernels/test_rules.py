"""Rules of a user: helper functions are compiled, too, and errors are seen as the feedback says."""

import numba as nb
import numpy as np
import pytest

from exaul.engine.registry import backend_of
from exaul.engine.simulation.agreement import simulate_briefly
from exaul.kernels.learners import exaul as paper
from exaul.kernels.learners.exp3_ix import exp3_ix
from exaul.kernels.learners.learner import Drawn, Sided
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


@pytest.mark.parametrize("feedback", ["bandit", "full"])
def test_a_drawn_rule_reads_the_errors_of_its_feedback(feedback):
    """The native backend showed a drawn rule no error of an unanswered round, whatever its feedback."""

    def charge(where, p, answered, error, params):
        return where(answered, params.answer_cost * error, params.abstain_cost * (1.0 + error) / 2) / (
            params.gamma + p
        )

    learner = exp3_ix._replace(feedback=feedback, rule=Drawn(charge))
    decisions = [
        simulate_briefly(learner, backend_of(learner, x, "float64"))[0] for x in ("native", "rows", "dense")
    ]
    np.testing.assert_array_equal(decisions[0], decisions[2])
    np.testing.assert_array_equal(decisions[1], decisions[2])
