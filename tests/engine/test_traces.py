"""Sweeps over traces: each as if it ran alone, one table over all, and resumed to the same bits."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from exaul import BadInput, Sweep, merge, rerun, resume, resume_traces, run, run_traces
from exaul.commands.main import main
from exaul.engine.job import SweepJob
from exaul.engine.logs import files
from exaul.engine.logs.log import Layout, load_log
from exaul.engine.logs.traces import load_traces, neighbours, short_names
from exaul.engine.results import figures
from exaul.engine.results.run_folder import RunFolder
from exaul.kernels.coverage import best_coverage

GAME = {"trials": 3, "horizon": 600, "arms": 20, "alphas": (0.1, 0.3), "checkpoints": 5}
GAME |= {"learners": ("exaul", "ew")}
FLAGS = ["--trials", "3", "--horizon", "600", "--arms", "20", "--alphas", "0.1", "0.3", "--checkpoints", "5"]
FLAGS += ["--learners", "exaul", "ew"]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    """Each test stands in a folder of its own; the figures of a trace are one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(figures, "draw", lambda trials, curves, parts: {"final-fdr": figures.final_fdr(trials)})


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


def files_of(folder):
    """Return the files of a folder without what differs between two runs: times and paths."""
    found = {p.relative_to(folder).as_posix(): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}
    for name in [name for name in found if name.endswith("manifest.json")]:
        about = json.loads(found[name])
        assert about.pop("end") is not None
        about.pop("start")
        about.pop("batch", None)
        about["configuration"].pop("out")
        found[name] = about
    return found


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ("stochastic", ["log-model=m-1", "log-model=n-2"]),
        ("single-shift", ["log-model=m-1-to-log-model=n-2"]),
        ("gradual-shift", ["log-model=m-1-to-log-model=n-2"]),
    ],
)
def test_each_trace_or_pair_runs_as_if_alone_and_again_from_its_own_manifest(environment, expected):
    write("log.csv")
    game = GAME | {"environment": environment, "score": "score_b"}
    result = run_traces(Sweep(logs="log.csv", each="model", out="out", **game))
    first, second = "log:model=m/1", "log:model=n 2"
    names = [first, second] if environment == "stochastic" else [f"{first} -> {second}"]
    assert result.table["trace"].drop_duplicates().tolist() == names
    folders = [one["folder"] for one in result.manifest["traces"]]
    assert folders == expected
    dropped = sum(x["dropped"] for one in result.manifest["traces"] for x in one["records"])
    assert f"{dropped} rows without score or label left out" in result.summary()
    line = result.summary().splitlines()[1].split()
    assert ("nan" in line, line[3] == "-", line[2]) == (False, environment == "gradual-shift", f"{len(names)}")
    assert not list(Path("out").glob("*/*.p*"))
    assert main(["figures", "out"]) == 0
    for name, folder in zip(names, folders, strict=True):
        run(Sweep(logs=name.replace("log", "log.csv").split(" -> "), drop_missing=True, out="alone", **game))
        assert files_of("alone") == files_of(f"out/{folder}")
        rerun(f"out/{folder}", out="again")
        assert files_of("again") == files_of(f"out/{folder}")
        shutil.rmtree("alone")
        shutil.rmtree("again")


def test_the_table_over_all_is_made_of_those_of_the_traces():
    write("log.csv")
    result = run_traces(Sweep(logs="log.csv", each="model", score="score_a", grid="logit", out="out", **GAME))
    assert len(result.table) == 2 * 2 * 2
    pd.testing.assert_frame_equal(files.load(Path("out/traces.csv")), result.table, check_exact=True)
    for row in result.table.to_dict("records"):
        records = load_log(row["trace"].replace("log", "log.csv"), Layout(score="score_a"))
        assert (row["records"], row["error_rate"]) == (len(records.scores), records.errors.mean())
        folder = next(one["folder"] for one in result.manifest["traces"] if one["name"] == row["trace"])
        trials = files.load(Path("out", folder, "trials.csv"))
        here = trials[(trials["learner"] == row["learner"]) & (trials["alpha"] == row["alpha"])]
        share = here["answered"] / 600
        grid = 1 / (1 + np.exp(-np.linspace(-7, 14, 18)))
        best = best_coverage(np.array([0, *grid, 1]), records.scores, records.errors, row["alpha"])
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
            "risk_bound": np.nan,
        }
        np.testing.assert_allclose([row[name] for name in expected], list(expected.values()), rtol=1e-12)
    assert {p.suffix for p in Path("out").glob("traces.*")} == {".csv", ".png", ".pdf"}
    assert result.lemma_holds
    assert result.risk_holds


def test_the_table_over_all_has_the_advice_for_each_trace():
    """Right answers score above wrong ones in the first log; in the second, nothing can be answered."""
    write("logs/a.csv", rows=4_000)
    write("logs/b.csv", correct=0)
    game = GAME | {"learners": ("aci-rank",), "alphas": (0.3,), "score": "score_a"}
    result = run_traces(Sweep(logs="logs", out="out", **game))
    assert result.table.set_index("trace")["advised"].to_dict() == {"a": "aci-rank", "b": "none"}
    assert files.load(Path("out/a/advice.csv"))["advised"].tolist() == [1, 0]
    assert "to use at alpha = 0.3: aci-rank on 1, none on 1 of 2" in result.summary()


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
    traces = json.loads(Path("out/manifest.json").read_text())["traces"]
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
            " -> ".join(one.name.replace("by=score_", "") for one in pair) for pair in neighbours(long, each, 2)
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
    result = run_traces(Sweep(logs=["more", "other"], out="out", **game))
    (row, *_) = result.table.to_dict("records")
    assert (row["trace"], row["records"]) == ("a -> a (2)", 600)
    assert run(Sweep(logs=logs, **game)).trials.equals(files.load(Path("out/a-to-a-2/trials.csv")))
    first, second = (load_log(log, Layout(score="score_a")) for log in logs)
    assert row["error_rate"] == np.concatenate([first.errors, second.errors]).mean()
    grid = np.linspace(0, 1, 20)
    best = [best_coverage(grid, records.scores, records.errors, row["alpha"]) for records in (first, second)]
    assert row["answerable"] == pytest.approx(np.mean(best))


def test_a_column_of_the_very_name_is_the_score():
    write("log.csv", score=0.5)
    assert [trace.score for trace in load_traces("log.csv", Layout(), [])] == ["score"]
    write("log.csv")
    found = load_traces("log.csv:model=m/1", Layout(), ["model"])
    assert [(trace.log, trace.score) for trace in found] == [("log.csv:model=m/1", f"score_{x}") for x in "ab"]
    for trace in found:
        again = load_log(trace.log, Layout(score=trace.score, drop_missing=True))
        assert again[:1] + again[3:] == trace.records[:1] + trace.records[3:]
        np.testing.assert_array_equal(again[1:3], trace.records[1:3])


def test_names_do_not_repeat_themselves():
    """What all traces share, and what the name of the log says, is left out, unless two names would be the same."""
    write("f538_mlb_games.csv", dataset="mlb_games", model="538")
    write("f538_nba.csv", dataset="basketball", model="538")
    write("MLB Games.csv", dataset="mlb_games")
    write("more/MLB Games.csv", dataset="baseball", model="538")
    both = [f"{name}.csv" for name in ("f538_mlb_games", "f538_nba", "MLB Games", "more/MLB Games")]

    def names(logs, score, *each):
        return short_names([trace for log in logs for trace in load_traces(log, Layout(score=score), each)])

    assert names(both[:2], "score_a", "dataset", "model") == ["f538_mlb_games", "f538_nba:dataset=basketball"]
    assert names(both[1:2], "score_a", "dataset") == ["f538_nba"]
    assert names(both[:1], "score", "dataset") == ["f538_mlb_games:by=score_a", "f538_mlb_games:by=score_b"]
    assert names(both[2:], "score_a", "dataset") == ["MLB Games", "MLB Games:dataset=baseball"]
    assert names(both[1:3], "score_a", "model") == [
        "f538_nba",
        "MLB Games:model=m/1",
        "MLB Games:model=n 2",
    ]
    for folder, dataset in (("x", "nq"), ("y", "NQ")):
        write(f"{folder}/nq.csv", dataset=dataset)
    assert names(["x/nq.csv", "y/nq.csv"], "score_a", "dataset") == ["nq:dataset=nq", "nq:dataset=NQ"]
    alike = [f"{both[2]}:model=m/1", f"{both[2]}:model=n 2"]
    assert names(alike, "score_a") == [log.replace(".csv", "") for log in alike]


def test_folders_of_traces_are_distinct_on_any_system(monkeypatch):
    monkeypatch.setattr(SweepJob, "finish", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    models = ["a/b", "a b", "A?B", "..", "x" * 300, "x" * 300 + "y", "é", ""]
    table = pd.DataFrame({"score": 0.5, "error": 0, "model": models})
    table.to_csv("traces.csv.csv", index=False)
    with pytest.raises(KeyboardInterrupt):
        run_traces(Sweep(logs=["traces.csv.csv", "traces.csv.csv"], each="model", out="out", **GAME))
    traces = json.loads(Path("out/manifest.json").read_text())["traces"]
    folders, names = [one["folder"] for one in traces], [one["name"] for one in traces]
    assert len(set(names)) == len({one.lower() for one in folders}) == 16
    for one in folders:
        assert not one.startswith(".")
        assert not set(one) & set('/\\:*?"<>| ')
        assert len(one.encode()) < 255


def test_a_trace_is_never_in_the_place_of_a_table():
    pd.DataFrame({"score": [0.5, 0.7], "error": [0, 1]}).to_csv("traces.csv.csv", index=False)
    result = run_traces(Sweep(logs="traces.csv.csv", out="out", **GAME))
    assert [one["folder"] for one in result.manifest["traces"]] == ["traces.csv-2"]
    assert Path("out/traces.csv").is_file()


class Stop(Exception):
    """Raised in place of a kill."""


def test_stopped_again_and_again_it_comes_to_the_same_bits(monkeypatch, capsys):
    write("logs/a.csv")
    write("logs/b.csv", 1)
    argv = ["sweep", *FLAGS, "--logs", "logs", "--each", "model", "--score", "score_a", "--progress", "json"]
    argv += ["--horizon", "1300"]  # two chunks, and so a save between them
    assert main([*argv, "--out", "whole"]) == 0
    table = capsys.readouterr().out.replace("whole", "out")
    ends, save, close = [], RunFolder.save, RunFolder.close

    def stopped(after):
        def method(self, *given):
            after(self, *given)
            ends.append(after.__name__)
            raise Stop

        return method

    with monkeypatch.context() as patch:
        patch.setattr("exaul.engine.simulation.schedule.CHUNK", 2**9)
        patch.setattr(RunFolder, "save", stopped(save))
        patch.setattr(RunFolder, "close", stopped(close))
        with pytest.raises(Stop):
            main([*argv, "--out", "out", "--save-every", "0"])
        with pytest.raises(BadInput, match="in use"):
            run_traces(Sweep(logs="logs", out="out", **GAME))
        while ends.count("close") < 3:
            with pytest.raises(Stop):
                main(["sweep", "--resume", "out", "--save-every", "0"])
    assert ends.count("save") >= 3
    done = {p: p.stat().st_mtime_ns for p in Path("out").glob("*/trials.csv")}
    assert len(done) == 3
    capsys.readouterr()
    assert main(["sweep", "--resume", "out", "--dry-run"]) == 0
    told = "traces    4, 3 of them finished; below is the largest, b:model=n 2\n"
    assert capsys.readouterr().out.startswith(told)
    assert main(["sweep", "--resume", "out"]) == 0
    assert capsys.readouterr().out == table
    assert {p: p.stat().st_mtime_ns for p in done} == done
    assert files_of("out") == files_of("whole")
    assert main(["sweep", "--resume", "out"]) == 0
    assert "nothing to resume" in capsys.readouterr().out


def test_resuming_after_a_change_is_refused(monkeypatch):
    write("logs/a.csv")
    with monkeypatch.context() as patch:
        patch.setattr(SweepJob, "finish", lambda *_, **__: (_ for _ in ()).throw(Stop))
        with pytest.raises(Stop):
            run_traces(Sweep(logs="logs", each="model", out="out", **GAME))
    with pytest.raises(BadInput, match=r"each is \['dataset'\] here, \['model'\] in out"):
        resume_traces("out", {"each": "dataset"})
    write("logs/b.csv", 5)
    with pytest.raises(BadInput, match="traces: 5: folder is 'b-model=m-1,by=score_a' here, None there"):
        resume_traces("out")
    Path("logs/b.csv").unlink()
    write("logs/a.csv", 7)
    with pytest.raises(BadInput, match="traces: 1: records is"):
        resume_traces("out")
    for verb in (resume, rerun, lambda path: merge([path])):
        with pytest.raises(BadInput, match="a sweep over traces; use the manifest in the folder of a trace"):
            verb("out")


BAD = {
    "--logs LOGS --each model nothing": "each: no log has a column 'nothing'",
    "--logs LOG --each model model": "each: model is given twice",
    "--logs LOG --each model --least 500": "least: 500 found; no trace has that many records",
    "--logs LOG --least 5": "least: given, but this is one sweep",
    "--logs LOG --each model --least 0": "least: 0 found; it must be from 1 to",
    "--each model": "logs: none given; a sweep over traces needs",
    "--logs LOG --each model --score grade": "log.csv: no column 'grade' or beginning with it; the log has",
    "--logs LOG --each model --error wrong": "log.csv: no column 'wrong'; the log has",
    "--logs LOG:model=x --each model": "log.csv: no row with model=x",
    "--logs LOG:kind=x --each model": "log.csv: no column 'kind'",
    "--logs LOGS --environment single-shift": "environment: single-shift found; it needs 2 traces that differ only",
    "--logs LOGS --environment interactive": "environment: interactive found; a sweep over traces needs",
    "--logs LOGS --environment replay --horizon 200": "horizon: 200 found; replay of log:? ?.* has 150 rounds",
    "--logs LOGS --shard 1/2": "shard: given, but all trials of a trace",
    "--logs LOGS --group model": "group: given, but stochastic does not choose among groups",
    "--logs empty": "empty: the folder contains no logs; a log must end in .csv,",
    "--logs LOGS --score model": "row 1: model is",
    "--logs odd.csv --each model": "each: 'odd.csv:model=a,b=c' found; its values must not contain",
    "--logs LOG --each model --out LOGS": "out: .* is in use",
}


@pytest.mark.parametrize("flags", BAD)
def test_bad_input_is_one_line_and_nothing_is_written(flags, capsys):
    write("logs/log.csv", rows=150)
    Path("empty").mkdir()
    Path("odd.csv").write_text('score,error,model\n0.5,1,"a,b=c"\n')
    argv = flags.replace("LOGS", "logs").replace("LOG", "logs/log.csv").split()
    before = sorted(Path.cwd().rglob("*"))
    assert main(["sweep", *FLAGS, "--out", "out", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert re.search(BAD[flags], err)
    assert sorted(Path.cwd().rglob("*")) == before


def test_replay_runs_each_trace_to_its_end(capsys):
    write("log.csv", rows=200)
    game = ["sweep", *FLAGS[:2], *FLAGS[4:], "--logs", "log.csv", "--each", "model", "--score", "score_a"]
    assert main([*game, "--environment", "replay", "--least", "101", "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("traces    1 (1 with fewer than 101 records left out); below is")
    game = GAME | {"horizon": None, "environment": "replay"}
    result = run_traces(Sweep(logs="log.csv", each="model", score="score_a", **game))
    assert (result.table["horizon"] == result.table["records"]).all()
    assert result.table["lambda"].nunique() == 2
    assert "lambda" not in result.summary()


def test_real_logs(data):
    logs = [f"{data}/{name}.csv.gz" for name in ("sklearn-digits", "selfconsistency-wikibio")]
    result = run_traces(Sweep(logs=logs, each=("dataset", "model"), least=959, **GAME))
    assert result.table["trace"].nunique() == 4 + 2  # of the last column of scores three rows are empty
    assert result.left_out == 1
    assert "3 rows" not in result.summary()
    assert result.lemma_holds
