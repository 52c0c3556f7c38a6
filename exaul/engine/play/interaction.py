"""Games against environments that answer back: rounds are played one by one, in one compiled program."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from exaul.engine.environments.adaptive import Adaptive, Aim, World, choices_of
from exaul.engine.machine import devices
from exaul.engine.play.players import Player
from exaul.engine.play.rollout import NO_SAVES, Saver
from exaul.engine.play.schedule import Schedule, schedule
from exaul.engine.play.simulation import Copies, Totals, rates_at
from exaul.engine.play.survey import Survey, Trajectory
from exaul.engine.play.traced import add_up
from exaul.kernels import uniforms
from exaul.kernels.backends.backend import OF_COPIES, Halves, play
from exaul.kernels.backends.backend import start as start_of
from exaul.kernels.game import ROUNDS, Block, Parameters, Shared
from exaul.kernels.metrics import Floats
from exaul.kernels.thumbs import PERFECT

ASKED = ("hard", "overconfident", "underconfident")


class Game(NamedTuple):
    """All that changes as B copies play a game, as a tree of arrays."""

    state: Any  # of the backend
    place: Any  # of the environment
    totals: Totals
    answered: NDArray[np.int64]  # [P, B] at the checkpoints that were reached
    wrong: Floats  # [P, B]
    asked: dict[str, Floats]  # [P, B] of each kind
    running: dict[str, Floats]  # [B] of each kind, so far
    reached: Any  # how many checkpoints were reached
    surveys: list[Any]  # of each cell

    def trajectory(self, player: Player) -> Trajectory:
        """What the copies of a player did up to the last checkpoint that was reached."""
        rows = slice(int(self.reached))
        best_loss = np.concatenate([loss[rows, 0] for _, _, loss, _, _ in self.surveys], axis=1)
        best_arm = np.concatenate([arm[0] for _, _, _, arm, _ in self.surveys])
        asked = {kind: sums[rows] for kind, sums in self.asked.items()}
        heard = player.heard(self.state, self.answered.shape[1])
        return Trajectory(self.answered[rows], self.wrong[rows], best_loss, best_arm, asked, heard)


@partial(jax.jit, static_argnames=("halves", "environment"), donate_argnames=("state", "place", "totals"))
def play_games(
    halves: Halves,
    environment: Adaptive,
    state: Any,
    place: Any,
    totals: Totals,
    when: Schedule,
    rates: tuple[Any, Any],
    copies: tuple[Any, ...],
    aim: Aim,
    choices: Any,
    keys: tuple[Any, ...],
    world: World,
    shared: Shared,
) -> tuple[Any, Any, Totals, tuple[Totals, Any, Any]]:
    """Play K blocks against an environment.

    Args:
        halves: of a round, of the learner's backend.
        environment: that is played against.
        state: of the backend, for B copies, which come first.
        place: state of the environment, likewise.
        totals: [B] so far.
        when: the blocks.
        rates: eta [K] and gamma [K].
        copies: alpha, the costs, and which trial's uniforms a copy draws, [B] each.
        aim: what the environment is after, [B, ...] each.
        choices: [tunables] int32, of ``Aim``.
        keys: of the draws of learners, of the environment and, where it is imperfect, of feedback and its delays,
            two uint32 [trials] each.
        world: what the environment may ask.
        shared: of the backend.

    Returns:
        States and totals after the chunk; the totals [K, S, B] at its marks, cuts and errors [K, C, B] asked.
    """
    taken = 0, 0, 0, -1, -1, 0, 0, -1, -1, -1, -1
    arguments = state, place, totals, when, rates, copies, aim, choices, keys, world, shared
    return devices.spread(partial(_play, halves, environment), taken, (0, 0, 0, 2))(*arguments)


def streams(player: Player) -> tuple[int, ...]:
    """The streams of uniforms that a game of a player needs."""
    own = uniforms.LEARNER, uniforms.ENVIRONMENT
    return own if player.thumbs == PERFECT else (*own, uniforms.THUMBS, uniforms.DELAYS)


def _game(
    halves: Halves,
    environment: Adaptive,
    world: World,
    state: Any,
    place: Any,
    parameters: Parameters,
    aim: Aim,
    draws: Any,
    coins: Any,
    active: Any,
) -> tuple[Any, Any, tuple[Any, Any, Any]]:
    """Play a block of one game; draws [C, ...] of the learner and coins [C, .] of the environment."""

    def step(carry: tuple[Any, Any], x: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        (learner, place), (u, coins, active) = carry, x
        masses = halves.masses(learner, parameters, len(world.grid)) if environment.sees_masses else None
        question = environment.ask(place, world, aim, coins, masses)
        asked = Block(question.cut, question.error, u, active)
        learner, outcome, change = play(halves, learner, asked, parameters)
        place = environment.see(place, question, outcome.answered)
        return (learner, place), (outcome.answered, question.cut, question.error, change)

    before = halves.begin(state, parameters), place
    (learner, place), (*seen, changes) = lax.scan(step, before, (draws, coins, active))
    return halves.end(state, learner, changes), place, tuple(seen)


def _play(
    halves: Halves,
    environment: Adaptive,
    state: Any,
    place: Any,
    totals: Totals,
    when: Schedule,
    rates: Any,
    copies: tuple[Any, ...],
    aim: Aim,
    choices: Any,
    keys: Any,
    world: World,
    shared: Shared,
) -> Any:
    rounds = jnp.arange(ROUNDS, dtype=jnp.uint32)[:, None]
    alpha, answer_cost, abstain_cost, trial = copies
    aim = aim._replace(choices=choices)
    game = partial(_game, halves, environment, world)
    games = jax.vmap(game, in_axes=(0, 0, OF_COPIES, Aim(0, 0, 0, 0, None), 1, 1, None), out_axes=(0, 0, 1))

    def draw(stream: tuple[Any, Any], number: Any, turn: int) -> Any:
        key, place = (stream[0][None], stream[1][None]), rounds + np.uint32(ROUNDS * turn)
        return uniforms.uniforms(key, number, place)[:, trial]

    def block(carry: tuple[Any, ...], x: Any) -> tuple[Any, ...]:
        (state, place, totals), (now, eta, gamma) = carry, x
        here = shared._replace(block=now.block)
        parameters = Parameters(eta, gamma, alpha, answer_cost, abstain_cost, (), (), here)
        drawn = [draw(keys[1], now.block, i) for i in range(environment.draws)]
        coins = jnp.stack(drawn, axis=-1) if drawn else jnp.zeros((ROUNDS, len(trial), 0))
        own = draw(keys[0], now.block, 0)
        if len(keys) > 2:
            own = jnp.stack([own, *(draw(each, now.block, 0) for each in keys[2:])], axis=-1)
        state, place, (answered, cut, error) = games(state, place, parameters, aim, own, coins, now.active)
        totals, at_marks = add_up(totals, answered, jnp.where(answered, error, 0.0), now.marks)
        return (state, place, totals), (at_marks, cut, error)

    (state, place, totals), seen = lax.scan(block, (state, place, totals), (when, *rates))  # type: ignore[var-annotated]
    return state, place, totals, seen


def repeated(environment: Adaptive, world: World, copies: int) -> Any:
    """The state of an environment before round 1, once for each of B copies, which come first."""
    state = environment.init(jax.tree.map(jnp.asarray, world))
    return jax.tree.map(lambda x: jnp.repeat(jnp.asarray(x)[None], copies, axis=0), state)


def interact(
    player: Player,
    environment: Adaptive,
    world: World,
    copies: Copies,
    tuning: Floats,
    trials: NDArray[np.int64],
    seed: int,
    checkpoints: NDArray[np.int64],
    progress: Callable[[int], object],
    saver: Saver = NO_SAVES,
) -> Trajectory:
    """Play copies of a learner against an environment.

    Args:
        player: whose backend has halves.
        environment: that is played against.
        world: what it may ask.
        copies: [B], in whole cells of the trials, cell after cell.
        tuning: [B, tunables] of the environment; those that are choices are the same for all copies.
        trials: [trials], by number.
        seed: of all draws.
        checkpoints: [P] rounds, the last the horizon.
        progress: called with the rounds of each chunk.
        saver: saves the game at the edges of chunks.
    """
    halves, init = player.backend.halves, player.backend.init
    horizon, count, arms = int(checkpoints[-1]), len(copies.draw), len(world.grid)
    lanes = devices.padded(count)
    each = copies.take(lanes)._replace(record=np.arange(len(lanes), dtype=np.int32))
    aim, choices = Aim(*each[:3], tuning[lanes]), choices_of(environment, tuning[0])
    keys = tuple(uniforms.trial_keys(seed, of, trials) for of in streams(player))
    cells = [slice(first, first + len(trials)) for first in range(0, count, len(trials))]
    costs = [(copies.answer_cost[cell][:1], copies.abstain_cost[cell][:1]) for cell in cells]
    surveys = [Survey(np.arange(len(trials)), arms, checkpoints, *each) for each in costs]
    typical = float(np.repeat(world.cuts, world.count).mean())
    zeros = np.zeros((len(checkpoints), count))
    now = Game(
        start_of(init, arms, each.best),
        repeated(environment, world, len(lanes)),
        Totals(np.zeros(len(lanes), np.int64), np.zeros(len(lanes))),
        zeros.astype(np.int64),
        zeros.copy(),
        {kind: zeros.copy() for kind in ASKED},
        {kind: np.zeros(count) for kind in ASKED},
        0,
        [survey.save() for survey in surveys],
    )
    start, now = saver.restore(now)
    for survey, tree in zip(surveys, now.surveys, strict=True):
        survey.restore(tree)
    progress(min(start * ROUNDS, horizon))
    for when in schedule(horizon, len(lanes), checkpoints, start):
        rates = rates_at((player.eta, player.gamma), when.block)
        states = jax.tree.map(jnp.asarray, now[:3])
        own = player.aimed(each)
        numbers = *own[:3], own.draw
        state, place, totals, (at_marks, cut, error) = play_games(
            halves, environment, *states, when, rates, numbers, aim, choices, keys, world, player.backend.shared
        )
        cut, error = (np.asarray(x).reshape(-1, len(lanes))[:, :count] for x in (cut, error))
        for survey, cell in zip(surveys, cells, strict=True):
            survey.count_records(when, *(np.ascontiguousarray(x[:, cell].T) for x in (cut, error)))
        rows = slice(int(now.reached), int(now.reached) + int((when.marks > 0).sum()))
        now.answered[rows] = np.asarray(at_marks.answered)[when.marks > 0][:, :count]
        now.wrong[rows] = np.asarray(at_marks.wrong)[when.marks > 0][:, :count]
        last = checkpoints[rows] - int(when.block[0]) * ROUNDS - 1
        high = cut >= typical
        for kind, amount in zip(ASKED, (error, error * high, (1 - error) * ~high), strict=True):
            running = now.running[kind] + np.cumsum(amount, axis=0)
            now.asked[kind][rows], now.running[kind][:] = running[last], running[-1]
        now = now._replace(
            state=state,
            place=place,
            totals=totals,
            reached=rows.stop,
            surveys=[survey.save() for survey in surveys],
        )
        progress(when.rounds)
        if saver.due():
            saver.save(int(when.block[-1]) + 1, now)
    return now.trajectory(player)
