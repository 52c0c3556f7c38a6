"""The protocol of native backends: store the weights of B copies and simulate rounds in compiled loops."""

from collections.abc import Callable
from concurrent.futures import Future
from copy import deepcopy
from typing import Any, NamedTuple

from exaul.kernels.game import Start


class NativeBackend(NamedTuple):
    """A way to store the weights of B copies of a learner, and to simulate blocks of rounds with them on the CPU.

    Attributes:
        init: ``init(arms, start, streams)`` returns the state before round 1, as of ``Backend``, of the B copies of
            a ``Start``. ``streams`` is the number of streams of records.
        simulate: ``simulate(state, rounds, rates, copies, tally, outcome=None)`` starts to simulate the K blocks of
            ``rounds``, a ``RecordBlocks``, with rates [K], and returns futures. When all are done, the state and
            the ``CheckpointSums`` are updated in place, and the arrays [K C, B] of the ``Outcome``, if given, are
            filled.
        middles: whether outcomes have ``middle``.
        losses: ``losses(state)`` returns the cumulative charges of the arms [B, H], up to a constant; None without
            weights.
        save: ``save(state)`` returns a copy of the state, as a tree of arrays that does not depend on the number of
            threads.
        restore: ``restore(state, tree)`` returns what ``save`` returned, laid out like the given state.
    """

    init: Callable[[int, Start, int], Any]
    simulate: Callable[..., list[Future[Any]]]
    middles: bool = False
    losses: Callable[[Any], Any] | None = None
    save: Callable[[Any], Any] = deepcopy
    restore: Callable[[Any, Any], Any] = lambda state, tree: tree
