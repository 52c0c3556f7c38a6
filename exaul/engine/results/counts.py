"""The counts of a sweep, from which all tables and figures are made."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.engine.settings import flatten, unflatten
from exaul.kernels.metrics import Floats

BY_TRIAL = (  # fields with trials on the last axis
    "trials",
    "best_loss",
    "best_arm",
    "risk_bound",
    "answered",
    "wrong",
    "asked",
    "feedback_sums",
)


@dataclass(frozen=True)
class Counts:
    """Counts at P checkpoints, by learner, for all cells (alpha x lambda) and trials."""

    learners: tuple[str, ...]
    environment: str
    source: str
    grid_name: str
    warm_start: str  # name of the log from which learners start; empty without one
    grid: Floats  # [H]
    alphas: Floats  # [cells]
    lambdas: Floats  # [cells]
    trials: NDArray[np.int64]  # [trials]
    checkpoints: NDArray[np.int64]  # [P], the last is T
    answer_cost: Floats  # [cells], loss of an answer per unit of error
    abstain_cost: Floats  # [cells], loss of an abstention
    best_loss: dict[str, Floats]  # [P, cells, trials]
    best_arm: dict[str, NDArray[np.int32]]  # [cells, trials], at T
    eta: dict[str, float]  # at T; NaN if the learner has none
    gamma: dict[str, float]
    step: dict[str, float]
    # [cells] at T, by field of ``RegretBounds``; NaN if nothing is proved
    regret_bounds: dict[str, dict[str, Floats]]
    risk_bound: dict[str, Floats]  # [P, cells, trials] bound of R_t, for learners with a proof
    answered: dict[str, NDArray[np.int64]]  # [P, cells, trials]
    wrong: dict[str, Floats]  # [P, cells, trials]
    asked: dict[str, dict[str, Floats]]  # [P, cells, trials] by kind, in adaptive environments
    feedback_sums: dict[str, dict[str, Floats]]  # [1, cells, trials] by kind, at T, if feedback is imperfect


def join_counts(parts: Iterable[Counts], many: int) -> Counts:
    """Concatenate counts that differ only in their trials, in order; ``many`` is the total of trials.

    At least one part is needed. Parts are consumed one by one, so only one is in memory besides the result.
    """
    each = iter(parts)
    first = next(each)
    if len(first.trials) == many:
        return first
    made: dict[tuple[int, ...], NDArray[Any]] = {}

    def allocate(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: allocate(leaf) for key, leaf in part.items()}
        # learners share arrays such as ``best_loss``: equal address and shape, one allocation
        return made.setdefault((part.ctypes.data, *part.shape), np.empty((*part.shape[:-1], many), part.dtype))

    def put(whole: Any, part: Any, start: int) -> None:
        if isinstance(part, dict):
            for key, leaf in part.items():
                put(whole[key], leaf, start)
        else:
            whole[..., start : start + part.shape[-1]] = part

    whole = replace(first, **{field: allocate(getattr(first, field)) for field in BY_TRIAL})
    start = 0
    for part in chain([first], each):
        for field in BY_TRIAL:
            put(getattr(whole, field), getattr(part, field), start)
        start += len(part.trials)
    return whole


def arrays(counts: Counts) -> dict[str, NDArray[Any]]:
    """Return counts as arrays by name: ``field``, ``field/learner`` or ``field/learner/kind``."""
    leaves = flatten({f.name: getattr(counts, f.name) for f in fields(counts)})
    return {name: np.asarray(leaf) for name, leaf in leaves.items()}


def from_arrays(stored: Mapping[str, NDArray[Any]]) -> Counts:
    """Undo ``arrays``."""
    leaves = {key: array.item() if array.ndim == 0 else array for key, array in stored.items()}
    # flattening leaves no trace of an empty dictionary
    values: dict[str, Any] = {"asked": {}, "feedback_sums": {}, "risk_bound": {}} | unflatten(leaves)
    values["learners"] = tuple(map(str, values["learners"]))
    return Counts(**values)
