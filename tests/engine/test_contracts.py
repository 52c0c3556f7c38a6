"""The contracts that every learner, environment and backend keeps, over the registries."""

import jax
import numpy as np
import pytest

from exaul import Sweep, run
from exaul.engine.logs.log import Records
from exaul.engine.registry import backend_of
from exaul.engine.simulation import chunks
from exaul.kernels import records
from exaul.kernels.game import BLOCK, GRIDS, compute_cuts
from exaul.kernels.learners.aci_rank import AciRankState
from exaul.kernels.learners.learner import rates_of_horizon
from tests import games, reference
from tests.games import ADAPTIVE, ADAPTIVE_CASES, ADAPTIVE_LEARNERS, ENVIRONMENT_CASES, LEARNERS, LEARNING
from tests.kernels.test_learners import FIXED

SMALL = {"horizon": 1100, "arms": 20, "checkpoints": 7}  # more than a span: shorter chunks are two
MORE = [backend for backend in games.BACKENDS if backend not in ("native", "dense")]
TELLING = next(name for name, x in ADAPTIVE.items() if x.sees_distribution)  # asks by all of a learner


def sweep(**settings):
    return run(Sweep(**({"trials": 3} | SMALL | settings)))


RANKED = LEARNERS["aci-rank"]
PEEKING = RANKED._replace(  # ``aci-rank``, but it reads the error of each round
    rule=RANKED.rule._replace(
        learn=lambda where, state, answered, error, params: AciRankState(0.5 + 0.4 * error, state[1], state[2])
    )
)


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *games.pytest_params(x for x in games.LOOPS if LEARNERS[x[0]].feedback == "bandit" and x[0] != "aci-rank"),
        *(("peeking", backend) for name, backend in games.LOOPS if name == "aci-rank"),
    ],
)
def test_information_barrier(name, backend):
    """Errors of rounds that were not answered change nothing, to the bit, even if a rule reads them."""
    learner = PEEKING if name == "peeking" else LEARNERS[name]
    rng = np.random.default_rng(0)
    rounds, copies, arms = 1_280, 3, 1000  # as in ``test_backends.py``
    scores = rng.random((rounds, copies))
    errors, uniforms = rng.random((rounds, copies)), rng.random((rounds, copies))
    cuts = compute_cuts(GRIDS["uniform"](arms, ()), scores.ravel()).reshape(scores.shape)
    numbers = rates_of_horizon(learner, rounds, arms, True, None, None), np.full(copies, 0.2), np.full(copies, 20.0)

    def simulated(errors):
        loop = backend_of(learner, backend, "float64")
        return games.simulate(learner.rule, loop, arms, 12, cuts, errors, uniforms, *numbers)

    state, decisions = simulated(errors)
    assert not decisions.all()
    flipped = simulated(np.where(decisions, errors, 1 - errors))
    jax.tree.map(np.testing.assert_array_equal, (state, decisions), flipped)


def check_bounds(result):
    """Lemma 1, and the bound of the FDR that follows from it."""
    assert result.lemma_holds
    assert result.trials["regret_bound"].notna().any()
    bounded = result.trials.dropna(subset="fdr_bound")
    assert (bounded["fdr"] <= bounded["fdr_bound"]).all()


def learners_of(case, backend, is_full):
    """Choose learners: all of a backend, or one; in an adaptive environment one of each type of rule, or one."""
    learners = [name for name, on in games.LOOPS if on == backend]
    if case in ADAPTIVE_CASES:
        learners = games.of_each_rule([name for name in learners if name in ADAPTIVE_LEARNERS])
        return learners if is_full else LEARNING[:1]
    return learners if is_full else learners[:1]


@pytest.mark.parametrize(
    ("case", "backend", "trials", "is_full"),
    [
        (name, "native", 3 if name in ADAPTIVE_CASES else 1, name not in ADAPTIVE_CASES)
        for name in ENVIRONMENT_CASES
        if name not in ("adversary-history-knowing", "interactive-stubborn")  # which take no other branch
    ]
    + [("stochastic", backend, 3, False) for backend in ("dense", *MORE) if backend not in games.SLOW]
    + [pytest.param("stochastic", backend, 3, True, marks=[pytest.mark.slow]) for backend in ("dense", *MORE)]
    + [pytest.param(TELLING, "native", 3, True, marks=[pytest.mark.slow])],
)
def test_a_trial_does_not_depend_on_the_rest_of_the_sweep(case, backend, trials, is_full, monkeypatch):
    """The same bits alone, among other cells, in more copies, in shorter chunks, at more checkpoints.

    In all of these Lemma 1 holds.
    """
    flag = None if case in ADAPTIVE_CASES else backend  # which may not simulate adaptive environments
    settings = ENVIRONMENT_CASES[case] | {"backend": flag, "learners": learners_of(case, backend, is_full)}
    alone = sweep(**settings, alphas=[0.1], trials=trials)
    monkeypatch.setattr(chunks, "CHUNK", BLOCK * 70)
    lam = SMALL["horizon"] ** 0.5
    crowd = sweep(**settings, alphas=[0.5, 0.1], lambdas=[lam, 3.0, 0.0], trials=40, checkpoints=100)
    check_bounds(crowd)
    table = crowd.trials.query("alpha == 0.1 and `lambda` == @lam and trial < @trials")
    assert alone.trials.equals(table.reset_index(drop=True))


def test_ratings_too_do_not_depend_on_chunks_and_checkpoints(monkeypatch):
    """Sums of real-valued errors run in one order."""
    records = Records("log", *np.random.default_rng(0).random((2, 900)), 0, None)
    first = run(Sweep(**SMALL | {"checkpoints": 1}, trials=3), [records])
    monkeypatch.setattr(chunks, "CHUNK", 1)
    second = run(Sweep(**SMALL | {"checkpoints": SMALL["horizon"]}, trials=3), [records])
    assert first.trials.equals(second.trials)


def test_memory_does_not_grow_with_the_horizon():
    """A chunk has one bounded size, and what a stream remembers is how many records each pool gave."""
    pools = [records.Pool(np.ones(50, np.int32), np.zeros(50))]
    sizes = []
    for horizon in (10**5, 10**6):
        stream = games.stream_of(pools, horizon, 100)
        stream_chunks = chunks.make_chunks(np.array([horizon]), len(stream.trials))
        for _ in range(3):
            chunk = next(stream_chunks)
            held = stream.make(chunk)
        sizes.append(sum(x.nbytes for x in (*chunk, held.cuts, held.errors, stream.records_read)))
        assert stream.records_read.shape == (1, 100)
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize(
    ("environment", "backend"),
    games.pytest_params([*(("stochastic", x) for x in ("dense", "rows", "blocks")), ("adversary-history", "rows")]),
)
def test_one_trace_per_learner_whatever_the_grid_holds(environment, backend, monkeypatch):
    """Alphas, lambdas, rates, seeds and chunks share the program of a learner and an environment."""
    learners = games.of_each_rule([name for name, on in games.LOOPS if on == backend and name not in FIXED])
    games.limit_traces(monkeypatch, len(learners))
    monkeypatch.setattr(chunks, "CHUNK", 2**11)
    fields = {"environment": environment, "learners": learners, "backend": backend}
    sweep(alphas=[0.1, 0.2], seed=1, **fields)
    sweep(alphas=[0.3, 0.05], lambdas=[0.0], eta=0.3, gamma=0.5, anytime=True, **fields)


@pytest.mark.parametrize("grid", GRIDS)
def test_lemma_1_holds_on_every_grid_and_for_every_learner(grid):
    """``test_rate_cells.py`` has adaptive environments."""
    check_bounds(sweep(environment="gradual-shift", grid=grid, alphas=[0.02, 0.5], lambdas=[0.0, 0.5, 40.0]))


def test_figures_of_a_trial_are_the_references(tmp_path):
    """From a log through the command's own engine to trials.csv, against plain NumPy over the same rounds."""
    rng = np.random.default_rng(3)
    scores, errors = rng.integers(0, 11, 300) / 10, rng.integers(0, 3, 300) / 2
    log = games.save_log(Records("log", scores, errors, 0, None), tmp_path / "log.csv")
    result = sweep(environment="replay", horizon=None, logs=[log], arms=11, alphas=[0.4], lambdas=[8.0])
    grid = GRIDS["uniform"](11, ())
    for name in ("no-abstention", "always-abstain", "best-fixed"):
        best = int(np.argmin(reference.fixed_losses(grid, scores, errors, 0.4, 8.0)))
        arm = {"no-abstention": 0, "always-abstain": 10, "best-fixed": best}[name]
        decisions = [not reference.abstains(grid, f)[arm] for f in scores]
        expected = reference.metrics(decisions, grid, scores, errors, 0.4, 8.0)
        for _, row in result.trials[result.trials["learner"] == name].iterrows():
            for figure, value in (expected if row["answered"] else expected | {"fdr": np.nan}).items():
                assert row[figure] == pytest.approx(value, abs=1e-9, nan_ok=True), figure
            assert row["best_threshold"] == grid[best]
