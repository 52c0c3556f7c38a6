"""Copies on the backend of NVIDIA devices: a chunk is a launch on each of them, and the host need not wait."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from exaul.engine.play.schedule import Chunk, Stream
from exaul.engine.play.simulation import Copies, Floats, Totals
from exaul.kernels.backends.cuda.backend import CudaBackend
from exaul.kernels.backends.cuda.copies import Schedule
from exaul.kernels.game import Block, Outcome, Parameters

ARRAYS = 3  # arrays of the size of the weights: the state, and what a launch works in


class LaunchedSimulation:
    """B copies on the backend ``cuda``; see ``Simulation``."""

    on_host = False

    def __init__(self, backend: CudaBackend, copies: Copies, arms: int, stream: Stream) -> None:
        """Before round 1 of a stream."""
        from exaul.kernels.backends.cuda.launch import OnDevices  # imports numba-cuda

        self.backend = backend
        self.playing = OnDevices(backend, arms, copies.best)
        self.playing.load(stream.records, stream.draws, Parameters(0.0, 0.0, *copies[:5]))

    @property
    def state(self) -> Any:
        """That of the backend, [rows, B] on the host."""
        return self.playing.state

    def prepare(self, chunk: Chunk) -> None:
        """Nothing is needed."""

    def start(self, chunk: Chunk, rates: tuple[Floats, Floats]) -> None:
        """Start to play a chunk."""
        when = chunk.when
        rounds = when.active.sum(axis=1).astype(np.int32)
        self.playing.launch(Schedule(when.block, rounds, when.marks, *rates))

    def collect(self) -> Totals:
        """Wait for the chunk; the totals at its marks."""
        return Totals(*self.playing.collect())

    def save(self) -> Any:
        """State, totals, and the records that were played, whatever the number of devices."""
        return self.playing.save()

    def restore(self, tree: Any) -> None:
        """Go on from what ``save`` returned."""
        self.playing.restore(tree)

    def advance(self, blocks: Block, rates: tuple[Floats, Floats], copies: Copies) -> Outcome:
        """Play blocks, and return all that was done."""
        return self.playing.advance(blocks, rates, Parameters(0.0, 0.0, *copies[:5]))

    def dense_state(self, rates: tuple[Floats, Floats], copies: Copies) -> Any:
        """The state that the dense backend would have."""
        assert self.backend.dense_state is not None
        return jax.tree.map(np.transpose, self.backend.dense_state(self.state, Parameters(*rates, *copies[:3])))

    @staticmethod
    def memory(numbers: int, program: Callable[[], int] | None) -> tuple[int, int]:
        """Bytes on the host, the state as made and as laid out to be sent; and with room to work on each device."""
        from exaul.kernels.backends.cuda.device import cuda

        return 2 * numbers, ARRAYS * numbers // max(1, len(cuda.gpus))
