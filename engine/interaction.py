"""Games against environments that answer back: rounds are played one by one, in one compiled program."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from engine.environments.adaptive import Adaptive, Aim, World
from engine.metrics import Floats
from engine.rollout import TILE, Copies, Schedule, Survey, Totals, add_up, rates_at, schedule
from kernels import uniforms
from kernels.game import ROUNDS, Block, Parameters
from kernels.learner import Backend, Turns

ASKED = ("hard", "overconfident", "underconfident")


class Met(NamedTuple):
    """What B copies of a learner did in a world that answers, at P checkpoints."""

    answered: NDArray[np.int64]  # [P, B]
    wrong: Floats  # [P, B], sum of the errors of answered rounds
    best_loss: Floats  # [P, B], of the best fixed arm on the copy's own sequence
    best_arm: NDArray[np.int32]  # [B], at the last
    asked: dict[str, Floats]  # [P, B], how much of each kind was asked


@partial(jax.jit, static_argnames=("turns", "environment"), donate_argnames=("state", "place", "totals"))
def play(
    turns: Turns,
    environment: Adaptive,
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
    alpha: Floats,
    tuning: Floats,
    trials: NDArray[np.int64],
    seed: int,
    checkpoints: NDArray[np.int64],
    progress: Callable[[int], object],
) -> Met:
    """Play copies of one learner against an environment.

    Args:
        copies: of a learner on a backend that plays by turns, in whole cells of the trials, cell after cell.
        environment: that is played against.
        world: what it may ask.
        alpha: [B], target FDR of each copy.
        tuning: [parameters, B] of the environment.
        trials: [trials], by number.
        seed: of all draws.
        checkpoints: [P] rounds, the last the horizon.
        progress: is told the rounds of each chunk.
    """
    backend = copies.backend
    assert isinstance(backend, Backend)
    assert backend.turns is not None
    horizon, count, arms = int(checkpoints[-1]), len(copies.trial), len(world.grid)
    lanes = np.arange(-(-count // TILE) * TILE) % count
    each: dict[str, Any] = {"answer": copies.answer[lanes], "abstain": copies.abstain[lanes]}
    aim = Aim(alpha[lanes], each["answer"], each["abstain"], tuning[:, lanes])
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
    asked = {kind: np.zeros((len(checkpoints), count)) for kind in ASKED}
    answered, wrong = np.zeros((len(checkpoints), count), np.int64), np.zeros((len(checkpoints), count))
    so_far, marked = {kind: np.zeros(count) for kind in ASKED}, 0
    for when in schedule(horizon, len(lanes), checkpoints):
        rates = rates_at((copies.eta, copies.gamma), when.block)
        state, place, totals, (at_marks, cut, error) = play(
            backend.turns, environment, state, place, totals, when, rates, each, aim, keys, world
        )
        cut, error = (np.asarray(x).reshape(-1, len(lanes))[:, :count] for x in (cut, error))
        for survey, cell in zip(surveys, cells, strict=True):
            survey.add(when, cut[:, cell], error[:, cell])
        rows = slice(marked, marked + int((when.marks > 0).sum()))
        answered[rows] = np.asarray(at_marks.answered)[when.marks > 0][:, :count]
        wrong[rows] = np.asarray(at_marks.wrong)[when.marks > 0][:, :count]
        last = checkpoints[rows] - int(when.block[0]) * ROUNDS - 1
        high = cut >= typical
        for kind, how in zip(ASKED, (error, error * high, (1 - error) * ~high), strict=True):
            running = so_far[kind] + np.cumsum(how, axis=0)
            asked[kind][rows], so_far[kind] = running[last], running[-1]
        marked = rows.stop
        progress(int(when.active.sum()))
    best_loss = np.concatenate([survey.best_loss[:, 0] for survey in surveys], axis=1)
    best_arm = np.concatenate([survey.best_arm[0] for survey in surveys])
    return Met(answered, wrong, best_loss, best_arm, asked)
