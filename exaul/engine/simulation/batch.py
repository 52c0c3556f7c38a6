"""Simulate a batch: all learners on some trials of a source."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from exaul.engine.machine import platform
from exaul.engine.results.counts import Counts
from exaul.engine.simulation.best_arms import NO_ARMS, BestArmCounter, Trajectory
from exaul.engine.simulation.counting import counts_of
from exaul.engine.simulation.oblivious import NO_SAVES, Rollout, Saves, simulate_rollouts
from exaul.engine.simulation.players import Player
from exaul.engine.simulation.prepare import Prepared
from exaul.engine.simulation.schedule import TrialRecords

Report = Callable[[int], object]  # called with the rounds simulated since its last call, of all copies together


def simulate_batch(prepared: Prepared, report: Report, saves: Saves = NO_SAVES) -> Counts:
    """Simulate the trials of a prepared source, or the rest of them after the last save.

    Raises:
        MemoryError: the host or a device has too little memory for so many trials.
    """
    on_host = platform() == "cpu" and all(player.backend.simulation.on_host for player in prepared.players)
    if on_host and not prepared.is_adaptive:
        return counts_of(prepared, _simulate_oblivious(prepared, report, saves))
    import jax

    simulate = _simulate_adaptive if prepared.is_adaptive else _simulate_oblivious
    try:
        with jax.enable_x64(True):
            return counts_of(prepared, simulate(prepared, report, saves))
    except jax.errors.JaxRuntimeError as error:
        # NumPy raises MemoryError; JAX has no such class and names the status in the message
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise MemoryError(str(error)) from error


def _simulate_adaptive(prepared: Prepared, report: Report, saves: Saves) -> dict[str, Trajectory]:
    from exaul.engine.simulation.adaptive import Interaction, simulate_games

    return simulate_games([Interaction.of(prepared, player) for player in prepared.players], report, saves)


def _simulate_oblivious(prepared: Prepared, report: Report, saves: Saves) -> dict[str, Trajectory]:
    """Simulate first the learners, with the search for the best arms; then the fixed arms, which need these."""
    trajectories: dict[str, Trajectory] = {}

    def simulate(
        players: list[Player],
        records: TrialRecords,
        arms: NDArray[np.int32],
        counter: BestArmCounter | None,
        saves: Saves,
    ) -> None:
        rollouts = [Rollout(player, prepared, records, arms, len(prepared.checkpoints)) for player in players]
        many = sum(map(prepared.copies_of, players))
        simulate_rollouts(rollouts, records, prepared.checkpoints, lambda n: report(many * n), counter, saves)
        trajectories.update({rollout.player.name: rollout.trajectory() for rollout in rollouts})

    fixed = [player for player in prepared.players if player.is_fixed]
    learners = [player for player in prepared.players if not player.is_fixed]
    records = prepared.trial_records()
    counter = _start_counter(prepared, records)
    simulate(learners, records, NO_ARMS.arm, counter, saves)
    best = counter.best()
    if fixed:
        simulate(fixed, prepared.trial_records(), best.arm, None, NO_SAVES)
    return {name: trajectory._replace(best=best) for name, trajectory in trajectories.items()}


def _start_counter(prepared: Prepared, trial_records: TrialRecords) -> BestArmCounter:
    """Start the search for the best arms, on the device if it is not the host's CPU."""
    arms, checkpoints = len(prepared.grid), prepared.checkpoints
    costs = prepared.answer_cost, prepared.abstain_cost
    if platform() == "cpu":
        return BestArmCounter(trial_records.record_stream, arms, checkpoints, *costs)
    from exaul.engine.simulation.traced import TracedBestArmCounter

    return TracedBestArmCounter(trial_records, arms, checkpoints, *costs)
