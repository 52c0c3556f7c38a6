"""Simulate copies in loops compiled by Numba, on a CPU.

Each type of rule has one file: ``tree.py`` (``Sided``), ``drawn.py``, ``ranked.py`` and ``hindsight.py``.
Records and uniforms are made once for all learners that read the same rounds (``RecordBlocks``).
"""

from collections.abc import Callable
from typing import Any

from exaul.kernels.learners.learner import Drawn, Fixed, Learner, Ranked, Sided
from exaul.kernels.native import drawn, hindsight, ranked, tree
from exaul.kernels.native.backend import CheckpointSums, NativeBackend
from exaul.kernels.native.hindsight import find_best_arms
from exaul.kernels.native.records import RecordBlocks, draws, fill

__all__ = [
    "CheckpointSums",
    "NativeBackend",
    "RecordBlocks",
    "draws",
    "fill",
    "find_best_arms",
    "make",
]

_MAKERS: dict[type, Callable[[Learner[Any], str], NativeBackend]] = {
    Sided: tree.make,
    Drawn: drawn.make,
    Ranked: ranked.make,
    Fixed: hindsight.make,
}


def make(learner: Learner[Any], precision: str) -> NativeBackend | None:
    """Return the native backend of a learner, or None if there is no compiled loop for its rule.

    Args:
        learner: with a rule of any type.
        precision: dtype of the weights and their sums, ``float64`` or ``float32``; float64 states stay float64.
    """
    maker = _MAKERS.get(type(learner.rule))
    return None if maker is None else maker(learner, precision)
