"""Rounds per second of every backend of every learner, of plain NumPy, a compiled loop and other packages.

The timed call does what a sweep does: make records and uniforms of a chunk, simulate the copies, collect the
totals; against ``adversary-history``, a whole game. Cases take turns; after compilation each is timed five times,
and the median is reported. With ``--quick`` a case is not repeated after 1.5 s in all. Scores are uniform, so few
cuts of a block are equal, which is the worst case for backends that compress; rates are those of T = 30,000.
"""

import math
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from statistics import median
from time import perf_counter

import jax
import numpy as np

from benchmarks import peers
from benchmarks.peers import ALPHA, HORIZON, PeerCase, PeerRun
from benchmarks.results import Row
from exaul.engine import registry
from exaul.engine.logs.log import Records
from exaul.engine.registry import BACKENDS, FROM_LOG, LEARNERS
from exaul.engine.simulation.batch import Rollout, simulate_rollouts
from exaul.engine.simulation.learners import backend_of, supporting_backends
from exaul.engine.simulation.prepare import Prepared, prepare
from exaul.engine.simulation.schedule import Chunk, Schedule, blocks_per_chunk, rates_of_blocks
from exaul.engine.sweep import Sweep
from exaul.kernels.game import ROUNDS, uniform_grid
from exaul.kernels.learners.learner import Fixed

ORDERS = {"shared": "replay", "own": "stochastic", "adaptive": "adversary-history"}  # environments
COPIES, ARMS, GAME = 1024, 1000, 1024  # copies and arms of a case, rounds of a game
REPETITIONS = 5
FULL, QUICK = (0.25, math.inf), (0.1, 1.5)  # arguments of ``measure``: seconds per repetition, and per case


def learners() -> list[str]:
    """Return the learners that learn, each rule once."""
    rules = {name: registry.load_object(reference).rule for name, reference in LEARNERS.items() if name != FROM_LOG}
    return [name for name, rule in rules.items() if not isinstance(rule, Fixed)]


def backends(name: str, order: str) -> list[str]:
    """Return the backends that support a learner's rule in an order, in that of their table."""
    learner, by_rounds = registry.load_object(LEARNERS[name]), supporting_backends(by_rounds=True)
    known = [backend for backend in BACKENDS if backend_of(learner, backend, "float64") is not None]
    return [backend for backend in known if order != "adaptive" or backend in by_rounds]


def groups(quick: bool) -> list[list[PeerCase]]:
    """Return groups of cases; the cases of a group take turns. Quick: the first backend beside ``dense``."""
    cases = [
        [PeerCase(name, x, order, COPIES, ARMS) for x in backends(name, order)]
        for order, name in product(ORDERS, learners())
    ]
    if quick:
        return [[case for group in cases for case in (group[0], group[-1]) if case.order != "adaptive"]]
    alone = [
        *((name, "numpy") for name in learners()),
        ("exaul", "numba-dense"),
        ("exp3", "pymab"),
        ("exp3", "river"),
    ]
    return [[PeerCase(*pair, "shared", 1, ARMS) for pair in alone], *cases]


def prepared(case: PeerCase, horizon: int, checkpoints: int) -> Prepared:
    """Prepare a sweep of a case over random records; answers with small cuts are wrong more often."""
    rng = np.random.default_rng(0)
    cuts = rng.integers(1, case.arms, horizon, np.int32)
    errors = (rng.random(horizon) * case.arms > cuts).astype(np.float64)
    sweep = Sweep(
        environment=ORDERS[case.order],
        learners=(case.learner,),
        backend=case.backend,
        alphas=(ALPHA,),
        lambdas=(math.sqrt(horizon),),
        horizon=horizon,
        trials=case.copies,
        arms=case.arms,
        checkpoints=(checkpoints,),
    )
    if case.order == "adaptive":
        return prepare(sweep)
    scores = uniform_grid(case.arms, ())[cuts - 1]  # the smallest scores with these cuts
    return prepare(sweep, (Records("random", scores, errors, 0, None),))


def swept(case: PeerCase) -> PeerRun:
    """Return a backend driven as a sweep drives it: records, uniforms and rounds, with checkpoints every 128."""
    ready = prepared(case, HORIZON, 1)
    (learner,), stream = ready.learners, ready.trial_records()
    simulation, blocks = Rollout(ready, learner, stream).simulation, blocks_per_chunk(case.copies)
    checkpoint_rounds = np.tile(np.array([ROUNDS // 2, ROUNDS], np.int32), (blocks, 1))
    schedule = Schedule(np.arange(blocks, dtype=np.uint32), np.ones((blocks, ROUNDS), bool), checkpoint_rounds)
    rates = rates_of_blocks(learner.rates, schedule.block)

    def call() -> None:
        simulation.start(Chunk(schedule, stream), rates)
        simulation.collect()

    return PeerRun(schedule.rounds, call)


def game(case: PeerCase) -> PeerRun:
    """Return a game against an adaptive environment."""
    ready = prepared(case, GAME, 1)
    (learner,) = ready.learners

    def call() -> None:
        pool = ready.adaptive_pool()
        simulate_rollouts([Rollout(ready, learner, pool)], pool, ready.checkpoints, lambda done: None)

    return PeerRun(GAME, call)


def make(case: PeerCase) -> PeerRun:
    """Return the run of a case."""
    return peers.PEERS.get(case.backend, game if case.order == "adaptive" else swept)(case)


def measure(
    cases: Iterable[PeerCase], seconds: float, most: float, make: Callable[[PeerCase], PeerRun] = make
) -> list[Row]:
    """Measure cases that take turns, and skip packages that are not installed. Return one row per case.

    A repetition takes at least ``seconds``; a case is not repeated after ``most`` seconds in all.
    """
    runs: dict[PeerCase, PeerRun] = {}
    for case in cases:
        try:
            runs[case] = make(case)
        except ImportError as missing:
            print(f"{case.backend}: left out, {missing.name} cannot be imported", file=sys.stderr)

    def compile(case: PeerCase) -> None:
        with jax.enable_x64(True):  # the setting is per thread
            runs[case].call()

    with ThreadPoolExecutor() as pool:
        list(pool.map(compile, runs))
    calls: dict[PeerCase, int] = {}
    times: dict[PeerCase, list[float]] = {case: [] for case in runs}
    for _, case in product(range(REPETITIONS), runs):
        if sum(times[case]) < most:
            start, done = perf_counter(), 0
            while done < calls.get(case, 1) or (case not in calls and perf_counter() - start < seconds):
                runs[case].call()
                done += 1
            calls[case] = done
            times[case].append(perf_counter() - start)
    rates = {case: case.copies * runs[case].rounds * calls[case] / median(times[case]) for case in runs}
    rows = []
    for case, rate in rates.items():
        dense = rates.get(case._replace(backend="dense"))
        over = {} if dense is None else {"over dense": rate / dense}
        rows.append(case._asdict() | {"value": rate, "unit": "rounds a second"} | over)
        print(*case, f"{rate:.2g} a second", file=sys.stderr)
    return rows


def run(quick: bool) -> list[Row]:
    """Measure all groups."""
    return [row for cases in groups(quick) for row in measure(cases, *(QUICK if quick else FULL))]
