"""Worlds by the names that tables have: an environment, and after a colon the values of its tunables, if any."""

from typing import Any

from exaul.engine import registry
from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.environments.oblivious import Oblivious


def sweep_fields(name: str) -> dict[str, Any]:
    """The fields of ``Sweep`` that make an environment, such as ``adversary-omniscient:objective=regret``."""
    environment, _, values = name.partition(":")
    return {"environment": environment, "tunables": tuple(values.split(",")) if values else ()}


def load_environment(name: str) -> Oblivious | Adaptive:
    """The environment of an environment."""
    return registry.load_object(registry.ENVIRONMENTS[name.partition(":")[0]])


def count_segments(name: str) -> int:
    """How many segments of one source each the rounds of an environment fall into."""
    return getattr(load_environment(name), "parts", 1)
