"""``feedback``: rare, late, biased or wrong feedback, with and without the corrected aim."""

import math
from textwrap import fill
from typing import Any

from exaul import Sweep
from exaul.engine.checks import name_with_values
from exaul.engine.feedback import describe_feedback
from exaul.engine.logs.files import Table
from exaul.engine.results import figures
from experiments.claims import MARGINAL, REGRESSION, RISK_BOUND, Cell, Claim, Tables, alpha_of, mean_of
from experiments.experiment import Experiment, ExperimentPart, Figures, Parts, part_of
from experiments.paper import SHIFT, EasyAndHard, Paper

LEARNERS = ("exaul", "exp3-ix", "aci-rank")
FLIPS = (0.05, 0.2)  # shares of flipped feedback on right answers and on wrong ones
CASES: dict[str, dict[str, Any]] = {
    "all are rated, at once": {},
    "2% are rated": {"feedback_rate": 0.02},
    "2%, the others treated as right": {"feedback_rate": 0.02, "missing": "right", "expires": 1_000},
    "2%, the others treated as wrong": {"feedback_rate": 0.02, "missing": "wrong", "expires": 1_000},
    "delayed by 1,000 questions in the mean": {"delay": 1_000},
    "delayed by 10 questions, with a reserve": {"delay": 10, "reserve": True},
    "wrong ones rated 3 times as often": {"bias": 3.0},
    "bias undeclared, wrong ones rated 3 times as often": {"bias": 3.0, "uncorrected": True},
    "right ones rated 3 times as often": {"bias": 1 / 3},
    "bias undeclared, right ones rated 3 times as often": {"bias": 1 / 3, "uncorrected": True},
    "20% of wrong up, 5% of right down": {"flips": FLIPS},
    "undeclared, 20% of wrong up, 5% of right down": {"flips": FLIPS, "uncorrected": True},
}
ALL, RARE, RIGHT, WRONG, LATE, *_ = CASES
CORRECTED = tuple(
    name for name, feedback in CASES.items() if {"bias", "flips"} & set(feedback) and "uncorrected" not in feedback
)
BIAS_3, BIAS_THIRD = (f"bias undeclared, {kind} ones rated 3 times as often" for kind in ("wrong", "right"))
MAX_EXCESS = 0.02  # regression limit of FDR - alpha, over all answers


def _parts(paper: Paper, records: EasyAndHard) -> Parts:
    def part(feedback: dict[str, Any]) -> ExperimentPart:
        horizon = 300_000 if feedback == CASES[RARE] else 100_000
        names = ("aci-rank",) if "reserve" in feedback else LEARNERS
        common: dict[str, Any] = {"trials": 10, "alphas": (paper.alphas[SHIFT],), "checkpoints": 20}
        return part_of(paper, records, horizon=horizon, learners=names, **common, **feedback)

    return [part(feedback) for feedback in CASES.values()]


ENVIRONMENTS = {name_with_values("stochastic", describe_feedback(Sweep(**x))): case for case, x in CASES.items()}
COLUMNS = {  # of ``case_table``: a column of the trials, and what sums it up
    "alpha": ("alpha", "first"),
    "answered": ("share", "mean"),
    "fdr": ("fdr", "mean"),
    "fdr_q05": ("fdr", lambda values: values.quantile(0.05)),
    "fdr_q95": ("fdr", lambda values: values.quantile(0.95)),
}


def case_table(trials: Table) -> Table:
    """Return one row per case and learner: means over trials at T, and 5% and 95% quantiles of the FDR."""
    trials = trials.assign(
        case=trials["environment"].map(ENVIRONMENTS), share=trials["answered"] / trials["horizon"]
    )
    return trials.groupby(["case", "learner"], sort=False).agg(**COLUMNS).reset_index()


def _share_of_all(cell: Cell) -> float:
    """Return what a learner answers as a share of what it answers with all feedback."""
    baseline = cell.mean("answered", cell.values["learner"], case=ALL)
    return cell.mean("answered", cell.values["learner"]) / baseline if baseline else math.nan


CONTROLLED = (RARE, LATE, *CORRECTED)
CLAIMS = {
    "exaul: mean FDR of all answers at T is at most alpha": Claim(
        mean_of("fdr"), "<=", alpha_of, "case", where={"case": (ALL, *CONTROLLED)}
    ),
    "exaul: mean FDR at T is at most .45 of alpha": Claim(
        mean_of("fdr"), "<=", lambda x: 0.45 * alpha_of(x), "case", "", REGRESSION, {"case": ALL}, why=MARGINAL
    ),
    f"{{learner}}: answers, as a share of those when {ALL}": Claim(
        _share_of_all, ">=", 0.9, "learner case", "", REGRESSION, {"case": (RARE, LATE)}
    ),
    "missing feedback is not positive: exaul ends with a mean FDR above alpha": Claim(
        mean_of("fdr"), ">", alpha_of, "case", where={"case": RIGHT}
    ),
    "missing feedback is not negative: exaul answers less than when it is skipped": Claim(
        mean_of("answered"), "<", mean_of("answered", case=RARE), "case", where={"case": WRONG}
    ),
    "exaul: share answered": Claim(mean_of("answered"), "<=", 0.1, "case", "", REGRESSION, {"case": WRONG}),
    "exaul: answers more with the corrected aim than without": Claim(
        mean_of("answered"), ">", mean_of("answered", case=BIAS_3), "case", where={"case": CORRECTED[0]}
    ),
    "exaul: has a lower mean FDR with the corrected aim than without": Claim(
        mean_of("fdr"), "<", mean_of("fdr", case=BIAS_THIRD), "case", where={"case": CORRECTED[1]}
    ),
    f"{{learner}}: largest FDR - alpha of all answers: {RARE}, late, biased or flipped": Claim(
        lambda cell: float((cell.rows()["fdr"] - cell.rows()["alpha"]).max()),
        "<=",
        MAX_EXCESS,
        "learner",
        kind=REGRESSION,
        where={"learner": LEARNERS[1:], "case": CONTROLLED},
    ),
}
CLAIMS = RISK_BOUND | {sentence: claim._replace(table="cases") for sentence, claim in CLAIMS.items()}


def _draw(tables: Tables) -> Figures:
    """Draw the mean FDR, with 5% and 95% quantiles, and the mean share answered: a row of marks per case."""
    table, cases = tables["cases"], [*CASES]
    lines = list(figures.styled_lines(table))
    figure = figures.Figure(figsize=(6.4, 0.36 * len(cases) + 0.9), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, column, label in zip(
        panels, ("fdr", "answered"), ("FDR of all answers", figures.ANSWERED), strict=True
    ):
        for number, (style, name, rows) in enumerate(lines):
            heights = [cases.index(case) + 0.8 * ((number + 0.5) / len(lines) - 0.5) for case in rows["case"]]
            if column == "fdr":
                axes.hlines(heights, rows["fdr_q05"], rows["fdr_q95"], color=style["color"], linewidth=0.8)
            axes.plot(rows[column], heights, label=name, **style | {"linestyle": ""})
        for end in range(1, len(cases)):
            axes.axhline(end - 0.5, color="#d9d9d9", linewidth=0.6)
        names = [fill(case, 28 if len(case) <= 28 else len(case) // 2 + 6) for case in cases]  # halves of a label
        axes.set(yticks=range(len(cases)), yticklabels=names, ylim=(len(cases) - 0.5, -0.5))
        axes.set_xlabel(label, fontsize=8)
        axes.tick_params(labelsize=8)
        figures.in_percent(axes.xaxis)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].axvline(table["alpha"].iloc[0], label=figures.TARGET, **figures.TARGET_STYLE)
    for height, case in enumerate(cases):
        played = set(table.loc[table["case"] == case, "learner"])
        if absent := [name for _, name, _ in lines if name not in played]:
            text = f"{', '.join(absent)}: not applicable"
            panels[1].text(
                0.02, height - 0.2, text, transform=panels[1].get_yaxis_transform(), fontsize=6, va="center"
            )
    note = f"Mark: mean over trials; line: {figures.MIDDLE} of the FDR."
    figures.add_legend(figure, [(axes, table) for axes in panels], note)
    return figures.with_trials({"fdr": figure}, tables["trials"])


feedback = Experiment(
    "Rare, late, biased or wrong feedback on the easy records in random order: the FDR of all answers, with "
    "feedback or without, and the share answered. Answers without feedback are skipped unless the case says "
    "otherwise. The aim is the error rate of observed feedback at which the FDR is alpha.",
    _parts,
    _draw,
    CLAIMS,
    lambda tables: {"cases": case_table(tables["trials"])},
)
