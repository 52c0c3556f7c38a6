"""What an NVIDIA GPU is given, and how fast it is.

    uv run --extra cuda12 python -m benchmarks gpu

With a GPU, the rates of ``throughput.py`` on it. Without one, the programs compiled for an H100 and an A100
(``launches.py``); nothing is measured then.
"""

from benchmarks import launches, throughput
from benchmarks.peers import PeerCase
from benchmarks.results import Row
from benchmarks.throughput import ARMS
from exaul.engine import machine

ROUNDS = 2**25  # of all copies together
LEARNERS = ("exaul", "ew", "exp3-ix", "aci-rank")
COPIES = 1024, 65_536


def run(quick: bool) -> list[Row]:
    """Return a row for each case; quick: of one learner."""
    names = LEARNERS[:1] if quick else LEARNERS
    chosen = [(name, x) for name in names for x in throughput.backends(name, "own") if x != "native"]
    if machine.platform() != "gpu":
        return [launches.measure(chip, *case, COPIES[0], ARMS) for chip in launches.CHIPS for case in chosen]
    sizes = [(copies, ARMS, ROUNDS // copies) for copies in COPIES[: 2 - quick]]
    cases = [[PeerCase(*case, "own", *size) for case in chosen] for size in sizes]
    return [row for each in cases for row in throughput.measure(each, 1 if quick else 3)]
