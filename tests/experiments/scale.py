"""Experiments at a scale that tests can afford."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

from experiments.paper import Paper


@contextmanager
def small_scale(horizon: int = 3_000, trials: int = 3) -> Iterator[None]:
    """Limit the rounds and trials of every sweep that an experiment makes."""
    full = Paper.sweep

    def sweep(paper, **fields):
        unlimited = full(paper, **fields)
        return replace(unlimited, horizon=min(unlimited.horizon, horizon), trials=min(unlimited.trials, trials))

    with mock.patch.object(Paper, "sweep", sweep):
        yield
