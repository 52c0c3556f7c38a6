"""Blocks of rounds, prepared once for all learners that are simulated on them by the native backend."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from exaul.kernels.game import Block
from exaul.kernels.uniforms import Draws

PADDING = 16  # columns: rows that are a power of two long compete for the same cache sets


class RecordBlocks:
    """K blocks of rounds of R streams.

    Uniforms are drawn when a learner first asks for them.

    Attributes:
        rounds: number of rounds that are simulated; they come first.
        cuts: [R, N] int32 in 1..H-1, as of ``Block``; N = K C + 16, and the last 16 columns are padding.
        errors: [R, N] float64 in [0, 1].
    """

    def __init__(self, streams: int, size: int, rounds: int, draw: Callable[[], Draws]) -> None:
        """Allocate records with cuts 1 and errors 0; the caller fills them in.

        Args:
            streams: R.
            size: K C.
            rounds: number of rounds that are simulated.
            draw: returns the uniforms, [K, C, U] in [0, 1) each.
        """
        shape = streams, size + PADDING  # rows that are a power of two long compete for the same cache sets
        self.rounds, self.cuts, self.errors = rounds, np.ones(shape, np.int32), np.zeros(shape)
        self._draw = draw

    @staticmethod
    def of(blocks: Block) -> "RecordBlocks":
        """Copy given blocks.

        Args:
            blocks: cuts and errors [K, C, R], draws [K, C, U], active [K, C]; active rounds come first.
        """
        made = RecordBlocks(
            blocks.cuts.shape[-1], blocks.active.size, int(blocks.active.sum()), lambda: blocks.draws
        )
        for here, given in ((made.cuts, blocks.cuts), (made.errors, blocks.errors)):
            here[:, :-PADDING] = np.asarray(given).reshape(blocks.active.size, -1).T
        return made

    @cached_property
    def draws(self) -> Draws:
        """The uniforms, [K C, U] in [0, 1) each."""
        drawn = self._draw()
        return Draws(*(x if x is None else np.ascontiguousarray(x.reshape(-1, x.shape[-1])) for x in drawn))

    @property
    def arrays(self) -> tuple[Any, ...]:
        """Cuts [R, N], errors [R, N], uniforms of decisions [K C, U], and the number of simulated rounds."""
        return self.cuts, self.errors, self.draws.decision, self.rounds
