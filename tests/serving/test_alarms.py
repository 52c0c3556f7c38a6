"""Alarms: the direction of each, that only what is kept counts, and how often they are false by chance."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exaul.serving import alarms
from exaul.serving.alarms import DECISIONS, FEEDBACKS, Alarms

AIMS = st.floats(0.01, 0.6)
ERRORS = st.lists(st.floats(0, 1), max_size=300)


def with_feedback(errors, aim=0.1):
    watched = Alarms(aim)
    for error in errors:
        watched.add_feedback(float(error))
    return watched


def with_decisions(scores, answered, feedback_every=0):
    """Return alarms after decisions; every so many answers one gets feedback, thumbs up."""
    watched, answers = Alarms(0.1), 0
    for score, shown in zip(scores, answered, strict=True):
        watched.add_decision(score, bool(shown))
        answers += shown
        if feedback_every and shown and answers % feedback_every == 0:
            watched.add_feedback(0.0)
    return watched


@pytest.fixture
def scores():
    return np.random.default_rng(0).beta(8, 1, 3 * DECISIONS)


# wrong


@given(ERRORS, AIMS, st.lists(st.floats(0, 1), min_size=1, max_size=300))
def test_more_errors_never_silence_wrong(errors, aim, worse):
    """Monotone in each error: the evidence of errors that are at least as large is at least as large."""
    larger = [max(error, other) for error, other in zip(errors, worse, strict=False)] + errors[len(worse) :]
    one, other = (alarms._evidence(np.array(each), aim)[0] for each in (errors, larger))
    assert other >= one * (1 - 1e-9)
    assert "wrong" not in with_feedback(errors, aim).active() or "wrong" in with_feedback(larger, aim).active()


@given(st.integers(0, 2 * FEEDBACKS), AIMS)
def test_wrong_never_rings_if_all_are_right(many, aim):
    assert with_feedback([0.0] * many, aim).active() == {}


@pytest.mark.parametrize("aim", [0.01, 0.1, 0.5])
def test_wrong_rings_if_all_are_wrong_and_ends_if_all_are_right_again(aim):
    watched = with_feedback([0.0] * 500 + [1.0] * 100, aim)
    assert "100.0% of the last 100 answers with feedback were wrong" in watched.active()["wrong"]
    for _ in range(FEEDBACKS):
        watched.add_feedback(0.0)
    assert watched.active() == {}


def test_wrong_is_finite():
    """The products of 1,024 errors overflow, and warnings are errors."""
    assert with_feedback([1.0] * FEEDBACKS, 0.01).active().keys() == {"wrong"}


@pytest.mark.parametrize("good", [0, 500, 5_000, 50_000])
def test_a_long_good_time_does_not_delay_wrong(good):
    """A product from the first feedback on would need thousands of errors."""
    watched, many = with_feedback([0.0] * good), 0
    while not watched.active():
        watched.add_feedback(1.0)
        many += 1
    assert many <= 8


def test_errors_at_the_aim_are_rarely_wrong():
    """After n feedbacks with error rate aim the mean evidence is n, so a key has 20 n with probability <= 1/20.

    Of 400 keys more than 50 do by chance with a probability below 1e-8 (binomial). At twice the aim most do.
    """
    rng, many = np.random.default_rng(0), 200
    above = [
        sum(alarms._evidence((rng.random(many) < rate).astype(float), 0.1)[0] >= 20 * many for _ in range(400))
        for rate in (0.1, 0.2)
    ]
    assert above[0] <= 50
    assert above[1] >= 200


def test_the_evidence_is_the_mean_over_stakes_of_products_from_every_start():
    errors, aim = np.array([1.0, 0.0, 0.3, 1.0]), 0.2
    factors = [[1 + stake * (error / aim - 1) for error in errors] for stake in alarms.STAKES]
    expected = np.mean([sum(math.prod(row[start:]) for start in range(4)) for row in factors])
    assert alarms._evidence(errors, aim)[0] == pytest.approx(expected)


# drift


@pytest.mark.parametrize("sign", [1, -1])
def test_drift_rings_in_both_directions_and_ends(sign, scores):
    """After DECISIONS questions the new scores are compared with each other."""
    moved = scores + sign * 0.2 - 0.5
    rings = [
        "drift" in with_decisions(np.concatenate([scores - 0.5, moved[:many]]), [1] * (len(scores) + many)).active()
        for many in (0, 256, 512, DECISIONS)
    ]
    assert rings == [False, True, True, False]


def test_drift_says_where_the_mean_went(scores):
    watched = with_decisions(np.concatenate([scores, scores[:512] / 2]), [1] * (len(scores) + 512))
    assert "mean 0.4" in watched.active()["drift"]
    assert "instead of 0.8" in watched.active()["drift"]


def test_drift_compares_with_the_latest_scores_before_only(scores):
    kept = alarms.RECENT + alarms.BEFORE
    older = with_decisions(np.concatenate([scores / 2, scores[:kept]]), [1] * (len(scores) + kept))
    assert older.active() == {}


@pytest.mark.parametrize("sign", [1, -1])
def test_drift_of_a_constant_score(sign):
    constant = np.full(alarms.RECENT + alarms.BEFORE, 0.5)
    moved = np.where(np.arange(constant.size) < alarms.BEFORE, 0.5, 0.5 + sign * 0.1)
    assert with_decisions(constant, [1] * constant.size).active() == {}
    assert with_decisions(moved, [1] * constant.size).active().keys() == {"drift"}


@pytest.mark.parametrize("levels", [1, 2, 6])
def test_drift_of_few_levels(levels, scores):
    rounded = np.floor(scores * levels) / levels
    assert with_decisions(rounded, [1] * len(rounded)).active() == {}
    lower = np.full(512, rounded.min() - 0.1)
    assert "drift" in with_decisions(np.concatenate([rounded, lower]), [1] * (len(rounded) + 512)).active()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=200), st.lists(st.floats(0, 1), min_size=1, max_size=200))
def test_the_index_is_at_least_0_and_depends_on_no_order(before, recent):
    index = alarms._stability_index(np.array(before), np.array(recent))
    assert 0 <= index < math.inf
    assert index == alarms._stability_index(np.array(before[::-1]), np.array(recent[::-1]))
    assert alarms._stability_index(np.array(before), np.array(before)) == pytest.approx(0, abs=1e-12)


# silent


@given(st.integers(0, 30))
def test_silent_ends_with_an_answer(further):
    watched = with_decisions([0.5] * (alarms.SILENT - 1), [False] * (alarms.SILENT - 1))
    assert watched.active() == {}
    for _ in range(1 + further):
        watched.add_decision(0.5, False)
        assert watched.active().keys() == {"silent"}
    watched.add_decision(0.5, True)
    assert watched.active() == {}


# unrated


def test_unrated_rings_after_some_missing_feedbacks_and_ends_with_one(scores):
    scores = scores[: 20 * 1000]
    watched = with_decisions(scores, [1] * len(scores), feedback_every=50)
    missing = 0
    while watched._unrated() is None:
        watched.add_decision(scores[missing], True)
        missing += 1
    assert 5 * 50 < missing < 30 * 50
    assert f"None of the last {missing:,} answers got feedback; before, 2.0%" in watched.active()["unrated"]
    watched.add_feedback(1.0)
    assert watched.active() == {}


def test_few_feedbacks_or_few_answers_are_not_unrated(scores):
    few = with_decisions(scores[:700], [1] * 700, feedback_every=300)
    for _ in range(2000):
        few.add_decision(0.9, True)
    assert few.active() == {}
    watched = with_decisions(scores[:100], [1] * 100, feedback_every=1)
    for missing in range(1, alarms.UNRATED + 1):
        watched.add_decision(0.9, True)
        assert (watched._unrated() is not None) == (missing == alarms.UNRATED)


def test_abstentions_are_not_missing_feedback(scores):
    watched = with_decisions(scores, [1] * len(scores), feedback_every=50)
    for _ in range(2 * alarms.SILENT):
        watched.add_decision(0.9, False)
    assert "unrated" not in watched.active()


def test_unrated_is_silent_without_feedback_or_with_one_burst(scores):
    assert with_decisions(scores, [1] * len(scores)).active() == {}
    watched = with_decisions(scores[:100], [1] * 100)
    for _ in range(200):
        watched.add_feedback(0.0)
    for _ in range(1000):
        watched.add_decision(0.9, True)
    assert watched.active() == {}


def test_bursts_are_not_unrated(scores):
    """20 feedbacks in a row every 1,000 answers; one burst alone says nothing of the next."""
    watched = Alarms(0.1)
    for i, score in enumerate(scores):
        watched.add_decision(score, True)
        if i % 1000 < 20:
            watched.add_feedback(0.0)
        if i > 1000 and i % 100 == 99:
            assert "unrated" not in watched.active()


# what is kept


@pytest.mark.parametrize("seed", range(6))
def test_the_latest_entries_restore_all_alarms(seed):
    """Any of the four may be active; entries before the kept ones do not count."""
    rng = np.random.default_rng(seed)
    entries = []
    for part in range(4):
        rate, level, wrong, answers = rng.random(4) * (0.1, 1, 0.3, 1)
        for _ in range(rng.integers(3000, 8000)):
            answered = rng.random() < (0 if part == 3 and seed % 2 else answers)
            entries.append((rng.random() * level, answered))
            if answered and rng.random() < (0 if part == 3 and seed % 3 == 0 else rate):
                entries.append((float(rng.random() < wrong),))
    live = Alarms(0.1)
    feed(live, entries)
    for decisions, feedbacks in ((DECISIONS, FEEDBACKS), (DECISIONS + 1000, FEEDBACKS + 100)):
        restored = Alarms(0.1)
        feed(restored, latest(entries, decisions, feedbacks))
        assert restored.active() == live.active()
        assert restored.series() == live.series()


def feed(watched, entries):
    for entry in entries:
        (watched.add_decision if len(entry) == 2 else watched.add_feedback)(*entry)


def latest(entries, decisions, feedbacks):
    """Return the latest decisions and feedbacks, in their order."""
    places = [[i for i, entry in enumerate(entries) if len(entry) == size] for size in (2, 1)]
    return [entries[i] for i in sorted(places[0][-decisions:] + places[1][-feedbacks:])]


def test_memory_is_bounded(scores):
    watched = with_decisions(np.tile(scores, 2), [1] * (2 * len(scores)), feedback_every=10)
    windows = [watched._scores, watched._answered, watched._errors, watched._after]
    assert sum(window._numbers.buffer_info()[1] * window._numbers.itemsize for window in windows) <= 60_000


def test_series_are_means_oldest_first(scores):
    assert Alarms(0.1).series() == {"answered": [], "wrong": []}
    watched = with_decisions([0.5] * 4, [True, True, False, True])
    watched.add_feedback(0.25)
    assert watched.series(2) == {"answered": [1.0, 0.5], "wrong": [0.25]}
    watched = with_decisions(scores, np.arange(len(scores)) >= len(scores) - 100)
    shares = watched.series()["answered"]
    assert len(shares) == 60
    assert shares[-1] > 0.7
    assert shares[:-1] == [0.0] * 59


@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans(), st.none() | st.floats(0, 1)), max_size=60),
    AIMS,
    st.integers(1, 200),
)
def test_nothing_is_nan(rows, aim, times):
    """Also for many equal entries. Warnings of NumPy are errors."""
    watched = Alarms(aim)
    for score, answered, error in rows * times:
        watched.add_decision(score, answered)
        if error is not None:
            watched.add_feedback(error)
    assert not any("nan" in sentence or "inf" in sentence for sentence in watched.active().values())
    assert all(0 <= value <= 1 for values in watched.series().values() for value in values)
