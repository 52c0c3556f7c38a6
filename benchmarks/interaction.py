"""Throughput of games against ``adversary-history``, on each backend that supports adaptive environments.

Backends take turns; the median of five games is reported.
"""

import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.throughput import backends, learners
from exaul.engine.simulation.batch import Rollout, simulate_rollouts
from exaul.engine.simulation.interaction import interact_as_prepared
from exaul.engine.simulation.learners import supporting_backends
from exaul.engine.simulation.prepare import prepare
from exaul.engine.sweep import Sweep

REPETITIONS, COPIES, ARMS = 5, 1024, 1000
ADAPTIVE_BACKENDS = supporting_backends(by_rounds=True)
ROUNDS = {False: 1024, True: 256}  # of a game, by ``quick``


def run(quick: bool) -> list[dict[str, Any]]:
    """Return rows of learner, backend, copies, arms, rounds per second, and the ratio to dense."""
    rows = []
    for name in learners():
        names = [backend for backend in ADAPTIVE_BACKENDS if backend in backends(name)]
        games = {backend: game(name, backend, ROUNDS[quick]) for backend in names}
        times: dict[str, list[float]] = {backend: [] for backend in names}
        for repetition in range(REPETITIONS + 1):  # the first compiles
            for backend, taken in times.items():
                start = perf_counter()
                games[backend]()
                if repetition:
                    taken.append(perf_counter() - start)
        dense = median(times["dense"])
        for backend, taken in times.items():
            rate = ROUNDS[quick] * COPIES / median(taken)
            row = {"learner": name, "backend": backend, "copies": COPIES, "arms": ARMS}
            rows.append(row | {"rounds_per_second": rate, "ratio_to_dense": dense / median(taken)})
            print(*row.values(), f"{rate:.2g} a second", file=sys.stderr)
    return rows


def game(name: str, backend: str, rounds: int) -> Callable[[], object]:
    """Return a function that runs a game of a learner on a backend."""
    sweep = Sweep(
        environment="adversary-history",
        learners=(name,),
        backend=backend,
        horizon=rounds,
        trials=COPIES,
        arms=ARMS,
        checkpoints=(1,),
    )
    prepared = prepare(sweep)
    (learner,) = prepared.learners

    def simulate() -> None:
        made = interact_as_prepared(prepared, learner)
        rollout = Rollout(learner, made[0], prepared.copies_of(learner), prepared.checkpoints, made[1])
        simulate_rollouts([rollout], None, prepared.checkpoints, lambda done: None)

    return simulate


def table(rows: list[dict[str, Any]]) -> str:
    """Return Markdown with one line per learner and backend."""
    lines = [
        f"| {row['learner']} | {row['backend']} | {row['rounds_per_second']:.2g} | {row['ratio_to_dense']:.3g} |"
        for row in rows
    ]
    head = "| learner | backend | learner-rounds per second | over dense |\n|---|---|--:|--:|"
    return "\n".join([f"Against adversary-history, {COPIES:,} copies, {ARMS:,} arms, float64", "", head, *lines])


def draw(rows: list[dict[str, Any]]) -> Figure:
    """Draw bars of rounds per second, grouped by learner."""
    figure = Figure(figsize=(4.6, 3), layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(row["learner"] for row in rows))
    for i, (backend, shade) in enumerate(zip(ADAPTIVE_BACKENDS, ("#08306b", "#bdbdbd"), strict=True)):
        rates = {row["learner"]: row["rounds_per_second"] for row in rows if row["backend"] == backend}
        heights = [rates.get(name, np.nan) for name in names]
        axes.bar(np.arange(len(names)) + 0.4 * i, heights, 0.38, label=backend, color=shade, edgecolor="black")
    axes.set(yscale="log")
    axes.set_xticks(np.arange(len(names)) + 0.2, names, rotation=30, ha="right")
    axes.set_ylabel("learner-rounds per second")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    return figure
