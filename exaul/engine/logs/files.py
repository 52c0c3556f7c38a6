"""Read logs, and read and write tidy tables. Only this module imports pandas."""

import csv
import json
import math
import re
import stat
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.io.common import get_handle

from exaul.engine.checks import BadInput, quote
from exaul.engine.machine import USABLE_SHARE, host_memory, show_bytes

Table = pd.DataFrame

_CSV = {".csv", ".tsv", ".txt"}
_JSON = {".jsonl", ".ndjson", ".json"}
_PARQUET = {".parquet", ".pq"}
_PACKED = {".gz", ".bz2", ".zip", ".xz", ".zst"}
ENCODING = "utf-8-sig"
BYTES_PER_BYTE = 10  # bytes in memory per byte of a text log (chosen)
MAX_LINE = 2**24  # largest line of a log, in bytes (chosen)
csv.field_size_limit(MAX_LINE)
WIDE_HEADER = 1000  # columns; of a CSV with more, only the requested ones are kept in memory
CELL_BYTES = 100  # bytes in memory per cell of a Parquet file (chosen)
SAMPLED_ROWS = 10_000  # rows (chosen) that are counted before a whole column is factorized
# Spreadsheets run text that begins with one of these characters as a formula. Text that already begins with
# apostrophes and such a character also gets one more, so that removing one apostrophe restores every text.
_TEXT = re.compile(r"'*[=+\-@\t\r]")
_ESCAPE = re.compile(f"^'(?={_TEXT.pattern})")
TEXT_COLUMNS = dict.fromkeys(("learner", "environment", "source", "grid", "trace", "warm_start"), str)  # no numbers


def columns(path: Path) -> list[str]:
    """Return the names of a log's columns.

    Raise BadInput if the file is missing, unreadable or empty, or two columns have one name.
    """
    names: list[str] = _readable_errors(path, lambda: _header(path))
    if not names:
        raise BadInput(f"{path}: empty; it must have a header and at least one row")
    return names


def read(path: Path, names: Sequence[str]) -> tuple[list[int], dict[str, list[Any]]]:
    """Return the cells of some of the ``columns`` by name: text from CSV, values from JSON lines and Parquet.

    Before them come the numbers of the rows, from 1, for messages: lines in JSON lines, else rows below the header.
    Raise BadInput if the file cannot be read to its end, or is Parquet that does not fit in memory.
    """
    table = _readable_errors(path, lambda: _parse(path, names))
    return table.index.tolist(), {name: table[name].tolist() for name in names}


class CategoryColumn(NamedTuple):
    """A column with few distinct values."""

    values: list[Any]  # distinct values, as ``read`` returns them
    codes: NDArray[np.intp]  # index of each row's value in ``values``; -1 if the cell is null


def category_columns(path: Path, limits: Mapping[str, int]) -> dict[str, CategoryColumn]:
    """Return by name the columns that have at most as many distinct values as ``limits`` allows each.

    Columns that hold lists or objects are left out; in a Parquet file also those that cannot be read or do not fit
    in memory. Raise BadInput if the file cannot be read to its end.
    """
    categories = {}
    for name, column in _parse_columns(path, list(limits)):
        with suppress(TypeError):  # lists and objects are not hashable
            if column.iloc[:SAMPLED_ROWS].nunique() <= limits[name]:  # rejects columns such as identifiers quickly
                codes, values = pd.factorize(column)
                if len(values) <= limits[name]:
                    categories[name] = CategoryColumn(values.tolist(), codes)
    return categories


def _parse_columns(path: Path, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    if _format(path) not in _PARQUET:
        table = _readable_errors(path, lambda: _parse(path, names))
        yield from ((name, table[name]) for name in names)
        return
    from pyarrow import parquet  # imported here: most logs are not Parquet

    metadata = parquet.read_metadata(path)
    sizes = Counter[str]()  # estimated bytes in memory by column; names of nested columns are absent
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            sizes[chunk.path_in_schema] += group.num_rows * CELL_BYTES + chunk.total_uncompressed_size
    flat = [name for name in names if name in sizes]
    with parquet.ParquetFile(path, metadata=metadata, read_dictionary=flat) as stored:  # each distinct text once
        for name in flat:  # one column at a time, since a log may have large columns of prompts and replies
            if sizes[name] <= USABLE_SHARE * host_memory():
                with suppress(BadInput):
                    yield name, _readable_errors(path, partial(_parquet_table, stored, [name]))[name]


def stem(path: Path) -> str:
    """Return a file name without the endings of format and compression."""
    name = _unpacked(path)
    return name.stem if _format(path) in _CSV | _JSON | _PARQUET else name.name


def _format(path: Path) -> str:
    return _unpacked(path).suffix.lower()


def _unpacked(path: Path) -> Path:
    name = Path(path.name)
    return name.with_suffix("") if name.suffix.lower() in _PACKED else name


def _header(path: Path) -> list[str]:
    if _format(path) in _PARQUET:
        from pyarrow import parquet

        with parquet.ParquetFile(path) as stored:
            names: list[str] = stored.schema_arrow.names
        _check_distinct(names)
        return names
    _check_size(path)
    if _format(path) in _JSON:
        return list(dict.fromkeys(name for _, row in _json_rows(path) for name in row))
    names = _csv_header(path, _separator(path))
    # not by pandas, which renames the second of two columns of one name
    _check_distinct(filter(None, names))
    return [name or f"Unnamed: {number}" for number, name in enumerate(names)]


def _parse(path: Path, names: Sequence[str]) -> pd.DataFrame:
    if _format(path) in _PARQUET:
        return _read_parquet(path, names)
    if _format(path) in _JSON:
        cells = {number: [row.get(name) for name in names] for number, row in _json_rows(path)}
        return pd.DataFrame(list(cells.values()), list(cells), names, dtype=object)
    # Cells are read as text: pandas would otherwise turn "NA" into NaN and "01" into 1, and selections would not
    # match what the file contains.
    sep = _separator(path)
    parse = partial(pd.read_csv, path, sep=sep, dtype=str, na_filter=False, encoding=ENCODING, index_col=False)
    if len(_csv_header(path, sep)) > WIDE_HEADER:
        parse = partial(parse, usecols=names)
    try:
        table = parse()
    except pd.errors.ParserWarning:
        _csv_header(path, sep, 0)  # raises an error that names the row
        raise
    return table.set_axis(range(1, len(table) + 1))


def _open(path: Path) -> Any:
    return get_handle(path, "r", encoding=ENCODING, compression="infer")


def _csv_header(path: Path, sep: str, limit: int = WIDE_HEADER) -> list[str]:
    """Return the first row of a CSV. If it has over ``limit`` cells, raise ValueError if a later row has more."""
    with _open(path) as handles:
        reader = csv.reader(handles.handle, delimiter=sep)
        rows = (row for row in reader if len(row) > 1 or "".join(row).strip())  # pandas skips blank rows, too
        header = next(rows, [])
        # with ``usecols``, which saves memory, pandas does not refuse rows that are too long
        for number, row in enumerate(rows if len(header) > limit else (), 1):
            if len(row) > len(header):
                raise ValueError(f"row {number} has {len(row)} cells, and the header {len(header)}")
    return header


def _separator(path: Path) -> str:
    return "\t" if _format(path) == ".tsv" else ","


def _check_distinct(names: Iterable[str]) -> None:
    """Raise ValueError if a name occurs twice."""
    for name, count in Counter(names).most_common(1):
        if count > 1:
            raise ValueError(f"{count} columns are named {quote(name)}; names must be distinct")


def _check_size(path: Path) -> None:
    """Raise BadInput if a text log does not fit in memory after decompression, or has too long a line.

    The whole file is scanned even if only the header is read: a header with an open quote extends to its end. An
    array of JSON may be one line.
    """
    longest = math.inf if _is_array(path) else MAX_LINE
    free = host_memory()
    limit, size, line = int(USABLE_SHARE * free / BYTES_PER_BYTE), 0, 0
    with get_handle(path, "rb", is_text=False, compression="infer") as handles:
        stream: Any = handles.handle
        for piece in iter(partial(stream.read, 2**20), b""):
            size += len(piece)
            last = piece.rfind(b"\n")
            # bytes since the last line break; a piece without one continues the line
            line = len(piece) - 1 - last if last >= 0 else line + len(piece)
            if size > limit:
                raise BadInput(
                    f"{path}: over {show_bytes(limit)} of text; {show_bytes(free)} of memory allow no more"
                )
            if line > longest:
                raise BadInput(f"{path}: a line of more than {show_bytes(MAX_LINE)}; each line must hold one row")


def _read_parquet(path: Path, names: Sequence[str]) -> pd.DataFrame:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as stored:
        rows, free = stored.metadata.num_rows, host_memory()
        if rows * len(names) * CELL_BYTES > USABLE_SHARE * free:
            raise BadInput(f"{path}: {rows:,} rows; they must fit in {show_bytes(free)} of free memory")
        return _parquet_table(stored, names).set_axis(range(1, rows + 1))


def _parquet_table(stored: Any, names: Sequence[str]) -> pd.DataFrame:
    """Read columns of an open Parquet file, whose metadata may take longer to parse than a column to read."""
    # pandas' own metadata is ignored: it would turn a column into an index, and an empty cell into ``pandas.NA``
    table = stored.read(columns=list(names))
    table.validate(full=True)  # text that is not UTF-8 would fail later
    return table.to_pandas(ignore_metadata=True, integer_object_nulls=True)


def _json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield rows and their numbers: lines in JSON lines, which may be blank, else elements of the array."""
    with _open(path) as handles:
        for number, row in (_elements if _is_array(path) else _lines)(path, handles.handle):
            if not isinstance(row, dict):
                raise BadInput(f"{path}, row {number}: not a JSON object; each row must be one")
            yield number, row


def _elements(path: Path, stream: Any) -> Iterator[tuple[int, Any]]:
    try:
        return enumerate(json.load(stream, object_pairs_hook=_object), 1)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not JSON ({error}); it must be an array of objects, or one per line") from error


def _lines(path: Path, stream: Any) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(stream, 1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line, object_pairs_hook=_object)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{path}, row {number}: not JSON ({error}); each line must be an object") from error


def _is_array(path: Path) -> bool:
    """Return whether a file of JSON holds an array; its elements are the rows."""
    if _format(path) not in _JSON:
        return False
    with _open(path) as handles:
        return bool(handles.handle.read(4096).lstrip()[:1] == "[")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON. Raise ValueError if a name occurs twice: Python would keep the last value."""
    members = dict(pairs)
    if len(members) < len(pairs):
        _check_distinct(name for name, _ in pairs)
    return members


def _readable_errors(path: Path, parse: Callable[[], Any]) -> Any:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
        raise BadInput(f"{path}: {'no such file' if missing else f'unreadable ({error.strerror})'}") from error
    if not stat.S_ISREG(mode):
        raise BadInput(f"{path}: {'a folder' if stat.S_ISDIR(mode) else 'a device'}; it must be a file")
    try:
        with warnings.catch_warnings():
            # pandas only warns about some broken rows, and would drop or shift their cells
            warnings.simplefilter("error")
            return parse()
    except BadInput:
        raise
    except (Exception, pd.errors.ParserWarning) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BadInput(f"{path}: unreadable ({reason})") from error


def stack(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate tables with the same columns; return a single one itself."""
    return pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]


def save(table: pd.DataFrame, path: Path | TextIO) -> None:
    """Write a table as CSV. Floats have the shortest exact digits; NaN is an empty cell; formulas are escaped."""
    texts = {name: table[name].unique() for name in table if not pd.api.types.is_numeric_dtype(table[name])}
    # The csv module of Python 3.11 quotes no carriage return, where readers end the row: then quote all texts.
    has_return = any(isinstance(x, str) and "\r" in x for cells in (table, *texts.values()) for x in cells)
    formulas = [name for name, cells in texts.items() if any(map(_is_formula, cells))]
    escaped = {str(x): [f"'{cell}" if _is_formula(cell) else cell for cell in table[x]] for x in formulas}
    quoting = csv.QUOTE_NONNUMERIC if has_return else csv.QUOTE_MINIMAL
    table.assign(**escaped).to_csv(path, index=False, quoting=quoting)


def _is_formula(cell: Any) -> bool:
    return isinstance(cell, str) and _TEXT.match(cell) is not None


def load(path: Path) -> pd.DataFrame:
    """Read a table that ``save`` wrote, to the same floats and names. Raise BadInput if it is unreadable."""
    parse = partial(pd.read_csv, path, engine="pyarrow", dtype=TEXT_COLUMNS, keep_default_na=False, na_values=[""])
    table = _readable_errors(path, parse)
    names = [name for name in TEXT_COLUMNS if name in table]
    texts = {name: table[name].str.replace(_ESCAPE, "", regex=True) for name in names}
    # a column without any text was one of NaN before it was written
    return table.assign(**{name: x.astype(float) if x.isna().all() else x for name, x in texts.items()})
