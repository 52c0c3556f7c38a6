"""What each column of each table means: the one description, from which ``docs/tables.md`` is made.

``python -m exaul.engine.results.columns`` prints that page.
"""

from typing import NamedTuple


class Column(NamedTuple):
    """A column of a table."""

    name: str
    meaning: str
    formula: str = ""  # in the paper's letters
    unit: str = ""
    kernel: str = ""  # the function of ``exaul.kernels`` that computes it


class Summary(NamedTuple):
    """A quantity over time; a table has its mean and quantiles over trials: ``NAME_mean``, ``NAME_q05``..."""

    name: str
    meaning: str
    formula: str = ""
    unit: str = ""
    kernel: str = ""

    @property
    def columns(self) -> list[Column]:
        """Its columns."""
        kinds = {"mean": "mean over trials", "q05": "5% quantile", "q50": "median", "q95": "95% quantile"}
        return [
            Column(f"{self.name}_{kind}", f"{self.meaning}: {text}", self.formula, self.unit, self.kernel)
            for kind, text in kinds.items()
        ]


_CELL = (
    Column("learner", "who played"),
    Column("environment", "the world, with the values that were set for its tunables"),
    Column("source", "logs or profiles, in their order: file stem and selection, or the profile's name"),
    Column("alpha", "target FDR", "alpha", "share, in (0, 1)"),
    Column("lambda", "weight of the FDR against abstaining", "lambda", "none, >= 0"),
)
_FDR = "share of wrong answers among the answered rounds; alpha while there are none"

TRIALS = (
    *_CELL,
    Column("trial", "number of the trial, from 0"),
    Column("horizon", "rounds of the trial", "T", "rounds"),
    Column("arms", "thresholds of the grid", "H", "thresholds"),
    Column("grid", "name of the grid"),
    Column("eta", "learning rate at T; the step of `threshold` and `aci-score`", "eta_T", "none"),
    Column("gamma", "implicit exploration at T; the drift of `threshold`", "gamma_T", "none"),
    Column("answered", "rounds that were answered", "n = sum of 1{answered}", "rounds"),
    Column("fdr", _FDR, "sum of e / n", "share, in [0, 1]", "metrics.fdr"),
    Column("inefficiency", 'share of rounds with "I don\'t know"', "(T - n) / T", "share", "metrics.inefficiency"),
    Column(
        "fdr_risk",
        "wrong answers above the target",
        "R_T = sum of (e - alpha) over answers",
        "answers",
        "metrics.fdr_risk",
    ),
    Column("loss", "cumulative loss", "sum of (a + lambda d) / (1 + lambda)", "loss", "metrics.loss"),
    Column(
        "best_loss",
        "cumulative loss of the threshold of least loss",
        "min over k of L_T(k)",
        "loss",
        "backends.native.survey",
    ),
    Column(
        "best_threshold",
        "the threshold of least loss, the lowest on a tie",
        "tau_k",
        "score",
        "backends.native.survey",
    ),
    Column("regret", "loss beyond that of the threshold of least loss (`best-fixed`)", "loss - best_loss", "loss"),
    Column(
        "regret_bound",
        "what the regret exceeds with probability at most delta; empty where nothing is proved, 0 for `best-fixed`",
        "the learner's theorem",
        "loss",
        "bounds.implicit_exploration_regret",
    ),
    Column(
        "lemma_bound",
        "what R_T cannot exceed at the realised regret (Lemma 1)",
        "(n + (1 + lambda) regret) / lambda",
        "answers",
        "bounds.lemma_bound",
    ),
    Column(
        "fdr_bound",
        "what the FDR exceeds with probability at most delta (eq. 6)",
        "alpha + (n + (1 + lambda) regret_bound) / (lambda n)",
        "share",
        "bounds.fdr_bound",
    ),
    Column("risk_bound", "what R_T cannot exceed on any sequence; empty where nothing is proved", "", "answers"),
    Column("rated", "answers whose thumb has come; this and the next four are empty where thumbs are perfect"),
    Column("fdr_rated", "share of thumbs down among them; empty while there are none", "", "share"),
    Column(
        "aim",
        "the share of thumbs down that the learner aims at: alpha, corrected for bias and flips",
        "",
        "share",
        "thumbs.aim",
    ),
    Column(
        "thumb_risk",
        "thumbs down above the aim, of those that were learned",
        "sum of (thumb - aim)",
        "thumbs",
        "metrics.fdr_risk",
    ),
    Column("thumb_risk_bound", "what it cannot exceed, whoever rates what; empty where nothing is proved"),
)

CURVES = (
    *_CELL,
    Column("t", "checkpoint", "t", "rounds"),
    *Summary("fdr", f"FDR up to t: {_FDR}", "sum of e / n_t", "share", "metrics.fdr").columns,
    *Summary(
        "inefficiency",
        "share of rounds up to t that were not answered",
        "(t - n_t) / t",
        "share",
        "metrics.inefficiency",
    ).columns,
    *Summary("regret_per_round", "regret up to t, over t", "(L_t - min_k L_t(k)) / t", "loss per round").columns,
    *Summary("fdr_risk", "wrong answers above the target up to t", "R_t", "answers", "metrics.fdr_risk").columns,
    Column("risk_bound", "what R_t cannot exceed on any sequence: mean over trials", "", "answers"),
    Column(
        "rise",
        "largest rise of R over a stretch of checkpoints up to t, of all trials",
        "max (R_b - R_a), a <= b <= t",
        "answers",
        "metrics.rise",
    ),
)

ASKED = (
    *_CELL,
    Column("t", "checkpoint", "t", "rounds"),
    *Summary("hard", "wrong answers", "", "share").columns,
    *Summary("overconfident", "those of them whose cut is at or above the pool's mean", "", "share").columns,
    *Summary(
        "underconfident", "questions whose answer is right, with a cut below the pool's mean", "", "share"
    ).columns,
)

OVER_TRACES = (
    Column("trace", "the log's name, with the values and the column of scores that tell the trace apart"),
    Column("records", "of the trace", "", "records"),
    Column("error_rate", "share of wrong answers if all are answered", "", "share"),
    Column("learner", "who played"),
    Column("alpha", "target FDR", "alpha", "share, in (0, 1)"),
    Column("lambda", "weight of the FDR against abstaining", "lambda", "none, >= 0"),
    Column("horizon", "rounds of a trial", "T", "rounds"),
    Column("trials", "how many were played", "", "trials"),
    Column("answered", "share of rounds that were answered: mean over trials", "n / T", "share"),
    Column(
        "answerable",
        "largest share of the trace that a fixed threshold of the grid answers with an FDR of at most alpha",
        "",
        "share",
        "coverage.best_coverage",
    ),
    Column(
        "of_answerable",
        "answered / answerable of a trial, at most 1: mean over trials; empty where nothing is answerable",
        "",
        "share",
    ),
    Column("fdr", f"{_FDR}: mean over trials", "sum of e / n", "share, in [0, 1]", "metrics.fdr"),
    Column("fdr_within_01", "1 where that mean is at most alpha + .01, else 0"),
    Column("fdr_risk", "wrong answers above the target: mean over trials", "R_T", "answers", "metrics.fdr_risk"),
    Column("risk_bound", "what R_T cannot exceed on any sequence: mean over trials", "", "answers"),
)

TABLES = {
    "trials": ("one row per learner, alpha, lambda and trial, in the order of the flags", TRIALS),
    "curves": ("one row per learner, alpha, lambda and checkpoint", CURVES),
    "asked": (
        "one row per learner, alpha, lambda and checkpoint in worlds that answer back: shares since the last one",
        ASKED,
    ),
    "traces": ("one row per trace, learner, alpha and lambda of a sweep over traces", OVER_TRACES),
}


def page() -> str:
    """``docs/tables.md``: the columns of every table, in Markdown."""
    lines = [
        "# Tables",
        "",
        "Floats are written by shortest round trip; a cell is empty where its column does not apply. Letters are",
        "the paper's: e is 1 for a wrong answer (or a rating in [0, 1]), T the number of rounds, H of thresholds.",
        "This page is made from `exaul/engine/results/columns.py`.",
    ]
    for name, (rows, columns) in TABLES.items():
        lines += ["", f"## {name}.csv", "", f"It has {rows}.", ""]
        lines += ["| column | meaning | formula | unit | computed by |", "|---|---|---|---|---|"]
        for column in columns:
            kernel = f"`kernels.{column.kernel}`" if column.kernel else ""
            lines.append(f"| `{column.name}` | {column.meaning} | {column.formula} | {column.unit} | {kernel} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
