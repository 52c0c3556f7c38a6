"""``bounds``: measured regret, Lemma 1 and FDR against their proved bounds."""

from functools import partial
from typing import Any

import numpy as np

from exaul import Sweep
from exaul.engine import registry
from exaul.engine.logs.files import Table
from exaul.engine.results import figures, sweep_figures
from exaul.engine.results.text_table import as_range
from exaul.kernels import guarantee
from exaul.kernels.bounds import lemma_bound
from experiments.claims import LEMMA, REGRESSION, REGRET, THEORY, Cell, Claim, Measurement, Tables, regret_over_ew
from experiments.experiment import Experiment, Figures, Parts, part_of
from experiments.paper import EASY, HARD, SHIFT, EasyAndHard, Paper
from experiments.simulations import LONG_HORIZON, LONG_RUNS

TUNED = {  # found by worst-case: two for the FDR risk (exp3-ix: at T = 10,000 and H = 100), one for the regret
    "adversary-history:groups=score,knows=rates,temperature=0.022,memory=0.21,curiosity=0.0055": "against exaul",
    "adversary-history:groups=score,knows=rates,temperature=0.0057,memory=0.14,curiosity=0.0036": "against exp3-ix",
    "adversary-history:groups=score,knows=rates,temperature=0.17,memory=0.19,curiosity=0.012": "for the regret",
}
ENVIRONMENTS = {  # index of alpha, longest T, and T while the arms vary
    "stochastic": (EASY, LONG_HORIZON, 100_000),  # its longest sweep, and that of the next, other experiments share
    "single-shift": (SHIFT, LONG_HORIZON, 100_000),
    "alternating-shift": (SHIFT, 1_000_000, 100_000),
    "gradual-shift": (SHIFT, 1_000_000, 100_000),
    **dict.fromkeys((*TUNED, "always-wrong"), (HARD, 30_000, 10_000)),  # adaptive ones are slow
}
# If all answers are wrong, the regret comes nearer to its bound at larger alphas. At 0.8 no run could exceed the
# bound of R_T of exp3-ix.
ALPHAS = {"always-wrong": 0.5}
HORIZONS, ARMS = (1_000, 10_000, 30_000, 100_000, 1_000_000, LONG_HORIZON), (10, 100, 1_000, 10_000)
FIXED_ARMS = 1_000  # arms while T varies
BOUNDS = {"regret": "", "R_T": "risk_"}  # prefix of the columns of ``audit``
MAX_SIZE = 10**9  # largest rounds x arms of exp3-ix, which is slow
CASE_COLUMNS = ["environment", "learner", "horizon", "arms"]
QUARTER = "a quarter of the bounds"
# FDR_T - alpha and its bound (eq. 6) are R_T and its bound over the answers: one holds where the other does.
RISK = "We have the following FDR risk bound with probability at least 1 - delta."
MEAN = "We provide the O(sqrt(T ln |H|)) expected regret bound of ExAUL."


def _parts(paper: Paper, records: EasyAndHard) -> Parts:
    parts = []
    for name, (index, longest, fixed) in ENVIRONMENTS.items():
        alpha = ALPHAS.get(name, paper.alphas[index])
        cases = [(horizon, FIXED_ARMS) for horizon in HORIZONS if horizon <= longest]
        cases += [(fixed, arms) for arms in ARMS if arms != FIXED_ARMS]
        for horizon, arms in cases:
            learners = ("exaul", "ew", "exaul-known", *(("exp3-ix",) if horizon * arms <= MAX_SIZE else ()))
            size = {"horizon": horizon, "arms": arms, "trials": 200 if horizon <= 100_000 else 30}
            run = LONG_RUNS[0] if horizon == LONG_HORIZON else {**size, "learners": learners, "checkpoints": 20}
            parts.append(part_of(paper, records, name, alphas=(alpha,), **run))
    return parts


def audit(trials: Table, scale: float = 1.0) -> Table:
    """Return one row per learner, environment, T and H: measurements and proved bounds, times ``scale``.

    A bound is vacuous if no run of T rounds can exceed it. The regret is at most T. R_T is at most (1 - alpha)
    times the answers, which comes nearest to its bound if all rounds are answered. ``falsifiable`` and
    ``risk_falsifiable`` are the numbers of trials whose bounds of regret and R_T are not vacuous. Among these,
    ``above`` is the share with a regret above its bound, and ``tightness`` and ``risk_tightness`` are the largest
    ratios of measurement to bound; NaN if there are none.
    """
    rows = []
    for values, group in trials.groupby(CASE_COLUMNS, sort=False):
        case = dict(zip(CASE_COLUMNS, values, strict=True))
        horizon, lam, alpha = case["horizon"], group["lambda"].iloc[0], group["alpha"].iloc[0]
        regret_bound = partial(guarantee.regret, registry.load_object(registry.LEARNERS[case["learner"]]))
        bound = scale * group["regret_bound"].iloc[0]
        abstaining = regret_bound("abstaining", horizon, case["arms"], Sweep.delta, alpha, lam)
        falsifiable = group[group["regret_bound"] * scale < horizon]
        risk_falsifiable = group[scale * lemma_bound(group["horizon"], abstaining, lam) < (1 - alpha) * horizon]
        risk_bound = scale * lemma_bound(risk_falsifiable["answered"], abstaining, lam)
        rows.append(
            case
            | {
                "trials": len(group),
                "regret": group["regret"].mean(),
                "mean_bound": scale * regret_bound("best", horizon, case["arms"], 1.0, alpha, lam),
                "bound": bound,
                "falsifiable": len(falsifiable),
                "risk_falsifiable": len(risk_falsifiable),
                "above": (falsifiable["regret"] > bound).mean(),
                "tightness": (falsifiable["regret"] / bound).max(),
                "risk_tightness": (risk_falsifiable["fdr_risk"] / risk_bound).max(),
            }
        )
    return Table(rows)


def tightest(audited: Table) -> Table:
    """Return one row per learner and bound: trials that could violate it, and the environment nearest to that."""
    rows = []
    for learner, group in audited.groupby("learner", sort=False):
        for bound, prefix in BOUNDS.items():
            trials, falsifiable = group[["trials", f"{prefix}falsifiable"]].sum()
            row = {"learner": learner, "bound": bound, "trials": trials, "falsifiable": falsifiable}
            row["share"] = falsifiable / trials
            if falsifiable:
                nearest = group.loc[group[f"{prefix}tightness"].idxmax()]
                row["tightness"] = nearest[f"{prefix}tightness"]
                row |= {x: nearest[x] for x in ("environment", "horizon", "arms")}
            rows.append(row)
    return Table(rows)


def across_arms(audited: Table) -> Table:
    """Return the rows of each environment at the T at which the arms vary."""
    horizons = audited[audited["arms"] != FIXED_ARMS].groupby("environment")["horizon"].max()
    return audited[audited["horizon"] == audited["environment"].map(horizons)].sort_values("arms", kind="stable")


def exponents(audited: Table) -> Table:
    """Return least-squares exponents of the mean regret and of its bound, one row per learner and environment.

    ``in_horizon`` is the exponent of T at 1,000 arms; ``in_arms`` is the exponent of H for exp3-ix, of ln H for the
    others, at one T. Only positive means are used, at least three per fit.
    """
    rows = []
    for (environment, learner), group in audited.groupby(["environment", "learner"], sort=False):
        row: dict[str, Any] = {"environment": environment, "learner": learner}
        for axis, table in (("horizon", group[group["arms"] == FIXED_ARMS]), ("arms", across_arms(group))):
            x = np.log(table["arms"]) if axis == "arms" and learner != "exp3-ix" else table[axis]
            row |= {f"in_{axis}": _slope(x, table["regret"]), f"bound_in_{axis}": _slope(x, table["mean_bound"])}
        rows.append(row)
    return Table(rows)


def _slope(x: Any, y: Any) -> float:
    positive = (y > 0).to_numpy()
    if positive.sum() < 3:
        return np.nan
    return float(np.polyfit(np.log(x.to_numpy()[positive]), np.log(y.to_numpy()[positive]), 1)[0])


def _largest(column: str, prefix: str, cell: Cell) -> Measurement:
    """Return the largest value of a column, and the trials whose bound a run could exceed."""
    rows = cell.rows()
    count = f"{rows[f'{prefix}falsifiable'].sum():,} of {rows['trials'].sum():,}"
    return float(rows[column].fillna(0).max()), {"many": count}


def _mean_bound_ratio(cell: Cell) -> float:
    bounded = cell.rows().query("mean_bound < horizon")
    return float((bounded["regret"] / bounded["mean_bound"]).max()) if len(bounded) else 0.0


def _exponent(column: str, cell: Cell) -> Measurement:
    """Return the largest exponent over environments, and why the regret grows that fast."""
    rows, arms = cell.rows(), "H" if cell.values["learner"] == "exp3-ix" else "ln H"
    why = "nothing is proved against the best arm at these rates"
    if not rows["mean_bound"].isna().all():
        ratio = (rows["regret"] / rows["mean_bound"]).groupby(rows["horizon"]).max()
        shares = ", ".join(f"{ratio[T]:.3f} of it at T = {T:,}" for T in (ratio.index[0], ratio.index[-1]))
        why = f"the regret is still far below its bound: at most {shares}"
    return cell.rows("exponents")[column].max(), {"arms": arms, "why": why}


FALSIFIABLE = "in the {many} trials whose bound a run could exceed"
CLAIMS = {
    f"{{learner}}: share of trials with a regret above its bound, largest of all cases, {FALSIFIABLE}": Claim(
        partial(_largest, "above", ""), "<=", Sweep.delta, "learner", REGRET, table="audit"
    ),
    f"{{learner}}: largest R_T over the bound of the theorem on the FDR risk, {FALSIFIABLE}": Claim(
        partial(_largest, "risk_tightness", "risk_"), "<=", 1, "learner", RISK, table="audit"
    ),
    "{learner}: largest mean regret over its bound in expectation, of bounds below T": Claim(
        _mean_bound_ratio, "<=", 1, "learner", MEAN, table="audit"
    ),
    "{learner}: largest exponent of the mean regret in T over environments (1/2 in the bound)": Claim(
        partial(_exponent, "in_horizon"), "<=", 0.5, "learner", MEAN, table="audit"
    ),
    "{learner}: largest exponent of it in {arms} (1/2 in the bound)": Claim(
        partial(_exponent, "in_arms"), "<=", 0.5, "learner", MEAN, table="audit"
    ),
    "mean regret of exaul, which sees only its own answers, over that of ew, T = {T}": Claim(
        regret_over_ew, "<=", 4.5, "environment", kind=REGRESSION, where={"arms": FIXED_ARMS}, table="audit"
    ),
    LEMMA: THEORY[LEMMA],
}


def _figures(tables: Tables) -> Figures:
    titles = {name: f"adversary tuned {purpose}" for name, purpose in TUNED.items()}
    audited = tables["audit"].replace({"environment": titles})
    drawn = dict[str, figures.Figure]()
    for swept, rows in ("horizon", audited[audited["arms"] == FIXED_ARMS]), ("arms", across_arms(audited)):
        figure = drawn[f"regret-by-{swept}"] = sweep_figures.against(
            rows, swept, "regret", ["environment"], "mean_bound"
        )
        of_rounds = f"{as_range(rows['horizon'])} rounds, with {as_range(rows['arms'])} thresholds"
        figures.add_note(figure, f"{as_range(rows['trials'])} trials of {of_rounds}.")
        limits = rows[swept].min() / 1.5, rows[swept].max() * 1.5  # the same in all panels
        for axes in figure.axes:
            axes.set_xlim(limits)
    longest = audited[audited["arms"] == FIXED_ARMS].groupby("learner", sort=False)["horizon"].max()
    ends = ", ".join(f"{name}: {end:,}" for name, end in longest.items() if end < longest.max())
    note = "A line ends at the longest T that was played" + f" ({ends})" * bool(ends)
    figures.add_note(drawn["regret-by-horizon"], f"{note}.")
    return drawn


def derive(tables: Tables, scale: float = 1.0) -> dict[str, Table]:
    """Return the audit and the tables from it; an impostor has bounds smaller than the proved ones."""
    audited = audit(tables["trials"], scale)
    return {"tightest": tightest(audited), "exponents": exponents(audited), "audit": audited}


bounds = Experiment(
    "Mean regret against T at 1,000 arms and against H at one T, by environment, with the theorems' bounds.",
    _parts,
    _figures,
    CLAIMS,
    derive,
    {QUARTER: partial(derive, scale=0.25)},
)
