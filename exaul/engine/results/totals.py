"""The totals of some trials on one source, of which tables and figures are made: answers, errors and bounds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.engine.folder import Arrays
from exaul.engine.manifest import flatten, unflatten
from exaul.engine.simulation.learners import PreparedLearner
from exaul.engine.simulation.prepare import Prepared
from exaul.engine.simulation.schedule import BestArms
from exaul.kernels.feedback import PERFECT_FEEDBACK
from exaul.kernels.metrics import Floats
from exaul.kernels.rates import block_lengths

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
class Totals:
    """Totals at P checkpoints, by learner, for all cells (alpha x lambda x rates) and trials."""

    learners: tuple[str, ...]
    environment: str
    source: str
    grid_name: str
    warm_start: dict[str, str]  # name of the log from which a learner starts, if it does
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
    # [P, cells] of the regret against the best arm so far; NaN if nothing is proved
    regret_bound: dict[str, Floats]
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


def totals_of(prepared: Prepared, rollouts: Mapping[str, Any], best: BestArms | None) -> Totals:
    """Return the totals of all learners.

    Args:
        prepared: the source.
        rollouts: a ``Rollout`` by learner, at its end.
        best: of all learners; None in an adaptive environment, where each learner has its own.
    """

    def shaped(x: NDArray[Any]) -> NDArray[Any]:
        """Turn [..., copies] into [P, cells, trials]."""
        return x.reshape(len(x) if x.ndim > 1 else 1, -1, len(prepared.trials))

    learners = {learner.name: learner for learner in prepared.learners}
    t = prepared.checkpoints
    questions = {name: rollout.asked for name, rollout in rollouts.items() if rollout.asked is not None}
    hindsight = {name: asked.best() for name, asked in questions.items()} if best is None else {EVERY: best}
    answered = {name: shaped(rollouts[name].answered) for name in learners}

    def risk_bound(learner: PreparedLearner) -> NDArray[np.float64]:
        counts = answered[learner.name]
        alpha = learner.cells.alpha[:, None]
        rounds = t[: len(counts), None, None]
        bound = learner.risk_bound(len(prepared.grid), prepared.horizon, rounds, counts, alpha)
        return bound + _pending_risk(learner, learner.feedback.most_open(prepared.horizon), alpha)

    def sums_of_feedback(learner: PreparedLearner) -> dict[str, NDArray[np.float64]]:
        """Return the sums of imperfect feedback, the aim, and the bound at the aim (``docs/proofs.md``, M1)."""
        sums = {kind: shaped(x) for kind, x in rollouts[learner.name].feedback_sums.items()}
        copies_at_aim = learner.with_aim(prepared.copies(learner))
        sums["aim"] = shaped(copies_at_aim.alpha)
        sums["bound"] = np.full(sums["aim"].shape, np.nan)
        if learner.definition.risk_bound is not None:
            rounds, answers = np.minimum(sums["learned"] + 1, prepared.horizon), sums["settled"]
            bound = learner.risk_bound(len(prepared.grid), prepared.horizon, rounds, answers, sums["aim"])
            sums["bound"] = bound + _pending_risk(learner, np.maximum(sums["since"] - 1, 0), sums["aim"])
        return sums

    return Totals(
        learners=tuple(learners),
        environment=prepared.environment_name,
        source=prepared.name,
        grid_name=prepared.sweep.grid,
        warm_start=prepared.log_names,
        grid=prepared.grid,
        trials=prepared.trials,
        checkpoints=t,
        cells={name: _cells(prepared, learner) for name, learner in learners.items()},
        best_loss={name: shaped(loss) for name, (loss, _) in hindsight.items()},
        best_arm={name: shaped(arm)[0] for name, (_, arm) in hindsight.items()},
        regret_bounds={name: learner.regret_bounds for name, learner in learners.items()},
        regret_bound={name: _regret_bound(prepared, learner) for name, learner in learners.items()},
        risk_bound={
            name: risk_bound(learner)
            for name, learner in learners.items()
            if learner.definition.risk_bound is not None and learner.feedback.bounds_risk(prepared.horizon)
        },
        answered=answered,
        wrong={name: shaped(rollouts[name].wrong) for name in learners},
        asked={
            name: {kind: shaped(sums) for kind, sums in asked.sums.items()} for name, asked in questions.items()
        },
        feedback_sums={
            name: sums_of_feedback(learner)
            for name, learner in learners.items()
            if learner.feedback != PERFECT_FEEDBACK
        },
    )


def _regret_bound(prepared: Prepared, learner: PreparedLearner) -> NDArray[np.float64]:
    """Return the bound of the regret against the best arm up to each checkpoint, [P, cells]."""
    cells = learner.cells
    curve = np.full((len(prepared.checkpoints), len(cells.pair)), np.nan)
    if learner.definition.regret_bounds is None or learner.feedback != PERFECT_FEEDBACK:
        return curve
    for some, rates in learner.rates_of_cells():
        given = len(prepared.grid), prepared.sweep.delta, cells.alpha[some], cells.lam[some]
        for bound, t in zip(curve, prepared.checkpoints, strict=True):
            rounds = block_lengths(int(t))
            eta, gamma = (rate[: len(rounds)] for rate in rates)
            bound[some] = learner.definition.regret_bounds.best(eta, gamma, rounds, *given)
    return curve


def _cells(prepared: Prepared, learner: PreparedLearner) -> dict[str, NDArray[Any]]:
    """Return what the tables have of each cell; eta is NaN if it is a step."""
    eta, gamma = learner.rates_at_end
    nothing, pair = np.full_like(eta, np.nan), learner.cells.pair
    return learner.cells._asdict() | {
        "answer_cost": prepared.answer_cost[pair],
        "abstain_cost": prepared.abstain_cost[pair],
        "eta": eta if learner.definition.rate == "eta" else nothing,
        "step": eta if learner.definition.rate == "step" else nothing,
        "gamma": gamma,
    }


def _pending_risk(learner: PreparedLearner, waiting: Any, alpha: Any) -> Any:
    """Return what answers that still wait for feedback add to R_T, at most 1 - alpha each (docs/proofs.md, D1)."""
    return 0 if learner.feedback.reserve else waiting * (1 - alpha)


def arrays(totals: Totals) -> Arrays:
    """Return totals as arrays by name: ``field``, ``field/learner`` or ``field/learner/kind``."""
    leaves = flatten({f.name: getattr(totals, f.name) for f in fields(totals)})
    return {name: np.asarray(leaf) for name, leaf in leaves.items()}


def join(batches: Iterable[Arrays], trials: int) -> Totals:
    """Return the totals of batches of one source, in the order of their ``trials`` trials.

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
    values: dict[str, Any] = {"asked": {}, "feedback_sums": {}, "risk_bound": {}, "warm_start": {}} | unflatten(
        leaves
    )
    values["learners"] = tuple(map(str, values["learners"]))
    return Totals(**values)
