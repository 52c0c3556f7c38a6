"""``aci-rank``: each step of its proofs (docs/proofs.md, sections 2 to 5), on random and hostile sequences."""

from typing import Any, NamedTuple

import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exaul.kernels.feedback import PERFECT_FEEDBACK, FeedbackSums, add_answer, add_decision, learned_share
from exaul.kernels.game import RuleParams
from exaul.kernels.guarantee import GuaranteeCase, guarantee
from exaul.kernels.learners import aci_rank
from exaul.kernels.learners.aci_rank import DRIFTS, LEAST_SHARE, SHARE, STEP, TINY, AciRankState
from exaul.kernels.learners.learner import count_log
from tests import reference

ROUNDING = 1e-9  # sums of some thousand steps
ALPHAS = 0.005, 0.02, 0.1, 0.3, 0.5, 0.9
STEPS = 1 / 200, 1 / 40, 1 / 25
unit = st.floats(0, 1)
alphas = st.floats(0.005, 0.9)
steps = st.sampled_from(STEPS)


def decide_not_strictly(where, state, high, low):
    return where((state.share >= 0) & (high >= 1 - state.share), 1.0, 0.0)


def learn_with_a_floor(where, state, answered, error, params):
    learned = aci_rank.learn(where, state, answered, error, params)
    return learned._replace(share=where(learned.share > 0, learned.share, 0.0))


class Settings(NamedTuple):
    """What differs between B games, [B] each."""

    alpha: Any
    step: Any
    first: Any  # share before round 1
    max_open: Any  # open answers, when another is given
    reserve: Any  # bool
    order: Any  # of feedback: 0 oldest first, 1 newest, 2 wrong, 3 right, 4 random
    weight: Any  # of abstentions


def draw_settings(rng, count, late=True):
    """Draw settings; with ``late``, of games with delays up to 100, reserves and weights."""
    half = rng.random(count) < 0.5
    return Settings(
        rng.choice(ALPHAS, count),
        rng.choice(STEPS, count),
        np.where(half, rng.choice([0.0, TINY, 1e-3, LEAST_SHARE, SHARE, 1.0], count), rng.random(count)),
        rng.choice([0, 1, 3, 20, 100], count) if late else np.zeros(count, int),
        rng.random(count) < 0.5 if late else np.zeros(count, bool),
        rng.integers(0, 5, count),
        rng.choice([1.0, 0.5, 0.02], count) if late else np.ones(count),
    )


def at_once(alpha, first=SHARE):
    """Settings of games in which each answer is rated at once, for targets [B]."""
    zero, ones = np.zeros(len(alpha)), np.ones(len(alpha))
    return Settings(np.array(alpha), STEP * ones, first * ones, zero.astype(int), zero > 0, zero.astype(int), ones)


class Games:
    """B games at once, with the sums of which the proofs speak. An adversary calls ``play`` for each round."""

    def __init__(self, settings, rng, decide=aci_rank.decide, learn=aci_rank.learn):
        count, slots = len(settings.alpha), int(settings.max_open.max()) + 1
        zero = np.zeros(count)
        self.settings, self.rng, self.decide, self.learn = settings, rng, decide, learn
        self.params = RuleParams(settings.step, None, settings.alpha, None, None, settings.weight)
        self.state = AciRankState(settings.first, zero, zero)
        self.open = np.full((count, slots), np.nan)  # errors of open answers
        self.given = np.zeros((count, slots))  # when they were given
        self.t = 0
        self.risk = zero  # R_t, open answers included
        self.learned_risk = zero  # of what was learned
        self.abstained = zero  # weight of the abstentions at s < 1/20
        self.silent = zero  # their number
        self.most_open = zero  # D
        self.since = zero  # answers learned since the last answer was given
        self.least = zero  # of R_s less what the abstentions until s allow
        self.answers = zero

    def play(self, high, error, luck=0.5):
        """Play a round; feedback on one open answer comes with probability ``luck``, and if it must."""
        settings, state, waiting = self.settings, self.state, (~np.isnan(self.open)).sum(axis=1)
        reserved = aci_rank.reserve(np.where, state, np.where(settings.reserve, waiting, 0), None, self.params)
        answered = self.decide(np.where, reserved, high, 0.0) > 0
        counted = ~answered & (state.share < LEAST_SHARE)
        learned = self.learn(np.where, state, False, 0.0, self.params)
        self.state = choose(answered, state, learned)
        self.abstained = self.abstained + counted * settings.weight
        self.silent = self.silent + counted
        self.risk = self.risk + np.where(answered, error - settings.alpha, 0.0)
        self.answers = self.answers + answered
        self.most_open = np.where(answered, np.maximum(self.most_open, waiting), self.most_open)
        self.since = np.where(answered, 0, self.since)
        rows, free = np.arange(len(waiting)), np.isnan(self.open).argmax(axis=1)
        self.open[rows[answered], free[answered]] = np.broadcast_to(error, answered.shape)[answered]
        self.given[rows[answered], free[answered]] = self.t
        self._learn(waiting + answered, luck)
        self.t += 1

    def _learn(self, waiting, luck):
        errors, age = self.open, -self.given
        ranks = (age, -age, errors, -errors, self.rng.random(errors.shape))
        priority = np.choose(self.settings.order[:, None], ranks)
        slot = np.where(np.isnan(errors), -np.inf, priority).argmax(axis=1)
        rows = np.arange(len(slot))
        comes = (waiting > self.settings.max_open) | ((waiting > 0) & (self.rng.random(len(slot)) < luck))
        error = np.where(comes, errors[rows, slot], 0.0)
        learned = self.learn(np.where, self.state, comes, error, self.params)
        self.state = choose(comes, learned, self.state)
        self.learned_risk = self.learned_risk + np.where(comes, error - self.settings.alpha, 0.0)
        self.since = self.since + comes
        self.open[rows[comes], slot[comes]] = np.nan

    @property
    def bound(self):
        """B: s_1 / step + 1 - alpha + (weight of the abstentions at s < 1/20) / 200."""
        return self.settings.first / self.settings.step + 1 - self.settings.alpha + self.abstained / DRIFTS

    @property
    def excess(self):
        """The largest excess over any bound, [B] each: M1 of what was learned, and D1 or D2 of all answers."""
        rise = 1 - self.settings.alpha
        late = np.where(self.settings.reserve, 0, np.maximum(self.since - 1, 0)) * rise
        waiting = np.where(self.settings.reserve, 0, self.most_open) * rise
        return np.maximum(self.learned_risk - self.bound - late, self.risk - self.bound - waiting)

    @property
    def excess_of_stretches(self):
        """The largest excess of a rise of R_t over that of W1, [B]; without delays."""
        risk = self.risk - self.abstained / DRIFTS
        rise, self.least = risk - self.least, np.minimum(self.least, risk)
        return rise - 1 / self.settings.step - (1 - self.settings.alpha)


def choose(condition, state, other):
    return AciRankState(*(np.where(condition, x, y) for x, y in zip(state, other, strict=True)))


def wrong_at_the_edge(t, game, coin):
    """The lowest rank that is answered is wrong; every other round has the highest rank that is not."""
    return 1 - game.state.share + (1e-12 if t % 2 else 0.0), 1.0


def wrong_once_it_owes_nothing(t, game, coin):
    """Right while R is above -5, so that the aim is alpha; then wrong until nothing is answered."""
    return 1.0, np.where(t % 600 < 300, game.risk > -5, 1.0)


def silent_then_wrong(t, game, coin):
    """Ranks of 0 until the share has drifted to its limit, then wrong answers."""
    return np.where((t < 200) | (t % 100 < 80), 0.0, 1.0), 1.0


ADVERSARIES = {  # the rank of a round and its error; ``coin`` is uniform
    "all wrong": lambda t, game, coin: (1.0, 1.0),
    "wrong at the edge": wrong_at_the_edge,
    "wrong once it owes nothing": wrong_once_it_owes_nothing,
    "saw tooth": lambda t, game, coin: (coin, float(t // 150 % 2)),
    "partly wrong": lambda t, game, coin: (1 - coin**3, coin**2),
    "silent, then wrong": silent_then_wrong,
}


def decide_one(share, high):
    return aci_rank.decide(np.where, AciRankState(share, 0.0, 0.0), high, 0.0) == 1


@given(
    st.floats(-1, 1), st.floats(-5, 50), st.integers(0, 500), st.booleans(), unit, alphas, steps, st.floats(0.01, 1)
)
def test_w1_a_round_moves_the_share(share, risk, answers, answered, error, alpha, step, weight):
    """An answer lowers it by its excess over the aim, an abstention below 1/20 raises it by weight x step / 200."""
    state, params = AciRankState(share, risk, float(answers)), RuleParams(step, None, alpha, None, None, weight)
    learned = aci_rank.learn(np.where, state, answered, error, params)
    oracle = reference.AciRank(np.array([0.0, 1.0]), alpha, step)
    oracle.s, oracle.R, oracle.answers = share, risk, answers
    oracle.learn(None, answered, error, weight)
    assert learned == pytest.approx((oracle.s, oracle.R, oracle.answers), abs=1e-12)
    if answered:  # a step of projected gradient descent, as optax takes it
        aim = alpha - min(max(0.0, risk) / (answers + 1), alpha / 2)
        (update,), _ = optax.sgd(step).update((error - aim,), optax.sgd(step).init((share,)))
        moved = optax.projections.projection_box(np.float64(share + update), -np.inf, 1.0)
        assert learned.share == pytest.approx(float(moved), abs=1e-12)
        assert share - learned.share >= step * (error - alpha) - 1e-12


@given(st.floats(-1, 1), unit)
def test_w1_only_a_share_above_0_answers(share, high):
    """Whatever the rank, also if it is rounded to a little more than 1; and a share of 1 answers everything."""
    assert decide_one(share, high) == (share > TINY and high > 1 - share)
    assert not decide_one(min(share, TINY), np.nextafter(1, 2))
    assert decide_one(1.0, high) == (high > 0)
    assert decide_one(2 * TINY, 1.0)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_w1_w2_d1_d2_m1_no_sequence_exceeds_the_bounds(adversary, late):
    """Without delays also over every stretch, and silence ends after 200 abstentions (W2).

    Else up to 100 answers wait, in five orders, with and without a reserve, and abstentions may weigh less than 1.
    """
    rng, count = np.random.default_rng(1 + late), 100 if late else 200
    game, silence = Games(draw_settings(rng, count, late), rng), np.zeros(count)
    luck = rng.choice([0.0, 0.05, 0.5], count)
    for t in range(600 if late else 1200):
        game.play(*ADVERSARIES[adversary](t, game, rng.random(count)), luck)
        assert (game.excess <= ROUNDING).all()
        if not late:
            assert (game.excess_of_stretches <= ROUNDING).all()
            assert (game.state.share > -game.settings.step).all()
            silence = np.where(game.state.share <= TINY, silence + 1, 0)
            assert silence.max() <= DRIFTS + 1
    if late and adversary == "all wrong":  # D1 needs its term
        assert game.most_open.max() == 100
        assert (game.risk - game.bound)[~game.settings.reserve].max() > 90


def test_w1_is_tight():
    """If all is wrong, R_T is more than 85% of the bound at alpha up to .2, after 50 rounds and after 10,000."""
    first = np.array([SHARE, 1.0] * 4)
    game = Games(at_once(np.repeat([0.005, 0.02, 0.1, 0.2], 2), first), np.random.default_rng(4))
    for t in range(1, 10_001):
        game.play(1.0, 1.0)
        assert t not in (50, 10_000) or (game.risk > 0.85 * game.bound).all()
    assert (game.risk > 0.98 * game.bound)[:4].all()


def test_w1_of_a_stretch_is_tight():
    """After right answers, R rises by 40 at a first share of .3, more than s_1 / step allows from the start."""
    game, lowest = Games(at_once([0.1]), np.random.default_rng(5)), 0.0
    for t in range(1200):
        game.play(1.0, float(t > 1000))
        lowest = min(lowest, game.risk[0])
    assert 40 <= game.risk[0] - lowest <= 41 - 0.1 + game.silent[0] / DRIFTS


@pytest.mark.parametrize(
    ("decide", "learn", "least"),
    [
        (decide_not_strictly, learn_with_a_floor, 0.9),
        (aci_rank.decide, learn_with_a_floor, 0.45),
        (aci_rank.decide, aci_rank.learn, 0.0),
    ],
)
def test_a_share_with_a_floor_breaks_the_bound(decide, learn, least):
    """With ``>=`` and a floor at 0 each round is answered; with a floor alone, every second one."""
    game = Games(at_once([0.1]), np.random.default_rng(6), decide, learn)
    for _ in range(2000):
        game.play(1.0, 1.0)
    assert game.answers[0] / 2000 >= least
    assert (game.excess[0] > 500) == (least > 0)


def test_d1_an_abstention_may_weigh_1_at_most():
    """With a weight of 3, R exceeds the bound in which an abstention counts once."""
    settings = at_once([0.02, 0.02])._replace(weight=np.array([1.0, 3.0]))
    game = Games(settings, np.random.default_rng(7))
    for _ in range(4000):
        game.play(1.0, 1.0)
    once = settings.first / settings.step + 1 - settings.alpha + game.silent / DRIFTS
    assert ((game.risk > once) == [False, True]).all()


def test_m1_audits_and_rare_feedback():
    """The learned risk is within its bound in each game, and so is the mean of R_T, if abstentions weigh enough.

    15,000 rounds, 60 seeds, all answers are wrong: abstentions weigh q, 1, or the estimate; q is .02 and .05. With
    weight 1 the mean of R_T is far above what A / 200 allows: A / (200 q) is needed.

    The bound of a game is B / q, where B is that of the learned risk L. All n answers are wrong, so the mean of
    ``exp(n k - x L)`` is 1 at ``k = -ln(1 - q + q exp(-x (1 - alpha)))``, for each x. So is the mean of the product
    over all games. By Markov's inequality the mean of n over the games exceeds
    ``(x B + ln(1 / delta) / games) / k`` with probability delta at most; here 1e-6, at x = .15, fixed in advance.
    It fails once in 250,000.
    """
    shape, alpha, tilt = (3, 2, 60), 0.1, 0.15
    rng, q = np.random.default_rng(8), np.array([0.02, 0.05])[:, None]
    zero = np.zeros(shape)
    state, sums = AciRankState(zero + SHARE, zero, zero), FeedbackSums(*[zero] * len(FeedbackSums._fields))
    answers, learned_risk, abstained, silent = zero, zero, zero, zero
    params = RuleParams(STEP, None, alpha, None, None)
    weight = np.broadcast_to(q, shape).copy()
    weight[1] = 1.0
    for _ in range(15_000):
        answered = aci_rank.decide(np.where, state, 1.0, 0.0) > 0
        sums = add_decision(np.where, sums, answered)
        weight[2] = learned_share(np.where, sums)[2]
        learns = answered & (rng.random(shape) < q)
        sums = add_answer(np.where, sums, learns, True, 1.0)
        counted = ~answered & (state.share < LEAST_SHARE)
        learned = aci_rank.learn(np.where, state, learns, 1.0, params._replace(weight=weight))
        state = choose(answered & ~learns, state, learned)
        answers, learned_risk = answers + answered, learned_risk + learns * (1 - alpha)
        abstained, silent = abstained + counted * weight, silent + counted
    mean, k = answers.mean(axis=2), -np.log1p(q * np.expm1(-tilt * (1 - alpha)))[:, 0]
    first = SHARE / STEP + 1 - alpha
    assert (learned_risk <= first + abstained / DRIFTS + ROUNDING).all()
    bound, once = ((first + A / DRIFTS).mean(axis=2) for A in (abstained, silent * q))
    exceeds, exceeds_once = (mean > (tilt * B + np.log(1e6) / 60) / k for B in (bound, once))
    assert not exceeds[[0, 2]].any()
    assert ((1 - alpha) * mean > 0.85 * bound / q[:, 0])[[0, 2]].all()  # not by far
    assert not exceeds_once[0].any()
    assert exceeds_once[1].all()
    assert ((1 - alpha) * mean > 2 * once / q[:, 0])[1].all()


@given(st.lists(st.tuples(st.integers(1, 7), unit), min_size=1, max_size=60), st.sampled_from(ALPHAS))
def test_the_first_share_is_that_of_the_best_threshold(rows, alpha):
    """As that of the oracle; unless the log is short, ``decide`` answers the levels that the threshold answers."""
    cuts, errors = (np.array(x) for x in zip(*rows, strict=True))
    counts, thresholds = count_log(aci_rank.aci_rank.rule, cuts, 8), np.linspace(0, 1, 8)
    share, *sums = aci_rank.fit(cuts, errors.astype(float), counts, alpha)
    assert sums == [0, 0]
    oracle = reference.AciRank(thresholds, alpha, log=(thresholds[cuts - 1], errors))
    assert share == pytest.approx(oracle.s, abs=1e-12)
    assert 0 <= share <= 1
    if share == 0 or len(cuts) * alpha < 3:
        return
    levels = range(1, cuts.max() + 1)
    good = [cut for cut in levels if errors[cuts >= cut].sum() <= alpha * (cuts >= cut).sum() + 1e-12]
    for cut in range(1, 8):
        assert decide_one(share, counts[: cut + 1].sum() / counts.sum()) == (cut >= good[0])


def test_the_bound_by_hand():
    """40 s_1 + 1 - alpha, and 1 for 200 abstentions; a vector of alphas and of shares."""
    start = AciRankState(np.array([0.3, 1.0, 0.0]), 0.0, 0.0)
    bounds = aci_rank.risk_bound([STEP], 1000, np.array([600, 600, 1000]), [0.1, 0.1, 0.02], start)
    np.testing.assert_allclose(bounds, [12.9 + 2, 40.9 + 2, 0.98])
    assert aci_rank.risk_bound(1 / 25, 0, 0, 0.1, start._replace(share=1.0)) == pytest.approx(25.9)


def test_no_more_answers_wait_than_are_given():
    case = GuaranteeCase(0.1, 100, 9, 0.05, 0.2, PERFECT_FEEDBACK)
    fewer, all_of_them, more = (guarantee(aci_rank.aci_rank, case._replace(open=n)).fdr for n in (19, 20, 50))
    assert fewer < all_of_them == more
