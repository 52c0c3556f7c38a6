"""Adaptive environments: what they ask next may depend on what the learner decided before.

They are written in JAX for one game, and the engine adds games by ``vmap``. An environment never sees the learner's
random draw of the round or the key that generates it. It declares whether it sees the learner's distribution.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from exaul.kernels.game import compute_cuts


class AdaptivePool(NamedTuple):
    """What an environment may ask: N records of all its sources, sorted by group."""

    cuts: Any  # [N] int32
    errors: Any  # [N] float64 in [0, 1]
    scores: Any  # [N] float64 in [0, 1]
    counts: Any  # [N] int32, how often a record is there
    group_starts: Any  # [G] int32, the first record of each group
    group_sizes: Any  # [G] int32
    group_error_rates: Any  # [G] float64, mean error
    error_rate: Any  # [] mean error of all
    by_error: Any  # [N] int32, the records in increasing order of error
    grid: Any  # [H] thresholds
    key: tuple[Any, Any]  # two uint32 [], of what is drawn once for all trials


class Objective(NamedTuple):
    """What the learner of a game is scored by, and the values of the environment's tunables."""

    alpha: Any  # []
    answer_cost: Any  # [], loss of an answer per unit of error
    abstain_cost: Any  # [], loss of an abstention
    tunable_values: Any  # [tunables], in the order in which the environment names them
    # [tunables] int32, the values of tuning, not batched: vmap turns a branch on a batched value into a select
    choices: Any = ()


class AskedRecord(NamedTuple):
    """What the learner is asked; ``describe_case`` is the environment's own note, for when it sees the decision."""

    cut: Any  # [] int32 in 1..H-1
    error: Any  # [] float64 in [0, 1]
    note: Any = ()


class Tunable(NamedTuple):
    """A parameter of an environment: a number between two bounds, or one of some words, numbered from 0."""

    name: str
    default: float
    low: float
    high: float
    words: tuple[str, ...] = ()

    def value(self, text: str) -> float:
        """Convert a text to a number; NaN where it is not one."""
        if self.words:
            return float(self.words.index(text)) if text in self.words else math.nan
        try:
            return float(text)
        except ValueError:
            return math.nan

    @property
    def allowed(self) -> str:
        """Describe the allowed values."""
        return f"one of {', '.join(self.words)}" if self.words else f"a number from {self.low:g} to {self.high:g}"


def word_tunable(name: str, *words: str) -> Tunable:
    """A tunable that is one of some words, by default the first."""
    return Tunable(name, 0.0, 0.0, len(words) - 1.0, words)


class Adaptive(NamedTuple):
    """An environment that may react, written for one game.

    ``init(world)`` returns the state before round 1. ``ask(state, world, aim, draws, masses)`` returns the next
    question, from uniforms ``draws`` [``draws``] and, where ``sees_masses``, the learner's probabilities of the
    arms ``masses`` [H] (else None). ``see(state, question, answered)`` returns the state after the decision.
    ``sees`` describes, for figures, what the environment knows. If ``uses_records_once`` is true, the environment
    has at most as many records as a trial has rounds, and stores equal ones once, with their count. A tunable
    ``groups``, of the words ``source`` and ``score``, says what the groups of records are where the logs name none.
    """

    sources: int
    draws: int
    init: Callable[[AdaptivePool], Any]
    ask: Callable[[Any, AdaptivePool, Objective, Any, Any], AskedRecord]
    see: Callable[[Any, AskedRecord, Any], Any]
    tunables: tuple[Tunable, ...] = ()
    sees: str = ""
    sees_masses: bool = False
    uses_records_once: bool = False


def tunable_choices(environment: Adaptive, tuning: NDArray[np.float64]) -> NDArray[np.int32]:
    """Select the values of the tunables that are words, as [tunables] int32; 0 for numbers."""
    return np.array(
        [int(x) if one.words else 0 for one, x in zip(environment.tunables, tuning, strict=True)], np.int32
    )


BINS = 10  # of the score in each source, where they are the groups


def make_pool(
    grid: NDArray[np.float64],
    scores: Sequence[NDArray[np.float64]],
    errors: Sequence[NDArray[np.float64]],
    groups: Sequence[NDArray[Any] | str],
    most: int | None,
    key: tuple[Any, Any],
) -> AdaptivePool:
    """The records of some sources, sorted by group.

    Args:
        grid: [H] thresholds.
        scores: of each source, [N].
        errors: of each source, [N].
        groups: of each source, labels [N], ``score`` for ten equal bins of the score, or ``source`` for one group.
        most: how many records are drawn, equal ones stored once, with their count; None for all as they are.
        key: two uint32, which also seed the draw.
    """
    labels, known = [], 0
    for f, group in zip(scores, groups, strict=True):
        names: NDArray[Any] = np.zeros(len(f), int) if isinstance(group, str) else group
        if isinstance(group, str) and group == "score":
            names = np.minimum((f * BINS).astype(int), BINS - 1)
        _, label = np.unique(names, return_inverse=True)
        labels.append(label + known)
        known += int(label.max()) + 1
    label, score, error = np.concatenate(labels), np.concatenate(scores), np.concatenate(errors)
    count: NDArray[np.integer] = np.ones(len(label), np.int32)
    if most is not None:
        rng = np.random.default_rng([int(x) for x in key])
        chosen = rng.permutation(len(label))[:most]
        kinds = np.column_stack([compute_cuts(grid, score), error])[chosen]
        _, first, count = np.unique(kinds, axis=0, return_index=True, return_counts=True)
        score, error = score[chosen][first], error[chosen][first]
        _, label = np.unique(label[chosen][first], return_inverse=True)
    order = np.argsort(label, kind="stable")
    sizes = np.bincount(label)
    return AdaptivePool(
        compute_cuts(grid, score)[order],
        error[order],
        score[order],
        count[order].astype(np.int32),
        (np.cumsum(sizes) - sizes).astype(np.int32),
        sizes.astype(np.int32),
        np.bincount(label, weights=error) / sizes,
        error.mean(),
        np.argsort(error[order], kind="stable").astype(np.int32),
        grid,
        key,
    )


def draw_index(weights: Any, draw: Any) -> jax.Array:
    """Draw an index in 0..N-1 with probability proportional to the weights [N], from one uniform."""
    cumulative = jnp.cumsum(weights)
    return jnp.minimum(jnp.sum(cumulative <= draw * cumulative[-1], dtype=jnp.int32), weights.size - 1)


def draw_record(pool: AdaptivePool, group: Any, draw: Any) -> jax.Array:
    """Draw a record of a group, from one uniform, with replacement."""
    size = jnp.asarray(pool.group_sizes)[group]
    place = jnp.minimum((draw * size.astype(draw.dtype)).astype(jnp.int32), size - 1)
    return jnp.asarray(pool.group_starts)[group] + place
