"""A sweep is played in units, batches of trials of some learners, each of which can be resumed."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from engine import tables
from engine.environments.adaptive import Adaptive
from engine.errors import BadInput
from engine.game import Game
from engine.interaction import Held, meet
from engine.learners import LEARNERS, block_lengths
from engine.results import Played, curves_table, join
from engine.rollout import Keeper, Met, Rollout, Survey, play_all
from engine.session import Arrays, Session

Tell = Callable[[int], object]  # is told the rounds of all copies that were played
SURVEY = ""  # the name under which the best fixed arms of a world that does not react are kept


def checkpoints(game: Game) -> NDArray[np.int64]:
    """The rounds [P] at which figures are taken, the last the horizon."""
    steps = min(game.sweep.checkpoints, game.horizon)
    return -(-np.arange(1, steps + 1) * game.horizon // steps)


def units(game: Game) -> list[tuple[str, ...]]:
    """The learners that are played together: comparators once the best arm is known; by itself who is answered."""
    names = game.sweep.learners
    if isinstance(game.environment, Adaptive):
        return [(name,) for name in names]
    hindsight = tuple(name for name in names if LEARNERS[name].feedback == "hindsight")
    others = (SURVEY, *(name for name in names if name not in hindsight))
    return [others, hindsight] if hindsight else [others]


def play(game: Game, batches: Iterable[NDArray[np.int64]], session: Session, tell: Tell) -> Played:
    """Play a sweep, batch after batch of its trials, or what is left of it."""
    return join([part for trials in batches for part in _fitting(replace(game, trials=trials), session, tell)])


def _fitting(game: Game, session: Session, tell: Tell) -> list[Played]:
    """A batch, or its halves where the device runs out of memory."""
    told = 0

    def count(rounds: int) -> None:
        nonlocal told
        told += rounds
        tell(rounds)

    try:
        return [figures_of(game, _play_batch(game, session, count))]
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        if len(game.trials) == 1:
            raise BadInput(
                "arms: a single trial does not fit the memory; fewer arms, alphas, lambdas or learners would"
            ) from error
    tell(-told)
    halves = np.array_split(game.trials, 2)
    return [part for half in halves for part in _fitting(replace(game, trials=half), session, tell)]


def _play_batch(game: Game, session: Session, tell: Tell) -> dict[str, Met]:
    met: dict[str, Met] = {}
    copies = len(game.alpha) * len(game.trials)
    for number, names in enumerate(units(game)):
        unit = f"trials-{game.trials[0]}-{game.trials[-1]}-{number}"
        each = copies * len([name for name in names if name != SURVEY])
        found = session.finished(unit)
        if found is None:
            how = _meet if isinstance(game.environment, Adaptive) else _roll
            met |= how(game, names, met, session, unit, partial(_tell, tell, each))
            session.finish(unit, _packed({name: met[name] for name in names}))
        else:
            met |= _unpacked(found, names)
            tell(each * game.horizon)
    return met


def _tell(tell: Tell, copies: int, rounds: int) -> None:
    tell(copies * rounds)


def _roll(
    game: Game, names: tuple[str, ...], met: dict[str, Met], session: Session, unit: str, tell: Tell
) -> dict[str, Met]:
    """Some learners over the records of a world that does not react."""
    sweep, marks = game.sweep, checkpoints(game)
    survey = Survey(game.stream().column, sweep.arms, marks, game.answer, game.abstain) if SURVEY in names else None
    best_arm = met[SURVEY].best_arm if survey is None else survey.best_arm
    rollouts = {
        name: Rollout(
            game.copies(name, game.backend(name), sweep.precision, best_arm), game.stream(), sweep.arms, len(marks)
        )
        for name in names
        if name != SURVEY
    }

    def so_far() -> dict[str, Met]:
        best = met[SURVEY] if survey is None else survey.met()
        found = {name: rollout.met(best) for name, rollout in rollouts.items()}
        return found if survey is None else {SURVEY: best, **found}

    def keep(blocks: int, tree: Any) -> None:
        session.keep(unit, blocks, tree, lambda: curves_table(figures_of(game, met | so_far())))

    keeper = Keeper(partial(session.kept, unit), session.due, keep)
    play_all(list(rollouts.values()), game.stream(), marks, tell, survey, keeper)
    return so_far()


def _meet(
    game: Game, names: tuple[str, ...], met: dict[str, Met], session: Session, unit: str, tell: Tell
) -> dict[str, Met]:
    """A learner against an environment that answers back, in games of its own."""
    (name,), sweep, environment = names, game.sweep, game.environment
    assert isinstance(environment, Adaptive)
    defaults = np.array([x.default for x in environment.tunables])
    tuning = np.broadcast_to(defaults[:, None], (len(defaults), len(game.alpha) * len(game.trials)))

    def keep(blocks: int, held: Held) -> None:
        session.keep(unit, blocks, held, lambda: curves_table(figures_of(game, met | {name: held.met()})))

    keeper = Keeper(partial(session.kept, unit), session.due, keep)
    copies = game.copies(name, game.backend(name), sweep.precision)
    given = copies, environment, game.world(), tuning, game.trials, sweep.seed, checkpoints(game)
    return {name: meet(*given, tell, keeper)}


def figures_of(game: Game, met: dict[str, Met]) -> Played:
    """The figures of the learners that have played, up to the last checkpoint that each has reached."""

    def shaped(x: NDArray) -> NDArray:
        return x.reshape(-1, len(game.alpha), len(game.trials))

    sweep, t = game.sweep, checkpoints(game)
    names = tuple(name for name in sweep.learners if name in met)
    rates, lengths = {name: game.rates(name) for name in names}, block_lengths(game.horizon)
    answered = {name: shaped(met[name].answered) for name in names}
    bounds = {name: LEARNERS[name].risk_bound for name in names}

    return Played(
        learners=names,
        environment=sweep.environment,
        source=" -> ".join(r.name for r in game.records),
        grid_name=sweep.grid,
        grid=game.grid,
        alphas=game.alpha,
        lambdas=game.lam,
        trials=game.trials,
        checkpoints=t,
        answer=game.answer,
        abstain=game.abstain,
        best_loss={name: shaped(met[name].best_loss) for name in names},
        best_arm={name: shaped(met[name].best_arm)[0] for name in names},
        eta={name: float(rates[name][0][-1]) for name in names},
        gamma={name: float(rates[name][1][-1]) for name in names},
        regret_bound={
            name: LEARNERS[name].regret_bound(*rates[name], lengths, sweep.arms, sweep.delta) for name in names
        },
        risk_bound={
            name: bound(*rates[name], lengths, t[: len(answered[name]), None, None], answered[name], sweep.arms)
            + np.zeros(answered[name].shape)
            for name, bound in bounds.items()
            if bound is not None
        },
        answered=answered,
        wrong={name: shaped(met[name].wrong) for name in names},
        asked={
            name: {kind: shaped(sums) for kind, sums in met[name].asked.items()}
            for name in names
            if met[name].asked
        },
    )


def _packed(met: dict[str, Met]) -> Arrays:
    return tables.flat({name: one._asdict() for name, one in met.items()})


def _unpacked(packed: Arrays, names: Sequence[str]) -> dict[str, Met]:
    fields = tables.nested(packed)
    return {name: Met(**({"asked": {}} | fields[name])) for name in names}
