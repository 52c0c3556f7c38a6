"""The Abstainer decides as the simulation does, and keeps its bounds with delayed feedback."""

import copy
import json
import math
import pickle
from contextlib import suppress
from inspect import signature
from itertools import product

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from exaul import Abstainer, BadInput, Sweep, run
from exaul.engine.logs.log import Records
from exaul.kernels.fdr_limit import fdr_limit
from exaul.kernels.feedback import FORGETTING, WITH_FEEDBACK, draw_feedback
from exaul.kernels.game import RuleParams, logit_grid
from exaul.kernels.learners.aci_rank import aci_rank
from exaul.kernels.learners.exaul import exaul
from exaul.kernels.online import LARGE, start_copy
from exaul.kernels.online import choose as where
from exaul.kernels.uniforms import DELAYS_STREAM, FEEDBACK_STREAM
from tests.engine.test_feedback import transcribe
from tests.games import coins, records_of

LEARNERS = "aci-rank", "exaul"
ROUNDS = 3000, pytest.param(30_000, marks=pytest.mark.slow)
pytestmark = pytest.mark.usefixtures("constant_learners")


def test_a_small_probability_of_abstaining_keeps_its_digits():
    """1 - P would have one digit of Q, by which an abstention divides its charge."""
    numbers = RuleParams(eta=1.0, gamma=0.0, alpha=0.1, answer_cost=1.0, abstain_cost=1e-9)
    copy = start_copy(exaul.rule, (), [0.0, 35.0])
    decision = copy.decide(1, lambda: 1 - 2.0**-53, numbers)
    copy.learn(1, decision, 0.0, numbers)
    assert not decision.answer
    assert copy.table[1] - 35 == pytest.approx(1e-9 * (1 + math.exp(35)), rel=1e-9)


def test_counts_that_have_grown_are_divided_by_a_power_of_two():
    rule, table = aci_rank.rule, [0.0, 3.0, 5.0]
    first, second = (start_copy(rule, [*rule.start, x], [x * count for count in table]) for x in (1.0, LARGE))
    for counts in (first, second):
        counts.decide(1, None, None)
    assert (first.numbers, first.table) == (second.numbers, second.table)


@pytest.mark.parametrize(("score", "is_answered"), [(0.9994, False), (0.9996, True)])
def test_without_a_log_the_first_answer_is_above_a_share_of_the_thresholds(score, is_answered):
    """As docs/learners.md says: above .9995 in a program, and above .7 in a sweep, whose thresholds are even."""
    assert Abstainer(seed=0).decide(score).answer is is_answered
    rows = Records("log", np.full(9, 0.69 + 0.02 * is_answered), np.zeros(9), 0, None)
    result = run(Sweep(learners=["aci-rank"], alphas=[0.1], trials=1, horizon=1), [rows])
    assert result.trials["answered"].tolist() == [is_answered]


BAD = {  # calls, what they are given, and the sentence
    "score": (
        [lambda abstainer, id, value: abstainer.decide(value)],
        [-0.1, 1.1, math.nan, "0.5", None, True, [0.5], np.True_, b"0.5"],
        r"score: .* found; it must be a number in \[0, 1\]",
    ),
    "error": (
        [lambda abstainer, id, value: abstainer.feedback(id, value)],
        [-0.1, 1.1, math.nan, "maybe", None, [1], b"1"],
        r"error: .* found; it must be up, down, true \(wrong\), false \(right\) or a number in \[0, 1\]",
    ),
    "id": (
        [
            lambda abstainer, id, value: abstainer.feedback(value, 1),
            lambda abstainer, id, value: abstainer.withdraw(value),
            lambda abstainer, id, value: abstainer.decide(0.5, id if value is None else value),  # it makes one
        ],
        [None, 3, [1], b"1", "\ud800", "a\0"],
        r"id: .* found; it must ",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_changes_nothing(name):
    calls, values, sentence = BAD[name]
    abstainer = Abstainer(learner="answers")
    decision = abstainer.decide(0.9)
    state = abstainer.state()
    for call, value in product(calls, values):
        with pytest.raises(BadInput, match=sentence):
            call(abstainer, decision.id, value)
        assert abstainer.state() == state
    assert abstainer.feedback(decision.id, "down") == "counted"


def stored(abstainer):
    """The state of an Abstainer as it is read again from JSON."""
    return json.loads(json.dumps(abstainer.state()))


CASES = {
    "at once": {},
    "rare and late": {"feedback_rate": 0.02, "delay": 1000},
    "biased and flipped": {"feedback_rate": 0.5, "delay": 40, "bias": 3.0, "flips": (0.05, 0.2)},
    "expiring": {"feedback_rate": 0.3, "delay": 40, "expires": 50},
    "counted as wrong": {"feedback_rate": 0.3, "delay": 40, "expires": 100, "missing": "wrong"},
    "counted as right": {"feedback_rate": 0.3, "expires": 3, "missing": "right"},
    "reserved": {"feedback_rate": 0.9, "delay": 4, "expires": 20, "missing": "wrong", "reserve": True},
}
IN_A_PROGRAM = ("bias", "flips", "expires", "missing", "reserve")  # the rest is what users do


def decide_all(records, fields, trial=0, **more):
    """The decisions [T] of an Abstainer, which is restarted again and again, and it.

    Its users do what a simulation draws for a trial, whose number is the key.
    """
    feedback, slots, decided, rounds = Sweep(**fields).feedback, {}, [], len(records.scores)
    luck, delays = (coins(x, np.array([trial]), rounds, seed=7)[:, 0, 0] for x in (FEEDBACK_STREAM, DELAYS_STREAM))
    described = {name: value for name, value in fields.items() if name in IN_A_PROGRAM}
    abstainer = Abstainer(alpha=0.1, seed=7, key=trial, **described, **more)
    for n in range(rounds):
        if n in (1, 2560) or n % 191 == 50:  # also within blocks of 256 questions, whose rates differ
            state, started = stored(abstainer), abstainer.started
            abstainer = Abstainer.of(state)
            assert (stored(abstainer), abstainer.started) == (state, started)
        decided.append(abstainer.decide(records.scores[n], str(n)).answer)
        slot = int(delays[n] * (feedback.delay + 1))
        due = n if slot == feedback.delay else slots.get(slot)
        slots[slot] = n
        if due is not None:
            status, error = draw_feedback(where, records.errors[due], luck[due], feedback.parameters())
            if status == WITH_FEEDBACK:
                abstainer.feedback(str(due), error)
    return np.array(decided), abstainer


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("learner", LEARNERS)
def test_it_makes_the_decisions_of_the_transcription(learner, case, rounds):
    """From what a program sees: feedback when it arrives. Those of a sweep are the same (``test_feedback.py``)."""
    fields, records = CASES[case], records_of(rounds)
    if fields.get("reserve") and learner == "exaul":
        pytest.skip("no reserve")
    sweep = Sweep(seed=7, **fields)
    expected, learned, *_ = transcribe(learner, logit_grid(1000, ()), records, sweep, fields, trial=1)
    decided, abstainer = decide_all(records, fields, trial=1, learner=learner, horizon=rounds)
    np.testing.assert_array_equal(decided, expected)
    abstainer.state()  # answers expire before a call
    figures, aim = abstainer.figures(), sweep.feedback.aim(0.1)
    assert (figures["answers"], figures["aim"]) == (expected.sum(), aim)
    assert figures["observed"] == sum(rated for _, rated, _ in learned)
    assert figures["feedback_risk"] == pytest.approx(sum(said - aim for *_, said in learned), abs=1e-6)
    if case == "at once":
        assert (figures["learned_share"], figures["learned"]) == (1, rounds)


THRESHOLDS = {  # configurations, and whether each starts from a log
    "aci-rank": ({}, False),
    "aci-rank after a log": ({}, True),
    "aci-rank that reserves": ({"missing": "wrong", "reserve": True}, True),
    "exaul": ({"learner": "exaul", "horizon": 400}, False),
    "exaul after a log": ({"learner": "exaul", "horizon": 400}, True),
}


@pytest.mark.parametrize("case", THRESHOLDS)
def test_the_threshold_is_the_least_score_that_would_be_shown(case):
    """Of Abstainers with the same state, one decides on the threshold, and the other just below. Answers wait."""
    (fields, has_log), past, records = THRESHOLDS[case], records_of(500), records_of(400)
    start = {"warm_start": (past.scores, past.errors)} if has_log else {}
    abstainer, thresholds = Abstainer(alpha=0.2, seed=5, **fields, **start), set()
    for n in range(400):
        if n % 20 == 0:
            state = stored(abstainer)
            threshold = abstainer.figures()["threshold"]
            assert stored(abstainer) == state
            thresholds.add(threshold)
            shown = 1.0 if math.isnan(threshold) else threshold  # NaN: not even a score of 1 is shown
            chances = [Abstainer.of(state).decide(x).probability for x in (shown, max(0, np.nextafter(shown, 0)))]
            assert [x >= 0.5 for x in chances] == [not math.isnan(threshold), threshold == 0]
        decision = abstainer.decide(records.scores[n])
        if n % 3:  # feedback
            abstainer.feedback(decision.id, records.errors[n])
    assert len(thresholds) > 5


def test_answers_that_wait_raise_the_threshold_of_a_reserve_alone():
    scores = np.linspace(0, 1, 101)
    plain, reserved = (
        Abstainer(alpha=0.1, warm_start=(scores, scores < 0.6), missing="wrong", reserve=reserve)
        for reserve in (False, True)
    )
    assert plain.figures()["threshold"] == reserved.figures()["threshold"]
    for abstainer in (plain, reserved):
        for _ in range(5):
            assert abstainer.decide(0.99).answer
    assert reserved.figures()["threshold"] > plain.figures()["threshold"] + 0.05


SILENCES = {  # configurations, and the probability of feedback
    "all rated": ({}, 1),
    "some rated": ({}, 0.2),
    "audits": ({"audit": 0.5}, 1),
    "answers that wait": ({"missing": "wrong"}, 0.9),
}


@pytest.mark.parametrize("case", SILENCES)
@pytest.mark.parametrize("alpha", [0.1, 0.16])
def test_silence_ends_after_as_many_questions_as_is_said(alpha, case):
    """Only wrong answers are rated, until nothing is shown; then no feedback comes."""
    (fields, rate), rng, left = SILENCES[case], np.random.default_rng(3), []
    abstainer = Abstainer(alpha=alpha, seed=5, **fields)
    while not (silent := abstainer.figures()["silent"]):
        assert not math.isnan(abstainer.figures()["threshold"])
        decision = abstainer.decide(1.0)
        if decision.answer and rng.random() < rate:
            abstainer.feedback(decision.id, "down")
    assert silent > 20
    while not abstainer.decide(1.0).answer:
        left.append(abstainer.figures()["silent"])
    assert left == list(range(silent - 1, -1, -1))


def test_no_end_of_silence_is_said_where_none_is_known():
    """The answers that a reserve counts as wrong may be rated, and ``exaul`` draws."""
    abstainer = Abstainer(alpha=0.1, missing="wrong", reserve=True)
    for _ in range(50):
        abstainer.decide(1.0)
    assert math.isnan(abstainer.figures()["threshold"])
    assert math.isnan(abstainer.figures()["silent"])
    assert math.isnan(Abstainer(learner="exaul", horizon=400).figures()["silent"])
    # the log has no threshold of an FDR of at most alpha, so nothing is shown: one drift is enough
    assert Abstainer(alpha=0.1, warm_start=([0.5] * 40, [1] * 40)).figures()["silent"] == 1


def test_an_id_is_used_once():
    abstainer = Abstainer(learner="answers")
    abstainer.decide(0.9, id="a")
    for _ in range(2):  # it is open, then closed
        with pytest.raises(BadInput, match="id: 'a' found"):
            abstainer.decide(0.9, id="a")
        abstainer.feedback("a", "up")


def test_every_call_locks():
    abstainer, locked = Abstainer(learner="answers"), []
    abstainer._expire = lambda: locked.append(abstainer._lock.locked())
    abstainer.withdraw(abstainer.decide(0.9).id)
    for call in (lambda: abstainer.feedback("a", 1), abstainer.figures, abstainer.state):
        call()
    assert locked == [True] * 5


def test_it_shows_its_arguments_and_what_it_has_done_but_no_seed():
    """Each argument that help() lists is taken, at its default."""
    listed = {name: parameter.default for name, parameter in signature(Abstainer).parameters.items()}
    assert [*listed][:3] == ["alpha", "audit", "warm_start"]  # the main ones first
    assert {"alpha", "learner", "warm_start", "drop_missing", "audit"} <= listed.keys()
    abstainer = Abstainer(**listed | {"seed": 987654321})
    for score in (1.0, 0.0):
        abstainer.decide(score)
    assert repr(abstainer) == "<Abstainer: aci-rank, alpha = 0.1, 1 of 2 questions answered>"


def test_seeds_are_secret_unless_given():
    seeds = {Abstainer().state()["config"]["seed"] for _ in range(5)}
    assert len(seeds) == 5
    assert max(seeds) > 2**40


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_copy_is_refused(copied):
    with pytest.raises(
        TypeError, match=r"Abstainer cannot be copied or pickled; Abstainer.state\(\) can be stored"
    ):
        copied(Abstainer())


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_state_that_was_edited_or_is_none_is_refused(learner):
    """A wrong number would be found late, or never: in decisions. The order of names and 1.0 for 1 are no edit."""
    abstainer, rng = Abstainer(seed=3, expires=40, learner=learner, horizon=81, audit=0.5), np.random.default_rng(0)
    for n, score in enumerate(rng.random(60)):
        abstainer.decide(score, id=str(n))
        abstainer.feedback(str(rng.integers(n + 1)), float(rng.random() > score))
    state = stored(abstainer)
    assert state["open"]
    edits = [{}, [], None, {"exaul": 2}, {"exaul": 7}, {"exaul": 8}, {"exaul": 8, "digest": "", "config": {3}}]
    text = json.dumps(state)
    for place in rng.choice(len(text), 300):
        with suppress(ValueError):  # it is not JSON
            edits.append(json.loads(f"{text[:place]}{chr(ord(text[place]) ^ 1)}{text[place + 1 :]}"))
    for edit in (edit for edit in edits if edit != state):  # the last digit of a number may be one too many
        with pytest.raises(BadInput, match="state: ") as caught:
            Abstainer.of(edit)
        assert "\n" not in str(caught.value)
    reordered = json.loads(json.dumps(dict(reversed(state.items()))).replace(".0,", ","))
    assert stored(Abstainer.of(reordered)) == state


def test_the_bound_counts_all_but_one_of_the_answers_learned_since_the_last_was_given():
    """M1: ``s_1 / step + 1 - aim``, a drift for the next round, and two answers of three."""
    abstainer = Abstainer()
    for id in [abstainer.decide(1.0).id for _ in range(3)]:
        abstainer.feedback(id, 1)
    assert abstainer.figures()["feedback_risk_bound"] == pytest.approx(12 + 0.9 + 1 / 200 + 2 * 0.9)


def test_an_audit_holds_alpha_whatever_users_praise():
    """Users praise one answer in two that they like and blame none; a judge is asked about one in ten.

    Whoever learns from all feedback has an FDR above .17. Its standard deviation is .006: some 2,000 are audited.
    """
    rng, abstainer, errors, audits = np.random.default_rng(1), Abstainer(seed=0, audit=0.1), [], []
    for score in rng.random(30_000):
        error = float(rng.random() > 0.6 + 0.4 * score)
        decision = abstainer.decide(score)
        if decision.answer:
            errors.append(error)
            audits.append(decision.audit)
            assert not decision.audit or abstainer.feedback(decision.id, error) == "counted"
            if not error and rng.random() < 0.5:
                assert abstainer.feedback(decision.id, "up") == ("repeated" if decision.audit else "unaudited")
    assert np.mean(errors) == pytest.approx(0.1, abs=0.03)
    assert np.mean(audits) == pytest.approx(0.1, abs=0.006)


def test_an_audit_without_a_result_counts_as_wrong_in_the_limit():
    """And no withdrawn answer counts. ``tests/kernels/test_fdr_limit.py`` has the proof of the limit."""
    abstainer = Abstainer(learner="answers", alpha=0.2, audit=1.0, seed=0, expires=450)
    assert math.isnan(abstainer.figures()["fdr_limit"])
    ids = [abstainer.decide(1.0).id for _ in range(400)]
    assert abstainer.figures()["fdr_limit"] == 1
    for id in ids[:300]:
        abstainer.feedback(id, "up")
    assert abstainer.figures()["fdr_limit"] == 100 / 400
    assert abstainer.withdraw(ids[-1]) == "withdrawn"
    assert abstainer.figures()["fdr_limit"] == 100 / 399
    for _ in range(500):
        abstainer.feedback(abstainer.decide(1.0).id, 0.5)
    assert abstainer.feedback(ids[-2], "up") == "late"
    assert abstainer.figures()["fdr_limit"] == 350 / 899
    flipped = Abstainer(learner="answers", audit=0.3, flips=(0.1, 0.2), seed=0)
    audited = [decision.id for decision in (flipped.decide(1.0) for _ in range(400)) if decision.audit]
    for id in audited[30:]:
        flipped.feedback(id, "up")
    assert 0.1 < flipped.figures()["fdr_limit"] == fdr_limit(30, 400, 400, 0.3, (0.1, 0.2), 0.05) < 0.9
    assert math.isnan(Abstainer().figures()["fdr_limit"])


def test_every_withdrawal_counts_once_and_that_of_a_forgotten_id_counts_too():
    abstainer = Abstainer(learner="answers", audit=0.5, seed=0, expires=1500)
    decisions = [abstainer.decide(0.9) for _ in range(50)]
    unaudited = next(decision.id for decision in decisions if not decision.audit)
    audited, observed, *_ = (decision.id for decision in decisions if decision.audit)
    assert abstainer.feedback(unaudited, "up") == "unaudited"
    assert abstainer.feedback(observed, "up") == "counted"
    figures, learned = abstainer.figures(), abstainer.state()["numbers"]
    for n, id in enumerate((unaudited, audited, observed), 1):
        assert abstainer.withdraw(id) == abstainer.withdraw(id) == "withdrawn"
        abstainer = Abstainer.of(stored(abstainer))
        assert abstainer.withdraw(id) == abstainer.feedback(id, "up") == "withdrawn"
        assert abstainer.figures()["withdrawn"] == n
    assert abstainer.figures()["answers"] == figures["answers"] == 50
    assert (abstainer.figures()["observed"], abstainer.state()["numbers"]) == (1, learned)
    for _ in range(2500):
        abstainer.feedback(abstainer.decide(0.9).id, "up")
    limit = abstainer.figures()["fdr_limit"]
    assert abstainer.feedback(unaudited, "up") == abstainer.withdraw(unaudited) == "unknown"
    assert abstainer.figures()["withdrawn"] == 4
    assert abstainer.figures()["fdr_limit"] > limit
    withheld = Abstainer(learner="abstains", audit=0.1)
    for call in (withheld.withdraw, withheld.withdraw, lambda id: withheld.feedback(id, 1)):
        assert call(withheld.decide(0.9).id) == "withheld"
    assert [withheld.figures()[name] for name in ("withdrawn", "learned")] == [0, 0.3]  # not .30000000000000004
    recent = Abstainer(learner="answers")
    first, *_ = (recent.decide(0.9).id for _ in range(3))
    recent.withdraw(first)
    assert recent.figures()["learned_share"] == 1 / (1 + FORGETTING + 1)


class FeedbackMachine(RuleBasedStateMachine):
    """Decisions, delayed, repeated, unknown, withdrawn and expired feedback, and restarts, beside a plain count."""

    ids = Bundle("ids")

    @initialize(
        alpha=st.sampled_from([0.02, 0.1, 0.5]),
        missing=st.sampled_from(["skip", "wrong", "right"]),
        expires=st.sampled_from([3, 20, 1000]),
        reserve=st.booleans(),
    )
    def begin(self, alpha, missing, expires, reserve):
        """An Abstainer before its first question."""
        fields = {"alpha": alpha, "missing": missing, "expires": expires, "reserve": reserve and missing == "wrong"}
        self.abstainer = Abstainer(seed=3, **fields)
        self.open, self.risk, self.n = {}, 0.0, 0
        self.withdrawn, self.withdrawals = set(), 0

    @rule(target=ids, score=st.floats(0, 1))
    def decide(self, score):
        """A question."""
        self._expire()
        decision = self.abstainer.decide(score)
        self.n += 1
        if decision.answer:
            self.open[decision.id] = self.n - 1
        return decision.id

    @rule(score=st.floats(0.9, 1), count=st.integers(2, 40), wrong=st.booleans())
    def many_at_once(self, score, count, wrong):
        """Some questions of high scores, each with its feedback at once."""
        for _ in range(count):
            self.feedback(self.decide(score), float(wrong))

    @rule(score=st.floats(0.9, 1), count=st.integers(2, 60))
    def many_late(self, score, count):
        """Ask some questions of high scores; their feedback comes afterwards, all wrong but one."""
        ids = [self.decide(score) for _ in range(count)]
        for id in ids[1:]:
            self.feedback(id, 1.0)
        self.feedback(ids[0], 0.0)

    @rule(id=ids, error=st.sampled_from([0.0, 0.3, 1.0]))
    def feedback(self, id, error):
        """Give feedback, perhaps delayed, repeated, or on an answer that was never shown."""
        self._expire()
        assert (self.abstainer.feedback(id, error) == "counted") == (id in self.open)
        if id in self.open:
            del self.open[id]
            self.risk += error - self.abstainer.config.aim

    @rule(id=ids)
    def withdraw(self, id):
        """An answer that was never shown; it counts once, as long as its id is remembered."""
        self._expire()
        outcome = self.abstainer.withdraw(id)
        assert (outcome == "withdrawn") >= (id in self.open)
        self.withdrawals += outcome == "unknown" or (outcome == "withdrawn" and id not in self.withdrawn)
        self.withdrawn.add(id)
        self.open.pop(id, None)

    @rule()
    def restart(self):
        """From its state as JSON."""
        self._expire()
        self.abstainer = Abstainer.of(stored(self.abstainer))

    def _expire(self):
        config = self.abstainer.config
        for id in [id for id, n in self.open.items() if self.n - n > config.expires]:
            del self.open[id]
            if config.missing != "skip":  # it is taken for wrong or right, but is not rated
                self.risk += (config.missing == "wrong") - config.aim

    @invariant()
    def holds(self):
        """The risk of the rated is what a plain count says, and within its bound."""
        self._expire()
        figures = self.abstainer.figures()
        assert figures["open"] == len(self.open)
        assert figures["withdrawn"] == self.withdrawals
        assert figures["feedback_risk"] == pytest.approx(self.risk, abs=1e-9)
        assert figures["feedback_risk"] <= figures["feedback_risk_bound"] + 1e-9


TestFeedback = FeedbackMachine.TestCase
TestFeedback.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
