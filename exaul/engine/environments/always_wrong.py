"""``always-wrong``: every answer is wrong, whatever its score (the paper's discussion)."""

from typing import Any

import jax.numpy as jnp

from exaul.engine.environments.adaptive import Adaptive, AdaptivePool, AskedRecord, Objective


def init(pool: AdaptivePool) -> tuple[Any, ...]:
    """Return an empty state."""
    return ()


def ask(state: tuple[Any, ...], pool: AdaptivePool, objective: Objective, draws: Any, masses: None) -> AskedRecord:
    """Draw any record, and replace its error by 1."""
    size = pool.cuts.shape[0]
    record = jnp.minimum((draws[0] * size).astype(jnp.int32), size - 1)
    return AskedRecord(jnp.asarray(pool.cuts)[record], jnp.ones(()))


def see(state: tuple[Any, ...], question: AskedRecord, answered: Any) -> tuple[Any, ...]:
    """Return the empty state."""
    return ()


always_wrong = Adaptive(sources=1, draws=1, init=init, ask=ask, see=see, sees="nothing")
