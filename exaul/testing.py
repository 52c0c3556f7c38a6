"""Check your own learner in its tests: ``check_learner(mine, reference=None)``."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exaul.engine import registry
from exaul.engine.functional import check_precision, make
from exaul.engine.simulation.user_code import call_rule, check_rule, first_params
from exaul.kernels.bounds import BOUND_ARGUMENTS
from exaul.kernels.learners.learner import Learner, Own, rates_of_horizon, regret_at, start_of
from exaul.kernels.metrics import fdr_risk
from exaul.kernels.play import GameLearner, LearnerParams, at_round

ALPHA, HORIZON, ARMS = 0.2, 400, 40
GAMES = 4  # games, with different records
GRID = 512  # uniforms on which the share of answers is compared with P
ROUND_OFF = 1e-9
CHANCE = 0.02  # of the answers: how much more may be answered by chance if all are wrong (chosen)


def check_learner(
    mine: str | Learner[Any] | tuple[GameLearner, LearnerParams],
    reference: Callable[..., Any] | None = None,
    *,
    seed: int = 0,
) -> None:
    """Play games with a learner, and fail if it breaks a contract of all learners.

    - JAX can trace it: the object is static (``jax.tree_util.register_static``), and a decision has ``answer``, a
      bool [], and ``P``, a float [].
    - A sweep can start it: ``init`` of your own class reads no ``params``, since a sweep gives it a ``Start``.
    - It does not read the error of a round without an answer, unless its feedback is ``full``.
    - P is in [0, 1], and it answers that share of uniforms: its draws have the probability P.
    - Its state keeps its shapes and types, and is finite.
    - A game has the same decisions under ``vmap`` as alone.
    - It answers no more if all answers are wrong than if all are right, as it would with charges of the wrong side.
    - Its ``regret_bounds`` can be called as a sweep calls them.
    - Its ``risk_bound`` holds in these games, and in games in which all answers are wrong.

    Args:
        mine: a name, ``module:name`` or ``Learner``, which plays 40 thresholds at alpha = 0.2; or a pair of an
            object with ``arms``, ``init``, ``decide`` and ``learn`` as from ``exaul.make``, and its ``params``.
        reference: a plain program of the same learner, ``reference(params, cuts, errors, uniforms)``, which returns
            the decisions [T] of one game of T = 400 rounds, all NumPy; they must be equal.
        seed: of the records and the uniforms.

    Raises:
        AssertionError: it breaks a contract; the sentence names the contract, and the game and the round if any.
        BadInput: ``exaul.make`` refuses it, its rule returns a number that a sweep refuses, or JAX computes in
            float32.
    """
    check_precision()
    pair: Any = mine
    definition: Any = None
    if isinstance(mine, str | Learner):
        pair = make(mine, ARMS, alpha=ALPHA, horizon=HORIZON)
        definition = registry.resolve("learner", mine)
        rates = rates_of_horizon(definition, HORIZON, ARMS, False, None, None)
        if not isinstance(definition.rule, Own):
            check_rule("the learner", definition, rates, ARMS)
            numbers = first_params(rates), ARMS, np.float64(0.5), False
            # called directly, because a game passes the error 0 to it in place of one that is hidden
            shown_0, shown_1 = (call_rule(definition.rule, *numbers, np.float64(error)) for error in (0, 1))
            if definition.feedback != "full" and jax.tree.leaves(shown_0) != jax.tree.leaves(shown_1):
                raise AssertionError("it reads the error of a round without an answer")
        for field, bound in definition.regret_bounds._asdict().items() if definition.regret_bounds else ():
            try:
                float(regret_at(bound, rates, HORIZON, ARMS, 0.05, ALPHA, 1.0))
            except Exception as error:
                call = f"regret_bounds.{field} is no function of ({BOUND_ARGUMENTS}) that returns numbers"
                raise AssertionError(f"{call} ({type(error).__name__}: {error})") from error
    learner, params = pair
    if jax.tree.leaves(learner):
        raise AssertionError("it is not static for JAX; decorate its class with jax.tree_util.register_static")
    if definition and isinstance(definition.rule, Own):
        try:
            learner.init(None)
        except Exception as error:
            raise AssertionError("init reads params") from error
    rng = np.random.default_rng(seed)
    cuts = rng.integers(1, learner.arms, (GAMES, HORIZON)).astype(np.int32)
    errors = (rng.random((GAMES, HORIZON)) * learner.arms > cuts).astype(np.float64)
    uniforms = rng.random((GAMES, HORIZON))
    shares = (np.arange(GRID) + 0.5) / GRID

    def game(cuts: Any, errors: Any, uniforms: Any, hidden: Any) -> Any:
        """Play with ``hidden`` [T] in place of the errors of rounds without an answer."""

        def step(state: Any, record: Any) -> Any:
            t, cut, error, u, error_unseen = record
            current, state = at_round(learner, params, state, t)
            share = jnp.mean(jax.vmap(lambda u: learner.decide(state, current, cut, u)[1].answer)(shares))
            state, decision = learner.decide(state, current, cut, u)
            state = learner.learn(state, current, cut, decision, jnp.where(decision.answer, error, error_unseen))
            return state, (decision.answer, decision.P, share, state)

        return jax.lax.scan(step, learner.init(params), (jnp.arange(len(cuts)), cuts, errors, uniforms, hidden))[1]

    games = jax.jit(jax.vmap(game))
    try:
        played = games(cuts, errors, uniforms, errors)
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        is_rule = definition and not isinstance(definition.rule, Own)
        requirement = registry.WRITTEN_WITH_WHERE if is_rule else registry.WRITTEN_IN_JAX
        raise AssertionError(f"JAX cannot play it ({reason}); {requirement}") from error
    answers, P, share, states = jax.tree.map(np.asarray, played)
    if (answers.dtype, P.dtype.kind) != (np.bool_, "f") or not answers.shape == P.shape == cuts.shape:
        raise AssertionError(f"answer is {answers.dtype} and P {P.dtype}; they must be a bool [] and a float []")
    _expect(~(P >= -ROUND_OFF) | ~(P <= 1 + ROUND_OFF), "P is not in [0, 1]", P)
    _expect(abs(share - P) > 1.5 / GRID, "the share of uniforms that are answered is not P", share - P)
    for leaf in jax.tree.leaves(states):
        _expect(~np.isfinite(leaf).reshape(GAMES, HORIZON, -1).all(axis=2), "the state is not finite")
    declared = definition or getattr(learner, "definition", learner)
    if getattr(declared, "feedback", "bandit") != "full":
        _, peeked, _, other_states = jax.tree.map(np.asarray, games(cuts, errors, uniforms, 1 - errors))
        differs = peeked != P
        for leaf, other_leaf in zip(jax.tree.leaves(states), jax.tree.leaves(other_states), strict=True):
            differs |= (leaf != other_leaf).reshape(GAMES, HORIZON, -1).any(axis=2)
        _expect(differs, "it reads the error of a round without an answer")
    none, all_wrong = np.zeros_like(errors), np.ones_like(errors)
    if_right, if_wrong = (np.asarray(games(cuts, x, uniforms, x)[0]) for x in (none, all_wrong))
    if if_wrong.mean() > if_right.mean() + CHANCE:
        answered = f"{if_wrong.mean():.0%} against {if_right.mean():.0%}"
        raise AssertionError(f"it answers more if all answers are wrong than if all are right ({answered})")
    if definition and definition.risk_bound:
        start = start_of(definition.rule, ARMS, [ALPHA])
        for shown, game_errors in ((answers, errors), (if_wrong, all_wrong)):
            count = shown.cumsum(axis=1)
            risk = fdr_risk(count, (shown * game_errors).cumsum(axis=1), ALPHA)
            bound = definition.risk_bound(rates.eta, np.arange(HORIZON) + 1, count, ALPHA, start.state)
            _expect(risk > bound + ROUND_OFF, "the FDR risk is above risk_bound", risk - bound)
    for k in range(GAMES):
        alone = np.asarray(jax.jit(game)(cuts[k], errors[k], uniforms[k], errors[k])[0])
        _expect(answers[k] != alone, "it decides otherwise under vmap", game=k)
        if reference is not None:
            expected = np.asarray(reference(params, cuts[k], errors[k], uniforms[k]))
            pairs = np.array([f"cut {cut}, u {u:.3g}" for cut, u in zip(cuts[k], uniforms[k], strict=True)])
            _expect(answers[k] != expected, "the reference decides otherwise", pairs, game=k)


def _expect(wrong: Any, sentence: str, values: Any = None, game: int | None = None) -> None:
    """Raise AssertionError with the first round that is wrong, [T] in one game or [games, T]."""
    if not wrong.any():
        return
    first = tuple(np.argwhere(wrong)[0])
    value = "" if values is None else f": {values[first]}"
    raise AssertionError(f"{sentence}{value} (game {first[0] if game is None else game}, round {first[-1] + 1})")
