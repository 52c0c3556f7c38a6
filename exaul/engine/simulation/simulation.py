"""The protocol between the engine and a backend: start a chunk, then collect its totals."""

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from exaul.engine.simulation.schedule import Chunk
from exaul.kernels.game import Block, Copies, Outcome, Rates, Start


class Totals(NamedTuple):
    """Sums over the rounds of B copies, from which all results are computed."""

    answered: Any  # [B] int64
    wrong: Any  # [B] float64, sum of the errors of answered rounds


class Simulation(Protocol):
    """B copies of a learner on one backend, after some rounds."""

    state: Any  # the backend's own
    on_host: bool  # whether the host makes the records
    asked: tuple[Any, ...]  # cuts and errors [K C, B] of the last chunk, if the environment is adaptive

    def __init__(self, kernels: Any, copies: Copies, start: Start, arms: int, records: Any) -> None:
        """Prepare round 1 of some trials.

        Args:
            kernels: the learner's kernels, from the backend's ``make``.
            copies: [B], B a multiple of ``machine.TILE``.
            start: of the B copies.
            arms: H.
            records: a ``TrialRecords``, or ``Questions`` of an adaptive environment.
        """

    def start(self, chunk: Chunk, rates: Rates) -> None:
        """Start to simulate a chunk at the rates [K] of its blocks, without waiting."""

    def collect(self) -> Totals:
        """Wait for the chunk that was started. Return the totals [K, S, B] at its checkpoints."""

    def save(self) -> Any:
        """Return all that changes, as a tree of arrays, which later chunks may change."""

    def restore(self, tree: Any) -> None:
        """Continue from what ``save`` returned."""

    def advance(self, blocks: Block, rates: Rates, copies: Copies) -> Outcome:
        """Simulate given blocks, and return every decision [K C, B]; the totals do not change.

        Args:
            blocks: cuts and errors [K, C, R], draws [K, C, U], active [K, C]; at most 1,024 rounds.
            rates: [K].
            copies: [B]; records and draws may differ from those of ``__init__``.
        """

    def losses(self) -> Any:
        """Return the cumulative charges of the arms [B, H], up to a constant, of a learner with weights."""


class LearnerBackend(NamedTuple):
    """A learner's kernels on one backend, and the class that simulates them."""

    name: str  # of the backend
    kernels: Any  # a ``NativeBackend``, or a ``Backend`` of JAX
    simulation: type[Simulation]

    def start(self, copies: Copies, start: Start, arms: int, records: Any) -> Simulation:
        """Start B copies before round 1; arguments as of ``Simulation``."""
        return self.simulation(self.kernels, copies, start, arms, records)


def rates_of_blocks(rates: Rates, blocks: NDArray[np.uint32]) -> Rates:
    """Select the rates of blocks [K] from those of the horizon; a missing rate becomes 0."""
    # the last chunk may have blocks past the horizon, whose rounds are inactive: any rate will do
    return Rates(*(np.nan_to_num(x[np.minimum(blocks, len(x) - 1)]) for x in rates))
