"""The rivals decide as their plain NumPy versions in the reference."""

import numpy as np
import pytest

from exaul.engine import registry
from exaul.engine.simulation.learners import backend_of
from exaul.kernels.game import GRIDS, compute_cuts
from exaul.kernels.learners.learner import Learner
from experiments.beyond import RIVALS, short_name
from tests import games, reference


@pytest.mark.parametrize(("arms", "kind", "rating"), [(2, "levels", 0), (1000, "ends", 0.4), (1000, "shift", 0)])
@pytest.mark.parametrize("place", RIVALS)
def test_decisions_equal_the_reference(place, arms, kind, rating):
    """At three alphas; errors of 0 or 1, and ratings between them."""
    rng, rounds, alphas = np.random.default_rng(arms), 3_000, np.array([0.05, 0.2, 0.5])
    scores = games.scores_of(kind, rng, rounds)
    errors = (rng.random(rounds) > scores**0.5).astype(float)
    errors = np.clip(errors * (1 - rating) + rng.random(rounds) * rating, 0, 1)
    thresholds = GRIDS["uniform"](arms, scores)
    expected = [
        reference.simulate(short_name(place), thresholds, scores, errors, np.zeros(rounds), alpha, 0, None, None)[0]
        for alpha in alphas
    ]
    assert 0 < np.mean(expected) < 1
    rival = registry.resolve("learner", place, registry.LEARNERS, (Learner,))
    cuts, errors = (np.repeat(x[:, None], 3, axis=1) for x in (compute_cuts(thresholds, scores), errors))
    rates = np.full(12, np.nan), np.full(12, np.nan)
    made = backend_of(rival, "dense", "float64")
    game = cuts, errors, np.zeros((rounds, 3)), rates, alphas, np.ones(3)
    _, found = games.simulate(rival.rule, made, arms, 0, *game)
    np.testing.assert_array_equal(found.T, expected)
