"""Environments as pure functions of one game: the games of a sweep's trials, for your own JAX program."""

from __future__ import annotations  # so that help() prints ArrayLike, not all that it stands for

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from exaul.engine import registry
from exaul.engine.checks import INTEGER_LIMIT, BadInput, check_count, check_holds
from exaul.engine.environments import adaptive
from exaul.engine.environments.adaptive import Adaptive, AdaptivePool, AskedRecord, Objective
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.functional import VMAP, check_params, check_precision, check_range, cuts
from exaul.engine.logs.log import Records
from exaul.engine.simulation.user_code import check_adaptive, check_choose_pool
from exaul.kernels import play as kernel
from exaul.kernels import uniforms
from exaul.kernels.game import BLOCK, Array
from exaul.kernels.play import GameLearner, LearnerParams, at_round, loss_costs, play_round
from exaul.kernels.records import Pool, StreamPlan, make_streams, read_block, with_keys

Game = tuple[jax.Array, jax.Array, jax.Array]  # answers [T] bool, cuts [T] int32 and errors [T] float64


class GameKey(NamedTuple):
    """The keys of a game's uniforms, two uint32 [] each; [trials] from ``keys``, to ``vmap`` over."""

    learner: tuple[Array, Array]  # of decisions
    environment: tuple[Array, Array]  # of an adaptive environment
    records: tuple[Array, Array]  # of the order of records


class GamePool(NamedTuple):
    """The records that an adaptive environment asks, and its tunables."""

    records: AdaptivePool  # sorted by group
    tunables: Array  # [tunables] float64, their values; ``vmap`` may batch those that are numbers, not words


def keys(seed: int, trials: int | Sequence[int]) -> GameKey:
    """Return the keys of a sweep's trials.

    Args:
        seed: in 0..2**64-1, of the sweep.
        trials: how many, from the first; or their numbers [trials], from 0.

    Returns:
        The keys, arrays [trials], to ``vmap`` over; ``jax.tree.map(lambda x: x[0], keys)`` is that of one game.

    Raises:
        BadInput: a number is out of its range.
    """
    check_holds("seed", seed, isinstance(seed, Integral) and 0 <= seed < 2**64, "an integer from 0 to 2**64 - 1")
    numbers = np.asarray(trials)
    check_holds("trials", trials, numbers.dtype.kind in "iu", "integers")
    numbers = numbers if numbers.ndim else np.arange(numbers.item())
    check_range("trials", numbers if numbers.size else trials, 0 if numbers.size else 1, INTEGER_LIMIT)
    streams = uniforms.LEARNER_STREAM, uniforms.ENVIRONMENT_STREAM, uniforms.RECORDS_STREAM
    return GameKey(*(uniforms.trial_keys(seed, stream, numbers) for stream in streams))


@jax.tree_util.register_static
@dataclass(frozen=True)
class ObliviousEnvironment:
    """Records that do not depend on decisions."""

    arms: int  # H, the number of thresholds
    plan: StreamPlan  # which record comes in a round
    rounds: int  # largest number of rounds of a game

    def play(self, learner: GameLearner, params: LearnerParams, pool: Any, key: GameKey, horizon: int) -> Game:
        """Play one game; see ``play_in``."""
        arrays = jnp.asarray(pool.cuts), jnp.asarray(pool.errors)
        streams = with_keys(self.plan, *arrays, horizon, jax.tree.map(lambda x: jnp.asarray(x)[None], key.records))

        def block(records_read: Any, number: Any) -> tuple[Any, Any]:
            cuts, errors, records_read = read_block(streams, records_read, number)
            return records_read, (cuts[:, 0], errors[:, 0])

        blocks = jnp.arange(-(-horizon // BLOCK), dtype=jnp.uint32)
        first = kernel.first_carry(streams.no_records_read(), pool, key)
        cuts, errors = (x.reshape(-1)[:horizon] for x in jax.lax.scan(block, first, blocks)[1])
        return kernel.play(learner, params, cuts, errors, _uniforms(key.learner, horizon, 1)[:, 0]), cuts, errors


@jax.tree_util.register_static
@dataclass(frozen=True)
class AdaptiveEnvironment:
    """Records that may depend on earlier decisions."""

    arms: int  # H, the number of thresholds
    environment: Adaptive  # its functions of one game
    choices: tuple[int, ...]  # from ``tunable_choices``
    rounds: int  # largest number of rounds of a game

    def _objective(self, pool: GamePool, params: Any) -> Objective:
        return Objective(params.alpha, *loss_costs(params), pool.tunables, np.array(self.choices, np.int32))

    def init(self, pool: GamePool) -> Any:
        """Return the environment's state before round 1, a pytree of arrays."""
        return jax.tree.map(jnp.asarray, self.environment.init(jax.tree.map(jnp.asarray, pool.records)))

    def ask(
        self, state: Any, pool: GamePool, params: LearnerParams, draws: Array, distribution: Array = None
    ) -> AskedRecord:
        """Return the next question, with its ``cut`` and ``error``.

        ``draws`` [``environment.draws``] are uniform in [0, 1); ``distribution`` [H] is the learner's, if
        ``environment.sees_distribution``.
        """
        return self.environment.ask(state, pool.records, self._objective(pool, params), draws, distribution)

    def see(self, state: Any, question: AskedRecord, answer: Array) -> Any:
        """Return the environment's state after the decision: ``answer`` [] bool, whether it was answered."""
        return self.environment.see(state, question, answer)

    def play(self, learner: GameLearner, params: LearnerParams, pool: Any, key: GameKey, horizon: int) -> Game:
        """Play one game; see ``play_in``."""

        def one_round(states: Any, x: Any) -> tuple[Any, Any]:
            t, u, draws = x
            current, state = at_round(learner, params, states[0], t)
            inputs = learner, self.environment, pool.records, (state, states[1]), current
            return play_round(*inputs, self._objective(pool, current), uniforms.Draws(u), draws, True)

        draws = _uniforms(key.environment, horizon, self.environment.draws)
        rounds = jnp.arange(horizon), _uniforms(key.learner, horizon, 1)[:, 0], draws
        first = kernel.first_carry((learner.init(params), self.init(pool)), params, pool, rounds)
        return jax.lax.scan(one_round, first, rounds)[1]


def _uniforms(key: Any, horizon: int, count: int) -> Any:
    """Return uniforms [T, count] of a game; the i-th of a round uses a counter from 256 i on."""
    t, first = np.arange(horizon, dtype=np.uint32)[:, None], BLOCK * np.arange(count, dtype=np.uint32)
    return uniforms.uniform(tuple(map(jnp.asarray, key)), t // BLOCK, t % BLOCK + first)


def environment(
    name: str | Oblivious | Adaptive,
    scores: ArrayLike | Sequence[ArrayLike],
    errors: ArrayLike | Sequence[ArrayLike],
    grid: ArrayLike,
    *,
    horizon: int | None = None,
    seed: int = 0,
    tunables: Mapping[str, Any] | None = None,
) -> tuple[ObliviousEnvironment | AdaptiveEnvironment, Pool | GamePool]:
    """Return an environment as pure functions of one game, and the records that it asks.

    Args:
        name: of an environment, ``module:name``, or an ``Oblivious`` or ``Adaptive``.
        scores: [N] in [0, 1], of one log: ``stochastic``, ``replay`` and ``always-wrong``, and your own with one
            pool; two such arrays, of two logs, for the others.
        errors: [N] in [0, 1], 1 if wrong; two such arrays for environments of two logs.
        grid: [H] thresholds, as in ``cuts``.
        horizon: T >= 1, which environments need that ask each record once.
        seed: in 0..2**64-1, of draws that all games share, as in a sweep.
        tunables: parameters of an adaptive environment, by name.

    Returns:
        The environment, a static value, and its records, both for ``play_in``; a ``GamePool`` if it is adaptive.

    Raises:
        BadInput: the environment or a tunable is unknown, a number is out of its range, the environment has another
            number of pools, or your own environment asks for what is not a record.
    """
    entry = registry.resolve("environment", name)
    check_count("horizon", horizon)
    reference = name if isinstance(name, str) else "environment"
    columns: Any = scores, errors
    columns = columns if np.ndim(next(iter(columns[0]), 0)) == 1 else ([scores], [errors])
    columns = [[np.asarray(x, float) for x in column] for column in columns]
    count, lengths = entry.pool_count, [len(column) for column in columns]
    allowed = f"{count} array{'s' if count > 1 else ''}: {reference} plays {'two logs' if count > 1 else 'one log'}"
    check_holds("scores, errors", lengths, lengths == [count, count], allowed)
    thresholds, pools = np.asarray(grid, np.float64), list[Pool]()
    for f, e in zip(*columns, strict=True):
        check_holds("scores, errors", [f.shape, e.shape], f.shape == e.shape != (0,), "of one shape, and not empty")
        check_range("errors", e, 0, 1)
        pools.append(Pool(np.asarray(cuts(thresholds, f)), e))
    values = adaptive.read_tunables(reference, entry, {key: str(x) for key, x in (tunables or {}).items()})
    if isinstance(entry, Oblivious):
        if reference not in registry.ENVIRONMENTS:
            check_choose_pool(reference, entry, horizon or 1)
        streams = make_streams(entry.choose_pool, entry.shuffled, pools, horizon or 1, seed, np.zeros(1, np.int64))
        rounds = INTEGER_LIMIT - 1 if entry.shuffled or count > 1 else len(columns[0][0])
        return ObliviousEnvironment(len(thresholds), streams.plan, rounds), Pool(streams.cuts, streams.errors)
    if entry.uses_records_once and horizon is None:
        raise BadInput(f"horizon: not given; {reference} asks each record once, so it needs as many as rounds")
    sources = [Records(reference, f, e, 0, None) for f, e in zip(*columns, strict=True)]
    records = adaptive.make_pool(entry, values, seed, horizon, thresholds, sources)
    choices, pool = adaptive.tunable_choices(entry, values), GamePool(records, values)
    if reference not in registry.ENVIRONMENTS:
        check_adaptive(reference, entry, records, Objective(0.5, 0.5, 0.5, values, choices))
    rounds = horizon if entry.uses_records_once and horizon is not None else INTEGER_LIMIT - 1
    return AdaptiveEnvironment(len(thresholds), entry, tuple(choices.tolist()), rounds), pool


def play_in(
    learner: GameLearner,
    params: LearnerParams,
    environment: ObliviousEnvironment | AdaptiveEnvironment,
    pool: Pool | GamePool,
    key: GameKey,
    horizon: int,
) -> Game:
    """Play one game against an environment: the trial of a sweep with this key. ``vmap`` it.

    Args:
        learner: from ``exaul.make``, or an object with ``init``, ``decide`` and ``learn``, and ``distribution`` if
            the environment sees it.
        params: the learner's numbers.
        environment, pool: from ``environment``.
        key: of one game, from ``keys``.
        horizon: T >= 1, the number of rounds.

    Returns:
        answers [T] bool, cuts [T] int32 and errors [T] float64, as ``regret`` takes them.

    Raises:
        BadInput: learner and environment have different numbers of thresholds, the game has more rounds than the
            environment was made for, the key is not of one game, or JAX computes in float32.
    """
    check_precision()
    check_count("horizon", horizon)
    check_params(learner, params, horizon)
    check_holds("environment", type(environment).__name__, hasattr(environment, "play"), "from exaul.environment")
    is_key = isinstance(key, GameKey) and all(jnp.shape(x) == () for x in jax.tree.leaves(key))
    check_holds("key", type(key).__name__, is_key, f"one game's key: jax.tree.map(lambda x: x[0], keys); {VMAP}")
    check_holds("horizon", horizon, horizon <= environment.rounds, f"at most {environment.rounds}, its horizon")
    arms, expected = getattr(learner, "arms", environment.arms), environment.arms
    check_holds("learner", f"{arms} thresholds", arms == expected, f"{expected}, as many as the environment has")
    if isinstance(environment, AdaptiveEnvironment) and environment.environment.sees_distribution:
        allowed = "one with distribution(state, params), which the environment sees"
        check_holds("learner", type(learner).__name__, hasattr(learner, "distribution"), allowed)
    return environment.play(learner, params, pool, key, horizon)
