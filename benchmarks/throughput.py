"""Rounds per second of every backend of every learner, of plain NumPy, a compiled loop and other packages.

The timed call is a batch of a sweep, after its preparation: it makes records and uniforms, simulates the copies and
finds the best arms in hindsight, in 1,024 rounds. Cases take turns; after compilation each is timed five times, and
the median is reported. With ``--quick`` each is timed once. Scores are uniform, so few cuts of a block are equal,
which is the worst case for backends that compress.
"""

import sys
from collections.abc import Iterable
from itertools import product
from statistics import median
from timeit import Timer

from benchmarks import peers
from benchmarks.peers import ALPHA, Call, PeerCase
from benchmarks.results import Row
from exaul.engine import registry
from exaul.engine.logs.log import Records
from exaul.engine.registry import BACKENDS, FROM_LOG, LEARNERS, STEPWISE_BACKENDS, backend_of
from exaul.engine.simulation.batch import simulate_batch
from exaul.engine.simulation.prepare import prepare_source
from exaul.engine.sweep import Sweep
from exaul.kernels.game import uniform_grid
from exaul.kernels.learners.learner import Fixed

ORDERS = {"shared": "replay", "own": "stochastic", "adaptive": "adversary-history"}  # environments
COPIES, ARMS = 1024, 1000  # of a case
CHECKPOINTS = (20,)
REPETITIONS = {False: 5, True: 1}  # by ``quick``


def learners() -> list[str]:
    """Return the learners that learn, each rule once."""
    rules = {name: registry.load_object(reference).rule for name, reference in LEARNERS.items() if name != FROM_LOG}
    return [name for name, rule in rules.items() if not isinstance(rule, Fixed)]


def backends(name: str, order: str) -> list[str]:
    """Return the backends that support a learner's rule in an order, in that of their table."""
    learner = registry.load_object(LEARNERS[name])
    supporting = [backend for backend in BACKENDS if backend_of(learner, backend, "float64") is not None]
    return [backend for backend in supporting if order != "adaptive" or backend in STEPWISE_BACKENDS]


def groups(quick: bool) -> list[list[PeerCase]]:
    """Return groups of cases; the cases of a group take turns. Quick: the first backend beside ``dense``."""
    cases = [
        [PeerCase(name, x, order, COPIES, ARMS) for x in backends(name, order)]
        for order, name in product(ORDERS, learners())
    ]
    if quick:
        return [[case for group in cases for case in (group[0], group[-1]) if case.order != "adaptive"]]
    pairs = [("exaul", "numba-dense"), *((name, "numpy") for name in learners())]
    pairs += [("exp3", "pymab"), ("exp3", "river")]
    return [[PeerCase(*pair, "shared", 1, ARMS) for pair in pairs], *cases]


def game(case: PeerCase) -> Call:
    """Return a batch of a sweep over random records; answers with small cuts are wrong more often."""
    cuts, errors, *_ = peers.game(case)
    sweep = Sweep(
        environment=ORDERS[case.order],
        learners=(case.learner,),
        backend=case.backend,
        alphas=ALPHA,
        horizon=case.rounds,
        trials=case.copies,
        arms=case.arms,
        checkpoints=CHECKPOINTS,
    )
    scores = uniform_grid(case.arms, ())[cuts - 1]  # the smallest scores with these cuts
    source = prepare_source(sweep, None if case.order == "adaptive" else [Records("game", scores, errors, 0, None)])
    return lambda: simulate_batch(source, lambda rounds: None)


def measure(cases: Iterable[PeerCase], repetitions: int) -> list[Row]:
    """Measure cases that take turns, and skip packages that are not installed. Return one row per case.

    A repetition has enough calls to take at least 0.2 s.
    """
    runs: dict[PeerCase, Call] = {}
    for case in cases:
        try:
            runs[case] = peers.PEERS.get(case.backend, game)(case)
        except ImportError as missing:
            print(f"{case.backend}: left out, {missing.name} cannot be imported", file=sys.stderr)

    for call in runs.values():
        call()  # compiles
    timers = {case: Timer(call) for case, call in runs.items()}
    calls = {case: timer.autorange()[0] for case, timer in timers.items()}
    repeated = [{case: timers[case].timeit(calls[case]) for case in runs} for _ in range(repetitions)]
    seconds = {case: median(times[case] for times in repeated) / calls[case] for case in runs}
    rates = {case: case.copies * case.rounds / seconds[case] for case in runs}
    rows = []
    for case, rate in rates.items():
        dense = rates.get(case._replace(backend="dense"))
        ratio = {} if dense is None else {"over dense": rate / dense}
        rows.append(case._asdict() | {"value": rate, "unit": "rounds a second"} | ratio)
        print(*case, f"{rate:.2g} a second", file=sys.stderr)
    return rows


def run(quick: bool) -> list[Row]:
    """Measure all groups."""
    return [row for cases in groups(quick) for row in measure(cases, REPETITIONS[quick])]
