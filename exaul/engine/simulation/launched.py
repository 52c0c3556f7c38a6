"""Simulate copies on the CUDA backends: a chunk is one asynchronous launch on each device."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from exaul.engine.simulation.schedule import Chunk, TrialRecords
from exaul.engine.simulation.simulation import Totals
from exaul.kernels.backends.cuda.backend import CudaBackend
from exaul.kernels.backends.cuda.copies import KernelSchedule
from exaul.kernels.game import Block, Copies, Outcome, Rates

ARRAYS = 3  # device arrays of the size of the weights: the state and a launch's working memory


class LaunchedSimulation:
    """B copies on the backends ``cuda`` and ``cuda-warps``, by the protocol ``Simulation``."""

    on_host = False

    def __init__(
        self, kernels: CudaBackend, copies: Copies, best: NDArray[np.int32], arms: int, stream: TrialRecords
    ) -> None:
        from exaul.kernels.backends.cuda.launch import DeviceSimulation  # imports numba-cuda

        self.kernels = kernels
        self.running = DeviceSimulation(kernels, arms, best)
        self.running.load(stream.records, stream.draws.decision, copies)

    @property
    def state(self) -> Any:
        """The state of the backend, [rows, B], copied to the host."""
        return self.running.state

    def start(self, chunk: Chunk, rates: Rates) -> None:
        """Start to simulate a chunk."""
        schedule = chunk.schedule
        rounds = schedule.active.sum(axis=1).astype(np.int32)
        self.running.launch(KernelSchedule(schedule.block, rounds, schedule.checkpoint_rounds, *rates))

    def collect(self) -> Totals:
        """Wait for the chunk."""
        return Totals(*self.running.collect())

    def save(self) -> Any:
        """Return state, totals and positions in the pools, independent of the number of devices."""
        return self.running.save()

    def restore(self, tree: Any) -> None:
        """Continue from what ``save`` returned."""
        self.running.restore(tree)

    def advance(self, blocks: Block, rates: Rates, copies: Copies) -> Outcome:
        """Simulate given blocks, and return every decision."""
        return self.running.advance(blocks, rates, copies)

    def dense_state(self, rates: Rates, copies: Copies) -> Any:
        """Return the state that the dense backend would have."""
        assert self.kernels.dense_state is not None
        # CUDA backends keep copies last
        return jax.tree.map(np.transpose, self.kernels.dense_state(self.state, copies.parameters(rates)))

    @staticmethod
    def memory(state_bytes: int, program: Callable[[], int] | None) -> tuple[int, int]:
        """Count the state on the host twice (as made and as sent), and ARRAYS times over the devices."""
        from exaul.kernels.backends.cuda.device import cuda

        return 2 * state_bytes, ARRAYS * state_bytes // max(1, len(cuda.gpus))
