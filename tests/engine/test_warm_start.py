"""Learners start from a log: what it sets, which records it takes from the game, and that all programs agree."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from exaul import Abstainer, Sweep, load_log, run
from exaul.commands.main import main
from exaul.engine.logs.log import Records
from exaul.engine.simulation.prepare import prepare_source
from exaul.kernels.game import log_grid
from tests.engine.test_feedback import transcribe
from tests.games import records_of, save_log
from tests.processes import output_of
from tests.serving.test_abstainer import decide_all

pytestmark = pytest.mark.usefixtures("few_figures", "in_folder")
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "log.csv"
LATE = {"feedback_rate": 0.97, "delay": 40, "expires": 100, "missing": "wrong"}
CASES = {"at once": {}, "late": LATE}


def simulated(records, feedback, backend, **more):
    """The decisions [T] of ``aci-rank`` in a replay of records, and the row of its trial."""
    rounds = len(records.scores)
    fields = {"environment": "replay", "learners": ("aci-rank",), "alphas": (0.1,), "trials": 1, "seed": 7} | more
    result = run(Sweep(**fields, backend=backend, checkpoints=rounds, **feedback), [records])
    answered = np.round(result.curves["t"] * (1 - result.curves["inefficiency_mean"]))
    return np.diff(answered, prepend=0).astype(bool), result.trials.iloc[0]


@pytest.mark.parametrize("case", CASES)
def test_simulation_abstainer_and_reference_make_the_same_decisions(case):
    """Decision for decision over 6,000 rounds; the figures and the bound count what is played alone."""
    case, log, records = CASES[case], records_of(1500, seed=1), records_of(6_000)
    path, rows = save_log(log, "log.csv"), (log.scores, log.errors)
    expected = transcribe("aci-rank", log_grid(514, log.scores), records, Sweep(seed=7, **case), case, log=rows)[0]
    assert 0.02 < expected.mean() < 0.9
    for backend in ("rows",) if case else ("dense", "native"):
        decisions, row = simulated(records, case, backend, warm_start=path)
        assert (decisions == expected).all()
        assert row["fdr"] == pytest.approx(records.errors[expected].mean())
        assert row["fdr_risk"] == pytest.approx((records.errors[expected] - 0.1).sum())
        if not case:
            sweep = Sweep(warm_start=path, alphas=(0.1,), learners=("aci-rank",))
            learner = prepare_source(sweep, [records]).learners[0]
            bound = 40 * learner.start.state.share[0] + 0.9 + (~expected).sum() / 200
            assert row["risk_bound"] == pytest.approx(bound)
    assert (decide_all(records, case, warm_start=rows)[0] == expected).all()


def test_an_adaptive_environment_starts_from_the_log():
    """40 s wrong answers end the share s. ``tests/conftest.py`` compares the risk with its bound."""
    path = save_log(records_of(1500, seed=1, right=0.8), "log.csv")
    sweep = {"environment": "always-wrong", "learners": "aci-rank", "trials": 2, "horizon": 2000, "alphas": 0.1}
    warm, cold = (run(Sweep(**sweep, warm_start=x), [records_of(3000)]).trials for x in (path, None))
    assert (warm["answered"] > 1.5 * cold["answered"]).all()
    assert warm["risk_bound"].notna().all()


@pytest.mark.parametrize("environment", ["replay", "stochastic", "single-shift"])
def test_a_fraction_of_the_records_is_the_log_and_is_not_played(environment):
    records, other = records_of(1000), records_of(500, seed=5, name="other")
    logs = [records, other] if environment == "single-shift" else [records]
    prepared = prepare_source(Sweep(environment=environment, warm_start="0.4", trials=2), logs)
    count = len(records.scores)
    assert len(prepared.warm_log.scores) == 0.4 * count
    scores = np.concatenate([prepared.warm_log.scores, prepared.records[0].scores])
    assert sorted(scores) == sorted(records.scores)
    assert prepared.records[1:] == (other,) * (len(logs) - 1)  # of a shift, the log is a part of the first
    assert len(prepared.grid) == min(512, len(np.unique(prepared.warm_log.scores))) + 2
    is_first = (prepared.warm_log.scores == records.scores[: int(0.4 * count)]).all()
    assert is_first == (environment == "replay")
    assert prepared.horizon == (count * 0.6 if environment == "replay" else prepared.horizon)


def test_a_random_log_depends_on_the_seed_alone():
    records = records_of(1000)

    def log_of(**more):
        sweep = {"environment": "stochastic", "warm_start": "0.5", "seed": 3} | more
        return prepare_source(Sweep(**sweep), [records]).warm_log.scores.tolist()

    scores = log_of()
    assert scores == log_of(trials=7) == log_of(learners=("exaul",)) == log_of(alphas=(0.2,), horizon=500)
    assert scores == log_of(shard="2/2", trials=2)
    assert scores != log_of(seed=4)


def test_a_file_leaves_all_records_to_the_game_and_weight_learners_take_its_grid_alone():
    log, records = records_of(300, seed=1), records_of(1000)
    path = save_log(log, "log.csv")
    sweep = {"environment": "replay", "trials": 2, "alphas": (0.1,)}
    prepared = prepare_source(Sweep(**sweep, warm_start=path), [records])
    assert prepared.records == (records,)
    assert prepared.horizon == 1000
    assert (prepared.grid == log_grid(514, log.scores)).all()
    # on the same grid, the paper's learners do what they do without a log
    paper = ("exaul", "exp3-ix", "ew", "best-fixed")
    uniform = {"learners": paper, "grid": "uniform", "arms": 50}
    warm, cold = (run(Sweep(**sweep, **uniform, **more), [records]).trials for more in ({"warm_start": path}, {}))
    pd.testing.assert_frame_equal(warm.drop(columns="warm_start"), cold.drop(columns="warm_start"))
    assert set(warm["warm_start"]) == {"log"}
    assert cold["warm_start"].isna().all()
    assert len(prepare_source(Sweep(**sweep, warm_start=path, arms=20), [records]).grid) <= 20


def test_each_source_has_its_own_log():
    logs = {name: records_of(400, seed) for seed, name in enumerate("ab")}
    tables = [pd.DataFrame({"score": x.scores, "error": x.errors, "model": name}) for name, x in logs.items()]
    pd.concat(tables).to_csv("both.csv", index=False)
    flags = ["--logs", "both.csv", "--each", "model", "--environment", "replay", "--learners", "aci-rank"]
    flags += ["--warm-start", "0.5", "--alphas", "0.2", "--trials", "1", "--out", "out"]
    assert main(["sweep", *flags]) == 0
    trials = pd.read_csv("out/trials.csv")
    for name, records in logs.items():
        half, second = records.take(slice(200)), records.take(slice(200, None))
        alone, _ = simulated(second, {}, "native", warm_start=save_log(half, f"{name}.csv"), alphas=(0.2,))
        assert trials[trials["source"] == f"both:model={name}"]["answered"].tolist() == [alone.sum()]


def test_the_manifest_has_the_log_and_the_share_and_is_run_again(capsys):
    log, records = records_of(1500, seed=1), records_of(500)
    path = save_log(log, "log.csv")
    flags = ["--logs", save_log(records, "played.csv"), "--environment", "replay", "--trials", "1"]
    flags += ["--learners", "aci-rank"]
    text = output_of(["sweep", *flags, "--warm-start", path, "--alphas", "0.1", "0.2", "--out", "out"], capsys)
    manifest = json.loads(Path("out/manifest.json").read_text())["sources"][0]["warm_start"]
    assert manifest["name"] == "log"
    assert manifest["records"] == 1500
    assert len(manifest["sha256"]) == 64
    shares = manifest["shares"]["aci-rank"]
    assert all(0.1 < share < 0.9 for share in shares.values())
    starts = "; ".join(f"{shares[alpha]:.1%} at alpha = {alpha}" for alpha in ("0.1", "0.2"))
    assert f"aci-rank starts by answering {starts} (log: 1,500 rows" in text
    assert main(["rerun", "out/manifest.json", "--out", "again"]) == 0
    assert Path("again/trials.csv").read_bytes() == Path("out/trials.csv").read_bytes()
    save_log(records_of(1500, seed=2), path)
    capsys.readouterr()
    assert main(["rerun", "out/manifest.json", "--out", "changed"]) == 2
    assert capsys.readouterr().err.startswith("exaul: rerun: sources: 1: warm_start: ")
    assert not Path("changed").exists()


DEGENERATE = {  # scores, errors, and what is said at alpha = .1
    "no threshold reaches alpha": ([0.2, 0.5, 0.9] * 20, [1, 1, 1] * 20, "log is right; exaul inspect LOG says"),
    "one right row": ([0.5], [0], "starts by answering 97.1%"),
    "one wrong row": ([0.5], [1], "(LOG: 1 row, 100.0% wrong; fewer than 30 rows say little); it still tries"),
    "all right": ([0.1, 0.4, 0.8, 0.9] * 20, [0] * 80, "starts by answering 100.0%"),
    "few rows": ([0.1, 0.4, 0.8, 0.9], [1, 0, 0, 0], " 25.0% wrong; fewer than 30 rows say little)"),
    "few right rows": ([0.8, 0.9] * 40 + [0.2] * 1920, [1, 0] * 40 + [1] * 1920, "starts by answering 1.8%"),
    "ends": ([0.0, 1.0] * 40, [1, 0] * 40, "starts by answering 50.0%"),
}


def test_the_share_that_is_expected_of_equal_scores_is_the_share_that_is_answered():
    """The impostor is s_1, which counts half of the lowest level that is answered."""
    order = np.random.default_rng(0).permutation(1000)  # late rows count more
    scores, errors = np.repeat([0.95, 0.8], [700, 300])[order], np.repeat([0.0, 1.0], [650, 350])[order]
    abstainer = Abstainer(alpha=0.1, warm_start=(scores, errors))
    share = abstainer.figures()["expected_share"]
    assert share == pytest.approx(0.7, abs=0.005)
    assert f"starts by answering {share:.1%} at alpha" in abstainer.started
    assert [abstainer.decide(score).answer for score in (0.95, 0.8)] == [True, False]
    all_right = np.linspace(0.1, 0.9, 36), np.zeros(36)
    assert Abstainer(warm_start=all_right).figures()["expected_share"] == 1  # not 1.0000000000000007


@pytest.mark.parametrize("case", DEGENERATE)
def test_a_degenerate_log_works_and_says_what_it_found(case, capsys):
    scores, errors, said = DEGENERATE[case]
    abstainer = Abstainer(alpha=0.1, warm_start=(scores, errors), seed=0, key=0)
    assert said.replace("(LOG", "(warm_start") in abstainer.started
    assert ("exaul sweep --logs LOG --alphas 0.1 names" in abstainer.started) == (case == "few right rows")
    records = records_of(2000, right=0.6)
    for score, error in zip(records.scores, records.errors, strict=True):
        decision = abstainer.decide(score)
        if decision.answer:
            abstainer.feedback(decision.id, error)
    figures = abstainer.figures()
    assert figures["answers"] > 300  # silence ends
    assert figures["feedback_risk"] <= figures["feedback_risk_bound"]
    assert math.isfinite(figures["feedback_risk_bound"])
    log = Records("log", np.array(scores, float), np.array(errors, float), 0, None)
    path, played = save_log(log, "log.csv"), save_log(records, "played.csv")
    flags = ["--logs", played, "--environment", "replay", "--trials", "1", "--alphas", "0.1"]
    flags += ["--learners", "aci-rank", "--warm-start", path, "--out", "out"]
    printed = output_of(["sweep", *flags], capsys)
    assert said.replace("(LOG", "(log") in " ".join(printed.split())
    assert "sweep --logs LOG" not in " ".join(printed.split())  # which would name this sweep
    trials = pd.read_csv("out/trials.csv").set_index("learner")
    assert trials.loc["aci-rank", "answered"] == figures["answers"]


def test_an_abstainer_starts_from_a_file_a_table_or_arrays():
    log = records_of(400, seed=1)
    path = save_log(log, "log.csv")
    table = pd.DataFrame({"confidence": log.scores, "good": 1 - log.errors})
    abstainers = [
        Abstainer(alpha=0.1, warm_start=source, seed=1, key=0, **more)
        for source, more in (
            (Path(path), {}),
            (path, {}),
            (load_log(path), {}),
            (table, {"score": "confidence", "correct": "good"}),
            ((log.scores, log.errors), {}),
            ((log.scores.tolist(), log.errors.tolist()), {}),
        )
    ]
    assert len({re.sub(r"\(.*?:", "(", abstainer.started) for abstainer in abstainers}) == 1
    assert len({json.dumps(abstainer.summary()) for abstainer in abstainers}) == 1
    assert len({tuple(map(abstainer.cut_of, log.scores)) for abstainer in abstainers}) == 1
    gaps = pd.DataFrame({"score": [0.5, 0.9, 0.7], "error": pd.array([1, None, 0], "Int64")})
    assert "(warm_start: 2 rows, 50.0% wrong" in Abstainer(alpha=0.1, warm_start=gaps, drop_missing=True).started


def test_the_program_of_the_readme_answers_at_once_and_as_often_as_its_log():
    """Of 100 rows held out, in order: the share of the log within .1; the first ranks high, and is answered."""
    table = pd.read_csv(EXAMPLE)
    scores, errors = table["score"].to_numpy(), 1.0 - table["correct"].to_numpy()
    abstainer = Abstainer(alpha=0.1, warm_start=(scores[:900], errors[:900]))
    share, answers = float(re.search(r"answering ([0-9.]+)%", abstainer.started)[1]) / 100, []
    for score, error in zip(scores[900:], errors[900:], strict=True):
        decision = abstainer.decide(score)
        answers.append(decision.answer)
        if decision.answer:
            abstainer.feedback(decision.id, error)
    assert np.mean(answers) == pytest.approx(share, abs=0.1)
    assert scores[900] > np.median(scores[:900])
    assert answers[0]
    # the impostor that starts from nothing fails here
    cold = Abstainer(alpha=0.1)
    assert np.mean([cold.decide(score).answer for score in scores[900:920]]) < share - 0.1
