"""The paper's experiments: what they leave, that claims can fail, and the audit of the bounds."""

import csv
import html
import re
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from exaul import Sweep, run
from exaul.engine import manifest as manifests
from exaul.engine import registry
from exaul.engine.folder import lock, write_files
from exaul.engine.logs.files import load
from exaul.engine.simulation.prepare import prepare_source
from exaul.kernels import guarantee
from exaul.kernels.metrics import best_coverage, risk_coverage
from experiments import advice, beyond, bounds, claims, feedback, impostors, simulations
from experiments import run as running
from experiments.__main__ import main
from experiments.claims import CHECK, CLAIM, LEMMA, REGRESSION, RELATIONS
from experiments.experiment import mixed_coverage
from experiments.impostors import IMPOSTORS
from experiments.paper import HORIZON, Paper
from experiments.registry import EXPERIMENTS
from experiments.report import claims_table, has_failed, summary
from experiments.run import Runner, find_experiment, run_experiments
from experiments.simulations import change_in_segment, growth
from tests.games import small_scale
from tests.processes import refusal_of

NAMES = [name for name in EXPERIMENTS if name != "advice"]  # which is not about exaul: see the end
FEW = ("exaul", "ew", beyond.RIVALS[1], beyond.ACI_RANK)  # that some claims are about: each takes long to compile


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(autouse=True, scope="module")
def _code_is_hashed_once():
    """Every sweep with a learner of this checkout hashes the experiments, which takes longer than small games."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifests, "module_hash", cache(manifests.module_hash))
        yield


@pytest.fixture
def small():
    """Three trials of 512 rounds."""
    with small_scale(512):
        yield


@pytest.fixture(scope="module")
def runner():
    """Cases share it, and so the sweeps that several experiments have in common."""
    return Runner(Paper())


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report of three trials of all rounds, in which the regression limits hold."""
    out = tmp_path_factory.mktemp("experiments") / "report"
    with small_scale(HORIZON):
        assert main(["stochastic-easy", "--out", str(out)]) == 0
    return out


def test_a_report_is_one_page_with_every_figure_and_claim(report, capsys):
    with (report / "claims.csv").open() as stream:
        claims = list(csv.DictReader(stream))
    assert list(claims[0]) == ["experiment", "kind", "claim", "holds", "measured", "expected", "quote", "why"]
    assert {row["kind"] for row in claims} == {"claim", "check", "regression limit"}
    assert {row["holds"] for row in claims} == {"true", "false"}
    for row in claims:
        relation, limit = row["expected"].split()
        assert row["holds"] == str(RELATIONS[relation](float(row["measured"]), float(limit))).lower()
    assert {row["kind"] for row in claims if row["claim"].startswith("ew: ")} == {CHECK}
    page = (report / "index.html").read_text()
    assert page.count("data:image/png;base64,") == len(list(report.rglob("*.png")))
    assert not re.search(r"(src|href)=\"(?!data:|#)", page)
    assert "synthetic" in page
    assert "<td>differs</td>" in page
    assert all(html.escape(row[column], quote=False) in page for row in claims for column in ("claim", "quote"))
    assert {"fdr.png", "fdr.pdf", "answered.png", "answered-over-time.pdf"} < {p.name for p in report.rglob("*.p*")}


def test_a_report_is_the_same_bits_when_run_again(report, tmp_path):
    with small_scale(HORIZON):
        run_experiments(Paper(out=str(tmp_path / "again")), ["stochastic-easy"])
    first, again = files(report), files(tmp_path / "again")
    assert again.keys() == first.keys()
    assert {name for name in again if again[name] != first[name]} <= {"manifest.json", "index.html"}  # times


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n == "beyond" else n for n in NAMES])
def test_every_experiment_runs_and_its_claims_can_fail(name, small, runner, tmp_path, monkeypatch):
    """Tables that are turned upside down turn claims about the FDR of exaul, and about Lemma 1, to false."""
    monkeypatch.setattr(beyond, "ADAPTIVE", ("always-wrong",))
    monkeypatch.setattr(beyond, "LEARNERS", FEW)
    monkeypatch.setattr(feedback, "LEARNERS", ("exaul",))  # beside aci-rank, with a reserve
    monkeypatch.setattr(bounds, "ENVIRONMENTS", {x: bounds.ENVIRONMENTS[x] for x in ("stochastic", "always-wrong")})
    # longer than of adaptive ones, which run with 10 arms alone
    monkeypatch.setattr(bounds, "HORIZONS", (100_000,))
    monkeypatch.setattr(bounds, "ARMS", (10, 1_000))
    tables = runner.tables(name)
    write_files(tmp_path, tables, {})
    saved = {name: load(tmp_path / f"{name}.csv") for name in tables}
    for table in tables:
        pd.testing.assert_frame_equal(tables[table], saved[table], check_exact=True, check_dtype=False)
    experiment = find_experiment(name)
    claims = experiment.judge(saved)
    if name not in ("feedback", "beyond"):  # which are not the paper's
        assert all(claims["quote"][claims["kind"] == CLAIM])
    assert experiment.figures(saved | experiment.derive(saved))
    mixed = saved | {"trials": saved["trials"].sample(frac=1, random_state=0)}  # the order of rows says nothing
    pd.testing.assert_frame_equal(*(x.drop(columns="why") for x in (experiment.judge(mixed), claims)), rtol=1e-6)
    hopeless = saved | {"coverage": saved["coverage"].assign(on_grid=0.0, anywhere=0.0)}
    assert len(experiment.judge(hopeless)) == len(claims)  # also where no threshold holds alpha

    trials, curves = saved["trials"].copy(), saved["curves"].copy()
    trials.loc[trials["learner"] == "exaul", ["fdr", "fdr_risk", "regret"]] = 1.0, 1e6, 1e3
    curves.loc[curves["learner"] == "exaul", "fdr_mean"] = 1.0
    turned = dict(experiment.judge(saved | {"trials": trials, "curves": curves})[["claim", "holds"]].to_numpy())
    assert not turned[LEMMA]
    if name not in ("lambda", "regret", "bounds", "long-stochastic", "long-shift", "beyond"):
        about = [claim for claim in turned if claim.startswith(("exaul: mean FDR", "exaul stays"))]
        assert about
        assert not any(turned[claim] for claim in about)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in NAMES if name != "single-shift"]


@pytest.mark.parametrize("name", ["single-shift", *SLOW])
def test_every_impostor_breaks_a_claim_and_every_claim_is_broken_by_one(name):
    """The slow cases have as many trials as the paper's figures."""
    runner = Runner(Paper())
    with small_scale(HORIZON, 10) if name == "single-shift" else nullcontext():
        tables = runner.tables(name)
        claims, broken = find_experiment(name).judge(tables), runner.broken_claims(name, tables)
    is_limit_of_exaul = (claims["kind"] == REGRESSION) & claims["claim"].str.contains("exaul")
    held = broken[broken["holds"] & ((claims["kind"] == CLAIM) | is_limit_of_exaul)]
    fell = held.drop(columns=["claim", "holds"])
    assert set(IMPOSTORS) <= set(fell)
    assert fell.any(axis=0).all(), fell.any(axis=0)
    assert fell.any(axis=1).all(), list(claims["claim"][held.index[~fell.any(axis=1)]])


@pytest.mark.slow
def test_the_report_lists_the_impostors(small, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("experiments.__main__.EXPERIMENTS", {"stochastic-hard": EXPERIMENTS["stochastic-hard"]})
    main(["impostors", "--out", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    assert re.search("; broken by .*always answers", printed)
    page = (tmp_path / "out" / "index.html").read_text()
    assert "<h2>Impostors</h2>" in page
    assert "never answers" in page


def test_an_impostor_takes_the_place_of_exaul_only():
    with small_scale():
        runner = Runner(Paper())
        honest, parts = runner.tables("stochastic-hard"), runner.parts("stochastic-hard")
    true = [run(*part) for part in parts]

    def posing(impostor):
        posed = [run(impostors.impostor_sweep(impostor, x), x.sources[0].records) for x in true]
        return impostors.with_impostor_rows(honest, list(zip(true, posed, strict=True)))

    silent = posing("always-abstain")
    for name in ("trials", "curves"):
        others = [x[name][x[name]["learner"] != "exaul"].reset_index(drop=True) for x in (honest, silent)]
        pd.testing.assert_frame_equal(*others)
    coined = posing(impostors.COIN)
    rows, real, coin = (claims.rows_where(x["trials"], {"learner": "exaul"}) for x in (silent, honest, coined))
    assert (rows["answered"] == 0).all()
    assert (rows["regret_bound"] == real["regret_bound"].iloc[0]).all()
    share = [(x["answered"] / x["horizon"]).mean() for x in (coin, real)]
    assert share[0] == pytest.approx(share[1], abs=0.03)


def test_the_change_after_a_shift_can_be_negative():
    t = np.arange(100, 1001, 100)

    def curve(slope, fdr=0.0):
        regret = np.where(t <= 500, 2 * t, 1000 + slope * (t - 500))
        return pd.DataFrame({"t": t, "regret_per_round_mean": regret / t, "fdr_mean": fdr})

    assert [growth(curve(5), 2), growth(curve(1), 2), growth(curve(1), 1)] == pytest.approx([3, -1, -1])
    assert change_in_segment(curve(5, np.where(t <= 500, 0.2, 0.1)), 2) == pytest.approx(-0.1)
    assert change_in_segment(curve(5, t / 1000), 1) == pytest.approx(0.9)


def test_the_regret_over_that_of_ew_is_of_the_longest_horizon():
    trials = pd.DataFrame({"learner": [*("exaul", "ew") * 2], "horizon": [1, 1, 2, 2], "regret": [9.0, 1, 6, 4]})
    cell = claims.Cell({"trials": trials}, "trials", {})
    assert claims.regret_over_ew(cell) == (1.5, {"exaul": "6", "ew": "4", "T": "2"})


def write_log(path):
    """A log of two models, whose second score is often missing."""
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 5000))
    rows = pd.DataFrame({"score_a": a, "score_b": np.where(b < 0.3, np.nan, b), "model": ["m", "n"] * 2500})
    rows.assign(dataset="d", correct=(rng.random(5000) < 0.5 + a / 2).astype(int)).to_csv(path, index=False)


def test_beyond_runs_all_its_learners_in_every_kind_of_environment():
    paper = Paper()
    parts = beyond.parts(paper, paper.load())
    assert all(sweep.learners == beyond.LEARNERS for sweep, _ in parts)
    ready = [prepare_source(replace(sweep, learners=("exaul",)), records) for sweep, records in parts]
    assert {source.environment_name for source in ready} == {"stochastic", *beyond.SHIFTS, *beyond.ADAPTIVE}
    greedy = next(source for source in ready if source.environment_name == "adversary-omniscient:objective=regret")
    assert greedy.tunable_values[0] == 2


def test_claims_beyond_the_paper_can_fail_and_a_folder_of_logs_runs(small, tmp_path, monkeypatch):
    write_log(tmp_path / "some.csv")
    logs = [(log.name, len(log.scores)) for log in beyond.traces(str(tmp_path))]
    assert logs == [(f"some:dataset=d,model={x},by=score_a", 2500) for x in "mn"]
    monkeypatch.setattr(beyond, "ADAPTIVE", ("always-wrong",))
    monkeypatch.setattr(beyond, "LEARNERS", FEW)
    tables = Runner(Paper(data=str(tmp_path))).tables("beyond")
    assert set(tables["trials"]["environment"]) == {"stochastic", "replay", *beyond.SHIFTS, *beyond.ADAPTIVE}
    assert set(tables["trials"]["learner"]) == set(beyond.LEARNERS)
    experiment = find_experiment("beyond")
    derived = experiment.derive(tables)
    assert experiment.figures(tables | derived)
    summed, coverage = derived["worlds"], tables["coverage"]
    shifted = summed[(summed["environment"] == "gradual-shift") & (summed["alpha"] == 0.2)]
    shares = coverage[(coverage["alpha"] == 0.2) & (coverage["second"] > 0)]["on_grid"]
    assert shifted["answerable"].iloc[0] == pytest.approx(shares.mean(), abs=1e-3)
    over = derived["over-all"]
    assert set(over["learner"]) == {"exaul", "ew", "learn-then-test", "aci-rank"}
    assert {"single-shift to all wrong", "single-shift from all wrong", *beyond.ADAPTIVE} < set(over["kind"])
    assert over.loc[over["kind"] == "stochastic", "worlds"].eq(6).all()

    def holds(**columns):
        worse = tables["trials"].copy()
        worse.loc[worse["learner"] == beyond.ACI_RANK, list(columns)] = list(columns.values())
        return dict(experiment.judge(tables | {"trials": worse})[["claim", "holds"]].to_numpy())

    broken = "trials whose R_T is above the learner's pathwise bound"
    back = "aci-rank: mean answered / answerable after a first half with only wrong answers"
    silent, wrong = holds(answered=0, fdr_risk=1e6), holds(fdr=1.0)
    assert holds()[broken]
    assert not silent[broken]
    assert not silent[back]
    for environment in ("stochastic", "replay"):
        assert not silent[f"aci-rank: mean answered / answerable, {environment}"]
        text = f"aci-rank: share of environments with an FDR at T of at most alpha + .01, {environment}"
        assert not wrong[text]


def test_beyond_takes_learners_alphas_and_a_grid(small, tmp_path, monkeypatch, capsys):
    write_log(tmp_path / "some.csv")
    monkeypatch.setattr(beyond, "ADAPTIVE", ())
    chosen = {"learners": ("exaul-known", "aci-rank"), "alphas": (0.3,), "grid": "uniform"}
    tables = Runner(Paper(data=str(tmp_path), **chosen)).tables("beyond")
    assert set(tables["trials"]["learner"]) == {"exaul-known", "aci-rank"}
    assert set(tables["trials"]["alpha"]) == {0.3}
    assert set(tables["coverage"]["grid"]) == {"uniform"}
    assert find_experiment("beyond").judge(tables)["claim"].str.startswith("aci-rank:").any()
    assert "beyond: 2 traces of at least 2000 records, by score_a\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("environment", "share"), [("single-shift", 0.5), ("gradual-shift", 0.6), ("adversary-history", np.nan)]
)
def test_the_answerable_share_is_a_mean_over_time(environment, share):
    best = {("a", 0.1): 0.8, ("b", 0.1): 0.2, ("a -> b", 0.1): 0.6}
    assert beyond.answerable_share(best, environment, "a -> b", 0.1) == pytest.approx(share, nan_ok=True)


def test_fixed_thresholds_do_the_same_on_a_mixture_and_on_pooled_records():
    rng = np.random.default_rng(0)
    grid = np.linspace(0, 1, 50)
    logs = [(score := rng.random(400), (rng.random(400) > score**power).astype(float)) for power in (0.3, 1)]
    for times, share in (((1, 1), 0.5), ((2, 1), 1 / 3), ((1, 0), 0.0)):
        pooled = [np.concatenate([np.tile(log[i], n) for log, n in zip(logs, times, strict=True)]) for i in (0, 1)]
        curves = [risk_coverage(grid, *log) for log in logs]
        for alpha in (0.05, 0.1, 0.3):
            expected = best_coverage(grid, *pooled, alpha)
            assert mixed_coverage(curves, (1 - share, share), alpha) == pytest.approx(expected)
    assert expected > 0.2


def test_scores_are_of_the_same_questions():
    _, hard = Paper().load()
    other = simulations.by_consistency(hard)
    np.testing.assert_array_equal(other.errors, hard.errors)
    assert set(np.unique(other.scores)) == {0.0, 0.2, 0.4, 0.6, 0.8, 1.0}
    assert other.scores[other.errors == 0].mean() > other.scores[other.errors == 1].mean() + 0.2


def test_the_other_score_is_a_column_of_the_log(tmp_path):
    write_log(tmp_path / "some.csv")
    log = f"{tmp_path / 'some.csv'}:model=m"
    paper = Paper(logs=(log, log), score="score_a", other_score="score_b", drop_missing=True)
    (_, (first,)), (_, (second,)) = find_experiment("scores").parts(paper, paper.load())
    assert "score_b" in second.name
    assert first.name != second.name
    assert len(second.scores) + second.dropped == len(first.scores)  # the second score is often missing


def test_both_directions_of_logs_of_one_name_are_run(small, in_folder):
    """A sweep is known by its records, not by their names."""
    for folder, errors in (("a", "100"), ("b", "111")):
        Path(folder).mkdir()
        rows = (f"0.{score},{error}\n" for score, error in zip("589", errors, strict=True))
        Path(folder, "log.csv").write_text("score,error\n" + "".join(rows))
    trials = Runner(Paper(logs=("a/log.csv", "b/log.csv"))).tables("single-shift")["trials"]
    assert set(trials["source"]) == {"log -> log (2)", "log (2) -> log"}


def test_a_broken_regression_limit_fails_the_run_and_is_no_claim():
    """A claim that does not hold is a result, and other records say nothing about a limit."""
    assert Paper(out="out").has_default_records
    assert not Paper(alphas=(0.1, 0.2, 0.3)).has_default_records
    row = {"claim": "a", "holds": False, "measured": 2.0, "relation": "<=", "limit": 1.0, "quote": "", "why": ""}
    for holds in (0, 1):
        rows = [row | {"kind": CLAIM}, row | {"kind": CHECK}, row | {"kind": REGRESSION, "holds": holds == 1}]
        table, elsewhere = (claims_table({"some": pd.DataFrame(rows)}, {}, x) for x in (True, False))
        assert summary(table) == f"0 of 1 claims hold, 0 of 1 checks hold, {holds} of 1 regression limits hold"
        assert summary(elsewhere) == "0 of 1 claims hold, 0 of 1 checks hold"
        assert has_failed(table) == (holds == 0)
        assert not has_failed(elsewhere)
        assert list(elsewhere["holds"]) == ["false", "false", "default records"]
    lemma = pd.DataFrame([row | {"kind": CHECK, "claim": LEMMA}])
    assert has_failed(claims_table({"some": lemma}, {}, False))


def test_what_agrees_with_the_paper_is_one_table_and_a_broken_regression_limit_has_status_1(monkeypatch, capsys):
    (sentence, claim), *_ = claims.ABSTAINS_AS_EW.items()
    monkeypatch.setitem(simulations.BOTH_CLAIMS, sentence, claim._replace(limit=-1.0))
    monkeypatch.setattr("experiments.__main__.PAPER_EXPERIMENTS", ("stochastic-easy",))
    with small_scale(HORIZON):
        assert main(["paper"]) == 1
    printed, err = capsys.readouterr()
    assert "0 of 1 regression limits hold" in err
    table, differs = printed.split("\n\nWhat differs:\n")
    assert claims.EFFICIENT in next(line for line in table.split("\n") if "differs" in line)
    agrees = next(line for line in table.split("\n") if "agrees" in line)
    assert agrees.startswith(f"Stochastic, easy questions  3, 6     {claims.CONTROLS}")
    assert differs.startswith("stochastic-easy: claim fails: exaul answers nearly as often as the best threshold")
    assert differs.strip().endswith(", expected >= 0.9")
    with small_scale(HORIZON):
        assert main(["stochastic-easy"]) == 1
    assert "stochastic-easy: regression limit fails: exaul abstains as often as ew" in capsys.readouterr().out


def test_the_audit_sees_bounds_that_are_a_quarter_of_the_proved_ones():
    """If all answers are wrong, every learner's regret, R_T and FDR come within a factor of 4 of their bounds."""
    records = beyond.with_all_wrong(Paper().load()[1])
    learners = ("exaul", "ew", "exp3-ix")
    alpha = bounds.ALPHAS["always-wrong"]
    sweep = Sweep(learners=learners, horizon=10_000, trials=20, arms=10, alphas=(alpha,), checkpoints=1)
    result = run(sweep, (records,))
    tables = {"trials": result.trials, "curves": result.curves}
    experiment = find_experiment("bounds")
    for derive, holds in ((None, True), (experiment.impostors[bounds.QUARTER], False)):
        judged = experiment.judge(tables, derive)
        about = judged["claim"].str.contains("bound") & ~judged["claim"].str.contains("1/2")
        assert list(judged["holds"][about]) == [holds] * 3 * len(learners)
    nearest = bounds.tightest(bounds.audit(result.trials))
    assert (nearest["tightness"] > 0.25).all()
    assert (nearest["falsifiable"] == nearest["trials"]).all()


def test_the_audit_finds_the_exponents_that_are_there():
    sizes = [*((10**k, 1000) for k in (3, 4, 5, 6)), *((10**5, 10**k) for k in (1, 2, 4))]
    cells = [(learner, *size) for learner in ("exaul", "ew", "exp3-ix") for size in sizes]
    rows = pd.DataFrame(cells, columns=["learner", "horizon", "arms"])
    of_arms = rows["arms"].where(rows["learner"] == "exp3-ix", np.log(rows["arms"]))
    rows = rows.assign(environment="some", regret=rows["horizon"] ** 0.4 * of_arms**0.7)
    slopes = bounds.exponents(rows.assign(mean_bound=rows["horizon"] ** 0.5))
    for column, slope in (("in_horizon", 0.4), ("in_arms", 0.7), ("bound_in_horizon", 0.5)):
        np.testing.assert_allclose(slopes[column], slope)


def test_figures_say_where_lines_end_how_many_trials_there_are_and_what_is_not_played():
    cells = [
        (name, horizon) for name in ("ew", "exp3-ix") for horizon in (1_000, 1_000_000 if name == "ew" else 10_000)
    ]
    audited = pd.DataFrame(cells, columns=["learner", "horizon"]).assign(environment="some", arms=bounds.FIXED_ARMS)
    audited = audited.assign(alpha=0.1, trials=2, regret=audited["horizon"] ** 0.5, mean_bound=np.nan)
    audited.loc[len(audited)] = dict(audited.iloc[0]) | {"environment": "short", "horizon": 10_000}
    audited.loc[len(audited)] = dict(audited.iloc[0]) | {"arms": 10}
    figure = bounds._figures({"audit": audited.assign(**{"lambda": 1.0})})["regret-by-horizon"]
    assert len({axes.get_xlim() for axes in figure.axes if axes.lines}) == 1
    assert figure.get_supxlabel().endswith("A line ends at the longest T that was played (exp3-ix: 10,000).")

    trials = [(name, trial) for name, count in (("ew", 3), ("exp3-ix", 2)) for trial in range(count)]
    trials = pd.DataFrame(trials, columns=["learner", "trial"]).assign(source="s", environment="stochastic")
    trials = trials.assign(warm_start=np.nan, horizon=3_000_000, grid="uniform", arms=100, alpha=0.1)
    trials["lambda"] = 1.0
    curves = [
        {"learner": x, "source": "s", "alpha": 0.1, "lambda": 1, "t": t}
        for x in ("ew", "exp3-ix")
        for t in (15_000, 3_000_000)
    ]
    curves = pd.DataFrame(curves).assign(fdr_mean=0.1, fdr_q05=0.1, fdr_q95=0.1)
    figure = simulations._draw_long({"trials": trials, "curves": curves})["fdr"]
    assert figure.get_supxlabel().endswith("s: 3 trials of 3,000,000 rounds (exp3-ix: 2 trials).")
    assert [x.get_text() for x in figure.axes[0].get_xticklabels()] == ["15,000", "100,000", "1M", "3M"]

    case = {"case": "delayed by 10 questions, with a reserve", "alpha": 0.1, "answered": 0.5}
    rows = [case | {"learner": "aci-rank"}, case | {"learner": "ew", "case": feedback.ALL}]
    cases = pd.DataFrame(rows).assign(fdr=0.1, fdr_q05=0.1, fdr_q95=0.1)
    _, answered = feedback._draw({"cases": cases, "trials": trials})["fdr"].axes
    assert "ew: not applicable" in [text.get_text() for text in answered.texts]


def test_bounds_of_the_mean_are_the_theorems_without_their_deviation():
    T, H = 40_000, 300
    log = np.log(H)
    expected = {"exaul": 4 * np.sqrt(T * log), "exp3-ix": 2 * np.sqrt(2 * T * H * log), "ew": np.sqrt(T * log / 2)}
    for name, bound in expected.items():
        learner = registry.load_object(registry.LEARNERS[name])
        paper, best = (guarantee.regret(learner, against, T, H, 1.0, 0.1, 1.0) for against in ("paper", "best"))
        assert paper == pytest.approx(bound, rel=1e-12)
        assert best < bound


def test_where_a_curve_settles():
    alpha = pd.DataFrame({"alpha": 0.1, "t": [10, 20, 30, 40]})
    for fdrs, first in (([0.05, 0.2, 0.1, 0.09], 30), ([0.1] * 4, 10), ([0.05, 0.05, 0.05, 0.2], np.inf)):
        assert simulations.first_settled(alpha.assign(fdr_mean=fdrs)) == first


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["stochastic-easy", "--logs", "a.csv"], "logs: 1 given; 2 are needed"),
        (["all", "--alphas", "0.1"], "alphas: 1 given; 3 are needed"),
        (["all", "--data", "x", "--alphas", "0.1"], "alphas: 1 given; 3 are needed, except over traces"),
        (["scores", "--other-score", "x"], "other_score: given without logs"),
        (["all", "--sources", "nq-like"], "sources: 1 given; 2 are needed"),
        (["all", "--sources", "nq-like", "none"], "sources: 'none' is unknown"),
        (["scores", "--alphas", "0.1", "2", "0.1"], "alphas: 2.0 found"),
        (["lambda", "--grid", "none"], "grid: 'none' is unknown"),
        (["regret", "--logs", "a.csv", "b.csv"], "a.csv: no such file"),
        (["beyond", "--data", "nowhere", "--out", "new"], "nowhere: no such file"),
        (["stochastic-easy", "--data", "nowhere"], "data: given, but not used by stochastic-easy"),
        (["scores", "--learners", "zzz:x"], "learners: given, but not used by scores"),
        (["beyond", "--logs", "a.csv", "b.csv", "--other-score", "x"], "other_score: given, but not used"),
        (["beyond", "--data", "x", "--logs", "a.csv", "b.csv"], "logs: given, but not used by beyond"),
        (["scores", "--logs", "a.csv", "b.csv", "--sources", "nq-like", "nq-like"], "logs: given together with"),
        (["scores", "--drop-missing"], "drop_missing: given without logs"),
    ],
)
def test_bad_input_is_one_line(argv, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert words in refusal_of(argv, capsys, main)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_a_killed_report_can_be_used_again(report, monkeypatch, tmp_path, capsys):
    """Unless another process has locked it, as one that still writes."""
    without_figures = find_experiment("stochastic-easy")._replace(figures=lambda _: {})
    monkeypatch.setattr(running, "find_experiment", lambda _: without_figures)
    out = tmp_path / "out"
    (out / ".exaul-results" / "stochastic-easy").mkdir(parents=True)
    argv = ["stochastic-easy", "--out", str(out)]
    with small_scale(HORIZON):
        with lock(out):
            assert main(argv) == 2
        assert "is in use by another process" in capsys.readouterr().err
        assert main(argv) == 0
    assert files(out).keys() == {name for name in files(report) if not name.endswith((".png", ".pdf"))}


def test_a_search_takes_a_learner_without_rates(capsys):
    """Its R_T is compared with its bound on every sequence; nothing bounds its regret."""
    size = ["--horizon", "300", "--arms", "20", "--candidates", "5", "--trials", "2", "--steps", "2"]
    assert main(["worst-case", "--learners", "aci-rank", *size]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [(row["learner"], row["adversary"]) for row in rows] == [("aci-rank", "default"), ("aci-rank", "tuned")]
    assert all(float(row["risk_of_bound"]) <= 1 and row["regret_of_bound"] == "" for row in rows)


def advice_tables(fdr, answered, answerable=0.5, advised=1, records=2_000):
    """The tables of one trace with these results on its second half; the threshold has an FDR of 0."""
    spread = {"answered_in_order": answered, "fdr_in_order": fdr, "records": records, "answerable": answerable}
    alike = {"source": "a", "alpha": 0.1, "learner": advice.ACI_RANK, "advised": 0} | spread
    threshold = {"learner": advice.THRESHOLD, "fdr_in_order": 0.0, "answered_in_order": 0.2}
    rows = [alike, alike | threshold, alike | {"source": "a, first half", "advised": advised}]
    trials = [{"source": x, "alpha": 0.1, "answered": 4, "horizon": 10, "fdr": 0.1} for x in ("a", "a, first half")]
    return {"trials": pd.DataFrame(trials), "advice": pd.DataFrame(rows)}


def advice_shares(**more):
    """The shares over one trace on which the learner answers half, at twice alpha."""
    return advice.share_table(advice.way_table(advice_tables(0.2, 0.5, **more)))


@pytest.mark.parametrize(
    ("fdr", "answered", "holds", "safe"),
    [(0.11, 0.5, 1, 1.0), (0.1101, 0.5, 0, 0.0), (0.05, 0.25, 1, 0.5), (0.05, 0.9, 1, 1.0), (np.nan, 0.0, 1, 0.0)],
)
def test_a_way_holds_alpha_up_to_a_hundredth_and_silence_is_safe_but_answers_nothing(fdr, answered, holds, safe):
    rows = advice.way_table(advice_tables(fdr, answered)).set_index("learner")
    assert rows.loc[advice.WARM, ["holds", "safe"]].tolist() == [holds, pytest.approx(safe)]
    assert rows.loc[advice.COLD, "fdr"] == 0.1
    assert rows.loc[advice.THRESHOLD, "safe"] == pytest.approx(0.4)


def test_shares_count_the_cells_that_a_threshold_can_answer_and_those_that_were_advised():
    share, unadvised = (table.set_index("learner") for table in (advice_shares(), advice_shares(advised=0)))
    assert share.loc[advice.WARM, ["cells", "advised", "holds_if_advised"]].tolist() == [1, 1, 0]
    assert share.loc[advice.THRESHOLD, "holds_if_advised"] == 1
    assert np.isnan(unadvised.loc[advice.WARM, "holds_if_advised"])
    assert advice_shares(answerable=0.04).empty
    assert set(advice_shares(records=400)["case"]) == {advice.KINDS[False]}


def test_the_experiment_plays_each_trace_and_its_first_half(monkeypatch):
    records = Paper.load
    monkeypatch.setattr(Paper, "load", lambda paper: [x.take(np.arange(4_000)) for x in records(paper)])
    with small_scale(300):
        played = Runner(Paper()).tables("advice")
    assert set(played["trials"]["source"]) == {
        f"{name}{part}" for name in ("triviaqa-like", "nq-like") for part in ("", advice.FIRST_HALF)
    }
    assert len(advice.way_table(played)) == 2 * 3 * 3
    assert list(advice.advice.judge(played)["claim"]) == [advice.LEMMA]
    monkeypatch.setattr(advice, "MIN_CELLS", 1)
    assert len(advice.advice.judge(played)) == 3
    assert advice.advice.figures(played | advice.advice.derive(played)) == {}
