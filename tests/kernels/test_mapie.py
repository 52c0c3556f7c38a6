"""``learn-then-test`` beside MAPIE's implementation of the same paper, on the same records and thresholds."""

import jax
import numpy as np
import pytest

from exaul.kernels.game import GRIDS
from experiments.rivals import learn_then_test as ours
from tests import reference

mapie = pytest.importorskip("mapie.risk_control", reason="MAPIE is not installed")
methods = pytest.importorskip("mapie.risk_control.methods", reason="MAPIE is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:(All provided|No predict):UserWarning")

ALPHAS = (0.05, 0.1, 0.2)
CASES = [(2, "uniform", 0), (30, "quantile", 1), (1000, "uniform", 1), (1000, "quantile", 0)]


def calibration(arms, grid, seed):
    """Thresholds, and 1,024 records; the first reaches every threshold.

    Where none does MAPIE 1.6 has a p-value of NaN, which its Holm procedure takes for the smallest, and stops at.
    """
    rng = np.random.default_rng([arms, seed])
    scores = rng.beta(4, 1, ours.CALIBRATION)
    scores[0] = 1.0
    errors = (rng.random(len(scores)) > scores ** rng.choice([0.2, 0.5])).astype(float)
    return GRIDS[grid](arms, scores), scores, errors


def evaluate(function, *arguments):
    with jax.enable_x64(True):
        return np.asarray(jax.jit(function)(*arguments))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize(("arms", "grid", "seed"), CASES)
def test_p_values_and_what_is_certified_of_them_are_mapies(arms, grid, seed, alpha):
    """It multiplies 1 - precision by n again and rounds up: that may count one wrong answer more than there are."""
    thresholds, scores, errors = calibration(arms, grid, seed)
    answers = scores[:, None] >= thresholds[:-1]
    count, wrong = answers.sum(axis=0).astype(float), errors @ answers
    theirs = mapie.BinaryClassificationController(
        lambda scores: np.stack([1 - scores, scores], axis=1),
        risk=mapie.precision,
        target_level=1 - alpha,
        confidence_level=1 - ours.DELTA,
        list_predict_params=thresholds[:-1],
    ).calibrate(scores, 1 - errors)  # a positive is a record that is answered, its label is right
    p = evaluate(ours.p_value, count, wrong, np.array([alpha]), False)
    equal = np.ceil(count * (1 - (count - wrong) / count)) == wrong
    assert equal.any()
    np.testing.assert_allclose(p[equal], theirs.p_values[equal, 0], rtol=1e-9, atol=1e-15)
    assert (p <= theirs.p_values[:, 0] * (1 + 1e-9)).all()
    certified = evaluate(ours.certified, theirs.p_values[:, 0])
    np.testing.assert_array_equal(thresholds[:-1][certified], theirs.valid_predict_params)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_p_values_of_ratings_are_mapies_and_the_references(alpha):
    rng = np.random.default_rng(0)
    count = rng.integers(1, 1025, 300).astype(float)
    wrong = count * rng.random(300) * 0.3
    p = evaluate(ours.p_value, count, wrong, np.array([alpha]), True)
    theirs = methods.compute_hoeffding_bentkus_p_value(wrong / count, count, alpha)[:, 0]
    np.testing.assert_allclose(p, theirs, rtol=1e-9, atol=1e-15)
    oracle = [reference.hoeffding_bentkus(int(n), w, alpha, True) for n, w in zip(count, wrong, strict=True)]
    np.testing.assert_allclose(p, oracle, rtol=1e-9, atol=1e-15)
