"""The summary of a sweep as text: its tables, and what can be answered and was simulated where."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.engine.checks import join_lines
from exaul.engine.logs.files import Table
from exaul.engine.logs.log import Records, describe_start
from exaul.engine.results.advice import FEASIBLE, NEAR
from exaul.engine.results.text_table import NOTHING, align_decimals, format_table, with_rates, wrap
from exaul.engine.results.trials import lemma_holds, risk_holds
from exaul.engine.sweep import Sweep
from exaul.kernels.metrics import Floats, best_coverage


def shares_answerable(
    records: Sequence[Records], grid: Floats, segments: int, alphas: Sequence[float]
) -> dict[float, float]:
    """Return, by alpha, the largest share that a threshold of the grid [H] answers with an FDR of at most alpha.

    It is the mean over segments, which alternate between the sources. The result is empty if it is unknown: the
    records are not available, or a segment mixes sources.
    """
    if len(records) != min(segments, 2):
        return {}
    segment_records = [records[segment % 2] for segment in range(segments)] if segments > 1 else records
    return {
        alpha: float(
            np.mean([best_coverage(grid, segment.scores, segment.errors, alpha) for segment in segment_records])
        )
        for alpha in alphas
    }


def describe_sweep(sweep: Sweep, source: Mapping[str, Any], records: Sequence[Records], is_log: bool) -> str:
    """Return in one line what was played, of an entry of ``sources`` in a manifest and its records, if known."""
    kind = "" if is_log else "synthetic profile "
    rows = "" if kind or not records else f", {sum(len(each.scores) for each in records):,} rows"
    dropped = sum(each.dropped for each in records)
    left_out = f" ({dropped:,} without score or label left out)" if dropped else ""
    horizon, trials = source["horizon"], len(sweep.trial_numbers)
    played = f"{trials:,} trial{'s' * (trials > 1)} of {horizon:,} questions"
    uses = ""
    if rows and sweep.environment == "stochastic":
        many = len(records[0].scores)
        times = f"{horizon / many:.3g} times" if horizon > many else "once" if horizon == many else "at most once"
        uses = f", each row {times}, in random order"
    where = "" if sweep.environment == "stochastic" else f", {sweep.environment}"
    return f"{kind}{source['name']}{rows}{left_out}{where}: {played}{uses}"


def describe_left_out(sweep: Sweep, left_out: int) -> str:
    """Return how many traces were too short, in brackets; empty if none."""
    records = "no record" if sweep.least == 1 else f"fewer than {sweep.least} records"
    return f" ({left_out} with {records} left out)" if left_out else ""


def describe_backends(manifest: Mapping[str, Any], learners: Sequence[Mapping[str, Any]]) -> str:
    """Return the line with device, precision, and the backend of each learner."""
    by_backend: dict[str, list[str]] = {}
    for learner in learners:
        by_backend.setdefault(learner["backend"], []).append(learner["learner"])
    backends = "; ".join(f"{', '.join(learners)} on {backend}" for backend, learners in by_backend.items())
    return join_lines(f"simulated on {manifest['device']}, {manifest['precision']}: {backends}")


def describe_warm_start(source: Mapping[str, Any]) -> str:
    """Return a line per learner and alpha that starts from a log; empty without one.

    ``source`` is an entry of ``sources`` in a manifest.
    """
    log = source["warm_start"]
    shares = {} if log is None else log["shares"]
    return "\n".join(
        describe_start(log, learner, float(alpha), share)
        for learner, by_alpha in shares.items()
        for alpha, share in by_alpha.items()
    )


Cell = tuple[str, float, float]  # learner, alpha, lambda
ADVISED, UNMARKED = "* ", "  "  # before the name of the learner to use, and before the others
NONE = "none"  # if no learner is advised
BROKEN = "BROKEN"  # a bound that was proved
LATEX = str.maketrans({x: rf"\{x}" for x in "_%&#${}"} | {"±": r"$\pm$", "~": r"\~{}", "^": r"\^{}"})


def summarize(
    trials: Table,
    *,
    advised: Mapping[float, str] = NOTHING,
    by_answers: bool = False,
    waiting: str = "",
    width: int | None = None,
) -> str:
    """Return what a user decides by: a table for each alpha, with one line per learner and cell.

    Args:
        trials: as in ``trials.csv``.
        advised: the learner to mark, by alpha.
        by_answers: whether some bound of R_T depends on the number of answers.
        waiting: the condition of the bounds if feedback is late, as ``describe_waiting`` returns it.
        width: of the terminal, or None for all columns.
    """
    parts, is_limited = list[str](), bool((trials["risk_bound"] > 0).any())
    for alpha, rows in trials.groupby("alpha", sort=False):
        cells = _by_cell(rows)
        columns = _keys(cells, [advised.get(alpha) == learner for learner, *_ in cells])
        del columns["alpha"]  # it is that of the block
        count = len(columns)
        columns |= {
            "FDR": [_percent(each["fdr"], 2) for each in cells.values()],
            "answered": [_percent(_answered(each), 1) for each in cells.values()],
            "trials at or\nbelow target": [f"{(~(each['fdr'] > alpha)).mean():.0%}" for each in cells.values()],
        }
        if is_limited:
            columns["wrong above the\ntarget, at most"] = _limits(cells, "risk_bound")
        target = f"target: at most {100 * alpha:.6g}% of the shown answers are wrong (FDR <= alpha = {alpha:g})"
        parts += [wrap(target, width), format_table(columns, width, kept=count + 1)]
    legend = f"{ADVISED.strip()}: advised (below); " if set(trials["learner"]) & set(advised.values()) else ""
    if is_limited:  # a bound of 0 belongs to learners that never answer
        few = " with as many answers as here" if by_answers else ""
        meaning = "of N shown answers, at most alpha x N and so many more are wrong, proven for every sequence"
        legend += f"-: nothing shown, or nothing proven\nwrong above the target, at most: {meaning}{few}{waiting}"
    if "best-fixed" in set(trials["learner"]):
        legend += "\nbest-fixed: the threshold of least loss in hindsight, which is not the one that answers most"
    if legend:
        parts.append(wrap(legend.removesuffix("; ").strip(), width))
    return "\n\n".join(parts)


def as_latex(trials: Table) -> str:
    """Return FDR, answers, R_T and its proven limit per learner and cell as a LaTeX table."""
    cells = _by_cell(trials)
    columns = _keys(cells) | {
        "FDR": [_spread(rows["fdr"]) for rows in cells.values()],
        "answered": [_percent(_answered(rows), 1) for rows in cells.values()],
        "$R_T$": [f"{rows['fdr_risk'].mean():z.0f}" for rows in cells.values()],
        "at most": _limits(cells, "risk_bound"),
    }
    titles = [rf"$\{title}$" if title in ("alpha", "lambda") else title for title in columns]
    minus = re.compile(r"^-(?=\d)")
    rows = (
        [minus.sub("$-$", text.translate(LATEX)) for text in row] for row in zip(*columns.values(), strict=True)
    )
    head, *body = (rf"{' & '.join(row)} \\" for row in (titles, *rows))
    lines = "\n".join([r"\toprule", head, r"\midrule", *body, r"\bottomrule"])
    return f"\\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}\n{lines}\n\\end{{tabular}}\n"


def summarize_theory(
    trials: Table, delta: float, answerable: Mapping[float, float], width: int | None = None
) -> str:
    """Return the table of FDR, R_T, regrets, bounds and Lemma 1, with one line per learner and cell.

    Args:
        trials: as in ``trials.csv``.
        delta: probability with which the bound of a regret may fail.
        answerable: as ``shares_answerable`` returns it.
        width: of the terminal, or None for all columns.
    """
    cells = _by_cell(trials)
    bounds = [_regret_bound(rows) for rows in cells.values()]
    columns = key_columns(cells) | {
        "FDR": [_spread(rows["fdr"]) for rows in cells.values()],
        "R_T": [f"{rows['fdr_risk'].mean():z.0f}" for rows in cells.values()],
        "FDR at most": [_rounded_up(rows["fdr_bound"].mean(skipna=False)) for rows in cells.values()],
        "by the paper": [_rounded_up(rows["fdr_bound_paper"].mean(skipna=False)) for rows in cells.values()],
        "regret": [f"{rows['regret'].mean():z.1f}" for rows in cells.values()],
        "Lemma 1": [_held(lemma_holds(rows)) for rows in cells.values()],
        "limit of R_T": [_held(risk_holds(rows)[_limited(rows)]) for rows in cells.values()],
        "of bound": [ratio for ratio, _ in bounds],
        "above bound": [broken for _, broken in bounds],
        "of answerable": [
            _share_of_answerable(rows, answerable.get(alpha, 0.0)) for (_, alpha, _), rows in cells.items()
        ],
    }
    meanings = {
        "FDR": "share of the shown answers that are wrong (mean ±standard deviation over trials)",
        "R_T": "wrong answers above alpha, the sum of e - alpha over the answers (mean)",
        "FDR at most": f"with probability 1 - {delta} per trial, given what was answered (R1 of docs/proofs.md)",
        "by the paper": "the same by its theorem (eq. 6)",
        "regret": "loss above that of best-fixed (mean)",
        "of bound": f"regret divided by its bound, which holds with probability 1 - {delta} per trial; -: above T",
        "above bound": "trials with a larger regret (95% interval)",
        "of answerable": "share answered, divided by the largest share that a fixed threshold answers with an FDR "
        "of at most alpha (if records shift, the mean over segments)",
    }
    return format_table(columns, width, meanings, kept=4)


def describe_checks(trials: Table, delta: float) -> str:
    """Return one line that says whether each proven bound held, or in how many trials it is broken."""
    bounded = ((trials["regret_bound"] > 0) & (trials["regret_bound"] < trials["horizon"])).to_numpy()
    checks = {
        "Lemma 1 (an identity, which checks the arithmetic)": lemma_holds(trials),
        "the limit of R_T": risk_holds(trials)[_limited(trials)],
        f"the bound of the regret, where it is below T (probability 1 - {delta})": (
            trials["regret"] <= trials["regret_bound"]
        )[bounded],
    }
    texts = [
        f"{name} held in all {len(holds):,}"
        if holds.all()
        else f"{name} is {BROKEN} in {len(holds) - holds.sum():,} of {len(holds):,}"
        for name, holds in checks.items()
        if len(holds)
    ]
    return f"trials of all learners: {', '.join(texts)}"


def describe_feedback_sums(trials: Table, width: int | None = None) -> str:
    """Return one line per learner and cell about imperfect feedback; empty if feedback is perfect."""
    observed = trials.dropna(subset="observed")
    if observed.empty:
        return ""
    cells = _by_cell(observed)
    keys = _keys(cells)
    columns = keys | {
        "observed": [f"{rows['observed'].mean():.0f}" for rows in cells.values()],
        "above aim": [f"{rows['feedback_risk'].mean():z.0f}" for rows in cells.values()],
        "at most": _limits(cells, "feedback_risk_bound"),
        "FDR observed": [
            f"{rows['fdr_observed'].mean():.4f}" if rows["fdr_observed"].notna().any() else "-"
            for rows in cells.values()
        ],
        "aim": [f"{rows['aim'].mean():.4f}" for rows in cells.values()],
    }
    meanings = {
        "observed": "answers with feedback",
        "above aim": "errors above the aim in the feedback learned (mean)",
        "at most": "proven limit of them for any feedback",
        "FDR observed": "the FDR among them, by that feedback",
        "aim": "the FDR observed at which the FDR of all answers is alpha",
    }
    return format_table(columns, width, meanings, kept=len(keys) + 1)


def summarize_traces(table: Table, by_lambda: bool, width: int | None = None) -> str:
    """Return the summary: one line per learner, alpha and (if ``by_lambda``) lambda, over the feasible traces."""
    keys = ["learner", "alpha", *(["lambda"] if by_lambda else [])]
    cells = dict(iter(with_rates(table).groupby(keys, sort=False)))
    feasible = [rows[~(rows["answerable"] < FEASIBLE)] for rows in cells.values()]  # also where it is unknown
    shares = [rows["of_answerable"] for rows in feasible]
    columns = key_columns(cells) | {
        "of answerable": [f"{share.mean():.1%}" if share.notna().any() else "-" for share in shares],
        f"FDR<=alpha+{NEAR:g}": [f"{rows['fdr_within_01'].mean():.0%}" if len(rows) else "-" for rows in feasible],
        "traces": [f"{len(rows)}" for rows in feasible],
        "largest R_T": [f"{rows['fdr_risk'].max():.0f}" if len(rows) else "-" for rows in feasible],
        "10% of answerable": [f"{share.quantile(0.1):.1%}" if share.notna().any() else "-" for share in shares],
    }
    meanings = {
        "of answerable": "share answered, divided by what the best such threshold answers (mean over traces)",
        f"FDR<=alpha+{NEAR:g}": "share of the traces",
        "traces": f"those where a fixed threshold answers at least {FEASIBLE:.0%} with an FDR of at most alpha, or "
        "where this is unknown",
        "largest R_T": "of the traces; R_T is the sum of e - alpha over answers, mean over trials",
        "10% of answerable": "its 10% quantile over the traces",
    }
    return format_table(columns, width, meanings, kept=len(keys) + 1)


def advise_traces(table: Table) -> str:
    """Return, per alpha, on how many traces each learner is advised."""
    lines = []
    for alpha, rows in table.drop_duplicates(["trace", "alpha"]).groupby("alpha", sort=False):
        counts = rows["advised"].value_counts()
        each = ", ".join(f"{name} on {count}" for name, count in counts.items())
        lines.append(f"to use at alpha = {alpha:g}: {each} of {len(rows)}")
    return "\n".join(lines)


def key_columns(cells: Iterable[Sequence[Any]], is_advised: Sequence[bool] = ()) -> dict[str, Sequence[str]]:
    """Return the columns of learner, alpha and, if the cells have it, lambda."""
    names, *numbers = zip(*cells, strict=True)
    title = "learner"
    if any(is_advised):
        names = tuple((ADVISED if x else UNMARKED) + name for name, x in zip(names, is_advised, strict=True))
        title = UNMARKED + title
    values = {name: align_decimals(each) for name, each in zip(("alpha", "lambda"), numbers, strict=False)}
    return {title: names, **values}


def _keys(cells: Iterable[Cell], is_advised: Sequence[bool] = ()) -> dict[str, Sequence[str]]:
    """Return the columns of learner, alpha and, if an alpha has several, lambda."""
    several = len({cell[1:] for cell in cells}) > len({alpha for _, alpha, _ in cells})
    return key_columns(cells if several else [cell[:2] for cell in cells], is_advised)


def _by_cell(trials: Table) -> dict[Cell, Table]:
    return dict(iter(with_rates(trials).groupby(["learner", "alpha", "lambda"], sort=False)))


def _spread(values: Any) -> str:
    """Return mean and standard deviation; "-" if there is no value, as for the FDR without an answer."""
    return f"{values.mean():.4f} ±{values.std(ddof=0):.4f}" if values.notna().any() else "-"


def _percent(shares: Any, digits: int) -> str:
    """Return the mean of shares in percent; "-" if there is none, as of wrong answers without an answer."""
    return f"{shares.mean():.{digits}%}" if shares.notna().any() else "-"


def _answered(rows: Table) -> Any:
    return rows["answered"] / rows["horizon"]


def _share_of_answerable(rows: Table, answerable: float) -> str:
    """Return the mean of answered / answerable, at most 100% per trial; "-" if nothing is answerable."""
    return f"{np.minimum(_answered(rows) / answerable, 1).mean():.0%}" if answerable > 0 else "-"


def _regret_bound(rows: Table) -> tuple[str, str]:
    """Return the mean regret as a part of its bound, and the trials above the bound; "-" without one."""
    bound = rows["regret_bound"].iloc[0]
    if np.isnan(bound) or bound == 0 or bound >= rows["horizon"].iloc[0]:  # no regret is above T
        return "-", "-"
    broken = int((rows["regret"] > bound).sum())
    low, high = binomial_interval(broken, len(rows))
    return (
        f"{rows['regret'].mean() / bound:.2f}",
        f"{broken}/{len(rows)} ({low:.0%}-{high:.0%})",
    )


def _limits(cells: Mapping[Cell, Table], bound: str) -> list[str]:
    return [_limit(rows[bound].mean(skipna=False)) for rows in cells.values()]


def _rounded_up(bound: float) -> str:
    """Return a bound of the FDR, rounded up; "-" without one, or if it says nothing."""
    return f"{math.ceil(1e4 * bound) / 1e4:.4f}" if bound < 1 else "-"


def _limit(bound: float) -> str:
    return "-" if np.isnan(bound) else f"{math.ceil(bound)}"


def _limited(trials: Table) -> NDArray[np.bool_]:
    """Return the rows whose R_T, of answers or of feedback, has a bound."""
    return (trials["risk_bound"].notna() | trials["feedback_risk_bound"].notna()).to_numpy()


def _held(holds: NDArray[np.bool_]) -> str:
    return "-" if not len(holds) else "held" if holds.all() else BROKEN


def binomial_interval(count: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a probability after ``count`` successes (Clopper and Pearson, 1934)."""
    tail = (1 - confidence) / 2
    if count in (0, trials):  # closed form: one end is 0 or 1
        apart = tail ** (1 / trials)
        return (0.0, 1 - apart) if count == 0 else (apart, 1.0)
    from scipy.special import betaincinv  # imported here: it takes half a second and is seldom needed

    return float(betaincinv(count, trials - count + 1, tail)), float(
        betaincinv(count + 1, trials - count, 1 - tail)
    )
