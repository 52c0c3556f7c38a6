"""Adaptive environments: the next record may depend on the learner's earlier decisions.

An environment is written in JAX for one game; the engine adds games with ``vmap``. It never sees the learner's
uniform of the round or the key that generates it, and the learner's distribution only if it declares so.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine.checks import BadInput
from exaul.engine.logs.log import Records
from exaul.kernels import uniforms
from exaul.kernels.game import Array, compute_cuts

if TYPE_CHECKING:
    import jax


class AdaptivePool(NamedTuple):
    """The N records that an environment may ask, from all its sources, sorted by group."""

    cuts: Array  # [N] int32 in 1..H-1
    errors: Array  # [N] float64 in [0, 1]
    scores: Array  # [N] float64 in [0, 1]
    counts: Array  # [N] int32, number of equal records that a row stands for
    group_starts: Array  # [G] int32, index of the first record of each group
    group_sizes: Array  # [G] int32, number of records of each group
    group_error_rates: Array  # [G] float64 in [0, 1], mean error of its rows, whatever their ``counts``
    error_rate: Array  # [] float64 in [0, 1], mean error of all rows, whatever their ``counts``
    by_error: Array  # [N] int32, indices of the records in increasing order of error
    grid: Array  # [H] float64, thresholds
    key: tuple[Array, Array]  # two uint32 [], for draws that all trials share


class Objective(NamedTuple):
    """The learner's objective in a game, and the values of the environment's tunables."""

    alpha: Array  # [] in (0, 1), target FDR
    answer_cost: Array  # [] in [0, 1], loss of an answer per unit of error
    abstain_cost: Array  # [] in [0, 1], loss of an abstention
    tunable_values: Array  # [tunables] float64, in the order of ``Adaptive.tunables``
    # [tunables] int32, the word tunables again, equal for all copies. Not batched: vmap turns a branch on a batched
    # value into a select that computes every branch.
    choices: Array = ()


class AskedRecord(NamedTuple):
    """The record that the learner is asked, and a note that the environment passes to its own ``see``."""

    cut: Array  # [] int32 in 1..H-1
    error: Array  # [] float64 in [0, 1]
    note: Any = ()  # any pytree of arrays


class Tunable(NamedTuple):
    """A parameter of an environment: a number from ``low`` to ``high``, or the index of one of ``words``."""

    name: str  # as in ``tunables`` of a sweep: NAME=VALUE
    default: float  # a number from ``low`` to ``high``
    low: float  # the least value
    high: float  # the largest value
    words: tuple[str, ...] = ()  # empty for a number

    def value(self, text: str) -> float:
        """Convert a text to the stored number; NaN if it is invalid."""
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
    """Return a tunable with the given words; the first is the default."""
    return Tunable(name, 0.0, 0.0, len(words) - 1.0, words)


class Adaptive(NamedTuple):
    """An adaptive environment, written for one game.

    ``init(pool)`` returns the state before round 1. ``ask(state, pool, objective, draws, distribution)`` returns
    the next ``AskedRecord``; draws [``draws``] are uniforms in [0, 1), and ``distribution`` [H] is the learner's
    over the arms, or None unless ``sees_distribution``. ``see(state, question, answered)`` returns the state after
    the decision, with the structure, shapes and dtypes of the first state.

    With ``uses_records_once`` the pool has at most as many records as a trial has rounds, and stores equal ones
    once, with their count. A word tunable ``groups`` (``source`` or ``score``) sets the groups if the logs do not.
    """

    pool_count: int  # number of logs or profiles
    draws: int  # number of uniforms per round
    init: Callable[[AdaptivePool], Any]  # ``init(pool)``
    ask: Callable[[Any, AdaptivePool, Objective, Any, Any], AskedRecord]  # with five arguments, as above
    see: Callable[[Any, AskedRecord, Any], Any]  # ``see(state, question, answered)``; answered is a bool []
    tunables: tuple[Tunable, ...] = ()  # its parameters
    sees_distribution: bool = False  # whether ``ask`` gets the learner's distribution
    uses_records_once: bool = False  # whether a trial asks each record at most once


def read_tunables(name: str, environment: Any, texts: Mapping[str, str]) -> NDArray[np.float64]:
    """Return the values of an environment's tunables, [tunables]: from ``texts`` by name, else the default.

    Raises:
        BadInput: one is unknown or out of range; an oblivious environment has none.
    """
    tunables = {x.name: x for x in environment.tunables} if isinstance(environment, Adaptive) else {}
    for key, text in texts.items():
        if key not in tunables:
            names = ", ".join(tunables) or "none"
            raise BadInput(f"tunables: {name} has no tunable {key!r}; it has: {names}")
        if not tunables[key].low <= tunables[key].value(text) <= tunables[key].high:
            raise BadInput(f"tunables: {key}={text} found; it must be {tunables[key].allowed}")
    return np.array([x.value(texts[key]) if key in texts else x.default for key, x in tunables.items()])


def tunable_choices(environment: Adaptive, values: NDArray[np.float64]) -> NDArray[np.int32]:
    """Return the word tunables among ``values`` [tunables], as int32, with 0 for the others."""
    are_words = np.array([bool(tunable.words) for tunable in environment.tunables], bool)
    return np.where(are_words, values, 0).astype(np.int32)


BINS = 10  # groups of each source with ``groups=score`` (chosen)


def make_pool(
    environment: Adaptive,
    values: NDArray[np.float64],
    seed: int,
    horizon: int | None,
    grid: NDArray[np.float64],
    records: Sequence[Records],
) -> AdaptivePool:
    """Combine the records of some sources, sorted by group, as the environment of a sweep asks them.

    Args:
        environment: the one that asks.
        values: of its tunables, [tunables].
        seed: of the sweep, from which an environment that uses records once draws ``horizon`` of them.
        horizon: T; None for all records.
        grid: [H] thresholds.
        records: of each source. Without groups they have those of the tunable ``groups``: ``score`` (ten equal
            bins of the score) or ``source`` (one group).
    """
    words = {x.name: x.words[int(value)] for x, value in zip(environment.tunables, values, strict=True) if x.words}
    first_word, second_word = uniforms.trial_keys(seed, uniforms.ENVIRONMENT_STREAM, uniforms.NO_TRIAL)
    key = first_word[0], second_word[0]
    labels, group_count = [], 0
    for source in records:
        names = np.zeros(len(source.scores), int) if source.groups is None else source.groups
        if source.groups is None and words.get("groups") == "score":
            names = np.minimum((source.scores * BINS).astype(int), BINS - 1)
        _, label = np.unique(names, return_inverse=True)
        labels.append(label + group_count)
        group_count += int(label.max()) + 1
    label = np.concatenate(labels)
    score, error = (np.concatenate(x) for x in zip(*((r.scores, r.errors) for r in records), strict=True))
    count: NDArray[np.integer] = np.ones(len(label), np.int32)
    if environment.uses_records_once and horizon is not None:
        # equal records are merged into the first
        chosen = np.random.default_rng([int(x) for x in key]).permutation(len(label))[:horizon]
        kinds = np.column_stack([compute_cuts(grid, score), error])[chosen]
        _, first, count = np.unique(kinds, axis=0, return_index=True, return_counts=True)
        score, error = score[chosen][first], error[chosen][first]
        _, label = np.unique(label[chosen][first], return_inverse=True)
    order = np.argsort(label, kind="stable")  # stable: the order within a group is part of the result
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


def draw_index(weights: "jax.Array", draw: "jax.Array") -> "jax.Array":
    """Draw an index in 0..N-1 with probability proportional to the weights [N], from one uniform in [0, 1)."""
    import jax.numpy as jnp  # imported here: sweeps without adaptive environments import this file, too

    cumulative = jnp.cumsum(weights)
    # draw * sum can round up to the sum itself: clip the index
    return jnp.minimum(jnp.sum(cumulative <= draw * cumulative[-1], dtype=jnp.int32), weights.size - 1)


def draw_record(pool: AdaptivePool, group: "jax.Array", draw: "jax.Array") -> "jax.Array":
    """Draw the index of a record of a group, with replacement, from one uniform in [0, 1)."""
    import jax.numpy as jnp

    size = jnp.asarray(pool.group_sizes)[group]
    offset = jnp.minimum((draw * size.astype(draw.dtype)).astype(jnp.int32), size - 1)
    return jnp.asarray(pool.group_starts)[group] + offset
