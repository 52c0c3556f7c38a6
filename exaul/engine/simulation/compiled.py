"""Simulate copies on backends that Numba compiles for the host; threads update the state in place."""

from concurrent.futures import Future
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.engine.simulation.schedule import Chunk, Totals, TrialRecords
from exaul.kernels.game import Copies, Rates, Start
from exaul.kernels.native import CheckpointSums, NativeBackend


def _tally(checkpoint_rounds: NDArray[np.int32], totals: Totals) -> CheckpointSums:
    shape = *checkpoint_rounds.shape, len(totals.wrong)
    return CheckpointSums(checkpoint_rounds, *totals, np.zeros(shape, np.int64), np.zeros(shape))


def _no_totals(copies: int) -> Totals:
    return Totals(np.zeros(copies, np.int64), np.zeros(copies))


class CompiledSimulation:
    """B copies on the backend ``native``, by the protocol ``Simulation``."""

    on_host, asked = True, ()

    def __init__(
        self,
        kernels: NativeBackend,
        copies: Copies,
        start: Start,
        arms: int,
        trial_records: TrialRecords,
    ) -> None:
        self.kernels, self.copies = kernels, copies
        self.state = kernels.init(arms, start, trial_records.records.stream_count)
        self.totals = _no_totals(len(start.arm))
        self.running: list[Future[Any]] = []

    def start(self, chunk: Chunk, rates: Rates) -> None:
        """Start to simulate a chunk."""
        # kept until ``collect``: the threads write into it and into ``totals`` and ``state``
        self.tally = _tally(chunk.schedule.checkpoint_rounds, self.totals)
        self.running = self.kernels.simulate(self.state, chunk.host_records(), rates, self.copies, self.tally)

    def collect(self) -> Totals:
        """Wait for the chunk."""
        for part in self.running:
            part.result()
        return Totals(self.tally.answered_at_checkpoints, self.tally.wrong_at_checkpoints)

    def save(self) -> Any:
        """Return state and totals, independent of the number of threads."""
        return deepcopy(self.state), self.totals

    def restore(self, tree: Any) -> None:
        """Continue from what ``save`` returned."""
        saved, totals = tree
        self.state, self.totals = saved, Totals(*totals)
