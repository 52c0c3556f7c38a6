"""Copies of a learner in an adaptive environment: their simulation, and what is counted of the records asked."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.engine import machine
from exaul.engine.environments.adaptive import Adaptive, AdaptivePool, Objective, tunable_choices
from exaul.engine.simulation.best_arms import ASKED, BestArmCounter, BestArms
from exaul.engine.simulation.learners import PreparedLearner
from exaul.engine.simulation.prepare import Prepared
from exaul.engine.simulation.rounds import Questions, RoundsSimulation
from exaul.engine.simulation.schedule import Schedule
from exaul.kernels import uniforms
from exaul.kernels.feedback import PERFECT_FEEDBACK
from exaul.kernels.game import ROUNDS, Copies
from exaul.kernels.metrics import Floats


class AskedRecords:
    """The best arms in hindsight of B copies, and sums over the records that they were asked, by kind.

    Every copy is asked records of its own, so each cell has its own best arms, counted with the costs of the cell.
    """

    def __init__(self, copies: Copies, trials: int, pool: AdaptivePool, checkpoints: NDArray[np.int64]) -> None:
        """Prepare round 1 of copies that are all trials of the first cell, then of the next."""
        count = len(copies.draw_stream)
        self.cells = [slice(first, first + trials) for first in range(0, count, trials)]
        self.counters = [
            BestArmCounter(
                np.arange(trials),
                len(pool.grid),
                checkpoints,
                copies.answer_cost[x][:1],
                copies.abstain_cost[x][:1],
            )
            for x in self.cells
        ]
        self.checkpoints = checkpoints
        self.sums = {kind: np.zeros((len(checkpoints), count)) for kind in ASKED}  # at the checkpoints reached
        self.running = {kind: np.zeros(count) for kind in ASKED}
        self.middle = float(np.repeat(pool.cuts, pool.counts).mean())

    def count(self, schedule: Schedule, rows: slice, cut: NDArray[np.int32], error: Floats) -> None:
        """Count the cuts and errors [K C, B] of a chunk; ``rows`` are its checkpoints among all."""
        for counter, cell in zip(self.counters, self.cells, strict=True):
            counter.count_records(
                schedule, np.ascontiguousarray(cut[:, cell].T), np.ascontiguousarray(error[:, cell].T)
            )
        # rows of the chunk at which its checkpoints are
        last = self.checkpoints[rows] - int(schedule.block[0]) * ROUNDS - 1
        high = cut >= self.middle
        for kind, amount in zip(ASKED, (error, error * high, (1 - error) * ~high), strict=True):
            running = self.running[kind] + np.cumsum(amount, axis=0)
            self.sums[kind][rows], self.running[kind] = running[last], running[-1]

    def best(self) -> BestArms:
        """Return the arms of least loss up to the last checkpoint reached."""
        return (
            np.concatenate([counter.best_loss[:, 0] for counter in self.counters], axis=1),
            np.concatenate([counter.best_arm[0] for counter in self.counters]),
        )

    def save(self) -> Any:
        """Return all that changes, as a tree of arrays; counting more records invalidates it."""
        return self.sums, self.running, [counter.save() for counter in self.counters]

    def restore(self, tree: Any) -> None:
        """Continue from what ``save`` returned."""
        self.sums, self.running, trees = tree
        for counter, saved in zip(self.counters, trees, strict=True):
            counter.restore(saved)


def interact(
    learner: PreparedLearner,
    environment: Adaptive,
    pool: AdaptivePool,
    copies: Copies,
    tuning: Floats,
    trials: NDArray[np.int64],
    seed: int,
    checkpoints: NDArray[np.int64],
    cell: NDArray[np.intp],
) -> tuple[RoundsSimulation, AskedRecords]:
    """Return B copies of a learner in an environment before round 1, and what counts the records they are asked.

    Args:
        learner: with a backend that plays round by round.
        environment: the environment.
        pool: what it asks from.
        copies: [B], all trials of the first cell, then of the next, each with its own stream of records.
        tuning: [B, tunables], with equal word tunables for all copies.
        trials: by number.
        seed: of all draws.
        checkpoints: [P] rounds, the last the horizon.
        cell: [B], of the learner's.
    """
    padded = machine.padded_indices(len(copies.draw_stream))
    scored = copies.take(padded)
    questions = Questions(
        environment,
        pool,
        Objective(
            scored.alpha,
            scored.answer_cost,
            scored.abstain_cost,
            tuning[padded],
            tunable_choices(environment, tuning[0]),
        ),
        uniforms.trial_keys(seed, uniforms.ENVIRONMENT, trials),
        uniforms.draw_keys(seed, trials, learner.feedback != PERFECT_FEEDBACK),
    )
    start = learner.start_of_copies(len(pool.grid), cell[padded], np.zeros(len(padded), np.int32))
    simulation = RoundsSimulation(learner.backend, learner.with_aim(scored), start, len(pool.grid), questions)
    return simulation, AskedRecords(copies, len(trials), pool, checkpoints)


def interact_as_prepared(prepared: Prepared, learner: PreparedLearner) -> tuple[RoundsSimulation, AskedRecords]:
    """Return all copies of a learner in a prepared sweep, as of ``interact``."""
    environment, copies = prepared.environment, prepared.copies(learner)
    assert isinstance(environment, Adaptive)
    return interact(
        learner,
        environment,
        prepared.adaptive_pool(),
        copies,
        tuning=np.repeat(prepared.tunable_values[None], len(copies.draw_stream), axis=0),
        trials=prepared.trials,
        seed=prepared.sweep.seed,
        checkpoints=prepared.checkpoints,
        cell=prepared.cell_of_copies(learner),
    )
