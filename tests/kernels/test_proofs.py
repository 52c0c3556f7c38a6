"""Each inequality of docs/proofs.md holds on random and hostile sequences."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exaul.kernels.bounds import TILTS, risk_from_feedback
from exaul.kernels.feedback import Feedback
from exaul.kernels.learners.learner import block_lengths, rates_of_horizon
from tests import reference
from tests.games import LEARNERS


def rounds_of_the_game(size=200_000):
    """Draw masses, costs, errors and rates of single rounds, [size] each, many of them extreme."""
    rng = np.random.default_rng(1)
    P = np.where(rng.random(size) < 0.5, rng.random(size), 10 ** (-6 * rng.random(size)))
    P = np.where(rng.random(size) < 0.3, 1 - P, P)
    sigma = np.where(rng.random(size) < 0.5, 1 - 0.02 * rng.random(size), rng.random(size))
    r = 1 - sigma + rng.random(size) * sigma
    e = np.where(rng.random(size) < 0.5, rng.random(size) < 0.5, rng.random(size))
    eta, gamma = 10 ** (-4 + 5 * rng.random(size)), 10 ** (-5 + 5 * rng.random(size))
    return P, 1 - P, sigma, r, e, eta, gamma, rng.random(size)


def largest(left, right):
    """The largest excess of one side of an inequality over the other, relative to it, up to rounding."""
    return ((left - right) / np.maximum(1, np.abs(right))).max()


def holds_and_is_sharp(left, right, part=0.5):
    """Whether ``left <= right``, but not if only a part of the right side is allowed."""
    return largest(left, right) < 1e-9 and largest(left, part * right) > 1e-3


def mean_exponential(P, Q, if_answered, if_abstained):
    """``ln E exp(x)``, where x is the first number with probability P and the second with Q."""
    return np.logaddexp(np.log(P) + if_answered, np.log(Q) + if_abstained)


def test_r1_an_estimate_is_bounded_by_its_loss_and_gamma_pays_for_that_of_the_comparator():
    """Lemma E, ``l / (gamma + v) <= b / (2 gamma) ln(1 + 2 gamma l / (b v))``; its impostor takes a smaller b.

    Lemma X, ``x (1 + gamma) v / (1 + gamma v) <= ln(1 + (e^x - 1) v)``; its impostor takes twice the x.
    """
    v, Q, b, _, e, _, gamma, part = rounds_of_the_game()
    for factor, holds in ((1, True), (2, False)):
        bound = b / (2 * factor * gamma) * np.log1p(2 * factor * gamma * e / v)
        assert (largest(b * e / (gamma + v), bound) < 1e-9) == holds
        x = factor * part**0.3 * 2 * gamma / (1 + gamma)
        assert (largest(x * (1 + gamma) / Q / (1 + gamma / Q), np.log1p(np.expm1(x) / Q)) < 1e-9) == holds


def brackets(P, Q, sigma, r, e, eta, gamma):
    """The loss of the drawn side less its mix, if answered and if not, and the estimates of both sides."""
    below, above = sigma * e / (gamma + P), r / (gamma + Q)
    mix_below = -np.log(P * np.exp(-eta * below) + Q) / eta
    mix_above = -np.log(P + Q * np.exp(-eta * above)) / eta
    return sigma * e - mix_below, r - mix_above, below, above


def test_r1_a_round_against_abstaining():
    """One round of the supermartingale of R1 and its mean, of all losses and masses; half the bound is broken."""
    P, Q, sigma, r, e, eta, gamma, part = rounds_of_the_game()
    if_answered, if_abstained, _, above = brackets(P, Q, sigma, r, e, eta, gamma)
    cost = np.maximum(r * (1 + gamma + eta * r / 2), sigma * (gamma + eta * sigma / 2)) / (2 * gamma)
    theta = np.where(part < 0.5, 1, part) / cost
    allowed = eta * (sigma**2 + r**2) / 2 + gamma * sigma
    moment = mean_exponential(P, Q, theta * (if_answered - r), theta * (if_abstained + above - r))
    assert largest(moment, theta * allowed) < 1e-9
    assert holds_and_is_sharp(P * (if_answered - r) + Q * (if_abstained + above - r), allowed)


def test_r2_a_round_against_any_arm():
    """One round of the supermartingales of R2: of an arm below the cut, and of one above; half is broken."""
    P, Q, sigma, r, e, eta, gamma, _ = rounds_of_the_game()
    if_answered, if_abstained, below, above = brackets(P, Q, sigma, r, e, eta, gamma)
    b = np.maximum(sigma, r)
    theta, allowed = 2 * gamma / (b * (1 + gamma + eta * b / 2)), eta * (sigma**2 + r**2) / 2 + gamma * b
    an_arm_above = mean_exponential(P, Q, theta * (if_answered - r), theta * (if_abstained + above - r))
    an_arm_below = mean_exponential(
        P, Q, theta * (if_answered + below - sigma * e), theta * (if_abstained - sigma * e)
    )
    assert holds_and_is_sharp(an_arm_above, theta * allowed)
    assert holds_and_is_sharp(an_arm_below, theta * allowed)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_r1_r2_a_round_that_reveals_one_arm(seed):
    """The same of ``exp3-ix``, by enumeration over the drawn arm, of 2 to 8 arms."""
    rng = np.random.default_rng(seed)
    arms = int(rng.integers(2, 9))
    p = np.maximum(rng.dirichlet(np.full(arms, 10 ** rng.uniform(-1, 1))), 1e-9)
    p /= p.sum()
    sigma, e, eta, gamma = rng.random() ** 0.2, rng.random(), 10 ** rng.uniform(-4, 1), 10 ** rng.uniform(-5, 0.5)
    r = 1 - sigma + rng.random() * sigma
    losses = np.where(np.arange(arms) < rng.integers(1, arms), sigma * e, r)
    estimates = losses / (gamma + p)
    excess = losses + np.log(1 - p + p * np.exp(-eta * estimates)) / eta
    b = max(sigma, r)
    allowed = eta * ((arms - 1) * b**2 + min(sigma, r) ** 2) / 2 + gamma * (arms - 1) * b
    for arm in range(arms):
        bracket = excess + np.where(np.arange(arms) == arm, estimates, 0.0) - losses[arm]
        theta = 2 * gamma / (b * (1 + gamma + eta * b / 2))
        if arm == arms - 1:
            theta = 2 * gamma / max(r * (1 + gamma + eta * r / 2), b * (gamma + eta * b / 2))
        assert np.log(p @ np.exp(theta * bracket)) <= theta * allowed + 1e-9


def test_r3_r4_a_round_of_exponential_weights():
    """The range of the losses (R3), the expected loss beside the mix, and its exponential moment (R4)."""
    P, Q, sigma, r, e, eta, _, part = rounds_of_the_game()
    eta, b, x = np.minimum(eta, 3), np.maximum(sigma, r), 10 * part
    expected = P * sigma * e + Q * r
    mix = -np.log(P * np.exp(-eta * sigma * e) + Q * np.exp(-eta * r)) / eta
    assert largest(expected, mix + eta * np.maximum(sigma - r, r) ** 2 / 8) < 1e-9
    assert largest(expected * -np.expm1(-b * eta) / (b * eta), mix) < 1e-9
    assert largest(mean_exponential(P, Q, x * sigma * e, x * r), expected * np.expm1(x * b) / b) < 1e-9
    assert largest(expected, mix + eta * np.maximum(sigma - r, r) ** 2 / 32) > 1e-3


def known_round(P, Q, sigma, r, e, eta, gamma, cap):
    """The charge below, C of step 2, and the loss of the drawn side less its mix, if answered and if not."""
    below = np.minimum(sigma * e / (gamma + P), cap / eta)
    C = sigma * e - P * -np.expm1(-eta * below) / eta
    mix_answered = -np.logaddexp(np.log(P) - eta * below, np.log(Q) - eta * r) / eta
    mix_abstained = -np.log1p(Q * np.expm1(-eta * r)) / eta
    return below, C, sigma * e - mix_answered, r - mix_abstained


def test_r5_a_round_against_abstaining():
    """Steps 2 to 4: C bounds the loss beside the mix, 0 <= C <= sigma e, P C <= sigma e (gamma + eta sigma e / 2).

    Steps 5 and 6: one round of the supermartingale of R5 and its mean; a part of the bound is broken. Gamma may be
    0, and the cap of a charge 2, larger, or none; with 1/4, R5 is false.
    """
    P, Q, sigma, r, e, eta, gammas, part = rounds_of_the_game()
    x = np.minimum(10 ** (-4 + 6 * part), 50)
    assert largest(mean_exponential(P, Q, x * -r * Q, x * r * P), x**2 * r**2 / 8) < 1e-9  # Hoeffding
    for gamma, cap in product((0 * gammas, gammas), (0.25, 2.0, 10.0, np.inf)):
        _, C, if_answered, if_abstained = known_round(P, Q, sigma, r, e, eta, gamma, cap)
        assert largest(if_answered, C - r * Q + eta * r**2 / 2) < 1e-9
        assert largest(if_abstained, r * P + eta * r**2 / 2) < 1e-9
        assert largest(if_abstained, r * P + eta * r**2 / 16) > 1e-3
        assert largest(-C, 0 * C) < 1e-9
        assert largest(C, sigma * e) < 1e-9
        assert (largest(P * C, sigma * e * (gamma + eta * sigma * e / 2)) < 1e-9) == (cap >= 2)
        moment = mean_exponential(P, Q, x * if_answered, x * if_abstained)
        uncharged, charged = x * eta * r**2 / 2 + x**2 * r**2 / 8, (gamma + eta * sigma / 2) * np.expm1(x * sigma)
        allowed, mean = eta * (sigma**2 + r**2) / 2 + gamma * sigma, P * if_answered + Q * if_abstained
        assert largest(moment, uncharged + charged / 8) > 1e-3
        assert largest(mean, allowed / 2) > 1e-3
        if cap >= 2:
            assert largest(moment, uncharged + charged) < 1e-9
            assert largest(mean, allowed) < 1e-9


def test_r6_a_round_against_any_arm():
    """Steps 7 to 9, of an arm above the cut and one below; half of the bound, or eight times the x, is broken.

    No charge is capped if ``eta sigma <= 2 gamma``, as R6 demands; a tenth of it does not suffice.
    """
    P, Q, sigma, r, e, eta, gamma, part = rounds_of_the_game()
    for factor, holds in ((1, True), (8, False)):
        x = factor * 2 * gamma / (sigma * (1 + gamma + eta * sigma / 2))
        below, _, if_answered, if_abstained = known_round(P, Q, sigma, r, e, eta, gamma, np.inf)
        allowed = x * (eta * (sigma**2 + r**2) / 2 + gamma * sigma) + x**2 * r**2 / 8
        an_arm_above = mean_exponential(P, Q, x * if_answered, x * if_abstained)
        an_arm_below = mean_exponential(P, Q, x * (if_answered + below - sigma * e), x * (if_abstained - sigma * e))
        assert not holds or holds_and_is_sharp(an_arm_above, allowed)
        assert (largest(an_arm_below, allowed) < 1e-9) == holds
        assert largest(an_arm_below, allowed / 2) > 1e-3
    for factor, holds in ((1.0, True), (0.1, False)):
        below = known_round(P, Q, sigma, r, e, eta, factor * eta * sigma / 2 * (1 + part), np.inf)[0]
        assert (largest(eta * below, 2 + 0 * eta) < 1e-9) == holds


@pytest.mark.parametrize("rates", ["constant", "falling", "growing"])
def test_r5_the_sum_of_the_mixes_is_at_most_the_charge_of_any_arm(rates):
    """Step 1, pathwise, of the oracle: all wrong, mixed, and shifting records. Rates that grow break it."""
    rng, T, H, lam = np.random.default_rng(0), 2_000, 12, 40.0
    thresholds, sigma = np.linspace(0, 1, H), lam / (1 + lam)
    falling = np.sqrt(np.log(2) / (256 * (1 + np.arange(T) // 256)))
    eta = {"constant": np.full(T, 0.03), "falling": falling, "growing": 4 * falling[::-1]}[rates]
    prior, holds = np.array([*np.full(H - 1, 1 / (2 * (H - 1))), 1 / 2]), []
    for right_of in (lambda t: 0.0, lambda t: 0.7, lambda t: float(t > T / 2)):
        weights = reference.Weights("exaul-known", thresholds, 0.1, lam, eta, np.zeros(T), None)
        mixes = 0.0
        for t in range(T):
            p, total = weights.distribution(), weights.total.copy()
            answered, decision = weights.decide(rng.random(), rng.random())
            weights.learn(decision, answered, float(rng.random() >= right_of(t)))
            mixes -= np.log(p @ np.exp(-eta[t] * (weights.total - total))) / eta[t]
        holds.append((mixes <= weights.total - np.log(prior) / eta[-1] + 1e-9).all())
        assert weights.total[-1] == pytest.approx(T * (1 - sigma + 0.1 * sigma))
    assert all(holds) == (rates != "growing")


def test_r5_r6_the_bounds_by_hand():
    """T = 30,000, H = 1,000, alpha .05, lambda sqrt(T), as docs/proofs.md says; no H in R5, no R6 without gamma."""
    T, alpha, lam = np.array([30_000]), 0.05, 30_000**0.5
    learner = LEARNERS["exaul-known"]
    eta, gamma = (np.array([x]) for x in learner.rates(30_000, 1000))
    chance = learner.regret_bounds.abstaining(eta, gamma, T, 1000, 0.05, alpha, lam)
    mean = learner.regret_bounds.abstaining(eta, gamma, T, 10, 1.0, alpha, lam)
    assert (chance, mean) == pytest.approx((231.1, 203.1), abs=0.1)
    assert mean <= (2 * np.log(2) * 30_000) ** 0.5 * (1 + alpha**2 / 2)
    larger = np.sqrt(2 * np.log(2 * 1000) / T)
    bounds = [learner.regret_bounds.abstaining(larger, gamma, T, 1000, delta, alpha, lam) for delta in (0.05, 1.0)]
    assert bounds == pytest.approx((412.7, 365.6), abs=0.1)
    for delta in (0.05, 1.0):
        assert np.isnan(learner.regret_bounds.best(eta, gamma, T, 1000, delta, alpha, lam))
        assert np.isnan(learner.regret_bounds.best(2.1 * larger, larger, T, 1000, delta, alpha, lam))
    gamma = np.sqrt(np.log(1000 / 0.05) / (2 * T))
    bounds = [learner.regret_bounds.best(larger, gamma, T, 1000, delta, alpha, lam) for delta in (0.05, 1.0)]
    assert bounds == pytest.approx((1448.4, 1323.0), abs=0.1)
    assert np.isnan(learner.regret_bounds.paper(eta, gamma, T, 1000, 0.05, alpha, lam))
    # at lambda = 1/2; with a large gamma the best x is that of the two last terms alone
    sigma, r = 1 / 3, 1.025 / 1.5
    best = learner.regret_bounds.best(larger, np.ones(1), T, 1000, 0.05, alpha, 0.5)
    others = np.log(2 * 999) / larger + T * (larger * (sigma**2 + r**2) / 2 + sigma)
    assert best == pytest.approx(others + 2 * r * np.sqrt(T * np.log(1000 / 0.05) / 8))


@pytest.mark.parametrize("falling", [False, True])
@pytest.mark.parametrize(
    ("name", "H", "lam", "scale"),
    [("exaul", 1000, 30_000**0.5, 1), ("exaul", 1000, 30_000**0.5, 16), ("exp3-ix", 3, 0.5, 1)],
)
def test_r_the_bounds_by_hand(name, H, lam, scale, falling):
    """R1, R2 and the theorems at multiples of the paper's rates; with lambda 1/2 an abstention costs more."""
    T, delta, sigma = 30_000, 0.05, lam / (1 + lam)
    r = 1 - sigma + 0.05 * sigma
    least, b = sorted((sigma, r))
    V, below, either = sigma**2 + r**2, sigma, sigma + r
    if name == "exp3-ix":
        V, below, either = (H - 1) * b**2 + least**2, (H - 1) * b, (H - 1) * b + least
    rates, rounds = rates_of_horizon(LEARNERS[name], T, H, falling, None, None), block_lengths(T)
    eta, gamma = (scale * rate for rate in rates)
    bounds, game = LEARNERS[name].regret_bounds, (eta, gamma, rounds, H)
    best, abstaining, paper = (bound(*game, delta, 0.05, lam) for bound in bounds)
    base, explored = np.log(H) / eta[-1] + rounds @ eta * V / 2, rounds @ gamma
    dearest = (b * (1 + gamma + eta * b / 2) / (2 * gamma)).max()
    assert best == pytest.approx(base + explored * max(b, below) + np.log(H / delta) * dearest)
    cost = np.maximum(r * (1 + gamma + eta * r / 2), sigma * (gamma + eta * sigma / 2)) / (2 * gamma)
    assert abstaining == pytest.approx(base + explored * below + np.log(1 / delta) * cost.max())
    mean, at_1_over_e = (
        explored * either + b * np.log(H) / (2 * gamma[-1]),
        explored * max(b, below) + np.log(H * np.e) * dearest,
    )
    assert (at_1_over_e < mean) == (scale > 1)
    means = base + min(mean, at_1_over_e), base + explored * below
    assert [bound(*game, 1.0, 0.05, lam) for bound in bounds[:2]] == pytest.approx(means)
    N, chance = 2 if name == "exaul" else H, np.log(2 / delta)
    by_theorem = N * (rounds @ eta / 2 + explored) + (np.log(H) + chance) / (2 * gamma[-1]) + chance
    assert paper == pytest.approx(by_theorem + np.log(H) / eta[-1])
    if name == "exaul" and scale == 1 and not falling:
        assert (best, abstaining, paper) == pytest.approx((1566.0, 918.3, 2067.7), abs=0.1)


@pytest.mark.parametrize("falling", [False, True])
def test_r3_r4_the_bounds_by_hand(falling):
    T, H, sigma, r = 30_000, 1000, 0.9, 0.145
    (eta, _), rounds = rates_of_horizon(LEARNERS["ew"], T, H, falling, None, None), block_lengths(T)
    bounds = LEARNERS["ew"].regret_bounds
    mean = sigma * (r * T + np.log(H) / eta[-1]) * eta[0] / -np.expm1(-sigma * eta[0])
    likely = (mean * np.expm1(TILTS * sigma) / (TILTS * sigma) + np.log(20) / TILTS).min()
    for delta, losses in ((1.0, mean), (0.05, likely)):
        best, abstaining, _ = (bound(eta, eta, rounds, H, delta, 0.05, 9.0) for bound in bounds)
        deviation = (sigma - r) * np.sqrt(T * np.log(1 / delta) / 2)
        assert best == pytest.approx(np.log(H) / eta[-1] + (sigma - r) ** 2 * (rounds @ eta) / 8 + deviation)
        assert abstaining == pytest.approx(min(best, losses - r * T))
    if not falling:
        by_theorem = np.sqrt(T * np.log(H) / 2) + np.sqrt(T * np.log(20) / 2)
        assert bounds.paper(eta, eta, rounds, H, 0.05, 0.05, 9.0) == pytest.approx(by_theorem)


@pytest.mark.parametrize("name", ["exaul", "exp3-ix", "ew"])
def test_r_no_bound_is_larger_than_the_papers(name):
    """Over horizons, grids, alphas and lambdas; in the mean as well, and for falling rates."""
    for horizon, arms, falling in product((300, 30_000), (2, 1000), (False, True)):
        game = *rates_of_horizon(LEARNERS[name], horizon, arms, falling, None, None), block_lengths(horizon), arms
        alpha, lam = np.meshgrid([0.01, 0.1, 0.6], [0.0, 1.0, horizon**0.5])
        for delta in (0.05, 1.0):
            best, abstaining, paper = (bound(*game, delta, alpha, lam) for bound in LEARNERS[name].regret_bounds)
            assert (best <= paper * (1 + 1e-12)).all()
            assert (abstaining <= best * (1 + 1e-12)).all()


def test_n1_a_rated_answer_between_right_and_wrong():
    """The logarithm of E exp(-x (e - alpha)), if rated with probability c, is convex in e; its mix is >= 0."""
    c, _, alpha, _, e, x, _, _ = rounds_of_the_game()
    x = np.minimum(x, 10)

    def log_mean(error):
        return np.log1p(c * np.expm1(-x * (error - alpha)))

    assert largest(log_mean(e), (1 - e) * log_mean(0) + e * log_mean(1)) < 1e-9
    assert ((1 - alpha) * log_mean(0) + alpha * log_mean(1) >= -1e-9).all()
    assert (log_mean(0) > log_mean(1)).all()


def test_n1_the_bound_by_hand():
    """Of 10,000 answers, 30 of which wait; and never more than all wrong ones among few."""
    model, alpha, n = Feedback(rate=0.5, bias=2.0, flips=(0.1, 0.5)), 0.1, 10_000
    x, aim = TILTS, model.aim(alpha)
    down, up = np.exp(-x * (1 - aim)), np.exp(x * aim)
    right, wrong = np.log(0.75 + 0.25 * (0.1 * down + 0.9 * up)), np.log(0.5 + 0.5 * (0.5 * down + 0.5 * up))
    above = x * (100 + 30 * (1 - aim)) + n * (0.9 * right + alpha * wrong) + np.log(20)
    bounds = [risk_from_feedback(100, answers, 30, alpha, 0.05, model) for answers in (n, 10)]
    assert bounds == pytest.approx([(above / (right - wrong))[right > wrong].min(), 9])
