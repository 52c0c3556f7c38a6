"""Blocks of rounds, prepared once for all learners that play them on the native backend.

How arms fall into groups depends on the cuts alone, for the update of every algorithm of the paper multiplies the
weights on one side of a cut by one number.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.native.backend import LANES
from exaul.kernels.backends.native.groups import INNER, split_streams
from exaul.kernels.backends.native.threads import pool


class Rounds:
    """K blocks of rounds, prepared for every learner that plays them on this backend.

    Uniforms are drawn, and groups of arms found, when a learner first asks for them.

    Args:
        cuts: [K, C, R] int32 in 1..H-1, as of ``Block``.
        errors: [K, C, R] in [0, 1].
        active: [K, C] bool: the rounds that are played, which come first.
        draw: returns the uniforms [K, C, U] in [0, 1).
    """

    def __init__(
        self,
        cuts: NDArray[Any],
        errors: NDArray[Any],
        active: NDArray[np.bool_],
        draw: Callable[[], NDArray[np.float64]],
    ) -> None:
        streams = cuts.shape[-1]
        self.rounds = int(active.sum())
        room = streams, active.size + INNER  # rows of a power of two would compete for the same cache sets
        self.cuts, self.errors = np.ones(room, np.int32), np.zeros(room)
        self.cuts[:, :-INNER] = cuts.transpose(2, 0, 1).reshape(streams, -1)
        self.errors[:, :-INNER] = errors.transpose(2, 0, 1).reshape(streams, -1)
        self._draw = draw
        self._groups: dict[tuple[int, int], tuple[Any, ...]] = {}

    @cached_property
    def uniforms(self) -> NDArray[np.float64]:
        """The uniforms [K C, U], in [0, 1)."""
        drawn = self._draw()
        return np.ascontiguousarray(drawn.reshape(-1, drawn.shape[-1]))

    @property
    def arrays(self) -> tuple[Any, ...]:
        """Cuts [R, N], errors [R, N], uniforms [K C, U], and the number of rounds that are played.

        N = K C + 16, the last 16 columns being padding.
        """
        return self.cuts, self.errors, self.uniforms, self.rounds

    def groups(self, arms: int, levels: Sequence[int]) -> tuple[Any, ...]:
        """The groups of arms over pieces of these rounds, found at the first call.

        Args:
            arms: H.
            levels: rounds of a piece of each level, each a multiple of the next.

        Returns:
            The arguments ``sizes`` to ``ranks`` of ``split_streams``, the last three filled: members [R, .], counts
            [R, .] and ranks [R, N].
        """
        if (arms, len(levels)) not in self._groups:
            streams, sizes = len(self.cuts), np.array(levels)
            pieces, rooms = -(-self.cuts.shape[1] // sizes), np.array([arms, *sizes[:-1] + 1])
            members_at, counts_at = (np.cumsum([0, *x]) for x in (pieces * rooms, pieces))
            filled = (
                np.zeros((streams, members_at[-1]), np.uint16),
                np.zeros((streams, counts_at[-1]), np.int32),
                np.zeros(self.cuts.shape, np.int32),
            )
            at = sizes, rooms, members_at[:-1], counts_at[:-1]

            def some(first: int) -> None:
                here = slice(first, first + LANES)
                split_streams(self.cuts[here], arms, self.rounds, *at, *(x[here] for x in filled))

            list(pool().map(some, range(0, streams, LANES)))
            self._groups[arms, len(levels)] = *at, *filled
        return self._groups[arms, len(levels)]
