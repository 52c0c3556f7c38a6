"""Throughput of every backend of every learner, beside the floor, plain NumPy, a compiled loop and packages.

What is timed is what a sweep does: ``Rollout.play`` on a chunk of records made beforehand, uniforms and tallies
included, until the results are on the host. Cases take turns; once compiled, each is timed five times and the
median stands. With ``--quick`` a case is timed no more once it took 1.5 s in all: dense ones once or twice. Scores
are uniform on [0, 1], so that few cuts of a block tie, the least that a backend can gain by compressing; rates are
those of T = 30,000.
"""

import math
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from statistics import median
from time import perf_counter
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from benchmarks import peers
from benchmarks.peers import ALPHA, HORIZON, Case, Play
from engine.environments.oblivious import Pool, Stream
from engine.environments.replay import replay
from engine.environments.stochastic import stochastic
from engine.learners import BACKENDS, LEARNERS, backend, block_rates, choose_backend, runs_on
from engine.rollout import CHUNK, Chunk, Copies, Rollout, made_ready, play
from kernels import native
from kernels.game import ROUNDS, costs
from kernels.learner import HostBackend

Row = dict[str, Any]
ORDERS = {"shared": replay, "own": stochastic}  # environments in which copies meet records so
COPIES, ARMS = 1024, 1000  # what the other sizes vary, one at a time
SIZES = ((100, ARMS), (10_000, ARMS), (100_000, ARMS), (COPIES, 100), (COPIES, 16_000), (COPIES, 64_000))
REPETITIONS = 5
FULL, QUICK = (0.25, math.inf), (0.1, 1.5)  # seconds of a repetition at least, and of a case's before its last
LONGEST, LARGEST = 3.5, 2e9  # seconds of a call and bytes of a state beyond which a case is left out


def groups(quick: bool) -> list[list[Case]]:
    """The cases that take turns, group after group."""
    names = [name for name, learner in LEARNERS.items() if learner.kind not in ("fixed", "own")]
    usual = COPIES, ARMS, "float64"
    if quick:
        eta = block_rates(LEARNERS["ew"], HORIZON, ARMS, False, None, None)[0]
        fastest = partial(choose_backend, wanted=None, platform=jax.default_backend(), eta=eta, rounds=HORIZON)
        held = {name: ["dense", fastest(LEARNERS[name], precision="float64")] for name in names}
        cases = [Case(name, x, order, *usual) for order in ORDERS for name in names for x in held[name]]
        return [cases]
    held = {name: [where for where in BACKENDS if runs_on(LEARNERS[name], where)] for name in names}
    sizes = [usual, (COPIES, ARMS, "float32"), *((*size, "float64") for size in SIZES)]
    swept = [[Case(n, x, order, *size) for x in held[n]] for size in sizes for order in ORDERS for n in names]
    floors = [Case("none", "floor", "shared", *size) for size in sizes if size[1:] == usual[1:]]
    pairs = [*((n, "numpy") for n in names), ("exaul", "numba-dense"), ("exp3", "pymab"), ("exp3", "river")]
    return [[*floors, *(Case(*pair, "shared", 1, *usual[1:]) for pair in pairs)], *swept]


def records(case: Case) -> Chunk:
    """A chunk, laid out as a sweep makes it for copies that have their own records, marks every 128 rounds."""
    least = native.SPAN // ROUNDS if case.backend == "native" else 1
    blocks = max(least, CHUNK // (ROUNDS * case.copies))
    rng = np.random.default_rng(0)
    shape, streams = (blocks, ROUNDS), case.copies if case.order == "own" else 1
    cuts = rng.integers(1, case.arms, (streams, blocks * ROUNDS), np.int32)
    errors = (rng.random(cuts.shape) * case.arms > cuts).astype(np.float64)
    marks = np.tile(np.array([ROUNDS // 2, ROUNDS], np.int32), (blocks, 1))
    made = cuts.T.reshape(*shape, streams), errors.T.reshape(*shape, streams)
    return Chunk(np.arange(blocks, dtype=np.uint32), *made, np.ones(shape, bool), marks)


def begin(case: Case, pools: Sequence[Pool], horizon: int, checkpoints: int) -> tuple[Rollout, Stream]:
    """The copies of a case before round 1, and their stream of records."""
    learner = LEARNERS[case.learner]
    stream = Stream(ORDERS[case.order], pools, horizon, 0, np.arange(case.copies))
    copies = Copies(
        backend(learner, case.backend, case.precision),
        *block_rates(learner, horizon, case.arms, False, None, None),
        np.full(case.copies, ALPHA),
        *costs(np.full(case.copies, ALPHA), math.sqrt(horizon)),
        np.arange(case.copies, dtype=np.int32),
        np.zeros(case.copies, np.int32),
    )
    return Rollout(copies, stream, case.arms, checkpoints), stream


def swept(case: Case) -> Play:
    """A backend, driven as a sweep drives it."""
    chunk = records(case)
    rollout, _ = begin(case, (), HORIZON, chunk.marks.size)
    backend, rates = rollout.backend, (np.zeros(len(chunk.block)),) * 2

    def call() -> None:
        rollout.marked = 0
        rollout.play(chunk, made_ready(chunk, [rollout]))
        rollout.collect()

    def compile() -> None:
        if isinstance(backend, HostBackend):
            call()
            return
        of = rollout.state, rollout.totals, chunk, rates, rollout.copies, rollout.keys
        play.lower(backend.advance, rollout.axes, *of).compile()

    return Play(chunk.active.size, call, compile)


def measure(cases: Iterable[Case], seconds: float, most: float) -> list[Row]:
    """Rows of cases that take turns, without those of packages that are not installed.

    Args:
        cases: what to measure.
        seconds: that a repetition lasts at least.
        most: seconds of a case's repetitions after which it has no more of them.
    """
    plays: dict[Case, Play] = {}
    for case in cases:
        try:
            plays[case] = peers.PLAYS.get(case.backend, swept)(case)
        except ImportError as missing:
            print(f"{case.backend}: left out, {missing.name} cannot be imported", file=sys.stderr)

    def compile(case: Case) -> None:
        with jax.enable_x64(True):  # a setting of the thread
            plays[case].compile()

    with ThreadPoolExecutor() as pool:
        list(pool.map(compile, plays))
    calls: dict[Case, int] = {}
    times: dict[Case, list[float]] = {case: [] for case in plays}
    for _, case in product(range(REPETITIONS), plays):
        if sum(times[case]) < most:
            start, done = perf_counter(), 0
            while done < calls.get(case, 1) or (case not in calls and perf_counter() - start < seconds):
                plays[case].call()
                done += 1
            calls[case] = done
            times[case].append(perf_counter() - start)
    rate = {case: case.copies * plays[case].rounds * calls[case] / median(times[case]) for case in plays}
    rows = []
    for case in plays:
        dense = rate.get(case._replace(backend="dense"))
        measured = {
            "horizon": plays[case].rounds * calls[case],
            "rounds_per_second": rate[case],
            "ratio_to_dense": None if dense is None else rate[case] / dense,
        }
        rows.append(case._asdict() | measured)
    return rows


def run(quick: bool) -> list[Row]:
    """Measure all groups, but for the cases that would take too long, going by the usual size."""
    rows: list[Row] = []
    cost: dict[tuple, float] = {}  # seconds per copy, arm and round

    def affordable(case: Case) -> bool:
        work = case.copies * case.arms * max(ROUNDS, CHUNK // case.copies)
        usual = (case.copies, case.arms) == (COPIES, ARMS)
        return usual or (case.copies * case.arms * 8 <= LARGEST and cost.get(case[:3], 0.0) * work <= LONGEST)

    for cases in groups(quick):
        for case in cases:
            if not affordable(case):
                print("left out, too long or too large:", *case, file=sys.stderr)
        for row in measure(filter(affordable, cases), *(QUICK if quick else FULL)):
            case = Case(*(row[name] for name in Case._fields))
            cost.setdefault(case[:3], 1 / (row["rounds_per_second"] * case.arms))
            print(*case, f"{row['rounds_per_second']:.2g} a second", file=sys.stderr)
            rows.append(row)
    return rows


def table(rows: list[Row]) -> str:
    """Markdown: a line a learner, backend and order; a column a number of copies, arms and precision."""
    lines: dict[tuple, dict[tuple, str]] = {}
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
    """Rounds per second against copies at 1,000 arms in float64, a panel a learner, a line a backend and order."""
    names = [name for name in LEARNERS if any(row["learner"] == name for row in rows)]
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    handles: dict[str, Any] = {}
    for axes, name in zip(figure.subplots(1, len(names), sharey=True, squeeze=False)[0], names, strict=True):
        for (turn, where), order in product(enumerate([*BACKENDS, *peers.PLAYS]), ORDERS):
            points = [
                (row["copies"], row["rounds_per_second"])
                for row in rows
                if (row["backend"], row["order"], row["arms"], row["precision"]) == (where, order, ARMS, "float64")
                and (row["learner"] == "none" or name.startswith(row["learner"]))  # exp3 beside exp3-ix
            ]
            if points:
                style = {"color": f"C{turn}", "marker": "s^vDo.+x12"[turn], "markersize": 5}
                style |= {"linestyle": "--", "markerfacecolor": "white"} if order == "own" else {}
                label = where if where in peers.PLAYS else f"{where}, {order}"
                (handles[label],) = axes.loglog(*zip(*sorted(points), strict=True), **style)
        axes.set(title=name, xlabel="copies")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("learner-rounds per second")
    figure.legend(handles.values(), handles, loc="outside right center", frameon=False, fontsize=8)
    return figure
