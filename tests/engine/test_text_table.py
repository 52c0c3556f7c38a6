"""Tables within a width: which columns are left out, what is cut, and that nothing else changes."""

import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st

from exaul.engine.results.text_table import COMMAND, columns_of, format_table, rounded, wrap

WIDTHS = st.integers(40, 200)
CHARACTERS = st.characters(exclude_categories=["Cs"]) | st.sampled_from("ab 语言模型")  # these take two cells each
NAMES = st.text(CHARACTERS, max_size=70)
LONG = "a" + "语" * 60  # a word that is broken, or cut, between characters
NUMBERS = st.floats(-1e6, 1e6).map("{:.3f}".format)


def cells(line):
    """The terminal cells of a line."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


@st.composite
def tables(draw):
    """One or two names, and up to nine columns of numbers, such as a summary's; and how many are names."""
    rows, names = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    titles = [f"{draw(NAMES) if n < names else ''}{n}" for n in range(names + draw(st.integers(0, 9)))]
    columns = {title: NAMES if n < names else NUMBERS for n, title in enumerate(titles)}
    return [draw(st.fixed_dictionaries(columns)) for _ in range(rows)], {x: draw(NAMES) for x in titles}, names


@given(tables(), WIDTHS)
@example(([{"name": LONG}], {}, 1), 40)
@example(([{"name": LONG}], {}, 1), 41)
def test_no_line_is_longer_than_the_terminal(table, width):
    rows, meanings, names = table
    for line in wrap(format_table(rows, width, meanings, names), width).split("\n"):
        assert cells(line) <= width
        assert line.isprintable()


@given(st.lists(st.integers(1, 12), min_size=3, max_size=9), WIDTHS, st.integers(1, 2), st.integers(1, 3))
def test_the_last_columns_are_left_out_and_no_other(sizes, width, names, kept):
    titles = ["abcdefghi"[n] * size for n, size in enumerate(sizes)]
    lengths = [sum(sizes[:m]) + 2 * (m - 1) for m in range(kept, len(sizes) + 1)]
    shown = kept + max((n for n, length in enumerate(lengths) if length <= width), default=0)
    for given_width, count in ((width, shown), (None, None)):
        table = format_table([dict.fromkeys(titles, "1")], given_width, names=names, kept=kept)
        assert table.split("\n")[0].split() == titles[:count]


def test_a_table():
    rows = [
        {"learner": "exaul", "FDR": "0.05", "regret": "-1"},
        {"learner": "my_package.learners.decaying:ranked", "FDR": "0.1234", "regret": "12"},
    ]
    meanings = {"FDR": "share of wrong among answered", "regret": "loss above that of best-fixed"}
    assert format_table(rows, 43, meanings).splitlines() == [
        "learner                         FDR  regret",
        "exaul                          0.05      -1",
        "my_package.le…caying:ranked  0.1234      12",
        "",
        "FDR: share of wrong among answered",
        "regret: loss above that of best-fixed",
    ]
    assert "my_package.learners.decaying:ranked" in format_table(rows)


def test_wide_characters_take_two_cells():
    rows = [{"name": "学习者", "n": "1"}, {"name": "abc", "n": "2"}]
    assert format_table(rows, 7) == "name  n\n学…   1\nabc   2"  # half of 者 would fit


@given(st.text(CHARACTERS, max_size=300), WIDTHS)
@example(LONG, 40)
@example(LONG, 41)
def test_explanations_keep_their_words(text, width):
    wrapped, whole = wrap(text, width), wrap(text, None)
    assert all(line.isprintable() for line in whole.split("\n"))
    assert all(cells(line) <= width or line.startswith(COMMAND) for line in wrapped.split("\n"))
    assert "".join(wrapped.split()) == "".join(whole.split())


def test_a_command_stays_whole():
    command = f"{COMMAND}exaul inspect {'x' * 60} --each model"
    assert wrap(f"look at each with:\n{command}", 40) == f"look at each with:\n{command}"


def test_decimals():
    rows = [{"a": 0.123456, "b": 1e-5}, {"a": 0.5, "b": 0.5}]
    assert columns_of(rows) == {"a": ["0.1235", "0.5000"], "b": ["1e-05", "0.5"]}


def test_numbers_of_a_figure_are_short():
    assert [rounded(x) for x in (0.5, 1234.6, 3e6, 1e12)] == ["0.5", "1,235", "3M", "1e+12"]
