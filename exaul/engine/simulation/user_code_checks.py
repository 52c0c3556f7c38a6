"""Try a user's learner or environment briefly before a sweep, so that its errors are reported at once."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exaul.engine.checks import BadInput
from exaul.engine.environments.adaptive import Adaptive, AdaptivePool, Objective
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.simulation.device_check import CHECK_ENVIRONMENT, record_decisions
from exaul.engine.simulation.players import Player
from exaul.engine.simulation.user_code import TRACED, user_code_errors
from exaul.kernels.backends import native
from exaul.kernels.feedback import PERFECT_FEEDBACK
from exaul.kernels.records import Pool, make_streams


def try_learner(player: Player, environment: Oblivious | Adaptive) -> None:
    """Simulate a user's learner for some rounds, because its rule is compiled only on first use."""
    check_environment = environment if isinstance(environment, Oblivious) else CHECK_ENVIRONMENT
    record_decisions(player.learner, player.backend, check_environment, player.feedback != PERFECT_FEEDBACK)


def check_choose_pool(name: str, environment: Oblivious, horizon: int) -> None:
    """Try a user's ``choose_pool`` on arrays and compiled; BadInput if it fails or returns no valid pool."""
    t, u = np.linspace(1, horizon, 1000).astype(np.int64), np.linspace(0, 1, 1000, endpoint=False)
    nothing = Pool(np.ones(1, np.int32), np.zeros(1))
    streams = make_streams(
        environment.choose_pool, False, [nothing] * environment.sources, horizon, 0, np.zeros(1, np.int64)
    )
    records_read = streams.no_records_read().astype(np.int64)
    with user_code_errors("environment: choose_pool of", name):
        chosen = np.asarray(environment.choose_pool(np.where, t, horizon, u))
        native.fill(streams, records_read, 0, 1, np.ones((1, 1), np.int32), np.zeros((1, 1)))
    outside = chosen[(chosen < 0) | (chosen >= environment.sources)]
    if outside.size:
        wanted = f"it must be from 0 to {environment.sources - 1}"
        raise BadInput(f"environment: choose_pool of {name} returns {outside.flat[0]}; {wanted}")


def check_adaptive(name: str, environment: Adaptive, pool: AdaptivePool, objective: Objective) -> None:
    """Try a user's adaptive environment on a round of two copies; BadInput if a function or its result is wrong."""
    arms = len(pool.grid)

    def one_round(pool: AdaptivePool, objective: Objective, answered: Any) -> tuple[Any, Any, Any, Any]:
        state = jax.tree.map(jnp.asarray, environment.init(pool))
        draws, masses = jnp.full(environment.draws, 0.5), jnp.full(arms, 1 / arms)
        question = environment.ask(state, pool, objective, draws, masses if environment.sees_masses else None)
        return question.cut, question.error, state, environment.see(state, question, answered)

    with user_code_errors("environment: functions of", name, TRACED), jax.enable_x64(True):
        games = jax.jit(jax.vmap(one_round, in_axes=(None, None, 0)))
        cut, error, before, after = games(pool, objective, np.array([True, False]))
        form, other = (jax.tree.map(lambda x: (x.shape[1:], str(x.dtype)), state) for state in (before, after))
    field = f"environment: {name}"
    if form != other:
        raise BadInput(f"{field}: see returns a state of form {other}; it must be that of init, {form}")
    for what, value, kind, low, high in (("cut", cut, "iu", 1, arms - 1), ("error", error, "f", 0, 1)):
        if value.shape != (2,) or value.dtype.kind not in kind:
            kinds = f"{value.dtype} of shape {value.shape[1:]}"
            raise BadInput(f"{field}: ask returns {what} as {kinds}; it must be as in AskedRecord")
        if not np.all((value >= low) & (value <= high)):
            raise BadInput(
                f"{field}: ask returns {what} {np.asarray(value).tolist()}; it must be from {low} to {high}"
            )
