"""Find columns whose values differ, such as models or datasets that a log mixes, and test such differences."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine.data import tables
from exaul.engine.data.layout import Layout
from exaul.engine.data.logs import is_missing, parse_log
from exaul.engine.data.records import Records
from exaul.kernels.coverage import best_coverage, every_threshold, risk_coverage
from exaul.kernels.metrics import Floats

MOST = 50  # distinct values; a column with more is not tested
LEAST = 30  # rows of a value; rarer values are ignored
APART = 0.05  # smallest difference of two shares that is reported
CHANCE = 1e-6  # largest p-value; tiny, because every column of every log is tested
MANY = 2**62  # more values than a log has rows
QUESTIONS = (
    "question",
    "question_id",
    "qid",
    "doc_id",
    "id",
)  # columns that name a question, the first that exists


class Categories(NamedTuple):
    """The columns of a log that separate its rows, and the one that names their questions."""

    columns: dict[str, tables.CategoryColumn]  # those with at most MOST values
    question: str | None  # name of the column of QUESTIONS
    questions: NDArray[np.intp] | None  # number of each row's question; -1 if the cell is null


class OwnThreshold(NamedTuple):
    """What a value of a column answers with a threshold of its own."""

    alpha: float
    value: str
    share: float  # of the value's records, answered at alpha with the best threshold for them alone
    shared: float  # of the same records, answered with the best threshold for the whole log


class PooledColumn(NamedTuple):
    """A column whose values differ."""

    column: str
    values: int  # number of values with at least LEAST rows
    lowest: float  # lowest error rate of a value
    highest: float
    gain: OwnThreshold | None  # the largest, if a value answers APART more with its own threshold


class Answered(NamedTuple):
    """What the thresholds of ``deciles`` answer in each group: [groups, thresholds], from the lowest threshold."""

    answered: Floats  # number of records
    wrong: Floats  # sum of their errors
    high: Floats  # number of those with an error above the mean of all; for labels of 0 and 1, the wrong ones


def categories(log: str, columns: Layout) -> Categories:
    """Return the columns that may separate the rows of a log.

    Left out are scores, labels, selected columns, and columns that do not fit in memory.
    """
    path, selection = parse_log(log)
    known = {columns.score, columns.error, columns.correct, "error", "correct", *selection}
    names = [name for name in tables.columns(path) if name not in known and not name.startswith("score")]
    question = next((name for name in QUESTIONS if name in names), None)
    named = [] if question is None else [question]
    several = tables.levels(path, [name for name in names if name not in named], MOST) if names else {}
    numbers = [column.places for column in tables.levels(path, named, MANY).values()] if named else []
    return Categories(several, question, numbers[0] if numbers else None)


def pooled(
    columns: dict[str, tables.CategoryColumn], records: Records, rows: NDArray[np.intp], alphas: Sequence[float]
) -> list[PooledColumn]:
    """Return the columns whose values differ, the largest difference first.

    They differ if the error rates of two values are APART, or if for some value and alpha, a threshold of its own
    answers APART more of its records than that of the whole log. Tested is the error rate of a value, or its FDR
    at that threshold, against all other values. Fractional numbers and copies of the label are left out.

    Args:
        columns: of the log, by name.
        records: of the log, N.
        rows: [N] their positions in the file.
        alphas: target FDRs.
    """
    differing = []
    scores, errors = records.scores, records.errors
    shared = {alpha: lowest_threshold(scores, errors, alpha) for alpha in alphas}
    for name, (values, places) in columns.items():
        codes = places[rows]
        numbers = np.bincount(codes + 1, minlength=len(values) + 1)[1:]
        kept = [code for code, value in enumerate(values) if numbers[code] >= LEAST and not is_missing(value)]
        chosen = np.isin(codes, kept)
        groups = np.searchsorted(kept, codes[chosen])
        if len(kept) < 2 or _measures(values):
            continue
        sums = answered_by(groups, len(kept), scores[chosen], errors[chosen])
        rates = sums.wrong[:, 0] / sums.answered[:, 0]
        if {0.0, 1.0}.issuperset(rates):  # the column is a copy of the label
            continue
        gain = _gain([values[code] for code in kept], groups, records, chosen, sums, shared)
        differs = np.ptp(rates) >= APART and len(kept) * min(chances(sums, 0)) < CHANCE
        if differs or gain is not None:
            differing.append(PooledColumn(name, len(kept), float(rates.min()), float(rates.max()), gain))
    return sorted(differing, key=lambda column: -_difference(column))


def _difference(column: PooledColumn) -> float:
    return max(column.highest - column.lowest, column.gain.share - column.gain.shared if column.gain else 0.0)


def _gain(
    values: Sequence[Any],
    groups: NDArray[np.intp],
    records: Records,
    chosen: NDArray[np.bool_],
    sums: Answered,
    shared: dict[float, float],
) -> OwnThreshold | None:
    """Return the largest gain of a value from a threshold of its own, of those that no chance explains."""
    scores, errors = records.scores[chosen], records.errors[chosen]
    gains = []
    for alpha, threshold in shared.items():
        for group, value in enumerate(values):
            below = np.flatnonzero(sums.wrong[group] <= alpha * sums.answered[group])
            members = scores[groups == group]
            common = float((members >= threshold).mean())
            if not len(below) or sums.answered[group, below[0]] / len(members) < common + APART:
                continue
            if sums.answered.size * chances(sums, below[0])[group] < CHANCE:
                share = best_coverage(every_threshold(members), members, errors[groups == group], alpha)
                gains.append(OwnThreshold(alpha, str(value), share, common))
    return max(gains, key=lambda gain: gain.share - gain.shared, default=None)


def lowest_threshold(scores: Floats, errors: Floats, alpha: float) -> float:
    """Return the lowest threshold with an FDR of at most alpha on records [N]; infinity if there is none."""
    grid = every_threshold(scores)
    (reached,) = np.nonzero(risk_coverage(grid, scores, errors)[1] <= alpha)
    return float(grid[reached[0]]) if len(reached) else np.inf


def deciles(scores: Floats) -> Floats:
    """Return the thresholds that are tested: the scores [N] at 0%, 10%, ... 90%, without repetitions."""
    return np.unique(np.quantile(scores, np.arange(10) / 10, method="higher"))


def answered_by(groups: NDArray[np.intp], count: int, scores: Floats, errors: Floats) -> Answered:
    """Return what ``deciles(scores)`` answer in each of ``count`` groups, numbered for each record [N]."""
    thresholds = deciles(scores)
    cells = groups * len(thresholds) + np.searchsorted(thresholds, scores, side="right") - 1
    shape = count, len(thresholds)

    def sums(weights: Floats | NDArray[np.bool_]) -> Floats:
        each = np.bincount(cells, weights, count * len(thresholds)).reshape(shape)
        return each[:, ::-1].cumsum(axis=1)[:, ::-1]

    return Answered(sums(np.ones_like(errors)), sums(errors), sums(errors > errors.mean()))


def chances(sums: Answered, threshold: int) -> Floats:
    """Return the p-value of ``chance`` for each group against all others, among what a threshold answers."""
    answered, high = sums.answered[:, threshold], sums.high[:, threshold]
    return chance(high, answered, high.sum(), answered.sum())


def chance(high: Any, count: Any, all_high: float, every: float) -> Any:
    """Return the p-value of Fisher's exact test: twice the smaller tail of the hypergeometric distribution.

    If ``count`` records were drawn from ``every``, of which ``all_high`` are high, as many or as few as ``high`` of
    them would be. Exact for any order and any number of records, so a level of 1e-6 is one.
    """
    from scipy.stats import hypergeom  # imported here: it takes a second, and only ``inspect`` needs it

    law = hypergeom(every, all_high, count)
    return np.minimum(1.0, 2 * np.minimum(law.cdf(high), law.sf(high - 1)))


def _measures(values: Sequence[Any]) -> bool:
    """Return whether some value is fractional: the column then holds amounts, not names."""
    try:
        return any(float(value) % 1 != 0 for value in values if not is_missing(value))
    except (TypeError, ValueError, OverflowError):
        return False
