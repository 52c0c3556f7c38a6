"""Columns of few values that change the error rate are reported: the log pools several sources."""

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet
from scipy.stats import hypergeom

from exaul import BadInput
from exaul.commands.main import main
from exaul.engine.logs import files
from exaul.engine.logs.diagnosis import PooledColumn, _pools, categories, chance, pooled
from exaul.engine.logs.log import Layout, load_rows

ROWS = 4000


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
    if path.suffix == ".parquet":
        table.assign(nested=[[1, 2]] * len(table)).to_parquet(path, row_group_size=1000)
    elif path.suffix == ".jsonl":
        table.assign(nested=[[1, 2]] * len(table)).to_json(path, orient="records", lines=True)
    else:
        table.to_csv(path, index=False)
    return str(path)


def columns_of(log, layout=Layout()):  # noqa: B008
    records, rows = load_rows(log, layout)
    return pooled(categories(log, layout).columns, records, rows, [0.1, 0.2])


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.jsonl", "x.parquet"])
def test_only_columns_that_change_the_error_rate_are_reported(name, table, tmp_path):
    found = columns_of(write(tmp_path / name, table))
    assert [(one.column, one.values) for one in found] == [("model", 3), ("half", 2)]
    rates = table.groupby("model")["error"].mean()
    assert found[0][2:4] == (rates.min(), rates.max())


def test_rows_that_were_not_read_do_not_count(table, tmp_path):
    log = write(tmp_path / "x.csv", table)
    assert columns_of(f"{log}:model=a") == []  # within which nothing differs
    assert [one.column for one in columns_of(f"{log}:half=x")] == ["model"]
    table["score"] = table["score"].where(table["model"] == "a")
    assert columns_of(write(tmp_path / "y.csv", table), Layout(drop_missing=True)) == []


def test_a_small_difference_or_one_of_few_rows_is_none(table, tmp_path):
    few = table.groupby("model").head(25)
    assert columns_of(write(tmp_path / "few.csv", few)) == []
    rng = np.random.default_rng(0)
    side = np.arange(40_000) % 2
    near = {
        "score": rng.random(40_000),
        "error": (rng.random(40_000) < 0.3 + 0.04 * side).astype(int),
        "side": side,
    }
    assert columns_of(write(tmp_path / "near.csv", pd.DataFrame(near))) == []
    near["error"] = rng.random(40_000) < 0.3 + 0.07 * side
    assert [one.column for one in columns_of(write(tmp_path / "far.csv", pd.DataFrame(near)))] == ["side"]


def test_a_column_of_51_values_is_an_identifier(table, tmp_path):
    table["unit"] = np.arange(ROWS) % 51
    table["error"] = (table["unit"] < 20).astype(int)
    assert "unit" not in [one.column for one in columns_of(write(tmp_path / "x.csv", table))]
    table["unit"] = table["unit"].clip(upper=49)
    table.loc[::7, "error"] = 1
    assert "unit" in [one.column for one in columns_of(write(tmp_path / "x.csv", table))]


def test_a_column_that_does_not_fit_the_memory_is_not_read(table, tmp_path, monkeypatch):
    """A long text that is there in every row takes little; as many different ones do not fit."""
    long = "p" * 100_000, "q" * 100_000
    table["prompt"] = [long[model == "a"] for model in table["model"]]
    table["page"] = [f"{i}" * 1000 for i in range(ROWS)]
    log = write(tmp_path / "x.parquet", table)
    read, once = [], files._parquet_table
    monkeypatch.setattr(files, "host_memory", lambda: 2_000_000)
    monkeypatch.setattr(files, "_parquet_table", lambda stored, names: read.extend(names) or once(stored, names))
    assert "prompt" in [one.column for one in columns_of(log)]
    assert "fold" in read
    assert not {"page", "nested"} & set(read)


def test_a_column_that_cannot_be_read_is_left_out(table, tmp_path):
    """That of models is an index, which pandas keeps apart; bytes of another one are broken."""
    path = tmp_path / "x.parquet"
    write(path, table.set_index("model"))
    chunks = [parquet.read_metadata(path).row_group(0).column(i) for i in range(table.shape[1])]
    with path.open("r+b") as stream:
        stream.seek(next(chunk.dictionary_page_offset for chunk in chunks if chunk.path_in_schema == "half"))
        stream.write(b"\xff" * 30)
    with pytest.raises(BadInput, match="unreadable"):
        files.read(path, ["half"])
    assert [one.column for one in columns_of(str(path))] == ["model"]


def test_chance_is_that_of_fishers_exact_test_or_a_little_more():
    rng = np.random.default_rng(0)
    for every in rng.integers(1, 5000, 300):
        all_high, count = rng.integers(0, every + 1, 2)
        high = rng.integers(max(0, count + all_high - every), min(count, all_high) + 1)
        law = hypergeom(every, all_high, count)
        exact = min(1.0, 2 * min(law.cdf(high), law.sf(high - 1)))
        found = chance(high, count, all_high, every)
        assert exact * (1 - 1e-9) <= found <= (1 if exact > 1e-5 else 1.06 * exact + 1e-300)


def test_ratings_are_tested_as_above_or_below_their_mean(table, tmp_path):
    table["error"] = table["error"] / 4 + 0.5
    found = columns_of(write(tmp_path / "x.csv", table.drop(columns="judged")))
    assert [one.column for one in found] == ["model", "half"]
    assert found[0].highest == pytest.approx(table.groupby("model")["error"].mean().max())


def test_inspect_says_what_a_log_pools(table, tmp_path, capsys):
    assert main(["inspect", write(tmp_path / "x.csv", table)]) == 0
    said = next(part for part in capsys.readouterr().out.split("\n\n") if "pools" in part)
    low, high = (f"{f(table.groupby('model')['error'].mean()):.3f}" for f in (min, max))
    assert said.startswith(f"this log pools 3 values of model (error rate {low} to {high}), 2 of half (0.")
    assert said.endswith(f"look at each with:\n  exaul inspect {tmp_path / 'x.csv'} --each model half")
    assert main(["inspect", f"{tmp_path / 'x.csv'}:model=a"]) == 0
    assert "pools" not in capsys.readouterr().out


def test_a_value_that_answers_as_much_with_the_common_threshold_gains_nothing(tmp_path):
    """Values that are ranges of scores differ in what they answer, but need no threshold of their own."""
    rng = np.random.default_rng(0)
    scores = rng.random(ROWS)
    table = {"score": scores, "error": (rng.random(ROWS) > scores).astype(int), "range": scores > 0.7}
    (column,) = columns_of(write(tmp_path / "x.csv", pd.DataFrame(table)))
    assert (column.column, column.gain) == ("range", None)


def test_many_columns_are_counted():
    many = [PooledColumn(f"c{i}", 2, 0.1, 0.9, None) for i in range(6)]
    said = _pools([*many[:3], PooledColumn("b", 2, 0.1, 0.9, None), *many[4:]])
    assert "2 of b (0.100 to 0.900), those of 2 more columns: what holds for all" in said
