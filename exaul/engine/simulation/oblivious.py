"""The loop of oblivious environments: players go through a stream, and leave totals at checkpoints."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine.machine import devices
from exaul.engine.simulation.best_arms import BestArms, Survey, Trajectory
from exaul.engine.simulation.players import Player
from exaul.engine.simulation.prepare import Prepared
from exaul.engine.simulation.schedule import Chunk, Stream, make_chunks
from exaul.engine.simulation.simulation import rates_of_blocks
from exaul.kernels.game import ROUNDS


class Saver(NamedTuple):
    """How a unit of play is saved at the edges of chunks, and resumed.

    ``restore(tree)`` takes the tree before round 1. It returns how many blocks were played at the last save, and
    the tree that was saved; without a save, 0 and the same tree. ``save(blocks, tree)`` saves, where
    ``save_due()`` is true.
    """

    restore: Callable[[Any], tuple[int, Any]]
    save_due: Callable[[], bool]
    save: Callable[[int, Any], object]


NO_SAVES = Saver(lambda like: (0, like), lambda: False, lambda blocks, tree: None)


class Rollout:
    """The copies of one player on their way through a stream."""

    def __init__(
        self, player: Player, prepared: Prepared, stream: Stream, best: NDArray[np.int32], checkpoints: int
    ) -> None:
        """Before round 1.

        Args:
            player: whose copies.
            prepared: the sweep, whose cells and trials they are.
            stream: the records.
            best: [cells x trials] arms of least loss in hindsight, which only comparators read.
            checkpoints: how many there will be.
        """
        self.player = player
        self.count = len(prepared.alpha) * len(prepared.trials)
        padded = devices.padded_indices(self.count)
        self.copies = prepared.copies(stream.record_stream).take(padded)
        self.simulation = player.start(self.copies, np.ravel(best)[padded], len(prepared.grid), stream)
        self.answered = np.zeros((checkpoints, self.count), np.int64)
        self.wrong = np.zeros((checkpoints, self.count))
        self.reached = 0

    def start(self, chunk: Chunk) -> None:
        """Start to play a chunk."""
        self.at_checkpoint = chunk.schedule.checkpoint_rounds > 0
        self.simulation.start(chunk, rates_of_blocks(self.player.rates, chunk.schedule.block))

    def collect(self) -> None:
        """Wait for the chunk that was started, and record the totals at its checkpoints."""
        at_checkpoints = self.simulation.collect()
        rows = slice(self.reached, self.reached + int(self.at_checkpoint.sum()))
        self.answered[rows] = at_checkpoints.answered[self.at_checkpoint][:, : self.count]
        self.wrong[rows] = at_checkpoints.wrong[self.at_checkpoint][:, : self.count]
        self.reached = rows.stop

    def save(self) -> Any:
        """All that changes as it plays, as a tree of arrays."""
        return self.simulation.save(), self.answered, self.wrong, self.reached

    def restore(self, tree: Any) -> None:
        """Go on from what ``save`` returned."""
        simulation, self.answered, self.wrong, reached = tree
        self.simulation.restore(simulation)
        self.reached = int(reached)

    def trajectory(self, best: BestArms) -> Trajectory:
        """What was done up to the last checkpoint that was reached, beside the arms of least loss."""
        rows = slice(self.reached)
        heard = self.player.feedback_sums(self.simulation.state, self.count)
        return Trajectory(self.answered[rows], self.wrong[rows], BestArms(best.loss[rows], best.arm), {}, heard)


def _copies_on_devices(rollouts: Sequence[Rollout], stream: Stream, best_arms: Survey | None) -> int | None:
    """The copies of a player where all play on a device; None where the host makes records, for someone there."""
    if (best_arms is not None and best_arms.on_host) or any(rollout.simulation.on_host for rollout in rollouts):
        return None
    return max((rollout.count for rollout in rollouts), default=len(stream.trials))


def simulate_stream(
    rollouts: Sequence[Rollout],
    stream: Stream,
    checkpoints: Any,
    progress: Callable[[int], object],
    best_arms: Survey | None = None,
    saver: Saver = NO_SAVES,
) -> None:
    """Every player plays every chunk while the next one is made.

    Args:
        rollouts: of the players.
        stream: of the records.
        checkpoints: [P] rounds, the last the horizon.
        progress: called with the rounds of each chunk.
        best_arms: of the arms of least loss, if it is to be made.
        saver: saves the game at the edges of chunks.
    """
    parts: list[Rollout | Survey | Stream] = [*rollouts, stream, *([] if best_arms is None else [best_arms])]
    start, trees = saver.restore([part.save() for part in parts])
    if start:
        for part, tree in zip(parts, trees, strict=True):
            part.restore(tree)
    progress(min(start * ROUNDS, stream.horizon))
    played = 0
    for chunk in make_chunks(stream, checkpoints, start, _copies_on_devices(rollouts, stream, best_arms)):
        if best_arms is not None:
            best_arms.count_chunk(chunk)
        for rollout in rollouts:
            rollout.simulation.prepare(chunk)
        for rollout in rollouts:
            if played:
                rollout.collect()
            rollout.start(chunk)
        progress(played)
        played = chunk.schedule.rounds
        if saver.save_due():
            for rollout in rollouts:
                rollout.collect()
            progress(played)
            played = 0
            saver.save(int(chunk.schedule.block[-1]) + 1, [part.save() for part in parts])
    for rollout in rollouts:
        if played:
            rollout.collect()
    progress(played)
