"""Worlds by the names that tables have: an environment, and after a colon the values of its tunables, if any."""

from typing import Any

from exaul.engine import registry
from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.environments.oblivious import Oblivious


def fields(name: str) -> dict[str, Any]:
    """The fields of ``Sweep`` that make a world, such as ``adversary-omniscient:objective=regret``."""
    environment, _, values = name.partition(":")
    return {"environment": environment, "world": tuple(values.split(",")) if values else ()}


def environment(name: str) -> Oblivious | Adaptive:
    """The environment of a world."""
    return registry.load(registry.ENVIRONMENTS[name.partition(":")[0]])


def segments(name: str) -> int:
    """How many segments of one source each the rounds of a world fall into."""
    return getattr(environment(name), "parts", 1)
