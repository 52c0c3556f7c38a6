"""The protocol ``Simulation``, and that of compiled loops, whose threads update a state in place."""

from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np

from exaul.engine.simulation.schedule import Chunk, Saved, TrialRecords
from exaul.kernels.game import Copies, Rates, Start, Sums
from exaul.kernels.native import CheckpointSums, NativeBackend


class Simulation(Protocol):
    """B copies of a learner on one backend, after some rounds; it is ``Saved``, too."""

    asked: tuple[Any, ...]  # cuts and errors [K C, B] of the last chunk, if the environment is adaptive

    def __init__(self, backend: Any, copies: Copies, start: Start, arms: int, records: Any) -> None:
        """Prepare round 1 of some trials.

        Args:
            backend: the learner's, from ``backend_of``.
            copies: [B], B a multiple of ``machine.TILE``.
            start: of the B copies.
            arms: H.
            records: a ``TrialRecords``, or ``Questions`` of an adaptive environment.
        """

    @property
    def state(self) -> Any:
        """The state of the copies, [B, ...]; ``start`` may invalidate it."""

    def start(self, chunk: Chunk, rates: Rates) -> None:
        """Start to simulate a chunk at the rates [K] of its blocks, without waiting."""

    def collect(self) -> Sums:
        """Wait for the chunk that was started. Return the sums [K, S, B] at its checkpoints."""


def start_simulation(backend: Any, copies: Copies, start: Start, arms: int, records: Any) -> Simulation:
    """Return B copies of a learner on a backend before round 1; arguments as of ``Simulation``."""
    if isinstance(backend, NativeBackend):
        return CompiledSimulation(backend, copies, start, arms, records)
    from exaul.engine.simulation.rounds import RoundsSimulation  # which imports JAX

    return RoundsSimulation(backend, copies, start, arms, records)


class CompiledSimulation(Saved):
    """B copies on the backend ``native``, by the protocol ``Simulation``. Its state does not depend on threads."""

    asked = ()
    changing = "state", "sums"

    def __init__(
        self,
        backend: NativeBackend,
        copies: Copies,
        start: Start,
        arms: int,
        trial_records: TrialRecords,
    ) -> None:
        self.backend, self.copies = backend, copies
        self.state = backend.init(arms, start, trial_records.records.stream_count)
        self.sums = Sums(np.zeros(len(start.arm), np.int64), np.zeros(len(start.arm)))
        self.running: list[Future[Any]] = []

    def start(self, chunk: Chunk, rates: Rates) -> None:
        """Start to simulate a chunk."""
        # kept until ``collect``: the threads write into it and into ``sums`` and ``state``
        self.tally = CheckpointSums.after(self.sums, chunk.schedule.checkpoint_rounds)
        self.running = self.backend.simulate(self.state, chunk.host_records(), rates, self.copies, self.tally)

    def collect(self) -> Sums:
        """Wait for the chunk."""
        for part in self.running:
            part.result()
        return self.tally.at_checkpoints
