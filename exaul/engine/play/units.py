"""A sweep is played in units, some trials of some players each, and each unit can be resumed."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from exaul.engine.checks import BadInput
from exaul.engine.data.settings import flat, nested
from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.machine.devices import platform
from exaul.engine.play.interaction import Game, interact
from exaul.engine.play.players import Player
from exaul.engine.play.prepare import Prepared
from exaul.engine.play.rollout import Rollout, Saver, play_all
from exaul.engine.play.schedule import Stream
from exaul.engine.play.survey import Survey, TracedSurvey, Trajectory
from exaul.engine.results.counts import Counts, join
from exaul.engine.results.sealed import Arrays
from exaul.engine.results.session import Session
from exaul.engine.results.trials import curves_table
from exaul.kernels.rates import block_lengths
from exaul.kernels.thumbs import PERFECT

Report = Callable[[int], object]  # is called with rounds, of all copies, that were played
SURVEY = ""  # the name under which the arms of least loss of a world that does not react are saved


class Unit:
    """What is played together: some players, and the survey of the arms of least loss if it is made there."""

    def __init__(self, players: Sequence[Player], survey: bool) -> None:
        """Players in their order."""
        self.players, self.survey = tuple(players), survey
        self.names = (*((SURVEY,) if survey else ()), *(player.name for player in players))


def units(prepared: Prepared) -> list[Unit]:
    """Each player alone where the world reacts to it; elsewhere all at once, and then the comparators."""
    if prepared.reacts:
        return [Unit([player], survey=False) for player in prepared.players]
    comparators = [player for player in prepared.players if player.compares]
    others = Unit([player for player in prepared.players if not player.compares], survey=True)
    return [others, Unit(comparators, survey=False)] if comparators else [others]


def play(prepared: Prepared, batches: Iterable[NDArray[np.int64]], session: Session, report: Report) -> Counts:
    """Play a sweep, batch after batch of its trials, or what is left of it."""
    parts = (part for trials in batches for part in _fit(replace(prepared, trials=trials), session, report))
    return join(parts, len(prepared.trials))


def _fit(prepared: Prepared, session: Session, report: Report) -> list[Counts]:
    """A batch, or its halves where the device runs out of memory."""
    reported = 0

    def count(rounds: int) -> None:
        nonlocal reported
        reported += rounds
        report(rounds)

    try:
        return [counts_of(prepared, _play_batch(prepared, session, count))]
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        if len(prepared.trials) == 1:
            raise BadInput(
                "arms: a single trial does not fit the memory; fewer arms, alphas, lambdas or learners would"
            ) from error
    report(-reported)
    halves = np.array_split(prepared.trials, 2)
    return [part for half in halves for part in _fit(replace(prepared, trials=half), session, report)]


def _play_batch(prepared: Prepared, session: Session, report: Report) -> dict[str, Trajectory]:
    done: dict[str, Trajectory] = {}
    copies = len(prepared.alpha) * len(prepared.trials)
    for number, unit in enumerate(units(prepared)):
        name = f"trials-{prepared.trials[0]}-{prepared.trials[-1]}-{number}"
        each = copies * len(unit.players)
        found = session.finished(name)
        if found is None:
            how = _interact if prepared.reacts else _roll
            done |= how(prepared, unit, done, session, name, partial(_report, report, each))
            session.finish(name, _packed({name: done[name] for name in unit.names}))
        else:
            done |= _unpacked(found, unit.names)
            report(each * prepared.horizon)
    return done


def _report(report: Report, copies: int, rounds: int) -> None:
    report(copies * rounds)


def _roll(
    prepared: Prepared, unit: Unit, done: dict[str, Trajectory], session: Session, name: str, report: Report
) -> dict[str, Trajectory]:
    """Some players over the records of a world that does not react."""
    marks, stream = prepared.checkpoints, prepared.stream()
    survey = _survey(prepared, stream) if unit.survey else None
    best_arm = done[SURVEY].best_arm if survey is None else survey.best_arm
    rollouts = {player.name: Rollout(player, prepared, stream, best_arm, len(marks)) for player in unit.players}

    def so_far() -> dict[str, Trajectory]:
        best = done[SURVEY] if survey is None else survey.trajectory()
        found = {} if survey is None else {SURVEY: best}
        return found | {name: rollout.trajectory(best) for name, rollout in rollouts.items()}

    def save(blocks: int, tree: Any) -> None:
        session.save(name, blocks, tree, lambda: curves_table(counts_of(prepared, done | so_far())))

    saver = Saver(partial(session.restore, name), session.due, save)
    play_all(list(rollouts.values()), stream, marks, report, survey, saver)
    return so_far()


def _survey(prepared: Prepared, stream: Stream) -> Survey:
    """Of the arms of least loss: on the device where there is one beside the host."""
    more = len(prepared.grid), prepared.checkpoints, prepared.answer_cost, prepared.abstain_cost
    return Survey(stream.column, *more) if platform() == "cpu" else TracedSurvey(stream, *more)


def _interact(
    prepared: Prepared, unit: Unit, done: dict[str, Trajectory], session: Session, name: str, report: Report
) -> dict[str, Trajectory]:
    """A player against an environment that answers back, in games of its own."""
    (player,), environment = unit.players, prepared.environment
    assert isinstance(environment, Adaptive)
    copies = prepared.copies()
    tuning = np.repeat(prepared.tuning[None], len(copies.draw), axis=0)

    def save(blocks: int, now: Game) -> None:
        found = done | {player.name: now.trajectory(player)}
        session.save(name, blocks, now, lambda: curves_table(counts_of(prepared, found)))

    played = interact(
        player,
        environment,
        prepared.world(),
        copies,
        tuning,
        prepared.trials,
        prepared.sweep.seed,
        prepared.checkpoints,
        report,
        Saver(partial(session.restore, name), session.due, save),
    )
    return {player.name: played}


def counts_of(prepared: Prepared, done: dict[str, Trajectory]) -> Counts:
    """The counts of the players that have played, up to the last checkpoint that each has reached."""

    def shaped(x: NDArray[Any]) -> NDArray[Any]:
        return x.reshape(-1, len(prepared.alpha), len(prepared.trials))

    players = {player.name: player for player in prepared.players if player.name in done}
    t, lengths = prepared.checkpoints, block_lengths(prepared.horizon)
    answered = {name: shaped(done[name].answered) for name in players}

    def risk_bound(player: Player) -> NDArray[np.float64]:
        assert player.learner.risk_bound is not None
        counts = answered[player.name]
        rounds = t[: len(counts), None, None]
        bound = player.learner.risk_bound(player.eta, player.gamma, lengths, rounds, counts, len(prepared.grid))
        late = 0 if player.thumbs.reserve else player.thumbs.delay  # answers whose thumbs are still to come
        return bound + late * (1 - prepared.alpha[:, None]) + np.zeros(counts.shape)

    def heard(player: Player) -> dict[str, NDArray[np.float64]]:
        """What was learned from imperfect thumbs, and what is promised of it (``docs/proofs.md``, M1)."""
        sums = {kind: shaped(x) for kind, x in done[player.name].heard.items()}
        own = player.aimed(prepared.copies())
        sums["aim"] = shaped(own.alpha)
        sums["bound"] = np.full(sums["aim"].shape, np.nan)
        if player.learner.risk_bound is not None:
            rounds, answers = np.minimum(sums["learned"] + 1, prepared.horizon), sums["settled"]
            bound = player.learner.risk_bound(
                player.eta, player.gamma, lengths, rounds, answers, len(prepared.grid)
            )
            late = 0 if player.thumbs.reserve else np.maximum(sums["since"] - 1, 0)
            sums["bound"] = bound + late * (1 - sums["aim"])
        return sums

    return Counts(
        learners=tuple(players),
        environment=prepared.world_name,
        source=" -> ".join(r.name for r in prepared.records),
        grid_name=prepared.sweep.grid,
        grid=prepared.grid,
        alphas=prepared.alpha,
        lambdas=prepared.lam,
        trials=prepared.trials,
        checkpoints=t,
        answer_cost=prepared.answer_cost,
        abstain_cost=prepared.abstain_cost,
        best_loss={name: shaped(done[name].best_loss) for name in players},
        best_arm={name: shaped(done[name].best_arm)[0] for name in players},
        eta={name: float(player.eta[-1]) for name, player in players.items()},
        gamma={name: float(player.gamma[-1]) for name, player in players.items()},
        regret_bound={name: player.regret_bound for name, player in players.items()},
        risk_bound={
            name: risk_bound(player)
            for name, player in players.items()
            if player.learner.risk_bound is not None and player.thumbs.bounds_all
        },
        answered=answered,
        wrong={name: shaped(done[name].wrong) for name in players},
        asked={
            name: {kind: shaped(sums) for kind, sums in done[name].asked.items()}
            for name in players
            if done[name].asked
        },
        heard={name: heard(player) for name, player in players.items() if player.thumbs != PERFECT},
    )


def _packed(done: dict[str, Trajectory]) -> Arrays:
    return flat({name: one._asdict() for name, one in done.items()})


def _unpacked(packed: Arrays, names: Sequence[str]) -> dict[str, Trajectory]:
    fields = nested(packed)
    return {name: Trajectory(**({"asked": {}, "heard": {}} | fields[name])) for name in names}
