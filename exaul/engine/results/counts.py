"""The counts of a sweep, from which all tables and figures are made."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.engine.folder import Arrays
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
EVERY = "all learners"


@dataclass(frozen=True)
class Counts:
    """Counts at P checkpoints, by learner, for all cells (alpha x lambda x rates) and trials."""

    learners: tuple[str, ...]
    environment: str
    source: str
    grid_name: str
    warm_start: str  # name of the log from which learners start; empty without one
    grid: Floats  # [H]
    trials: NDArray[np.int64]  # [trials]
    checkpoints: NDArray[np.int64]  # [P], the last is T
    cells: dict[str, dict[str, Any]]  # [cells] each: of ``Cells``, costs, rates at T
    # [P, cells, trials] and, at T, [cells, trials]: by learner; or by pair, under EVERY, if all learners have the
    # same records
    best_loss: dict[str, Floats]
    best_arm: dict[str, NDArray[np.int32]]
    # [cells] at T, by field of ``RegretBounds``; NaN if nothing is proved
    regret_bounds: dict[str, dict[str, Floats]]
    regret_bound: dict[
        str, Floats
    ]  # [P, cells] of the regret against the best arm so far; NaN if nothing is proved
    risk_bound: dict[str, Floats]  # [P, cells, trials] bound of R_t, for learners with a proof
    answered: dict[str, NDArray[np.int64]]  # [P, cells, trials]
    wrong: dict[str, Floats]  # [P, cells, trials]
    asked: dict[str, dict[str, Floats]]  # [P, cells, trials] by kind, in adaptive environments
    feedback_sums: dict[str, dict[str, Floats]]  # [1, cells, trials] by kind, at T, if feedback is imperfect

    def best_of(self, learner: str) -> tuple[Floats, NDArray[np.int32]]:
        """Return the least losses [P, cells, trials] in hindsight on a learner's records, and the arms at T."""
        if learner in self.best_loss:
            return self.best_loss[learner], self.best_arm[learner]
        pair = self.cells[learner]["pair"]
        return self.best_loss[EVERY][:, pair], self.best_arm[EVERY][pair]


def arrays(counts: Counts) -> Arrays:
    """Return counts as arrays by name: ``field``, ``field/learner`` or ``field/learner/kind``."""
    leaves = flatten({f.name: getattr(counts, f.name) for f in fields(counts)})
    return {name: np.asarray(leaf) for name, leaf in leaves.items()}


def join(batches: Iterable[Arrays], trials: int) -> Counts:
    """Return the counts of batches of one source, in the order of their ``trials`` trials.

    Batches are consumed one by one, so only one is in memory besides the result.
    """
    whole: Arrays = {}
    start = 0
    for batch in batches:
        rows = slice(start, start + len(batch["trials"]))
        for name, part in batch.items():
            if name.partition("/")[0] not in BY_TRIAL or rows == slice(0, trials):
                whole[name] = part
                continue
            if name not in whole:
                whole[name] = np.empty((*part.shape[:-1], trials), part.dtype)
            whole[name][..., rows] = part
        start = rows.stop
    leaves = {name: array.item() if array.ndim == 0 else array for name, array in whole.items()}
    # flattening leaves no trace of an empty dictionary
    values: dict[str, Any] = {"asked": {}, "feedback_sums": {}, "risk_bound": {}} | unflatten(leaves)
    values["learners"] = tuple(map(str, values["learners"]))
    return Counts(**values)
