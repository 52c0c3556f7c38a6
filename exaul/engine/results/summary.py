"""The summary of a sweep as text: its tables, what can be answered, and the backends."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from exaul.engine.checks import join_lines
from exaul.engine.logs.files import Table
from exaul.engine.logs.log import Records, describe_start
from exaul.engine.registry import FROM_LOG, LEARNERS, resolve
from exaul.engine.results.advice import FDR_TOLERANCE
from exaul.engine.results.text_table import (
    NOT_FROM_LOG,
    as_range,
    columns_of,
    describe_trials,
    format_table,
    round_up,
    with_rates,
)
from exaul.engine.results.trials import lemma_holds, risk_holds
from exaul.engine.sweep import Sweep
from exaul.kernels.metrics import FEASIBLE, answerable

KEYS = "learner", "alpha", "lambda"  # of a cell
ADVISED, UNMARKED = "* ", "  "  # before the name of the learner to use, and before the others
NONE = "none"  # if no learner is advised
ABOVE_T = "> T"  # of the bound of a regret: no regret is above T, so it says nothing
NAMED_TRACES = 8  # most traces to name (chosen)
BROKEN = "BROKEN"  # a bound that was proved
BOUNDED = "0 < regret_bound < horizon"  # the trials whose bound of the regret says something
PROVEN = "proven limit\n(any sequence)"
OVER_TRIALS = (
    "mean ±standard deviation over trials, which draw from the same records: it does not cover other questions"
)
LATEX = str.maketrans({x: rf"\{x}" for x in "_%&#${}"} | {"±": r"$\pm$", "~": r"\~{}", "^": r"\^{}"})


def shares_answerable(records: Sequence[Records], segments: int, alphas: Sequence[float]) -> dict[float, float]:
    """Return, by alpha, the largest share that a threshold answers with an FDR of at most alpha.

    It is the mean over segments, which alternate between the sources. The result is empty if it is unknown: the
    records are not available, or a segment mixes sources.
    """
    if len(records) != min(segments, 2):
        return {}
    of_segments = [records[segment % 2] for segment in range(segments)] if segments > 1 else records
    return {a: float(np.mean([answerable(x.scores, x.errors, a) for x in of_segments])) for a in alphas}


def describe_sweep(sweep: Sweep, source: Mapping[str, Any], records: Sequence[Records], is_log: bool) -> str:
    """Return one line on what was played, from an entry of ``sources`` in a manifest and its records, if known."""
    kind = "" if is_log else "synthetic profile "
    count = sum(len(r.scores) for r in records)
    rows = "" if kind or not records else f", {count:,} row{'s' * (count > 1)}"
    dropped = sum(r.dropped for r in records)
    left_out = f" ({dropped:,} without score or label left out)" if dropped else ""
    horizon, trials = source["horizon"], len(sweep.trial_numbers)
    played = f"{trials:,} trial{'s' * (trials > 1)} of {horizon:,} question{'s' * (horizon > 1)}"
    uses = ""
    if rows and sweep.environment == "stochastic":
        size = len(records[0].scores)
        times = f"{horizon / size:.3g} times" if horizon > size else "once" if horizon == size else "at most once"
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
    return join_lines(f"simulated on {manifest['device']}, {manifest['configuration']['precision']}: {backends}")


def describe_warm_start(source: Mapping[str, Any]) -> str:
    """Return a line per learner of a manifest's source that starts from a log; empty without one."""
    log_entry = source["warm_start"] or {"shares": {}}
    return "\n".join(
        f"{describe_start(log_entry, learner, by_alpha)}. All trials share this start; other rows may do worse."
        for learner, by_alpha in log_entry["shares"].items()
    )


def summarize(
    trials: Table,
    *,
    advised: Mapping[float, str] = {},
    shares: Mapping[float, float] = {},
    condition: str = "",
    width: int | None = None,
) -> str:
    """Return the tables by which a user decides: one for each alpha, with one line per learner and cell.

    Args:
        trials: as in ``trials.csv``.
        advised: the learner to mark, by alpha.
        shares: the largest share of the records that a threshold answers with an FDR of at most alpha, by alpha.
        condition: of the bounds, as ``Result.summary`` says it.
        width: of the terminal, or None for all columns.
    """
    parts, is_limited, is_starred = list[str](), bool((trials["risk_bound"] > 0).any()), False
    is_beaten = False  # what a threshold can answer
    for alpha, block in trials.groupby("alpha", sort=False):
        cells, best, rows = list(_cells(block, ("learner", "lambda"))), advised.get(alpha), []
        indent = UNMARKED if best in [cell["learner"] for cell, _ in cells] else ""
        is_starred |= bool(indent)
        for cell, cell_rows in cells:
            name, fdr, answered = cell.pop("learner"), cell_rows["fdr"].mean(), _coverage(cell_rows).mean()
            is_beaten |= fdr <= alpha and round(answered, 3) > round(shares.get(alpha, 1.0), 3)
            row = {
                f"{indent}learner": f"{ADVISED if name == best else indent}{name}",
                **cell,
                "wrong of\nthe shown": _text(fdr, "{:.2%}"),
                "answered": f"{answered:.1%}",
                "trials at or\nbelow target": f"{(~(cell_rows['fdr'] > alpha)).mean():.0%}",
            }
            is_held = risk_holds(cell_rows.dropna(subset="risk_bound")).all()
            limit = _below_1(_limit_of_fdr(cell_rows)) if is_held else BROKEN
            rows.append(row | ({PROVEN: limit} if is_limited else {}))
        target = f"at most {100 * alpha:.6g}% of the shown answers are wrong (FDR <= alpha = {alpha:g})"
        parts += [f"target: {target}", format_table(rows, width, kept=2 + ("lambda" in rows[0]))]
    start = "" if trials["warm_start"].notna().any() else NOT_FROM_LOG
    aims = "It aims at the target, so trials end a little above or below it."
    legend = [f"{ADVISED.strip()}: advised (below){start}. {aims}"] if is_starred else []
    if is_limited and PROVEN.rpartition("\n")[2] in parts[-1].partition("\n\n")[0]:  # narrow tables lack it
        asked = f"after {trials['horizon'].iloc[0]:,} questions, whatever they are and in whatever order"
        held = f"It holds for as many answers as here{condition}. No limit is certain where it is '-'."
        claimed = " Your own learner has the limit that you claim." * any(
            ":" in x for x in trials["learner"].unique()
        )
        legend.append(f"proven limit: {asked}, at most this share of the answers is wrong. {held}{claimed}")
    if "best-fixed" in set(trials["learner"]):
        legend.append("best-fixed: the threshold that has, in hindsight, the least of the paper's loss")
    where = " (alpha = {:g})" * (len(shares) > 1)
    if texts := ", ".join(f"{share:.1%}{where.format(alpha)}" for alpha, share in shares.items()):
        more = ". A learner that moves between thresholds may answer more." if is_beaten else ""
        legend.append(f"the most that a threshold at the target can answer of the records played: {texts}{more}")
    for log in trials.loc[trials["learner"] == FROM_LOG, "warm_start"].unique():
        halves = " The advice below starts from half of all rows." * is_starred
        legend.append(f"{FROM_LOG}: aci-rank, started from a log: {log}, which stand for yours.{halves}")
    return "\n\n".join([*parts, *(["\n".join(legend)] if legend else [])])


def as_latex(trials: Table, delta: float) -> str:
    """Return FDR, answers, R_T and its limit, and regret and its bound, per learner and cell as a LaTeX table.

    Each source and alpha has a block, under its name if there are several. Comments say what was played, and what
    the numbers are.
    """
    table, blocks = list[dict[str, Any]](), dict[int, str]()  # headings by the row that they precede
    for (source, alpha), block in trials.groupby(["source", "alpha"], sort=False):
        sources = [_latex(str(source))] * (trials["source"].nunique() > 1)
        blocks[len(table)] = ", ".join([*sources, rf"$\alpha = {100 * alpha:.4g}\%$"])
        for cell, rows in _cells(block, KEYS[::2]):
            name = cell["learner"].partition(", ")[0]
            is_full = name in LEARNERS and resolve("learners", name).feedback == "full"
            row = {
                "learner": cell["learner"] + " (full feedback)" * is_full,
                r"FDR [\%]": _spread(100 * rows["fdr"], ".2f") + "*" * bool(rows["fdr"].mean() > alpha),
                r"answered [\%]": _spread(100 * _coverage(rows), ".1f"),
                "$R_T$": f"{rows['fdr_risk'].mean():z.0f}",
                "its limit": _limit(rows["risk_bound"]),
                "regret": _spread(rows["regret"], "z.1f"),
                "its bound": _limit(rows["regret_bound"], rows["horizon"].iloc[0]),
            }
            table.append(cell | row)
    columns = columns_of(table)
    titles = [r"$\lambda$" if title == "lambda" else title for title in columns]
    cells = zip(*([_latex(text) for text in texts] for texts in columns.values()), strict=True)
    head, *body = (rf"{' & '.join(row)} \\" for row in (titles, *cells))
    for first, heading in reversed(blocks.items()):
        body[first:first] = [r"\midrule", rf"\multicolumn{{{len(titles)}}}{{l}}{{{heading}}} \\"]
    lines = "\n".join([r"\toprule", head, *body, r"\bottomrule"])
    lam = f"; lambda = {trials['lambda'].iloc[0]:.4g}" if trials["lambda"].nunique() == 1 else ""
    played, grids = describe_trials(trials), ", ".join(trials["grid"].unique())
    grid = f"grid: {grids}" if "thresholds (" in played else f"{as_range(trials['arms'])} thresholds ({grids})"
    meanings = [
        "R_T: wrong answers minus alpha times the answers; its limit is certain on any sequence with as many "
        "answers, the largest of the trials (--: none is)",
        f"bound of the regret: with probability {1 - delta:g} per trial (--: none is proved, > T: none below T)",
        f"+-: {OVER_TRIALS.removeprefix('mean ±')} (left out if it rounds to 0)",
        "*: the mean FDR is above alpha",
    ]
    comment = "\n".join(f"% {line}" for line in (f"{played}; {grid}{lam}", *meanings))
    return f"{comment}\n\\begin{{tabular}}{{l{'r' * (len(titles) - 1)}}}\n{lines}\n\\end{{tabular}}\n"


def _latex(text: str) -> str:
    """Return a text in LaTeX: signs become formulas; none is a dash, and a spread of 0 is left out."""
    text = re.sub(r" ±0[.0]*(?=\*?$)", "", text)
    text = re.sub(r", (eta|gamma) x ([\d.]+)(?![\w-])", r", $\\\1\\times\2$", text.translate(LATEX))
    text = re.sub(r"(?<=\d)\*$", r"\\rlap{*}", text)
    return "--" if text == "-" else re.sub(rf"^-(?=\d)|^{ABOVE_T}$", r"$\g<0>$", text)


def summarize_theory(
    trials: Table, delta: float, answerable: Mapping[float, float], width: int | None = None
) -> str:
    """Return two tables, one line per learner and cell: of regrets, R_T and Lemma 1, and of the FDR; with bounds.

    Columns without a value are left out.

    Args:
        trials: as in ``trials.csv``.
        delta: probability with which the bound of a regret may fail.
        answerable: as ``shares_answerable`` returns it.
        width: of the terminal, or None for all columns.
    """
    table, of_fdr = list[dict[str, str]](), list[dict[str, str]]()
    for cell, rows in _cells(trials):
        is_held = not rows["fdr"].mean() > cell["alpha"] + FDR_TOLERANCE
        best = answerable.get(cell["alpha"], np.nan) if is_held else np.nan
        row = {
            "regret": _spread(rows["regret"], "z.1f"),
            "regret\nat most": _limit(rows["regret_bound"], rows["horizon"].iloc[0]),
            "R_T": f"{rows['fdr_risk'].mean():z.0f}",
            "limit\nof R_T": _limit(rows["risk_bound"]),
            "R_T by\nLemma 1": _limit(rows["lemma_bound"]),
            "above\nbound": _trials_above(rows.query(BOUNDED)),
        }
        table.append(cell | row)
        row = {
            "FDR": _spread(rows["fdr"]),
            "FDR at most": _below_1(rows["fdr_bound"].fillna(_limit_of_fdr(rows)).mean(skipna=False)),
            "by the paper": _below_1(rows["fdr_bound_paper"].mean(skipna=False)),
            # at most 100% in each trial
            "of answerable": _text((_coverage(rows) / best).clip(upper=1).mean() if best > 0 else np.nan, "{:.0%}"),
        }
        of_fdr.append(cell | row)
    meanings = {
        "FDR": "share of the shown answers that are wrong (mean ±standard deviation)",
        "above\nbound": "trials with a regret above its bound (95% interval)",
        "R_T": "wrong answers above alpha, the sum of e - alpha over the answers (mean)",
        "limit\nof R_T": "what it is at most on every sequence with as many answers (largest of trials); -: none",
        "R_T by\nLemma 1": "what R_T is at most, by Lemma 1 and the regret of the trial (largest)",
        "FDR at most": f"with probability {1 - delta:g} per trial, given what was answered (R1, R4 or R5 of "
        "docs/proofs.md; mean). -: none below 100%. It is certain for best-fixed, and as the proven limit above.",
        "by the paper": "FDR at most, by the paper's theorem (eq. 6)",
        "regret": f"the paper's loss, at most 1 per round, above that of best-fixed ({OVER_TRIALS})",
        "regret\nat most": f"its bound, with probability {1 - delta:g} per trial; -: none; {ABOVE_T}: none below T",
        "of answerable": "share answered, of the most that a threshold at the target can answer (if records shift, "
        "the mean over segments). No trial counts for more than 100%. "
        f"-: unknown, or the FDR is above alpha + {FDR_TOLERANCE:g}.",
    }
    lam = "" if trials["lambda"].nunique() > 1 else f"lambda = {trials['lambda'].iloc[0]:.4g}, "
    grid = f"{as_range(trials['arms'])} thresholds of the grid {', '.join(trials['grid'].unique())}"
    parts = list[str]()
    for heading, rows in (f"regret, R_T and bounds ({lam}{grid})", table), ("FDR and its bounds", of_fdr):
        filled = [title for title in rows[0] if any(row[title] != "-" for row in rows)]
        shown = [{title: row[title] for title in filled} for row in rows]
        parts += [heading, format_table(shown, width, meanings, kept=3 + (not lam))]
    return "\n\n".join(parts)


def describe_checks(trials: Table, delta: float) -> str:
    """Return one line that says whether each proven bound held, or in how many trials of which learners not."""
    named = with_rates(trials)
    limited = named.dropna(subset=["risk_bound", "feedback_risk_bound"], how="all")
    is_above = (bounded := named.query(BOUNDED)).eval("regret > regret_bound")
    checks = {
        "Lemma 1 (which checks the arithmetic)": (named, ~lemma_holds(named)),
        "the limit of R_T": (limited, ~risk_holds(limited)),
        f"the bound of the regret (with probability {1 - delta:g}, where it is below T)": (bounded, is_above),
    }
    texts = []
    for name, (rows, is_broken) in checks.items():
        cells = rows[is_broken].groupby(["learner", "alpha"], sort=False).size().items()
        where = "; ".join(f"{learner} at alpha = {alpha:g}: {count:,}" for (learner, alpha), count in cells)
        broken = f"is {BROKEN} in {is_broken.sum():,} of {len(rows):,} ({where})"
        texts += [f"{name} {broken if where else f'held in all {len(rows):,}'}"] * (not rows.empty)
    return f"trials of all learners: {'; '.join(texts)}"


def describe_feedback_sums(trials: Table, width: int | None = None) -> str:
    """Return one line per learner and cell about imperfect feedback; empty if feedback is perfect."""
    observed = trials.dropna(subset="observed")
    if observed.empty:
        return ""
    table = [
        {
            **cell,
            "observed": f"{rows['observed'].mean():.0f}",
            "above aim": f"{rows['feedback_risk'].mean():z.0f}",
            "at most": _limit(rows["feedback_risk_bound"]),
            "FDR observed": _text(rows["fdr_observed"].mean(), "{:.4f}"),
            "aim": f"{rows['aim'].mean():.4f}",
        }
        for cell, rows in _cells(observed)
    ]
    perfect = ", ".join(trials.loc[trials["observed"].isna(), "learner"].unique())
    meanings = {
        **({"learner": f"those left out see every error at once: {perfect}"} if perfect else {}),
        "observed": "answers with feedback",
        "above aim": "errors above the aim in the feedback learned (mean)",
        "at most": "proven limit of them for any feedback",
        "FDR observed": "the FDR among them, by that feedback",
        "aim": "the FDR observed at which the FDR of all answers is alpha",
    }
    return format_table(table, width, meanings, kept=3 + ("lambda" in table[0]))


def summarize_traces(table: Table, by_lambda: bool, width: int | None = None) -> str:
    """Return the summary: one line per learner, alpha and (if ``by_lambda``) lambda, over the feasible traces."""
    keys, lines = KEYS if by_lambda else KEYS[:2], []
    for cell, all_rows in _cells(table, keys):
        rows = all_rows[~(all_rows["answerable"] < FEASIBLE)]  # also where it is unknown
        share = rows["of_answerable"]
        row = {
            "of answerable": _text(share.mean(), "{:.1%}"),
            f"FDR at most\nalpha + {FDR_TOLERANCE:g}": _text(rows["fdr_within_01"].mean(), "{:.0%}"),
            "traces": f"{len(rows)}",
            "largest\nmean R_T": _text(rows["fdr_risk"].max(), "{:z.0f}"),
            "of answerable,\n10% quantile": _text(share.quantile(0.1), "{:.1%}"),
        }
        lines.append(cell | row)
    meanings = {
        "of answerable": "share answered of the most that a threshold at the target can answer, up to 100% (mean)",
        f"FDR at most\nalpha + {FDR_TOLERANCE:g}": "on this share of the traces",
        "traces": f"those where a fixed threshold answers at least {FEASIBLE:.0%} with an FDR of at most alpha, or "
        "where this is unknown",
        "largest\nmean R_T": "of the traces; R_T is the sum of e - alpha over answers, and its mean is over trials",
        "of answerable,\n10% quantile": "over the traces",
    }
    return format_table(lines, width, meanings, kept=len(keys) + 1)


def advise_traces(table: Table) -> str:
    """Return, per alpha, on how many traces each learner is advised, and on which, if they are few."""
    lines = list[str]()
    for alpha, rows in table.drop_duplicates(["trace", "alpha"]).groupby("alpha", sort=False):
        names = {name: chosen["trace"] for name, chosen in rows.groupby("advised")}
        listed = {name: f" ({join_lines('; '.join(x))})" * (len(x) <= NAMED_TRACES) for name, x in names.items()}
        texts = "; ".join(
            f"{name}{' advised' * (name == NONE)} on {len(x)}{listed[name]}" for name, x in names.items()
        )
        lines.append(f"to use at alpha = {alpha:g}, of {len(rows)} traces: {texts}")
    return "\n".join(lines)


def _cells(table: Table, keys: Sequence[str] = KEYS) -> Iterator[tuple[dict[str, Any], Table]]:
    """Yield the values of a cell's keys (lambda only if there are several), and its rows: by alpha."""
    keys = [key for key in keys if key != "lambda" or table["lambda"].nunique() > 1]
    for _, block in with_rates(table).groupby("alpha", sort=False):
        for values, rows in block.groupby(list(keys), sort=False):
            yield dict(zip(keys, values, strict=True)), rows


def _text(value: float, form: str) -> str:
    """Return a number as text; "-" if there is none, as for the FDR without an answer."""
    return "-" if np.isnan(value) else form.format(value)


def _spread(values: Any, form: str = ".2%") -> str:
    """Return mean and standard deviation, by default of shares in percent; "-" if there is no value."""
    return _text(values.mean(), f"{{:{form}}} ±{values.std(ddof=0):{form}}")


def _limit(bounds: Any, largest: float = np.inf) -> str:
    """Return the largest bound, rounded up; "-" if a trial has none, ABOVE_T if it is above what is possible."""
    bound = np.ceil(bounds.max(skipna=False))
    return ABOVE_T if bound > largest else _text(bound, "{:.0f}")


def _limit_of_fdr(rows: Table) -> Any:
    """Return the limit of the FDR by that of R_T, if as many questions are answered as in the mean over trials."""
    return rows["alpha"].iloc[0] + rows["risk_bound"].mean(skipna=False) / (rows["answered"].mean() or np.nan)


def _below_1(bound: float) -> str:
    """Return a bound of the FDR, rounded up; "-" without one, or if it is at least 1."""
    return round_up(bound) if bound < 1 else "-"


def _coverage(rows: Table) -> Any:
    return rows["answered"] / rows["horizon"]


def _trials_above(rows: Table) -> str:
    """Return in how many trials the regret is above its bound, with an interval; "-" without trials."""
    if rows.empty:
        return "-"
    from scipy.stats import binomtest  # imported here: it takes a second and is seldom needed

    above = int(rows.eval("regret > regret_bound").sum())
    low, high = binomtest(above, len(rows)).proportion_ci()  # exact (Clopper and Pearson, 1934)
    return f"{above}/{len(rows)} ({low:.0%}-{high:.0%})"
