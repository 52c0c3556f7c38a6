"""The loop of worlds that do not react: players go through a stream, and leave totals at checkpoints."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine.machine import devices
from exaul.engine.play.players import Player
from exaul.engine.play.prepare import Prepared
from exaul.engine.play.schedule import Chunk, Stream, chunks
from exaul.engine.play.simulation import rates_at
from exaul.engine.play.survey import BestArms, Survey, Trajectory
from exaul.kernels.game import ROUNDS


class Saver(NamedTuple):
    """How a unit of play is saved at the edges of chunks, and resumed.

    ``restore(tree)`` takes the tree before round 1. It returns how many blocks were played at the last save, and
    the tree that was saved; without a save, 0 and the same tree. ``save(blocks, tree)`` saves, where
    ``due()`` is true.
    """

    restore: Callable[[Any], tuple[int, Any]]
    due: Callable[[], bool]
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
        padded = devices.padded(self.count)
        self.copies = prepared.copies(stream.column).take(padded)
        self.simulation = player.start(self.copies, np.ravel(best)[padded], len(prepared.grid), stream)
        self.answered = np.zeros((checkpoints, self.count), np.int64)
        self.wrong = np.zeros((checkpoints, self.count))
        self.reached = 0

    def start(self, chunk: Chunk) -> None:
        """Start to play a chunk."""
        self.real = chunk.when.marks > 0
        self.simulation.start(chunk, rates_at(self.player.rates, chunk.when.block))

    def collect(self) -> None:
        """Wait for the chunk that was started, and record the totals at its checkpoints."""
        at_marks = self.simulation.collect()
        rows = slice(self.reached, self.reached + int(self.real.sum()))
        self.answered[rows] = at_marks.answered[self.real][:, : self.count]
        self.wrong[rows] = at_marks.wrong[self.real][:, : self.count]
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
        heard = self.player.heard(self.simulation.state, self.count)
        return Trajectory(self.answered[rows], self.wrong[rows], BestArms(best.loss[rows], best.arm), {}, heard)


def _on_devices(rollouts: Sequence[Rollout], stream: Stream, survey: Survey | None) -> int | None:
    """The copies of a player where all play on a device; None where the host makes records, for someone there."""
    if (survey is not None and survey.on_host) or any(rollout.simulation.on_host for rollout in rollouts):
        return None
    return max((rollout.count for rollout in rollouts), default=len(stream.trials))


def play_all(
    rollouts: Sequence[Rollout],
    stream: Stream,
    checkpoints: Any,
    progress: Callable[[int], object],
    survey: Survey | None = None,
    saver: Saver = NO_SAVES,
) -> None:
    """Every player plays every chunk while the next one is made.

    Args:
        rollouts: of the players.
        stream: of the records.
        checkpoints: [P] rounds, the last the horizon.
        progress: called with the rounds of each chunk.
        survey: of the arms of least loss, if it is to be made.
        saver: saves the game at the edges of chunks.
    """
    parts: list[Rollout | Survey | Stream] = [*rollouts, stream, *([] if survey is None else [survey])]
    start, trees = saver.restore([part.save() for part in parts])
    if start:
        for part, tree in zip(parts, trees, strict=True):
            part.restore(tree)
    progress(min(start * ROUNDS, stream.horizon))
    played = 0
    for chunk in chunks(stream, checkpoints, start, _on_devices(rollouts, stream, survey)):
        if survey is not None:
            survey.add(chunk)
        for rollout in rollouts:
            rollout.simulation.prepare(chunk)
        for rollout in rollouts:
            if played:
                rollout.collect()
            rollout.start(chunk)
        progress(played)
        played = chunk.when.rounds
        if saver.due():
            for rollout in rollouts:
                rollout.collect()
            progress(played)
            played = 0
            saver.save(int(chunk.when.block[-1]) + 1, [part.save() for part in parts])
    for rollout in rollouts:
        if played:
            rollout.collect()
    progress(played)
