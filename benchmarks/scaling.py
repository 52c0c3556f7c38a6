"""Cost of a round of one copy of ``exaul`` on its native backend, against copies, arms H and rounds T.

The timed call is a batch of a sweep (``throughput.py``). Exponents are fitted to the logarithms.
"""

import numpy as np

from benchmarks.peers import PeerCase
from benchmarks.results import Row
from benchmarks.throughput import ARMS, REPETITIONS, measure
from exaul.engine.simulation.chunks import TILE

SIZES = {
    "copies": (100, 1_000, 10_000, 100_000),
    "arms": (100, 300, 1_000, 4_000, 16_000, 64_000),
    "rounds": (10_000, 100_000, 1_000_000),
}


def run(quick: bool) -> list[Row]:
    """Return rows of the varied number, its size, and nanoseconds per copy and round; then the exponents."""
    rows: list[Row] = []
    for varied, sizes in SIZES.items():
        for size in sizes[: -1 if quick else None]:
            case = PeerCase("exaul", "native", "shared", **{"copies": TILE, "arms": ARMS, varied: size})
            (row,) = measure([case], REPETITIONS[quick])
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
