"""Copies on the native backend: a chunk is played by threads of the host, in place."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from exaul.engine.play.schedule import Chunk, Stream
from exaul.engine.play.simulation import Copies, Floats, Totals
from exaul.kernels.backends.native import NativeBackend, Rounds, Tally
from exaul.kernels.game import Block, Outcome, Parameters


def _tally(marks: NDArray[np.int32], totals: Totals) -> Tally:
    shape = *marks.shape, len(totals.wrong)
    return Tally(marks, *totals, np.zeros(shape, np.int64), np.zeros(shape))


class CompiledSimulation:
    """B copies on the native backend; see ``Simulation``."""

    on_host = True

    def __init__(self, backend: NativeBackend, copies: Copies, arms: int, stream: Stream) -> None:
        """Before round 1 of a stream."""
        self.backend, self.copies = backend, copies[:5]
        self.state = backend.init(arms, copies.best, stream.records.columns)
        self.totals = Totals(np.zeros(len(copies.draw), np.int64), np.zeros(len(copies.draw)))
        self.playing: list[Future[Any]] = []

    def prepare(self, chunk: Chunk) -> None:
        """Lay the records out for compiled code."""
        chunk.compiled  # noqa: B018

    def start(self, chunk: Chunk, rates: tuple[Floats, Floats]) -> None:
        """Start to play a chunk."""
        self.tally = _tally(chunk.when.marks, self.totals)
        parameters = Parameters(*rates, *self.copies)
        self.playing = self.backend.play(self.state, chunk.compiled, parameters, self.tally)

    def collect(self) -> Totals:
        """Wait for the chunk; the totals at its marks."""
        for part in self.playing:
            part.result()
        return Totals(self.tally.marked_answered, self.tally.marked_wrong)

    def save(self) -> Any:
        """State and totals, in a layout that does not depend on the number of threads."""
        return self.backend.save(self.state), self.totals

    def restore(self, tree: Any) -> None:
        """Go on from what ``save`` returned."""
        saved, totals = tree
        self.state, self.totals = self.backend.restore(self.state, saved), Totals(*totals)

    def advance(self, blocks: Block, rates: tuple[Floats, Floats], copies: Copies) -> Outcome:
        """Play blocks, and return all that was done."""
        shape = blocks.active.size, len(copies.draw)
        middle = np.zeros(shape) if self.backend.middles else None
        outcome = Outcome(np.zeros(shape, np.bool_), np.zeros(shape), middle)
        nothing = Totals(np.zeros(shape[1], np.int64), np.zeros(shape[1]))
        tally = _tally(np.zeros((len(blocks.active), 0), np.int32), nothing)
        parts = self.backend.play(self.state, Rounds.of(blocks), Parameters(*rates, *copies[:5]), tally, outcome)
        for part in parts:
            part.result()
        return outcome

    def dense_state(self, rates: tuple[Floats, Floats], copies: Copies) -> Any:
        """The state that the dense backend would have."""
        assert self.backend.dense_state is not None
        return jax.tree.map(np.transpose, self.backend.dense_state(self.state, Parameters(*rates, *copies[:3])))

    @staticmethod
    def memory(numbers: int, program: Callable[[], int] | None) -> tuple[int, int]:
        """Bytes of the state, all on the host."""
        return numbers, 0
