"""Throughput of every backend of every learner, of the floor, plain NumPy, a compiled loop and other packages.

The timed call does what a sweep does: make records and uniforms of a chunk, simulate the copies, collect the
totals. Cases take turns; after compilation each is timed five times, and the median is reported. With ``--quick`` a
case is not repeated after 1.5 s in all. Scores are uniform on [0, 1], so few cuts of a block are equal, which is
the worst case for backends that compress; rates are those of T = 30,000.
"""

import math
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from statistics import median
from time import perf_counter
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from benchmarks import peers
from benchmarks.peers import ALPHA, HORIZON, PeerCase, PeerRun
from exaul.engine import registry
from exaul.engine.logs.log import Records
from exaul.engine.registry import BACKENDS, LEARNERS
from exaul.engine.simulation.batch import roll_out
from exaul.engine.simulation.learners import backend_of
from exaul.engine.simulation.prepare import Prepared, prepare
from exaul.engine.simulation.schedule import Chunk, Schedule, blocks_per_chunk, rates_of_blocks
from exaul.engine.sweep import Sweep
from exaul.kernels.game import ROUNDS, uniform_grid
from exaul.kernels.learners.learner import Fixed

Row = dict[str, Any]
ORDERS = {"shared": "replay", "own": "stochastic"}  # environments with shared records, and with own ones
COPIES, ARMS = 1024, 1000  # the usual size; SIZES vary one number each
SIZES = ((100, ARMS), (10_000, ARMS), (100_000, ARMS), (COPIES, 100), (COPIES, 16_000), (COPIES, 64_000))
REPETITIONS = 5
FULL, QUICK = (0.25, math.inf), (0.1, 1.5)  # arguments of ``measure``: seconds per repetition, and per case
LONGEST, LARGEST = 3.5, 2e9  # limits of a case: seconds of a call, bytes of a state


def backends(name: str) -> list[str]:
    """Return the backends that support a learner's rule, in the order of their table."""
    learner = registry.load_object(LEARNERS[name])
    return [backend for backend in BACKENDS if backend_of(learner, backend, "float64") is not None]


def learners() -> list[str]:
    """Return the learners that learn."""
    return [name for name, place in LEARNERS.items() if not isinstance(registry.load_object(place).rule, Fixed)]


def groups(quick: bool) -> list[list[PeerCase]]:
    """Return groups of cases; the cases of a group take turns."""
    names = learners()
    usual = COPIES, ARMS, "float64"
    if quick:
        prepared = prepare(Sweep(learners=tuple(names), horizon=HORIZON, arms=ARMS))
        fastest = {learner.name: learner.backend_name for learner in prepared.learners}
        return [[PeerCase(n, x, order, *usual) for order in ORDERS for n in names for x in ("dense", fastest[n])]]
    sizes = [usual, (COPIES, ARMS, "float32"), *((*size, "float64") for size in SIZES)]
    swept = [
        [PeerCase(n, x, order, *size) for x in backends(n)] for size in sizes for order in ORDERS for n in names
    ]
    floors = [PeerCase("none", "floor", "shared", *size) for size in sizes if size[1:] == usual[1:]]
    pairs = [*((n, "numpy") for n in names), ("exaul", "numba-dense"), ("exp3", "pymab"), ("exp3", "river")]
    return [[*floors, *(PeerCase(*pair, "shared", 1, *usual[1:]) for pair in pairs)], *swept]


def records(arms: int, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return random cuts and errors; answers with small cuts are wrong more often."""
    rng = np.random.default_rng(0)
    cuts = rng.integers(1, arms, shape, np.int32)
    return cuts, (rng.random(shape) * arms > cuts).astype(np.float64)


def prepared(case: PeerCase, horizon: int, checkpoints: int) -> Prepared:
    """Prepare a sweep of a case over random records."""
    cuts, errors = records(case.arms, (horizon,))
    sweep = Sweep(
        environment=ORDERS[case.order],
        learners=(case.learner,),
        backend=case.backend,
        precision=case.precision,
        alphas=(ALPHA,),
        lambdas=(math.sqrt(horizon),),
        horizon=horizon,
        trials=case.copies,
        arms=case.arms,
        checkpoints=(checkpoints,),
    )
    scores = uniform_grid(case.arms, ())[cuts - 1]  # the smallest scores with these cuts
    return prepare(sweep, (Records("random", scores, errors, 0, None),))


def schedule_of(case: PeerCase) -> Schedule:
    """Return a chunk's blocks as in a sweep with own records, with checkpoints every 128 rounds."""
    blocks = blocks_per_chunk(case.copies)
    checkpoint_rounds = np.tile(np.array([ROUNDS // 2, ROUNDS], np.int32), (blocks, 1))
    return Schedule(np.arange(blocks, dtype=np.uint32), np.ones((blocks, ROUNDS), bool), checkpoint_rounds)


def swept(case: PeerCase) -> PeerRun:
    """Return a backend driven as a sweep drives it: records, uniforms and rounds."""
    ready = prepared(case, HORIZON, 1)
    (learner,), stream = ready.learners, ready.trial_records()
    assert learner.backend_name == case.backend
    simulation = roll_out(ready, learner, stream).simulation
    schedule = schedule_of(case)
    rates = rates_of_blocks(learner.rates, schedule.block)

    def call() -> None:
        chunk = Chunk(schedule, stream)
        simulation.start(chunk, rates)
        simulation.collect()

    return PeerRun(schedule.rounds, call)


def measure(cases: Iterable[PeerCase], seconds: float, most: float) -> list[Row]:
    """Measure cases that take turns, and skip packages that are not installed. Return one row per case.

    A repetition takes at least ``seconds``; a case is not repeated after ``most`` seconds in all.
    """
    runs: dict[PeerCase, PeerRun] = {}
    for case in cases:
        try:
            runs[case] = peers.PEERS.get(case.backend, swept)(case)
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
    rate = {case: case.copies * runs[case].rounds * calls[case] / median(times[case]) for case in runs}
    rows = []
    for case in runs:
        dense = rate.get(case._replace(backend="dense"))
        measured = {
            "horizon": runs[case].rounds * calls[case],
            "rounds_per_second": rate[case],
            "ratio_to_dense": None if dense is None else rate[case] / dense,
        }
        rows.append(case._asdict() | measured)
    return rows


def run(quick: bool) -> list[Row]:
    """Measure all groups, except cases that would take too long as estimated from the usual size."""
    rows: list[Row] = []
    cost: dict[tuple[Any, ...], float] = {}  # seconds per copy, arm and round

    def affordable(case: PeerCase) -> bool:
        work = case.copies * case.arms * schedule_of(case).rounds
        usual = (case.copies, case.arms) == (COPIES, ARMS)
        return usual or (case.copies * case.arms * 8 <= LARGEST and cost.get(case[:3], 0.0) * work <= LONGEST)

    for cases in groups(quick):
        for case in cases:
            if not affordable(case):
                print("left out, too long or too large:", *case, file=sys.stderr)
        for row in measure(filter(affordable, cases), *(QUICK if quick else FULL)):
            case = PeerCase(*(row[name] for name in PeerCase._fields))
            cost.setdefault(case[:3], 1 / (row["rounds_per_second"] * case.arms))
            print(*case, f"{row['rounds_per_second']:.2g} a second", file=sys.stderr)
            rows.append(row)
    return rows


def table(rows: list[Row]) -> str:
    """Return Markdown: one line per learner, backend and order; one column per copies, arms and precision."""
    lines: dict[tuple[Any, ...], dict[tuple[Any, ...], str]] = {}
    for row in rows:
        text = f"{row['rounds_per_second']:.1e}".replace("e+0", "e")
        if row["backend"] != "dense" and row["ratio_to_dense"] is not None:
            text += f" ({row['ratio_to_dense']:.3g}x)"
        size = row["copies"], row["arms"], row["precision"]
        lines.setdefault((row["learner"], row["backend"], row["order"]), {})[size] = text
    sizes = list(dict.fromkeys(size for line in lines.values() for size in line))
    heads = [f"{copies:,} x {arms:,}" + " f32" * (precision == "float32") for copies, arms, precision in sizes]
    body = [["learner", "backend", "order", *heads], ["---"] * 3 + ["--:"] * len(sizes)]
    body += [[*name, *(line.get(size, "") for size in sizes)] for name, line in sorted(lines.items())]
    title = "Learner-rounds per second at copies x arms (in brackets: over dense)"
    return "\n".join([title, "", *(f"| {' | '.join(cells)} |" for cells in body)])


def draw(rows: list[Row]) -> Figure:
    """Draw rounds per second against copies (1,000 arms, float64), one panel per learner."""
    names = [name for name in LEARNERS if any(row["learner"] == name for row in rows)]
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    handles: dict[str, Any] = {}
    for axes, name in zip(figure.subplots(1, len(names), sharey=True, squeeze=False)[0], names, strict=True):
        for (number, where), order in product(enumerate([*BACKENDS, *peers.PEERS]), ORDERS):
            points = [
                (row["copies"], row["rounds_per_second"])
                for row in rows
                if (row["backend"], row["order"], row["arms"], row["precision"]) == (where, order, ARMS, "float64")
                and (row["learner"] == "none" or name.startswith(row["learner"]))  # exp3 beside exp3-ix
            ]
            if points:
                style = {"color": f"C{number}", "marker": "s^vDo.+x1234P"[number], "markersize": 5}
                style |= {"linestyle": "--", "markerfacecolor": "white"} if order == "own" else {}
                label = where if where in peers.PEERS else f"{where}, {order}"
                (handles[label],) = axes.loglog(*zip(*sorted(points), strict=True), **style)
        axes.set(title=name, xlabel="copies")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("learner-rounds per second")
    figure.legend(handles.values(), handles, loc="outside right center", frameon=False, fontsize=8)
    return figure
