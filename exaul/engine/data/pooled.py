"""What a log pools: columns with few values, as models or datasets, between which the error rate changes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine.data import tables
from exaul.engine.data.layout import Layout
from exaul.engine.data.logs import is_missing, parse_log
from exaul.kernels.metrics import Floats

MOST = 50  # values of a column
LEAST = 30  # rows of a value, below which it does not count
APART = 0.05  # of the lowest error rate and the highest, at least
CHANCE = 1e-6  # how often chance alone may set a column apart


class PooledColumn(NamedTuple):
    """A column whose values have different error rates."""

    column: str
    values: int  # how many
    lowest: float  # error rate of a value
    highest: float


def pooled(log: str, columns: Layout, errors: Floats, rows: NDArray[np.intp]) -> list[PooledColumn]:
    """The columns of a log whose few values change the error rate, the widest apart first.

    Left out are scores, labels, columns by which rows were selected, numbers that are not whole, and columns that
    say of each answer whether it is wrong. What does not fit the memory is not looked at.

    Args:
        log: as of ``load_log``.
        columns: names of its columns.
        errors: [N] of the records.
        rows: [N], their places in the file.
    """
    path, selection = parse_log(log)
    known = {columns.score, columns.error, columns.correct, "error", "correct", *selection}
    names = [name for name in tables.columns(path) if name not in known and not name.startswith("score")]
    levels, found = tables.levels(path, names, MOST) if names else {}, []
    for name, (values, places) in levels.items():
        groups = [errors[places[rows] == place] for place, value in enumerate(values) if not is_missing(value)]
        groups = [group for group in groups if len(group) >= LEAST]
        rates = [float(group.mean()) for group in groups]
        if len(groups) < 2 or _measures(values) or {0.0, 1.0}.issuperset(rates):
            continue
        if max(rates) - min(rates) >= APART and chance_error(groups) < CHANCE:
            found.append(PooledColumn(name, len(groups), min(rates), max(rates)))
    return sorted(found, key=lambda one: one.lowest - one.highest)


def chance_error(groups: Sequence[Floats]) -> float:
    """How often the error rates of groups would be as far apart if they were equal: the chi-square test of Pearson.

    Args:
        groups: errors of each, [n] with n >= 1; not all errors are equal.
    """
    from scipy.special import chdtrc  # here, for it takes half a second and is seldom needed

    every = np.concatenate(groups)
    between = sum(len(errors) * (np.mean(errors) - np.mean(every)) ** 2 for errors in groups)
    return float(chdtrc(len(groups) - 1, between / np.var(every)))


def _measures(values: Sequence[Any]) -> bool:
    """Whether values are numbers that are not whole: amounts, and no names."""
    try:
        return any(float(value) % 1 != 0 for value in values if not is_missing(value))
    except (TypeError, ValueError, OverflowError):
        return False
