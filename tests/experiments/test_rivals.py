"""The rivals decide as their plain NumPy versions: those of two in the reference, of the others below."""

import numpy as np
import pytest

from exaul.engine import registry
from exaul.engine.simulation.learners import backend_of
from exaul.kernels.game import GRIDS, ROUNDS, compute_cuts
from exaul.kernels.learners.learner import Learner
from experiments.beyond import RIVALS, short_name
from experiments.rivals import aci, csa
from tests import games, reference


def play(name, thresholds, scores, errors, alpha):
    """The decisions of a rival, [T]."""
    simulate = {"aci": simulate_aci, "csa": simulate_csa}.get(name)
    if simulate is None:
        return reference.simulate(name, thresholds, scores, errors, scores, alpha, 0, None, None)[0]
    return simulate(thresholds, scores, errors, alpha)


def simulate_aci(thresholds, scores, errors, alpha):
    """Answer what lies above a place in the grid, which moves with the errors of answers."""
    place, decisions = 0.0, []
    for score, error in zip(scores, errors, strict=True):
        decisions.append(np.sum(thresholds[:-1] <= score) / (len(thresholds) - 1) > place)
        place += aci.STEP * (error - alpha) * decisions[-1]
    return np.array(decisions)


def simulate_csa(thresholds, scores, errors, alpha):
    """Before each block, take the lowest threshold whose mean wealth over bets suffices; all labels are seen."""
    answers, errors = scores[:, None] >= thresholds[:-1], errors[:, None]  # [T, H - 1]; [T, 1]
    held, decisions = np.inf, []
    for t, score in enumerate(scores):
        if t % ROUNDS == 0:
            wealth = 0.0
            for bet in csa.BETS:
                right, wrong = np.log(1 + bet * alpha / (1 - alpha)), np.log(1 - bet)
                gains = np.where(answers[:t], (1 - errors[:t]) * right + errors[:t] * wrong, 0)
                wealth += np.exp(np.minimum(gains.sum(axis=0), 600)) / len(csa.BETS)
            held = min(thresholds[:-1][wealth >= (len(thresholds) - 1) / 0.05], default=np.inf)
        decisions.append(score >= held)
    return np.array(decisions)


@pytest.mark.parametrize(("arms", "kind", "rating"), [(2, "levels", 0), (1000, "ends", 0.4), (1000, "shift", 0)])
@pytest.mark.parametrize("place", RIVALS)
def test_decisions_equal_the_reference(place, arms, kind, rating):
    """At three alphas; errors of 0 or 1, and ratings between them."""
    rng, rounds, alphas = np.random.default_rng(arms), 3_000, np.array([0.05, 0.2, 0.5])
    scores = games.scores_of(kind, rng, rounds)
    errors = (rng.random(rounds) > scores**0.5).astype(float)
    errors = np.clip(errors * (1 - rating) + rng.random(rounds) * rating, 0, 1)
    thresholds = GRIDS["uniform"](arms, scores)
    expected = [play(short_name(place), thresholds, scores, errors, alpha) for alpha in alphas]
    assert 0 < np.mean(expected) < 1
    rival = registry.resolve("learner", place, registry.LEARNERS, (Learner,))
    cuts, errors = (np.repeat(x[:, None], 3, axis=1) for x in (compute_cuts(thresholds, scores), errors))
    rates = np.full(12, np.nan if rival.rates is None else rival.rates(rounds, arms).eta), np.full(12, np.nan)
    for backend in ("native", "dense"):
        made = backend_of(rival, backend, "float64")
        if made is not None:
            game = cuts, errors, np.zeros((rounds, 3)), rates, alphas, np.ones(3)
            _, found = games.simulate(rival.rule, made, arms, 0, *game)
            np.testing.assert_array_equal(found.T, expected)


def test_a_threshold_with_too_many_wrong_answers_is_certified_rarely():
    """Ville: with probability at most delta the wealth ever reaches 1 / delta, also for ratings."""
    rng, alpha = np.random.default_rng(0), 0.1
    for errors in (rng.random((2_000, 3_000)) < alpha, rng.random((2_000, 3_000)) * 2 * alpha):
        wrong, count = np.cumsum(errors, axis=1, dtype=float)[:, 99::100], np.arange(100.0, 3_001, 100)
        wealth = np.exp(csa.log_wealth(np.broadcast_to(count, wrong.shape), wrong, alpha))
        assert np.mean(wealth.max(axis=1) >= 1 / 0.05) <= 0.05
        assert wealth.max() > 1
