"""Tables and explanations as text, within a width or whole; and names and orders that figures share with them.

Texts are first padded: each wide character, such as a Chinese one, is followed by FILLER, so that the length of a
padded text is the number of terminal cells that it takes.
"""

import re
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from exaul.engine.checks import join_lines
from exaul.engine.registry import LEARNERS
from exaul.kernels.game import LOG_GRID
from exaul.kernels.learners.aci_rank import STEP

if TYPE_CHECKING:  # which imports pandas
    from exaul.engine.logs.files import Table

GAP = "  "
FILLER = "\0"  # no text contains it, because ``join_lines`` escapes it
NOT_FROM_LOG = ", if it starts from a log, which it does not here"  # of the advised learner
SHORT_NAME = 24  # cells (chosen): names are cut to so many before a column is left out, unless they become equal
COMMAND = "  "  # start of a line that ``wrap`` leaves whole, so that it can be copied into a shell

RATE_COLUMNS = "eta_scale", "gamma_scale", "step"  # the columns of a cell besides alpha and lambda


def short_learner_names(table: "Table") -> "Table":
    """Return a table that names a learner ``module:name`` of a program ``name``, if no other is named so."""
    short = table["learner"].str.rpartition(":")[2]
    is_unique = table["learner"].groupby(short).transform("nunique") == 1
    return table.assign(learner=short.where(is_unique & ~short.isin(LEARNERS), table["learner"]))


def with_rates(table: "Table", but: str = "") -> "Table":
    """Return a table whose learners are also named by rates that differ, or are not their own, ``but`` for one."""
    names = table["learner"]
    for rate, words, default in zip(RATE_COLUMNS, ("eta x", "gamma x", "step"), (1.0, 1.0, STEP), strict=True):
        differ = table.groupby("learner")[rate].transform("nunique") > 1
        is_named = (differ | (table[rate].notna() & (table[rate] != default))) & (rate != but)
        names = names.where(~is_named, names + f", {words} " + table[rate].map(as_digits))
    return table.assign(learner=names)


def with_answered(curves: "Table") -> "Table":
    """Return ``curves.csv`` with the share answered, which is 1 minus the inefficiency."""
    mirrored = {"mean": "mean", "q05": "q95", "q95": "q05"}
    return curves.assign(**{f"answered_{x}": 1 - curves[f"inefficiency_{y}"] for x, y in mirrored.items()})


def describe_trials(trials: "Table") -> str:
    """Return what was played, in how many trials of how many rounds, and the log from which learners start, if one.

    A column ``score``, if there is one, names the column of the log with the scores.
    """
    names, logs, horizons = (trials[column].unique() for column in ("source", "warm_start", "horizon"))
    played = names[0] if len(names) == 1 else f"{len(names)} sources"
    column = f", column {trials['score'].iloc[0]}" if "score" in trials else ""
    start, of_log = "", set(trials["grid"]) == {LOG_GRID}
    if len(logs) == 1 and trials["warm_start"].notna().all():
        share = re.fullmatch(r"([\d.e-]+) of (.+)", logs[0])  # "0.5 of LOG"
        percent = 100 * float(share[1]) if share and share[2] == played else 0
        rows = "the other half" if percent == 50 else f"another {percent:.6g}%"
        log = f"{rows} of the log" if percent else logs[0]
        cuts = f"thresholds ({as_range(trials['arms'])}) and the start of aci-rank come"
        start = f"; {cuts if of_log else 'aci-rank starts'} from {log}"
    count = trials["trial"].nunique()
    return f"{played}{column}: {count:,} trial{'s' * (count > 1)} of {as_range(horizons)} rounds{start}"


def traces_by_answerable(table: "Table") -> list[str]:
    """Return the names of the traces of ``traces.csv``, first those where a threshold answers most."""
    shares = table.drop_duplicates(["trace", "alpha"]).groupby("trace", sort=False)["answerable"].mean()
    return list(shares.sort_values(ascending=False, kind="stable").index)


def as_digits(rate: float) -> str:
    """Return a rate with all its digits, since others may differ in the last one."""
    return repr(float(rate)).removesuffix(".0")


def format_table(
    rows: Sequence[Mapping[str, str | float]],
    width: int | None = None,
    meanings: Mapping[str, str] = {},
    names: int = 1,
    kept: int = 2,
) -> str:
    """Return a table as text, with the titles of the columns that are left out, and what the others mean.

    Args:
        rows: texts, or numbers to align, by title of the column. The most important columns come first: a narrow
            terminal omits the last ones. A title may have several lines.
        width: of the terminal, in cells; None for all columns.
        meanings: explanations by title.
        names: number of first columns that are aligned left, and cut if they are too long.
        kept: number of first columns that are always shown.
    """
    columns = columns_of(rows)
    titles, height = list(columns), max(title.count("\n") for title in columns)
    padded = [
        [""] * (height - title.count("\n")) + [_pad(text) for text in (*title.split("\n"), *texts)]
        for title, texts in columns.items()
    ]
    sizes = [max(map(len, texts)) for texts in padded]
    count, short = len(sizes), sizes[:names]
    for n, texts in enumerate(padded[:names]):
        while short[n] > SHORT_NAME and len({abridge(text, short[n] - 1) for text in texts}) == len(set(texts)):
            short[n] -= 1
    while _is_wide([*short, *sizes[names:count]], width) and count > kept:
        count -= 1
    sizes = sizes[:count]
    while _is_wide(sizes, width) and max(sizes[:names]) > 1:
        sizes[sizes.index(max(sizes[:names]))] -= 1
    aligned = [
        [f"{abridge(text, size):<{size}}" if n < names else f"{text:>{size}}" for text in texts]
        for n, (texts, size) in enumerate(zip(padded, sizes, strict=False))
    ]
    parts = ["\n".join(GAP.join(line).rstrip().replace(FILLER, "") for line in zip(*aligned, strict=True))]
    if count < len(titles):
        left_out = ", ".join(" ".join(title.split()) for title in titles[count:])
        parts.append(f"a wider terminal, or a pipe, also shows: {left_out}")
    explained = [f"{' '.join(title.split())}: {meanings[title]}" for title in titles[:count] if title in meanings]
    return "\n\n".join([*parts, *(["\n".join(explained)] if explained else [])])


def shared_start(names: Sequence[str]) -> str:
    """Return the start that all names of traces share, up to a colon, comma or =; empty if one is no longer."""
    parts = zip(*(re.findall(r"[^:,=]*[:,=]", name) for name in names), strict=False)
    start = "".join(part[0] for part in takewhile(lambda part: len(set(part)) == 1, parts))
    return start if all(len(name) > len(start) for name in names) else ""


def values_of(names: Sequence[str]) -> list[str]:
    """Return names of traces without their ``column=``, if they stay distinct."""
    values = [re.sub("[^:,=]*=", "", name).replace(",", ", ") for name in names]
    return values if len(set(values)) == len(names) else list(names)


def as_label(column: str, value: Any) -> str:
    """Return the value of a column in a figure; of alpha and lambda with the letter, as a formula of matplotlib."""
    if column in ("alpha", "lambda"):
        return f"$\\{column}$ = {f'{100 * value:.4g}%' if column == 'alpha' else rounded(value)}"
    return plain(str(value))


def rounded(number: float) -> str:
    """Return a number with four significant digits, and commas between thousands; whole millions end with M."""
    value = float(f"{number:.4g}")
    return f"{value:,.0f}".replace(",000,000", "M") if 1e4 <= value < 1e9 else f"{value:,g}"


def as_range(counts: Any) -> str:
    """Return the least and the largest of some counts, or the one that there is."""
    return " to ".join(f"{count:,}" for count in sorted({min(counts), max(counts)}))


def plain(text: str) -> str:
    """Escape dollar signs, which begin a formula in matplotlib; draw arrows, and rates as formulas without spaces.

    A line that broke within a formula would show its code.
    """
    text = text.replace("$", "\\$").replace("->", "\N{RIGHTWARDS ARROW}")
    return re.sub(r"\b(eta|gamma) x ([\d.e+-]+)", r"$\\\1\\times\2$", text)


def columns_of(rows: Sequence[Mapping[str, str | float]]) -> dict[str, list[str]]:
    """Return the columns of rows as texts; numbers have four significant digits and equally many decimals."""
    columns: dict[str, list[Any]] = {title: [row[title] for row in rows] for title in rows[0]}
    return {title: x if isinstance(x[0], str) else _align_decimals(x) for title, x in columns.items()}


def wrap(text: str, width: int | None) -> str:
    """Break long lines between words; a line that starts with COMMAND stays whole."""
    return "\n".join(_wrap(_pad(line), width) for line in text.split("\n")).replace(FILLER, "")


def round_up(bound: float) -> str:
    """Return the bound of a share in percent, with two decimals, not below it."""
    rounded = round(bound, 4)
    return f"{rounded if rounded >= bound else rounded + 1e-4:.2%}"


def _align_decimals(values: Iterable[float]) -> list[str]:
    texts = [f"{value:.4g}" for value in values]
    if any("e" in text for text in texts):
        return texts
    decimals = max((len(text.partition(".")[2]) for text in texts), default=0)
    return [f"{float(text):.{decimals}f}" for text in texts]


def _wrap(padded: str, width: int | None) -> str:
    if width is None or len(padded) <= width or padded.startswith(COMMAND):
        return padded
    narrower = width - (FILLER in padded)  # a break may part a wide character from its filler
    indent = "  " if width > 2 * len(GAP) else ""
    return textwrap.fill(padded, max(1, narrower), subsequent_indent=indent, break_on_hyphens=False)


def _is_wide(sizes: Sequence[int], width: int | None) -> bool:
    return width is not None and sum(sizes) + len(GAP) * (len(sizes) - 1) > width


def _pad(text: str) -> str:
    return "".join(c + FILLER if unicodedata.east_asian_width(c) in "WF" else c for c in join_lines(text))


def abridge(padded: str, size: int) -> str:
    """Cut the middle of a name: its start and its end tell it apart."""
    if len(padded) <= size:
        return padded
    last = (size - 1) // 2
    start, end = padded[: size - 1 - last], padded[len(padded) - last :]
    if padded[len(start)] == FILLER:  # half of a wide character is no character
        start = f"{start[:-1]} "
    return f"{start}…{f' {end[1:]}' if end.startswith(FILLER) else end}"
