"""Simulate copies in loops compiled by Numba, on a CPU.

``tree.py`` has the loops of rules with weights, ``ranked.py`` those of rules without. Records and uniforms are made
once for all learners that read the same rounds (``RecordBlocks``).
"""

from typing import Any

from exaul.kernels.learners.learner import Drawn, Fixed, Learner, Ranked, Sided
from exaul.kernels.native import ranked, tree
from exaul.kernels.native.backend import PADDING, CheckpointSums, NativeBackend, RecordBlocks
from exaul.kernels.native.records import draw_uniforms, fill_records, find_best_arms

__all__ = ["PADDING", "CheckpointSums", "NativeBackend", "RecordBlocks"]
__all__ += ["draw_uniforms", "fill_records", "find_best_arms", "make_backend"]


def make_backend(learner: Learner[Any], precision: str) -> NativeBackend | None:
    """Return the native backend of a learner, or None if there is no compiled loop for its rule.

    ``precision`` is the dtype of the weights and their sums, ``float64`` or ``float32``; no state depends on it.
    """
    match learner.rule:
        case Sided():
            return tree.make_sided(learner, precision)
        case Drawn():
            return tree.make_drawn(learner, precision)
        case Ranked():
            return ranked.make_ranked(learner)
        case Fixed():
            return ranked.FIXED
    return None
