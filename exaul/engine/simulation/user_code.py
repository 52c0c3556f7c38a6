"""Try a user's learner or environment briefly before a sweep, so that its errors are reported at once."""

from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exaul.engine.checks import BadInput, check_holds, check_known
from exaul.engine.environments.adaptive import Adaptive, AdaptivePool, Objective, tunable_choices
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.registry import WRITTEN_IN_JAX, WRITTEN_WITH_WHERE, is_user_code, user_code_errors
from exaul.engine.simulation.agreement import simulate_briefly
from exaul.engine.simulation.chunks import select_rates
from exaul.engine.simulation.prepare_learner import PreparedLearner
from exaul.kernels import native
from exaul.kernels.feedback import PERFECT_FEEDBACK
from exaul.kernels.game import Rates, RuleParams
from exaul.kernels.learners.learner import FEEDBACKS, Drawn, Fixed, Learner, Own, Ranked, Rule, Sided, has_weights
from exaul.kernels.records import Pool, make_streams


def try_user_code(source: Any) -> None:
    """Try the user's learners and environment of a ``PreparedSource``; BadInput names what is wrong with one."""
    name, environment = source.sweep.environment, source.environment
    if is_user_code(name) and isinstance(environment, Oblivious):
        check_choose_pool(name, environment, source.horizon)
    elif is_user_code(name):
        costs, values = (source.answer_cost[0], source.abstain_cost[0]), source.tunable_values
        objective = Objective(source.sweep.alphas[0], *costs, values, tunable_choices(environment, values))
        check_adaptive(name, environment, source.adaptive_pool(), objective)
    for learner in source.learners:
        if is_user_code(learner.name):
            requirement = WRITTEN_IN_JAX if isinstance(learner.definition.rule, Own) else WRITTEN_WITH_WHERE
            with user_code_errors("learners:", learner.name, requirement):
                try_learner(learner, environment, len(source.grid), source.horizon)


def try_learner(learner: PreparedLearner, environment: Oblivious | Adaptive, arms: int, horizon: int) -> None:
    """Try a user's learner on numbers, then simulate it for some rounds, because its rule is compiled on first use.

    Raises:
        BadInput: its feedback is unknown, a rate or charge is negative or not finite, its state is not finite, or
            its bound of R_T is no number.
    """
    name, definition, is_imperfect = learner.name, learner.definition, learner.feedback_model != PERFECT_FEEDBACK
    check_known(f"learners: the feedback of {name}", (definition.feedback,), FEEDBACKS)
    if has_weights(definition) and np.isnan(learner.rates.eta).any():
        raise BadInput(f"learners: {name} has weights and no rates; its Learner needs rates=, or the sweep eta=")
    for rate, values in learner.rates._asdict().items():
        wrong = values[(values < 0) | np.isinf(values)]  # NaN: there is no such rate
        check_holds(f"learners: {rate} of {name}", wrong[:1].tolist(), not wrong.size, "finite and at least 0")
    upper = 1 if isinstance(definition.rule, Sided) else np.inf
    for field, low, high in (("prior", 0, upper), ("decay", 0.07, 1)):
        value = getattr(definition.rule, field, None)
        is_valid = value is None or low < value < high
        check_holds(f"learners: {field} of {name}", value, is_valid, f"between {low} and {high}")
    check_rule(name, definition, learner.rates, arms)
    sees = isinstance(environment, Adaptive) and environment.sees_distribution
    if sees and isinstance(definition.rule, Own) and not hasattr(definition.rule.make(arms), "distribution"):
        raise BadInput(f"learners: {name} has no distribution(state, params), which the environment sees")
    if definition.risk_bound is not None:
        with user_code_errors("learners: risk_bound of", name, "it must return numbers"):
            learner.risk_bound(horizon, np.array([[0, horizon]]), 0.5)
    check_finite(learner, simulate_briefly(definition, learner.backend, is_imperfect)[1])


def check_rule(name: str, definition: Learner[Any], rates: Rates, arms: int) -> None:
    """Call the functions of a rule on numbers; BadInput if one returns a number that its type excludes.

    ``rates`` are [K], of which the rule reads the first.
    """
    rule, params = definition.rule, first_params(rates)
    lower = 0 if isinstance(rule, Sided | Drawn) else -np.inf  # other rules may return negative numbers
    if isinstance(rule, Own):
        game = rule.make(arms)
        with user_code_errors("learners: init of", name, "it must not read params"):
            state = game.init(None)
        P = float(game.decide(state, params, np.int32(1), np.float64(0.5))[1].P)
        reads = "; it may read a rate that its Learner does not have (rates=)" if np.isnan(params.eta) else ""
        check_holds(f"learners: P of {name} in round 1", P, 0 <= P <= 1, f"in [0, 1]{reads}")
        return
    for P, answered, error in product((0.01, 0.5, 0.99), (True, False), (0.0, 0.5, 1.0)):
        if answered or not error or definition.feedback == "full":
            outputs = call_rule(rule, params, arms, np.float64(P), answered, np.float64(error))
            for number in (float(np.asarray(x, np.float64)) for x in jax.tree.leaves(outputs)):
                if not np.isfinite(number) or number < lower:
                    raise BadInput(
                        f"learners: the rule of {name} returns {number} if P = {P}, answered = {answered} "
                        f"and error = {error}; it must be finite{' and at least 0' if lower == 0 else ''}"
                    )


def first_params(rates: Rates) -> RuleParams:
    """Return what ``check_rule`` passes to a rule: the first of the rates [K], and a target and costs."""
    first = select_rates(rates, np.zeros(1, np.uint32))
    # with NumPy's numbers, division by 0 is no exception, as in compiled code
    eta, gamma, alpha, answer_cost, abstain_cost = map(np.float64, (first.eta[0], first.gamma[0], 0.1, 0.9, 0.2))
    return RuleParams(eta, gamma, alpha, answer_cost, abstain_cost)


@np.errstate(all="ignore")
def call_rule(rule: Rule, params: RuleParams, arms: int, P: Any, answered: bool, error: Any) -> Any:
    """Return all that the functions of a rule, not ``Own``, return in its first round, as a tree of numbers."""
    start = jax.tree.map(np.float64, rule.start) if isinstance(rule, Ranked) else None
    match rule:
        case Sided():
            return rule.charge(np.where, P, 1 - P, answered, error, params)
        case Drawn():
            return rule.charge(np.where, P, answered, error, params)
        case Fixed():
            return np.asarray(rule.arm(arms, 0))
        case Ranked():
            learned = rule.learn(np.where, start, answered, error, params)
            return rule.decide(np.where, start, P, P / 2), learned
    raise TypeError(type(rule).__name__)


def check_finite(learner: PreparedLearner, state: Any) -> None:
    """Raise BadInput if the state of a user's learner has a number that is not finite, as after a charge of NaN."""
    if isinstance(learner.definition.rule, Own):  # whose state may be anything
        return
    if not all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(state)):  # on its device
        raise BadInput(f"learners: the state of {learner.name} is not finite; all that its rule returns must be")


def check_choose_pool(reference: str, environment: Oblivious, horizon: int) -> None:
    """Try a user's ``choose_pool`` on arrays, compiled and traced; BadInput if it or its pool is wrong."""
    t, u = np.linspace(1, horizon, 1000).astype(np.int64), np.linspace(0, 1, 1000, endpoint=False)
    pool = Pool(np.ones(1, np.int32), np.zeros(1))
    streams = make_streams(
        environment.choose_pool, False, [pool] * environment.pool_count, horizon, 0, np.zeros(1, np.int64)
    )
    records_read = streams.no_records_read().astype(np.int64)
    with user_code_errors("environment: choose_pool of", reference):
        chosen = np.asarray(environment.choose_pool(np.where, t, horizon, u))
        native.fill_records(streams, records_read, 0, 1, np.ones((1, 1), np.int32), np.zeros((1, 1)))
        jax.eval_shape(partial(environment.choose_pool, jnp.where), t, horizon, u)  # as on a device
    outside = chosen[(chosen < 0) | (chosen >= environment.pool_count)]
    if outside.size:
        allowed = f"it must be from 0 to {environment.pool_count - 1}"
        raise BadInput(f"environment: choose_pool of {reference} returns {outside.flat[0]}; {allowed}")


def check_adaptive(reference: str, environment: Adaptive, pool: AdaptivePool, objective: Objective) -> None:
    """Try a user's adaptive environment on a round of two copies; BadInput if a function or its result is wrong."""
    arms = len(pool.grid)

    def one_round(pool: AdaptivePool, objective: Objective, answered: Any) -> tuple[Any, Any, Any, Any]:
        state = jax.tree.map(jnp.asarray, environment.init(pool))
        draws = jnp.full(environment.draws, 0.5)
        distribution = jnp.full(arms, 1 / arms) if environment.sees_distribution else None
        question = environment.ask(state, pool, objective, draws, distribution)
        return question.cut, question.error, state, environment.see(state, question, answered)

    with user_code_errors("environment: functions of", reference, WRITTEN_IN_JAX):
        games = jax.jit(jax.vmap(one_round, in_axes=(None, None, 0)))
        *record, initial, later = games(pool, objective, np.array([True, False]))
        cut, error = map(np.asarray, record)  # they are compared outside x64
        form, next_form = (jax.tree.map(lambda x: (x.shape[1:], str(x.dtype)), state) for state in (initial, later))
    field = f"environment: {reference}"
    if form != next_form:
        raise BadInput(f"{field}: see returns a state of form {next_form}; it must be that of init, {form}")
    for part, value, kind, low, high in (("cut", cut, "iu", 1, arms - 1), ("error", error, "f", 0, 1)):
        if value.shape != (2,) or value.dtype.kind not in kind:
            kinds = f"{value.dtype} of shape {value.shape[1:]}"
            raise BadInput(f"{field}: ask returns {part} as {kinds}; it must be as in AskedRecord")
        if not np.all((value >= low) & (value <= high)):
            raise BadInput(f"{field}: ask returns {part} {value.tolist()}; it must be from {low} to {high}")
