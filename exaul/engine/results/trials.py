"""Make tidy tables from totals. ``docs/results.md`` defines the columns."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.engine.logs import files
from exaul.engine.logs.files import Table
from exaul.engine.results.advice import FDR_TOLERANCE
from exaul.engine.results.text_table import RATE_COLUMNS
from exaul.engine.simulation.chunks import ASKED
from exaul.engine.simulation.totals import SLICE, LearnerTotals, Totals, split_by_learner
from exaul.kernels import metrics
from exaul.kernels.bounds import RegretBounds, fdr_bound, lemma_bound
from exaul.kernels.metrics import Floats

TRACES = (  # the columns of ``traces_table``
    *("trace", "records", "error_rate", "learner", "alpha", "lambda", "horizon", "trials", "answered"),
    *("answerable", "of_answerable", "fdr", "fdr_within_01", "fdr_risk", "risk_bound", "advised"),
    *("regret", "regret_bound", *RATE_COLUMNS),
)


def trials_table(totals: Totals) -> Table:
    """Return one row per learner, cell and trial: results at T, and their bounds."""
    return files.stack([_trials_of(x) for x in split_by_learner(totals)])


def _trials_of(totals: LearnerTotals) -> Table:
    def end(field: str) -> Any:
        """Return a field at T, [cells, trials]; NaN if it is absent: with perfect feedback, or without a proof."""
        return totals[field][-1] if field in totals else np.nan

    answered, wrong, observed, horizon = end("answered"), end("wrong"), end("observed"), totals["checkpoints"][-1]
    best_loss, best_arm = end("best_loss")[totals["pair"]], end("best_arm")[totals["pair"]]
    alpha, lam, *costs = (totals[name][:, None] for name in ("alpha", "lam", "answer_cost", "abstain_cost"))
    loss = metrics.loss(answered, wrong, horizon, *costs)
    regret = loss - best_loss
    best_bound, abstaining_bound, paper_bound = (totals[name][-1][:, None] for name in RegretBounds._fields)
    columns: dict[str, Any] = {
        "trial": totals["trials"][None],
        "horizon": horizon,
        "arms": len(totals["grid"]),
        "grid": totals["grid_name"],
        "eta": totals["eta"][:, None],
        "gamma": totals["gamma"][:, None],
        "answered": answered,
        "fdr": metrics.fdr(answered, wrong, np.nan),
        "inefficiency": metrics.inefficiency(answered, horizon),
        "fdr_risk": metrics.fdr_risk(answered, wrong, alpha),
        "loss": loss,
        "best_loss": best_loss,
        "best_threshold": totals["grid"][best_arm],
        "regret": regret,
        "regret_bound": best_bound,
        "lemma_bound": lemma_bound(answered, regret, lam),
        "fdr_bound": fdr_bound(answered, abstaining_bound, alpha, lam),
        "risk_bound": end("risk_bound"),
        "observed": observed,
        "fdr_observed": metrics.fdr(observed, end("observed_errors"), np.nan),
        "aim": end("aim"),
        "feedback_risk": metrics.fdr_risk(end("settled"), end("learned_errors"), end("aim")),
        "feedback_risk_bound": end("feedback_risk_bound"),
        "regret_bound_paper": paper_bound,
        "fdr_bound_paper": fdr_bound(answered, paper_bound, alpha, lam),
        **{rate: totals[rate][:, None] for rate in RATE_COLUMNS},
        "warm_start": totals.get("warm_start", np.nan),
    }
    return _table(totals, answered.shape, columns)


def curves_table(totals: Totals) -> Table:
    """Return one row per learner, cell and checkpoint: mean and quantiles over trials.

    ``risk_bound`` is the largest of the trials; ``rise`` is their largest rise of R between two checkpoints so far.
    """
    return files.stack([_curves_of(x) for x in split_by_learner(totals)])


def _curves_of(totals: LearnerTotals) -> Table:
    answered, wrong, best_loss = totals["answered"], totals["wrong"], totals["best_loss"][:, totals["pair"]]
    alpha, *costs = (totals[name][:, None] for name in ("alpha", "answer_cost", "abstain_cost"))

    def curves(rows: slice) -> dict[str, Floats]:
        n, w, t = answered[rows], wrong[rows], totals["checkpoints"][rows, None, None]
        regret = metrics.loss(n, w, t, *costs) - best_loss[rows]
        return {
            "fdr": metrics.fdr(n, w, alpha),
            "inefficiency": metrics.inefficiency(n, t),
            "regret_per_round": regret / t,
            "regret": regret,
            "fdr_risk": metrics.fdr_risk(n, w, alpha),
        }

    def rise(trials: slice) -> Floats:
        return metrics.rise(metrics.fdr_risk(answered[..., trials], wrong[..., trials], alpha)).max(axis=2)

    slices = _slices(answered.shape[2], answered.shape[0] * answered.shape[1])
    extra = {
        "regret_bound": totals["best"].T,
        "risk_bound": totals["risk_bound"].max(axis=2).T if "risk_bound" in totals else np.nan,
        "rise": np.max([rise(trials) for trials in slices], axis=0).T,
    }
    return _by_time(totals, curves, extra)


def _slices(total: int, per_item: int) -> list[slice]:
    """Split ``total`` items of ``per_item`` numbers into slices of about SLICE numbers."""
    step = max(1, SLICE // per_item)
    return [slice(first, min(first + step, total)) for first in range(0, total, step)]


def asked_table(totals: Totals) -> Table | None:
    """Return the shares of questions of each kind since the last checkpoint; None in an oblivious environment.

    ``hard``: wrong answers; ``overconfident``: wrong, with a cut at or above the pool's mean; ``underconfident``:
    right, with a cut below it.
    """
    parts = [_asked_of(x) for x in split_by_learner(totals) if ASKED[0] in x]
    return files.stack(parts) if parts else None


def _asked_of(totals: LearnerTotals) -> Table:
    rounds = np.diff(totals["checkpoints"], prepend=0)[:, None, None]
    shares = {kind: np.diff(totals[kind], axis=0, prepend=0) / rounds for kind in ASKED}
    return _by_time(totals, lambda rows: {kind: x[rows] for kind, x in shares.items()})


def _by_time(
    totals: LearnerTotals, curves: Callable[[slice], dict[str, Floats]], extra: Mapping[str, Any] = {}
) -> Table:
    """Return mean and quantiles over trials of ``curves(rows)`` of a learner; ``rows`` are checkpoints.

    ``extra`` are other columns, [cells, P] each.
    """
    shape = len(totals["alpha"]), len(totals["checkpoints"])
    pieces: dict[str, list[Floats]] = {}
    for rows in _slices(shape[1], shape[0] * len(totals["trials"])):
        for curve, values in curves(rows).items():
            pieces.setdefault(f"{curve}_mean", []).append(values.mean(axis=2))
            for q, quantile in zip((5, 50, 95), np.quantile(values, (0.05, 0.5, 0.95), axis=2), strict=True):
                pieces.setdefault(f"{curve}_q{q:02}", []).append(quantile)
    columns = {"t": totals["checkpoints"][None]} | {curve: np.concatenate(x).T for curve, x in pieces.items()}
    return _table(totals, shape, {**columns, **extra, **{rate: totals[rate][:, None] for rate in RATE_COLUMNS}})


def _table(totals: LearnerTotals, shape: tuple[int, ...], columns: Mapping[str, Any]) -> Table:
    """Return the columns that name the cells of a learner, and further ones; all broadcast to ``shape``."""
    names = {name: totals[name] for name in ("learner", "environment", "source")}
    cells = {"alpha": totals["alpha"][:, None], "lambda": totals["lam"][:, None]}
    return files.Table({k: np.broadcast_to(v, shape).ravel() for k, v in {**names, **cells, **columns}.items()})


def traces_table(trials: Table, source_table: Table) -> Table:
    """Return one row per source, learner and cell of a sweep over traces: means over trials.

    ``source_table`` has columns ``trace``, ``alpha``, ``records``, ``error_rate``, ``answerable`` and ``advised``.
    """
    source_columns = ["records", "error_rate", "answerable", "advised"]
    joined = trials.rename(columns={"source": "trace"}).merge(
        source_table[["trace", "alpha", *source_columns]].drop_duplicates(), how="left", on=["trace", "alpha"]
    )
    share = joined["answered"] / joined["horizon"]
    joined["answered"] = share
    joined["of_answerable"] = np.minimum(share / joined["answerable"], 1).where(joined["answerable"] > 0)
    by_cell = joined.groupby(["trace", "learner", "alpha", "lambda", *RATE_COLUMNS], sort=False, dropna=False)
    columns = ("answered", "of_answerable", "fdr", "fdr_risk", "risk_bound", "regret", "regret_bound")
    table = by_cell[[*columns]].mean().join(by_cell[["horizon", *source_columns]].first()).reset_index()
    table["trials"] = by_cell.size().to_numpy()
    table["fdr_within_01"] = (~(table["fdr"] > table["alpha"] + FDR_TOLERANCE)).astype(int)  # also without answers
    return table[list(TRACES)]


def risk_holds(trials: Table) -> NDArray[np.bool_]:
    """Return whether the risks of answers and of feedback are within their bounds, per row, up to rounding."""
    excess = trials["fdr_risk"] - trials["risk_bound"]
    feedback_excess = trials["feedback_risk"] - trials["feedback_risk_bound"]
    # fmax ignores NaN, and a comparison with NaN is False: rows without bounds pass
    return ~(np.fmax(excess, feedback_excess) > 1e-9 * trials["horizon"]).to_numpy()


def lemma_holds(trials: Table) -> NDArray[np.bool_]:
    """Return whether Lemma 1 holds in each row, up to rounding: lam R_T <= n + (1 + lam) regret."""
    lam = trials["lambda"]
    # both sides are divided by 1 + lam, so that a large lambda does not overflow
    lower = lam / (1 + lam) * trials["fdr_risk"]
    upper = trials["answered"] / (1 + lam) + trials["regret"]
    return (lower <= upper + 1e-9 * trials["horizon"]).to_numpy()
