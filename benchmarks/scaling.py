"""Cost of a round of one copy of ``exaul`` on its native backend, against copies, arms H and rounds T.

Against copies and H it is that of a prepared chunk at the rates of T = 30,000; against T that of whole games at
H = 1,000, including the making of chunks and 200 checkpoints. An exponent is fitted to the logarithms.
"""

from functools import partial

import numpy as np

from benchmarks.peers import PeerCase, PeerRun
from benchmarks.results import Row
from benchmarks.throughput import ARMS, FULL, QUICK, measure, prepared, swept
from exaul.engine.machine import TILE
from exaul.engine.simulation.batch import Rollout, simulate_rollouts

SIZES = {
    "copies": (100, 1_000, 10_000, 100_000),
    "arms": (100, 300, 1_000, 4_000, 16_000, 64_000),
    "rounds": (10_000, 100_000, 1_000_000),
}


def run(quick: bool) -> list[Row]:
    """Return rows of the varied number, its size, and nanoseconds per copy and round; then the exponents."""
    rows: list[Row] = []
    usual = PeerCase("exaul", "native", "shared", TILE, ARMS)
    for varied, sizes in SIZES.items():
        for size in sizes[: -1 if quick else None]:
            make = partial(game, horizon=size) if varied == "rounds" else swept
            case = usual if varied == "rounds" else PeerCase(**(usual._asdict() | {varied: size}))
            (row,) = measure([case], *(QUICK if quick else FULL), make)
            rows.append({"varied": varied, "size": size, "value": 1e9 / row["value"], "unit": "ns a learner-round"})
    return rows + exponents(rows)


def exponents(rows: list[Row]) -> list[Row]:
    """Return one row per varied number: the slope of the logarithms of the cost."""
    fitted: list[Row] = []
    for varied in dict.fromkeys(row["varied"] for row in rows):
        sizes, costs = np.array([(row["size"], row["value"]) for row in rows if row["varied"] == varied], float).T
        slope, _ = np.polyfit(np.log(sizes), np.log(costs), 1)
        fitted.append({"varied": varied, "size": "all", "exponent": float(slope)})
    return fitted


def game(case: PeerCase, horizon: int) -> PeerRun:
    """Return a whole game."""
    ready = prepared(case, horizon, 200)
    (learner,), stream = ready.learners, ready.trial_records()

    def call() -> None:
        simulate_rollouts([Rollout(ready, learner, stream)], stream, ready.checkpoints, lambda rounds: None)

    return PeerRun(horizon, call)
