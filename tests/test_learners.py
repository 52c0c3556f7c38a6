"""Every learner against the NumPy reference, and the estimators against their expectation."""

import numpy as np
import pytest

from engine.learners import BACKENDS, LEARNERS, backend, block_rates, runs_on
from engine.rollout import advance_blocks
from kernels.game import GRIDS, ROUNDS, Parameters, costs, cuts
from tests import games, reference

ROUND_COUNT = 3_000
# ew on compressed is held to dense in test_backends; it compiles for long, and parallel is its own backend
EVERY = [
    (name, where)
    for name in LEARNERS
    for where in BACKENDS
    if runs_on(LEARNERS[name], where) and (name, where) != ("ew", "compressed")
]
FIXED = {
    "no-abstention": lambda arms: 0,
    "always-abstain": lambda arms: arms - 1,
    "best-fixed": lambda arms: arms // 2,
}


def play_both(name, where, grid, kind, feedback, anytime, copies=3, rounds=ROUND_COUNT):
    rounds, same = games.comparable(name, rounds)
    rng = np.random.default_rng([len(grid), len(kind), len(feedback)])
    scores = games.scores_of(kind, rng, rounds)
    scores = np.stack([rng.permutation(scores) if kind != "shift" else scores for _ in range(copies)], axis=1)
    errors = (rng.random(scores.shape) > scores**0.5).astype(float)
    if feedback == "ratings":
        errors = np.clip(errors * 0.7 + rng.random(scores.shape) * 0.4, 0, 1)
    uniforms = rng.random(scores.shape)
    alpha, lam = np.array([0.05, 0.2, 0.5])[:copies], np.array([rounds**0.5, 1.0, 0.0])[:copies]
    eta, gamma = block_rates(LEARNERS[name], rounds, len(grid), anytime, None, None)
    arm = FIXED[name](len(grid)) if name in FIXED else 0
    _, decisions, probabilities, _ = games.play(
        backend(LEARNERS[name], where, "float64"),
        len(grid),
        arm,
        cuts(grid, scores.ravel()).reshape(scores.shape),
        errors,
        uniforms,
        eta,
        gamma,
        alpha,
        lam,
    )
    for b in range(copies):
        expected, P = reference.play(
            "fixed" if name in FIXED else name,
            grid,
            scores[:, b],
            errors[:, b],
            uniforms[:, b],
            alpha[b],
            lam[b],
            np.repeat(eta, ROUNDS),
            np.repeat(gamma, ROUNDS),
            arm,
        )
        np.testing.assert_array_equal(decisions[:, b], expected)
        np.testing.assert_allclose(probabilities[:same, b], P[:same], atol=1e-9)


@pytest.mark.parametrize(("name", "where"), games.marked(EVERY))
@pytest.mark.parametrize("arms", [2, 3, 1000])
@pytest.mark.parametrize(("kind", "feedback"), [("levels", "binary"), ("ends", "ratings"), ("shift", "binary")])
def test_decisions_equal_the_reference(name, where, arms, kind, feedback):
    play_both(name, where, GRIDS["uniform"](arms, ()), kind, feedback, anytime=False)


@pytest.mark.parametrize(("name", "where"), games.marked(EVERY))
@pytest.mark.parametrize("grid", ["logit", "quantile"])
def test_decisions_equal_the_reference_on_other_grids_and_rates(name, where, grid):
    scores = games.scores_of("continuous", np.random.default_rng(0), 500)
    play_both(name, where, GRIDS[grid](100, scores), "continuous", "binary", anytime=True, rounds=1000)


@pytest.mark.parametrize("name", ["exaul", "exp3-ix"])
@pytest.mark.parametrize("error", [0.0, 0.3, 1.0])
def test_estimates_are_unbiased_without_exploration(name, error):
    """Enumerate the arms: with gamma = 0, sum over arms of p(arm) times the estimates is the true loss."""
    arms, cut = 7, 3
    answer, abstain = costs(0.1, 4.0)
    start = np.random.default_rng(1).exponential(size=arms)
    p = np.exp(-0.5 * start) / np.exp(-0.5 * start).sum()
    uniforms = np.cumsum(p) - p / 2  # copy k draws arm k
    learner = backend(LEARNERS[name], "dense", "float64")
    block = games.Block(
        np.full((1, 1, 1), cut, np.int32), np.full((1, 1, 1), error), uniforms[None, None], np.ones((1, 1), bool)
    )
    before = np.repeat(start[:, None], arms, axis=1)
    lanes = np.arange(arms, dtype=np.int32)
    each = (np.full(arms, x) for x in (0.1, answer, abstain))
    parameters = Parameters(np.full(1, 0.5), np.zeros(1), *each, lanes * 0, lanes)
    after, _ = advance_blocks(learner, before, block, parameters)
    truth = np.where(np.arange(arms) < cut, answer * error, abstain)
    np.testing.assert_allclose((np.asarray(after) - before) @ p, truth, rtol=1e-12)


@pytest.mark.parametrize("horizon", [1, 256, 30_000])
def test_rates_are_the_papers(horizon):
    log = np.log(1000)
    eta, gamma = block_rates(LEARNERS["exaul"], horizon, 1000, False, None, None)
    np.testing.assert_allclose(eta, np.sqrt(log / horizon))
    np.testing.assert_allclose(gamma, eta / 2)
    eta, gamma = block_rates(LEARNERS["exp3-ix"], horizon, 1000, False, None, None)
    np.testing.assert_allclose(eta, np.sqrt(2 * log / (horizon * 1000)))
    np.testing.assert_allclose(gamma, eta / 2)
    eta, gamma = block_rates(LEARNERS["ew"], horizon, 1000, False, None, None)
    np.testing.assert_allclose(eta, np.sqrt(8 * log / horizon))
    assert np.isnan(gamma).all()


def test_anytime_rates_are_held_over_blocks_of_256():
    t = 256 * np.arange(1, 5)
    expected = {"exaul": np.sqrt(np.log(50) / (2 * t)), "exp3-ix": np.sqrt(np.log(50) / (t * 50))}
    expected["ew"] = 2 * np.sqrt(np.log(50) / t)
    for name, eta in expected.items():
        np.testing.assert_allclose(block_rates(LEARNERS[name], 1000, 50, True, None, None)[0], eta)


def test_rates_by_hand_override():
    eta, gamma = block_rates(LEARNERS["exaul"], 600, 50, True, 0.3, 0.2)
    assert (eta == 0.3).all()
    assert (gamma == 0.2).all()
    assert np.isnan(block_rates(LEARNERS["ew"], 600, 50, False, 0.3, 0.2)[1]).all()
    assert np.isnan(block_rates(LEARNERS["no-abstention"], 600, 50, False, 0.3, 0.2)[0]).all()
