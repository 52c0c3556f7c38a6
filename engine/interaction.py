"""Games against environments that answer back: rounds are played one by one, in one compiled program."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from engine import devices
from engine.environments.adaptive import Adaptive, Aim, World
from engine.metrics import Floats
from engine.rollout import (
    NOTHING_KEPT,
    Copies,
    Keeper,
    Met,
    Schedule,
    Survey,
    Totals,
    add_up,
    axes_of,
    rates_at,
    schedule,
)
from kernels import uniforms
from kernels.game import ROUNDS, Block, Parameters
from kernels.learner import Backend, Turns

ASKED = ("hard", "overconfident", "underconfident")


class Held(NamedTuple):
    """All that changes as B copies play a game, as a tree of arrays."""

    state: Any  # of the backend
    place: Any  # of the environment
    totals: Totals
    answered: NDArray[np.int64]  # [P, B] at the checkpoints that were reached
    wrong: Floats  # [P, B]
    asked: dict[str, Floats]  # [P, B] of each kind
    running: dict[str, Floats]  # [B] of each kind, so far
    marked: Any  # how many checkpoints were reached
    surveys: list[Any]  # of each cell

    def met(self) -> Met:
        """What was done up to the last checkpoint that was reached."""
        rows = slice(int(self.marked))
        best_loss = np.concatenate([loss[rows, 0] for _, _, loss, _, _ in self.surveys], axis=1)
        best_arm = np.concatenate([arm[0] for _, _, _, arm, _ in self.surveys])
        asked = {kind: sums[rows] for kind, sums in self.asked.items()}
        return Met(self.answered[rows], self.wrong[rows], best_loss, best_arm, asked)


@partial(jax.jit, static_argnames=("turns", "environment", "axes"), donate_argnames=("state", "place", "totals"))
def play(
    turns: Turns,
    environment: Adaptive,
    axes: tuple[tuple[int, ...], tuple[int, ...]],
    state: Any,
    place: Any,
    totals: Totals,
    when: Schedule,
    rates: tuple[Any, Any],
    copies: Mapping[str, Any],
    aim: Aim,
    keys: tuple[Any, Any],
    world: World,
) -> tuple[Any, Any, Totals, tuple[Totals, Any, Any]]:
    """Play K blocks against an environment.

    Args:
        turns: of the learner's backend.
        environment: that is played against.
        axes: of copies, in each leaf of both states.
        state: of the backend, for B copies.
        place: state of the environment, for B copies.
        totals: [B] so far.
        when: the blocks.
        rates: eta [K] and gamma [K].
        copies: the fields of ``Parameters`` that tell copies apart, [B] each.
        aim: what the environment is after.
        keys: of the learners' draws and of the environment's, two uint32 [trials] each.
        world: what the environment may ask.

    Returns:
        States and totals after the chunk; the totals [K, S, B] at its marks, cuts and errors [K, C, B] asked.
    """
    taken = *axes, 0, -1, -1, 0, (0, 0, 0, 1), -1, -1
    given = state, place, totals, when, rates, copies, aim, keys, world

    def out(of: Any) -> Any:
        return *of[:3], (Totals(2, 2), 2, 2)

    return devices.spread(partial(_play, turns, environment), taken, out)(*given)


def _play(
    turns: Turns,
    environment: Adaptive,
    state: Any,
    place: Any,
    totals: Totals,
    when: Schedule,
    rates: Any,
    copies: Mapping[str, Any],
    aim: Aim,
    keys: Any,
    world: World,
) -> Any:
    rounds = jnp.arange(ROUNDS, dtype=jnp.uint32)[:, None]

    def draw(stream: tuple[Any, Any], number: Any, turn: int) -> Any:
        key, place = (stream[0][None], stream[1][None]), rounds + np.uint32(ROUNDS * turn)
        return uniforms.uniforms(key, number, place)[:, copies["draw"]]

    def block(carry: tuple, x: Any) -> tuple:
        (state, place, totals), (now, eta, gamma) = carry, x
        parameters = Parameters(eta, gamma, **copies)

        def turn(carry: tuple, x: Any) -> tuple:
            (held, place), (u, coins, active) = carry, x
            masses = turns.masses(held, parameters) if environment.sees_masses else None
            question = environment.ask(place, world, aim, coins, masses)
            held, (outcome, change) = turns.play(held, Block(question.cut, question.error, u, active), parameters)
            place = environment.see(place, world, aim, question, outcome.answered)
            return (held, place), (outcome.answered, question.cut, question.error, change)

        drawn = [draw(keys[1], now.block, i) for i in range(environment.draws)]
        coins = jnp.stack(drawn, axis=1) if drawn else jnp.zeros((ROUNDS, 0))
        given = draw(keys[0], now.block, 0), coins, now.active
        start = turns.begin(state, parameters), place
        (held, place), (answered, cut, error, changes) = lax.scan(turn, start, given)  # type: ignore[var-annotated]
        state = turns.end(state, held, changes)
        totals, at_marks = add_up(totals, answered, jnp.where(answered, error, 0.0), now.marks)
        return (state, place, totals), (at_marks, cut, error)

    (state, place, totals), seen = lax.scan(block, (state, place, totals), (when, *rates))  # type: ignore[var-annotated]
    return state, place, totals, seen


def meet(
    copies: Copies,
    environment: Adaptive,
    world: World,
    tuning: Floats,
    trials: NDArray[np.int64],
    seed: int,
    checkpoints: NDArray[np.int64],
    progress: Callable[[int], object],
    keeper: Keeper = NOTHING_KEPT,
) -> Met:
    """Play copies of one learner against an environment.

    Args:
        copies: of a learner on a backend that plays by turns, in whole cells of the trials, cell after cell.
        environment: that is played against.
        world: what it may ask.
        tuning: [parameters, B] of the environment.
        trials: [trials], by number.
        seed: of all draws.
        checkpoints: [P] rounds, the last the horizon.
        progress: is told the rounds of each chunk.
        keeper: saves the game at the edges of chunks.
    """
    backend = copies.backend
    assert isinstance(backend, Backend)
    assert backend.turns is not None
    horizon, count, arms = int(checkpoints[-1]), len(copies.trial), len(world.grid)
    lanes = devices.padded(count)
    each: dict[str, Any] = {name: getattr(copies, name)[lanes] for name in ("alpha", "answer", "abstain")}
    aim = Aim(**each, tuning=tuning[:, lanes])
    each |= {"record": np.arange(len(lanes), dtype=np.int32), "draw": copies.trial[lanes]}
    keys = tuple(uniforms.trial_keys(seed, of, trials) for of in (uniforms.LEARNER, uniforms.ENVIRONMENT))
    state, place = backend.init(arms, copies.best[lanes], 1), environment.init(world, len(lanes))
    totals = Totals(np.zeros(len(lanes), np.int64), np.zeros(len(lanes)))
    cells = [slice(first, first + len(trials)) for first in range(0, count, len(trials))]
    surveys = [
        Survey(np.arange(len(trials)), arms, checkpoints, copies.answer[cell][:1], copies.abstain[cell][:1])
        for cell in cells
    ]
    typical = float(np.repeat(world.cuts, world.count).mean())
    zeros = np.zeros((len(checkpoints), count))
    held = Held(
        state,
        place,
        totals,
        zeros.astype(np.int64),
        zeros.copy(),
        {kind: zeros.copy() for kind in ASKED},
        {kind: np.zeros(count) for kind in ASKED},
        0,
        [survey.held() for survey in surveys],
    )
    start, held = keeper.kept(held)
    axes = axes_of(backend, arms, 1), devices.axes(lambda many: environment.init(world, many))
    for survey, tree in zip(surveys, held.surveys, strict=True):
        survey.hold(tree)
    progress(min(start * ROUNDS, horizon))
    for when in schedule(horizon, len(lanes), checkpoints, start):
        rates = rates_at((copies.eta, copies.gamma), when.block)
        given = *jax.tree.map(jnp.asarray, held[:3]), when, rates, each, aim, keys, world
        state, place, totals, (at_marks, cut, error) = play(backend.turns, environment, axes, *given)
        cut, error = (np.asarray(x).reshape(-1, len(lanes))[:, :count] for x in (cut, error))
        for survey, cell in zip(surveys, cells, strict=True):
            survey.add(when, cut[:, cell], error[:, cell])
        rows = slice(int(held.marked), int(held.marked) + int((when.marks > 0).sum()))
        held.answered[rows] = np.asarray(at_marks.answered)[when.marks > 0][:, :count]
        held.wrong[rows] = np.asarray(at_marks.wrong)[when.marks > 0][:, :count]
        last = checkpoints[rows] - int(when.block[0]) * ROUNDS - 1
        high = cut >= typical
        for kind, how in zip(ASKED, (error, error * high, (1 - error) * ~high), strict=True):
            running = held.running[kind] + np.cumsum(how, axis=0)
            held.asked[kind][rows], held.running[kind][:] = running[last], running[-1]
        held = held._replace(
            state=state,
            place=place,
            totals=totals,
            marked=rows.stop,
            surveys=[survey.held() for survey in surveys],
        )
        progress(int(when.active.sum()))
        if keeper.due():
            keeper.keep(int(when.block[-1]) + 1, held)
    return held.met()
