"""The functional API: the decisions of a sweep, batched over any number."""

from functools import partial

import chex
import jax
import numpy as np
import pytest

import exaul
from exaul import Sweep, run
from exaul.engine.registry import FROM_LOG, LEARNERS, resolve
from exaul.kernels import play, uniforms
from exaul.kernels.game import BLOCK
from exaul.kernels.metrics import fdr_risk
from tests.games import records_of, save_log

CASES = [(name, 70, False) for name in LEARNERS if name not in ("best-fixed", FROM_LOG)]
# one of each rule with weights, which are in rows of 32
CASES += [(x, *size) for x in ("exaul", "exp3-ix") for size in ((2, False), (32, True))]
T, ARMS, ALPHA = 700, 70, 0.2


def game(name="exaul", **more):
    """A learner and its numbers, and the cuts and errors of a log."""
    log, fields = records_of(T), {"alpha": ALPHA, "horizon": T} | more
    return *exaul.make(name, ARMS, **fields), exaul.cuts(exaul.grid("uniform", ARMS), log.scores), log.errors


def drawn(trials):
    """The uniforms [trials, T] that a sweep draws."""
    keys, t = uniforms.draw_keys(0, np.arange(trials), is_imperfect=False), np.arange(T, dtype=np.uint32)[:, None]
    return uniforms.uniform(keys.decision, t // BLOCK, t % BLOCK).T


@pytest.mark.parametrize(("name", "arms", "anytime"), CASES)
def test_a_game_is_that_of_a_sweep(name, arms, anytime):
    """With the rates for a known horizon, and for an unknown one; the last block is not full."""
    log = records_of(T)
    learner, params = exaul.make(name, arms, alpha=ALPHA, horizon=T, anytime=anytime)
    if name in ("exaul", "exaul-known", "ew", "exp3-ix"):
        assert np.shape(params.eta) == ((3,) if anytime else ())
        assert not anytime or np.ptp(params.eta) > 0
    cuts, errors = exaul.cuts(exaul.grid("uniform", arms), log.scores), log.errors
    games = jax.jit(jax.vmap(partial(exaul.play, learner), in_axes=(None, None, None, 0)))
    answers = np.asarray(games(params, cuts, errors, drawn(4)))
    numbers = {"alphas": (ALPHA,), "arms": arms, "trials": 4, "checkpoints": T}
    sweep = Sweep(environment="replay", learners=(name,), anytime=anytime, **numbers)
    result = run(sweep, [log])
    np.testing.assert_array_equal(answers.sum(axis=1), result.trials["answered"])
    curves, t = result.curves, np.arange(1, T + 1)
    np.testing.assert_allclose(curves["inefficiency_mean"] * t, np.cumsum(~answers, axis=1).mean(axis=0))
    regrets = np.asarray(jax.vmap(lambda x: exaul.regret(learner, params, cuts, errors, x))(answers))
    np.testing.assert_allclose(regrets[:, -1], result.trials["regret"], atol=1e-9)
    np.testing.assert_allclose(regrets.mean(axis=0) / t, curves["regret_per_round_mean"], atol=1e-9)


def test_nothing_underflows_at_any_rate():
    """Linear weights would be 0 after a few rounds; the reference is the formula in long double."""
    learner, params, cuts, errors = game("ew", eta=50.0)
    losses, state = np.zeros(ARMS, np.longdouble), learner.init(params)
    answer_cost, abstain_cost = play.loss_costs(params)
    decide, learn = jax.jit(learner.decide), jax.jit(learner.learn)
    for t in range(100):
        state, decision = decide(state, params, cuts[t], 0.5)
        w = np.exp(50 * (losses.min() - losses))
        np.testing.assert_allclose(float(decision.P), float(w[: cuts[t]].sum() / w.sum()), atol=1e-12)
        state = learn(state, params, cuts[t], decision, errors[t])
        losses += np.where(np.arange(ARMS) < cuts[t], answer_cost * errors[t], abstain_cost)


def test_a_learner_that_starts_from_a_log_is_that_of_a_sweep(tmp_path):
    past, log = records_of(900, seed=1), records_of(T)
    grid = exaul.grid("log", 514, past.scores)
    learner, params = exaul.make("aci-rank", alpha=ALPHA, grid=grid, log=past)
    assert params.state.share not in (0.0, 0.3)
    answers = exaul.play(learner, params, exaul.cuts(grid, log.scores), log.errors, drawn(1)[0])
    numbers = {"alphas": (ALPHA,), "trials": 1, "warm_start": save_log(past, tmp_path / "log.csv")}
    result = run(Sweep(environment="replay", learners=("aci-rank",), **numbers), [log])
    assert int(np.asarray(answers).sum()) == result.trials["answered"].item()


@pytest.mark.parametrize("has_log", [False, True])
def test_the_risk_is_at_most_its_bound_after_each_round(tmp_path, has_log):
    """On random records, where it is the bound of a sweep, and if all answers are wrong."""
    past, log = records_of(900, seed=1), records_of(T)
    grid = exaul.grid("log", 514, past.scores) if has_log else exaul.grid("uniform", ARMS)
    learner, params = exaul.make("aci-rank", alpha=ALPHA, grid=grid, log=past if has_log else None)
    errors, cuts = np.stack([log.errors, np.ones(T)]), exaul.cuts(grid, log.scores)
    play = jax.vmap(partial(exaul.play, learner, params), in_axes=(None, 0, None))
    answers = np.asarray(play(cuts, errors, drawn(1)[0]))
    answered, t = answers.cumsum(axis=1), np.arange(T) + 1
    risk = fdr_risk(answered, (answers * errors).cumsum(axis=1), ALPHA)
    bounds = exaul.risk_bound(learner, params, t, answered)
    assert (risk <= bounds).all()
    assert risk[1].max() > 0.8 * bounds[1, 0]  # if all is wrong, the bound is almost reached
    start = {"warm_start": save_log(past, tmp_path / "log.csv")} if has_log else {"arms": ARMS}
    sweep = Sweep(environment="replay", learners=("aci-rank",), alphas=(ALPHA,), trials=1, **start)
    assert bounds[0, -1] == pytest.approx(run(sweep, [log]).trials["risk_bound"].item(), abs=1e-9)


def test_the_bound_of_the_risk_is_that_of_the_definition():
    """It is NaN if there is none; it gets eta of each of three blocks, and a state only of a rule with one."""
    mine = resolve("learner", "exaul")._replace(
        risk_bound=lambda eta, t, answered, alpha, state: len(eta) + t - answered
    )
    cases = {"exaul": [np.nan, np.nan], "always-abstain": [0, 0], mine: [4, 603]}
    t = np.array([1, 600], np.uint16)  # -t would be positive
    for definition, bounds in cases.items():
        np.testing.assert_array_equal(exaul.risk_bound(*game(definition)[:2], t, 0), bounds)


def test_one_program_for_all_numbers():
    chex.clear_trace_counter()
    play = jax.jit(chex.assert_max_traces(lambda *arguments: exaul.play(*arguments), n=1), static_argnums=0)
    for alpha in (0.1, 0.2, 0.3):
        play(*game(alpha=alpha), drawn(1)[0])
    grid, scores = exaul.grid("logit", ARMS), records_of(T).scores
    np.testing.assert_array_equal(jax.jit(exaul.cuts)(grid, scores), exaul.cuts(grid, scores))  # traced, too
