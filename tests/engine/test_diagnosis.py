"""Each defect of a log is found in a log made to have it, and none in one that has none."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from exaul.commands.main import main
from exaul.engine.logs import files
from exaul.engine.logs.diagnosis import WORDS, Categories, diagnose
from exaul.engine.logs.log import Layout, Records, load_log
from exaul.kernels.metrics import best_coverage, every_threshold

ROWS = 4000


@pytest.fixture(autouse=True)
def _in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def clean(seed=0):
    """Scores that are right as often as they say, and columns that change nothing."""
    rng = np.random.default_rng(seed)
    scores = rng.random(ROWS) ** 0.5
    error = (rng.random(ROWS) > scores).astype(int)
    prompt, id = np.array(["cot", "verb"])[rng.integers(0, 2, ROWS)], np.arange(ROWS)
    return pd.DataFrame({"score": scores, "error": error, "prompt": prompt, "id": id})


def prompts_of_other_scores():
    """The scores of one prompt say nothing; both are wrong equally often."""
    table = clean()
    blind = table["prompt"] == "cot"
    return table.assign(score=table["score"].where(~blind, np.random.default_rng(1).random(ROWS) ** 0.25))


def many_subjects():
    """One of 57 subjects is wrong more often."""
    table = clean().assign(subject=lambda table: table["id"] % 57)
    return table.assign(error=table["error"] | (table["subject"] == 3))


def uncertainties():
    return clean().assign(score=lambda table: 1 - table["score"])


def yes_or_no():
    return clean().assign(score=lambda table: (table["score"] > 0.7).astype(int))


def wrong_tops():
    """Of the tenth with the highest scores, 98% are wrong."""
    table = clean().sort_values("score", ignore_index=True)
    table.loc[ROWS * 0.9 :, "error"] = (np.arange(ROWS // 10) % 50 > 0).astype(int)
    return table.sample(frac=1, random_state=0)


def later_is_harder():
    table = clean()
    return table.assign(error=table["error"].where(table.index < ROWS / 2, (table["error"] | table["id"] % 3 < 1)))


def one_bad_tenth():
    table = clean()
    return table.assign(error=table["error"].where((table["id"] < 2400) | (table["id"] >= 2800), 1))


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


def asked_again():
    """Half of the questions are asked twice, with other answers and scores."""
    return clean().assign(id=lambda table: table["id"] % (0.75 * ROWS))


def scores_again():
    """Half of the rows are there twice; no column says so."""
    table = clean().drop(columns="id")
    return pd.concat([table, table.head(ROWS // 2)]).sample(frac=1, random_state=0)


DEFECTS = {  # log: its only defects, and what the first sentence says
    clean: ([], ""),
    prompts_of_other_scores: (
        ["pools"],
        r"this log pools 2 values of prompt \(error rate 0\.\d+ to 0\.\d+; at alpha = 0\.\d+, a threshold for verb "
        r"alone answers [3-9]\d\.\d% of it, that for the whole log 0\.\d% of it\).*:\n  "
        r"exaul inspect log.csv --each prompt$",
    ),
    many_subjects: (
        ["pools"],
        r"this log pools 57 values of subject \(error rate 0\.\d+ to 1\.000",
    ),
    uncertainties: (
        ["inverted"],
        r"the score is inverted: .* probability 0\.[12]\d, where chance is 0\.50\. Is it an uncertainty\?",
    ),
    yes_or_no: (
        ["coarse"],
        r"the score has only the values 0 and 1: a threshold answers all records, those with 1, or",
    ),
    wrong_tops: (
        ["top"],
        r"of the 400 records that score at least 0\.9\d+, 98\.0% are wrong, of the next 800 \d.*; without them, "
        r"[1-9][\d.]+% would be answerable at alpha = 0\.2, now 0\.0%",
    ),
    later_is_harder: (["drift"], r"the log drifts: [\d.]+% are wrong in its first 5 tenths, [\d.]+% elsewhere"),
    one_bad_tenth: (["drift"], r"the log drifts: 100\.0% are wrong in tenth 7 of the log, 3\d\.\d% elsewhere"),
    later_scores_say_less: (
        ["drift"],
        r"the log drifts: of those that score at least 0\.\d+, [\d.]+% are wrong in its first 5 tenths, .*:\n  "
        r"exaul sweep --logs log.csv --environment replay$",
    ),
    tied_at_one: (
        ["ties"],
        r"above alpha = 0\.1: 800 records \(20\.0%\) share the score 1 and 10\.5% of them are wrong; .*; "
        r"--alphas 0\.105 answers 20\.2%",
    ),
    asked_again: (["repeats"], r"4000 rows ask 3\d+ questions \(column id"),
    scores_again: (
        ["repeats"],
        r"100\.0% of \d+ pairs of rows with one score have one label, [4-7]\d\.\d% of pairs",
    ),
}


@pytest.mark.parametrize("make", DEFECTS, ids=lambda make: make.__name__)
def test_each_defect_is_found_alone(make, capsys):
    make().to_csv("log.csv", index=False)
    words, first = DEFECTS[make]
    assert main(["inspect", "log.csv"]) == 0
    found = capsys.readouterr().out.split("above 0.999")[1].split("\nthe lowest score to")[0].split("\n\n")[1:]
    assert len(found) == len(words), found
    assert re.search(first, "".join(found[:1]).strip()), found
    assert main(["inspect", "log.csv", "--each", "none"]) == 0
    line = capsys.readouterr().out.splitlines()[3]
    assert [word for word in line.split() if word in WORDS] == words


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
        words |= {
            word for row in files.load(Path(log.stem) / "inspection.csv")["defects"] for word in str(row).split()
        }
    assert words <= {"nan", "drift", "ties"}


def test_findings_come_in_order_of_importance(capsys):
    top, pools = wrong_tops(), prompts_of_other_scores()
    table = pd.concat([top, pools.assign(id=pools["id"] // 2)])
    table.to_csv("log.csv", index=False)
    assert main(["inspect", "log.csv", "--each", "none"]) == 0
    words = [word for word in capsys.readouterr().out.splitlines()[3].split() if word in WORDS]
    assert words == [word for word in WORDS if word in words]
    assert len(words) > 2


def test_a_command_in_a_finding_names_the_columns(capsys):
    later_is_harder().rename(columns={"score": "score_a", "error": "wrong"}).to_csv("log.csv", index=False)
    assert main(["inspect", "log.csv", "--error", "wrong", "--score", "score_a", "--drop-missing"]) == 0
    flags = "--score score_a --error wrong --drop-missing"
    assert f"exaul sweep --logs log.csv {flags} --environment replay\n" in capsys.readouterr().out


def test_a_table_of_all_traces(capsys):
    """Its shares are those of each trace alone, of a folder and of the values of a column."""
    Path("logs").mkdir()
    later_is_harder().to_csv("logs/a.csv", index=False)
    gaps = clean().assign(score_2=0.5)
    gaps.loc[:9, "score"] = None
    gaps.loc[gaps["prompt"] == "cot", "score_2"] = None
    gaps.rename(columns={"score": "score_1"}).to_parquet("logs/b.parquet")
    assert main(["inspect", "logs", "--each", "prompt", "--alphas", "0.1", "0.3", "--out", "look"]) == 0
    printed = capsys.readouterr().out
    table = files.load(Path("look/inspection.csv"))
    assert list(table) == [
        "trace",
        "records",
        "dropped",
        "error_rate",
        "answerable_0.1",
        "answerable_0.3",
        "defects",
    ]
    assert [path.name for path in Path("look").iterdir()] == ["inspection.csv"]
    names = [f"a:prompt={prompt}" for prompt in ("cot", "verb")]
    names += [f"b:prompt={prompt},by=score_{n}" for n in "12" for prompt in ("cot", "verb")]
    assert list(table["trace"]) == names
    lines = printed.splitlines()
    assert lines[2].split() == ["trace", "defects", "at", "0.1", "at", "0.3", "error", "rate", "rows"]
    assert sorted(line.split()[0] for line in lines[3:8]) == sorted(name for name in names if name != names[4])
    shares = [re.findall(r"[\d.]+(?=%)", line)[:2] for line in lines[3:8]]
    assert [sum(map(float, x)) for x in shares] == sorted((sum(map(float, x)) for x in shares), reverse=True)
    assert lines[9] == "left out, without a row that has score and label: 1"
    assert "drift: " in printed
    assert table["defects"].fillna("").tolist()[:3] == ["drift", "drift", ""]
    for row in table.head(4).to_dict("records"):
        where, layout = row["trace"].partition(",by=")[::2]
        path = where.replace("a:", "logs/a.csv:").replace("b:", "logs/b.parquet:")
        records = load_log(path, Layout(score=layout or "score", drop_missing=True))
        shares = [best_coverage(every_threshold(records.scores), *records[1:3], alpha) for alpha in (0.1, 0.3)]
        expected = [len(records.scores), records.dropped, records.errors.mean(), *shares]
        assert list(row.values())[1:6] == pytest.approx(expected)


def test_several_scores_show_their_defects(capsys):
    wrong_tops().rename(columns={"score": "score_a"}).assign(score_b=0.5).to_csv("log.csv", index=False)
    assert main(["inspect", "log.csv"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("score")]
    assert [line.split()[0] for line in lines] == ["score", "score_a", "score_b"]
    assert ["top" in line.split() for line in lines] == [False, True, False]
