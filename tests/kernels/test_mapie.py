"""``learn-then-test`` beside MAPIE's implementation of the same paper, on the same records and thresholds."""

import jax
import numpy as np
import pytest

from exaul.engine.registry import backend_of
from exaul.kernels.game import GRIDS, compute_cuts
from experiments.rivals import learn_then_test as ours
from tests import games, reference

mapie = pytest.importorskip("mapie.risk_control", reason="MAPIE is not installed")
methods = pytest.importorskip("mapie.risk_control.methods", reason="MAPIE is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:(All provided|No predict):UserWarning")

ALPHAS = (0.05, 0.1, 0.2)
CASES = [(arms, grid, seed) for arms in (2, 30, 1000) for grid in ("uniform", "quantile") for seed in (0, 1)]


def calibration(arms, grid, seed):
    """Thresholds, and 1,024 records; the first reaches every threshold.

    Where none does MAPIE 1.6 has a p-value of NaN, which its Holm procedure takes for the smallest, and stops at.
    """
    rng = np.random.default_rng([arms, seed])
    scores = rng.beta(4, 1, ours.CALIBRATION)
    scores[0] = 1.0
    errors = (rng.random(len(scores)) > scores ** rng.choice([0.2, 0.5])).astype(float)
    return GRIDS[grid](arms, scores), scores, errors


def controller(risk, thresholds, scores, errors, alpha):
    """MAPIE's, with the thresholds that can answer: a positive is a record that is answered, its label is right."""
    return mapie.BinaryClassificationController(
        lambda scores: np.stack([1 - scores, scores], axis=1),
        risk=risk,
        target_level=1 - alpha if risk.higher_is_better else alpha,
        confidence_level=1 - ours.DELTA,
        best_predict_param_choice="recall",  # what MAPIE chooses by itself with the precision
        list_predict_params=thresholds[:-1],
    ).calibrate(scores, 1 - errors)


def counts(thresholds, scores, errors):
    """How many records each threshold but the last answers, and how many of these are wrong."""
    answers = scores[:, None] >= thresholds[:-1]
    return answers.sum(axis=0).astype(float), errors @ answers


def made(function, *arguments):
    with jax.enable_x64(True):
        return np.asarray(jax.jit(function)(*arguments))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize(("arms", "grid", "seed"), CASES)
def test_p_values_and_what_is_certified_of_them_are_mapies(arms, grid, seed, alpha):
    """It multiplies 1 - precision by n again and rounds up: that may count one wrong answer more than there are."""
    thresholds, scores, errors = calibration(arms, grid, seed)
    count, wrong = counts(thresholds, scores, errors)
    theirs = controller(mapie.precision, thresholds, scores, errors, alpha)
    p = made(ours.p_value, count, wrong, np.array([alpha]), False)
    same = np.ceil(count * (1 - (count - wrong) / count)) == wrong
    assert same.any()
    np.testing.assert_allclose(p[same], theirs.p_values[same, 0], rtol=1e-9, atol=1e-15)
    assert (p <= theirs.p_values[:, 0] * (1 + 1e-9)).all()
    certified = made(ours.certified, theirs.p_values[:, 0])
    np.testing.assert_array_equal(thresholds[:-1][certified], theirs.valid_predict_params)


class WrongAmongAnswered(mapie.BinaryRisk):
    """1 - precision, a hair too low, so that n times it rounds up to the number of wrong answers."""

    def __init__(self):
        super().__init__(lambda right, answered: right == 0, lambda right, answered: answered == 1, False)

    def get_value_and_effective_sample_size(self, y_true, y_pred):
        """As MAPIE's, and then one float lower."""
        value, count = super().get_value_and_effective_sample_size(y_true, y_pred)
        return max(0.0, np.nextafter(value, 0.0)), count


@pytest.mark.parametrize(("arms", "grid", "seed"), CASES)
def test_the_threshold_that_is_fixed_is_mapies(arms, grid, seed):
    thresholds, scores, errors = calibration(arms, grid, seed)
    theirs = [controller(WrongAmongAnswered(), thresholds, scores, errors, alpha) for alpha in ALPHAS]
    rounds, copies = ours.CALIBRATION + 1, len(ALPHAS)
    records = np.repeat(np.append(compute_cuts(thresholds, scores), 1)[:, None], copies, axis=1)
    right = np.repeat(np.append(errors, 0.0)[:, None], copies, axis=1)
    made = backend_of(ours.learn_then_test, "dense", "float64")
    rates = np.full(5, np.nan), np.full(5, np.nan)
    game = records, right, np.zeros((rounds, copies)), rates, np.array(ALPHAS), np.ones(copies)
    state, _ = games.simulate(ours.learn_then_test.rule, made, arms, 0, *game)
    found = [thresholds[arm] if arm < arms - 1 else None for arm in np.asarray(state.arm)[:copies]]
    assert found == [one.best_predict_param for one in theirs]


@pytest.mark.parametrize("alpha", ALPHAS)
def test_p_values_of_ratings_are_mapies_and_the_references(alpha):
    rng = np.random.default_rng(0)
    count = rng.integers(1, 1025, 300).astype(float)
    wrong = count * rng.random(300) * 0.3
    p = made(ours.p_value, count, wrong, np.array([alpha]), True)
    theirs = methods.compute_hoeffding_bentkus_p_value(wrong / count, count, alpha)[:, 0]
    np.testing.assert_allclose(p, theirs, rtol=1e-9, atol=1e-15)
    oracle = [reference.hoeffding_bentkus(int(n), w, alpha, True) for n, w in zip(count, wrong, strict=True)]
    np.testing.assert_allclose(p, oracle, rtol=1e-9, atol=1e-15)
