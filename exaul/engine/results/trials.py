"""Make tidy tables from totals. ``docs/results.md`` defines the columns."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.engine.logs import files
from exaul.engine.logs.files import Table
from exaul.engine.results.advice import NEAR
from exaul.engine.results.text_table import NOTHING, RATES
from exaul.engine.results.totals import Totals
from exaul.kernels import metrics
from exaul.kernels.bounds import RegretBounds, fdr_bound, lemma_bound
from exaul.kernels.metrics import Floats

TRACES = (  # the columns of ``traces_table``
    *("trace", "records", "error_rate", "learner", "alpha", "lambda", "horizon", "trials", "answered"),
    *("answerable", "of_answerable", "fdr", "fdr_within_01", "fdr_risk", "risk_bound", "advised"),
    *RATES,
)
SLICE = 2**21  # numbers computed at a time, which bounds memory (16 MiB an array)


def trials_table(totals: Totals) -> Table:
    """Return one row per learner, cell and trial: results at T, and their bounds."""
    return files.stack([_trials_of(totals, name) for name in totals.learners])


def _trials_of(totals: Totals, name: str) -> Table:
    answered, wrong = totals.answered[name][-1], totals.wrong[name][-1]
    best_losses, best_arm = totals.best_of(name)
    horizon, best = totals.checkpoints[-1], best_losses[-1]
    cells = {field: values[:, None] for field, values in totals.cells[name].items()}
    alpha, lam = cells["alpha"], cells["lam"]
    loss = metrics.loss(answered, wrong, horizon, cells["answer_cost"], cells["abstain_cost"])
    regret = loss - best
    best_bound, abstaining_bound, paper_bound = (
        totals.regret_bounds[name][field][:, None] for field in RegretBounds._fields
    )
    columns: dict[str, Any] = {
        "learner": name,
        "environment": totals.environment,
        "source": totals.source,
        "alpha": alpha,
        "lambda": lam,
        "trial": totals.trials[None],
        "horizon": horizon,
        "arms": len(totals.grid),
        "grid": totals.grid_name,
        "eta": cells["eta"],
        "gamma": cells["gamma"],
        "answered": answered,
        "fdr": metrics.fdr(answered, wrong, np.nan),
        "inefficiency": metrics.inefficiency(answered, horizon),
        "fdr_risk": metrics.fdr_risk(answered, wrong, alpha),
        "loss": loss,
        "best_loss": best,
        "best_threshold": totals.grid[best_arm],
        "regret": regret,
        "regret_bound": best_bound,
        "lemma_bound": lemma_bound(answered, regret, lam),
        "fdr_bound": fdr_bound(answered, abstaining_bound, alpha, lam),
        "risk_bound": totals.risk_bound[name][-1] if name in totals.risk_bound else np.nan,
        **_feedback_columns(totals, name),
        "regret_bound_paper": paper_bound,
        "fdr_bound_paper": fdr_bound(answered, paper_bound, alpha, lam),
        **{rate: cells[rate] for rate in RATES},
        "warm_start": totals.warm_start.get(name, np.nan),
    }
    return files.frame({k: np.broadcast_to(v, answered.shape).ravel() for k, v in columns.items()})


def _feedback_columns(totals: Totals, name: str) -> dict[str, Any]:
    """Return the columns of imperfect feedback, [cells, trials]; NaN if feedback is perfect."""
    if name not in totals.feedback_sums:
        return dict.fromkeys(("observed", "fdr_observed", "aim", "feedback_risk", "feedback_risk_bound"), np.nan)
    sums = {kind: x[-1] for kind, x in totals.feedback_sums[name].items()}
    return {
        "observed": sums["observed"],
        "fdr_observed": metrics.fdr(sums["observed"], sums["observed_errors"], np.nan),
        "aim": sums["aim"],
        "feedback_risk": metrics.fdr_risk(sums["settled"], sums["learned_errors"], sums["aim"]),
        "feedback_risk_bound": sums["bound"],
    }


def curves_table(totals: Totals) -> Table:
    """Return one row per learner, cell and checkpoint: mean and quantiles over trials.

    ``risk_bound`` is a mean; ``rise`` is the largest rise of R between two checkpoints so far, over all trials.
    """
    return files.stack([_curves_of(totals, name) for name in totals.learners])


def _curves_of(totals: Totals, name: str) -> Table:
    answered, wrong, cells = totals.answered[name], totals.wrong[name], totals.cells[name]
    alpha, costs = cells["alpha"][:, None], (cells["answer_cost"][:, None], cells["abstain_cost"][:, None])
    best_loss, _ = totals.best_of(name)

    def curves(rows: slice) -> dict[str, Floats]:
        n, w, t = answered[rows], wrong[rows], totals.checkpoints[rows, None, None]
        loss = metrics.loss(n, w, t, *costs)
        return {
            "fdr": metrics.fdr(n, w, alpha),
            "inefficiency": metrics.inefficiency(n, t),
            "regret_per_round": (loss - best_loss[rows]) / t,
            "regret": loss - best_loss[rows],
            "fdr_risk": metrics.fdr_risk(n, w, alpha),
        }

    def rise(some_trials: slice) -> Floats:
        return metrics.rise(metrics.fdr_risk(answered[..., some_trials], wrong[..., some_trials], alpha)).max(
            axis=2
        )

    bound = totals.risk_bound.get(name)
    slices = _slices(answered.shape[2], answered.shape[0] * answered.shape[1])
    further = {
        "regret_bound": totals.regret_bound[name][: len(answered)].T,
        "risk_bound": np.nan if bound is None else bound.mean(axis=2).T,
        "rise": np.max([rise(some_trials) for some_trials in slices], axis=0).T,
    }
    return _over_time(totals, name, len(answered), curves, further)


def _slices(total: int, per_item: int) -> list[slice]:
    """Split ``total`` items of ``per_item`` numbers into slices of about SLICE numbers."""
    step = max(1, SLICE // per_item)
    return [slice(first, min(first + step, total)) for first in range(0, total, step)]


def asked_table(totals: Totals) -> Table | None:
    """Return the shares of questions of each kind since the last checkpoint; None in an oblivious environment.

    ``hard``: wrong answers; ``overconfident``: wrong, with a cut at or above the pool's mean; ``underconfident``:
    right, with a cut below it.
    """
    if not totals.asked:
        return None
    rounds = np.diff(totals.checkpoints, prepend=0)[:, None, None]
    parts = []
    for name, kinds in totals.asked.items():
        shares = {kind: np.diff(sums, axis=0, prepend=0) / rounds for kind, sums in kinds.items()}
        parts.append(_over_time(totals, name, len(rounds), partial(_part_of, shares)))
    return files.stack(parts)


def _part_of(curves: dict[str, Floats], rows: slice) -> dict[str, Floats]:
    return {name: values[rows] for name, values in curves.items()}


def _over_time(
    totals: Totals,
    name: str,
    points: int,
    curves: Callable[[slice], dict[str, Floats]],
    further: Mapping[str, Any] = NOTHING,
) -> Table:
    """Return mean and quantiles over trials of ``curves(rows)`` at the first ``points`` checkpoints.

    ``further`` are other columns, [cells, points] each.
    """
    cells = totals.cells[name]
    columns: dict[str, Any] = {
        "learner": name,
        "environment": totals.environment,
        "source": totals.source,
        "alpha": cells["alpha"][:, None],
        "lambda": cells["lam"][:, None],
        "t": totals.checkpoints[None, :points],
    }
    pieces: dict[str, list[Floats]] = {}
    for rows in _slices(points, len(cells["alpha"]) * len(totals.trials)):
        for curve, values in curves(rows).items():
            pieces.setdefault(f"{curve}_mean", []).append(values.mean(axis=2))
            for q, quantile in zip((5, 50, 95), np.quantile(values, (0.05, 0.5, 0.95), axis=2), strict=True):
                pieces.setdefault(f"{curve}_q{q:02}", []).append(quantile)
    columns |= {curve: np.concatenate(parts).T for curve, parts in pieces.items()}
    columns |= {**further, **{rate: cells[rate][:, None] for rate in RATES}}
    shape = len(cells["alpha"]), points
    return files.frame({k: np.broadcast_to(v, shape).ravel() for k, v in columns.items()})


def traces_table(trials: Table, sources: Table) -> Table:
    """Return one row per source, learner and cell of a sweep over traces: means over trials.

    ``sources`` has the columns ``trace``, ``alpha``, ``records``, ``error_rate``, ``answerable`` and ``advised``.
    """
    known = ["records", "error_rate", "answerable", "advised"]
    joined = trials.rename(columns={"source": "trace"}).merge(
        sources[["trace", "alpha", *known]].drop_duplicates(), how="left", on=["trace", "alpha"]
    )
    share = joined["answered"] / joined["horizon"]
    joined["answered"] = share
    joined["of_answerable"] = np.minimum(share / joined["answerable"], 1).where(joined["answerable"] > 0)
    by_cell = joined.groupby(["trace", "learner", "alpha", "lambda", *RATES], sort=False, dropna=False)
    columns = ("answered", "of_answerable", "fdr", "fdr_risk", "risk_bound")
    table = by_cell[[*columns]].mean().join(by_cell[["horizon", *known]].first()).reset_index()
    table["trials"] = by_cell.size().to_numpy()
    table["fdr_within_01"] = (~(table["fdr"] > table["alpha"] + NEAR)).astype(int)  # also without answers
    return table[list(TRACES)]


def risk_holds(trials: Table) -> NDArray[np.bool_]:
    """Return whether the risks of answers and of feedback are within their bounds, per row, up to rounding."""
    excess = trials["fdr_risk"].to_numpy() - trials["risk_bound"].to_numpy()
    feedback_excess = trials["feedback_risk"].to_numpy() - trials["feedback_risk_bound"].to_numpy()
    # fmax ignores NaN, and a comparison with NaN is False: rows without bounds pass
    return ~(np.fmax(excess, feedback_excess) > 1e-9 * trials["horizon"].to_numpy())


def lemma_holds(trials: Table) -> NDArray[np.bool_]:
    """Return whether Lemma 1 holds in each row, up to rounding: lam R_T <= n + (1 + lam) regret."""
    lam, answered = trials["lambda"].to_numpy(), trials["answered"].to_numpy()
    # both sides are divided by 1 + lam, so that no lambda overflows
    left = lam / (1 + lam) * trials["fdr_risk"].to_numpy()
    right = answered / (1 + lam) + trials["regret"].to_numpy()
    return left <= right + 1e-9 * trials["horizon"].to_numpy()
