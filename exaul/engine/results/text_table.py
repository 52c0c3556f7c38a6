"""Tables and explanations as text: within the width of a terminal, or all columns in a pipe.

Texts are first padded: each wide character, such as a Chinese one, is followed by FILLER, so that the length of a
padded text is the number of terminal cells that it takes.
"""

import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from exaul.engine.checks import join_lines

if TYPE_CHECKING:  # which imports pandas
    from exaul.engine.logs.files import Table

GAP = "  "
FILLER = "\0"  # no text contains it, because ``join_lines`` escapes it
SHORT = 24  # cells (chosen): a longer name is cut before a column is left out
COMMAND = "  "  # start of a line that ``wrap`` leaves whole, so that it can be copied into a shell

NOTHING: Mapping[Any, Any] = MappingProxyType({})

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


def format_table(
    columns: Mapping[str, Sequence[str]],
    width: int | None = None,
    meanings: Mapping[str, str] = NOTHING,
    names: int = 1,
    kept: int = 2,
) -> str:
    """Return a table as text, with the titles of the columns that are left out, and what the others mean.

    Args:
        columns: equally many texts by title, the most important column first: a narrow terminal shows no last ones.
            A title may have several lines.
        width: of the terminal, in cells; None for all columns.
        meanings: explanations by title.
        names: number of first columns that are aligned left, and cut if they are too long.
        kept: number of first columns that are always shown.
    """
    heads = [[_pad(line) for line in title.split("\n")] for title in columns]
    high = max(map(len, heads))
    heads = [[""] * (high - len(head)) + head for head in heads]
    padded = [[*head, *map(_pad, texts)] for head, texts in zip(heads, columns.values(), strict=True)]
    sizes = [max(map(len, texts)) for texts in padded]
    count = fitting(sizes, width, names, kept)
    sizes = sizes[:count]
    while width is not None and _line_length(sizes) > width and max(sizes[:names]) > 1:
        sizes[sizes.index(max(sizes[:names]))] -= 1
    cut = [
        [_cut(text, size).ljust(size) for text in texts] if n < names else texts
        for n, (texts, size) in enumerate(zip(padded, sizes, strict=False))
    ]
    aligned = [[f"{text:>{size}}" for text in texts] for texts, size in zip(cut, sizes, strict=True)]
    parts = ["\n".join(GAP.join(line).rstrip().replace(FILLER, "") for line in zip(*aligned, strict=True))]
    titles = [title.replace("\n", " ") for title in columns]
    if count < len(titles):
        left_out = ", ".join(title.strip() for title in titles[count:])
        parts.append(wrap(f"a wider terminal, or a pipe, also shows: {left_out}", width))
    explained = "\n".join(f"{title.strip()}: {meanings[title]}" for title in titles[:count] if title in meanings)
    return "\n\n".join([*parts, *([wrap(explained, width)] if explained else [])])


def fitting(sizes: Sequence[int], width: int | None, names: int, kept: int) -> int:
    """Return how many of the first columns a terminal has space for, or ``kept``; long names count as SHORT."""
    short = [min(size, SHORT) if n < names else size for n, size in enumerate(sizes)]
    count = len(sizes)
    while width is not None and count > kept and _line_length(short[:count]) > width:
        count -= 1
    return count


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
