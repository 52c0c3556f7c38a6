"""Environments as pure functions of one game, for a JAX program of your own: the games of a sweep's trials."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from exaul.engine import registry
from exaul.engine.checks import BadInput, check_holds
from exaul.engine.environments.adaptive import (
    Adaptive,
    AdaptivePool,
    Objective,
    make_seeded_pool,
    read_tunables,
    tunable_choices,
)
from exaul.engine.environments.oblivious import Oblivious
from exaul.kernels import uniforms
from exaul.kernels.game import ROUNDS, compute_cuts
from exaul.kernels.play import at_block, loss_costs, play, play_round
from exaul.kernels.records import Pool, StreamPlan, Streams, make_streams, read_block


class GameKey(NamedTuple):
    """Keys of a game's uniforms, two uint32 [] each; [trials] from ``keys``, to ``vmap`` over."""

    learner: Any
    environment: Any
    records: Any


class GamePool(NamedTuple):
    """What an adaptive environment asks from, and its numbers."""

    records: AdaptivePool
    tunables: Any  # [tunables], any of which may be an axis of a ``vmap``, but for words


def keys(seed: int, trials: int | Sequence[int]) -> GameKey:
    """Return the keys of a sweep's trials, by number or the first ``trials``."""
    numbers = np.arange(trials) if isinstance(trials, int) else np.asarray(trials)
    streams = uniforms.LEARNER, uniforms.ENVIRONMENT, uniforms.RECORDS
    return GameKey(*(uniforms.trial_keys(seed, stream, numbers) for stream in streams))


@jax.tree_util.register_static
@dataclass(frozen=True)
class ObliviousGame:
    """Records that do not depend on decisions."""

    plan: StreamPlan

    def records(self, pool: Pool, key: GameKey, horizon: int) -> tuple[Any, Any]:
        """Return the cuts [T] and the errors [T] of a game."""
        number = np.arange(ROUNDS, ROUNDS + len(self.plan.shapes), dtype=np.uint32)  # as of ``make_streams``
        words = tuple(map(jnp.asarray, key.records))
        orders = tuple(x[:, None] for x in uniforms.threefry(words, (np.zeros_like(number), number)))
        stream = tuple(word[None] for word in words)
        arrays: Any = jnp.asarray(pool.cuts), jnp.asarray(pool.errors), np.int64(horizon), stream, orders
        streams = Streams(self.plan, *arrays)

        def block(read: Any, number: Any) -> tuple[Any, Any]:
            cuts, errors, read = read_block(streams, read, number)
            return read, (cuts[:, 0], errors[:, 0])

        blocks = jnp.arange(-(-horizon // ROUNDS), dtype=jnp.uint32)
        _, (cuts, errors) = jax.lax.scan(block, jnp.zeros((len(self.plan.shapes), 1), jnp.uint32), blocks)
        return cuts.reshape(-1)[:horizon], errors.reshape(-1)[:horizon]

    def play(self, learner: Any, params: Any, pool: Pool, key: GameKey, horizon: int) -> tuple[Any, Any, Any]:
        """Play one game; see ``play_in``."""
        cuts, errors = self.records(pool, key, horizon)
        return play(learner, params, cuts, errors, _uniforms(key.learner, horizon)), cuts, errors


@jax.tree_util.register_static
@dataclass(frozen=True)
class AdaptiveGame:
    """Records that may depend on earlier decisions."""

    environment: Adaptive
    words: tuple[int, ...]  # numbers of the word tunables

    def _objective(self, pool: GamePool, params: Any) -> Objective:
        return Objective(params.alpha, *loss_costs(params), pool.tunables, np.array(self.words, np.int32))

    def init(self, pool: GamePool) -> Any:
        """Return the state before round 1."""
        return jax.tree.map(jnp.asarray, self.environment.init(jax.tree.map(jnp.asarray, pool.records)))

    def ask(self, state: Any, pool: GamePool, params: Any, draws: Any, masses: Any = None) -> Any:
        """Return the next question, with ``cut`` and ``error``.

        ``draws`` are ``environment.draws`` uniforms; ``masses`` [H] those of the learner, if
        ``environment.sees_masses``.
        """
        return self.environment.ask(state, pool.records, self._objective(pool, params), draws, masses)

    def see(self, state: Any, question: Any, answer: Any) -> Any:
        """Return the state after the decision."""
        return self.environment.see(state, question, answer)

    def play(self, learner: Any, params: Any, pool: GamePool, key: GameKey, horizon: int) -> tuple[Any, Any, Any]:
        """Play one game; see ``play_in``."""
        width = self.environment.draws
        parts = [_uniforms(key.environment, horizon, ROUNDS * i) for i in range(width)]
        draws = jnp.stack(parts, axis=-1) if parts else jnp.zeros((horizon, 0))

        def one(carry: Any, x: Any) -> tuple[Any, Any]:
            (mine, state), (t, u, draws) = carry, x
            now, mine = at_block(learner, params, mine, t)
            objective = self._objective(pool, now)
            given = learner, self.environment, pool.records, (mine, state), now, objective
            return play_round(*given, uniforms.Draws(u), draws, True)

        rounds = jnp.arange(horizon), _uniforms(key.learner, horizon), draws
        answers, cuts, errors = jax.lax.scan(one, (learner.init(params), self.init(pool)), rounds)[1]
        return answers, cuts, errors


def _uniforms(key: Any, horizon: int, first: int = 0) -> Any:
    """Return the uniforms [T] of a game."""
    t = np.arange(horizon, dtype=np.uint32)
    return uniforms.uniform(tuple(map(jnp.asarray, key)), t // ROUNDS, t % ROUNDS + np.uint32(first))


def environment(
    name: str,
    scores: Any,
    errors: Any,
    grid: Any,
    *,
    horizon: int | None = None,
    seed: int = 0,
    tunables: Mapping[str, Any] | None = None,
) -> tuple[Any, Any]:
    """Return an environment as pure functions of one game, and the records that it asks.

    Args:
        name: of an environment, or ``module:name``.
        scores: [N] in [0, 1]; two such arrays if the environment has two sources.
        errors: [N] in [0, 1], 1 if wrong; two such arrays if it has two sources.
        grid: [H] thresholds.
        horizon: T, which environments need that ask each record once.
        seed: of draws that all games share, as of a sweep.
        tunables: parameters of an adaptive environment.

    Raises:
        BadInput: the environment or a tunable is unknown, or the number of sources is another.
    """
    made = registry.resolve("environment", name, registry.ENVIRONMENTS, (Oblivious, Adaptive))
    two = isinstance(scores, list | tuple) and np.ndim(scores[0]) == 1
    scores, errors = (
        [np.asarray(x, np.float64) for x in (values if two else [values])] for values in (scores, errors)
    )
    wanted = f"{made.sources} array{'s' if made.sources > 1 else ''}, as {name} has that many sources"
    check_holds("scores", len(scores), len(scores) == made.sources == len(errors), wanted)
    grid = np.asarray(grid, np.float64)
    texts = {key: str(value) for key, value in (tunables or {}).items()}
    values = read_tunables(name, made, texts)
    if isinstance(made, Oblivious):
        pools = [Pool(compute_cuts(grid, f), e) for f, e in zip(scores, errors, strict=True)]
        streams = make_streams(made.choose_pool, made.shuffled, pools, horizon or 1, seed, np.zeros(1, np.int64))
        return ObliviousGame(streams.plan), Pool(streams.cuts, streams.errors)
    if made.uses_records_once and horizon is None:
        raise BadInput(f"horizon: not given; {name} asks each record once, and needs as many as there are rounds")
    records = make_seeded_pool(made, values, seed, horizon, grid, scores, errors, [None] * made.sources)
    return AdaptiveGame(made, tuple(tunable_choices(made, values).tolist())), GamePool(records, values)


def play_in(
    learner: Any, params: Any, environment: Any, pool: Any, key: GameKey, horizon: int
) -> tuple[Any, Any, Any]:
    """Play one game against an environment: the trial of a sweep with this key. ``vmap`` it.

    Args:
        learner: from ``exaul.make``, or an object with ``init``, ``decide`` and ``learn`` (and ``masses``, if the
            environment sees them).
        params: the learner's numbers.
        environment, pool: from ``environment``.
        key: of one game, from ``keys``.
        horizon: T.

    Returns:
        answers [T] bool, cuts [T] int32 and errors [T] float64, as ``regret`` takes them.
    """
    answers, cuts, errors = environment.play(learner, params, pool, key, horizon)
    return answers, cuts, errors
