"""The protocol of backends on NVIDIA devices, whose launches simulate many rounds of all copies.

Nothing here imports numba-cuda or asks for a device before copies are started. Copies of one learner are split
evenly over the devices, which exchange nothing. The loops are those of the paper's appendix "Algorithms".
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from exaul.kernels.backends.cuda import drawn, ranked, sided
from exaul.kernels.backends.cuda.loops import RuleKernel
from exaul.kernels.game import LARGEST_STEP
from exaul.kernels.learners.learner import Drawn, Learner, Ranked, Sided

_KINDS: dict[type, Callable[[Learner[Any]], RuleKernel]] = {
    Sided: sided.kind,
    Drawn: drawn.kind,
    Ranked: ranked.kind,
}


class CudaBackend(NamedTuple):
    """A way to store the weights of B copies on NVIDIA devices; ``LaunchedSimulation`` advances them.

    Attributes:
        kind: how the rule is simulated.
        precision: of weights and their sums within a block; the state is float64.
        lanes: number of lanes of a warp per copy, 1, 16 or 32. The last bits of weights depend on it.
        middles: whether outcomes have a middle.
        dense_state: as of ``Backend``, from the state [rows, B] on the host.
        largest_step: as of ``Backend``.
    """

    kind: RuleKernel
    precision: str
    lanes: int
    middles: bool = False
    dense_state: Callable[[Any, Any], Any] | None = None
    largest_step: float = math.inf


def make(learner: Learner[Any], precision: str) -> CudaBackend | None:
    """Return the backend that simulates a copy per thread, the faster one for many copies.

    Args:
        learner: with a rule of any type.
        precision: dtype of the weights [H, B] and their sums, ``float64`` or ``float32``.

    Returns:
        The backend, or None if there is no loop for the learner's rule.
    """
    return _make(learner, precision, 1)


def make_by_warps(learner: Learner[Any], precision: str) -> CudaBackend | None:
    """Return the backend that simulates a copy by the 32 lanes of a warp, the fastest one for few copies.

    Arguments and result are as of ``make``; also None if the work on one copy cannot be divided among lanes.
    """
    return _make(learner, precision, 32)


def make_by_half_warps(learner: Learner[Any], precision: str) -> CudaBackend | None:
    """Return the backend that simulates a copy by 16 lanes, two copies a warp; all as of ``make_by_warps``."""
    return _make(learner, precision, 16)


def _make(learner: Learner[Any], precision: str, lanes: int) -> CudaBackend | None:
    maker = _KINDS.get(type(learner.rule))
    kind = None if maker is None else maker(learner)
    if kind is None or (lanes > 1 and not kind.teams):
        return None
    return CudaBackend(
        kind,
        "float64" if kind.dense_state is None else precision,
        lanes,
        kind.middles,
        kind.dense_state,
        LARGEST_STEP[precision] if isinstance(learner.rule, Sided | Drawn) else math.inf,
    )
