"""Tidy tables, in and out: the only door to pandas."""

import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.io.common import get_handle

from exaul.engine.checks import BadInput

Table = pd.DataFrame

_JSON = {".jsonl", ".ndjson", ".json"}
_PARQUET = {".parquet", ".pq"}


def columns(path: Path) -> list[str]:
    """Names of a log's columns.

    Raises:
        BadInput: the file is missing, unreadable or empty.
    """
    found = _guarded(path, lambda: _parse(path, None, head=True))
    return [str(name) for name in found.columns]


def read(path: Path, names: Sequence[str]) -> dict[str, list[Any]]:
    """Cells of some columns of a log as the file has them: text in CSV, values in JSON lines and Parquet.

    Raises:
        BadInput: the file cannot be read to its end.
    """
    found = _guarded(path, lambda: _parse(path, names, head=False))
    return {name: found[name].tolist() for name in names}


def _parse(path: Path, names: Sequence[str] | None, head: bool) -> pd.DataFrame:
    suffixes = set(path.suffixes)
    if suffixes & _PARQUET:
        return pd.read_parquet(path, columns=None if names is None else list(names))
    if suffixes & _JSON:
        return _read_json_lines(path, names)
    return pd.read_csv(
        path,
        dtype=str,
        na_filter=False,
        encoding="utf-8-sig",
        index_col=False,
        nrows=0 if head else None,
    )


def _read_json_lines(path: Path, names: Sequence[str] | None) -> pd.DataFrame:
    with get_handle(path, "r", encoding="utf-8-sig", compression="infer") as handles:
        rows = []
        for number, line in enumerate(handles.handle, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise BadInput(f"{path}, row {number}: not JSON ({error})") from error
            if not isinstance(row, dict):
                raise BadInput(f"{path}, row {number}: not a JSON object with named columns")
            rows.append(row if names is None else {name: row.get(name) for name in names})
    found = dict.fromkeys(name for row in rows for name in row)
    return pd.DataFrame({name: pd.Series([row.get(name) for row in rows], dtype=object) for name in found})


def _guarded(path: Path, parse: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    if not path.exists():
        raise BadInput(f"{path}: no such file")
    if path.is_dir():
        raise BadInput(f"{path}: a folder, not a file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = parse()
    except BadInput:
        raise
    except (Exception, pd.errors.ParserWarning) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BadInput(f"{path}: unreadable ({reason})") from error
    if not len(found.columns):
        raise BadInput(f"{path}: empty; a header and at least one row are needed")
    return found


def frame(content: dict[str, Any] | Sequence[dict[str, Any]]) -> pd.DataFrame:
    """A table of columns of one length, or of rows, NaN where there is nothing to say."""
    return pd.DataFrame(content)


def stack(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Tables of the same columns, one below the other."""
    return pd.concat(parts, ignore_index=True)


def save(table: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV: floats by shortest round trip, empty for NaN."""
    table.to_csv(path, index=False)


def load(path: Path) -> pd.DataFrame:
    """A table that ``save`` wrote: the same floats, NaN where empty.

    Raises:
        BadInput: the file is missing or unreadable.
    """
    return _guarded(path, lambda: pd.read_csv(path, engine="pyarrow"))
