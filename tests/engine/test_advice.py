"""The advice: out of sample, on halves of the log, whatever the sweep's trials; and what its sentences say."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from exaul import Sweep, run
from exaul.engine.logs.files import Table
from exaul.engine.logs.log import Records
from exaul.engine.results import advice
from exaul.kernels.game import LOG_ARMS, log_grid
from exaul.kernels.metrics import answerable
from tests import reference

pytestmark = pytest.mark.usefixtures("few_figures")
SMALL = {"trials": 2, "horizon": 300, "learners": ("exaul",)}


@pytest.fixture(autouse=True)
def _computed_anew(monkeypatch):
    """Other tests compute the advice of a log once."""
    monkeypatch.setattr(advice, "advice_table", advice.advice_table.__wrapped__)


def made_up(rows, wrong=0.15, seed=0, name="log"):
    """A log in which right answers score above wrong ones."""
    rng = np.random.default_rng(seed)
    errors = rng.random(rows) < wrong
    scores = np.where(errors, rng.beta(3, 2, rows), rng.beta(8, 1, rows))
    return Records(name, scores, errors.astype(float), 0, None)


def rows_of(table, alpha=0.1):
    """The rows of the learner and of the threshold at an alpha."""
    return [
        table[(table["alpha"] == alpha) & (table["learner"] == x)].iloc[0]
        for x in (advice.ACI_RANK, advice.THRESHOLD)
    ]


def test_halves_divide_the_log_in_its_order_and_at_random_and_do_not_depend_on_the_sweep():
    log = made_up(101)
    cuts = advice.halves(log)
    assert len(cuts) == 1 + advice.HALVES
    for first, rest in cuts:
        assert (len(first.scores), len(rest.scores)) == (50, 51)
        assert {*rest.scores} <= {*log.scores} - {*first.scores}
    drawn = [len({*rest.scores}) for _, rest in cuts]
    assert drawn[0] == 51
    assert np.mean(drawn[1:]) == pytest.approx(51 * (1 - np.exp(-1)), abs=2)  # with replacement
    assert cuts[0][0].scores.tolist() == log.scores[:50].tolist()
    assert len({tuple(first.scores) for first, _ in cuts}) == len(cuts)


def test_a_half_is_answered_as_the_reference_answers_it():
    """Decisions of the kernels are counted: as many answers, and wrong ones, as the oracle gives."""
    log, rest = made_up(700), made_up(900, seed=1)
    alphas = np.array([0.05, 0.2])
    found = advice.simulate_half(log, rest, alphas)
    grid = log_grid(LOG_ARMS, log.scores)
    for alpha, answered, wrong in zip(alphas, *found, strict=True):
        learner = reference.AciRank(grid, alpha, log=(log.scores, log.errors))
        decisions = []
        for score, error in zip(rest.scores, rest.errors, strict=True):
            decisions.append(learner.decide(score, 0.5)[0])
            learner.learn(None, decisions[-1], error)
        assert answered == np.sum(decisions)
        assert wrong == pytest.approx(rest.errors[decisions].sum())


def test_the_threshold_of_the_log_is_the_lowest_that_holds_alpha_there():
    log = Records("log", np.array([0.1, 0.5, 0.5, 0.9]), np.array([1.0, 1.0, 0.0, 0.0]), 0, None)
    rest = Records("rest", np.array([0.05, 0.1, 0.6, 0.95]), np.array([0.0, 1.0, 1.0, 0.0]), 0, None)
    found = advice.hold_threshold(log, rest, np.array([0.01, 0.34, 0.6]))
    assert found.answered.tolist() == [1, 2, 4]  # from .9, from .5, all
    assert found.wrong.tolist() == [0.0, 1.0, 2.0]
    hopeless = log._replace(errors=np.ones(4))
    assert advice.hold_threshold(hopeless, rest, np.array([0.5])).answered.tolist() == [0]


def test_a_large_log_that_does_not_change_is_advised_and_its_promise_is_that_of_the_share():
    table = advice.advice_table([made_up(8_000)], [0.1])
    learned, held = rows_of(table)
    assert learned["advised"] == 1
    assert held["advised"] == 0
    assert learned["fdr_q05"] <= learned["fdr"] <= learned["fdr_q95"] <= learned["fdr_most"] <= 0.11
    assert learned["answered_q05"] <= learned["answered"] <= learned["answered_q95"]
    assert learned["answered"] > 0.85 * learned["answerable"]
    assert 1 - 0.1 < learned["risk_bound"] < 40 + 1 - 0.1
    assert np.isnan(held["risk_bound"])
    for trials, name in (None, "aci-rank"), (Table({"learner": ["aci-rank-from-log"]}), "aci-rank-from-log"):
        assert advice.advised(table, trials) == {0.1: name}
    text = advice.describe(table)
    answered, fdr = ([100 * learned[f"{name}{x}"] for x in ("", "_q05", "_q95")] for name in ("answered", "fdr"))
    expected = "{:.0f}% ({:.0f} to {:.0f}) of the questions answered, and ".format(*answered)
    expected += "{:.1f}% ({:.1f} to {:.1f}) of the shown answers wrong".format(*fdr)
    assert text == f"at alpha = 0.1: use aci-rank, started from a log of your model; expect {expected}"
    text = advice.describe(advice.advice_table([made_up(8_000)], [0.2]))  # at which all may be shown
    free = "no abstention is needed: at most 20% of all answers are wrong; to guard against a change"
    assert text.startswith(f"at alpha = 0.2: {free}, use aci-rank, started from a log of your model; expect 9")
    head, *lines = (re.split("  +", line) for line in advice.describe_halves(table).split("\n\n")[1].splitlines())
    assert head == ["learner", "FDR", "answered"]
    for row, (name, *cells) in zip((learned, held), lines, strict=True):
        assert name == row["learner"]
        assert cells == [
            f"{100 * row[x]:.1f}% ({100 * row[f'{x}_q05']:.1f} to {100 * row[f'{x}_q95']:.1f})"
            for x in ("fdr", "answered")
        ]
    few = "\na mean outside its range is that of a few halves that differ much from the others"
    assert few not in advice.describe_halves(table)
    assert few in advice.describe_halves(table.assign(answered=table["answered_q95"] + 0.01))


def test_the_few_halves_that_answer_do_not_speak_for_the_others():
    """A threshold answers on few halves where two rows at the top are right, on most where six are."""
    note = "\nan FDR is of the halves in which something is answered"
    for count, is_shown in ((2, False), (6, True)):
        scores, errors = np.linspace(1, 0, 400), np.ones(400)
        errors[:count] = 0
        scores[[0, 300]], errors[[0, 300]] = scores[[300, 0]], errors[[300, 0]]  # it answers one in the log's order
        table = advice.advice_table([Records("log", scores, errors, 0, None)], [0.1])
        _, held = rows_of(table)
        assert held["answered"] > 0 == held["fdr_in_order"]
        assert [held[f"fdr{x}"] >= 0 for x in ("", "_q05", "_q95", "_most")] == [is_shown] * 4
        text = advice.describe_halves(table[table["learner"] == advice.THRESHOLD])
        assert (note in text, "  -  " in text) == (is_shown, not is_shown)
    row = table.assign(fdr_most=np.nan, answerable=0.5)  # of the learner, as if it answered on few halves
    assert "no advice. aci-rank, started from a log, answers nothing on most halves of it" in advice.describe(row)


def test_it_is_never_advised_where_the_upper_limit_of_its_fdr_is_above_alpha():
    """Ten logs, some of which change: the limit decides, and it is the larger of both."""
    advised = []
    for seed in range(10):
        log = made_up(400 + 300 * seed, seed=seed)
        if seed % 3 == 0:  # the second half is harder
            log = log._replace(errors=np.where(np.arange(len(log.scores)) > len(log.scores) / 2, 1.0, log.errors))
        table = advice.advice_table([log], [0.02, 0.1])
        for alpha in (0.02, 0.1):
            row, _ = rows_of(table, alpha)
            assert row["fdr_most"] == np.fmax(row["fdr_q95"], row["fdr_in_order"]) or np.isnan(row["fdr_most"])
            limit = alpha + min(0.01, alpha / 2)
            assert row["advised"] == (row["fdr_most"] <= limit and row["answerable"] >= 0.05)
            assert ("use aci-rank" in advice.describe(table[table["alpha"] == alpha])) == bool(row["advised"])
            advised.append(row["advised"])
    assert 0 < np.mean(advised) < 1


def test_where_none_is_advised_an_alpha_is_named_that_is_advised():
    log = made_up(2_000, wrong=0.9)
    table = advice.advice_table([log], [0.001, 0.002])
    assert not table["advised"].any()
    assert f"use none. The best threshold answers {table['answerable'][0]:.1%} of the whole log" in advice.describe(
        table
    )
    usable, answered = table.iloc[0][["usable_alpha", "usable_answered"]]
    learned, _ = rows_of(advice.advice_table([log], [usable, usable - 0.01]), usable)
    assert learned["advised"] == 1
    assert learned["answered"] == answered
    said = f"or a better score, or alpha = {usable:g} (at which it is advised; expect {answered:.0%} answered)"
    assert advice.describe(table).count(said) == 1
    assert "not advised" not in advice.describe(advice.advice_table([log], [usable]))


@pytest.mark.parametrize(
    ("answered", "text"),
    [
        ((0.795, 0.743, 0.831), "80% (74 to 83)"),
        ((0.104, 0.081, 0.126), "10.4% (8.1 to 12.6)"),  # below 10%, a whole percent is too coarse
        ((0.996, 0.981, 0.999), "99.6% (98.1 to 99.9)"),  # not 100%: some are withheld
        ((0.5, 0.499, 0.502), "50%"),  # as the range rounds to the mean
    ],
)
def test_a_share_answered_has_a_range_and_no_more_digits_than_it_needs(answered, text):
    keys = [f"{name}{x}" for name in ("answered", "fdr") for x in ("", "_q05", "_q95")]
    cells = dict(zip(keys, [*answered, 0.05, 0.046, 0.054], strict=True))
    table = advice.advice_table([made_up(8_000)], [0.1]).assign(**cells)
    expected = f"; expect {text} of the questions answered, and 5.0% (4.6 to 5.4) of the shown answers wrong"
    assert advice.describe(table).endswith(expected)


@pytest.mark.parametrize(
    ("in_order", "limit"),
    [
        (0.2, "21.04% (at most this on 95% of 30 random halves of the log; allowed: 21%)"),
        (0.2104, "21.04% (as on the second half of the log, from its first; allowed: 21%)"),
        (0.274, "27.4% (as on the second half of the log, from its first; allowed: 21%)"),
    ],
)
def test_a_refused_fdr_is_above_the_allowed_one_as_printed(in_order, limit):
    cells = {"advised": 0, "fdr_in_order": in_order, "fdr_most": max(in_order, 0.2104)}
    table = advice.advice_table([made_up(8_000)], [0.2]).assign(**cells)
    assert f"may have an FDR of {limit}" in advice.describe(table)


def test_a_score_that_says_nothing_has_no_alpha_to_take_instead():
    log = made_up(2_000)._replace(errors=np.tile([0.0, 1.0], 1_000))
    text = advice.describe(advice.advice_table([log], [0.1]))
    assert "not advised: take more rows or a better score; it is not advised at a larger alpha" in text


@pytest.mark.parametrize(
    ("log", "sentence"),
    [
        (made_up(100), "caution: the log has only 100 records, so the advice may be off by several points"),
        (made_up(4_000)._replace(errors=np.repeat([0.0, 1.0], 2_000)), "caution: the log drifts:"),
    ],
)
def test_what_makes_the_advice_less_sure_is_said(log, sentence):
    assert sentence in advice.describe(advice.advice_table([log], [0.1]))


@pytest.mark.parametrize("errors", [[0.0, 0.0], [1.0, 1.0], [1.0, 0.0], [0.5, 0.25]])
@pytest.mark.parametrize("scores", [[0.5, 0.5], [0.0, 1.0]])
def test_two_records_are_enough_for_a_table_and_one_has_no_halves(scores, errors):
    log = Records("log", np.array(scores), np.array(errors), 0, None)
    table = advice.advice_table([log], [0.1])
    assert len(table) == 2
    assert "caution: the log has only 2 records" in advice.describe(table)
    assert advice.advised(table) == {}  # of one answer, no FDR between 0 and 1 can be seen
    table = advice.advice_table([log.take(slice(1))], [0.1])
    assert table.empty
    assert (advice.advised(table), advice.describe(table)) == ({}, "")


def test_two_sources_have_rows_and_sentences_of_their_own():
    logs = [made_up(2_000, name="easy"), made_up(2_000, wrong=0.9, seed=1, name="hard")]
    result = run(Sweep(**SMALL, environment="single-shift", alphas=(0.01,)), logs)
    assert result.advice["source"].tolist() == ["easy", "easy", "hard", "hard"]
    assert advice.advised(result.advice) == {}  # one of them is not enough
    text = result.summary()
    assert "on easy at alpha = 0.01" in text
    assert "on hard at alpha = 0.01" in text
    assert "\ncaution: on hard x" in advice.describe(result.advice.assign(caution="x"))


def test_a_study_of_other_learners_gets_no_advice():
    result = run(Sweep(**SMALL | {"learners": ("ew",)}, alphas=(0.2,)), [made_up(2_000)])
    assert ["use aci-rank" in result.summary(theory=theory) for theory in (False, True)] == [True, False]


def test_a_summary_says_what_thresholds_can_answer_and_advises_the_step_of_programs():
    """Evenly spaced thresholds cannot tell scores close to 1 apart."""
    log = made_up(2_000)
    close, sweep = log._replace(scores=1 - (1 - log.scores) / 1e4), SMALL | {"learners": ("aci-rank",)}
    text = run(Sweep(**sweep, alphas=(0.05,)), [close]).summary()
    share = answerable(log.scores, log.errors, 0.05)  # of the log, of which a trial draws a part
    assert f"the most that a threshold at the target can answer of the records played: {share:.1%}\n" in text
    first = text.partition("\n\ntarget: ")[0]
    assert "thresholds, which a sweep takes by default, answer at best 0.0% at alpha = " in first
    assert "at best" not in run(Sweep(**sweep, alphas=(0.05,), grid="logit"), [close]).summary()
    for steps, starred in (((0.3, 0.025), "* aci-rank, step 0.025 "), ((0.3,), "aci-rank ")):
        text = run(Sweep(**sweep, steps=steps), [log]).summary()
        assert "use aci-rank, step 0.025, started from a log" in text
        assert f"\n{starred}" in text
    for warm_start, is_cold in ((None, True), ("0.5", False)):
        text = run(Sweep(**sweep | {"horizon": 3000}, warm_start=warm_start), [log]).summary()
        assert ("advised (below), if it starts from a log, which it does not here" in text) == is_cold


@pytest.mark.parametrize("environment", ["replay", "stochastic"])
def test_no_fixed_threshold_answers_more_of_what_is_played_than_is_said(environment):
    """The log, which is half of the records, is worse than the other half."""
    records = [made_up(500, wrong=wrong, seed=3) for wrong in (0.6, 0.1)]
    log = records[0]._replace(**{x: np.append(*(getattr(r, x) for r in records)) for x in ("scores", "errors")})
    sweep = Sweep(
        environment=environment, warm_start=0.5, trials=2, learners="best-fixed", lambdas=range(1, 40), alphas=0.1
    )
    result = run(sweep, [log])
    line = r"a threshold at the target can answer of the records played: ([\d.]+)%"
    said, held = re.search(line, result.summary())[1], result.trials.query("fdr <= 0.1")
    assert len(held) > 10
    assert 0 <= float(said) / 100 - (held["answered"] / 500).max() < 0.03


def test_the_use_of_a_log_is_told_for_each_advised_alpha():
    sweep = Sweep(**SMALL | {"learners": ("aci-rank", "ew")}, alphas=(0.001, 0.1, 0.05))
    text = run(sweep, [made_up(8_000)]).summary()
    assert "in a program" not in run(replace(sweep, learners=("ew",)), [made_up(8_000)]).summary()
    for where, use in (("in a program", "Abstainer(alpha=0.05, "), ("as a service", "exaul serve --alpha 0.05 ")):
        assert re.search(rf"\n{where}, with alpha = 0\.05 or 0\.1:\n  {re.escape(use)}", text)
    hint = "\n--upstream URL, with the --score that computes score_verbal, puts it in front of a model. --audit"
    assert "\n--upstream URL puts it in front of a model. --audit SHARE" in text
    assert hint in run(replace(sweep, score="score_verbal"), [made_up(8_000)]).summary()


def test_an_adaptive_environment_has_no_advice(in_folder):
    result = run(Sweep(**SMALL, environment="always-wrong", arms=20, out="out"))
    assert result.advice.empty
    assert "aci-rank, started from" not in result.summary()
    assert not Path("out/advice.csv").exists()


def test_with_imperfect_feedback_it_promises_nothing():
    """The bound is that of feedback at once; the sweep's own column ``at most`` has the one that holds."""
    sweep, log = SMALL | {"learners": ("aci-rank",), "alphas": (0.1,)}, made_up(2_000)
    late, at_once = (run(Sweep(**sweep, **fields), [log]).summary() for fields in ({"delay": 20}, {}))
    assert "at alpha = 0.1: use aci-rank" in late
    assert "rated at once and correctly, unlike here" in late
    assert "unlike" not in at_once
    assert ("--audit" in late.split("as a service")[1].splitlines()[1]) is False
    rare = run(Sweep(**sweep, feedback_rate=0.25), [log]).summary()  # as by audits, which are to be begun with
    assert " --audit 0.25 " in rare.split("as a service:\n")[1].splitlines()[0]
    assert "--audit SHARE cannot be changed later." in rare
