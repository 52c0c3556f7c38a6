"""The totals of some trials on one source, of which tables and figures are made: answers, errors and bounds."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.engine.folder import Arrays
from exaul.engine.simulation.chunks import BestArms
from exaul.engine.simulation.prepare import PreparedSource
from exaul.engine.simulation.prepare_learner import PreparedLearner
from exaul.kernels.feedback import PERFECT_FEEDBACK
from exaul.kernels.metrics import Floats

# Arrays by name, at P checkpoints, for all cells (alpha x lambda x rates) and trials; whatever has three dimensions
# has trials on the last axis. The dict is flat, as the file of a batch is: the key of a learner's own array is
# ``FIELD/LEARNER``, the key of a shared one ``FIELD``. ``split_by_learner`` returns a dict by field for each.
#
#   learners, environment, source, grid_name             names
#   grid [H], trials [trials], checkpoints [P]           the last checkpoint is T
#   pair, alpha, lam, eta_scale, ... [cells]             the fields of ``Cells``; costs; eta, gamma, ``step`` at T
#   warm_start                                           name of the log from which a learner starts, if it does
#   best [P, cells]; abstaining, paper [1, cells]        ``RegretBounds`` so far; at T; NaN if nothing is proved
#   best_loss [P, pairs, trials]                         least loss in hindsight, of all learners if they have the
#   best_arm [1, pairs, trials]                          same records; and its arm at T
#   answered, wrong [P, cells, trials]
#   risk_bound [P, cells, trials]                        bound of R_t, of learners with a proof
#   hard, overconfident, ... [P, cells, trials]          ``ASKED``, in adaptive environments
#   observed, settled, ... [1, cells, trials]            ``FeedbackSums`` at T, aim, and bound at the aim
#                                                        (``docs/proofs.md``, M1), if feedback is imperfect
Totals = Arrays  # of a source
LearnerTotals = Arrays  # of one learner, by ``FIELD``
SLICE = 2**21  # numbers of curves that are computed at a time, which bounds memory (16 MiB an array)


def totals_of(source: PreparedSource, runs: Mapping[str, Any], best: BestArms | None) -> Totals:
    """Return the totals of all learners from their finished ``LearnerRun`` by name.

    ``best`` is of all learners; None in an adaptive environment, where each learner has its own.
    """

    def shaped(x: NDArray[Any]) -> NDArray[Any]:
        """Turn [..., copies] into [P, cells, trials]."""
        return x.reshape(len(x) if x.ndim > 1 else 1, -1, len(source.trials))

    fields: dict[str, Any] = {
        "learners": [learner.name for learner in source.learners],
        "environment": source.environment_name,
        "source": source.name,
        "grid_name": source.sweep.grid,
        "grid": source.grid,
        "trials": source.trials,
        "checkpoints": source.checkpoints,
    }
    if best is not None:
        fields |= {"best_loss": shaped(best[0]), "best_arm": shaped(best[1])}
    fields |= {f"warm_start/{name}": log for name, log in source.warm_log_names.items()}
    for learner in source.learners:
        name, run, cells, horizon = learner.name, runs[learner.name], learner.cells, source.horizon
        sums = {kind: shaped(x) for kind, x in run.feedback_sums.items()}
        eta, gamma = (x[-1] * factor for x, factor in zip(learner.rates, cells.factors, strict=True))  # at T
        parts = cells._asdict() | learner.regret_bounds | sums
        parts |= {"answer_cost": source.answer_cost[cells.pair], "abstain_cost": source.abstain_cost[cells.pair]}
        parts |= dict.fromkeys(("eta", "step"), np.full_like(eta, np.nan))  # a learner has one of the two
        parts |= {learner.definition.rate_field: eta, "gamma": gamma}
        parts |= {"answered": shaped(run.answered), "wrong": shaped(run.wrong)}
        if run.asked is not None:
            parts |= {kind: shaped(x) for kind, x in run.asked.sums.items()}
            losses, arms = run.asked.counter.best()
            parts |= {"best_loss": shaped(losses), "best_arm": shaped(arms), "pair": np.arange(len(cells.pair))}
        is_bounded = learner.definition.risk_bound is not None
        if is_bounded and learner.feedback_model.bounds_risk(horizon):
            t, waiting = source.checkpoints[:, None, None], learner.feedback_model.most_open(horizon)
            parts["risk_bound"] = _risk_bound(learner, t, parts["answered"], waiting, cells.alpha[:, None])
        if learner.feedback_model != PERFECT_FEEDBACK:
            aim = parts["aim"] = shaped(learner.with_aim(source.copies(learner)).alpha)
            parts["feedback_risk_bound"] = np.full(aim.shape, np.nan)
            if is_bounded:
                t, waiting = np.minimum(sums["learned"] + 1, horizon), np.maximum(sums["since"] - 1, 0)
                parts["feedback_risk_bound"] = _risk_bound(learner, t, sums["settled"], waiting, aim)
        fields |= {f"{field}/{name}": x for field, x in parts.items()}
    return {name: np.asarray(x) for name, x in fields.items()}


def _risk_bound(learner: PreparedLearner, t: Any, answered: Any, waiting: Any, aim: Any) -> Floats:
    """Return the bound of R_t: answers that wait for feedback add at most 1 - aim each (docs/proofs.md, D1)."""
    bound = learner.risk_bound(t, answered, aim)
    return bound + (0 if learner.feedback_model.reserve else waiting * (1 - aim))


def split_by_learner(totals: Totals) -> list[LearnerTotals]:
    """Return a dict for each learner: its own and the shared arrays by ``FIELD``, and its name as ``learner``."""
    by_learner = {str(name): {"learner": np.asarray(name)} for name in totals["learners"]}
    for key, x in totals.items():
        field, _, learner = key.partition("/")
        for name in [learner] if learner else by_learner:
            by_learner[name][field] = x
    return list(by_learner.values())


def join(batches: Iterable[Totals], trials: int) -> Totals:
    """Return the totals of batches of one source, in the order of their ``trials`` trials.

    Batches are consumed one by one, so only one is in memory besides the result.
    """
    joined: Totals = {}
    start = 0
    for batch in batches:
        rows = slice(start, start + len(batch["trials"]))
        for name, part in batch.items():
            if (part.ndim < 3 and name != "trials") or rows == slice(0, trials):
                joined[name] = part
                continue
            if name not in joined:
                joined[name] = np.empty((*part.shape[:-1], trials), part.dtype)
            joined[name][..., rows] = part
        start = rows.stop
    return joined
