"""Find defects of a log that change what a sweep over it means, and columns whose values differ."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine.checks import as_typed, join_lines, shorten
from exaul.engine.logs import files
from exaul.engine.logs.log import Layout, Records, is_missing, parse_log
from exaul.kernels import metrics
from exaul.kernels.game import ARMS, GRIDS
from exaul.kernels.metrics import Floats, answerable

MOST_VALUES = 200  # distinct values; a column with more is not tested (these numbers are chosen)
LEAST_ROWS = 30  # rows of a value; rarer values are ignored
LEAST_GAP = 0.05  # smallest difference of two shares that is reported
LEAST_GAIN = 0.005  # a share of the rows; a grid that loses less is not worth a sentence
MAX_P = 1e-6  # largest p-value; tiny, because every column of every log is tested
UNLIMITED = 2**62  # more values than a log has rows
QUESTION_COLUMNS = "question", "question_id", "qid", "doc_id", "id"  # may name a question; the first present does
NAMED_COLUMNS = 4  # most columns to name in the finding about pools
TENTHS = 10
TOP_SHARES = 0.1, 0.05, 0.02, 0.01  # of the records with the highest scores; each is compared with the next
LEAST_SHARE = 0.01  # smallest share of rows that is reported: repeated questions, ties at the top
MAX_EXCESS = 1.5  # largest FDR of tied top scores that is "just above" alpha, as a multiple of alpha
MAX_TIE = 10  # largest number of rows with one score that may be repetitions

WORDS = {  # the most important first
    "inverted": "right answers score below wrong ones",
    "coarse": "the score has at most two values",
    "top": "the highest scores are wrong more often than the next",
    "pools": "values of a column differ in error rate or in what a threshold answers",
    "drift": "the error rate, or the FDR of a threshold, changes over the log",
    "ties": "records tie at the top score, with an FDR just above alpha",
    "repeats": "questions repeat",
}


class Categories(NamedTuple):
    """The columns of a log that separate its rows, and the one that names their questions."""

    columns: dict[str, files.CategoryColumn]  # those with at most MOST_VALUES values
    question: str | None  # name of the column, one of QUESTION_COLUMNS
    questions: NDArray[np.intp] | None  # number of each row's question; -1 if the cell is null


class DifferingColumn(NamedTuple):
    """A column whose values differ."""

    name: str
    difference: float  # the largest between two values: of error rates, or of what two thresholds answer of one
    text: str  # the values, their error rates, and the largest gain from a threshold of a value's own


class GroupSums(NamedTuple):
    """What the thresholds of ``deciles`` answer in each group: [groups, thresholds], from the lowest threshold."""

    answered: Floats  # number of records
    wrong: Floats  # sum of their errors
    high: Floats  # number of those with an error above the mean of all; for labels of 0 and 1, the wrong ones


def categories(log: str, layout: Layout) -> Categories:
    """Return the columns that may separate the rows of a log.

    Left out are scores, labels, selected columns, columns that do not fit in memory, and all after the first 1,000.
    """
    path, selection = parse_log(log)
    excluded = {layout.score, layout.error, layout.correct, "error", "correct", *selection}
    names = [name for name in files.columns(path) if name not in excluded and not name.startswith("score")]
    question_names = [name for name in QUESTION_COLUMNS if name in names][:1]
    candidates = [name for name in names if name not in question_names][: files.WIDE_HEADER]
    limits = dict.fromkeys(candidates, MOST_VALUES) | dict.fromkeys(question_names, UNLIMITED)
    columns = files.category_columns(path, limits)
    questions = [columns.pop(name).codes for name in question_names if name in columns]
    return Categories(columns, next(iter(question_names), None), next(iter(questions), None))


def differing_columns(
    columns: dict[str, files.CategoryColumn], records: Records, rows: NDArray[np.intp], alphas: Sequence[float]
) -> list[DifferingColumn]:
    """Return the columns whose values differ, the largest difference first.

    They differ if the error rates of two values are LEAST_GAP apart, or if for some value and alpha, a threshold of
    its own answers LEAST_GAP more of its records than that of the whole log. A test compares the error rate of a
    value, or its FDR at that threshold, with all others. Fractional numbers and copies of the label are left out.

    Args:
        columns: of the log, by name.
        records: of the log, N.
        rows: [N] their positions in the file.
        alphas: target FDRs.
    """
    differing = []
    scores, errors = records.scores, records.errors
    shared = {alpha: metrics.lowest_threshold(scores, errors, alpha) for alpha in alphas}
    for name, (values, all_codes) in columns.items():
        codes = all_codes[rows]
        numbers = np.bincount(codes + 1, minlength=len(values) + 1)[1:]
        large = [code for code, value in enumerate(values) if numbers[code] >= LEAST_ROWS and not is_missing(value)]
        chosen = np.isin(codes, large)
        groups = np.searchsorted(large, codes[chosen])
        if len(large) < 2 or _has_fractions(values):
            continue
        sums = sum_groups(groups, len(large), scores[chosen], errors[chosen])
        rates = sums.wrong[:, 0] / sums.answered[:, 0]
        if {0.0, 1.0}.issuperset(rates):  # the column is a copy of the label
            continue
        names, members = [values[code] for code in large], records.take(chosen)
        gain, gain_text = _largest_gain(names, groups, members, sums, shared)
        differs = np.ptp(rates) >= LEAST_GAP and len(large) * min(group_p_values(sums, 0)) < MAX_P
        if differs or gain:
            text = f"{len(large)} values of {name} (error rate {rates.min():.3f} to {rates.max():.3f}{gain_text})"
            differing.append(DifferingColumn(name, max(np.ptp(rates), gain), text))
    return sorted(differing, key=lambda column: column.difference, reverse=True)


def _largest_gain(
    values: Sequence[Any],
    groups: NDArray[np.intp],
    records: Records,
    sums: GroupSums,
    shared: Mapping[float, float],
) -> tuple[float, str]:
    """Return the largest gain of a value from a threshold of its own that chance does not explain, and its text."""
    gains = [(0.0, "")]
    for alpha, threshold in shared.items():
        for group, value in enumerate(values):
            below = np.flatnonzero(sums.wrong[group] <= alpha * sums.answered[group])
            members = records.take(groups == group)
            common = float((members.scores >= threshold).mean())
            if not len(below) or sums.answered[group, below[0]] / len(members.scores) < common + LEAST_GAP:
                continue
            if sums.answered.size * group_p_values(sums, below[0])[group] < MAX_P:
                share = answerable(members.scores, members.errors, alpha)
                part_share = f"a threshold for {shorten(str(value))} alone answers {share:.1%} of it"
                log_share = f"that for the whole log {common:.1%} of it"
                gains.append((share - common, f"; at alpha = {alpha:g}, {part_share}, {log_share}"))
    return max(gains, key=lambda gain: gain[0])


def deciles(scores: Floats) -> Floats:
    """Return the thresholds that are tested: the scores [N] at 0%, 10%, ... 90%, without repetitions."""
    return np.unique(np.quantile(scores, np.arange(10) / 10, method="higher"))


def sum_groups(groups: NDArray[np.intp], count: int, scores: Floats, errors: Floats) -> GroupSums:
    """Return what ``deciles(scores)`` answer in each of ``count`` groups, by the group [N] of each record."""
    thresholds = deciles(scores)
    cells = groups * len(thresholds) + np.searchsorted(thresholds, scores, side="right") - 1
    shape = count, len(thresholds)

    def sums(weights: Floats | NDArray[np.bool_]) -> Floats:
        by_cell = np.bincount(cells, weights, count * len(thresholds)).reshape(shape)
        return by_cell[:, ::-1].cumsum(axis=1)[:, ::-1]

    return GroupSums(sums(np.ones_like(errors)), sums(errors), sums(errors > errors.mean()))


def group_p_values(sums: GroupSums, threshold: int) -> Floats:
    """Return the p-value of each group against all others, among the records that a threshold answers."""
    answered, high = sums.answered[:, threshold], sums.high[:, threshold]
    return p_value_of(high, answered, high.sum(), answered.sum())


_log_factorial = np.vectorize(lambda x: math.lgamma(x + 1), otypes=[float])


def _log_choose(n: Any, k: Any) -> Any:
    return _log_factorial(n) - _log_factorial(k) - _log_factorial(n - k)


def _tail(log_first: Any, ratio: Any) -> Any:
    """Bound a sum whose terms fall ever faster by a geometric series; at 1e-5 it is at most 5% too large.

    It avoids the import of scipy, which takes longer than everything else in this module.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(ratio < 1, np.exp(log_first) / (1 - ratio), 1.0)


def p_value_of(high: Any, count: Any, all_high: Any, total: Any) -> Any:
    """Return a p-value of Fisher's exact test: twice the smaller tail of the hypergeometric distribution, or more.

    It is the probability that of ``count`` records, drawn from ``total`` of which ``all_high`` are high, as many or
    as few as ``high`` are high. It holds for any order and number of records, even at a level of 1e-6.
    """
    low, high_left = count - high, all_high - high
    low_left = total - count - high_left
    log_first = _log_choose(count, high) + _log_choose(total - count, high_left) - _log_choose(total, all_high)
    upper_tail = _tail(log_first, low * high_left / ((high + 1) * (low_left + 1)))
    lower_tail = _tail(log_first, high * low_left / ((low + 1) * (high_left + 1)))
    return np.minimum(1.0, 2 * np.minimum(upper_tail, lower_tail))


def _has_fractions(values: Sequence[Any]) -> bool:
    """Return whether some value is fractional: the column then holds amounts, not names."""
    try:
        return any(float(value) % 1 != 0 for value in values if not is_missing(value))
    except (TypeError, ValueError, OverflowError):
        return False


class Finding(NamedTuple):
    """A defect of a log."""

    word: str  # one of WORDS
    text: str  # one line: what was found, what it means and what to do
    command: str  # to which the end of the text leads; empty if there is none


def diagnose(
    argv: Sequence[str], categories: Categories, records: Records, rows: NDArray[np.intp], alphas: Sequence[float]
) -> list[Finding]:
    """Return the defects of a log, the most important first.

    Args:
        argv: ``PATH[:COL=VALUE,...]`` and flags that name its columns, for the commands in the findings.
        categories: of the log.
        records: of the log, N >= 0.
        rows: [N] their positions in the file.
        alphas: target FDRs.
    """
    scores, errors = records.scores, records.errors
    if not len(scores):
        return []
    differing, drift = differing_columns(categories.columns, records, rows, alphas), find_drift(scores, errors)
    inverted, coarse = _inverted(scores, errors), _coarse(scores)  # these explain wrong tops and ties
    texts = (
        inverted,
        coarse,
        None if inverted or coarse else _top(scores, errors, alphas),
        _pools(differing),
        drift and f"{drift}; a random order hides this; run it in its own order with:",
        None if coarse else _ties(scores, errors, alphas),
        _named_repeats(categories, rows) or _repeated_scores(scores, errors),
    )
    targets = () if "--alphas" in argv else ("--alphas", "0.05")
    commands = {
        "pools": as_typed("inspect", *argv, "--each", *(column.name for column in differing[:NAMED_COLUMNS])),
        "drift": as_typed("sweep", "--logs", *argv, *targets, "--environment", "replay", "--warm-start", "0.5"),
    }
    return [
        Finding(word, join_lines(text), join_lines(commands.get(word, "")))
        for word, text in zip(WORDS, texts, strict=True)
        if text
    ]


def _inverted(scores: Floats, errors: Floats) -> str | None:
    """Report that right answers score below wrong ones more often than above: the test of Mann and Whitney."""
    high = errors > errors.mean()
    wrong, right = int(high.sum()), int((~high).sum())
    if not wrong or not right:
        return None
    above = metrics.separation(scores, high.astype(np.float64))
    noise = math.sqrt((wrong + right + 1) / (12 * wrong * right))  # less if scores tie
    if above > 0.5 - LEAST_GAP or math.erfc((0.5 - above) / noise / math.sqrt(2)) >= MAX_P:
        return None
    return (
        f"the score is inverted: a right answer scores above a wrong one with probability {above:.2f}, where "
        "chance is 0.50. Is it an uncertainty? Then use 1 - score. Or are the labels inverted? --correct names a "
        "column where 1 is right, --error one where 1 is wrong"
    )


def _coarse(scores: Floats) -> str | None:
    """Report a score with at most two values, with which a threshold can do little."""
    values = np.unique(scores)
    if len(values) > 2 or len(scores) < LEAST_ROWS:
        return None
    texts = [f"{value:.10g}" for value in values]
    top_part = f"those with {texts[-1]}, " if len(texts) > 1 else ""
    return (
        f"the score has only the value{'s' * (len(texts) > 1)} {' and '.join(texts)}: a threshold answers all "
        f"records, {top_part}or nothing; a confidence with more values lets a learner choose"
    )


def _top(scores: Floats, errors: Floats, alphas: Sequence[float]) -> str | None:
    """Report that the highest scores are wrong more often than the next, of which there are twice as many."""
    ordered, high = np.sort(scores)[::-1], errors > errors.mean()
    worst = None
    for share in TOP_SHARES:
        lowest = np.quantile(scores, 1 - share, method="higher")
        top = scores >= lowest
        count = int(top.sum())
        lower = (scores >= ordered[min(3 * count, len(scores)) - 1]) & ~top
        if count < LEAST_ROWS or not lower.any():
            continue
        difference, compared = errors[top].mean() - errors[lower].mean(), top | lower
        if difference < max(LEAST_GAP, worst[0] if worst else 0):
            continue
        if len(TOP_SHARES) * p_value_of(high[top].sum(), count, high[compared].sum(), compared.sum()) < MAX_P:
            worst = difference, lowest, top, lower
    if worst is None:
        return None
    _, lowest, top, lower = worst
    shares = [(answerable(scores[~top], errors[~top], x), answerable(scores, errors, x), x) for x in alphas]
    without, share, alpha = max(shares, key=lambda x: x[0] - x[1])
    gain = f"; without them, {without:.1%} would be answerable at alpha = {alpha:g}, now {share:.1%}"
    return (
        f"the top scores are wrong more often than the next: of the {top.sum()} records that score at least "
        f"{lowest:.6g}, {errors[top].mean():.1%} are wrong, of the next {lower.sum()} {errors[lower].mean():.1%}; "
        f"every threshold below answers them too{gain if without > share else ''}; look at these rows (refusals? "
        "unread replies?), or choose another --score"
    )


def _pools(differing: Sequence[DifferingColumn]) -> str | None:
    """Report the columns whose values differ."""
    if not differing:
        return None
    texts = [column.text for column in differing[:NAMED_COLUMNS]]
    texts += [f"those of {len(differing) - NAMED_COLUMNS} more columns"] if len(differing) > NAMED_COLUMNS else []
    return f"this log pools {', '.join(texts)}: what holds for all may fail for a part; look at each with:"


def least_alpha(source: Records) -> float:
    """Return the least alpha, in thousandths, at which a threshold answers a share FEASIBLE of a source."""
    coverage, risk = metrics.risk_coverage(metrics.every_threshold(source.scores), source.scores, source.errors)
    return math.ceil(1000 * risk[coverage >= metrics.FEASIBLE].min(initial=1.0)) / 1000


def find_drift(scores: Floats, errors: Floats) -> str | None:
    """Report that a threshold's FDR in a tenth of the log, or in its first 2 to 8, differs from that elsewhere."""
    parts = np.eye(TENTHS)
    parts = np.vstack([parts, *(parts[:count].sum(0, keepdims=True) for count in range(2, TENTHS - 1))])
    sums = sum_groups(np.arange(len(scores)) * TENTHS // len(scores), TENTHS, scores, errors)
    part_sums = [parts @ x for x in sums]
    all_sums = [x.sum(axis=0) for x in sums]
    with np.errstate(invalid="ignore", divide="ignore"):
        rates = part_sums[1] / part_sums[0]
        outside = (all_sums[1] - part_sums[1]) / (all_sums[0] - part_sums[0])
    distances = np.nan_to_num(np.abs(rates - outside))  # NaN where a part or all others have no answers
    p_values = p_value_of(part_sums[2], part_sums[0], all_sums[2], all_sums[0])
    reported = (distances >= LEAST_GAP) & (p_values * distances.size < MAX_P)
    if not reported.any():
        return None
    level = int(reported.any(axis=0).argmax())  # the error rate of all records first
    part = int(np.where(reported[:, level], distances[:, level], 0).argmax())
    scope = f" of those that score at least {deciles(scores)[level]:.6g}," if level else ""
    span = f"in tenth {part + 1} of the log" if part < TENTHS else f"in its first {part - TENTHS + 2} tenths"
    return f"the log drifts:{scope} {rates[part, level]:.1%} are wrong {span}, {outside[part, level]:.1%} elsewhere"


def _ties(scores: Floats, errors: Floats, alphas: Sequence[float]) -> str | None:
    """Report that no threshold reaches an alpha because records tie at the top, with an FDR just above it."""
    top = scores == scores.max()
    _, fdrs = metrics.risk_coverage(metrics.every_threshold(scores), scores, errors)
    rate, lowest = float(errors[top].mean()), np.nanmin(fdrs)
    missed = [x for x in alphas if x < lowest <= rate <= MAX_EXCESS * x]
    if not missed or top.sum() < LEAST_ROWS or top.mean() < LEAST_SHARE:
        return None
    feasible = math.ceil(1000 * lowest) / 1000
    return (
        f"ties at the top are just above alpha = {missed[-1]:g}: {top.sum()} records ({top.mean():.1%}) share "
        f"the score {scores.max():g} and {rate:.1%} of them are wrong; a threshold answers all of them or nothing; "
        f"--alphas {feasible:g}, the edge of these rows, answers {answerable(scores, errors, feasible):.1%}, and "
        "other rows may need more; or use a finer --score"
    )


def _named_repeats(categories: Categories, rows: NDArray[np.intp]) -> str | None:
    """Report rows with the same question and the same values of all other columns of few values."""
    if categories.questions is None:
        return None
    named = rows[categories.questions[rows] >= 0]
    keys = np.column_stack([categories.questions, *(x.codes for x in categories.columns.values())])[named]
    distinct = len(np.unique(keys, axis=0))
    if len(named) - distinct < LEAST_SHARE * len(rows) or len(named) == distinct:
        return None
    return (
        f"questions repeat: {len(named)} rows ask {distinct} questions (column {categories.question}, equal in the "
        f"other columns of few values), so results look surer than they are; keep one row per question"
    )


def _repeated_scores(scores: Floats, errors: Floats) -> str | None:
    """Report rows that look like repetitions: with one score they also have one label, unlike neighbouring scores.

    Two records of a score that at most MAX_TIE share are compared with each other, and the first with one of the
    next score. If labels depend on the score only, and little on so small a step, either comparison may be the one
    that agrees: a sign test. Every second score is used, so the comparisons share no record.
    """
    _, count = np.unique(scores, return_counts=True)
    starts = np.cumsum(count) - count
    tied = np.arange(0, len(count) - 1, 2)
    tied = tied[(count[tied] >= 2) & (count[tied] <= MAX_TIE)]
    if not len(tied):
        return None
    ordered = errors[np.argsort(scores, kind="stable")]
    first, second, near = (ordered[starts[tied] + step] for step in (0, 1, count[tied]))
    tied_agree, near_agree = first == second, first == near
    tied_only, near_only = int(np.sum(tied_agree & ~near_agree)), int(np.sum(~tied_agree & near_agree))
    decided = tied_only + near_only
    # the sign test: the tail of a fair binomial distribution
    if _tail(_log_choose(decided, tied_only) - decided * math.log(2), near_only / (tied_only + 1)) >= MAX_P:
        return None
    return (
        f"questions seem to repeat: {tied_agree.mean():.1%} of {len(tied)} pairs of rows with one score have "
        f"one label, {near_agree.mean():.1%} of pairs with neighbouring scores; if so, results look surer than "
        "they are; keep one row per question"
    )


def recommend_grid(records: Records, shares: Mapping[float, float]) -> str:
    """Return a sentence with the flag with which a sweep answers more than by default; empty if there is none.

    ``shares`` are what all thresholds can answer of the records, by alpha (``answerable``).
    """
    scores, errors = records.scores, records.errors
    if not len(scores):
        return ""
    grid = GRIDS["uniform"](ARMS, scores)
    by_default = {alpha: metrics.best_coverage(grid, scores, errors, alpha) for alpha in shares}
    losing = [alpha for alpha, share in by_default.items() if shares[alpha] - share >= LEAST_GAIN]
    if not losing:
        return ""
    best_shares = ", ".join(f"{by_default[alpha]:.1%} at alpha = {alpha:g}" for alpha in losing)
    return (
        f"the evenly spaced thresholds, which a sweep takes by default, answer at best {best_shares}: "
        "add --warm-start 0.5, which takes the scores of a log as thresholds"
    )
