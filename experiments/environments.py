"""Environments by their names in tables: a name, and after a colon the values of its tunables, if any."""

from typing import Any

from exaul.engine import registry
from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.environments.oblivious import Oblivious


def sweep_fields(name: str) -> dict[str, Any]:
    """Return the fields of ``Sweep`` for a name such as ``adversary-omniscient:objective=regret``."""
    environment, _, values = name.partition(":")
    return {"environment": environment, "tunables": tuple(values.split(",")) if values else ()}


def load_environment(name: str) -> Oblivious | Adaptive:
    """Return the environment of a name."""
    return registry.load_object(registry.ENVIRONMENTS[name.partition(":")[0]])


def count_segments(name: str) -> int:
    """Return the number of segments of one source each in the rounds of an environment."""
    return getattr(load_environment(name), "segments", 1)
