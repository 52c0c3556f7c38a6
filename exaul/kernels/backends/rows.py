"""The backend ``rows``, in JAX, round by round: learners with weights as in ``exaul.kernels.rows``."""

from functools import partial
from typing import Any

import jax.numpy as jnp

from exaul.kernels.backends.backend import Backend, Decision, Halves, backend_of_halves, make_backend
from exaul.kernels.game import Block, Parameters, Start
from exaul.kernels.learners.learner import Drawn, Learner, Sided
from exaul.kernels.rows import GAMES, GameDecision


def weighted(learner: Learner[Any], precision: str) -> Backend:
    """Make the backend of a learner with weights; the state is its game, which is static, and its rows."""

    def init(arms: int, start: Start) -> tuple[Any, Any]:
        game: Any = GAMES[type(learner.rule)](learner, arms, precision)
        return game, game.init(None)

    def begin(state: Any, parameters: Parameters) -> Any:
        game, rows = state
        return game, game.reweigh(rows, parameters)

    def decide(state: Any, x: Block, parameters: Parameters, waiting: Any) -> tuple[Any, Decision]:
        game, rows = state
        rows, decision = game.decide(rows, parameters, x.cuts, x.draws.decision)
        middle = decision.kept[2] if isinstance(learner.rule, Drawn) else None
        return (game, rows), Decision(decision.answer & x.active, decision.P, decision.kept, middle)

    def learn(state: Any, x: Block, decision: Decision, parameters: Parameters) -> tuple[Any, Any]:
        game, rows = state
        made = GameDecision(decision.answered & x.active, decision.probability, decision.kept)
        # a round that is not active is an abstention that counts nothing
        weight = jnp.where(x.active, parameters.weight, 0.0)
        return (game, game.learn(rows, parameters, x.cuts, made, x.errors, weight)), ()

    def end(state: Any, carry: Any, changes: Any) -> Any:
        return carry

    def masses(state: Any, parameters: Parameters, arms: int) -> Any:
        game, rows = state
        return game.masses(rows, parameters)

    def dense_state(state: Any) -> Any:
        game, rows = state
        return game.dense_losses(rows)

    return backend_of_halves(init, Halves(begin, decide, learn, end, masses), dense_state=dense_state)


make = partial(make_backend, {Sided: weighted, Drawn: weighted})
