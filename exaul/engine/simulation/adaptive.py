"""Simulate games in adaptive environments: learner and environment alternate, round by round.

    simulate_chunk     jit: games divided over the devices; returns the records asked, for the best arms on the host
      scan             K blocks: uniforms of the block are drawn here
        vmap           B games
          scan         256 rounds of one game: ask, decide, learn, see

Environment and learner run in one compiled program because each needs the other in every round.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from exaul.engine import machine
from exaul.engine.environments.adaptive import Adaptive, AdaptivePool, Objective, tunable_choices
from exaul.engine.simulation.best_arms import ASKED, BestArmCounter, BestArms, Trajectory
from exaul.engine.simulation.oblivious import NO_SAVES, Saves
from exaul.engine.simulation.players import Player
from exaul.engine.simulation.prepare import Prepared
from exaul.engine.simulation.schedule import Schedule, make_schedules
from exaul.engine.simulation.simulation import Totals, allocate, rates_of_blocks
from exaul.engine.simulation.traced import add_to_totals
from exaul.engine.simulation.user_code_checks import check_finite
from exaul.kernels import uniforms
from exaul.kernels.backends.backend import COPY_AXES, Halves, initial_states, step_copy
from exaul.kernels.feedback import PERFECT_FEEDBACK
from exaul.kernels.game import ROUNDS, Block, Copies, Parameters, Rates, SharedParameters
from exaul.kernels.metrics import Floats
from exaul.kernels.uniforms import Draws


class Games(NamedTuple):
    """All that changes on the devices during B games."""

    learner: Any  # state of the learner's backend, [B, ...]
    environment: Any  # state of the environment, [B, ...]
    totals: Totals  # [B]


class Keys(NamedTuple):
    """Keys of all draws, two uint32 [trials] each."""

    learner: Draws
    environment: Any


def _simulate_game(
    halves: Halves,
    environment: Adaptive,
    pool: AdaptivePool,
    learner: Any,
    state: Any,
    parameters: Parameters,
    objective: Objective,
    draws: Draws,
    env_draws: Any,
    active: Any,
) -> tuple[Any, Any, tuple[Any, Any, Any]]:
    """Simulate a block of one game, with uniforms [C] of the learner and [C, .] of the environment."""

    def step(carry: tuple[Any, Any], x: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        (learner, state), (draws, env_draws, active) = carry, x
        # The environment never receives the learner's ``draws``, and the learner's distribution only if it declares
        # so.
        masses = halves.masses(learner, parameters, len(pool.grid)) if environment.sees_masses else None
        question = environment.ask(state, pool, objective, env_draws, masses)
        asked = Block(question.cut, question.error, draws, active)
        learner, outcome, change = step_copy(halves, learner, asked, parameters)
        state = environment.see(state, question, outcome.answered)
        return (learner, state), (outcome.answered, question.cut, question.error, change)

    before = halves.begin(learner, parameters), state
    (carry, state), (*seen, changes) = lax.scan(step, before, (draws, env_draws, active))
    return halves.end(learner, carry, changes), state, tuple(seen)


# ``games`` is donated, as ``now`` in ``traced.simulate_chunk``.
@partial(jax.jit, static_argnames=("halves", "environment"), donate_argnames=("games",))
def simulate_chunk(
    halves: Halves,
    environment: Adaptive,
    games: Games,
    schedule: Schedule,
    rates: Rates,
    copies: Copies,
    objective: Objective,
    keys: Keys,
    pool: AdaptivePool,
    shared: SharedParameters,
) -> tuple[Games, tuple[Totals, Any, Any]]:
    """Simulate K blocks of B games.

    ``rates`` are [K]; ``copies`` and ``objective`` are [B, ...], but ``objective.choices`` [tunables]. Return the
    games after the chunk, the totals [K, S, B] at its checkpoints, and the cuts and errors [K, C, B] asked.
    """
    numbers = jnp.arange(ROUNDS, dtype=jnp.uint32)[:, None]
    in_axes = 0, 0, COPY_AXES, Objective(0, 0, 0, 0, None), 1, 1, None
    game = partial(_simulate_game, halves, environment)

    def on_device(
        games: Any, schedule: Any, rates: Any, copies: Any, objective: Any, keys: Any, pool: Any, shared: Any
    ) -> Any:
        keys = jax.tree.map(lambda x: x[None], keys)
        block_of_games = jax.vmap(partial(game, pool), in_axes=in_axes, out_axes=(0, 0, 1))

        def block(games: Games, x: tuple[Schedule, Rates]) -> tuple[Games, tuple[Totals, Any, Any]]:
            block_schedule, rates = x
            learner_draws = jax.tree.map(
                lambda u: u[:, copies.draw_stream], uniforms.draws(keys.learner, block_schedule.block, numbers)
            )
            drawn = [  # draw i of a round uses the counters from 256 i on: no two draws share one
                uniforms.uniforms(keys.environment, block_schedule.block, numbers + np.uint32(ROUNDS * i))[
                    :, copies.draw_stream
                ]
                for i in range(environment.draws)
            ]
            env_draws = jnp.stack(drawn, axis=-1) if drawn else jnp.zeros((ROUNDS, len(copies.draw_stream), 0))
            parameters = copies.parameters(rates, shared._replace(block=block_schedule.block))
            learner, state, (answered, cut, error) = block_of_games(
                games.learner,
                games.environment,
                parameters,
                objective,
                learner_draws,
                env_draws,
                block_schedule.active,
            )
            wrong = jnp.where(answered, error, 0.0)
            totals, at_checkpoints = add_to_totals(games.totals, answered, wrong, block_schedule.checkpoint_rounds)
            return Games(learner, state, totals), (at_checkpoints, cut, error)

        return lax.scan(block, games, (schedule, rates))

    # axes of copies, as of ``shard_over_devices``
    taken, returned = (0, -1, -1, 0, Objective(0, 0, 0, 0, -1), -1, -1, -1), (0, 2)
    sharded = machine.shard_over_devices(on_device, taken, returned)
    return sharded(games, schedule, rates, copies, objective, keys, pool, shared)


def initial_environment_states(environment: Adaptive, pool: AdaptivePool, copies: int) -> Any:
    """Return the state of an environment before round 1, repeated for B copies, [B, ...]."""
    state = environment.init(jax.tree.map(jnp.asarray, pool))
    return jax.tree.map(lambda x: jnp.repeat(jnp.asarray(x)[None], copies, axis=0), state)


class Counted(NamedTuple):
    """Counts on the host, up to the last checkpoint reached; arrays are updated in place."""

    answered: NDArray[np.int64]  # [P, B]
    wrong: Floats  # [P, B]
    asked: dict[str, Floats]  # [P, B] for each kind of record
    running: dict[str, Floats]  # [B] for each kind, at the end of the last chunk
    reached: Any  # number of checkpoints reached


class Interaction:
    """B copies of a learner against an environment."""

    def __init__(
        self,
        player: Player,
        environment: Adaptive,
        pool: AdaptivePool,
        copies: Copies,
        tuning: Floats,
        trials: NDArray[np.int64],
        seed: int,
        checkpoints: NDArray[np.int64],
        cell: NDArray[np.intp],
        make: Callable[..., Any] = allocate,
    ) -> None:
        """Prepare round 1.

        ``player`` has a backend with halves. ``copies`` [B] are all trials of the first cell, then of the next,
        each with its own stream of records. ``tuning`` is [B, tunables], with equal word tunables for all copies;
        ``trials`` are by number, ``checkpoints`` [P] rounds, the last the horizon;
        ``cell`` [B] are the player's. ``make=jax.eval_shape`` allocates nothing on the devices, for ``lowered``.
        """
        self.player, self.environment, self.pool, self.checkpoints = player, environment, pool, checkpoints
        self.count = len(copies.draw_stream)
        padded = machine.padded_indices(self.count)
        scored = copies.take(padded)
        self.copies = player.with_aim(scored)
        choices = tunable_choices(environment, tuning[0])
        self.objective = Objective(scored.alpha, scored.answer_cost, scored.abstain_cost, tuning[padded], choices)
        draw_keys = uniforms.draw_keys(seed, trials, player.feedback != PERFECT_FEEDBACK)
        self.keys = Keys(draw_keys, uniforms.trial_keys(seed, uniforms.ENVIRONMENT, trials))
        arms, kernels = len(pool.grid), player.backend.traced
        start = player.start_of_copies(cell[padded], np.zeros(len(padded), np.int32))
        self.games = Games(
            make(partial(initial_states, kernels.init, arms), start),
            make(lambda: initial_environment_states(environment, pool, len(padded))),
            Totals(np.zeros(len(padded), np.int64), np.zeros(len(padded))),
        )
        self.cells = [slice(first, first + len(trials)) for first in range(0, self.count, len(trials))]
        # every copy meets its own records, so each cell has its own best arms, counted with the costs of the cell
        self.counters = [
            BestArmCounter(
                np.arange(len(trials)), arms, checkpoints, copies.answer_cost[x][:1], copies.abstain_cost[x][:1]
            )
            for x in self.cells
        ]
        zeros = np.zeros((len(checkpoints), self.count))
        asked, running = ({kind: x.copy() for kind in ASKED} for x in (zeros, zeros[0]))
        self.counted = Counted(zeros.astype(np.int64), zeros.copy(), asked, running, 0)

    @classmethod
    def of(cls, prepared: Prepared, player: Player, make: Callable[..., Any] = allocate) -> "Interaction":
        """Prepare round 1 of all copies of a player in a prepared sweep."""
        environment, copies = prepared.environment, prepared.copies(player)
        assert isinstance(environment, Adaptive)
        return cls(
            player,
            environment,
            prepared.adaptive_pool(),
            copies,
            tuning=np.repeat(prepared.tunable_values[None], len(copies.draw_stream), axis=0),
            trials=prepared.trials,
            seed=prepared.sweep.seed,
            checkpoints=prepared.checkpoints,
            cell=prepared.cell_of_copies(player),
            make=make,
        )

    def _arguments(self, schedule: Schedule) -> tuple[Any, ...]:
        # a restored save holds NumPy arrays, which cannot be donated
        games = jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, self.games)
        kernels, rates = self.player.backend.traced, rates_of_blocks(self.player.rates, schedule.block)
        more = self.copies, self.objective, self.keys, self.pool, kernels.shared
        return kernels.halves, self.environment, games, schedule, rates, *more

    def lowered(self, schedule: Schedule) -> Any:
        """Lower the program of a chunk, for its memory analysis."""
        return simulate_chunk.lower(*self._arguments(schedule))

    def trajectory(self) -> Trajectory:
        """Return the totals of the copies at all checkpoints."""
        counted = self.counted
        best = BestArms(
            np.concatenate([counter.best_loss[:, 0] for counter in self.counters], axis=1),
            np.concatenate([counter.best_arm[0] for counter in self.counters]),
        )
        feedback_sums = self.player.feedback_sums(lambda: self.games.learner, self.count)
        return Trajectory(counted.answered, counted.wrong, best, counted.asked, feedback_sums)

    def advance(self, schedule: Schedule) -> None:
        """Simulate a chunk. Raise BadInput if the learner is the user's, and its state is not finite."""
        self.games, (at_checkpoints, cut, error) = simulate_chunk(*self._arguments(schedule))
        cut, error = (
            np.asarray(x).reshape(-1, len(self.copies.draw_stream))[:, : self.count] for x in (cut, error)
        )
        self._count(schedule, at_checkpoints, cut, error)
        check_finite(self.player, lambda: self.games.learner)

    def save(self) -> Any:
        """Return all that changes, as a tree of arrays; the next chunk changes some of them."""
        return self.games, self.counted, [counter.save() for counter in self.counters]

    def restore(self, tree: Any) -> None:
        """Continue from what ``save`` returned."""
        self.games, self.counted, counter_trees = tree
        for counter, saved in zip(self.counters, counter_trees, strict=True):
            counter.restore(saved)

    def _count(self, schedule: Schedule, totals: Totals, cut: NDArray[np.int32], error: Floats) -> None:
        """Count a chunk with cuts and errors [K C, B]."""
        for counter, cell in zip(self.counters, self.cells, strict=True):
            counter.count_records(
                schedule, np.ascontiguousarray(cut[:, cell].T), np.ascontiguousarray(error[:, cell].T)
            )
        counted, real = self.counted, schedule.checkpoint_rounds > 0
        rows = slice(int(counted.reached), int(counted.reached) + int(real.sum()))
        counted.answered[rows] = np.asarray(totals.answered)[real][:, : self.count]
        counted.wrong[rows] = np.asarray(totals.wrong)[real][:, : self.count]
        # rows of the chunk at which its checkpoints are
        last = self.checkpoints[rows] - int(schedule.block[0]) * ROUNDS - 1
        high = cut >= float(np.repeat(self.pool.cuts, self.pool.counts).mean())  # above the mean cut of the pool
        for kind, amount in zip(ASKED, (error, error * high, (1 - error) * ~high), strict=True):
            running = counted.running[kind] + np.cumsum(amount, axis=0)
            counted.asked[kind][rows], counted.running[kind][:] = running[last], running[-1]
        self.counted = counted._replace(reached=rows.stop)


def simulate_games(
    each: Sequence[Interaction], progress: Callable[[int], object], saves: Saves = NO_SAVES
) -> dict[str, Trajectory]:
    """Simulate the games of some learners side by side; return them by learner.

    ``progress`` is called with the rounds of each chunk, of all copies together.
    """
    horizon, copies = int(each[0].checkpoints[-1]), max(len(games.copies.draw_stream) for games in each)
    start, trees = saves.restore(lambda: [games.save() for games in each])
    if start:
        for games, tree in zip(each, trees, strict=True):
            games.restore(tree)
    progress(sum(games.count for games in each) * min(start * ROUNDS, horizon))
    for schedule in make_schedules(horizon, copies, each[0].checkpoints, start):
        if int(schedule.block[0]) > start and saves.due():
            saves.save(int(schedule.block[0]), jax.tree.leaves([games.save() for games in each]))
        for games in each:
            games.advance(schedule)
            progress(games.count * schedule.rounds)
    return {games.player.name: games.trajectory() for games in each}
