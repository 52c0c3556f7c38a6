"""``gradual-shift``: round t comes from the second pool with probability t / T."""

from collections.abc import Callable
from typing import Any

from exaul.engine.environments.oblivious import Oblivious


def choose_pool(where: Callable[..., Any], t: Any, horizon: Any, u: Any) -> Any:
    """Return 1, the second pool, with probability ``t / T``, else 0."""
    return where(u < t / horizon, 1, 0)


gradual_shift = Oblivious(sources=2, shuffled=True, choose_pool=choose_pool)
