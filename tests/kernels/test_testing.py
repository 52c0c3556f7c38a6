"""``check_learner`` accepts every learner, and refuses each that breaks one contract."""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exaul
from exaul import testing
from exaul.kernels.dense import Dense, make_learner
from exaul.kernels.learners.learner import Drawn, Learner, Own, Ranked, Sided
from exaul.kernels.play import Decision
from exaul.testing import check_learner
from tests.games import LEARNERS, of_each_rule

PLAYED = [x for x in LEARNERS if x not in ("best-fixed", "aci-rank-from-log")]  # which need hindsight, or a log


@pytest.mark.parametrize("name", [*of_each_rule(PLAYED), "ew"])
def test_a_learner_of_each_rule_and_feedback_passes(name):
    check_learner(name)


def test_a_learner_or_an_object_passes_in_place_of_a_name():
    check_learner(LEARNERS["exaul"], seed=1)
    _, params = exaul.make("exaul", testing.ARMS, alpha=testing.ALPHA, horizon=testing.HORIZON)
    check_learner((make_learner(LEARNERS["exaul"], testing.ARMS, Dense), params))


@jax.tree_util.register_static
@dataclass(frozen=True)
class Share:
    """Answer with probability s; lower it by a wrong answer."""

    arms: int = 40
    flaw: str = ""

    def init(self, params):
        return jnp.asarray(params.alpha if self.flaw == "reads params" else 0.5)

    def decide(self, state, params, cut, u):
        P = state * 3 if self.flaw == "too large" else state
        answer = u**2 < P if self.flaw == "another draw" else u < P
        answer = answer.astype(int) if self.flaw == "an integer" else answer
        return state, answer if self.flaw == "no decision" else Decision(answer, P)

    def learn(self, state, params, cut, decision, error):
        error = jnp.where(decision.answer | (self.flaw == "peeks"), error, 0.5)
        share = jnp.clip(state + 0.1 * (0.5 - error), 0.1, 0.9)
        return share / jnp.where(cut == 7, 0.0, 1.0) if self.flaw == "not finite" else share


def plainly(params, cuts, errors, uniforms, rate=0.1):
    s, answers = 0.5, []
    for error, u in zip(errors, uniforms, strict=True):
        answers.append(u < s)
        if answers[-1]:
            s = min(max(s + rate * (0.5 - error), 0.1), 0.9)
    return np.array(answers)


def test_a_rule_or_a_bound_that_a_sweep_refuses_is_refused():
    learner = LEARNERS["exp3-ix"]
    with pytest.raises(exaul.BadInput, match=r"the rule of the learner returns .* and at least 0"):
        exaul.testing.check_learner(learner._replace(rule=Drawn(lambda *numbers: -1.0)))
    with pytest.raises(AssertionError, match=r"^regret_bounds.best is no function of \(eta, .*TypeError: len"):
        check_learner(learner._replace(regret_bounds=learner.regret_bounds._replace(best=len)))


def test_a_rule_without_rates_or_with_an_if_is_told_what_to_change():
    with pytest.raises(exaul.BadInput, match=r"^eta: not given; .* follows if the Learner has rates=$"):
        check_learner(LEARNERS["exp3-ix"]._replace(rates=None, anytime=None))
    rule = Drawn(lambda where, p, answered, error, params: error / p if answered else params.abstain_cost / p)
    with pytest.raises(AssertionError, match=r"^JAX cannot play it \(Tracer.*\); it must be written with where, "):
        check_learner(LEARNERS["exp3-ix"]._replace(rule=rule))


ANSWERED_OR_NOT = (
    Sided(lambda where, P, Q, answered, error, params: (params.answer_cost * error, params.abstain_cost)),
    Drawn(lambda where, p, answered, error, params: where(answered, 1.0, 1 - params.answer_cost * error)),
    LEARNERS["aci-rank"].rule._replace(
        learn=lambda where, state, answered, error, params: state._replace(share=state.share - 0.1 * error)
    ),
)


@pytest.mark.parametrize("rule", ANSWERED_OR_NOT, ids=lambda rule: type(rule).__name__)
def test_a_rule_that_reads_the_error_without_an_answer_is_refused_unless_its_feedback_is_full(rule):
    """A game passes the error 0 to it, as if every withheld answer were right, so that nothing leaks there."""
    learner = LEARNERS["aci-rank" if isinstance(rule, Ranked) else "exaul"]._replace(rule=rule, risk_bound=None)
    with pytest.raises(AssertionError, match=r"^it reads the error of a round without an answer$"):
        check_learner(learner)
    check_learner(learner._replace(feedback="full"))


def test_charges_of_the_wrong_side_and_a_broken_bound_of_the_risk_are_named():
    learner = LEARNERS["exaul"]
    swapped = Sided(lambda *arguments: learner.rule.charge(*arguments)[::-1])
    with pytest.raises(
        AssertionError, match=r"^it answers more if all answers are wrong .* \([0-9]+% against [0-9]+%\)"
    ):
        check_learner(learner._replace(rule=swapped))
    ranked = LEARNERS["aci-rank"]
    claim = ranked._replace(risk_bound=lambda *arguments: ranked.risk_bound(*arguments) / 2)
    with pytest.raises(AssertionError, match=r"^the FDR risk is above risk_bound: .* \(game 0, round [0-9]+\)$"):
        check_learner(claim)


def test_an_object_is_its_reference_and_no_other():
    check_learner((Share(), ()), plainly)
    message = r"^the reference decides otherwise: cut [0-9]+, u 0\S+ \(game [0-9], round"
    with pytest.raises(AssertionError, match=message):
        check_learner((Share(), ()), lambda *game: plainly(*game, rate=0.11))


@pytest.mark.parametrize(
    ("flaw", "sentence"),
    [
        ("peeks", "it reads the error of a round without an answer"),
        ("too large", "P is not in"),
        ("another draw", "the share of uniforms that are answered is not P"),
        ("not finite", "the state is not finite|P is not in"),
        ("reads params", "init reads params"),
        ("an integer", "JAX cannot play it .TypePromotionError|answer is int64 and P float64"),
        ("no decision", "JAX cannot play it .AttributeError"),
    ],
)
def test_a_flaw_is_named(flaw, sentence):
    position = "" if flaw in ("reads params", "an integer", "no decision") else r".*\(game 0, round [0-9]+\)$"
    with pytest.raises(AssertionError, match=f"^({sentence}){position}"):
        check_learner(Learner("bandit", Own(partial(Share, flaw=flaw))))


class Unregistered(Share):
    """A class that JAX takes for an array, in place of its parent."""


def test_an_object_that_is_not_static_is_named():
    with pytest.raises(AssertionError, match=r"^it is not static for JAX"):
        check_learner((Unregistered(), ()))


def test_errors_without_an_answer_are_kept_from_an_object_unless_its_feedback_is_full():
    learner, params = exaul.make("ew", testing.ARMS, alpha=testing.ALPHA, horizon=testing.HORIZON)
    check_learner((learner, params))
    check_learner((replace(learner, definition=learner.definition._replace(feedback="bandit")), params))
