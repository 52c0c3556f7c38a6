"""``gradual-shift``: round t comes from the second pool with probability t / T."""

from collections.abc import Callable
from typing import Any

from exaul.engine.environments.oblivious import Oblivious


def pool(where: Callable[..., Any], t: Any, horizon: Any, u: Any) -> Any:
    """The second pool, number 1, with probability ``t / T``."""
    return where(u < t / horizon, 1, 0)


gradual_shift = Oblivious(sources=2, shuffled=True, pool=pool)
