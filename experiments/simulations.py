"""The paper's simulation figures: their sweeps, figures and claims."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from exaul.engine.logs.files import Table
from exaul.engine.logs.log import Records
from exaul.engine.results import figures, sweep_figures
from exaul.engine.results.text_table import describe_trials, plain, rounded, with_answered
from exaul.kernels.metrics import Floats
from experiments.claims import (
    ABSTAINS_AS_EW,
    CHECK,
    MARGINAL,
    NEAR_BEST,
    NEEDS_LONGER,
    REGRESSION,
    THEORY,
    Cell,
    Claim,
    Measurement,
    Tables,
    WithWords,
    alpha_of,
    explain_fdr,
    extreme,
    fdr_claims,
    mean_of,
    regret_over_ew,
    rows_where,
)
from experiments.experiment import Experiment, Figures, Parts, count_segments, load_environment, part_of
from experiments.paper import EASY, HARD, HORIZON, PAPER_LEARNERS, SHIFT, EasyAndHard, Paper

AGREEMENT = 0.92, 0.60  # probability that a sample agrees with a right answer, with a wrong one
FACTORS = 0.5, 1.0, 1.5, 2.0, 3.0  # times the alpha of the other figures
ALPHA_SWEEPS: dict[str, Any] = {"factors": FACTORS, "trials": 30, "learners": PAPER_LEARNERS}
LAMBDAS = tuple(float(HORIZON) ** power for power in (0.0, 0.25, 0.5, 0.75, 1.0))
SHIFTS = {  # descriptions
    "single-shift": "One source for the first half of the rounds, then the other.",
    "alternating-shift": "Ten segments that alternate between the two sources.",
    "gradual-shift": "Round t comes from the second source with probability t / T.",
}
LONG_HORIZON = 3_000_000
LONG_RUNS: tuple[dict[str, Any], ...] = (
    {"horizon": LONG_HORIZON, "trials": 30, "learners": ("exaul", "ew")},
    {"horizon": LONG_HORIZON, "trials": 5, "learners": ("exp3-ix",)},
)
AGAINST_USERS: dict[str, Any] = {"horizon": 15_000, "learners": PAPER_LEARNERS}  # who react
RANDOM_OR_SHIFT = {"stochastic": (EASY, HARD), "single-shift": (SHIFT,)}  # environments, with their alphas
EARLY_T = 300  # first rounds against an adversary
CHANCE = 0.05  # probability of as many hard questions by chance
# Sentences of the paper.
UPPER_BOUND = "As it exploits full feedback, we use it as our empirical performance upper bound."
ALONG = "Converged FDRs mostly go along with target risk alpha (i.e. violin plots are below of the diagonal line)."
MEANINGFUL = "The FDRs of conformal abstainers should be lower than Err_T to be meaningful in controlling the FDRs."
LARGER = (
    "A larger lambda typically leads to more conservative behavior and faster convergence of the FDR constraint, "
    "at the cost of increased inefficiency."
)
CHOSEN = "In our experiments, we set lambda = T^1/2, matching the rate achieved by standard bandit regret bounds."
SHARP = (
    "Exp3-IX-CA exhibits a sharp increase in FDR immediately after the shift, whereas ExAUL maintains FDR control."
)
LESS = (
    "The same upper bound as EW with full feedback, whereas Exp3-IX suffers from an additional factor of sqrt(|H|)."
)
RISES = "Similar to FDR, regret also shows a increase when a distribution shift occurs."
LONG = "Exp3-IX-CA requires a long horizon T to achieve reliable FDR_t control."
CONSISTENTLY = "ExAUL consistently controls the FDR towards alpha, despite the instability of FDR_t."
ROBUST = "ExAUL demonstrates robust FDR control even against a strategy-aware adversary."
FIRST = (
    "At the very first stage, the adversary attempts to maximize the risk by exclusively presenting difficult "
    "questions."
)
LATER = (
    "In the later stages, the adversary adapts by mixing incorrect (hard but overconfident) and correct (easy but "
    "under-confident) questions."
)


def sweeps_over(
    *indices: int,
    environment: str = "stochastic",
    factors: Sequence[float] = (),
    runs: Sequence[Mapping[str, Any]] = ({},),
    **fields: Any,
) -> Callable[[Paper, EasyAndHard], Parts]:
    """Return the parts of an experiment: ``runs`` with these fields at each of these alphas, or at their multiples.

    One source is that of the alpha. Two are the easy one and the hard one; under a shift, also in the other order.
    """

    def parts(paper: Paper, records: EasyAndHard) -> Parts:
        sweeps = []
        for index in indices:
            alpha, is_one = paper.alphas[index], load_environment(environment).pool_count == 1
            alphas = tuple(float(f"{alpha * x:.6g}") for x in factors if alpha * x < 1) or (alpha,)
            orders: list[Sequence[Records]] = [records[index:] if is_one else records]
            orders += [records[::-1]] if environment in SHIFTS else []
            for order in orders:
                sweeps += [part_of(paper, order, environment, alphas=alphas, **fields, **run) for run in runs]
        return sweeps

    return parts


def two_scores(paper: Paper, records: EasyAndHard) -> Parts:
    """Return the hard questions with their own score, and with another one."""
    (first,) = sweeps_over(HARD)(paper, records)
    return [first, first._replace(records=(paper.other_records() or by_consistency(records[HARD]),))]


def by_consistency(records: Records) -> Records:
    """Return the records with a new score: the share of five simulated samples that agree."""
    agreement = np.where(records.errors > 0.5, AGREEMENT[1], AGREEMENT[0])
    scores = np.random.default_rng(0).binomial(5, agreement) / 5
    return records._replace(name=f"{records.name} (simulated consistency)", scores=scores, sha256=None)


def _draw(tables: Tables) -> Figures:
    """Draw the figures of a sweep, and what an adaptive environment asked."""
    segments = count_segments(tables["trials"]["environment"].iloc[0])
    asked = {"asked": sweep_figures.asked_figure(tables["asked"])} if "asked" in tables else {}
    return sweep_figures.draw(tables["trials"], tables["curves"], segments) | asked


def _draw_alphas(tables: Tables) -> Figures:
    trials = tables["trials"]
    return figures.with_trials({"fdr-by-alpha": sweep_figures.against(trials, "alpha", "fdr")}, trials)


def _draw_lambdas(tables: Tables) -> Figures:
    curves = with_answered(rows_where(tables["curves"], {"learner": "exaul"}))
    return {
        "fdr": sweep_figures.over_time(curves, "fdr", figures.FDR, lines="lambda"),
        "answered": sweep_figures.over_time(curves, "answered", figures.ANSWERED, lines="lambda"),
    }


def _draw_long(tables: Tables) -> Figures:
    segments = count_segments(tables["trials"]["environment"].iloc[0])
    figure, trials = sweep_figures.over_time(tables["curves"], "fdr", figures.FDR, segments), tables["trials"]
    for axes in figure.axes:
        if axes.get_xscale() == "log":  # ticks also at both ends
            first, last = axes.get_xlim()
            decades = 10.0 ** np.arange(np.ceil(np.log10(2 * first)), np.log10(last / 2))
            axes.set_xticks(ticks := [first, *decades, last], map(rounded, ticks))
    counts = trials.groupby("learner", sort=False)["trial"].nunique()
    fewer = ", ".join(f"{name}: {count} trials" for name, count in counts.items() if count < counts.max())
    figures.add_note(figure, f"{plain(describe_trials(trials))}{f' ({fewer})' * bool(fewer)}.")
    return {"fdr": figure}


def _draw_regret(tables: Tables) -> Figures:
    curves = rows_where(tables["curves"], {"learner": ("exaul", "exp3-ix", "ew")})
    return {
        str(name): sweep_figures.over_time(rows, "regret_per_round", "regret per round", count_segments(str(name)))
        for name, rows in curves.groupby("environment", sort=False)
    }


def _above_alpha(cell: Cell) -> WithWords:
    return cell.mean("fdr") - alpha_of(cell), {"why": f"at alpha = {alpha_of(cell):g}: {explain_fdr(cell)}"}


def _of_alpha(cell: Cell) -> WithWords:
    return cell.mean("fdr") / alpha_of(cell), {"why": f"at alpha = {alpha_of(cell):g}: {MARGINAL}"}


def _of_error_rate(cell: Cell) -> WithWords:
    """Return the FDR over Err_T, the FDR of a learner that never abstains, in the trials of ``exaul``.

    The error rate must come from the same trials, since an impostor has fewer of them.
    """
    base = cell.mean("fdr", "no-abstention", trial=tuple(cell.rows(learner="exaul")["trial"]))
    return cell.mean("fdr") / base, {"base": f"{base:.3f}"}


def _smallest_rise(cell: Cell) -> float:
    fdrs = {alpha: cell.mean("fdr", alpha=alpha) for alpha in sorted(cell.rows()["alpha"].unique())}
    return min((high - low) / (b - a) for (a, low), (b, high) in pairwise(fdrs.items()))


def _largest_step(column: str, sign: int, cell: Cell) -> float:
    """Return the largest step of a mean from one lambda to the next: up if the sign is 1, down if it is -1."""
    return max(sign * (b - a) for a, b in pairwise(cell.mean(column, **{"lambda": x}) for x in LAMBDAS))


def _curve(curves: Table, curve: str) -> tuple[Floats, Floats]:
    """Return shares of the horizon, from 0, and the mean of a curve there."""
    t, values = curves["t"].to_numpy(), curves[f"{curve}_mean"].to_numpy()
    return np.concatenate([[0.0], t / t.max()]), np.concatenate([values[:1], values])


def change_in_segment(curves: Table, segments: int) -> float:
    """Return the mean over segments of the second source of the mean FDR at their end minus that at their start.

    ``curves`` has one learner on one source. A gradual shift has no segments: T is compared with T / 10.
    """
    t, fdr = _curve(curves, "fdr")
    starts = np.arange(1, segments, 2) / segments if segments > 1 else np.array([0.1])
    ends = starts + 1 / segments if segments > 1 else np.array([1.0])
    return float(np.mean(np.interp(ends, t, fdr) - np.interp(starts, t, fdr)))


def growth(curves: Table, segments: int) -> float:
    """Return the growth of the mean regret per round after a shift to the second source minus that before it.

    ``curves`` has one learner on one source. A window is half a segment; for a gradual shift, half of the rounds.
    """
    t, regret = _curve(curves, "regret_per_round")
    regret = regret * t  # in units of T
    shifts = np.arange(1, segments, 2) / segments if segments > 1 else np.array([0.5])
    window = 0.5 / segments
    start, middle, end = (np.interp(shifts + x, t, regret) for x in (-window, 0.0, window))
    return float(np.mean(end - 2 * middle + start) / window)


def _rise_after_shift(learner: str, cell: Cell) -> float:
    """Return the rise of the mean FDR of a learner after a shift from the first source."""
    curves = cell.rows(learner=learner)
    curves = curves[curves["source"] == curves["source"].iloc[0]]
    return change_in_segment(curves, count_segments(curves["environment"].iloc[0]))


def first_settled(curves: Table) -> float:
    """Return the first checkpoint of a curve from which the mean FDR stays at most alpha; inf if there is none."""
    above = np.flatnonzero(curves["fdr_mean"].to_numpy() > curves["alpha"].to_numpy())
    first = 0 if not len(above) else above[-1] + 1
    return float(curves["t"].iloc[first]) if first < len(curves) else np.inf


def _settling_round(learner: str, cell: Cell) -> float:
    return first_settled(cell.rows(learner=learner))


def _final_fdr(learner: str, cell: Cell) -> float:
    return float(cell.rows(learner=learner)["fdr_mean"].iloc[-1])


def _exp3_settling_round(cell: Cell) -> Measurement:
    why = f"at T its mean FDR is {_final_fdr('exp3-ix', cell):.4g}, that of exaul {_final_fdr('exaul', cell):.4g}"
    return _settling_round("exp3-ix", cell), {"why": why}


def _settling_ratio(cell: Cell) -> float:
    return _settling_round("exaul", cell) / min(_settling_round("exp3-ix", cell), cell.rows()["t"].max())


def _early_mean(column: str, cell: Cell) -> float:
    return float(cell.rows()[cell.rows()["t"] <= EARLY_T][column].mean())


def _chance_share(cell: Cell) -> float:
    """Return the share of hard questions that a draw by chance exceeds with probability ``CHANCE``."""
    sources = cell.rows("coverage").drop_duplicates("source")
    noise = np.sqrt(np.log(1 / CHANCE) / (2 * EARLY_T * len(cell.rows("trials"))))  # Hoeffding's inequality
    return float(np.average(sources["error_rate"], weights=sources["records"]) + noise)


def _more_underconfident(cell: Cell) -> float:
    rows = cell.rows().iloc[-len(cell.rows()) // 10 :]
    return float(rows["underconfident_mean"].mean()) - _early_mean("underconfident_mean", cell)


AT_ONE, AT_ROOT = {"lambda": LAMBDAS[0]}, {"lambda": LAMBDAS[2]}
EXAUL_ROWS = {"learner": "exaul"}
BOTH_CLAIMS = {
    **fdr_claims(learners=("exaul", "ew")),
    **NEAR_BEST,
    "no-abstention has an FDR above alpha, so abstaining is needed": Claim(
        mean_of("fdr", "no-abstention"), ">", alpha_of, kind=CHECK
    ),
    "ew, which sees every label, has at most the mean loss of exaul": Claim(
        mean_of("loss", "ew"), "<=", mean_of("loss"), "", UPPER_BOUND, CHECK
    ),
}
SHIFT_CLAIMS = {
    **fdr_claims(),
    "after a shift to harder questions the mean FDR of exp3-ix rises more than that of exaul": Claim(
        partial(_rise_after_shift, "exp3-ix"), ">", partial(_rise_after_shift, "exaul"), "", SHARP, table="curves"
    ),
}
ALPHA_CLAIMS = {
    "exaul stays below the diagonal: largest mean FDR - alpha": Claim(
        extreme(max, _above_alpha), "<=", 0, "source", ALONG
    ),
    # the paper has no number for "go along with"; four fifths is our reading (it fails)
    "exaul: its mean FDR follows alpha and is at least four fifths of it: smallest mean FDR / alpha": Claim(
        extreme(min, _of_alpha), ">=", 0.8, "source", ALONG
    ),
    "exaul: a larger alpha gives a larger mean FDR: smallest rise per unit of alpha": Claim(
        _smallest_rise, ">", 0, "source", ALONG
    ),
    "exaul stays below the error rate Err_T = {base} at every alpha: largest mean FDR / Err_T": Claim(
        extreme(max, _of_error_rate), "<", 1, "source", MEANINGFUL
    ),
    **ABSTAINS_AS_EW,
    **THEORY,
}
NO_EFFECT = "beyond sqrt(T) lambda has almost no effect"
LAMBDA_CLAIMS = {
    "a larger lambda decreases the mean FDR at T: largest step up": Claim(
        partial(_largest_step, "fdr", 1), "<", 0, "source", LARGER, why=NO_EFFECT
    ),
    "a larger lambda increases the mean inefficiency: largest step down": Claim(
        partial(_largest_step, "inefficiency", -1), "<", 0, "source", LARGER, why=NO_EFFECT
    ),
    "with lambda = 1 the mean FDR at T is above alpha": Claim(
        mean_of("fdr", **AT_ONE), ">", alpha_of, "source alpha", LARGER
    ),
    "exaul: mean FDR at T with lambda = sqrt(T) is at most half of that with lambda = 1": Claim(
        mean_of("fdr", **AT_ROOT), "<=", lambda cell: cell.mean("fdr", **AT_ONE) / 2, "source", kind=REGRESSION
    ),
    "exaul: mean inefficiency with lambda = sqrt(T) is at least 0.2 above that with lambda = 1": Claim(
        mean_of("inefficiency", **AT_ROOT),
        ">=",
        lambda cell: cell.mean("inefficiency", **AT_ONE) + 0.2,
        "source",
        kind=REGRESSION,
    ),
    "with lambda = sqrt(T) the mean FDR at T is at most alpha": Claim(
        mean_of("fdr", **AT_ROOT), "<=", alpha_of, "source alpha", CHOSEN
    ),
    **{sentence: claim._replace(where=AT_ROOT) for sentence, claim in ABSTAINS_AS_EW.items()},
    **THEORY,
}
LONG_CLAIMS = {
    "exp3-ix: round from which the mean FDR stays at most alpha, by T": Claim(
        _exp3_settling_round, "<=", lambda cell: int(cell.rows()["t"].max()), "source", LONG, CHECK, table="curves"
    ),
    f"exp3-ix needs longer than the T = {HORIZON:,} of the other figures": Claim(
        partial(_settling_round, "exp3-ix"), ">", HORIZON, "source", LONG, CHECK, table="curves"
    ),
    "exaul: that round is earlier than for exp3-ix (or than T): ratio of the rounds": Claim(
        _settling_ratio, "<", 1, "source", NEEDS_LONGER, table="curves"
    ),
    "exaul: that round, as a share of that of exp3-ix (or of T)": Claim(
        _settling_ratio, "<=", 0.2, "source", kind=REGRESSION, table="curves"
    ),
    "the mean FDR of exaul at T is at most that of exp3-ix": Claim(
        partial(_final_fdr, "exaul"), "<=", partial(_final_fdr, "exp3-ix"), "source", NEEDS_LONGER, table="curves"
    ),
    **ABSTAINS_AS_EW,
    **THEORY,
}
REGRET_CLAIMS = {
    "exaul has less mean regret at T than exp3-ix": Claim(
        mean_of("regret"), "<", mean_of("regret", "exp3-ix"), "environment", LESS
    ),
    "regret of exaul, which sees only its own answers, over that of ew: {exaul}, {ew}": Claim(
        regret_over_ew, "<=", 3, "environment", kind=REGRESSION
    ),
    "{learner}: the regret rises faster when questions become harder: growth per round, after - before": Claim(
        lambda cell: growth(cell.rows("curves"), count_segments(cell.values["environment"])),
        ">",
        0,
        "learner environment",
        RISES,
        where={"learner": ("exaul", "ew", "exp3-ix")},
        why="it grows less on hard questions: earlier learning stays valid, or errors are seen sooner",
    ),
    **{sentence: claim._replace(columns="source environment") for sentence, claim in ABSTAINS_AS_EW.items()},
    **THEORY,
}
ADVERSARY_CLAIMS = {
    **fdr_claims(ROBUST),
    f"at first the adversary asks exaul more hard questions than chance: their share up to round {EARLY_T}": Claim(
        partial(_early_mean, "hard_mean"), ">", _chance_share, "", FIRST, where=EXAUL_ROWS, table="asked"
    ),
    "later it adds right answers with low scores: their share in the last tenth minus that at first": Claim(
        _more_underconfident, ">", 0.0, "", LATER, where=EXAUL_ROWS, table="asked"
    ),
}

STOCHASTIC = "All learners on records in random order: exaul reaches alpha within the horizon, exp3-ix does not."
easy = Experiment(STOCHASTIC, sweeps_over(EASY), _draw, BOTH_CLAIMS)
hard = Experiment(STOCHASTIC, sweeps_over(HARD), _draw, BOTH_CLAIMS)
scores = Experiment(
    "A likelihood with many values against self-consistency with six levels, where few thresholds differ. The "
    "samples are simulated: each agrees with a right answer with probability 0.92, with a wrong one 0.60. "
    "--other-score uses a column of the log instead.",
    two_scores,
    _draw,
    fdr_claims() | NEAR_BEST,
)
single, alternating, gradual = (
    Experiment(description, sweeps_over(SHIFT, environment=environment), _draw, SHIFT_CLAIMS)
    for environment, description in SHIFTS.items()
)
ALPHA = "FDR at T for several alphas, beside the diagonal and the error rate of a learner that never abstains."
alpha_stochastic, alpha_shift = (
    Experiment(ALPHA, sweeps_over(*indices, environment=name, **ALPHA_SWEEPS), _draw_alphas, ALPHA_CLAIMS)
    for name, indices in RANDOM_OR_SHIFT.items()
)
weight = Experiment(
    "exaul with lambda = T^d for d in 0, 1/4, 1/2 (the paper's choice), 3/4 and 1.",
    sweeps_over(EASY, HARD, trials=30, learners=("exaul", "ew"), lambdas=LAMBDAS),
    _draw_lambdas,
    LAMBDA_CLAIMS,
)
SETTLES = "Logarithmic rounds. A claim below states from which round the mean FDR stays at most alpha."
long_stochastic, long_shift = (
    Experiment(SETTLES, sweeps_over(*indices, environment=name, runs=LONG_RUNS), _draw_long, LONG_CLAIMS)
    for name, indices in RANDOM_OR_SHIFT.items()
)
regret = Experiment(
    "Loss minus that of the best threshold so far, per round; easy questions first.",
    lambda paper, records: [part_of(paper, records, name, alphas=(paper.alphas[SHIFT],)) for name in SHIFTS],
    _draw_regret,
    REGRET_CLAIMS,
)
adversary = Experiment(
    "A bandit adversary instead of the paper's language model. It sees its questions, the decisions and the "
    "errors, but no score. It starts without preference, learns which log pays (wrong answers shown, right ones "
    "withheld), and asks from it.",
    sweeps_over(HARD, environment="adversary-history", **AGAINST_USERS),
    _draw,
    ADVERSARY_CLAIMS,
)
interactive = Experiment(
    "A simulation instead of the paper's dialogues: up to ten questions on a topic, then another of 20,962 topics, "
    "each with its own error rate and calibration. Half of the questions without an answer, and half of those with "
    "a wrong one, are asked again in other words.",
    sweeps_over(SHIFT, environment="interactive", **AGAINST_USERS),
    _draw,
    fdr_claims(CONSISTENTLY),
)
