"""The rivals decide as their plain NumPy versions: those of two in the reference, of the others below."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from exaul.engine import registry
from exaul.engine.registry import backend_of
from exaul.kernels.game import BLOCK, GRIDS, compute_cuts
from experiments import rivals
from experiments.beyond import RIVALS, short_name
from tests import games, reference


def simulate_aci(thresholds, scores, errors, alpha):
    """Answer what lies above a position in the grid, which moves with the errors of answers."""
    position, decisions = 0.0, []
    for score, error in zip(scores, errors, strict=True):
        decisions.append(np.sum(thresholds[:-1] <= score) / (len(thresholds) - 1) > position)
        position += rivals.STEP * (error - alpha) * decisions[-1]
    return np.array(decisions)


def simulate_csa(thresholds, scores, errors, alpha):
    """Before each block, take the lowest threshold whose mean wealth over bets suffices; all labels are seen."""
    answers = (scores[:, None] >= thresholds[:-1]).astype(float)  # [T, H - 1]
    held, decisions = np.inf, []
    for t, score in enumerate(scores):
        if t % BLOCK == 0:
            right, wrong = (1 - errors[:t]) @ answers[:t], errors[:t] @ answers[:t]
            gains = [right * np.log(1 + b * alpha / (1 - alpha)) + wrong * np.log(1 - b) for b in rivals.BETS]
            wealth = np.logaddexp.reduce(gains) - np.log(len(rivals.BETS))
            held = min(thresholds[:-1][wealth >= np.log((len(thresholds) - 1) / 0.05)], default=np.inf)
        decisions.append(score >= held)
    return np.array(decisions)


ORACLES = {"aci": simulate_aci, "csa": simulate_csa}


@pytest.mark.parametrize(("arms", "kind", "rating"), [(2, "levels", 0), (1000, "ends", 0.4), (1000, "shift", 0)])
@pytest.mark.parametrize("full_name", RIVALS)
def test_decisions_equal_the_reference(full_name, arms, kind, rating):
    """At three alphas; errors of 0 or 1, and ratings between them."""
    rng, rounds, alphas = np.random.default_rng(arms), 2_500, np.array([0.05, 0.2, 0.5])
    scores = games.scores_of(kind, rng, rounds)
    errors = (rng.random(rounds) > scores**0.5).astype(float)
    errors = np.clip(errors * (1 - rating) + rng.random(rounds) * rating, 0, 1)
    thresholds = GRIDS["uniform"](arms, scores)
    name = short_name(full_name)
    simulate = ORACLES.get(name) or (
        lambda *game: reference.simulate(name, *game[:3], scores, game[3], 0, None, None)[0]
    )
    expected = [simulate(thresholds, scores, errors, alpha) for alpha in alphas]
    assert 0 < np.mean(expected) < 1
    rival = registry.resolve("learner", full_name)
    cuts, errors = (np.repeat(x[:, None], 3, axis=1) for x in (compute_cuts(thresholds, scores), errors))
    rates = np.full(12, rivals.STEP), np.full(12, np.nan)
    for backend in ("native", "dense"):
        loop = backend_of(rival, backend, "float64")
        if loop is not None:
            game = cuts, errors, np.zeros((rounds, 3)), rates, alphas, np.ones(3)
            _, decisions = games.simulate(rival.rule, loop, arms, 0, *game)
            np.testing.assert_array_equal(decisions.T, expected)


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2])
def test_p_values_and_what_is_certified_of_them_are_the_references(alpha):
    """Of answers that are right or wrong, and of ratings; and of p-values about the limits of Holm's procedure."""
    rng = np.random.default_rng(0)
    count = np.append(np.arange(30), rng.integers(0, 1025, 270))
    ratings = count * rng.random(300) ** 2
    ratings[::2] = np.round(ratings[::2]) + 1e-10  # rounded sums
    with jax.enable_x64(True):
        for wrong, is_fractional in ((np.round(ratings), False), (ratings, True)):
            p = rivals.p_value(count.astype(float), wrong, np.array([alpha]), is_fractional)
            pairs = zip(count, wrong, strict=True)
            expected = [reference.hoeffding_bentkus(int(n), w, alpha, is_fractional) for n, w in pairs]
            np.testing.assert_allclose(p, expected, rtol=1e-9, atol=1e-15)
        for p in alpha * rng.random((100, 8)):
            certified = np.flatnonzero(rivals.certified(p))
            np.testing.assert_array_equal(certified, sorted(reference.holm(p, 0.05)))


def test_csa_divides_delta_by_the_arms_that_can_answer():
    """Of two arms one can, so a wealth of 20 certifies it; at alpha 1/2 a right answer is worth 1 + b."""
    with jax.enable_x64(True):
        for n in range(40):
            labels = rivals.no_labels(2)._replace(count=np.array([0.0, n]))
            arm = rivals.certified_arm(labels, SimpleNamespace(alpha=0.5), 2)
            assert int(arm) == (np.mean([(1 + b) ** n for b in rivals.BETS]) < 20)
