"""Results as tidy tables: a row a trial, and curves over checkpoints."""

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from engine import metrics, tables
from engine.errors import BadInput
from engine.metrics import Floats
from engine.tables import Table
from kernels.bounds import fdr_bound, lemma_bound

BY_TRIAL = (  # fields with trials on the last axis
    "trials",
    "best_loss",
    "best_arm",
    "risk_bound",
    "answered",
    "wrong",
    "asked",
)


@dataclass(frozen=True)
class Played:
    """What a sweep left: counts of P checkpoints, cells (alpha x lambda) and trials, by learner."""

    learners: tuple[str, ...]
    environment: str
    source: str
    grid_name: str
    grid: Floats  # [H]
    alphas: Floats  # [cells]
    lambdas: Floats  # [cells]
    trials: NDArray[np.int64]  # [trials]
    checkpoints: NDArray[np.int64]  # [P], the last is T
    answer: Floats  # [cells], cost of an answer per unit of error
    abstain: Floats  # [cells], cost of an abstention
    best_loss: dict[str, Floats]  # [P, cells, trials]
    best_arm: dict[str, NDArray[np.int32]]  # [cells, trials], at T
    eta: dict[str, float]  # at T, NaN where there is none
    gamma: dict[str, float]
    regret_bound: dict[str, float]  # NaN where nothing is proved
    risk_bound: dict[str, Floats]  # [P, cells, trials], of R_t, of the learners for whom one is proved
    answered: dict[str, NDArray[np.int64]]  # [P, cells, trials]
    wrong: dict[str, Floats]  # [P, cells, trials]
    asked: dict[str, dict[str, Floats]]  # [P, cells, trials] of each kind, in worlds that answer back


def join(parts: Sequence[Played]) -> Played:
    """One sweep's figures from those of its trials, in order: they differ in trials alone."""
    first = parts[0]
    if len(parts) == 1:
        return first

    def joined(field: str) -> Any:
        def along(values: Sequence[Any]) -> Any:
            if isinstance(values[0], dict):
                return {key: along([each[key] for each in values]) for key in values[0]}
            return np.concatenate(values, axis=-1)

        return along([getattr(part, field) for part in parts])

    return replace(first, **{field: joined(field) for field in BY_TRIAL})


def save_played(played: Played, stream: BinaryIO) -> None:
    """Write what a sweep left as arrays by name, ``field`` or ``field/learner`` or ``field/learner/kind``."""
    leaves = tables.flat({f.name: getattr(played, f.name) for f in fields(played)})
    np.savez(stream, **{name: np.asarray(leaf) for name, leaf in leaves.items()})  # type: ignore[arg-type]


def load_played(stream: BinaryIO, name: str) -> Played:
    """What ``save_played`` wrote.

    Raises:
        BadInput: it cannot be read; the sentence has the name.
    """
    try:
        with np.load(stream, allow_pickle=False) as found:
            arrays = dict(found)
        leaves = {key: array.item() if array.ndim == 0 else array for key, array in arrays.items()}
        values: dict[str, Any] = {"asked": {}, "risk_bound": {}} | tables.nested(leaves)
        values["learners"] = tuple(map(str, values["learners"]))
        return Played(**values)
    except (OSError, ValueError, EOFError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise BadInput(f"{name}: unreadable ({error})") from error


def trials_table(played: Played) -> Table:
    """A row a learner, alpha, lambda and trial: its figures at T beside what the theory says of them."""
    return tables.stack([_trials_of(played, name) for name in played.learners])


def _trials_of(played: Played, name: str) -> Table:
    answered, wrong = played.answered[name][-1], played.wrong[name][-1]
    horizon, best = played.checkpoints[-1], played.best_loss[name][-1]
    alpha, lam = played.alphas[:, None], played.lambdas[:, None]
    loss = metrics.loss(answered, wrong, horizon, played.answer[:, None], played.abstain[:, None])
    regret = loss - best
    columns: dict[str, Any] = {
        "learner": name,
        "environment": played.environment,
        "source": played.source,
        "alpha": alpha,
        "lambda": lam,
        "trial": played.trials[None],
        "horizon": horizon,
        "arms": len(played.grid),
        "grid": played.grid_name,
        "eta": played.eta[name],
        "gamma": played.gamma[name],
        "answered": answered,
        "fdr": metrics.fdr(answered, wrong, alpha),
        "inefficiency": (horizon - answered) / horizon,
        "fdr_risk": metrics.fdr_risk(answered, wrong, alpha),
        "loss": loss,
        "best_loss": best,
        "best_threshold": played.grid[played.best_arm[name]],
        "regret": regret,
        "regret_bound": played.regret_bound[name],
        "lemma_bound": lemma_bound(answered, regret, lam),
        "fdr_bound": fdr_bound(answered, played.regret_bound[name], alpha, lam),
        "risk_bound": _risk_bound(played, name)[-1],
    }
    return tables.frame({k: np.broadcast_to(v, answered.shape).ravel() for k, v in columns.items()})


def _risk_bound(played: Played, name: str) -> Floats:
    """What R_t never exceeds [P, cells, trials]; NaN where nothing is proved."""
    return played.risk_bound.get(name, np.full(played.answered[name].shape, np.nan))


def curves_table(played: Played) -> Table:
    """A row a learner, alpha, lambda and checkpoint: mean and quantiles over trials.

    Of ``risk_bound`` there is the mean; ``rise`` is the largest rise of R over a stretch, of all trials, so far.
    """
    return tables.stack([_curves_of(played, name) for name in played.learners])


def _curves_of(played: Played, name: str) -> Table:
    answered, wrong = played.answered[name], played.wrong[name]
    t = played.checkpoints[: len(answered), None, None]
    loss = metrics.loss(answered, wrong, t, played.answer[:, None], played.abstain[:, None])
    curves = {
        "fdr": metrics.fdr(answered, wrong, played.alphas[:, None]),
        "inefficiency": (t - answered) / t,
        "regret_per_round": (loss - played.best_loss[name]) / t,
        "fdr_risk": metrics.fdr_risk(answered, wrong, played.alphas[:, None]),
    }
    table = _over_time(played, name, curves)
    table["risk_bound"] = _risk_bound(played, name).mean(axis=2).T.ravel()
    table["rise"] = metrics.rise(curves["fdr_risk"]).max(axis=2).T.ravel()
    return table


def asked_table(played: Played) -> Table | None:
    """What a world that answers back asked since the checkpoint before, as ``curves_table``; None elsewhere.

    ``hard``: questions whose answer is wrong; ``overconfident``: wrong, with a score above the pool's mean;
    ``underconfident``: right, with a score below it; shares of the questions asked.
    """
    if not played.asked:
        return None
    rounds = np.diff(played.checkpoints, prepend=0)[:, None, None]
    parts = []
    for name, kinds in played.asked.items():
        shares = {kind: np.diff(sums, axis=0, prepend=0) / rounds for kind, sums in kinds.items()}
        parts.append(_over_time(played, name, shares))
    return tables.stack(parts)


def _over_time(played: Played, name: str, curves: dict[str, Floats]) -> Table:
    columns: dict[str, Any] = {
        "learner": name,
        "environment": played.environment,
        "source": played.source,
        "alpha": played.alphas[:, None],
        "lambda": played.lambdas[:, None],
        "t": played.checkpoints[None, : len(next(iter(curves.values())))],
    }
    for curve, values in curves.items():
        columns[f"{curve}_mean"] = values.mean(axis=2).T
        for q in (5, 50, 95):
            columns[f"{curve}_q{q:02}"] = np.quantile(values, q / 100, axis=2).T
    shape = len(played.alphas), columns["t"].shape[1]
    return tables.frame({k: np.broadcast_to(v, shape).ravel() for k, v in columns.items()})


def risk_holds(trials: Table) -> NDArray[np.bool_]:
    """Whether R_T is within the learner's pathwise bound in each row, up to rounding; true where there is none."""
    excess = trials["fdr_risk"].to_numpy() - trials["risk_bound"].to_numpy()
    return ~(excess > 1e-9 * trials["horizon"].to_numpy())


def lemma_holds(trials: Table) -> NDArray[np.bool_]:
    """Whether Lemma 1 holds in each row of the table, up to rounding: ``lam R <= answered + (1 + lam) regret``."""
    lam, answered = trials["lambda"].to_numpy(), trials["answered"].to_numpy()
    left = lam * trials["fdr_risk"].to_numpy()
    right = answered + (1 + lam) * trials["regret"].to_numpy()
    return left <= right + 1e-9 * (1 + lam) * trials["horizon"].to_numpy()
