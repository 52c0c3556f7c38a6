"""Sweeps over traces: each as if it ran alone, one table over all, and resumed to the same bits."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from exaul import BadInput, Sweep, merge, rerun, resume, run
from exaul.commands.main import main
from exaul.engine.folder import SweepFolder
from exaul.engine.logs import files
from exaul.engine.logs.log import Layout, load_log
from exaul.engine.logs.traces import load_traces, neighbours, short_names
from exaul.engine.results import figures
from exaul.engine.results.summary import summarize_traces
from exaul.kernels.metrics import best_coverage, every_threshold
from tests.engine.test_session import Stop, files_in, stop_at
from tests.processes import output_of

GAME = {"trials": 3, "horizon": 600, "arms": 20, "alphas": (0.1, 0.3), "checkpoints": 5}
GAME |= {"learners": ("exaul", "ew")}
FLAGS = ["--trials", "3", "--horizon", "600", "--arms", "20", "--alphas", "0.1", "0.3", "--checkpoints", "5"]
FLAGS += ["--learners", "exaul", "ew"]
pytestmark = pytest.mark.usefixtures("in_folder", "few_figures")


@pytest.fixture(autouse=True)
def _figures_are_not_rendered(monkeypatch):
    """A figure takes longer than a small game: its files have the dots that it shows."""

    def save(figure, path):
        shown = [(axes.get_title(), [x.get_offsets() for x in axes.collections]) for axes in figure.axes]
        for suffix in (".png", ".pdf"):
            path.with_name(path.name + suffix).write_text(str(shown))

    monkeypatch.setattr(figures, "save", save)


def write(path, seed=0, rows=300, **columns):
    """A log with two columns of scores, the second with holes, and of two models."""
    rng = np.random.default_rng(seed)
    score = rng.random(rows)
    table = pd.DataFrame({"score_a": score, "score_b": np.where(rng.random(rows) < 0.2, np.nan, score**2)})
    table["correct"] = (rng.random(rows) < score).astype(int)
    table["model"] = rng.choice(["m/1", "n 2"], rows)
    Path(path).parent.mkdir(exist_ok=True)
    table.assign(**columns).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("environment", ["stochastic", "gradual-shift"])
def test_each_trace_or_pair_runs_as_if_alone_and_again_from_the_manifest(environment):
    write("log.csv")
    game = GAME | {"environment": environment, "score": "score_b"}
    result = run(Sweep(logs="log.csv", each="model", out="out", **game))
    first, second = "log:model=m/1", "log:model=n 2"
    names = [first, second] if environment == "stochastic" else [f"{first} -> {second}"]
    assert [source["name"] for source in result.manifest["sources"]] == names
    for table in (result.trials, result.curves):
        assert table["source"].drop_duplicates().tolist() == names
    assert result.traces["trace"].drop_duplicates().tolist() == names
    dropped = sum(x["dropped"] for one in result.manifest["sources"] for x in one["records"])
    assert f"{dropped} rows without score or label left out" in result.summary()
    line = result.summary().splitlines()[2].split()
    assert ("nan" in line, line[2] == "-", line[4]) == (False, environment == "gradual-shift", f"{len(names)}")
    assert {p.stem for p in Path("out").glob("*.png")} == {"traces-by-learner"}
    before = files_in("out")
    assert main(["figures", "out"]) == 0
    assert {p.stem for p in Path("out").glob("*.png")} == {"traces-by-learner", "answered"}
    for name in names:
        alone = run(Sweep(logs=name.replace("log", "log.csv").split(" -> "), drop_missing=True, **game))
        for table, whole in ((alone.trials, result.trials), (alone.curves, result.curves)):
            here = whole[whole["source"] == name].reset_index(drop=True)
            pd.testing.assert_frame_equal(here, table, check_exact=True)
    rerun("out", out="again")
    assert files_in("again") == before


def test_the_table_over_all_is_made_of_those_of_the_traces():
    write("log.csv")
    result = run(Sweep(logs="log.csv", each="model", score="score_a", grid="logit", out="out", **GAME))
    assert len(result.traces) == 2 * 2 * 2
    pd.testing.assert_frame_equal(files.load(Path("out/traces.csv")), result.traces, check_exact=True)
    for row in result.traces.to_dict("records"):
        records = load_log(row["trace"].replace("log", "log.csv"), Layout(score="score_a"))
        assert (row["records"], row["error_rate"]) == (len(records.scores), records.errors.mean())
        trials = files.load(Path("out/trials.csv"))
        here = trials[(trials["learner"] == row["learner"]) & (trials["alpha"] == row["alpha"])]
        here = here[here["source"] == row["trace"]]
        share = here["answered"] / 600
        best = best_coverage(every_threshold(records.scores), records.scores, records.errors, row["alpha"])
        expected = {
            "lambda": 600**0.5,
            "horizon": 600,
            "trials": 3,
            "answered": share.mean(),
            "answerable": best,
            "of_answerable": np.minimum(share / best, 1).mean() if best else np.nan,
            "fdr": here["fdr"].mean(),
            "fdr_within_01": here["fdr"].mean() <= row["alpha"] + 0.01,
            "fdr_risk": here["fdr_risk"].mean(),
            "regret": here["regret"].mean(),
            "regret_bound": here["regret_bound"].mean(),
            "risk_bound": np.nan,
        }
        np.testing.assert_allclose([row[name] for name in expected], list(expected.values()), rtol=1e-12)
    assert {p.suffix for p in Path("out").glob("traces*")} == {".csv", ".png", ".pdf"}
    assert result.lemma_holds
    assert result.risk_holds


def test_the_table_over_all_has_the_advice_for_each_trace():
    """Right answers score above wrong ones in the first log; in the second, nothing can be answered."""
    write("logs/a.csv", rows=4_000)
    write("logs/b.csv", correct=0)
    write("logs/c.csv", rows=30)
    game = GAME | {"learners": ("aci-rank",), "alphas": (0.3,), "score": "score_a"}
    result = run(Sweep(logs="logs", out="out", **game))
    assert result.traces.set_index("trace")["advised"].to_dict() == {"a": "aci-rank", "b": "none", "c": "none"}
    assert files.load(Path("out/advice.csv"))["advised"].tolist() == [1, 0, 0, 0, 0, 0]
    assert "to use at alpha = 0.3, of 3 traces: aci-rank on 1 (a); none advised on 2 (b; c)\n" in result.summary()
    assert " -0 " not in summarize_traces(result.traces.assign(fdr_risk=-0.3), by_lambda=False)


def test_logs_of_a_folder_are_sorted_and_have_distinct_names(capsys):
    write("logs/b.csv", 1)
    write("logs/a.csv.gz", 2)
    pd.read_csv(write("logs/c.csv", 3)).to_parquet("logs/c.parquet")
    Path("logs/c.csv").rename("logs/.hidden.csv")
    pd.read_csv(write("logs/B.csv", 4, dataset="d")).to_json("logs/b.jsonl", orient="records", lines=True)
    Path("logs/B.csv").unlink()
    Path("logs/README.md").write_text("no log")
    write("logs/deep.csv/inner.csv")
    assert main(["sweep", *FLAGS, "--logs", "logs", "--each", "dataset", "--out", "out"]) == 0
    found = files.load(Path("out/traces.csv"))["trace"].drop_duplicates().tolist()
    stems = ["a", "b", "b:dataset=d", "c"]
    assert found == [f"{s}{',' if ':' in s else ':'}by=score_{x}" for s in stems for x in "ab"]
    text, progress = capsys.readouterr()
    assert "traces: 8" in text
    assert [line.split(":")[0] for line in progress.splitlines()] == [f"trace {i} of 8" for i in range(1, 9)]
    traces = json.loads(Path("out/manifest.json").read_text())["sources"]
    dropped = [records["dropped"] for one in traces for records in one["records"]]
    assert dropped[0] == 0 < dropped[1]
    assert f"{sum(dropped)} rows without score or label left out" in text


def test_a_shift_is_played_from_each_trace_to_the_next_of_its_kind():
    """Of one log and dataset, from model to model; without columns, from log to log with the same scores."""
    for name in "ab":
        write(f"logs/{name}.csv", dataset=["d", "e"] * 150, model=[*"xxyyzz"] * 50)

    def names(each, *logs):
        long = [trace for log in logs for trace in load_traces(log, Layout(score="score_"), each)]
        return [
            " -> ".join(one.records.name.replace("by=score_", "") for one in pair)
            for pair in neighbours(long, each, 2)
        ]

    both = names(("dataset", "model"), "logs/a.csv", "logs/b.csv")
    chains = [(log, d, s, pair) for log in "ab" for s in "ab" for d in "de" for pair in ("xy", "yz")]
    assert both == [" -> ".join(f"{log}:dataset={d},model={x},{s}" for x in pair) for log, d, s, pair in chains]
    assert names((), "logs/a.csv", "logs/b.csv") == [f"a:{s} -> b:{s}" for s in "ab"]
    assert names(("none",), "logs/a.csv", "logs/b.csv") == []
    halves = [f"logs/a.csv:dataset={d}" for d in "de"]
    assert sorted(names(("model",), *halves)) == sorted(both[:8])
    logs = [write("more/a.csv"), write("other/a.csv", 1)]
    game = GAME | {"environment": "alternating-shift", "score": "score_a"}
    result = run(Sweep(logs=["more", "other"], out="out", **game))
    row = result.traces.iloc[0]
    assert (row["trace"], row["records"]) == ("a -> a (2)", 600)
    assert run(Sweep(logs=logs, **game)).trials.equals(files.load(Path("out/trials.csv")))
    assert set(run(Sweep(logs=[logs[0]] * 2, **game)).trials["source"]) == {"a -> a"}  # one file, one name
    both = [load_log(log, Layout(score="score_a")) for log in logs]
    assert row["error_rate"] == np.concatenate([x.errors for x in both]).mean()
    best = [best_coverage(every_threshold(x.scores), x.scores, x.errors, row["alpha"]) for x in both]
    assert row["answerable"] == pytest.approx(np.mean(best))


def test_a_column_of_the_very_name_is_the_score():
    write("log.csv", score=0.5)
    assert [trace.score for trace in load_traces("log.csv", Layout(), [])] == ["score"]
    write("log.csv", correct=[0, 1, None] * 100)
    found = load_traces("log.csv:model=m/1", Layout(), ["model"])
    assert [(trace.log, trace.score) for trace in found] == [("log.csv:model=m/1", f"score_{x}") for x in "ab"]
    for trace in found:
        again = load_log(trace.log, Layout(score=trace.score, drop_missing=True))
        assert again[3:] == trace.records[3:]
        np.testing.assert_array_equal(again[1:3], trace.records[1:3])


def test_names_do_not_repeat_themselves():
    """What all traces share, and what the name of the log says, is left out, unless two names would be the same."""
    write("f538_mlb_games.csv", dataset="mlb_games", model="538")
    write("f538_nba.csv", dataset="basketball", model="538")
    write("MLB Games.csv", dataset="mlb_games")
    write("more/MLB Games.csv", dataset="baseball", model="538")
    both = [f"{name}.csv" for name in ("f538_mlb_games", "f538_nba", "MLB Games", "more/MLB Games")]

    def names(logs, score, *each):
        return short_names([trace for log in logs for trace in load_traces(log, Layout(score=score), each)], each)

    assert names(both[:2], "score_a", "dataset", "model") == ["f538_mlb_games", "f538_nba:dataset=basketball"]
    assert names(both[1:2], "score_a", "dataset") == ["f538_nba"]
    assert names(both[:1], "score", "dataset") == ["f538_mlb_games:by=score_a", "f538_mlb_games:by=score_b"]
    assert names(both[2:], "score_a", "dataset") == ["MLB Games", "MLB Games:dataset=baseball"]
    assert names(both[1:3], "score_a", "model") == ["f538_nba", "MLB Games:model=m/1", "MLB Games:model=n 2"]
    for folder, dataset in (("x", "nq"), ("y", "NQ")):
        write(f"{folder}/nq.csv", dataset=dataset)
    assert names(["x/nq.csv", "y/nq.csv"], "score_a", "dataset") == ["nq:dataset=nq", "nq:dataset=NQ"]
    alike = [f"{both[2]}:model=m/1", f"{both[2]}:model=n 2"]
    assert names(alike, "score_a") == [log.replace(".csv", "") for log in alike]
    assert names([f"{both[1]}:model=538"], "score_a", "dataset") == ["f538_nba"]
    assert names([f"{both[2]}:model=m/1"], "score_a", "dataset") == ["MLB Games:model=m/1"]  # not in its name


def test_names_of_traces_are_distinct():
    models = ["a/b", "a b", "A?B", "..", "x" * 300, "x" * 300 + "y", "é", ""]
    pd.DataFrame({"score": 0.5, "error": 0, "model": models}).to_csv("log.csv", index=False)
    result = run(Sweep(logs=["log.csv", "log.csv"], each="model", **GAME))
    assert result.trials["source"].nunique() == result.traces["trace"].nunique() == 16


def test_stopped_again_and_again_it_comes_to_the_same_bits(monkeypatch, capsys):
    write("logs/a.csv")
    write("logs/b.csv", 1)
    argv = ["sweep", *FLAGS, "--logs", "logs", "--each", "model", "--score", "score_a", "--progress", "json"]
    argv += ["--horizon", "1300"]  # two chunks, and so a save between them
    table = output_of([*argv, "--out", "whole"], capsys).replace("whole", "out")
    ends = []

    def stopped(name):
        real = getattr(SweepFolder, name)

        def method(self, *given):
            real(self, *given)
            ends.append(name)
            raise Stop

        return method

    with monkeypatch.context() as patch:
        patch.setattr("exaul.engine.simulation.chunks.CHUNK", 2**9)
        for name in ("save_state", "save"):
            patch.setattr(SweepFolder, name, stopped(name))
        stop = [*argv, "--out", "out"]
        while ends.count("save") < 3:
            with pytest.raises(Stop):
                main([*stop, "--save-every", "0"])
            stop = ["sweep", "--resume", "out"]
    assert ends.count("save_state") >= 3
    done = {p: p.stat().st_mtime_ns for p in Path("out").glob("batches/*.npz")}
    assert len(done) == 3
    capsys.readouterr()
    printed = output_of(["sweep", "--resume", "out", "--dry-run"], capsys)
    assert printed.startswith("traces    4, 3 of them finished; below is the largest, b:model=n 2\n")
    assert {p: p.stat().st_mtime_ns for p in done} == done
    assert output_of(["sweep", "--resume", "out"], capsys) == table
    assert files_in("out") == files_in("whole")
    assert "nothing to resume" in output_of(["sweep", "--resume", "out"], capsys)


def test_shards_in_any_order_merge_to_the_whole(capsys):
    write("logs/a.csv", rows=400)
    write("logs/b.csv", 1)
    argv = ["sweep", *FLAGS, "--logs", "logs", "--score", "score_a"]
    table = output_of([*argv, "--out", "whole"], capsys).replace("whole", "merged")
    for i in (1, 2, 3):
        assert main([*argv, "--shard", f"{i}/3", "--out", f"{i}"]) == 0
    capsys.readouterr()
    unused = "--theory: over traces no regrets are printed; traces.csv has them\n\n"
    printed = output_of(["merge", "3", "1", "2", "--out", "merged", "--theory"], capsys)
    assert printed == table.replace("tables, figures", f"{unused}tables, figures")
    assert files_in("merged") == files_in("whole")
    for wrong, words in (("31", "1 is missing"), ("12", "2 is missing"), ("3123", "2 is given twice")):
        assert main(["merge", *wrong, "--out", "no"]) == 1
        assert f"trial {words}" in capsys.readouterr().err
        assert not Path("no").exists()
    Path("2/traces.csv").unlink()
    assert main(["merge", "2", "3", "1"]) == 2
    assert "2/traces.csv: no such file" in capsys.readouterr().err
    with pytest.raises(BadInput, match="shards: none given"):
        merge([])


def test_resuming_after_a_change_is_refused():
    write("logs/a.csv")
    stop_at(SweepFolder, "save", GAME | {"logs": "logs", "each": "model"}, "out")
    with pytest.raises(BadInput, match=r"each is \['dataset'\] here, \['model'\] in out"):
        resume("out", {"each": "dataset"})
    write("logs/b.csv", 5)
    with pytest.raises(BadInput, match="sources: 5: name is 'b:model=m/1,by=score_a' here, None there"):
        resume("out")
    Path("logs/b.csv").unlink()
    write("logs/a.csv", 7)
    with pytest.raises(BadInput, match="sources: 1: records: 1: "):
        resume("out")
    with pytest.raises(BadInput, match="out: not finished; continue with"):
        merge(["out"])


def test_replay_runs_each_trace_to_its_end(capsys):
    write("log.csv", rows=2400)
    game = ["sweep", *FLAGS[:2], *FLAGS[4:], "--logs", "log.csv", "--each", "model", "--score", "score_a"]
    assert main([*game, "--environment", "replay", "--least", "1201", "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("traces    1 (1 with fewer than 1201 records left out); below is")
    game = GAME | {"horizon": None, "environment": "replay"}
    result = run(Sweep(logs="log.csv", each="model", score="score_a", **game))
    assert (result.traces["horizon"] == result.traces["records"]).all()
    assert result.traces["lambda"].nunique() == 2
    assert repr(result) == "Result(2 learners, 3 trials of 1,173 to 1,227 rounds; .summary(), .trials, .curves)"
    assert "lambda" not in result.summary()


def test_real_logs(data):
    logs = [f"{data}/{name}.csv.gz" for name in ("sklearn-digits", "selfconsistency-wikibio")]
    result = run(Sweep(logs=logs, each=("dataset", "model"), least=959, **GAME))
    assert result.traces["trace"].nunique() == 4 + 2  # of the last column of scores three rows are empty
    assert result.manifest["left_out"] == 1
    assert "3 rows" not in result.summary()
    assert result.lemma_holds
