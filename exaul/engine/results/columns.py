"""Describe every column of every table. ``docs/tables.md`` is made from this.

``python -m exaul.engine.results.columns`` prints the page.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Column(NamedTuple):
    """A column of a table."""

    name: str
    meaning: str
    formula: str = ""  # in the paper's notation
    unit: str = ""
    kernel: str = ""  # the function of ``exaul.kernels`` that computes it


class Summary(NamedTuple):
    """A quantity over time. A table has its mean and quantiles over trials: ``NAME_mean``, ``NAME_q05``..."""

    name: str
    meaning: str
    formula: str = ""
    unit: str = ""
    kernel: str = ""

    @property
    def columns(self) -> list[Column]:
        """Return its four columns."""
        kinds = {"mean": "mean over trials", "q05": "5% quantile", "q50": "median", "q95": "95% quantile"}
        return [
            Column(f"{self.name}_{kind}", f"{self.meaning}: {text}", self.formula, self.unit, self.kernel)
            for kind, text in kinds.items()
        ]


Described = tuple[Column | Summary, ...]

_CELL = (
    Column("learner", "name of the learner"),
    Column("environment", "name of the environment, and its parameters if set"),
    Column("source", "logs (name and selection) or profiles, in their order"),
    Column("alpha", "target FDR", "", "share, in (0, 1)"),
    Column("lambda", "weight of the FDR against abstaining", "", ">= 0"),
)
_FDR = "share of answers that are wrong; alpha if there are none"

TRIALS: Described = (
    *_CELL,
    Column("trial", "number of the trial, from 0"),
    Column("horizon", "rounds of the trial", "T"),
    Column("arms", "thresholds of the grid", "H"),
    Column("grid", "name of the grid"),
    Column("eta", "learning rate at T", "eta_T"),
    Column("gamma", "implicit exploration at T", "gamma_T"),
    Column("answered", "answered rounds", "n"),
    Column("fdr", _FDR, "sum of e / n", "share", "metrics.fdr"),
    Column("inefficiency", "share of rounds with an abstention", "(T - n) / T", "share", "metrics.inefficiency"),
    Column("fdr_risk", "wrong answers above the target", "R_T = sum of (e - alpha)", "answers", "metrics.fdr_risk"),
    Column("loss", "cumulative loss", "sum of (a + lambda d) / (1 + lambda)", "loss", "metrics.loss"),
    Column(
        "best_loss",
        "smallest cumulative loss of a threshold",
        "min_k L_T(k)",
        "loss",
        "backends.native.find_best_arms",
    ),
    Column(
        "best_threshold", "this threshold, the lowest if tied", "tau_k", "score", "backends.native.find_best_arms"
    ),
    Column("regret", "loss above that of this threshold (`best-fixed`)", "loss - best_loss", "loss"),
    Column(
        "regret_bound",
        "bound of the regret that holds with probability 1 - delta; 0 for `best-fixed`; empty if nothing is proved",
        "R2, R3 or R6 of the proofs",
        "loss",
        "regret_bounds.implicit_exploration_best",
    ),
    Column(
        "lemma_bound",
        "bound of R_T at this regret (Lemma 1)",
        "(n + (1 + lambda) regret) / lambda",
        "answers",
        "bounds.lemma_bound",
    ),
    Column(
        "fdr_bound",
        "bound of the FDR that holds with probability 1 - delta, from the bound B of the regret against always "
        "abstaining",
        "alpha + (n + (1 + lambda) B) / (lambda n)",
        "share",
        "bounds.fdr_bound",
    ),
    Column(
        "risk_bound",
        "bound of R_T on any sequence (`aci-rank`: with as many answers; late feedback: while as few wait); "
        "empty if nothing is proved",
        "",
        "answers",
    ),
    Column(
        "observed",
        "answers whose feedback has arrived; this and the next four are empty if feedback is perfect",
    ),
    Column("fdr_observed", "mean error in the observed feedback; empty if none is observed", "", "share"),
    Column("aim", "target of `fdr_observed`: alpha, corrected for bias and flips", "", "share", "feedback.aim"),
    Column(
        "feedback_risk",
        "errors above the aim, in the feedback learned",
        "sum of (error - aim)",
        "answers",
        "metrics.fdr_risk",
    ),
    Column("feedback_risk_bound", "bound of `feedback_risk` for any feedback; empty if nothing is proved"),
    Column("regret_bound_paper", "`regret_bound` by the paper's theorem", "", "loss"),
    Column("fdr_bound_paper", "bound of the FDR from `regret_bound_paper` (eq. 6)", "", "share"),
    Column("step", "step of `aci-rank`", "", "share"),
    Column("warm_start", "name of the log from which learners start, or fraction of the records; empty without"),
)

CURVES: Described = (
    *_CELL,
    Column("t", "checkpoint", "", "rounds"),
    Summary("fdr", _FDR, "sum of e / n_t", "share", "metrics.fdr"),
    Summary("inefficiency", "share of rounds with an abstention", "(t - n_t) / t", "share", "metrics.inefficiency"),
    Summary("regret_per_round", "regret divided by t", "(L_t - min_k L_t(k)) / t", "loss per round"),
    Summary("fdr_risk", "wrong answers above the target", "R_t", "answers", "metrics.fdr_risk"),
    Column("risk_bound", "bound of R_t, mean over trials", "", "answers"),
    Column(
        "rise",
        "largest rise of R between two checkpoints up to t, over all trials",
        "max (R_b - R_a), a <= b <= t",
        "answers",
        "metrics.rise",
    ),
)

ASKED: Described = (
    *_CELL,
    Column("t", "checkpoint", "", "rounds"),
    Summary("hard", "questions with a wrong answer", "", "share"),
    Summary("overconfident", "questions with a wrong answer and a cut at or above the pool's mean", "", "share"),
    Summary("underconfident", "questions with a right answer and a cut below the pool's mean", "", "share"),
)

ADVICE: Described = (
    Column("source", "log (name and selection) or profile"),
    _CELL[3],
    Column("learner", "`aci-rank`, or `threshold of the log`: the lowest one that holds alpha on the half it sees"),
    Column("records", "records of the source"),
    Column("answerable", "largest share that a threshold answers with an FDR of at most alpha", "", "share"),
    Column("answered", "share that it answered of the half that it played, mean over random halves", "", "share"),
    Column("answered_q05", "5% quantile of `answered`", "", "share"),
    Column("answered_q95", "95% quantile of `answered`", "", "share"),
    Column("answered_in_order", "share that it answered of the second half, from the first", "", "share"),
    Column("fdr", "FDR of these answers, mean over random halves; empty if there are none", "", "share"),
    Column("fdr_q05", "5% quantile of `fdr`", "", "share"),
    Column("fdr_q95", "95% quantile of `fdr`", "", "share"),
    Column("fdr_in_order", "FDR on the second half, from the first", "", "share"),
    Column("fdr_most", "the larger of `fdr_q95` and `fdr_in_order`", "", "share"),
    Column("risk_bound", "bound of R_T on any sequence, started from all records, without A / 200", "", "answers"),
    Column("least_alpha", "least alpha, in hundredths, at which a threshold answers 5%", "", "share"),
    Column("advised", "1 if `answerable` is at least 5% and `fdr_most` at most alpha + 0.01 and 1.5 alpha, else 0"),
    Column("caution", "what makes the advice less sure; empty if nothing was found"),
)

OVER_TRACES: Described = (
    Column("trace", "log, values and score column of the trace; of a pair, both"),
    Column("records", "records of the trace or pair"),
    Column("error_rate", "share of wrong answers if all are answered", "", "share"),
    _CELL[0],
    *_CELL[3:],
    Column("horizon", "rounds of a trial", "T"),
    Column("trials", "number of trials"),
    Column("answered", "share of rounds that were answered, mean over trials", "n / T", "share"),
    Column(
        "answerable",
        "largest share that a fixed threshold answers with an FDR of at most alpha; of a pair, the mean, or empty",
        "",
        "share",
        "coverage.best_coverage",
    ),
    Column(
        "of_answerable",
        "answered / answerable, at most 1, mean over trials; empty if answerable is 0",
        "",
        "share",
    ),
    Column("fdr", f"{_FDR}; mean over trials", "sum of e / n", "share", "metrics.fdr"),
    Column("fdr_within_01", "1 if `fdr` is at most alpha + 0.01, else 0"),
    Column("fdr_risk", "wrong answers above the target, mean over trials", "R_T", "answers", "metrics.fdr_risk"),
    Column("risk_bound", "bound of R_T, mean over trials", "", "answers"),
    Column("advised", "learner to use on this trace at this alpha, or `none`"),
)

DESCRIBED: dict[str, tuple[str, Described]] = {
    "trials": ("learner, alpha, lambda and trial, in the order of the flags", TRIALS),
    "curves": ("learner, alpha, lambda and checkpoint; values are up to that checkpoint", CURVES),
    "asked": (
        "learner, alpha, lambda and checkpoint of an adaptive environment; shares count from the last checkpoint",
        ASKED,
    ),
    "advice": ("source, alpha and way to answer", ADVICE),
    "traces": ("trace, learner, alpha and lambda of a sweep over traces", OVER_TRACES),
}


def columns_of(described: Described) -> tuple[Column, ...]:
    """Return the columns of a table in their order; a summary has four."""
    each = (entry.columns if isinstance(entry, Summary) else [entry] for entry in described)
    return tuple(column for columns in each for column in columns)


TABLES = {name: (rows, columns_of(described)) for name, (rows, described) in DESCRIBED.items()}


HEADER = """\
# Tables

You can look up every column that a sweep writes. For example, to print the mean FDR of each learner:

```sh
uv run exaul sweep --out results
uv run python -c "import pandas as p; print(p.read_csv('results/trials.csv').groupby('learner').fdr.mean())"
```

- An empty cell means that the column does not apply. Floats are exact.
- Per round, e is the error of an answer (1 if wrong, or a rating in [0, 1]), a is 1 for an abstention, and d is e
  for an answer and alpha for an abstention. Other letters are the paper's.
- `NAME_*` stands for `NAME_mean` and the quantiles `NAME_q05`, `NAME_q50`, `NAME_q95`, over trials.
- Square brackets hold the unit, the formula, and the function in `exaul.kernels`.
- `exaul/engine/results/columns.py` makes this page.

## Columns of several tables
"""


def page() -> str:
    """Return ``docs/tables.md``: the columns of every table, in Markdown."""
    lines = [HEADER, *_lines(_CELL)]
    for name, (rows, described) in DESCRIBED.items():
        shared = [entry for entry in described if entry in _CELL]
        first = (
            "the columns above" if len(shared) == len(_CELL) else ", ".join(f"`{column.name}`" for column in shared)
        )
        lines += ["", f"## {name}.csv", "", f"One row per {rows}. It also has {first}.", ""]
        lines += _lines(entry for entry in described if entry not in _CELL)
    return "\n".join(lines) + "\n"


def _lines(described: Iterable[Column | Summary]) -> list[str]:
    """Return a list in Markdown, one line for each description."""
    lines = []
    for entry in described:
        name = f"{entry.name}_*" if isinstance(entry, Summary) else entry.name
        details = "; ".join(filter(None, (entry.unit, entry.formula, entry.kernel and f"`{entry.kernel}`")))
        lines.append(f"- `{name}`: {entry.meaning}" + (f" [{details}]" if details else ""))
    return lines


if __name__ == "__main__":
    print(page(), end="")
