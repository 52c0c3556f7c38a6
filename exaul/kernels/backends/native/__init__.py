"""The native backend: the same game in compiled loops over copies, for a CPU.

A round charges one number to the arms below its cut and one to those above, so over C rounds the arms between two
neighbouring cuts keep their ratios, and H arms collapse without loss to at most C + 1 groups (``groups.py``).
Groups and uniforms are found once for all learners that play the same rounds (``RecordBlocks``). There is one file
for each type of rule: ``sided.py`` and ``priced.py``, which share the loop of ``tiles.py``, ``drawn.py``,
``descent.py``, ``ranked.py`` and ``fixed.py``; each has ``make(learner, precision)``.
"""

from collections.abc import Callable
from typing import Any

from exaul.kernels.backends.native import descent, drawn, fixed, priced, ranked, sided
from exaul.kernels.backends.native.backend import LANES, NativeBackend
from exaul.kernels.backends.native.best_arms import find_best_arms
from exaul.kernels.backends.native.groups import INNER, LEVELS
from exaul.kernels.backends.native.records import fill
from exaul.kernels.backends.native.rounds import RecordBlocks
from exaul.kernels.backends.native.tally import CheckpointSums
from exaul.kernels.backends.native.threefry import draws
from exaul.kernels.learners.learner import Descent, Drawn, Fixed, Learner, Priced, Ranked, Sided

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
    Priced: priced.make,
    Descent: descent.make,
    Ranked: ranked.make,
    Fixed: fixed.make,
}


def make(learner: Learner[Any], precision: str) -> NativeBackend | None:
    """Make the native backend of a learner.

    Args:
        learner: with a rule of any type.
        precision: dtype of the weights [H, B] and their sums, ``float64`` or ``float32``.

    Returns:
        The backend, or None where there is no compiled loop for the learner's rule.
    """
    maker = _MAKERS.get(type(learner.rule))
    return None if maker is None else maker(learner, precision)
