"""The log from which learners start: a file, a table, two arrays, or a part of the records that are played."""

import math
from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np

from exaul.engine.checks import BadInput, quote
from exaul.engine.data.layout import Layout
from exaul.engine.data.records import Records
from exaul.kernels import uniforms
from exaul.kernels.game import ROUNDS
from exaul.kernels.learners.aci_rank import SHARE, SHORT

NAME = "warm_start"  # of a log that is no file


def read_log(log: Any, columns: Layout) -> Records:
    """Return the records of a log.

    Args:
        log: a file, as in ``load_log``; a DataFrame; or scores [N] and errors [N].
        columns: names of the columns of a file or DataFrame.

    Raises:
        BadInput: the log cannot be read, or a number is not in [0, 1].
    """
    if isinstance(log, tuple) and len(log) == 2:
        return _of_arrays(*log)
    from exaul.engine.data.logs import load_log, load_table  # imported here: it imports pandas

    if isinstance(log, str | PathLike):
        return load_log(str(log), columns)
    if hasattr(log, "columns"):
        if not log.columns.is_unique:
            raise BadInput(f"{NAME}: two columns have one name")
        known = log.astype(object).where(log.notna(), None)
        return load_table(NAME, {str(name): known[name].tolist() for name in known}, columns)
    raise BadInput(f"{NAME}: {quote(log)} found; it must be a file, a DataFrame, or scores and errors")


def _of_arrays(scores: Any, errors: Any) -> Records:
    arrays = []
    for name, values in (("scores", scores), ("errors", errors)):
        try:
            array = np.asarray(values).astype(np.float64).ravel()
        except (TypeError, ValueError) as error:
            raise BadInput(f"{NAME}: {name} are {quote(values)}; they must be numbers in [0, 1]") from error
        (wrong,) = np.nonzero(~((array >= 0) & (array <= 1)))
        if len(wrong):
            raise BadInput(f"{NAME}: {name}[{wrong[0]}] is {array[wrong[0]]}; it must be a number in [0, 1]")
        arrays.append(array)
    many = len(arrays[0])
    if many != len(arrays[1]) or not many:
        raise BadInput(f"{NAME}: {many} scores and {len(arrays[1])} errors; there must be as many, at least one")
    return Records(NAME, arrays[0], arrays[1], 0, None)


def split_log(records: Records, fraction: float, in_order: bool, seed: int) -> tuple[Records, Records]:
    """Return a fraction of the records as the log, and the others.

    It is their first part if they are played ``in_order``; else a random part, drawn from the seed alone.

    Raises:
        BadInput: there are too few records to start from some and play others.
    """
    many = len(records.scores)
    count = int(fraction * many)
    if not 0 < count < many:
        raise BadInput(
            f"{NAME}: {fraction} found; of the {many} records of {records.name}, that leaves none to start from or "
            "none to play"
        )
    is_log = np.arange(many) < count
    if not in_order:
        # the records with the smallest uniforms are the log
        key = uniforms.trial_keys(seed, uniforms.RECORDS, uniforms.NO_TRIAL)
        number = np.arange(many, dtype=np.uint32)
        u = uniforms.uniform((key[0][0], key[1][0]), number // np.uint32(ROUNDS), number % np.uint32(ROUNDS))
        is_log = u <= np.partition(u, count - 1)[count - 1]
    return records.take(is_log)._replace(name=f"{fraction:g} of {records.name}"), records.take(~is_log)


def describe_log(log: Records) -> dict[str, Any]:
    """Return name, size, share of wrong answers and hashes of a log, for the manifest."""
    return {
        "name": log.name,
        "records": len(log.scores),
        "dropped": log.dropped,
        "error_rate": float(log.errors.mean()),
        "sha256": log.sha256,
        "content": log.content(),
    }


def describe_start(log: Mapping[str, Any], learner: str, alpha: float, share: float) -> str:
    """Return the share of the records with which a learner starts after a log (``describe_log``), in one line."""
    rows, least = log["records"], math.ceil(SHORT / alpha)
    if share <= 0:
        start = f"starts silent, because no threshold of the log reaches alpha = {alpha:g}"
    else:
        start = f"starts by answering {share:.1%} at alpha = {alpha:g}"
        start += (
            f" (at most {SHARE:.0%}, because the log has fewer than {least} rows)"
            if rows < least and share == SHARE
            else ""
        )
    few = f"; fewer than {least} rows say little" if rows < least else ""
    return f"{learner} {start} ({log['name']}: {rows:,} row{'s' * (rows > 1)}, {log['error_rate']:.1%} wrong{few})"
