"""Simulate a sweep in batches and units, each of which can be resumed.

A batch has some of the trials, as many as fit the memory. A unit is a batch of some players: in an oblivious
environment first all learners, then the fixed arms; in an adaptive environment one player after the other.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from exaul.engine.checks import BadInput
from exaul.engine.logs.files import Table
from exaul.engine.machine import platform
from exaul.engine.results.counts import Counts, join_counts
from exaul.engine.results.run_folder import RunFolder
from exaul.engine.results.sealed import Arrays
from exaul.engine.results.trials import curves_table
from exaul.engine.settings import flatten, unflatten
from exaul.engine.simulation.adaptive import Interaction
from exaul.engine.simulation.best_arms import BestArmCounter, BestArms, TracedBestArmCounter, Trajectory
from exaul.engine.simulation.counting import counts_of
from exaul.engine.simulation.oblivious import Rollout, Saver, simulate_rollouts
from exaul.engine.simulation.players import Player
from exaul.engine.simulation.prepare import Prepared
from exaul.engine.simulation.schedule import TrialRecords

Report = Callable[[int], object]  # called with the rounds simulated since its last call, of all copies together
Progress = Callable[[int], object]  # likewise, with the rounds of each copy


class SimulationUnit(NamedTuple):
    """Players that are simulated together."""

    players: tuple[Player, ...]
    best_arms: bool  # whether to find the arms of least loss as well


class UnitResult(NamedTuple):
    """Results of some units of a batch."""

    trajectories: dict[str, Trajectory]  # by player
    best: BestArms | None  # of every cell and trial of an oblivious environment, once known

    def joined(self, other: "UnitResult") -> "UnitResult":
        """Add the result of another unit."""
        return UnitResult(self.trajectories | other.trajectories, self.best or other.best)


def sweep_units(prepared: Prepared) -> list[SimulationUnit]:
    """Return the units of a sweep, in order. Fixed arms come last: the first unit finds the best one."""
    if prepared.is_adaptive:
        return [SimulationUnit((player,), best_arms=False) for player in prepared.players]
    fixed = tuple(player for player in prepared.players if player.is_fixed)
    others = tuple(player for player in prepared.players if not player.is_fixed)
    first = SimulationUnit(others, best_arms=True)
    return [first, SimulationUnit(fixed, best_arms=False)] if fixed else [first]


def simulate_sweep(
    prepared: Prepared, batches: Iterable[NDArray[np.int64]], folder: RunFolder, report: Report
) -> Counts:
    """Simulate a sweep, or the rest of it, batch by batch, and return its counts."""
    parts = (
        part for trials in batches for part in _simulate_by_halves(replace(prepared, trials=trials), folder, report)
    )
    return join_counts(parts, len(prepared.trials))


def _simulate_by_halves(prepared: Prepared, folder: RunFolder, report: Report) -> list[Counts]:
    """Simulate a batch; if memory runs out, simulate its halves instead, recursively."""
    # A trial does not depend on its batch, so halving changes no result. Rounds that the failed attempt reported
    # are taken back. The estimate of ``resources`` makes this rare.
    reported = 0

    def count(rounds: int) -> None:
        nonlocal reported
        reported += rounds
        report(rounds)

    try:
        return [counts_of(prepared, _simulate_batch(prepared, folder, count).trajectories)]
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        # NumPy and the CUDA backends raise MemoryError; JAX has no such class and names the status in the message
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        if len(prepared.trials) == 1:
            raise BadInput(
                "arms: a single trial does not fit the memory; use fewer arms, alphas, lambdas or learners"
            ) from error
    # outside the ``except`` block, because the exception keeps the arrays of the failed attempt alive
    report(-reported)
    halves = np.array_split(prepared.trials, 2)
    return [part for half in halves for part in _simulate_by_halves(replace(prepared, trials=half), folder, report)]


def _simulate_batch(prepared: Prepared, folder: RunFolder, report: Report) -> UnitResult:
    done = UnitResult({}, None)
    copies = len(prepared.alpha) * len(prepared.trials)
    for number, unit in enumerate(sweep_units(prepared)):
        # first and last trial identify the batch: a resumed run that must halve again finds the finished halves
        name = f"trials-{prepared.trials[0]}-{prepared.trials[-1]}-{number}"
        copies_of_unit = copies * len(unit.players)
        saved = folder.finished(name)
        if saved is None:
            simulate = _simulate_adaptive_unit if prepared.is_adaptive else _simulate_oblivious_unit

            def progress(rounds: int, copies: int = copies_of_unit) -> None:
                report(copies * rounds)

            result = simulate(prepared, unit, done, folder, name, progress)
            folder.finish(name, _pack(result))
        else:
            result = _unpack(saved)
            report(copies_of_unit * prepared.horizon)
        done = done.joined(result)
    return done


def _simulate_oblivious_unit(
    prepared: Prepared, unit: SimulationUnit, done: UnitResult, folder: RunFolder, name: str, progress: Progress
) -> UnitResult:
    trial_records = prepared.trial_records()
    counter = _start_counter(prepared, trial_records) if unit.best_arms else None
    # read by fixed arms only, which come after the unit that finds the best arms
    no_arms = np.zeros(len(prepared.alpha) * len(prepared.trials), np.int32)
    best_arms = no_arms if done.best is None else done.best.arm
    rollouts = {
        player.name: Rollout(player, prepared, trial_records, best_arms, len(prepared.checkpoints))
        for player in unit.players
    }

    def result_so_far() -> UnitResult:
        best = done.best if counter is None else counter.best()
        assert best is not None
        return UnitResult({name: rollout.trajectory(best) for name, rollout in rollouts.items()}, best)

    saver = _saver(prepared, done, folder, name, result_so_far)
    simulate_rollouts(list(rollouts.values()), trial_records, prepared.checkpoints, progress, counter, saver)
    return result_so_far()


def _saver(
    prepared: Prepared, done: UnitResult, folder: RunFolder, name: str, result_so_far: Callable[[], UnitResult]
) -> Saver:
    """Return the saver of a unit, which also writes the curves so far."""

    def save(blocks: int, tree: Any) -> None:
        def curves() -> Table:
            return curves_table(counts_of(prepared, done.joined(result_so_far()).trajectories))

        folder.save(name, blocks, tree, curves)

    return Saver(partial(folder.restore, name), folder.due, save)


def _start_counter(prepared: Prepared, trial_records: TrialRecords) -> BestArmCounter:
    """Start the search for the best arms, on the device if it is not the host's CPU."""
    arms, checkpoints = len(prepared.grid), prepared.checkpoints
    costs = prepared.answer_cost, prepared.abstain_cost
    if platform() == "cpu":
        return BestArmCounter(trial_records.record_stream, arms, checkpoints, *costs)
    return TracedBestArmCounter(trial_records, arms, checkpoints, *costs)


def _simulate_adaptive_unit(
    prepared: Prepared, unit: SimulationUnit, done: UnitResult, folder: RunFolder, name: str, progress: Progress
) -> UnitResult:
    (player,) = unit.players
    games = Interaction.of(prepared, player)

    def result_so_far() -> UnitResult:
        return UnitResult({player.name: games.trajectory()}, None)

    trajectory = games.run(progress, _saver(prepared, done, folder, name, result_so_far))
    return UnitResult({player.name: trajectory}, None)


def _pack(result: UnitResult) -> Arrays:
    players = {
        name: trajectory._asdict() | {"best": trajectory.best._asdict()}
        for name, trajectory in result.trajectories.items()
    }
    return flatten({"players": players} | ({} if result.best is None else {"best": result.best._asdict()}))


def _unpack(packed: Arrays) -> UnitResult:
    fields = {"players": {}} | unflatten(packed)
    trajectories = {
        name: Trajectory(
            **({"asked": {}, "feedback_sums": {}} | trajectory | {"best": BestArms(**trajectory["best"])})
        )
        for name, trajectory in fields["players"].items()
    }
    return UnitResult(trajectories, BestArms(**fields["best"]) if "best" in fields else None)
