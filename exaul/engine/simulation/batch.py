"""Simulate a batch: all learners on some trials of a source, chunk by chunk."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine.checks import BadInput
from exaul.engine.machine import forget_programs, padded_indices, platform
from exaul.engine.results.totals import Totals, totals_of
from exaul.engine.simulation.best_arms import BestArmCounter, BestArms
from exaul.engine.simulation.learners import PreparedLearner
from exaul.engine.simulation.prepare import Prepared
from exaul.engine.simulation.schedule import Chunk, TrialRecords, make_chunks, rates_of_blocks
from exaul.engine.simulation.simulations import Simulation, start_simulation
from exaul.kernels.game import ROUNDS
from exaul.kernels.metrics import Floats

if TYPE_CHECKING:  # which imports JAX
    from exaul.engine.simulation.interaction import AskedRecords

Report = Callable[[int], object]  # called with the rounds simulated since its last call, of all copies together


class Saves(NamedTuple):
    """Functions that save the state of a batch between chunks, and restore it.

    ``load()`` returns the number of finished blocks and the leaves of the last save, or 0 and [] without one.
    ``save(blocks, leaves)`` writes a save; ``due()`` says whether it is time for one.
    """

    load: Callable[[], tuple[int, list[Any]]]
    due: Callable[[], bool]
    save: Callable[[int, list[Any]], object]

    def restore(self, first: Callable[[], Any]) -> tuple[int, Any]:
        """Return (blocks, tree) of the last save, or (0, None); ``first()`` is the tree before round 1.

        Raise BadInput if the shapes of the saved state differ from it.
        """
        blocks, saved = self.load()
        if not blocks:
            return 0, None
        import jax

        leaves, tree = jax.tree.flatten(first())
        shapes = [[(np.shape(x), np.asarray(x).dtype) for x in each] for each in (leaves, saved)]
        if shapes[0] != shapes[1]:
            raise BadInput(
                "resume: the saved state has other shapes than expected; remove batches/now-* in the folder"
            )
        return blocks, jax.tree.unflatten(tree, saved)


NO_SAVES = Saves(lambda: (0, []), lambda: False, lambda blocks, leaves: None)


class Rollout:
    """The copies of one learner, and their totals so far."""

    def __init__(
        self,
        learner: PreparedLearner,
        simulation: Simulation,
        count: int,
        checkpoints: NDArray[np.int64],
        asked: "AskedRecords | None" = None,
    ) -> None:
        """Prepare round 1.

        Args:
            learner: with its backend and cells.
            simulation: of its copies, padded.
            count: B, the number of its copies.
            checkpoints: [P] rounds.
            asked: counts the records, if the environment is adaptive.
        """
        self.learner, self.simulation, self.count, self.asked = learner, simulation, count, asked
        self.answered = np.zeros((len(checkpoints), count), np.int64)
        self.wrong = np.zeros((len(checkpoints), count))
        self.feedback_sums: dict[str, Floats] = {}  # after the last chunk that was collected
        self.reached = 0

    def start(self, chunk: Chunk) -> None:
        """Start to simulate a chunk."""
        self.schedule = chunk.schedule
        self.simulation.start(chunk, rates_of_blocks(self.learner.rates, chunk.schedule.block))

    def collect(self) -> None:
        """Wait for the chunk that was started, and store the totals at its checkpoints and the sums of feedback.

        Raise BadInput if the learner is the user's, and its state is not finite.
        """
        sums = self.simulation.collect()
        if ":" in self.learner.name:
            from exaul.engine.simulation.user_code import check_finite  # which imports JAX

            check_finite(self.learner, lambda: self.simulation.state)
        self.feedback_sums = self.learner.feedback_sums(lambda: self.simulation.state, self.count)
        is_checkpoint = self.schedule.checkpoint_rounds > 0
        rows = slice(self.reached, self.reached + int(is_checkpoint.sum()))
        self.answered[rows] = sums.answered[is_checkpoint][:, : self.count]
        self.wrong[rows] = sums.wrong[is_checkpoint][:, : self.count]
        self.reached = rows.stop
        if self.asked is not None:
            self.asked.count(self.schedule, rows, *(x[:, : self.count] for x in self.simulation.asked))

    def save(self) -> Any:
        """Return all that changes, as a tree of arrays, which the next ``start`` may change."""
        asked = () if self.asked is None else self.asked.save()
        return self.simulation.save(), self.answered, self.wrong, self.reached, asked

    def restore(self, tree: Any) -> None:
        """Continue from what ``save`` returned."""
        simulation, self.answered, self.wrong, reached, asked = tree
        self.simulation.restore(simulation)
        self.reached = int(reached)
        if self.asked is not None:
            self.asked.restore(asked)


def simulate_batch(prepared: Prepared, report: Report, saves: Saves = NO_SAVES) -> Totals:
    """Simulate the trials of a prepared source, or the rest of them after the last save.

    Raises:
        MemoryError: the host or a device has too little memory for so many trials.
    """
    on_host = platform() == "cpu" and all(learner.on_host for learner in prepared.learners)
    if on_host and not prepared.is_adaptive:
        return totals_of(prepared, *_simulate_oblivious(prepared, report, saves))
    import jax

    forget_programs()  # a folder of logs of many lengths compiles one for each length
    simulate = _simulate_adaptive if prepared.is_adaptive else _simulate_oblivious
    try:
        with jax.enable_x64(True):
            return totals_of(prepared, *simulate(prepared, report, saves))
    except jax.errors.JaxRuntimeError as error:
        # NumPy raises MemoryError; JAX has no such class and names the status in the message
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise MemoryError(str(error)) from error


def _simulate_adaptive(prepared: Prepared, report: Report, saves: Saves) -> tuple[dict[str, Rollout], None]:
    from exaul.engine.simulation.interaction import interact_as_prepared

    rollouts = [
        Rollout(learner, simulation, prepared.copies_of(learner), prepared.checkpoints, asked)
        for learner in prepared.learners
        for simulation, asked in [interact_as_prepared(prepared, learner)]
    ]
    simulate_rollouts(rollouts, None, prepared.checkpoints, report, saves=saves)
    return {rollout.learner.name: rollout for rollout in rollouts}, None


def _simulate_oblivious(prepared: Prepared, report: Report, saves: Saves) -> tuple[dict[str, Rollout], BestArms]:
    """Simulate first the learners, with the search for the best arms; then the fixed arms, which need these."""

    def simulate(
        learners: list[PreparedLearner],
        records: TrialRecords,
        counter: BestArmCounter | None = None,
        saves: Saves = NO_SAVES,
        best: NDArray[np.int32] | None = None,
    ) -> dict[str, Rollout]:
        rollouts = [roll_out(prepared, learner, records, best) for learner in learners]
        simulate_rollouts(rollouts, records, prepared.checkpoints, report, counter, saves)
        for rollout in rollouts:
            del rollout.simulation  # the states of learners are freed before fixed arms begin
        return {rollout.learner.name: rollout for rollout in rollouts}

    fixed = [learner for learner in prepared.learners if learner.is_fixed]
    learners = [learner for learner in prepared.learners if not learner.is_fixed]
    records = prepared.trial_records()
    costs = prepared.answer_cost, prepared.abstain_cost
    counter = BestArmCounter(records.record_stream, len(prepared.grid), prepared.checkpoints, *costs)
    rollouts = simulate(learners, records, counter, saves)
    losses, arms = counter.best()
    if fixed:
        rollouts |= simulate(fixed, prepared.trial_records(), best=arms)
    return rollouts, (losses, arms)


def roll_out(
    prepared: Prepared, learner: PreparedLearner, records: TrialRecords, best: NDArray[np.int32] | None = None
) -> Rollout:
    """Return a learner's copies on records, before round 1; padded, so that every device gets whole tiles.

    ``best`` [pairs x trials] are the arms of least loss, which fixed arms read.
    """
    count, arms = prepared.copies_of(learner), len(prepared.grid)
    padded = padded_indices(count)
    copies = learner.with_aim(prepared.copies(learner, records.record_stream).take(padded))
    arm = np.zeros(len(padded), np.int32) if best is None else best[padded]
    start = learner.start_of_copies(arms, prepared.cell_of_copies(learner)[padded], arm)
    simulation = start_simulation(learner.backend, copies, start, arms, records)
    return Rollout(learner, simulation, count, prepared.checkpoints)


def simulate_rollouts(
    rollouts: Sequence[Rollout],
    trial_records: TrialRecords | None,
    checkpoints: NDArray[np.int64],
    report: Report,
    counter: BestArmCounter | None = None,
    saves: Saves = NO_SAVES,
) -> None:
    """Simulate all learners, chunk by chunk.

    Args:
        rollouts: of the learners.
        trial_records: of an oblivious environment, the same for all learners.
        checkpoints: [P] rounds, the last the horizon.
        report: called with the rounds of each chunk, of all copies together.
        counter: searches for the best arms in these records.
        saves: of the state.
    """
    parts: list[TrialRecords | BestArmCounter | Rollout] = [
        *([] if trial_records is None else [trial_records]),
        *([] if counter is None else [counter]),
        *rollouts,
    ]
    start, trees = saves.restore(lambda: [part.save() for part in parts])
    if start:
        for part, tree in zip(parts, trees, strict=True):
            part.restore(tree)
    copies = sum(rollout.count for rollout in rollouts)
    report(copies * min(start * ROUNDS, int(checkpoints[-1])))
    # The host makes the records of a chunk while threads or devices still simulate the previous one:
    #
    #   host         make 1 | make 2     | make 3     |
    #   simulations         | simulate 1 | simulate 2 | ...
    #                       ^ start 1    ^ collect 1, start 2
    running_rounds = 0  # rounds of the chunk that is running

    def collect() -> None:
        nonlocal running_rounds
        for rollout in rollouts:
            if running_rounds:
                rollout.collect()
        report(copies * running_rounds)
        running_rounds = 0

    width = len(trial_records.trials) if trial_records else max(rollout.count for rollout in rollouts)
    for chunk in make_chunks(trial_records, checkpoints, width, start):
        if running_rounds and saves.due():
            import jax

            collect()
            saves.save(int(chunk.schedule.block[0]), jax.tree.leaves([part.save() for part in parts]))
        if counter is not None:
            counter.count_chunk(chunk)
        if any(rollout.learner.on_host for rollout in rollouts):
            chunk.host_records()  # made now, while the previous chunk runs
        collect()
        for rollout in rollouts:
            rollout.start(chunk)
        running_rounds = chunk.schedule.rounds
    collect()
