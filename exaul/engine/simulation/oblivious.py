"""The loop of oblivious environments: simulate players on records of trials, and collect totals at checkpoints."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine.checks import BadInput
from exaul.engine.simulation.best_arms import NO_ARMS, BestArmCounter, Trajectory
from exaul.engine.simulation.players import Player
from exaul.engine.simulation.prepare import Prepared
from exaul.engine.simulation.schedule import Chunk, TrialRecords, make_chunks
from exaul.engine.simulation.simulation import rates_of_blocks
from exaul.kernels.game import ROUNDS
from exaul.kernels.metrics import Floats


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
    """The copies of one player, and their totals so far."""

    def __init__(
        self,
        player: Player,
        prepared: Prepared,
        trial_records: TrialRecords,
        best: NDArray[np.int32],
        checkpoints: int,
    ) -> None:
        """Prepare round 1; ``best`` [cells x trials] are the arms of least loss, empty except for fixed arms."""
        self.player = player
        self.count = prepared.copies_of(player)
        start = prepared.padded_start(player, best if best.size else None)
        self.copies = prepared.padded_copies(player, trial_records.record_stream)
        self.simulation = player.start(self.copies, start, len(prepared.grid), trial_records)
        self.answered = np.zeros((checkpoints, self.count), np.int64)
        self.wrong = np.zeros((checkpoints, self.count))
        self.feedback_sums: dict[str, Floats] = {}  # after the last chunk that was collected
        self.reached = 0

    def start(self, chunk: Chunk) -> None:
        """Start to simulate a chunk."""
        self.is_checkpoint = chunk.schedule.checkpoint_rounds > 0
        self.simulation.start(chunk, rates_of_blocks(self.player.rates, chunk.schedule.block))

    def collect(self) -> None:
        """Wait for the chunk that was started, and store the totals at its checkpoints and the sums of feedback.

        Raise BadInput if the learner is the user's, and its state is not finite.
        """
        totals = self.simulation.collect()
        if ":" in self.player.name:
            from exaul.engine.simulation.user_code_checks import check_finite  # which imports JAX

            check_finite(self.player, lambda: self.simulation.state)
        self.feedback_sums = self.player.feedback_sums(lambda: self.simulation.state, self.count)
        rows = slice(self.reached, self.reached + int(self.is_checkpoint.sum()))
        self.answered[rows] = totals.answered[self.is_checkpoint][:, : self.count]
        self.wrong[rows] = totals.wrong[self.is_checkpoint][:, : self.count]
        self.reached = rows.stop

    def save(self) -> Any:
        """Return all that changes, as a tree of arrays, which the next ``start`` may change."""
        return self.simulation.save(), self.answered, self.wrong, self.reached

    def restore(self, tree: Any) -> None:
        """Continue from what ``save`` returned."""
        simulation, self.answered, self.wrong, reached = tree
        self.simulation.restore(simulation)
        self.reached = int(reached)

    def trajectory(self) -> Trajectory:
        """Return the totals at all checkpoints, without the arms of least loss."""
        return Trajectory(self.answered, self.wrong, NO_ARMS, {}, self.feedback_sums)


def _copies_on_devices(
    rollouts: Sequence[Rollout], trial_records: TrialRecords, counter: BestArmCounter | None
) -> int | None:
    """Return the copies of a player if all players run on devices; None if any part needs records from the host."""
    if (counter is not None and counter.on_host) or any(rollout.simulation.on_host for rollout in rollouts):
        return None
    return max((rollout.count for rollout in rollouts), default=len(trial_records.trials))


def simulate_rollouts(
    rollouts: Sequence[Rollout],
    trial_records: TrialRecords,
    checkpoints: Any,
    progress: Callable[[int], object],
    counter: BestArmCounter | None = None,
    saves: Saves = NO_SAVES,
) -> None:
    """Simulate all players on the same records, chunk by chunk.

    ``checkpoints`` are [P] rounds, the last the horizon. ``progress`` is called with the rounds of each chunk.
    """
    parts: list[TrialRecords | BestArmCounter | Rollout] = [
        trial_records,
        *([] if counter is None else [counter]),
        *rollouts,
    ]
    start, trees = saves.restore(lambda: [part.save() for part in parts])
    if start:
        for part, tree in zip(parts, trees, strict=True):
            part.restore(tree)
    progress(min(start * ROUNDS, trial_records.horizon))
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
        progress(running_rounds)
        running_rounds = 0

    copies = _copies_on_devices(rollouts, trial_records, counter)
    for chunk in make_chunks(trial_records, checkpoints, start, copies):
        if running_rounds and saves.due():
            import jax

            collect()
            saves.save(int(chunk.schedule.block[0]), jax.tree.leaves([part.save() for part in parts]))
        if counter is not None:
            counter.count_chunk(chunk)
        if any(rollout.simulation.on_host for rollout in rollouts):
            chunk.host_records()  # made now, while the previous chunk runs
        collect()
        for rollout in rollouts:
            rollout.start(chunk)
        running_rounds = chunk.schedule.rounds
    collect()
