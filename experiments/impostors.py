"""Impostors: learners in the place of ``exaul``, which show whether claims about it can fail."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from exaul import Result, Sweep
from exaul.engine.logs.files import Table, stack
from exaul.kernels.bounds import fdr_bound
from exaul.kernels.game import RuleParams
from exaul.kernels.learners.exaul import exaul
from exaul.kernels.learners.learner import Learner, Ranked, Sided
from experiments.claims import Tables

TRIALS = 10  # maximum trials of an impostor
COIN = "experiments.impostors:coin"
IMPOSTORS = {  # by name in the report
    "never answers": "always-abstain",
    "always answers": "no-abstention",
    "exp3-ix": "exp3-ix",
    "a coin": COIN,
    "feedback upside down": "experiments.impostors:upside_down",
    "half of alpha": "experiments.impostors:half_alpha",
    "twice alpha": "experiments.impostors:twice_alpha",
}


def impostor_sweep(learner: str, true_result: Result) -> Sweep:
    """Return the sweep with an impostor instead of ``exaul``; the coin answers as often as ``exaul`` did."""
    fields: dict[str, Any] = {"learners": (learner,), "trials": min(true_result.sweep.trials, TRIALS)}
    if learner == COIN:
        rows = _exaul(true_result)
        fields["eta"] = max(float(rows["answered"].sum() / rows["horizon"].sum()), 1e-9)
    return replace(true_result.sweep, **fields)


def with_impostor_rows(tables: Tables, results: Sequence[tuple[Result, Result]]) -> Tables:
    """Return the tables with an impostor's rows instead of those of ``exaul``, but with the bounds of ``exaul``.

    ``results`` has the true result and the impostor's, for each sweep with ``exaul``.
    """
    posed = {
        "trials": [_bounded(result.trials, _exaul(true)) for true, result in results],
        "curves": [result.curves for _, result in results],
        "asked": [result.asked for _, result in results if result.asked is not None],
    }
    remaining = {name: table[table["learner"] != "exaul"] for name, table in tables.items() if name in posed}
    posing = {
        name: stack([*(x.assign(learner="exaul") for x in posed[name]), rows])[list(rows)]
        for name, rows in remaining.items()
    }
    return {**tables, **posing}


def _exaul(result: Result) -> Table:
    return result.trials[result.trials["learner"] == "exaul"]


def _bounded(trials: Table, exaul_rows: Table) -> Table:
    row = exaul_rows[exaul_rows["answered"] > 0].iloc[0]
    risk = (row["fdr_bound"] - row["alpha"]) * row["answered"]
    # Lemma 1, solved for the bound of the regret against the arm that always abstains
    abstaining = (row["lambda"] * risk - row["answered"]) / (1 + row["lambda"])
    fdr = fdr_bound(trials["answered"], abstaining, trials["alpha"], trials["lambda"])
    return trials.assign(regret_bound=row["regret_bound"], fdr_bound=fdr, risk_bound=np.nan)


def _impostor(factor: float = 1.0, is_inverted: bool = False) -> Learner[Sided]:
    """Return ``exaul`` for ``factor`` times alpha, or with inverted feedback."""

    def charge(
        where: Callable[..., Any], P: Any, Q: Any, answered: Any, error: Any, params: RuleParams
    ) -> tuple[Any, Any]:
        answer_cost = params.answer_cost
        # The cost of an abstention at alpha times ``factor``: (1 + lambda times alpha) / (1 + lambda) (eq. 4).
        abstain_cost = 1 - answer_cost + answer_cost * factor * params.alpha
        feedback = 1 - error if is_inverted else error
        below = where(answered, answer_cost * feedback / (params.gamma + P), 0.0)
        return below, where(answered, 0.0, abstain_cost / (params.gamma + Q))

    return exaul._replace(rule=Sided(charge))


class CoinState(NamedTuple):
    """The state of ``coin``."""

    share: Any  # the probability of answering; 0 before round 1, then eta


upside_down = _impostor(is_inverted=True)
half_alpha = _impostor(factor=0.5)
twice_alpha = _impostor(factor=2.0)
coin = Learner(
    "none",
    Ranked(
        CoinState(0.0),
        lambda where, coin, high, low: coin.share + 0 * high,
        lambda where, coin, answered, error, params: CoinState(params.eta + 0 * coin.share),
        prior=1.0,
        decay=0.5,
    ),
    exaul.rates,
)
