"""``feedback``: rare, late, biased or wrong feedback, with and without the corrected aim."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from exaul import Sweep
from exaul.engine.feedback import describe_feedback
from exaul.engine.logs.files import Table, frame
from exaul.engine.logs.log import Records
from exaul.engine.results.figures import Figure
from exaul.engine.results.trials import risk_holds
from exaul.engine.settings import name_with_values
from experiments import plots
from experiments.experiment import (
    CHECK,
    MARGINAL,
    REGRESSION,
    Claim,
    Experiment,
    ExperimentPart,
    Tables,
    lemma,
    mean,
)
from experiments.paper import SHIFT, Paper

LEARNERS = ("exaul", "exp3-ix", "aci-rank")
RESERVING = ("aci-rank",)
LIES = (0.05, 0.2)  # shares of flipped feedback on right answers and on wrong ones
CASES: dict[str, dict[str, Any]] = {
    "all are rated, at once": {},
    "2% are rated": {"feedback_rate": 0.02},
    "2%, the others treated as right": {"feedback_rate": 0.02, "missing": "right", "expires": 1_000},
    "2%, the others treated as wrong": {"feedback_rate": 0.02, "missing": "wrong", "expires": 1_000},
    "delayed by 1,000 questions in the mean": {"delay": 1_000},
    "delayed by 10 questions, with a reserve": {"delay": 10, "reserve": True},
    "wrong ones rated 3 times as often": {"bias": 3.0},
    "... aim uncorrected (3)": {"bias": 3.0, "uncorrected": True},
    "right ones rated 3 times as often": {"bias": 1 / 3},
    "... aim uncorrected (1/3)": {"bias": 1 / 3, "uncorrected": True},
    "20% of wrong up, 5% of right down": {"flips": LIES},
    "... aim uncorrected (flips)": {"flips": LIES, "uncorrected": True},
}
ALL, RARE, RIGHT, WRONG, LATE, *_ = CASES
CORRECTED = tuple(
    name for name, feedback in CASES.items() if {"bias", "flips"} & set(feedback) and "uncorrected" not in feedback
)
WITHIN = 0.02  # regression limit of the FDR of all answers above alpha


def _parts(paper: Paper, records: tuple[Records, Records]) -> Sequence[ExperimentPart]:
    def part(feedback: dict[str, Any]) -> ExperimentPart:
        horizon = 300_000 if feedback == CASES[RARE] else 100_000
        names = RESERVING if "reserve" in feedback else LEARNERS
        common: dict[str, Any] = {"alphas": (paper.alphas[SHIFT],), "learners": names, "checkpoints": 20}
        return ExperimentPart(paper.sweep(horizon, 10, **common, **feedback), records[:1])

    return [part(feedback) for feedback in CASES.values()]


def case_table(found: Tables) -> Table:
    """Return one row per case and learner: means over trials at T, and 5% and 95% quantiles."""
    rows = []
    for name, feedback in CASES.items():
        environment = name_with_values("stochastic", describe_feedback(Sweep(**feedback)))
        rows_of_case = found.trials[found.trials["environment"] == environment]
        for learner, group in rows_of_case.groupby("learner", sort=False):
            share = group["answered"] / group["horizon"]
            rows.append(
                {
                    "case": name,
                    "learner": learner,
                    "alpha": group["alpha"].iloc[0],
                    "horizon": group["horizon"].iloc[0],
                    "answered": share.mean(),
                    "answered_q05": share.quantile(0.05),
                    "answered_q95": share.quantile(0.95),
                    "fdr": group["fdr"].mean(),
                    "fdr_q05": group["fdr"].quantile(0.05),
                    "fdr_q95": group["fdr"].quantile(0.95),
                    "risk_most": group["fdr_risk"].max(),
                    "observed": group["observed"].mean(),
                    "fdr_observed": group["fdr_observed"].mean(),
                    "aim": group["aim"].mean(),
                    "thumb_risk_most": group["feedback_risk"].max(),
                    "feedback_risk_bound": group["feedback_risk_bound"].max(),
                }
            )
    return frame(rows)


def _ratio(a: float, b: float) -> float:
    return a / b if b else math.nan


def _claims(found: Tables) -> list[Claim]:
    table = case_table(found)
    alpha = float(table["alpha"].iloc[0])

    def of(column: str, case: str, learner: str = "exaul") -> float:
        return mean(table, column, case=case, learner=learner)

    broken = int((~risk_holds(found.trials)).sum())
    claims = [lemma(found), Claim("trials above a learner's pathwise bound", broken, "<=", 0, kind=CHECK)]
    for case in (ALL, RARE, LATE, *CORRECTED):
        text = f"exaul: mean FDR of all answers at T is at most alpha: {case}"
        claims.append(Claim(text, of("fdr", case), "<=", alpha))
    text = f"exaul: mean FDR at T as a share of alpha: {ALL}"
    claims.append(Claim(text, of("fdr", ALL) / alpha, "<=", 0.45, MARGINAL, REGRESSION))
    for case in (RARE, LATE):
        for learner in LEARNERS:
            text = f"{learner}: answers, as a share of those when {ALL}: {case}"
            ratio = _ratio(of("answered", case, learner), of("answered", ALL, learner))
            claims.append(Claim(text, ratio, ">=", 0.9, kind=REGRESSION))
    text = f"missing feedback is not positive: exaul ends with a mean FDR above alpha: {RIGHT}"
    claims.append(Claim(text, of("fdr", RIGHT), ">", alpha))
    text = f"missing feedback is not negative: exaul answers less than when it is skipped: {WRONG}"
    claims.append(Claim(text, of("answered", WRONG), "<", of("answered", RARE)))
    text = f"exaul: share answered: {WRONG}"
    claims.append(Claim(text, of("answered", WRONG), "<=", 0.1, kind=REGRESSION))
    three, third = (f"... aim uncorrected ({name})" for name in ("3", "1/3"))
    text = "exaul: share answered with the corrected aim over that without: wrong ones rated 3 times as often"
    claims.append(Claim(text, _ratio(of("answered", CORRECTED[0]), of("answered", three)), ">", 1))
    text = "exaul: FDR without the corrected aim minus that with it: right ones rated 3 times as often"
    claims.append(Claim(text, of("fdr", third) - of("fdr", CORRECTED[1]), ">", 0))
    for learner in LEARNERS[1:]:
        apart = max(of("fdr", case, learner) for case in (RARE, LATE, *CORRECTED)) - alpha
        text = f"{learner}: largest FDR - alpha of all answers: {RARE}, late, biased or flipped"
        claims.append(Claim(text, apart, "<=", WITHIN, kind=REGRESSION))
    return claims


def _drawn(found: Tables) -> Mapping[str, Figure]:
    table = case_table(found)
    return {
        "fdr": plots.by_case(table, "fdr", "FDR$_T$ of all answers", "target $\\alpha$"),
        "answered": plots.by_case(table, "answered", "share answered"),
    }


feedback = Experiment(
    "Rare, late, biased or wrong feedback on the easy records in random order: the FDR of all answers, with "
    "feedback or without, and the share answered. Answers without feedback are skipped unless the case says "
    "otherwise. The aim is the error rate of observed feedback at which the FDR is alpha.",
    _parts,
    _drawn,
    _claims,
    lambda found: {"cases": case_table(found)},
)
