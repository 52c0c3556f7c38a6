"""The backend of NVIDIA devices, without one: its loops against dense ones, launches in Numba's simulator."""

import os
import subprocess
import sys
from pathlib import Path

import numba as nb
import numpy as np
import pytest

from exaul.kernels import orders, uniforms
from exaul.kernels.backends.cuda import backend, loops, records
from exaul.kernels.game import ROUNDS, Copies, compute_costs
from exaul.kernels.rates import block_rates
from exaul.kernels.records import StreamPlan, Streams
from tests import one_copy
from tests.games import LEARNERS
from tests.kernels import test_backends

KINDS = {
    name: made.kind for name, learner in LEARNERS.items() if (made := backend.make(learner, "float64")) is not None
}


def word(x):
    return np.uint32(int(x) & 0xFFFFFFFF)


TEAMS = [name for name, kind in KINDS.items() if kind.teams]


def inputs(name, scores, rounds, arms, anytime=False, copies=test_backends.COPIES, **more):
    """The game, the schedule and the copies of a game of ``test_backends``."""
    cuts, errors, draws, alpha, lam, record = test_backends.game(scores, rounds, arms, **more)
    count = -(-rounds // ROUNDS)
    pad = [(0, count * ROUNDS - rounds), (0, 0)]
    given = records.GivenRecords(
        np.pad(cuts, pad, constant_values=1).astype(np.int32), np.pad(errors, pad), np.pad(draws, pad)
    )
    block = np.arange(count, dtype=np.uint32)
    rates = block_rates(LEARNERS[name], rounds, arms, anytime, None, None)
    eta, gamma = (np.nan_to_num(x)[np.minimum(block, len(x) - 1)] for x in rates)
    left = np.minimum(ROUNDS, rounds - np.arange(count) * ROUNDS).astype(np.int32)
    schedule = loops.KernelSchedule(block, left, np.zeros((count, 0), np.int32), eta, gamma)
    numbers = alpha, *compute_costs(alpha, lam), record, np.arange(len(alpha), dtype=np.int32)
    return given, schedule, Copies(*(x[:copies] for x in numbers))


CASES = [  # scores, rounds, arms, anytime, more
    ("continuous", 1500, 1000, False, {}),
    ("levels", 1500, 1000, True, {"streams": 1}),
    ("ends", 100, 1000, False, {}),
    ("one level", 700, 90, True, {}),
    ("shift", 600, 3, True, {"ratings": True}),
    ("continuous", 600, 2, True, {"ratings": True}),
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "name",  # ew uses the same groups as exaul, and compiles for half a minute
    [pytest.param(x, marks=pytest.mark.slow if x == "ew" else []) for x in KINDS],
)
def test_no_decision_of_the_compiled_loop_differs_from_dense(name, case):
    scores, rounds, arms, anytime, more = case
    anytime = anytime and LEARNERS[name].anytime is not None
    dense = test_backends.simulate(name, "dense", scores, rounds, arms, "float64", anytime, **more)
    game, schedule, copies = inputs(name, scores, rounds, arms, anytime, **more)
    state, sums, outcome = one_copy.fresh(KINDS[name], len(copies.alpha), arms, len(schedule.block))
    one_copy.simulate(
        KINDS[name], records.read_given_records, True, state, arms, game, schedule, copies, sums, outcome
    )
    assert (outcome.answered[:rounds] != dense[0]).sum() == 0
    np.testing.assert_allclose(outcome.probability[:rounds], dense[1], atol=1e-8)
    if KINDS[name].middles:
        np.testing.assert_allclose(outcome.middle[:rounds], dense[2], atol=1e-9)
    np.testing.assert_array_equal(sums.answered, dense[0].sum(axis=0))


@pytest.mark.parametrize("name", ["exaul", "exp3-ix", pytest.param("ew", marks=pytest.mark.slow)])
def test_weights_in_single_precision(name):
    """Each copy decides as the dense one does until a uniform falls between the two probabilities."""
    rounds, arms = 600, 200
    dense = test_backends.simulate(name, "dense", "continuous", rounds, arms, "float64", False)
    game, schedule, copies = inputs(name, "continuous", rounds, arms)
    state, sums, outcome = one_copy.fresh(KINDS[name], len(copies.alpha), arms, len(schedule.block))
    more = game, schedule, copies, sums, outcome
    one_copy.simulate(KINDS[name], records.read_given_records, True, state, arms, *more, precision="float32")
    differ = outcome.answered[:rounds] != dense[0]
    until = np.where(differ.any(axis=0), differ.argmax(axis=0), rounds)
    same = np.arange(rounds)[:, None] <= until
    error = np.abs(outcome.probability[:rounds] - dense[1])[same]
    assert 1e-9 < error.max() < 1e-4
    assert until.min() > 0
    assert np.mean(until == rounds) > 0.9


@pytest.mark.parametrize("name", TEAMS)
@pytest.mark.parametrize("lanes", [1, 4])
def test_no_decision_of_several_lanes_differs_from_dense(name, lanes):
    """The same source in Python, where the lanes of a copy are threads: 4 do not divide its groups."""
    rounds, arms, few = 300, 90, 2
    dense = test_backends.simulate(name, "dense", "continuous", rounds, arms, "float64", False)
    game, schedule, copies = inputs(name, "continuous", rounds, arms, copies=few)
    state, sums, outcome = one_copy.fresh(KINDS[name], few, arms, len(schedule.block))
    one_copy.simulate_in_lanes(
        lanes, KINDS[name], records.read_given_records, True, state, arms, game, schedule, copies, sums, outcome
    )
    assert (outcome.answered[:rounds] != dense[0][:, :few]).sum() == 0
    np.testing.assert_allclose(outcome.probability[:rounds], dense[1][:, :few], atol=1e-8)


def alternating(where, t, horizon, u):
    """The second pool from a third of the horizon on, or in one of five rounds."""
    return where((3 * t > horizon) | (u < 0.2), 1, 0)


SIZES = 7, 300


def streams(rng, columns, arms, horizon):
    """Streams of records of two pools, a small one and one of several laps."""
    keys = rng.integers(0, 2**32, (2, len(SIZES), columns), np.uint32)
    shapes = tuple(orders.shape(size) for size in SIZES)
    cuts, errors = rng.integers(1, arms, sum(SIZES)).astype(np.int32), rng.random(sum(SIZES))
    draws = tuple(rng.integers(0, 2**32, (2, columns), np.uint32))
    return Streams(StreamPlan(alternating, shapes, True), cuts, errors, np.array(horizon), draws, tuple(keys))


def expected(source, column, rounds):
    """Cuts and errors of the first rounds of a stream, and the number of records that each pool gave."""
    order = orders.compile_for(lambda x: x, lambda c, x, y: x if c else y, word).order
    place, taken = np.arange(rounds, dtype=np.uint32), [0, 0]
    u = uniforms.uniform(tuple(x[column : column + 1] for x in source.draws), place // ROUNDS, place % ROUNDS)
    found = []
    with np.errstate(over="ignore"):
        for i in range(rounds):
            p = alternating(lambda c, x, y: x if c else y, i + 1, source.horizon, u[i])
            lap, at = divmod(taken[p], SIZES[p])
            key = tuple(x[p, column] for x in source.orders)
            found.append(sum(SIZES[:p]) + int(order(key, np.uint32(lap), source.plan.shapes[p], np.uint32(at))))
            taken[p] += 1
    return source.cuts[found], source.errors[found], taken


def source_of(target):
    """Records of two shuffled pools, made inside."""
    return records.generate_records(target, alternating, len(SIZES), True)


@pytest.mark.parametrize("lanes", [0, 1, 4])
def test_records_and_uniforms_are_made_as_their_functions_say(lanes):
    """Compiled for the CPU (0), and by lanes in Python; the second block continues from the counts of the first."""
    rng, rounds, column = np.random.default_rng(0), 2 * ROUNDS - 30, 1
    source = streams(rng, 3, 50, rounds)
    draws = tuple(rng.integers(0, 2**32, (2, 4), np.uint32))
    game = records.record_generator(source, draws)
    first = one_copy.workspace_of(loops.WorkspaceSizes(), 1, len(SIZES), "float64")
    second = first._replace(cuts=np.zeros(ROUNDS, np.int32), errors=np.zeros(ROUNDS))

    def make_records(begin, fill, draw, end, game, first, second):
        begin(game, column, first.counters)
        fill(game, column, 0, np.uint32(0), ROUNDS, first)
        fill(game, column, 1, np.uint32(1), rounds - ROUNDS, second)
        draw(game, 2, 1, np.uint32(1), 32, 48, first.uniforms)
        end(game, column, first.counters)

    if lanes:
        team = one_copy.Lanes(lanes)
        functions = source_of(team.target())
        own = [np.zeros_like(first.counters) for _ in range(lanes)]  # of each lane

        def make_in_lane():
            counters = own[team.own.lane]
            make_records(*functions, game, *(x._replace(counters=counters) for x in (first, second)))

        team.run(make_in_lane)
    else:
        begin, fill, draw, end = source_of(one_copy.on_cpu())

        @nb.njit
        def compiled(game, first, second):
            begin(game, column, first.counters)
            fill(game, column, 0, np.uint32(0), ROUNDS, first)
            fill(game, column, 1, np.uint32(1), rounds - ROUNDS, second)
            draw(game, 2, 1, np.uint32(1), 32, 48, first.uniforms)
            end(game, column, first.counters)

        compiled(game, first, second)
    right = expected(source, column, rounds)
    for n, made in enumerate(right[:2]):  # cuts, then errors
        both = np.concatenate([(x.cuts, x.errors)[n] for x in (first, second)])
        np.testing.assert_array_equal(both[:rounds], made)
    assert game.records_read_after[:, column].tolist() == right[2]
    number = np.arange(32, 48, dtype=np.uint32)
    np.testing.assert_array_equal(
        first.uniforms, uniforms.uniform(tuple(x[2:3] for x in draws), number * 0 + 1, number)
    )


SIMULATED = Path(__file__).with_name("simulated.py")


def test_launches_in_the_simulator():
    """Layouts, indices, checkpoints, saves and several devices: what numba-cuda does of itself is not simulated."""
    pytest.importorskip("numba.cuda.simulator", reason="this Numba has no simulator of CUDA")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.kernels.simulated"],
        cwd=SIMULATED.parents[2],
        env=os.environ | {"NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        "filled",
        "made",
        "saved",
        "divided",
        "frugal",
        "split",
        "given",
        "swept",
        "full",
    ]
