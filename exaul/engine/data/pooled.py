"""Find columns whose values have different error rates, such as models or datasets that a log mixes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine.data import tables
from exaul.engine.data.layout import Layout
from exaul.engine.data.logs import is_missing, parse_log
from exaul.kernels.metrics import Floats

MOST = 50  # distinct values; a column with more is not tested
LEAST = 30  # rows of a value; rarer values are ignored
APART = 0.05  # smallest difference between the highest and the lowest error rate that is reported
CHANCE = 1e-6  # largest p-value; tiny, because every column of every log is tested


class PooledColumn(NamedTuple):
    """A column whose values have different error rates."""

    column: str
    values: int  # number of values with at least LEAST rows
    lowest: float  # lowest error rate of a value
    highest: float


def pooled(log: str, columns: Layout, errors: Floats, rows: NDArray[np.intp]) -> list[PooledColumn]:
    """Return the columns whose values have different error rates, the largest difference first.

    Skipped are scores, labels, selected columns, fractional numbers, copies of the label, and columns that do not
    fit in memory. ``errors`` [N] are those of the records of ``log``, ``rows`` [N] their positions in the file.
    """
    path, selection = parse_log(log)
    known = {columns.score, columns.error, columns.correct, "error", "correct", *selection}
    names = [name for name in tables.columns(path) if name not in known and not name.startswith("score")]
    levels, differing = tables.levels(path, names, MOST) if names else {}, []
    for name, (values, places) in levels.items():
        groups = [errors[places[rows] == code] for code, value in enumerate(values) if not is_missing(value)]
        groups = [group for group in groups if len(group) >= LEAST]
        rates = [float(group.mean()) for group in groups]
        # rates of only 0 and 1 mean that the column is a copy of the label
        if len(groups) < 2 or _measures(values) or {0.0, 1.0}.issuperset(rates):
            continue
        if max(rates) - min(rates) >= APART and chance_error(groups) < CHANCE:
            differing.append(PooledColumn(name, len(groups), min(rates), max(rates)))
    return sorted(differing, key=lambda column: column.lowest - column.highest)


def chance_error(groups: Sequence[Floats]) -> float:
    """Return the p-value of Pearson's chi-square test that all groups [n >= 1] of errors have one error rate."""
    from scipy.special import chdtrc  # imported here: it takes half a second and is seldom needed

    every = np.concatenate(groups)
    between = sum(len(errors) * (np.mean(errors) - np.mean(every)) ** 2 for errors in groups)
    return float(chdtrc(len(groups) - 1, between / np.var(every)))  # the errors are not all equal


def _measures(values: Sequence[Any]) -> bool:
    """Return whether some value is fractional: the column then holds amounts, not names."""
    try:
        return any(float(value) % 1 != 0 for value in values if not is_missing(value))
    except (TypeError, ValueError, OverflowError):
        return False
