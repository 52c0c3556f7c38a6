"""Every backend against the dense one: the same decisions, and no copies of the state in compiled loops."""

import re
from functools import lru_cache, partial

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exaul import Sweep
from exaul.engine.registry import backend_of
from exaul.engine.simulation import agreement
from exaul.engine.simulation.prepare_learner import choose_backend
from exaul.kernels.game import BLOCK, GRIDS, Block, Rates, RuleParams, compute_cuts
from exaul.kernels.learners.learner import has_weights, rates_of_horizon
from exaul.kernels.play import advance_copies, initial_states
from exaul.kernels.uniforms import Draws
from tests import games, reference
from tests.games import LEARNERS

FAST = [pair for pair in games.LOOPS if pair[1] != "dense"]
COPIES = 32  # with 3,172 rounds, more than 100,000 decisions
LATER = 20  # rounds by which long double may part from dense after a backend does


@lru_cache(maxsize=2)
def game(kind, rounds, arms, seed=0, streams=COPIES, ratings=False):
    rng = np.random.default_rng(seed)
    scores = np.stack([games.scores_of(kind, rng, rounds) for _ in range(streams)], axis=1)
    errors = rng.random(scores.shape) > scores**0.5
    errors = rng.random(scores.shape) if ratings else errors.astype(float)
    cuts = compute_cuts(GRIDS["uniform"](arms, ()), scores.ravel()).reshape(scores.shape)
    alpha = rng.choice([0.05, 0.2, 0.5], COPIES)
    lam = rng.choice([0.0, 1.0, max(rounds, 1) ** 0.5], COPIES)
    record = np.arange(COPIES, dtype=np.int32) % streams
    return cuts, errors, rng.random((rounds, COPIES)), alpha, lam, record


def rates_of(name, rounds, arms, kind):
    """The rates [K] of a learner: ``constant``, ``by block``, or ``tenfold`` the constant ones."""
    rates = rates_of_horizon(LEARNERS[name], rounds, arms, kind == "by block", None, None)
    return Rates(*(10 * x for x in rates)) if kind == "tenfold" else rates


@lru_cache(maxsize=16)  # dense runs once for all backends that are compared with it
def simulate(name, backend, kind, rounds, arms, rates="constant", precision="float64", until=None, off=0.0, **more):
    """The decisions [T, B] of the first ``until`` rounds of a game, and the losses [B, H] after them.

    ``off`` is a relative error of alpha, lambda and the rates.
    """
    cuts, errors, uniforms, alpha, lam, record = game(kind, rounds, arms, **more)
    first = (x[:until] for x in (cuts, errors, uniforms))
    loop, rule = backend_of(LEARNERS[name], backend, precision), LEARNERS[name].rule
    near = Rates(*(x * (1 + off) for x in rates_of(name, rounds, arms, rates)))
    numbers = near, alpha * (1 + off), lam * (1 + off), record
    state, decisions = games.simulate(rule, loop, arms, 0, *first, *numbers)
    weighs = has_weights(LEARNERS[name])
    return decisions, games.losses_of(rule, loop, arms, state)[:COPIES] if weighs else np.zeros(0)


def play_exactly(name, copy, until, kind, rounds, arms, rates="constant", decisions=None, off=0.0, **more):
    """Play a copy by the reference in long double, or replay decisions [T]; return them and the losses.

    ``off`` is as of ``simulate``.
    """
    cuts, errors, uniforms, alpha, lam, record = game(kind, rounds, arms, **more)
    each_round = (np.repeat(x, BLOCK) for x in rates_of(name, rounds, arms, rates))
    numbers, thresholds = (np.longdouble(x[copy]) * (1 + off) for x in (alpha, lam)), GRIDS["uniform"](arms, ())
    rule, answers = reference.rule_of(name, thresholds, *numbers, *each_round), []
    for t in range(min(until, rounds)):
        answer, decision = rule.decide(thresholds[cuts[t, record[copy]] - 1], uniforms[t, copy])
        answers.append(answer if decisions is None else decisions[t])
        rule.learn(decision, answers[-1], errors[t, record[copy]])
    return np.array(answers), (rule.total - rule.total[0]).astype(np.float64)


def first_of(differs):
    """The first round in which any copy differs; T if none does."""
    return int(np.argmax(np.append(differs.any(axis=1), True)))


def compare_with_dense(name, backend, *case, **more):
    """Assert the decisions of dense, unless long double parts from it as soon as a backend does; then the losses.

    A charge is divided by P or Q, which follow from the losses: so a game can enlarge an error a millionfold. The
    losses may differ by as much as an error of 1e-13 in alpha, lambda and the rates makes them differ.
    """
    (decisions, losses), (dense, expected) = (simulate(name, on, *case, **more) for on in (backend, "dense"))
    parts = first_of(decisions != dense)
    if parts < len(dense):
        assert has_weights(LEARNERS[name]), parts
        until = slice(parts + LATER)
        exact = [play_exactly(name, copy, until.stop, *case, **more)[0] for copy in range(COPIES)]
        assert (np.stack(exact, axis=1) != dense[until]).any(), parts
        (_, losses), (_, expected) = (simulate(name, on, *case, until=parts, **more) for on in (backend, "dense"))
    if not np.allclose(losses, expected, rtol=1e-8, atol=1e-8):
        _, off = simulate(name, "dense", *case, until=parts, off=1e-13, **more)
        assert (np.abs(losses - expected) <= 1e-8 + np.abs(off - expected).max(axis=1, keepdims=True)).all()


QUICK = [  # scores, T, H, streams, rates, ratings: T not a multiple of a block, and less than one
    ("mixed", 3172, 1000, COPIES, "constant", False),
    ("mixed", 512, 2, 1, "by block", True),
    ("ends", 100, 1000, COPIES, "constant", False),
]
LONG = [  # own and shared records, at the rates with which their loops compute weights anew most and least often
    ("mixed", 8192, arms, streams, rates, False)
    for arms in (2, 3, 31, 32, 33, 1000, 1024, 5000)
    for streams, rates in ((COPIES, "by block"), (1, "constant"))
] + [
    ("mixed", 8192, 1000, streams, rates, False)
    for streams, rates in ((COPIES, "constant"), (1, "by block"), (COPIES, "tenfold"), (1, "tenfold"))
]
FIRST = [next(pair for pair in FAST if pair[1] == backend) for backend in games.SLOW]  # of each


@pytest.mark.parametrize(
    ("kind", "rounds", "arms", "streams", "rates", "ratings"),
    [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in LONG)],
)
@pytest.mark.parametrize(
    ("name", "backend"), [*FIRST, *games.pytest_params(pair for pair in FAST if pair not in FIRST)]
)
def test_no_decision_differs_from_dense(name, backend, kind, rounds, arms, streams, rates, ratings):
    """Own and shared records, few and many cuts; where rounding decides, long double parts as soon."""
    compare_with_dense(name, backend, kind, rounds, arms, rates, streams=streams, ratings=ratings)


@pytest.mark.slow
@pytest.mark.parametrize(("streams", "rates"), [(COPIES, "by block"), (1, "constant")])
@pytest.mark.parametrize("name", games.WEIGHTED)
def test_losses_after_300000_rounds_by_replay(name, streams, rates):
    """The reference in long double reaches the losses of compiled loops with their decisions.

    Or it would with other roundings of alpha and lambda: with given decisions, errors grow with the rounds.
    """
    case = "continuous", 300_000, 100, rates
    decisions, losses = simulate(name, "native", *case, streams=streams)
    replay = partial(play_exactly, name, 2, len(decisions), *case, decisions=decisions[:, 2], streams=streams)
    exact, off = (replay(off=x)[1] for x in (0.0, 1e-15))
    assert np.abs(losses[2] - exact).max() <= 1e-8 + np.abs(off - exact).max()


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([pair for pair in FAST if pair[1] == "native"]),
    st.sampled_from(games.SCORES),
    st.sampled_from((1, 100, 356)),  # each is a program of dense
    st.sampled_from((2, 3, 31, 32, 33, 1024)),  # about powers of two
    st.integers(0, 10**6),
    st.booleans(),
    st.sampled_from([1, 3, COPIES]),
)
def test_random_games(pair, kind, rounds, arms, seed, ratings, streams):
    compare_with_dense(*pair, kind, rounds, arms, seed=seed, ratings=ratings, streams=streams)


@pytest.mark.parametrize("name", games.of_each_rule([name for name, on in FAST if on == "rows"]))
def test_no_copy_of_the_state_in_the_compiled_loop(name):
    """The optimised program moves the state at block edges only: no copy of its shape in a loop over rounds.

    ``blocks`` keeps that order by a barrier, which XLA drops on a CPU.
    """
    arms, copies = 1000, 128
    learner = backend_of(LEARNERS[name], "rows", "float64").make(arms)
    nothing = np.zeros((BLOCK, copies))
    block = Block(nothing.astype(np.int32) + 1, nothing, Draws(nothing), np.ones(BLOCK, bool))
    numbers = RuleParams(np.full(copies, 0.1), np.full(copies, 0.05), *3 * [np.ones(copies)])
    state = initial_states(learner, games.first_of(LEARNERS[name].rule, arms, copies))
    advance = partial(advance_copies, learner, same_records=False)
    program = jax.jit(advance, donate_argnums=0).lower(state, block, numbers).compile().as_text()
    computations = {text.split(" ")[0].lstrip("%"): text for text in program.split("\n\n")}
    loops = set(re.findall(r"body=%?([\w.\-]+)", program))
    assert loops
    for loop in loops:
        assert not re.search(r"= f64\[(128,1000|1000,128|128,32,32|32,32,128)\]\S* copy\(", computations[loop])


def test_a_device_leaves_large_rates_to_rows(monkeypatch):
    monkeypatch.setattr(agreement, "device_agrees", lambda *arguments: True)

    def chosen(eta, platform, rounds=1000, name="exaul", precision="float64"):
        monkeypatch.setattr("exaul.engine.machine.platform", lambda: platform)
        rates, sweep = Rates(np.array([eta]), np.array([0.1])), Sweep(precision=precision)
        return choose_backend(name, LEARNERS[name], sweep, games.ENVIRONMENTS["stochastic"], rates, rounds)[0]

    assert chosen(2.0, "cpu") == "native"
    assert chosen(2.0, "gpu") == "rows"
    assert chosen(2.0, "gpu", rounds=100) == "blocks"
    assert chosen(0.2, "gpu", precision="float32") == "rows"
    assert chosen(0.2, "gpu") == "blocks"
    assert chosen(0.2, "gpu", name="aci-rank") == "blocks"
    assert chosen(0.2, "gpu", name="exp3-ix") == "rows"
