"""Cost of a round of one copy of ``exaul`` on its native backend, against arms H and rounds T.

128 copies share their records. The cost against H is that of a prepared chunk at the rates of T = 30,000. The cost
against T is that of whole games at H = 1,000, including the making of chunks and 200 checkpoints.
"""

import sys
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.peers import PeerCase
from benchmarks.throughput import ARMS, FULL, QUICK, REPETITIONS, measure, prepared
from exaul.engine.machine import TILE
from exaul.engine.simulation.batch import roll_out, simulate_rollouts

H = (100, 300, 1000, 4000, 16_000, 64_000)
T = (10_000, 100_000, 1_000_000)
LABELS = {"arms": "arms $H$", "rounds": "rounds $T$"}


def run(quick: bool) -> list[dict[str, Any]]:
    """Return rows of the varied size, its value, and nanoseconds per copy and round."""
    cases = [PeerCase("exaul", "native", "shared", TILE, arms, "float64") for arms in H]
    rows = [
        {"varied": "arms", "value": row["arms"], "nanoseconds": 1e9 / row["rounds_per_second"]}
        for row in measure(cases, *(QUICK if quick else FULL))
    ]
    for horizon in T[:2] if quick else T:
        times = [game(horizon) for _ in range(REPETITIONS)]
        rows.append({"varied": "rounds", "value": horizon, "nanoseconds": 1e9 * median(times) / (TILE * horizon)})
        print(f"{horizon} rounds: {median(times):.2g} s", file=sys.stderr)
    return rows


def game(horizon: int) -> float:
    """Return the seconds of a whole game."""
    ready = prepared(PeerCase("exaul", "native", "shared", TILE, ARMS, "float64"), horizon, 200)
    (learner,), stream = ready.learners, ready.trial_records()
    rollout = roll_out(ready, learner, stream)
    start = perf_counter()
    simulate_rollouts([rollout], stream, ready.checkpoints, lambda rounds: None)
    return perf_counter() - start


def lines(rows: list[dict[str, Any]]) -> dict[str, tuple[np.ndarray, np.ndarray, float]]:
    """Return, by varied size, its values, the nanoseconds, and the slope fitted to their logarithms."""
    fitted = {}
    for varied in LABELS:
        points = [(row["value"], row["nanoseconds"]) for row in rows if row["varied"] == varied]
        x, y = np.array(points).T
        fitted[varied] = x, y, float(np.polyfit(np.log(x), np.log(y), 1)[0])
    return fitted


def table(rows: list[dict[str, Any]]) -> str:
    """Return Markdown with nanoseconds per copy and round, and the fitted slopes."""
    text = ["| varied | value | ns a learner-round |", "|---|--:|--:|"]
    text += [f"| {row['varied']} | {row['value']:,} | {row['nanoseconds']:.3g} |" for row in rows]
    slopes = [f"cost ~ {varied}^{slope:.2f}" for varied, (_, _, slope) in lines(rows).items()]
    return "\n".join([*text, "", *slopes])


def draw(rows: list[dict[str, Any]]) -> Figure:
    """Draw nanoseconds per copy and round against arms and against rounds, with the fitted slopes."""
    figure = Figure(figsize=(7, 3), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (varied, (x, y, slope)) in zip(panels, lines(rows).items(), strict=True):
        fit = np.exp(np.mean(np.log(y)) + slope * (np.log(x) - np.mean(np.log(x))))
        axes.loglog(x, y, "o", color="#08306b")
        axes.loglog(x, fit, "--", color="#737373", label=f"slope {slope:.2f}")
        axes.set_xlabel(LABELS[varied])
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("nanoseconds a learner-round")
    return figure
