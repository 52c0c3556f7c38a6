"""The game, the generator and the bounds."""

import jax
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exaul.kernels import bounds, metrics, native, uniforms
from exaul.kernels.game import GRIDS, compute_costs, compute_cuts
from tests import reference
from tests.games import LEARNERS


@pytest.mark.parametrize("name", GRIDS)
def test_grids_are_sorted_and_end_at_0_and_1(name):
    """Those of scores are uniform in score, in one division, or in its logit."""
    for arms in (2, 3, 10, 1000):
        grid = GRIDS[name](arms, np.array([0.1, 0.4, 0.4, 1.0]))
        assert len(grid) == arms
        assert (grid[0], grid[-1]) == (0, 1)
        assert (np.diff(grid) >= 0).all()
    if name == "uniform":
        assert (grid == np.array([k / 999 for k in range(1000)])).all()
    if name == "logit":
        np.testing.assert_allclose(np.log(grid[1:-1] / (1 - grid[1:-1])), np.linspace(-7, 14, 998), atol=1e-9)


@given(st.floats(0, 1), st.integers(2, 50))
@example(1.0, 11)  # the last arm abstains
@example(0.1, 11)
@example(np.nextafter(0.1, 0), 11)
def test_cut_counts_the_arms_that_answer(score, arms):
    grid = GRIDS["uniform"](arms, ())
    assert compute_cuts(grid, [score])[0] == (~reference.abstains(grid, score)).sum()


@given(st.floats(0.001, 0.999), st.floats(0, 1e6), st.floats(0, 1))
def test_costs_are_the_loss(alpha, lam, error):
    answer, abstain = compute_costs(alpha, lam)
    loss = reference.compute_loss(np.array([False, True]), error, alpha, lam)
    np.testing.assert_allclose([answer * error, abstain], loss, atol=1e-12)


def test_threefry_matches_published_vectors():
    """Known answers of the authors' own test suite for Threefry-2x32-20."""
    vectors = [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ]
    for key, counter, expected in vectors:
        words = [np.array([x], np.uint32) for x in (*key, *counter)]
        drawn = uniforms.threefry((words[0], words[1]), (words[2], words[3]))
        assert tuple(int(x[0]) for x in drawn) == expected


def test_numpy_jax_and_numba_draw_the_same_uniforms():
    keys = uniforms.trial_keys(2**40 + 3, uniforms.LEARNER_STREAM, np.arange(5))
    rounds = np.arange(256, dtype=np.uint32)[:, None]
    host = uniforms.uniform((keys[0][None], keys[1][None]), np.uint32(7), rounds)
    device = jax.jit(uniforms.uniform)((keys[0][None], keys[1][None]), np.uint32(7), rounds)
    compiled = native.draw_uniforms(keys, np.array([3, 7], np.uint32))[:, 256:512].T
    assert host.dtype == np.float64
    assert (host == compiled).all()
    assert (host == np.asarray(device)).all()
    assert ((host >= 0) & (host < 1)).all()


def test_uniforms_are_uniform_and_streams_and_seeds_differ():
    """Kolmogorov-Smirnov by the Dvoretzky-Kiefer-Wolfowitz inequality: fails by chance below 1e-9."""
    rounds = np.arange(256, dtype=np.uint32)[:, None]
    sources = (0, 0), (0, 1), (1, 0), (2**32, 0)  # seeds and streams
    keys = (uniforms.trial_keys(*source, np.arange(400)) for source in sources)
    u = np.stack([uniforms.uniform((x[None], y[None]), np.uint32(0), rounds) for x, y in keys])
    assert (u[:, None] != u)[~np.eye(4, dtype=bool)].all()
    u = np.sort(u[0].ravel())
    gap = np.abs(u - np.arange(len(u)) / len(u)).max()
    assert gap < np.sqrt(np.log(2 / 1e-9) / (2 * len(u))) + 1 / len(u)


def test_bounds_at_the_edges():
    """Nothing is proved where a rate grows, nor by the paper if eta exceeds twice gamma; an FDR needs answers."""
    _, abstaining, paper = LEARNERS["exaul"].regret_bounds
    assert np.isnan(paper([0.1], [0.04], [10], 5, 0.05, 0.1, 1.0))
    assert np.isfinite(paper([0.1], [0.05], [10], 5, 0.05, 0.1, 1.0))
    assert np.isnan(abstaining([0.1], [0.0], [10], 5, 0.05, 0.1, 1.0))
    for grows in (([0.1, 0.11], [0.5, 0.5]), ([0.1, 0.1], [0.5, 0.51])):
        assert np.isnan(abstaining(*grows, [5, 5], 5, 1.0, 0.1, 1.0))
    assert bounds.lemma_bound(5, 1.0, 0.0) == bounds.lemma_bound(5, -9.0, 0.0) == np.inf
    assert bounds.lemma_bound(5, 9.0, 1e308) == 9
    assert bounds.fdr_bound(0, 10.0, 0.1, 2.0) == bounds.fdr_bound(5, 10.0, 0.1, 0.0) == np.inf
    assert np.isnan(bounds.fdr_bound([0, 5], np.nan, 0.1, 2.0)).all()
    assert bounds.fdr_bound(50, 10.0, 0.1, 2.0) == pytest.approx(0.1 + (50 + 3 * 10) / (2 * 50))


rounds_of = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.booleans()), min_size=1, max_size=40)


@given(rounds_of, st.floats(0.01, 0.99), st.sampled_from([0.0, 0.1, 1.0, 30.0, 1e4]), st.integers(2, 12))
def test_lemma_1_holds_for_any_decisions(rounds, alpha, lam, arms):
    """``lam R <= T (1 - Ineff) + (1 + lam) Reg``, pathwise; and the accounting equals the reference's."""
    scores, errors, decisions = zip(*rounds, strict=True)
    grid = GRIDS["uniform"](arms, ())
    expected = reference.metrics(decisions, grid, scores, errors, alpha, lam)
    count, by_cut = np.zeros((2, 1, arms))
    answer, abstain = compute_costs(np.array([alpha]), np.array([lam]))
    horizon = np.array([len(errors)])
    records = compute_cuts(grid, scores)[None], np.array([errors])
    costs = answer[:, None], abstain[:, None]
    (best_loss,), (best,) = native.find_best_arms(*records, horizon, *horizon, costs, count, by_cut)
    answered, wrong = int(sum(decisions)), float(np.array(errors)[np.array(decisions)].sum())
    loss = metrics.loss(answered, wrong, len(scores), answer[0], abstain[0])
    risk = metrics.fdr_risk(answered, wrong, alpha)
    found = best_loss[0, 0], loss.item(), risk, metrics.fdr(answered, wrong, alpha)
    assert found == pytest.approx([expected[x] for x in ("best_loss", "loss", "fdr_risk", "fdr")], abs=1e-9)
    losses = reference.fixed_losses(grid, scores, errors, alpha, lam)
    assert best[0, 0] == np.flatnonzero(losses <= losses.min() + 1e-9)[0]  # the lowest if tied
    assert lam * risk <= answered + (1 + lam) * (loss - best_loss[0, 0]) + 1e-9 * (1 + lam) * len(scores)
