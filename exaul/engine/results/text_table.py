"""Tables and explanations as text: within the width of a terminal, or all columns in a pipe.

Texts are first padded: each wide character, such as a Chinese one, is followed by FILLER, so that the length of a
padded text is the number of terminal cells that it takes.
"""

import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from exaul.engine.checks import join_lines

if TYPE_CHECKING:  # which imports pandas
    from exaul.engine.logs.files import Table

GAP = "  "
FILLER = "\0"  # no text contains it, because ``join_lines`` escapes it
SHORT = 24  # cells: a longer name is cut before a column is left out
COMMAND = "  "  # start of a line that ``wrap`` leaves whole, so that it can be copied into a shell

RATES = "eta_scale", "gamma_scale", "step"  # the columns of a cell besides alpha and lambda


def with_rates(table: "Table") -> "Table":
    """Return a table whose learners are also named by the rates in which their cells differ."""
    names = table["learner"]
    for rate, words in zip(RATES, ("eta x", "gamma x", "step"), strict=True):
        differ = table.groupby("learner")[rate].transform("nunique") > 1
        names = names.where(~differ, names + f", {words} " + table[rate].map(as_digits))
    return table.assign(learner=names)


def as_digits(rate: float) -> str:
    """Return a rate with all its digits, since others may differ in the last one."""
    return repr(float(rate)).removesuffix(".0")


class TextColumn(NamedTuple):
    """A column of a table.

    Columns of the highest priority are always shown; of the others, those of the lowest are left out first.
    Names are aligned left, and cut if they are too long; numbers are aligned right. The meaning is printed below
    the table if the column is shown.
    """

    title: str
    texts: Sequence[str]  # one per row
    priority: int = 0
    is_name: bool = False
    meaning: str = ""


def format_table(columns: Sequence[TextColumn], width: int | None = None) -> str:
    """Return the lines of a table, what is left out, and the meanings of its columns.

    Args:
        columns: with equally many texts.
        width: of the terminal, in cells; None for all columns.
    """
    shown = fitting(columns, width)
    padded = [[_pad(text) for text in (column.title, *column.texts)] for column in shown]
    widths = [max(map(len, texts)) for texts in padded]
    while width is not None and _line_length(widths) > width:  # cut the longest name
        longest = max(range(len(shown)), key=lambda n: (shown[n].is_name and widths[n] > 1, widths[n]))
        if widths[longest] <= 1:
            break
        widths[longest] -= 1
    lines = []
    for row in zip(*padded, strict=True):
        cells = (
            _cut(text, size).ljust(size) if column.is_name else _cut(text, size).rjust(size)
            for text, size, column in zip(row, widths, shown, strict=True)
        )
        lines.append(GAP.join(cells).rstrip().replace(FILLER, ""))
    parts = ["\n".join(lines)]
    if len(shown) < len(columns):
        titles = ", ".join(column.title.strip() for column in columns if column not in shown)
        parts.append(wrap(f"a wider terminal, or a pipe, also shows: {titles}", width))
    meanings = [f"{column.title.strip()}: {column.meaning}" for column in shown if column.meaning]
    return "\n\n".join([*parts, *([wrap("\n".join(meanings), width)] if meanings else [])])


def fitting(columns: Sequence[TextColumn], width: int | None) -> list[TextColumn]:
    """Return the columns that a terminal has space for; long names count as SHORT, since they can be cut."""
    shown = list(columns)
    sizes = [max(len(_pad(text)) for text in (column.title, *column.texts)) for column in shown]
    sizes = [min(size, SHORT) if column.is_name else size for size, column in zip(sizes, shown, strict=True)]
    highest = max(column.priority for column in columns)
    while width is not None and _line_length(sizes) > width:
        least = min(range(len(shown)), key=lambda n: (shown[n].priority, -n))
        if shown[least].priority == highest:
            break
        del shown[least], sizes[least]
    return shown


def wrap(text: str, width: int | None) -> str:
    """Break the lines of an explanation between words; a line that starts with COMMAND stays whole."""
    lines = map(join_lines, text.split("\n"))
    return "\n".join(line if width is None or line.startswith(COMMAND) else _wrap(line, width) for line in lines)


def align_decimals(values: Iterable[float]) -> list[str]:
    """Return numbers as texts of four significant digits, all with as many decimals as the longest needs."""
    texts = [f"{value:.4g}" for value in values]
    if any("e" in text for text in texts):
        return texts
    decimals = max((len(text.partition(".")[2]) for text in texts), default=0)
    return [f"{float(text):.{decimals}f}" for text in texts]


def _wrap(line: str, width: int) -> str:
    padded = _pad(line)
    narrower = width - (FILLER in padded)  # a break may part a wide character from its filler
    indent = "  " if width > 2 * len(GAP) else ""
    lines = textwrap.wrap(padded, max(1, narrower), subsequent_indent=indent, break_on_hyphens=False)
    return "\n".join(lines).replace(FILLER, "")


def _line_length(sizes: Sequence[int]) -> int:
    return sum(sizes) + len(GAP) * (len(sizes) - 1)


def _pad(text: str) -> str:
    return "".join(c + FILLER if unicodedata.east_asian_width(c) in "WF" else c for c in join_lines(text))


def _cut(padded: str, size: int) -> str:
    """Cut the middle of a name: its start and its end tell it apart."""
    if len(padded) <= size:
        return padded
    last = (size - 1) // 2
    start, end = padded[: size - 1 - last], padded[len(padded) - last :]
    if padded[len(start)] == FILLER:  # half of a wide character is no character
        start = f"{start[:-1]} "
    return f"{start}…{f' {end[1:]}' if end.startswith(FILLER) else end}"
