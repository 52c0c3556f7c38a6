"""Blocks of rounds, prepared once for all learners that are simulated on them by the native backend.

The groups of arms depend on the cuts alone, because the update of every algorithm of the paper multiplies the
weights on one side of a cut by one number.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from exaul.kernels.backends.native.backend import LANES
from exaul.kernels.backends.native.groups import INNER, LevelGroups, split_streams
from exaul.kernels.backends.native.threads import pool
from exaul.kernels.game import Block
from exaul.kernels.uniforms import Draws


class RecordBlocks:
    """K blocks of rounds of R streams.

    Uniforms are drawn, and groups of arms found, when a learner first asks for them.

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
        shape = streams, size + INNER  # rows that are a power of two long compete for the same cache sets
        self.rounds, self.cuts, self.errors = rounds, np.ones(shape, np.int32), np.zeros(shape)
        self._draw = draw
        self._groups: dict[tuple[int, int], LevelGroups] = {}

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
            here[:, :-INNER] = np.asarray(given).reshape(blocks.active.size, -1).T
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

    def groups(self, arms: int, levels: Sequence[int]) -> LevelGroups:
        """Return the groups of arms over pieces of these rounds, found at the first call.

        Args:
            arms: H.
            levels: rounds of a piece of each level, each a multiple of the next.
        """
        if (arms, len(levels)) not in self._groups:
            # A level has at most one group more than its pieces have rounds: these are the items of the next level.
            streams, rounds = len(self.cuts), np.array(levels)
            pieces, most_items = -(-self.cuts.shape[1] // rounds), np.array([arms, *rounds[:-1] + 1])
            members_at, counts_at = (np.cumsum([0, *x]) for x in (pieces * most_items, pieces))
            found = LevelGroups(
                rounds,
                most_items,
                members_at[:-1],
                counts_at[:-1],
                np.zeros((streams, members_at[-1]), np.uint16),
                np.zeros((streams, counts_at[-1]), np.int32),
                np.zeros(self.cuts.shape, np.int32),
            )

            def split_some(first: int) -> None:
                here = slice(first, first + LANES)
                some = found._replace(
                    members=found.members[here], group_counts=found.group_counts[here], ranks=found.ranks[here]
                )
                split_streams(self.cuts[here], arms, self.rounds, some)

            list(pool().map(split_some, range(0, streams, LANES)))
            self._groups[arms, len(levels)] = found
        return self._groups[arms, len(levels)]
