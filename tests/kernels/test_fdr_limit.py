"""The limit of the FDR from audits: each step of F1 in docs/proofs.md, its numbers, and impostors."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from exaul.kernels.fdr_limit import fdr_limit, mixture, wrong_limit

TRUE = 0.0, 0.0  # flips of a judge without errors
shares = st.one_of(st.floats(0.001, 1), st.just(1.0))
flips = st.one_of(st.just(TRUE), st.tuples(st.floats(0, 0.45), st.floats(0, 0.45)))
deltas = st.floats(0.001, 0.5)


def log_mean(found_wrong, wrong, answers, share, given_flips):
    """The logarithm of the mean martingale."""
    factors = mixture(share, given_flips)
    logs = (answers - wrong) * factors.right + wrong * factors.wrong - found_wrong * factors.found_wrong
    return logs.max() + math.log(np.exp(logs - logs.max()).mean())


def hostile(found_wrong, answers):
    """The next error of an adversary that knows all results of audits so far."""
    return float(found_wrong <= answers / 4)


def expectation(share, given_flips, next_error, rounds=9):
    """The mean of the mixture after some answers, by enumeration of all results of the audits."""
    total = 0.0
    for results in product((0, 1), repeat=rounds):
        probability, found_wrong, wrong = 1.0, 0, 0.0
        for n, result in enumerate(results):
            error = next_error(found_wrong, n)
            shown = share * (given_flips[0] * (1 - error) + (1 - given_flips[1]) * error)
            probability *= shown if result else 1 - shown
            found_wrong, wrong = found_wrong + result, wrong + error
        if probability:
            total += probability * math.exp(log_mean(found_wrong, wrong, rounds, share, given_flips))
    return total


@pytest.mark.parametrize("next_error", [hostile, lambda N, n: float(n % 3 == 0), lambda N, n: 1.0])
@pytest.mark.parametrize("given_flips", [TRUE, (0.1, 0.2), (0.0, 0.3), (0.2, 0.0)])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.99])
def test_the_mean_of_the_mixture_is_one_against_an_adversary(share, given_flips, next_error):
    assert expectation(share, given_flips, next_error) == pytest.approx(1, abs=1e-9)


@given(share=st.floats(0.001, 0.999), error=st.floats(0, 1))
@example(share=0.3, error=0.5)
@example(share=0.3, error=1.0)
def test_a_rating_multiplies_each_martingale_by_at_most_one_in_the_mean(share, error):
    """Convexity of the logarithm of the mean of exp(-l a e) in e; an equality for e of 0 and 1."""
    factors = mixture(share, TRUE)
    factor = (1 - share + share * np.exp(-factors.found_wrong * error)) * np.exp(factors.wrong * error)
    assert (factor <= 1 + 1e-9).all()
    if error in (0, 1):
        assert factor == pytest.approx(1, abs=1e-9)
    if (share, error) == (0.3, 0.5):
        assert (factor < 1 - 1e-6).all()


@given(share=st.floats(0.001, 1), given_flips=flips)
def test_the_mixture_rises_with_wrong_answers_and_falls_with_found_ones(share, given_flips):
    factors = mixture(share, given_flips)
    assert np.isfinite(factors).all()
    assert (factors.found_wrong > 0).all()
    assert ((factors.wrong > factors.right) & (factors.right >= 0)).all()
    assert given_flips[0] or not factors.right.any()  # then right answers change nothing


@settings(max_examples=300)
@given(
    share=shares,
    given_flips=flips,
    delta=deltas,
    answers=st.integers(1, 10**7),
    part=st.floats(0, 1),
    more=st.floats(0, 100),
)
def test_the_limit_is_where_the_mixture_is_one_over_delta(share, given_flips, delta, answers, part, more):
    """It is in [0, n], does not fall with N, and no larger G is compatible with N, but all smaller ones are."""
    N = part * answers
    limit = wrong_limit(N, answers, share, given_flips, delta)
    assert 0 <= limit <= answers
    assert wrong_limit(min(N + more, answers), answers, share, given_flips, delta) >= limit * (1 - 1e-8) - 1e-8
    if share == 1 and given_flips == TRUE:
        assert limit == N
        return
    gap, edge = 1e-6 * (1 + limit), math.log(1 / delta)
    if limit < answers:  # a larger G is not compatible
        assert log_mean(N, min(limit + gap, answers), answers, share, given_flips) >= edge
    if limit > gap:  # a smaller one is
        assert log_mean(N, limit - gap, answers, share, given_flips) <= edge


def exceeded(share, delta, horizon=8000):
    """As ``exceeding``, for the limit of F1."""
    found_wrong = np.arange(int(share * horizon + 12 * math.sqrt(share * horizon)) + 20)
    return exceeding(share, horizon, np.array([wrong_limit(N, 10**9, share, TRUE, delta) for N in found_wrong]))


def exceeding(share, horizon, limits):
    """The exact probability that G exceeds its limit at some G <= most, by the distribution of N among survivors.

    Right answers play no part, so this is the probability for all numbers of answers and all sequences of errors
    with ``horizon`` wrong answers.
    """
    survivors, gone = np.zeros(len(limits)), 0.0  # by N
    survivors[0] = 1.0
    for G in range(1, horizon + 1):
        moved = survivors * share
        survivors = survivors - moved
        survivors[1:] += moved[:-1]
        beyond = limits < G
        gone += survivors[beyond].sum()
        survivors[beyond] = 0.0
    return gone


@pytest.mark.parametrize(("share", "delta"), [(0.05, 0.05), (0.3, 0.05), (0.05, 0.2), (0.9, 0.05)])
def test_the_limit_is_exceeded_at_some_time_with_probability_delta_at_most(share, delta):
    """Exactly, without sampling. It is not far below delta either: .024, .033, .119, .035."""
    assert 0.4 * delta < exceeded(share, delta) <= delta


def test_impostors_are_exceeded_at_some_time():
    """A limit for 20 times the delta, and the exact limit at one number of wrong answers, fixed beforehand."""
    assert exceeded(0.05, 0.999) > 0.5
    limits, G = [], 0
    for N in range(700):
        while binom.cdf(N, G + 1, 0.05) > 0.05:
            G += 1
        limits.append(G)
    assert exceeding(0.05, 8000, np.array(limits)) > 0.2


@pytest.mark.parametrize(("answers", "expected"), [(1000, 0.277), (10_000, 0.124), (100_000, 0.093)])
def test_the_mean_limit_of_a_judge_who_sees_one_answer_in_twenty(answers, expected):
    """At an FDR of .08, by the exact distribution of N; the expected numbers are means of 300 games."""
    found_wrong = np.arange(binom.ppf(1 - 1e-9, answers, 0.004) + 1)
    limits = [fdr_limit(N, answers, answers, 0.05, TRUE, 0.05) for N in found_wrong]
    assert binom.pmf(found_wrong, answers, 0.004) @ limits == pytest.approx(expected, rel=0.03)


def test_edges():
    assert math.isnan(fdr_limit(0, 0, 0, 0.05, TRUE, 0.05))
    assert fdr_limit(0, 1, 1, 0.05, TRUE, 0.05) == 1
    assert fdr_limit(0, 10**6, 10**6, 1.0, TRUE, 0.05) == 0  # all were audited, and none is wrong
    assert fdr_limit(3, 12, 12, 1.0, TRUE, 0.05) == 0.25
    assert fdr_limit(3, 12, 6, 1.0, TRUE, 0.05) == 0.5  # the wrong ones may be among those that remain
    assert fdr_limit(3, 12, 0, 1.0, TRUE, 0.05) == fdr_limit(3, 12, -1, 1.0, TRUE, 0.05) == 1
    assert 0 < fdr_limit(0, 10**6, 10**6, 1.0, (1e-15, 0.0), 0.05) < 1e-6
    assert fdr_limit(0, 10**6, 10**6, 0.05, (0.1, 0.0), 0.05) == 0  # 5,000 right ones should have been found wrong
