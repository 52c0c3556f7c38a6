"""Throughput of games against a world that answers back, round by round, on each backend that plays so.

Learners meet ``adversary-history``; backends take turns within one run, and the median of five games stands.
"""

import sys
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from engine.environments.adversary_history import adversary_history
from engine.game import load, prepare
from engine.interaction import meet
from engine.learners import LEARNERS, TURNS, runs_on
from engine.sweep import Sweep

REPETITIONS, COPIES = 5, 1024
ROUNDS = {False: 1024, True: 256}  # of a game, by whether it is quick


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of learner, backend, copies, arms, rounds a second, and the ratio to dense."""
    rows = []
    for name in (name for name, learner in LEARNERS.items() if learner.kind not in ("fixed", "own")):
        times: dict[str, list[float]] = {where: [] for where in TURNS if runs_on(LEARNERS[name], where)}
        sweep = Sweep(environment="adversary-history", horizon=ROUNDS[quick], trials=COPIES, learners=(name,))
        game = prepare(sweep, load(sweep), sweep.numbers())
        world = game.world()
        tuning = np.array([[x.default] * sweep.trials for x in adversary_history.tunables])
        for turn in range(REPETITIONS + 1):  # the first compiles
            for where, taken in times.items():
                copies = game.copies(name, where, sweep.precision)
                given = copies, adversary_history, world, tuning, game.trials, 0, np.array([game.horizon])
                start = perf_counter()
                meet(*given, lambda rounds: None)
                if turn:
                    taken.append(perf_counter() - start)
        dense = median(times["dense"])
        for where, taken in times.items():
            rate = game.horizon * sweep.trials / median(taken)
            row = {"learner": name, "backend": where, "copies": sweep.trials, "arms": sweep.arms}
            rows.append(row | {"rounds_per_second": rate, "ratio_to_dense": dense / median(taken)})
            print(*row.values(), f"{rate:.2g} a second", file=sys.stderr)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a line a learner and backend."""
    lines = [
        f"| {row['learner']} | {row['backend']} | {row['rounds_per_second']:.2g} | {row['ratio_to_dense']:.3g} |"
        for row in rows
    ]
    head = "| learner | backend | learner-rounds per second | over dense |\n|---|---|--:|--:|"
    return "\n".join(["Against adversary-history, 1,024 copies, 1,000 arms, float64", "", head, *lines])


def draw(rows: list[dict[str, Any]]) -> Figure:
    """Bars of rounds per second, a group a learner."""
    figure = Figure(figsize=(4.6, 3), layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(row["learner"] for row in rows))
    for i, (where, shade) in enumerate(zip(TURNS, ("#08306b", "#bdbdbd"), strict=True)):
        rates = {row["learner"]: row["rounds_per_second"] for row in rows if row["backend"] == where}
        heights = [rates.get(name, np.nan) for name in names]
        axes.bar(np.arange(len(names)) + 0.4 * i, heights, 0.38, label=where, color=shade, edgecolor="black")
    axes.set(yscale="log")
    axes.set_xticks(np.arange(len(names)) + 0.2, names, rotation=30, ha="right")
    axes.set_ylabel("learner-rounds per second")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    return figure
