"""The summary: what was answered of what can be, which learner to use, and a table that fits the terminal."""

import re
import unicodedata
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exaul import Sweep, run
from exaul.commands.sweep import print_report
from exaul.engine.checks import BadInput
from exaul.engine.feedback import describe_waiting
from exaul.engine.logs.files import stack
from exaul.engine.logs.log import Records
from exaul.engine.results.summary import as_latex, describe_checks, shares_answerable, summarize
from exaul.engine.results.text_table import COMMAND, columns_of, format_table, rounded, wrap

SMALL = {"trials": 2, "horizon": 600, "arms": 20}
EASY = Records("easy", np.repeat([0.9, 0.1], 50), np.repeat([0.0, 1.0], 50), 0, None)  # half can be answered
HARD = Records("hard", np.repeat([0.9, 0.1], [10, 90]), np.repeat([0.0, 1.0], [10, 90]), 0, None)  # a tenth
HOPELESS = HARD._replace(errors=np.ones(100))


def test_answerable_is_the_mean_over_segments():
    found = [shares_answerable(x, n, [0.1]) for x, n in (([EASY], 1), ([EASY, HARD], 2), ([EASY, HARD], 10))]
    assert found == [{0.1: 0.5}, {0.1: pytest.approx(0.3)}, {0.1: pytest.approx(0.3)}]
    # in the first, every round may be of either log
    assert shares_answerable([EASY, HARD], 1, [0.1]) == shares_answerable([], 2, [0.1]) == {}
    replayed = run(Sweep(environment="replay", trials=1, horizon=50, alphas=(0.1,)), [EASY])
    assert replayed.manifest["sources"][0]["answerable"] == {"0.1": 1.0}  # of the first 50
    for share, is_beaten in (0.9, True), (1.0, False):
        text = summarize(replayed.trials, shares={0.1: share})
        assert (". A learner that moves between thresholds may answer more." in text) == is_beaten


@pytest.mark.parametrize(
    ("fields", "records", "shares"),
    [
        ({"learners": ("no-abstention", "always-abstain")}, [EASY], ["-", "0%"]),  # it does not hold alpha
        ({"learners": "no-abstention", "alphas": 0.495}, [EASY], ["100%"]),  # it answers more than can be
        ({"environment": "gradual-shift"}, [EASY, HARD], ["-"]),
        ({"environment": "always-wrong"}, [EASY], ["-"]),
        ({}, [HOPELESS], ["-"]),
        # of a log that is replayed only the rounds count that are reached: those of right answers
        ({"environment": "replay", "horizon": 50, "learners": "no-abstention"}, [EASY], ["100%"]),
    ],
)
def test_the_share_of_answerable_is_empty_if_zero_or_unknown(fields, records, shares):
    text = run(Sweep(**SMALL | {"learners": "always-abstain"} | fields), records).summary(theory=True)
    if shares == ["-"]:  # a column without a value is left out
        assert "  of answerable\n" not in text
    else:
        assert table_of(text, "of answerable")["of answerable"] == shares


def table_of(text, title):
    """Return the cells of the table with a title in its last line of titles, by title; no cell may be empty."""
    lines = next(part.splitlines() for part in text.split("\n\n") if re.search(rf"  {title}(  |\n)", part))
    start = next(n for n, line in enumerate(lines) if title in line)
    titles = re.split(r"  +", lines[start].strip())
    cells = [re.split(r"  +", row.removeprefix("* ").strip()) for row in lines[start + 1 :]]
    return {title: [row[n] for row in cells] for n, title in enumerate(titles)}


def test_the_default_tables_fit_80_columns_and_their_numbers_align():
    """A block of the means of the trials for each alpha; only there is the advised learner marked."""
    result = run(Sweep(**SMALL, alphas=(0.05, 0.123)))
    parts = summarize(result.trials, advised={0.05: "aci-rank"}).split("\n\n")
    assert parts[0] == "target: at most 5% of the shown answers are wrong (FDR <= alpha = 0.05)"
    assert parts[2] == "target: at most 12.3% of the shown answers are wrong (FDR <= alpha = 0.123)"
    for number, alpha in ((1, 0.05), (3, 0.123)):
        lines = parts[number].splitlines()
        assert max(map(len, lines)) <= 80
        assert len(set(map(len, lines))) == 1
        assert [line.split()[1] for line in lines if line.startswith("* ")] == ["aci-rank"] * (number == 1)
        table = table_of(parts[number], "answered")
        assert list(table) == ["learner", "the shown", "answered", "below target", "(any sequence)"]
        for row, (name, rows) in zip(
            zip(*table.values(), strict=True),
            result.trials[result.trials["alpha"] == alpha].groupby("learner", sort=False),
            strict=True,
        ):
            fdr, met = rows["fdr"].mean(), ~(rows["fdr"] > alpha)
            limit = np.ceil(1e4 * (alpha + rows["risk_bound"].mean() / (rows["answered"].mean() or np.nan))) / 1e4
            texts = f"{fdr:.2%}", f"{rows['answered'].mean() / 600:.1%}", f"{met.mean():.0%}", f"{limit:.2%}"
            assert row == (name, *("-" if "nan" in text else text for text in texts))


def test_a_profile_is_called_synthetic_and_its_user_has_a_log():
    """A sample of the profile stands for a log, from which a second aci-rank starts; with a log there is none."""
    result = run(Sweep(**SMALL, alphas=(0.1,)))
    assert result.summary().startswith("synthetic profile triviaqa-like: 2 trials of 600 questions\n\n")
    said = result.summary().split("\n* aci-rank-from-log ")[1]
    assert " The advice below starts from half of " in said
    assert "at alpha = 0.1: use aci-rank-from-log, started from a log of your model; " in said  # by the same name
    named = result.trials.set_index("learner")["warm_start"].dropna()
    assert named.to_dict() == {"aci-rank-from-log": "1,000 drawn rows of triviaqa-like"}
    of_log = run(Sweep(**SMALL, alphas=(0.1,)), [EASY]).summary()
    assert of_log.startswith("easy, 100 rows: 2 trials of 600 questions, each row 6 times, in random order\n\n")
    assert "aci-rank-from-log" not in of_log
    for fields, records in (({}, [EASY]), ({"warm_start": "0.5"}, None)):
        with pytest.raises(
            BadInput, match="aci-rank-from-log found; it starts from a sample of a built-in profile"
        ):
            run(Sweep(**SMALL, learners=("aci-rank-from-log",), **fields), records)


def test_theory_is_printed_on_request_and_lambda_if_there_are_several():
    """A block of rows for each alpha, in the order of the flags, with the regret and its bound as numbers."""
    result = run(Sweep(**SMALL, alphas=(0.2, 0.05), lambdas=(3, 20)))
    plain, table = result.summary(), table_of(result.summary(theory=True), "alpha")
    assert "lambda" in table_of(plain, "answered")
    shown = ["learner", "alpha", "lambda", "regret", "at most", "R_T", "of R_T"]
    alone = run(Sweep(**SMALL, learners=("exaul",))).summary(80, theory=True)
    assert "lambda" not in table_of(alone, "answered")
    assert list(table_of(alone, "alpha"))[:6] == ["learner", "alpha", *shown[3:6], "Lemma 1"]  # it has no limit
    assert "\n\nregret, R_T and bounds (lambda = 24.49, 20 thresholds of the grid uniform)\n\n" in alone
    assert alone.endswith("\n\nsimulated on cpu: cpu, float64: exaul on native")
    assert "regret" not in plain
    assert "with probability 0.95 per trial; -: none; > T: none below T\n" in result.summary(theory=True)
    trials = result.trials.sort_values("alpha", ascending=False, kind="stable")
    by_cell = trials.groupby(["alpha", "learner", "lambda"], sort=False)
    means, spreads = by_cell.mean(numeric_only=True), by_cell["regret"].std(ddof=0)
    assert table["alpha"] == ["0.20"] * 16 + ["0.05"] * 16
    assert table["regret"] == [f"{x:z.1f} ±{y:.1f}" for x, y in zip(means["regret"], spreads, strict=True)]
    bounds = np.ceil(means["regret_bound"])
    assert table["at most"] == ["-" if np.isnan(x) else f"{x:.0f}" if x <= 600 else "> T" for x in bounds]
    proven = table_of(plain, "answered")["(any sequence)"]  # of the first alpha
    of_fdr = table_of(result.summary(theory=True), "FDR at most")["FDR at most"]
    assert all(x in ("-", y) for x, y in zip(proven, of_fdr[:16], strict=True))
    assert table["Lemma 1"] == [f"{x:.0f}" for x in np.ceil(by_cell["lemma_bound"].max())]
    limits = by_cell["risk_bound"].max(skipna=False)
    assert table["of R_T"] == ["-" if np.isnan(x) else f"{np.ceil(x):.0f}" for x in limits]
    assert list(table_of(result.summary(80, theory=True), "alpha"))[:7] == shown


def test_a_broken_bound_is_counted_and_printed_without_theory():
    result = run(Sweep(**SMALL, learners=("exaul", "aci-rank")))
    trials, known = result.trials.copy(), result.trials["learner"] == "exaul"
    line = describe_checks(trials, 0.05)
    assert line == (
        "trials of all learners: Lemma 1 (which checks the arithmetic) held in all 4; the limit of R_T held in all "
        "2; the bound of the regret (with probability 0.95, where it is below T) held in all 2"
    )
    trials.loc[0, "regret"] = 2 * trials.loc[0, "regret_bound"]  # a larger regret cannot break the lemma
    assert print_report(replace(result, trials=trials), False) == 0  # it holds with a probability
    trials.loc[~known, ["fdr_risk", "feedback_risk", "feedback_risk_bound"]] = 600, 0, 0
    broken = replace(result, trials=trials).summary(80)
    text = " ".join(broken.split())
    assert "the limit of R_T is BROKEN in 2 of 2 (aci-rank at alpha = 0.05: 2)" in text
    assert table_of(broken, "answered")["(any sequence)"] == ["-", "BROKEN"]
    assert "that you claim" not in text
    mine = replace(result, trials=trials.replace("aci-rank", "my:rank")).summary()
    assert "certain where it is '-'. Your own learner has the limit that you claim.\n" in mine
    assert "(with probability 0.95, where it is below T) is BROKEN in 1 of 2 (exaul at alpha = 0.05: 1)" in text
    assert "  1/2 (1%-99%)\n" in replace(result, trials=trials).summary(theory=True)
    trials["lambda"], trials["fdr_risk"] = 1e9, trials["answered"] / 2
    trials.loc[0, "regret"] = 0.0
    assert "checks the arithmetic) is BROKEN in" in describe_checks(trials, 0.05)


@pytest.mark.parametrize(
    ("flags", "limits"),
    [
        ({}, ", each rated correctly and at once"),
        (
            {"delay": 20},
            ", while at most 20 answers wait for feedback and no feedback is more than 100,000 questions late",
        ),
        ({"delay": 20, "reserve": True}, ", while no feedback is more than 100,000 questions late"),
        ({"delay": 20, "reserve": True, "missing": "wrong"}, ""),
        ({"feedback_rate": 0.5, "missing": "wrong"}, ", while at most 600 answers wait for feedback"),
    ],
)
def test_a_bound_says_which_late_feedback_it_covers(flags, limits):
    """A mean delay limits nothing: 300 wrong answers whose feedback takes 2,000 questions, all others at once."""
    assert describe_waiting(Sweep(**flags).feedback, 600) == (limits if flags else "")
    if len(flags) < 2:
        said = run(Sweep(**SMALL, learners=("aci-rank",), **flags)).summary()
        limit = "after 600 questions, whatever they are and in whatever order, at most this share of the answers is"
        assert f"proven limit: {limit} wrong. It holds for as many answers as here{limits}. No limit is" in said
        assert "\nobserved: answers with feedback\n" in said or not flags
        assert "\nlearner: " not in said  # of feedback only what applies is explained


def test_the_summary_says_how_often_a_record_is_used():
    """By default a shift uses none twice; of a profile it is not said."""
    fields = {"trials": 1, "arms": 20, "learners": ("aci-rank",)}
    for horizon, times in ((None, "once"), (40, "at most once"), (250, "2.5 times")):
        said = f"easy, 100 rows: 1 trial of {horizon or 100} questions, each row {times}, in random order"
        assert said in run(Sweep(**fields, horizon=horizon), [EASY]).summary().splitlines()
    shift = run(Sweep(**fields, environment="single-shift"), [EASY, EASY.take(slice(30))])
    assert shift.manifest["sources"][0]["horizon"] == 60
    assert "each row" not in run(Sweep(**fields, horizon=20)).summary()


def test_a_table_for_a_paper(tmp_path):
    """With regrets and their bounds."""
    result = run(Sweep(**SMALL, learners=("aci-rank", "exaul", "ew"), lambdas=(1, 2.5), alphas=(0.05, 0.1)))
    result.write_tables(str(tmp_path))
    text = result.to_latex()
    assert (tmp_path / "table.tex").read_text() == text
    lines = text.splitlines()
    title = r"learner & $\lambda$ & FDR [\%] & answered [\%] & $R_T$ & its limit & regret & its bound \\"
    assert [lines[0], lines[7]] == ["% triviaqa-like: 2 trials of 600 rounds; 20 thresholds (uniform)", title]
    for first, alpha in ((9, 0.05), (17, 0.1)):
        assert lines[first - 1 : first + 1] == [
            r"\midrule",
            rf"\multicolumn{{8}}{{l}}{{$\alpha = {100 * alpha:.0f}\%$}} \\",
        ]
        cells = np.array([line.removesuffix(r" \\").split(" & ") for line in lines[first + 1 : first + 7]])
        assert [*cells[::2, 0]] == ["aci-rank", "exaul", "ew (full feedback)"]
        assert [*cells[:, 1]] == ["1.0", "2.5"] * 3
        exaul = result.trials.query(f"learner == 'exaul' and alpha == {alpha}").groupby("lambda")
        means, spreads = exaul.mean(numeric_only=True), exaul["regret"].std(ddof=0)
        for column, name, scale, digits in ((2, "fdr", 100, 2), (3, "answered", 100 / 600, 1)):
            values = zip(scale * means[name], scale * exaul[name].std(ddof=0), strict=True)
            star = [r"\rlap{*}" * (name == "fdr" and x > alpha) for x in means["fdr"]]
            shown = [rf"{x:.{digits}f} $\pm${y:.{digits}f}" for x, y in values]
            assert [*cells[2:4, column]] == [x + y for x, y in zip(shown, star, strict=True)]
        assert [*cells[2:4, 6]] == [rf"{x:.1f} $\pm${y:.1f}" for x, y in zip(means["regret"], spreads, strict=True)]
        assert [*cells[2:4, 7]] == [f"{np.ceil(bound):.0f}" for bound in means["regret_bound"]]
        assert {*cells[:2, 7]} == {"--"}
    assert as_latex(result.trials.assign(regret_bound=601), 0.05).count(r"& $> T$ \\") == 12
    named = as_latex(stack([result.trials, result.trials.assign(source="a_b")]), 0.05)
    assert named.count(r"{a\_b, $\alpha = 10\%$}") == named.count(r"{triviaqa-like, $\alpha = 10\%$}") == 1
    mine = result.trials.assign(learner="my_hedge:mine")
    assert "\nmine & " in replace(result, trials=mine).to_latex()
    assert [r"$\pm$" in text, r"[\%]" in text, "$-$" in text, "±" in text] == [True, True, True, False]
    assert r"\rlap{*}" in text
    assert r"\pm" not in as_latex(result.trials.query("trial == 0"), 0.05)
    for grid, start in (
        ({}, "and the start of aci-rank come from"),
        ({"grid": "uniform"}, "; aci-rank starts from"),
    ):
        started = run(Sweep(**SMALL | grid, learners=("aci-rank",), warm_start="0.5")).to_latex()
        assert f"{start} the other half of the log; " in started.splitlines()[0]


# Tables within a width: which columns are left out, what is cut, and that nothing else changes.

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
