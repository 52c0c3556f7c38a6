"""What a backend is to the loops: copies of one learner that are started on a chunk, and collected."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from exaul.engine.play.schedule import Chunk, Stream
from exaul.kernels.game import Block, Outcome

Floats = NDArray[np.float64]


class Totals(NamedTuple):
    """Sums over rounds, all that is ever reported of B copies."""

    answered: Any  # int64
    wrong: Any  # float64, sum of the errors of answered rounds


class Copies(NamedTuple):
    """The numbers in which B copies of a learner differ, [B] each."""

    alpha: Floats  # target FDR
    answer_cost: Floats  # loss of an answer per unit of error
    abstain_cost: Floats  # loss of an abstention
    record: NDArray[np.int32]  # which column of records a copy meets
    draw: NDArray[np.int32]  # which trial's uniforms
    best: NDArray[np.int32]  # arm of least loss in hindsight, for comparators

    def take(self, lanes: NDArray[np.intp]) -> "Copies":
        """Some of the copies, by number [L]."""
        columns: Any = (np.take(x, lanes) for x in self)
        return Copies(*columns)


class Simulation(Protocol):
    """B copies of a learner on one backend, under way.

    ``state`` is the backend's own; ``on_host`` says whether the host makes its records.
    """

    state: Any
    on_host: bool

    def __init__(self, backend: Any, copies: Copies, arms: int, stream: Stream) -> None:
        """Before round 1 of a stream."""

    def prepare(self, chunk: Chunk) -> None:
        """Make ready what a chunk needs, while others still play the one before."""

    def start(self, chunk: Chunk, rates: tuple[Floats, Floats]) -> None:
        """Start to play a chunk with rates eta and gamma [K]; the host need not wait."""

    def collect(self) -> Totals:
        """Wait for the chunk that was started; the totals [K, S, B] at its marks."""

    def save(self) -> Any:
        """All that changes as it plays, as a tree of arrays."""

    def restore(self, tree: Any) -> None:
        """Go on from what ``save`` returned."""

    def advance(self, blocks: Block, rates: tuple[Floats, Floats], copies: Copies) -> Outcome:
        """Play blocks, and return all that was done [K C, B]; the totals do not change.

        Args:
            blocks: cuts and errors [K, C, R], uniforms [K, C, U], active [K, C]; at most 1,024 rounds.
            rates: eta and gamma [K].
            copies: the same number of copies as before; their records and draws may differ.
        """

    def dense_state(self, rates: tuple[Floats, Floats], copies: Copies) -> Any:
        """The state that the dense backend would have at rates eta and gamma [K], copies first: [B, H], or [B]."""

    @staticmethod
    def memory(numbers: int, program: Callable[[], int] | None) -> tuple[int, int]:
        """Bytes that it takes on the host, and that its program takes on each device.

        Args:
            numbers: bytes of one float64 a copy and arm.
            program: compiles the program and returns what it takes; None to estimate it.
        """


def rates_at(rates: tuple[Floats, Floats], blocks: NDArray[np.uint32]) -> tuple[Floats, Floats]:
    """Eta and gamma [K] of some blocks [K], from those of the whole horizon; 0 where there is none."""
    eta, gamma = (np.nan_to_num(x[np.minimum(blocks, len(x) - 1)]) for x in rates)
    return eta, gamma
