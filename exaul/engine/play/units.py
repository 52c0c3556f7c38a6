"""A sweep is played in units, some trials of some players each, and each unit can be resumed."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from exaul.engine.checks import BadInput
from exaul.engine.data.settings import flat, nested
from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.machine.devices import platform
from exaul.engine.play.interaction import Interaction
from exaul.engine.play.players import Player
from exaul.engine.play.prepare import Prepared
from exaul.engine.play.rollout import Rollout, Saver, play_all
from exaul.engine.play.schedule import Stream
from exaul.engine.play.survey import BestArms, Survey, TracedSurvey, Trajectory
from exaul.engine.results.counts import Counts, join
from exaul.engine.results.run_folder import RunFolder
from exaul.engine.results.sealed import Arrays
from exaul.engine.results.trials import curves_table
from exaul.kernels.rates import block_lengths
from exaul.kernels.thumbs import PERFECT

Report = Callable[[int], object]  # is called with rounds, of all copies, that were played


class Unit(NamedTuple):
    """What is simulated together."""

    players: tuple[Player, ...]
    survey: bool  # whether the arms of least loss are found, too


class UnitResult(NamedTuple):
    """What some units of a batch left."""

    trajectories: dict[str, Trajectory]  # by player
    best: BestArms | None  # of every cell and trial of an oblivious environment, once they are known

    def joined(self, other: "UnitResult") -> "UnitResult":
        """Add what another unit left."""
        return UnitResult(self.trajectories | other.trajectories, self.best or other.best)


def units(prepared: Prepared) -> list[Unit]:
    """Each player alone where the world reacts to it; elsewhere all at once, and then the comparators."""
    if prepared.reacts:
        return [Unit((player,), survey=False) for player in prepared.players]
    comparators = tuple(player for player in prepared.players if player.compares)
    others = Unit(tuple(player for player in prepared.players if not player.compares), survey=True)
    return [others, Unit(comparators, survey=False)] if comparators else [others]


def play(prepared: Prepared, batches: Iterable[NDArray[np.int64]], folder: RunFolder, report: Report) -> Counts:
    """Play a sweep, batch after batch of its trials, or what is left of it."""
    parts = (part for trials in batches for part in _fit(replace(prepared, trials=trials), folder, report))
    return join(parts, len(prepared.trials))


def _fit(prepared: Prepared, folder: RunFolder, report: Report) -> list[Counts]:
    """A batch, or its halves where the device runs out of memory."""
    reported = 0

    def count(rounds: int) -> None:
        nonlocal reported
        reported += rounds
        report(rounds)

    try:
        return [counts_of(prepared, _play_batch(prepared, folder, count))]
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        if len(prepared.trials) == 1:
            raise BadInput(
                "arms: a single trial does not fit the memory; fewer arms, alphas, lambdas or learners would"
            ) from error
    report(-reported)
    halves = np.array_split(prepared.trials, 2)
    return [part for half in halves for part in _fit(replace(prepared, trials=half), folder, report)]


def _play_batch(prepared: Prepared, folder: RunFolder, report: Report) -> UnitResult:
    done = UnitResult({}, None)
    copies = len(prepared.alpha) * len(prepared.trials)
    for number, unit in enumerate(units(prepared)):
        name = f"trials-{prepared.trials[0]}-{prepared.trials[-1]}-{number}"
        each = copies * len(unit.players)
        found = folder.finished(name)
        if found is None:
            how = _interact if prepared.reacts else _roll
            result = how(prepared, unit, done, folder, name, partial(_report, report, each))
            folder.finish(name, _packed(result))
        else:
            result = _unpacked(found)
            report(each * prepared.horizon)
        done = done.joined(result)
    return done


def _report(report: Report, copies: int, rounds: int) -> None:
    report(copies * rounds)


def _roll(
    prepared: Prepared, unit: Unit, done: UnitResult, folder: RunFolder, name: str, report: Report
) -> UnitResult:
    """Some players over the records of a world that does not react."""
    marks, stream = prepared.checkpoints, prepared.stream()
    survey = _survey(prepared, stream) if unit.survey else None
    known = np.zeros(len(prepared.alpha) * len(prepared.trials), np.int32) if done.best is None else done.best.arm
    rollouts = {player.name: Rollout(player, prepared, stream, known, len(marks)) for player in unit.players}

    def so_far() -> UnitResult:
        best = done.best if survey is None else survey.best()
        assert best is not None
        return UnitResult({name: rollout.trajectory(best) for name, rollout in rollouts.items()}, best)

    def save(blocks: int, tree: Any) -> None:
        folder.save(name, blocks, tree, lambda: curves_table(counts_of(prepared, done.joined(so_far()))))

    saver = Saver(partial(folder.restore, name), folder.due, save)
    play_all(list(rollouts.values()), stream, marks, report, survey, saver)
    return so_far()


def _survey(prepared: Prepared, stream: Stream) -> Survey:
    """Of the arms of least loss: on the device where there is one beside the host."""
    more = len(prepared.grid), prepared.checkpoints, prepared.answer_cost, prepared.abstain_cost
    return Survey(stream.column, *more) if platform() == "cpu" else TracedSurvey(stream, *more)


def _interact(
    prepared: Prepared, unit: Unit, done: UnitResult, folder: RunFolder, name: str, report: Report
) -> UnitResult:
    """A player against an environment that answers back, in games of its own."""
    (player,), environment = unit.players, prepared.environment
    assert isinstance(environment, Adaptive)
    copies = prepared.copies()
    tuning = np.repeat(prepared.tuning[None], len(copies.draw), axis=0)
    more = tuning, prepared.trials, prepared.sweep.seed, prepared.checkpoints
    games = Interaction(player, environment, prepared.world(), copies, *more)

    def so_far() -> UnitResult:
        return UnitResult({player.name: games.trajectory()}, None)

    def save(blocks: int, tree: Any) -> None:
        folder.save(name, blocks, tree, lambda: curves_table(counts_of(prepared, done.joined(so_far()))))

    games.run(report, Saver(partial(folder.restore, name), folder.due, save))
    return so_far()


def counts_of(prepared: Prepared, result: UnitResult) -> Counts:
    """The counts of the players that have played, up to the last checkpoint that each has reached."""

    def shaped(x: NDArray[Any]) -> NDArray[Any]:
        return x.reshape(-1, len(prepared.alpha), len(prepared.trials))

    done = result.trajectories
    players = {player.name: player for player in prepared.players if player.name in done}
    t, lengths = prepared.checkpoints, block_lengths(prepared.horizon)
    answered = {name: shaped(done[name].answered) for name in players}

    def risk_bound(player: Player) -> NDArray[np.float64]:
        assert player.learner.risk_bound is not None
        counts = answered[player.name]
        rounds = t[: len(counts), None, None]
        bound = player.learner.risk_bound(*player.rates, lengths, rounds, counts, len(prepared.grid))
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
            bound = player.learner.risk_bound(*player.rates, lengths, rounds, answers, len(prepared.grid))
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
        best_loss={name: shaped(done[name].best.loss) for name in players},
        best_arm={name: shaped(done[name].best.arm)[0] for name in players},
        eta={name: float(player.rates.eta[-1]) for name, player in players.items()},
        gamma={name: float(player.rates.gamma[-1]) for name, player in players.items()},
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


def _packed(result: UnitResult) -> Arrays:
    players = {name: one._asdict() | {"best": one.best._asdict()} for name, one in result.trajectories.items()}
    return flat({"players": players} | ({} if result.best is None else {"best": result.best._asdict()}))


def _unpacked(packed: Arrays) -> UnitResult:
    fields = {"players": {}} | nested(packed)
    trajectories = {
        name: Trajectory(**({"asked": {}, "heard": {}} | one | {"best": BestArms(**one["best"])}))
        for name, one in fields["players"].items()
    }
    return UnitResult(trajectories, BestArms(**fields["best"]) if "best" in fields else None)
