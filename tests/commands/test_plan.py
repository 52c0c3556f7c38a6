"""The bounds of ``plan`` are those of a sweep and of the paper's formulas."""

import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from exaul import Abstainer, Sweep, run
from exaul.commands.plan import Plan, learners
from exaul.engine.logs.files import load
from exaul.kernels.fdr_limit import fdr_limit
from exaul.kernels.guarantee import guarantee, risk_of_all, shortest
from tests.games import LEARNERS, LEARNING
from tests.processes import output_of, refusal_of

# a learner whose bound of R_t grows with t
GROWING = LEARNERS["aci-rank"]._replace(risk_bound=lambda eta, t, *given: 81 + 0.4 * np.sqrt(t))


def printed(flags, capsys):
    """The lines that the command prints, and the FDR of each learner."""
    lines = output_of(["plan", *flags.split()], capsys).splitlines()
    found = [re.match(r"(\S+)  .*?  +(none|[\d.]+%)", line) for line in lines]
    return lines, {row[1]: 1.0 if row[2] == "none" else float(row[2][:-1]) / 100 for row in found if row}


def test_a_sweep_that_answers_the_planned_share_promises_the_same():
    result = run(Sweep(horizon=700, trials=2, arms=20, alphas=[0.1], learners=LEARNING))
    for row in result.trials.itertuples():
        plan = Plan(alpha=0.1, horizon=700, arms=20, coverage=row.answered / 700)
        assert guarantee(LEARNERS[row.learner], plan.case).fdr == pytest.approx(row.fdr_bound, rel=1e-12)


def test_terms_add_up_to_the_formula():
    """The bound of the regret is that of ``test_r_the_bounds_by_hand`` in ``tests/kernels/test_proofs.py``.

    With audits, alpha .1, T = 300,000 and half answered, it is what an independent program found.
    """
    T, share = 30_000, 0.5
    found = guarantee(LEARNERS["exaul"], Plan(alpha=0.05).case)
    assert found.abstaining == pytest.approx(T**-0.5)
    assert found.learning == pytest.approx((1 + T**0.5) * 918.3 / (T**0.5 * share * T), rel=1e-4)
    assert found.fdr == pytest.approx(0.05 + found.abstaining + found.learning)
    audited, rated = (
        guarantee(LEARNERS["aci-rank"], Plan(alpha=0.1, horizon=300_000, **how).case).learning
        for how in ({"audit": 0.05}, {"feedback_rate": 0.05})
    )
    assert audited == pytest.approx(0.0155, abs=2e-4)
    assert rated > audited  # the weight of an abstention is an estimate, which may be 1


def test_the_command(capsys):
    lines, _ = printed("--alpha 0.1 --slack 0.05", capsys)
    assert [line.split()[0] for line in lines[3 : 3 + len(learners())]] == list(learners())
    assert f"{shortest(LEARNERS['exaul'], Plan(alpha=0.1).case, 0.05):,}" in lines[3]
    assert "After 30,000 questions, each guarantee holds if" in lines
    assert any(line.startswith("aci-rank without a log aims at 30% at first, but does not know") for line in lines)
    assert shortest(LEARNERS["aci-rank"], Plan().case, 0.001) is None  # abstentions at s < 1/20 alone are more


@pytest.mark.parametrize("flags", ["--missing wrong", "--bias 3 --uncorrected --missing wrong"])
def test_answers_that_wait_to_count_as_wrong_are_in_the_guarantee(flags, capsys):
    """2,000 right answers, then wrong ones; a random 2% are rated, the others never."""
    _, limits = printed(f"--horizon 4000 --feedback-rate 0.02 {flags}", capsys)
    draws, answers, wrong = random.Random(0), 0, 0
    abstainer = Abstainer(learner="aci-rank", alpha=0.05, missing="wrong", seed=0)
    for t in range(4000):
        decision = abstainer.decide(1.0)
        answers, wrong = answers + decision.answer, wrong + (decision.answer and t >= 2000)
        if decision.answer and draws.random() < 0.02:
            abstainer.feedback(decision.id, t >= 2000)
    assert answers > 2000
    assert wrong / answers <= limits["aci-rank"]


LATE = "- no feedback comes more than 100,000 questions late (expires)"
REQUIRED = {  # flags: parts of the conditions
    "": "at least 50% of|default ones, and lambda is sqrt(T)|each answer is rated|before the next question",
    "--coverage 0.004": "at least 0.4% of the rounds",
    "--open 100": f"default ones|at most 100 answers|{LATE}",
    "--open 100 --reserve": LATE,
    "--open 100 --missing wrong": "at most 100 answers",
    "--feedback-rate 0.02 --missing wrong": "answers without feedback count as wrong after 100,000 questions",
    "--feedback-rate 0.02 --open 5": f"with probability 0.02, wrong ones with 0.02|{LATE}|is withdrawn",
    "--bias 4 --flips 0.1 0.2": "0.25, wrong ones with 1.0|down with probability 0.1|no rating is between",
    "--audit 0.05": "audited with probability 0.05, and each audit has a result",
    "--uncorrected --flips 0.1 0": "each answer is rated|no wrong answer is rated as right",
}


@pytest.mark.parametrize("flags", REQUIRED)
def test_all_that_the_guarantee_requires_is_printed(flags, capsys):
    lines, _ = printed(flags, capsys)
    conditions = [line for line in lines if line.startswith("- ")]
    for text in REQUIRED[flags].split("|"):
        assert sum(text in line for line in conditions) == 1
    assert (LATE in conditions) == (LATE in REQUIRED[flags])
    left_out = {name for line in lines if line.startswith("Nothing") for name in LEARNERS if name in line}
    assert left_out >= (set() if flags in ("", "--coverage 0.004") else {"exaul", "exaul-known"})


def test_no_printed_bound_or_probability_is_rounded_to_a_better_one(capsys):
    rounded = {"alpha": 0.5, "horizon": 24800, "coverage": 1}
    for given in ({}, rounded, {"alpha": 0.001, "horizon": 9001}, {"audit": 0.3}):
        plan = Plan(**given)
        _, limits = printed(" ".join(f"--{name} {value}" for name, value in given.items()), capsys)
        for name, limit in limits.items():
            assert -1e-15 <= limit - min(1.0, guarantee(LEARNERS[name], plan.case).fdr) < 1.001e-4
    lines, _ = printed("--delta 1e-7 --slack 0.0500004", capsys)
    assert "T for alpha + 0.0500004" in lines[2]
    assert "with probability 99.99999% " in lines[3]


@pytest.mark.parametrize(
    ("learner", "setting"),
    [
        (GROWING, {"alpha": 0.5, "coverage": 0.1, "slack": 0.05, "arms": 10, "audit": 0.5, "open": 100}),
        (GROWING, {"alpha": 0.1, "coverage": 0.1, "slack": 0.2, "audit": 0.01}),
        (GROWING, {"coverage": 0.37, "slack": 0.1}),
        (LEARNERS["aci-rank"], {"coverage": 0.9, "slack": 0.05, "audit": 1e-9}),
        *((LEARNERS[name], {"slack": slack}) for name in LEARNING for slack in (0.01, 0.1, 0.5)),
    ],
)
def test_the_shortest_horizon_is_the_first_from_which_on_the_guarantee_holds(learner, setting):
    plan = Plan(**setting)

    def holds(horizon):
        return guarantee(learner, replace(plan, horizon=horizon).case).fdr <= plan.alpha + plan.slack

    horizon = shortest(learner, plan.case, plan.slack)
    assert not any(map(holds, range(horizon - 50, horizon)))
    assert all(map(holds, [*range(horizon, horizon + 100), *(horizon * k for k in range(2, 50))]))


BAD = {  # flags: how the line begins
    "--alpha 10": "--alpha: 10.0 found; it must be in (0, 1), such as 0.1 for 10%",
    "--coverage 0": "--coverage: ",
    "--slack 0": "--slack: ",
    "--slack 0.99": "--slack: ",
    "--delta nan": "--delta: ",
    "--audit 0": "--audit: ",
    "--audit 0.1 --feedback-rate 0.5": "--feedback-rate: ",
    "--open -1": "--open: ",
    "--per-day 9": "--per-day, --audits-per-day: one of the two given",
    "--audits-per-day 9": "--per-day, --audits-per-day: one of the two given",
    "--score s": "--score: given without warm_start",
    "--per-day -1 --audits-per-day 3": "--per-day: -1 found",
    **{
        f"--per-day 100 --audits-per-day 3 {flags}": f"{flags.split()[0]}: given together with per_day"
        for flags in ("--slack 0.05", "--audit 0.1", "--horizon 9", "--bias 2", "--open 5", "--arms 9")
    },
    "--per-day 10 --audits-per-day 6": "--audits-per-day: 6 found; it must be from 1 to 5",
    "--per-day 10 --audits-per-day 0": "--audits-per-day: 0 found; it must be from 1 to 5",
}


@pytest.mark.parametrize("flags", BAD)
def test_bad_input(flags, capsys):
    assert refusal_of(["plan", *flags.split()], capsys).startswith(f"exaul: {BAD[flags]}")


def test_wrong_feedback_moves_the_aim_of_the_bound():
    """A tenth of .1 is read as right, .05 of the rest as wrong: .3 / step, an answer, and 1 for 200 abstentions."""
    case = Plan(alpha=0.1, horizon=1000, flips=(0.05, 0.1)).case
    bound = 12 + 1 - (0.9 * 0.1 + 0.05 * 0.9) + 500 / 200
    assert guarantee(LEARNERS["aci-rank"], case).learning == pytest.approx(
        risk_of_all(case, bound) / 500, rel=1e-12
    )


def test_a_plan_of_audits_is_what_they_prove(capsys):
    """The limit after a week is that of F1; more weeks prove more, and less than everything."""
    lines, _ = printed("--alpha 0.1 --per-day 5000 --audits-per-day 30", capsys)
    said = "at alpha = 0.1: audit each answer with probability 0.012 (--audit 0.012)."
    assert any(said in line for line in lines)
    as_service = "  exaul serve --alpha {} --audit 0.012 --state state.sqlite"
    limit = "for a limit of 10% in 26 weeks, if 50% of the questions are answered:"
    first = "as a service (--upstream URL puts it in front of a model):"
    assert lines[-5:] == [first, as_service.format(0.1), "", limit, as_service.format(0.087)]
    rows = [line.split() for line in lines if re.match(r"\d", line)]
    assert [row[0] for row in rows] == ["1", "2", "4", "8", "26"]
    limits = [float(row[-1][:-1]) / 100 for row in rows]
    first = fdr_limit(0.1 * 210, 17_500, 17_500, 0.012, (0.0, 0.0), 0.05)
    assert rows[0][1:3] == ["17,500", "210"]
    assert first <= limits[0] < first + 2e-4
    assert limits == sorted(limits, reverse=True)
    assert limits[-1] > 0.1
    for alpha, is_met in ((0.087, True), (0.088, False)):
        lines, _ = printed(f"--alpha {alpha} --per-day 5000 --audits-per-day 30", capsys)
        (last,) = (line.split()[-1] for line in lines if line.startswith("26 "))
        assert (float(last[:-1]) <= 10) == is_met
    assert "for a limit" not in "".join(printed("--alpha 0.01 --per-day 20 --audits-per-day 1", capsys)[0])


def test_a_start_from_a_log_is_planned_with_its_share_and_audits_are_for_what_it_answers(capsys):
    log = Path(__file__).parents[2] / "examples" / "log.csv"
    start = "aci-rank starts by answering 84.5% at alpha = 0.1 (log: 1,000 rows, 20.8% wrong)"
    lines, limits = printed(f"--alpha 0.1 --warm-start {log}", capsys)
    assert start in lines
    assert "84.5% answered" in lines[0]
    risk = 40 * 0.844 + 0.9 + 0.155 * 30_000 / 200  # s_1 counts half of the lowest level that is answered
    assert limits["aci-rank"] == pytest.approx(0.1 + risk / (0.845 * 30_000), abs=1e-4)
    flags = f"--alpha 0.1 --per-day 1000 --warm-start {log} --audits-per-day"
    lines, _ = printed(f"{flags} 2", capsys)
    assert any(line.startswith("1  ") and line.split()[1:3] == ["5,915", "14"] for line in lines)
    assert any("if 84.5% of the questions are answered" in line for line in lines)
    assert start in lines
    (expected,) = (line for line in lines if line.startswith("at alpha = 0.1: use aci-rank"))
    (needed,) = (line for line in lines if line.startswith("if so many are answered at alpha = 0.1, --audit "))
    share = float(expected.split("expect ")[1].split("%")[0]) / 100  # 81%, which is less than at first
    assert float(needed.split()[10]) == pytest.approx(2 / (1000 * share), rel=0.01)
    lines, _ = printed(f"{flags} 2 --coverage 0.3 --correct correct", capsys)
    assert lines[-1].endswith(f" --audit 0.006667 --warm-start {log} --log-correct correct --state state.sqlite")
    assert any("if 30% of the questions are answered" in line for line in lines)
    week = "--alphas 0.1 --horizon 7000 --feedback-rate 0.006667"
    assert f"  exaul sweep --logs {log} --correct correct --warm-start 0.5 --learners aci-rank {week}" in lines
    lines, _ = printed(f"{flags} 50", capsys)  # a lower target answers less, of which more can be audited
    assert lines[-2] == "for a limit of 10% in 26 weeks, if 80.2% of the questions are answered:"
    assert lines[-1].startswith("  exaul serve --alpha 0.09 --audit 0.06234 ")
    for alpha, is_met in (("0.09", True), ("0.091", False)):
        lines, _ = printed(f"{flags.replace('0.1', alpha)} 50", capsys)
        (last,) = (line.split()[-1] for line in lines if line.startswith("26 "))
        assert (float(last[:-1]) <= 10, any("--audit 0.06234" in x for x in lines)) == (is_met, is_met)
    said = refusal_of(["plan", *flags.split(), "850"], capsys)
    assert "audits-per-day: 850 found; it must be from 1 to 845" in said


def test_the_command_for_a_limit_is_of_an_advised_alpha(tmp_path, capsys):
    """Between the shares wrong of two levels of the score, a sweep advises .2, and none of the smaller ones."""
    scores = np.tile(np.repeat([0.9, 0.8, 0.1], [5, 1, 4]), 200)
    wrong = np.random.default_rng(0).random(2000) < np.select([scores == 0.9, scores == 0.8], [0.14, 0.6], 0.9)
    rows = "".join(f"{score},{int(x)}\n" for score, x in zip(scores, wrong, strict=True))
    (tmp_path / "log.csv").write_text(f"score,error\n{rows}")
    flags = f"--per-day 5000 --audits-per-day 30 --warm-start {tmp_path}/log.csv --alpha"
    lines, _ = printed(f"{flags} 0.2", capsys)
    assert lines[-1].startswith("for a limit of 20% in 26 weeks, alpha must be 0.181, which is not advised; ")
    assert [line.split()[3] for line in lines if line.startswith("  exaul serve ")] == ["0.2"]
    assert [line[:28] for line in lines if "aci-rank, started" in line] == [
        "at alpha = 0.2: use aci-rank",
        "at alpha = 0.181: no advice.",
    ]
    assert not any("0.2 is not advised" in line for line in lines)
    lines, _ = printed(f"{flags} 0.181", capsys)
    assert "as a service (--upstream URL puts it in front of a model; alpha = 0.181 is not advised):" in lines


def test_a_plan_from_another_score_says_that_the_gateway_must_compute_it(tmp_path, capsys):
    (tmp_path / "log.csv").write_text("score_verbal,correct\n" + "0.9,1\n0.8,0\n" * 200)
    flags = f"--per-day 100 --audits-per-day 2 --warm-start {tmp_path / 'log.csv'} --score score_verbal"
    said = "(--upstream URL, with the --score that computes score_verbal, puts it in front of a model):"
    assert f"as a service {said}" in printed(flags, capsys)[0]


def test_a_plan_repeats_what_inspect_warns_of_in_the_log(tmp_path, capsys):
    (tmp_path / "log.csv").write_text("score,correct\n" + "0.9,1\n0.8,0\n" * 20)
    for flags in ("", " --per-day 1000 --audits-per-day 9"):
        lines, _ = printed(f"--warm-start {tmp_path}/log.csv{flags}", capsys)
        assert "only 40 rows: what a threshold answers of others may differ" in lines


@pytest.mark.parametrize(("highest", "share"), [("", "0.0%"), ("0.95,1\n" * 40, "4.1%")])
def test_an_alpha_that_a_threshold_hardly_reaches_has_no_plan_but_for_a_given_coverage(
    highest, share, tmp_path, capsys
):
    (tmp_path / "log.csv").write_text("score,correct\n" + "0.9,0\n0.8,1\n" * 500 + highest)
    for flags in ("", " --per-day 1000 --audits-per-day 9"):
        argv = f"--alpha 0.1 --warm-start {tmp_path}/log.csv{flags}"
        said = refusal_of(["plan", *argv.split()], capsys)
        assert f"alpha: 0.1 found; {share} of {tmp_path}/log.csv would be answered at it, less than 5%; " in said
        assert f"sweep --logs {tmp_path}/log.csv --alphas 0.1 --warm-start 0.5 names a larger one" in said
        assert printed(f"{argv} --coverage 0.3", capsys)[0]


NONE = {"": True, "--open 100": False}
NONE["--alpha 0.9 --per-day 20 --audits-per-day 1"] = True


@pytest.mark.parametrize("flags", NONE)
def test_none_is_explained_where_a_row_says_so(flags, capsys):
    lines, _ = printed(flags, capsys)
    assert ("none: no limit below 100% is proved." in lines) == NONE[flags]
    assert any("none" in line.split() for line in lines[2:8]) == NONE[flags]


def test_a_limit_that_never_falls_far_enough_says_how_far_it_falls(capsys):
    """At 20% answered, four questions are withheld for each answer: 4 / 200 more wrong answers for each."""
    lines, _ = printed("--alpha 0.2 --coverage 0.2 --slack 0.02", capsys)
    assert [line.split()[-3] for line in lines if line.startswith("aci-rank  ")] == ["never"]
    assert "falls towards 22.00% for aci-rank" in " ".join(lines)
    assert "never" not in " ".join(printed("--alpha 0.2 --coverage 0.2 --slack 0.021", capsys)[0])


def test_the_limits_over_weeks_are_written_and_drawn(tmp_path, capsys):
    """Those of audits are what is printed, those of the guarantee what ``plan`` prints for that share and T."""
    lines, _ = printed(f"--per-day 1000 --audits-per-day 20 --alpha 0.1 --out {tmp_path}/out", capsys)
    table = load(tmp_path / "out" / "weeks.csv")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"weeks.csv", "weeks.png", "weeks.pdf"}
    audited = table[table["limit"] == "audits prove"].set_index("weeks")
    assert audited.index.tolist() == list(range(1, 27))
    for weeks in (1, 2, 4, 8, 26):
        (line,) = [line for line in lines if re.match(rf"{weeks} ", line)]
        assert float(line.split()[-1][:-1]) / 100 == pytest.approx(audited.loc[weeks, "fdr"], abs=1e-4)
    half = table[table["limit"] == "if all are rated: 50% answered"].set_index("weeks").loc[3]
    plan = Plan(alpha=0.1, horizon=21_000, coverage=0.5)
    assert half["fdr"] == guarantee(LEARNERS["aci-rank"], plan.case).fdr
    assert "out: given without per_day" in refusal_of(["plan", "--out", str(tmp_path / "x")], capsys)


def test_the_figure_of_weeks_shows_each_limit_and_says_which_are_certain(tmp_path, monkeypatch, capsys):
    """Where nothing is proved there is no line, which the caption says; the last limits are as printed."""
    written = []
    monkeypatch.setattr("exaul.engine.folder.write_new", lambda path, tables, drawn: written.append(drawn["weeks"]))
    lines, _ = printed(f"--per-day 10 --audits-per-day 1 --alpha 0.01 --out {tmp_path}/out", capsys)
    (axes,), said = written[0].axes, " ".join(written[0].get_supxlabel().split())
    drawn = np.concatenate([line.get_ydata() for line in axes.lines[:-1]])
    assert (np.nanmin(drawn) > axes.get_ylim()[0], np.nanmax(drawn) < axes.get_ylim()[1]) == (True, True)
    assert np.isnan(drawn).sum() == 1  # week 1, if 10% are answered
    assert said.endswith(" No limit below 100% until week 1: 10% answered.")
    assert "with 95% confidence" in said
    assert "for certain" in said
    assert f"audits prove: {lines[7].split()[-1]}" in [text.get_text() for text in axes.texts]
