"""Tables within a width: which columns are left out, what is cut, and that nothing else changes."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exaul.engine.results.text_table import COMMAND, SHORT, TextColumn, align_decimals, fitting, format_table, wrap

WIDTHS = st.integers(40, 200)
CHARACTERS = st.characters(exclude_categories=["Cs"]) | st.sampled_from(
    "ab 语言模型"
)  # the last take two cells each
NAMES = st.text(CHARACTERS, max_size=70)
NUMBERS = st.floats(-1e6, 1e6).map("{:.3f}".format)


def cells(line):
    """The terminal cells of a line."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


@st.composite
def tables(draw):
    """A name, and up to nine columns of numbers or names, such as a summary's."""
    rows = draw(st.integers(1, 4))
    columns = [TextColumn("learner", draw(st.lists(NAMES, min_size=rows, max_size=rows)), 9, is_name=True)]
    for n in range(draw(st.integers(0, 9))):
        is_name, priority = draw(st.booleans()), draw(st.integers(0, 8))
        texts = draw(st.lists(NAMES if is_name else NUMBERS, min_size=rows, max_size=rows))
        columns.append(TextColumn(f"{draw(NAMES)}{n}", texts, priority, is_name, draw(NAMES)))
    return columns


@given(tables(), WIDTHS)
def test_no_line_is_longer_than_the_terminal(columns, width):
    for line in format_table(columns, width).split("\n"):
        assert cells(line) <= width
        assert line.isprintable()


@given(tables(), WIDTHS)
def test_columns_are_left_out_by_priority_and_named(columns, width):
    shown = fitting(columns, width)
    left_out = [column for column in columns if column not in shown]
    assert shown == [column for column in columns if column in shown]
    assert shown[0] == columns[0]
    note = "a wider terminal, or a pipe, also"
    assert (note in format_table(columns, width)) == bool(left_out)
    if left_out:
        assert min(x.priority for x in shown) >= max(x.priority for x in left_out)
    assert fitting(columns, None) == columns


@given(tables(), WIDTHS)
def test_what_fits_is_shown(columns, width):
    """No column is left out, and no text cut, that the width has space for."""
    everything = format_table(columns).split("\n\n")[0]
    if max(map(cells, everything.split("\n"))) <= width and len(fitting(columns, width)) == len(columns):
        assert format_table(columns, width).split("\n\n")[0] == everything


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=5, max_size=9), st.integers(60, 200))
def test_numbers_of_a_narrow_table_are_those_of_the_wide_one(numbers, width):
    columns = [TextColumn("name", ["a" * 30, "b"], 9, is_name=True)]
    columns += [TextColumn(f"column{n}", pair, n) for n, pair in enumerate(numbers)]
    wide, narrow = ([line.split() for line in format_table(columns, w).splitlines()[:3]] for w in (None, width))
    by_title = dict(zip(wide[0], zip(*wide[1:], strict=True), strict=True))
    for title, *texts in list(zip(*narrow, strict=True))[1:]:
        assert tuple(texts) == by_title[title]


def test_a_table():
    columns = [
        TextColumn("learner", ["exaul", "my_package.learners.decaying:ranked"], 2, is_name=True),
        TextColumn("FDR", ["0.05", "0.1234"], 2, meaning="share of wrong among answered"),
        TextColumn("regret", ["-1", "12"], 1, meaning="loss above that of best-fixed"),
    ]
    assert format_table(columns, 43).splitlines() == [
        "learner                         FDR  regret",
        "exaul                          0.05      -1",
        "my_package.le…caying:ranked  0.1234      12",
        "",
        "FDR: share of wrong among answered",
        "regret: loss above that of best-fixed",
    ]
    assert format_table(columns, 35).splitlines() == [
        "learner                         FDR",
        "exaul                          0.05",
        "my_package.le…caying:ranked  0.1234",
        "",
        "a wider terminal, or a pipe, also",
        "  shows: regret",
        "",
        "FDR: share of wrong among answered",
    ]
    assert "my_package.learners.decaying:ranked" in format_table(columns)


def test_a_long_name_is_cut_before_a_column_is_left_out():
    columns = [TextColumn("name", ["x" * 100], 1, is_name=True), TextColumn("n", ["1" * 10])]
    assert fitting(columns, SHORT + 12) == columns
    assert fitting(columns, SHORT + 11) == columns[:1]


def test_wide_characters_take_two_cells():
    columns = [TextColumn("name", ["学习者", "abc"], 1, is_name=True), TextColumn("n", ["1", "2"], 1)]
    assert format_table(columns) == "name    n\n学习者  1\nabc     2"
    assert format_table(columns, 7) == "name  n\n学…   1\nabc   2"  # half of 者 would fit


@given(st.text(CHARACTERS, max_size=300), WIDTHS)
def test_explanations_keep_their_words(text, width):
    wrapped = wrap(text, width)
    assert wrap(text, None).split("\n") == [line for line in wrap(text, None).split("\n") if line.isprintable()]
    for line in wrapped.split("\n"):
        assert cells(line) <= width or line.startswith(COMMAND)
    kept = "".join(wrap(text, None).split())
    assert "".join(wrapped.split()) == kept


@pytest.mark.parametrize("width", [40, 41])
def test_long_words_of_wide_characters_are_broken_and_cut_between_characters(width):
    name = "a" + "语" * 60
    assert max(map(cells, wrap(name, width).split("\n"))) <= width
    table = format_table([TextColumn("name", [name], is_name=True)], width).split("\n")
    assert max(map(cells, table)) <= width


def test_a_command_stays_whole():
    command = f"{COMMAND}exaul inspect {'x' * 60} --each model"
    assert wrap(f"look at each with:\n{command}", 40) == f"look at each with:\n{command}"


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0.05, 0.1, 0.2], ["0.05", "0.10", "0.20"]),
        ([3, 20], ["3", "20"]),
        ([0.123456, 0.5], ["0.1235", "0.5000"]),
        ([1e-5, 0.5], ["1e-05", "0.5"]),
        ([173.2, 1e7], ["173.2", "1e+07"]),
    ],
)
def test_decimals(values, texts):
    assert align_decimals(values) == texts
