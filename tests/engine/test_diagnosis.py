"""Each defect of a log is found in a log made to have it, and none in one that has none."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet
from scipy.stats import hypergeom

from exaul import BadInput
from exaul.commands.main import main
from exaul.engine.logs import files
from exaul.engine.logs.diagnosis import (
    WORDS,
    Categories,
    DifferingColumn,
    _pools,
    categories,
    diagnose,
    differing_columns,
    p_value_of,
)
from exaul.engine.logs.log import Layout, Records, load_log, load_rows
from exaul.kernels.metrics import best_coverage, every_threshold
from tests.processes import output_of

ROWS = 4000
IDS = np.arange(ROWS)
pytestmark = pytest.mark.usefixtures("in_folder")


def clean(seed=0):
    """Scores that are right as often as they say, and columns that change nothing."""
    rng = np.random.default_rng(seed)
    scores = rng.random(ROWS) ** 0.5
    error = (rng.random(ROWS) > scores).astype(int)
    prompt, id = np.array(["cot", "verb"])[rng.integers(0, 2, ROWS)], IDS
    return pd.DataFrame({"score": scores, "error": error, "prompt": prompt, "id": id})


def prompts_of_other_scores():
    """The scores of one prompt say nothing; both are wrong equally often."""
    table = clean()
    blind = table["prompt"] == "cot"
    return table.assign(score=table["score"].where(~blind, np.random.default_rng(1).random(ROWS) ** 0.25))


def wrong_tops():
    """Of the tenth with the highest scores, 98% are wrong."""
    table = clean().sort_values("score", ignore_index=True)
    table.loc[ROWS * 0.9 :, "error"] = (np.arange(ROWS // 10) % 50 > 0).astype(int)
    return table.sample(frac=1, random_state=0)


def later_is_harder():
    table = clean()
    return table.assign(error=table["error"].where(table.index < ROWS / 2, (table["error"] | table["id"] % 3 < 1)))


def later_scores_say_less():
    """The error rate stays; of the answers with high scores, more and more are wrong."""
    table, half = clean(), np.arange(ROWS) >= ROWS / 2
    return table.assign(score=table["score"].where(~half, np.random.default_rng(1).permutation(table["score"])))


def tied_at_one():
    """A fifth has the score 1, and 10.5% of them are wrong; of the others, at least 20%."""
    table = clean().assign(score=lambda table: table["score"] * 0.8)
    table["error"] = (np.random.default_rng(1).random(ROWS) > table["score"]).astype(int)
    table.loc[::5, "score"] = 1
    table.loc[::5, "error"] = (np.arange(ROWS // 5) * 21 % 200 < 21).astype(int)
    return table


DEFECTS = {  # a log, its only defects, and what the first sentence says
    "none": (clean, [], ""),
    "prompts of other scores": (
        prompts_of_other_scores,
        ["pools"],
        r"this log pools 2 values of prompt \(error rate 0\.\d+ to 0\.\d+; at alpha = 0\.\d+, a threshold for verb "
        r"alone answers [3-9]\d\.\d% of it, that for the whole log 0\.\d% of it\).*:\n  "
        r"exaul inspect log.csv --each prompt$",
    ),
    "one of 57 subjects is wrong more often": (
        lambda: clean().assign(subject=IDS % 57, error=lambda table: table["error"] | (table["subject"] == 3)),
        ["pools"],
        r"this log pools 57 values of subject \(error rate 0\.\d+ to 1\.000",
    ),
    "uncertainties": (
        lambda: clean().assign(score=lambda table: 1 - table["score"]),
        ["inverted"],
        r"the score is inverted: .* probability 0\.[12]\d, where chance is 0\.50\. Is it an uncertainty\?",
    ),
    "yes or no": (
        lambda: clean().assign(score=lambda table: (table["score"] > 0.7).astype(int)),
        ["coarse"],
        r"the score has only the values 0 and 1: a threshold answers all records, those with 1, or",
    ),
    "wrong tops": (
        wrong_tops,
        ["top"],
        r"of the 400 records that score at least 0\.9\d+, 98\.0% are wrong, of the next 800 \d.*; without them, "
        r"[1-9][\d.]+% would be answerable at alpha = 0\.2, now 0\.0%",
    ),
    "later is harder": (later_is_harder, ["drift"], r"the log drifts: [\d.]+% are wrong in its first 5 tenths, "),
    "one bad tenth": (
        lambda: clean().assign(error=lambda table: table["error"].where((IDS < 2400) | (IDS >= 2800), 1)),
        ["drift"],
        r"the log drifts: 100\.0% are wrong in tenth 7 of the log, 3\d\.\d% elsewhere",
    ),
    "later scores say less": (
        later_scores_say_less,
        ["drift"],
        r"the log drifts: of those that score at least 0\.\d+, [\d.]+% are wrong in its first 5 tenths, .*:\n  "
        r"exaul sweep --logs log.csv --alphas 0.05 --environment replay --warm-start 0.5$",
    ),
    "tied at one": (
        tied_at_one,
        ["ties"],
        r"above alpha = 0\.1: 800 records \(20\.0%\) share the score 1 and 10\.5% of them are wrong; .*; "
        r"--alphas 0\.105, the edge of these rows, answers 20\.2%",
    ),
    "half of the questions are asked twice, with other answers and scores": (
        lambda: clean().assign(id=IDS % (0.75 * ROWS)),
        ["repeats"],
        r"4000 rows ask 3\d+ questions \(column id",
    ),
    "half of the rows are there twice, and no column says so": (
        lambda: pd.concat([clean(), clean().head(ROWS // 2)]).drop(columns="id").sample(frac=1, random_state=0),
        ["repeats"],
        r"100\.0% of \d+ pairs of rows with one score have one label, [4-7]\d\.\d% of pairs",
    ),
}


def words_of_log(capsys):
    """The defects of the log, in the table of traces."""
    line = output_of(["inspect", "."], capsys).splitlines()[3]
    return [word for word in line.split() if word in WORDS]


@pytest.mark.parametrize("name", DEFECTS)
def test_each_defect_is_found_alone(name, capsys):
    make, words, first = DEFECTS[name]
    make().to_csv("log.csv", index=False)
    printed = output_of(["inspect", "log.csv"], capsys)
    found = printed.split("above 0.999")[1].split("\nthe lowest score to")[0].split("\n\n")[1:]
    assert len(found) == len(words), found
    assert re.search(first, "".join(found[:1]).strip()), found
    assert words_of_log(capsys) == words


@pytest.mark.parametrize("logs", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_no_defect_is_found_in_logs_without_one(logs):
    """1,000 logs of records drawn alike, with five columns, fail with probability 0.03 at most (union bound).

    30 tests per log: two of each column and 20 of drift, tops and repetitions together, each below 1e-6.
    """
    for seed in range(logs):
        rng = np.random.default_rng(seed)
        count = int(rng.choice([50, 300, 1000, 3000]))
        scores = rng.beta(*rng.uniform(0.3, 4, 2), count)
        scores = (scores, scores.round(2), np.where(rng.random(count) < 0.3, 1, scores), scores.round(1))[seed % 4]
        share = rng.random()
        wrong = rng.random(count) < share * (1 - scores) + (1 - share) * rng.uniform(0.02, 0.6)
        errors = wrong * (rng.choice([0.25, 0.5, 1], count) if seed % 5 == 0 else 1.0)
        columns = {
            f"{values} values": files.CategoryColumn(
                [f"{value}" for value in range(values)], rng.choice(values, count, p=rng.dirichlet(np.ones(values)))
            )
            for values in (2, 3, 5, 15, 50)
        }
        records = Records("log", scores, errors, 0, None)
        found = diagnose(
            ["x.csv"], Categories(columns, None, None), records, np.arange(count), (0.01, 0.05, 0.1, 0.2)
        )
        assert [one for one in found if one.word != "ties"] == [], seed


@pytest.mark.slow
def test_no_trace_of_the_real_logs_has_another_finding_than_drift_and_ties(data):
    words = set()
    for log in data.glob("*.csv.gz"):
        each = [name for name in ("dataset", "model", "prompt", "fold") if name in files.columns(log)]
        assert main(["inspect", str(log), "--each", *each, "--drop-missing", "--out", log.stem]) == 0
        words.update(*files.load(Path(log.stem) / "inspection.csv")["defects"].astype(str).str.split())
    assert words <= {"nan", "drift", "ties"}


def test_findings_come_in_order_of_importance(capsys):
    pools = prompts_of_other_scores()
    pd.concat([wrong_tops(), pools.assign(id=pools["id"] // 2)]).to_csv("log.csv", index=False)
    words = words_of_log(capsys)
    assert words == [word for word in WORDS if word in words]
    assert len(words) > 2


def test_a_table_of_all_traces(capsys):
    """Its shares are those of each trace alone, of a folder and of the values of a column."""
    Path("logs").mkdir()
    later_is_harder().to_csv("logs/a.csv", index=False)
    gaps = clean().assign(score_2=0.5)
    gaps.loc[:9, "score"] = None
    gaps.loc[gaps["prompt"] == "cot", "score_2"] = None
    gaps.rename(columns={"score": "score_1"}).to_parquet("logs/b.parquet")
    printed = output_of(["inspect", "logs", "--each", "prompt", "--alphas", "0.1", "0.3", "--out", "look"], capsys)
    table = files.load(Path("look/inspection.csv"))
    assert " ".join(table) == "trace records dropped error_rate answerable_0.1 answerable_0.3 defects"
    assert [path.name for path in Path("look").iterdir()] == ["inspection.csv"]
    names = [f"a:prompt={prompt}" for prompt in ("cot", "verb")]
    names += [f"b:prompt={prompt},by=score_{n}" for n in "12" for prompt in ("cot", "verb")]
    assert list(table["trace"]) == names
    lines = printed.splitlines()
    assert lines[0].endswith(", sorted by the mean over alphas")
    assert lines[2].split() == ["trace", "defects", "at", "0.1", "at", "0.3", "error", "rate", "rows"]
    assert sorted(line.split()[0] for line in lines[3:8]) == sorted(set(names) - {names[4]})  # which has no score
    assert "traces left out, without a score or a label: 1" in lines
    shares = [re.findall(r"[\d.]+(?=%)", line)[:2] for line in lines[3:8]]
    assert [sum(map(float, x)) for x in shares] == sorted((sum(map(float, x)) for x in shares), reverse=True)
    assert "drift: " in printed
    assert table["defects"].fillna("").tolist()[:3] == ["drift", "drift", ""]
    for row in table.head(4).to_dict("records"):
        where, layout = row["trace"].partition(",by=")[::2]
        path = where.replace("a:", "logs/a.csv:").replace("b:", "logs/b.parquet:")
        records = load_log(path, Layout(score=layout or "score", drop_missing=True))
        shares = [best_coverage(every_threshold(records.scores), *records[1:3], alpha) for alpha in (0.1, 0.3)]
        expected = [len(records.scores), records.dropped, records.errors.mean(), *shares]
        assert list(row.values())[1:6] == pytest.approx(expected)


def test_a_command_in_a_finding_names_the_columns(capsys):
    later_is_harder().rename(columns={"score": "score_a", "error": "wrong"}).to_csv("log.csv", index=False)
    assert main(["inspect", "log.csv", "--error", "wrong", "--score", "score_a", "--drop-missing"]) == 0
    command = "exaul sweep --logs log.csv --score score_a --error wrong --drop-missing --alphas 0.05 --environment"
    assert f"{command} replay --warm-start 0.5\n" in capsys.readouterr().out
    rows = pd.concat([wrong_tops().assign(model="x"), clean().assign(model="y")], ignore_index=True)
    rows.loc[0, "score"] = None
    rows.to_csv("rows.csv", index=False)
    printed = output_of(["inspect", "rows.csv", "--each", "model"], capsys)
    assert re.search("^y .*\nx +top ", printed, re.MULTILINE)  # the first has no defect
    assert "a defect, with its numbers: exaul inspect rows.csv:model=x --drop-missing\n" in printed
    assert "\nrows in brackets: left out, without a score or a label\n" in printed


@pytest.fixture
def table():
    """Errors that depend on the model alone: .2, .4, .6."""
    rng = np.random.default_rng(0)
    model = np.arange(ROWS) % 3
    error = (rng.random(ROWS) < 0.2 * (1 + model)).astype(int)
    columns = {
        "score": rng.random(ROWS),
        "error": error,
        "model": np.array(["a", "b, c", "ä"])[model],
        "fold": rng.integers(0, 5, ROWS),  # changes nothing
        "row": np.arange(ROWS),
        "text": [f"question {i}" for i in range(ROWS)],
        "logprob": rng.normal(size=ROWS),
        "score_2": np.where(error, 0.25, 0.75),
        "level": np.where(error + rng.integers(0, 2, ROWS) > 1, 0.5, 1.5),  # an amount
        "judged": np.where(error, "wrong", "right"),  # the label by another name
        "tag": np.where(np.arange(ROWS) < 29, "rare", "usual"),
        "empty": "",
        "half": np.where(np.arange(ROWS) % 2, "", np.array(["x", "y"])[model // 2]),
    }
    columns["error"][:29] = 1
    columns["judged"][:29] = "wrong"
    return pd.DataFrame(columns)


def write(path, table):
    nested = table.assign(nested=[[1, 2]] * len(table))
    if path.suffix == ".parquet":
        nested.to_parquet(path, row_group_size=1000)
    elif path.suffix == ".jsonl":
        nested.to_json(path, orient="records", lines=True)
    else:
        table.to_csv(path, index=False)
    return str(path)


def columns_of(log, layout=Layout()):  # noqa: B008
    records, rows = load_rows(log, layout)
    return differing_columns(categories(log, layout).columns, records, rows, [0.1, 0.2])


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.parquet"])
def test_only_columns_that_change_the_error_rate_are_reported(name, table, capsys):
    parts = output_of(["inspect", write(Path(name), table)], capsys).split("\n\n")
    (said,) = (part for part in parts if "pools" in part)
    low, high = (f"{f(table.groupby('model')['error'].mean()):.3f}" for f in (min, max))
    assert said.startswith(
        f"this log pools 3 values of model (error rate {low} to {high}), 2 values of half (error rate 0."
    )
    assert said.endswith(f"look at each with:\n  exaul inspect {name} --each model half")


def sides(rise):
    """A log of two sides, of which one is wrong more often."""
    rng, side = np.random.default_rng(0), np.arange(40_000) % 2
    error = (rng.random(40_000) < 0.3 + rise * side).astype(int)
    return pd.DataFrame({"score": rng.random(40_000), "error": error, "side": side})


def units(count):
    """Units, 20 of which are always wrong, and the others now and then."""
    rows, rng = np.arange(10_000), np.random.default_rng(0)
    error = (rows % count < 20) | (rows % 7 == 0)
    return pd.DataFrame({"score": rng.random(10_000), "error": error, "unit": rows % count})


ROWS_READ = {  # a log made of the table, what is selected of it, and the columns that are reported
    "within a model nothing differs": (lambda table: table, ":model=a", []),
    "within a half only models do": (lambda table: table, ":half=x", ["model"]),
    "rows without a score": (lambda table: table.assign(score=table["score"].where(table["model"] == "a")), "", []),
    "few rows": (lambda table: table.groupby("model").head(25), "", []),
    "a small difference": (lambda table: sides(0.04), "", []),
    "a larger one": (lambda table: sides(0.07), "", ["side"]),
    "an identifier": (lambda table: units(201), "", []),
    "as many values as a column may have": (lambda table: units(200), "", ["unit"]),
    "ratings, above or below their mean": (
        lambda table: table.drop(columns="judged").assign(error=table["error"] / 4 + 0.5),
        "",
        ["model", "half"],
    ),
}


@pytest.mark.parametrize("case", ROWS_READ)
def test_a_column_is_reported_for_the_rows_that_are_read(case, table):
    made, selected, columns = ROWS_READ[case]
    log = write(Path("x.csv"), made(table))
    found = columns_of(f"{log}{selected}", Layout(drop_missing=True))
    assert [one.name for one in found] == columns


def test_a_column_that_does_not_fit_the_memory_is_not_read(table, monkeypatch):
    """A long text that is there in every row takes little; as many different ones do not fit."""
    long = "p" * 100_000, "q" * 100_000
    table["prompt"] = [long[model == "a"] for model in table["model"]]
    table["page"] = [f"{i}" * 1000 for i in range(ROWS)]
    log = write(Path("x.parquet"), table)
    read, once = [], files._parquet_table
    monkeypatch.setattr(files, "host_memory", lambda: 2_000_000)
    monkeypatch.setattr(files, "_parquet_table", lambda stored, names: read.extend(names) or once(stored, names))
    assert "prompt" in [one.name for one in columns_of(log)]
    assert "fold" in read
    assert not {"page", "nested"} & set(read)


def test_a_column_that_cannot_be_read_is_left_out(table):
    """That of models is an index, which pandas keeps apart; bytes of another one are broken."""
    path = Path("x.parquet")
    write(path, table.set_index("model"))
    chunks = [parquet.read_metadata(path).row_group(0).column(i) for i in range(table.shape[1])]
    with path.open("r+b") as stream:
        stream.seek(next(chunk.dictionary_page_offset for chunk in chunks if chunk.path_in_schema == "half"))
        stream.write(b"\xff" * 30)
    with pytest.raises(BadInput, match="unreadable"):
        files.read(path, ["half"])
    assert [one.name for one in columns_of(str(path))] == ["model"]


def test_chance_is_that_of_fishers_exact_test_or_a_little_more():
    rng = np.random.default_rng(0)
    for every in rng.integers(1, 5000, 300):
        all_high, count = rng.integers(0, every + 1, 2)
        high = rng.integers(max(0, count + all_high - every), min(count, all_high) + 1)
        law = hypergeom(every, all_high, count)
        exact = min(1.0, 2 * min(law.cdf(high), law.sf(high - 1)))
        found = p_value_of(high, count, all_high, every)
        assert exact * (1 - 1e-9) <= found <= (1 if exact > 1e-5 else 1.06 * exact + 1e-300)


def test_a_value_that_answers_as_much_with_the_common_threshold_gains_nothing():
    """Values that are ranges of scores differ in what they answer, but need no threshold of their own."""
    rng = np.random.default_rng(0)
    scores = rng.random(ROWS)
    table = {"score": scores, "error": (rng.random(ROWS) > scores).astype(int), "range": scores > 0.7}
    (column,) = columns_of(write(Path("x.csv"), pd.DataFrame(table)))
    assert (column.name, "alone answers" in column.text) == ("range", False)


def test_many_columns_are_counted():
    said = _pools([DifferingColumn(name, 0.8, f"2 values of {name}") for name in "abcdef"])
    assert "c, 2 values of d, those of 2 more columns: what holds for all" in said


def test_rows_left_out_that_are_wrong_more_often_are_said(tmp_path, capsys):
    path = tmp_path / "log.csv"
    for missing, said in ((",1\n" * 30, True), (",0\n" * 15 + ",1\n" * 15, False)):
        path.write_text("score,error\n" + "0.9,0\n0.5,1\n" * 100 + missing)
        text = output_of(["inspect", str(path), "--drop-missing"], capsys)
        sentence = "30 rows without a score are left out, and 100.0% of them are wrong (50.0% of the others)"
        assert (sentence in text) == said
