"""Simulate copies in loops compiled by Numba, on a CPU.

A round charges one number to the arms below its cut and another to those above. Over C rounds, the arms between two
neighbouring cuts therefore keep their ratios, and H arms collapse without loss to at most C + 1 groups
(``groups.py``). Groups and uniforms are computed once for all learners that read the same rounds
(``RecordBlocks``). Each type of rule has one file with ``make(learner, precision)``: ``sided.py``, whose loop is in
``tiles.py``, ``drawn.py``, ``ranked.py`` and ``fixed.py``.
"""

from collections.abc import Callable
from typing import Any

from exaul.kernels.backends.native import drawn, fixed, ranked, sided
from exaul.kernels.backends.native.backend import LANES, NativeBackend
from exaul.kernels.backends.native.best_arms import find_best_arms
from exaul.kernels.backends.native.fill_streams import fill
from exaul.kernels.backends.native.groups import INNER, LEVELS
from exaul.kernels.backends.native.rounds import RecordBlocks
from exaul.kernels.backends.native.tally import CheckpointSums
from exaul.kernels.backends.native.threefry import draws
from exaul.kernels.learners.learner import Drawn, Fixed, Learner, Ranked, Sided

__all__ = [
    "INNER",
    "LANES",
    "LEVELS",
    "CheckpointSums",
    "NativeBackend",
    "RecordBlocks",
    "draws",
    "fill",
    "find_best_arms",
    "make",
]

_MAKERS: dict[type, Callable[[Learner[Any], str], NativeBackend]] = {
    Sided: sided.make,
    Drawn: drawn.make,
    Ranked: ranked.make,
    Fixed: fixed.make,
}


def make(learner: Learner[Any], precision: str) -> NativeBackend | None:
    """Return the native backend of a learner, or None if there is no compiled loop for its rule.

    Args:
        learner: with a rule of any type.
        precision: dtype of the weights and their sums, ``float64`` or ``float32``; float64 states stay float64.
    """
    maker = _MAKERS.get(type(learner.rule))
    return None if maker is None else maker(learner, precision)
