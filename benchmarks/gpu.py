"""Speed of the engine on an NVIDIA GPU, and the programs that it runs there.

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
    pairs = [(name, x) for name in names for x in throughput.backends(name, "own") if x != "native"]
    if machine.platform() != "gpu":
        return [launches.measure(chip, *pair, COPIES[0], ARMS) for chip in launches.CHIPS for pair in pairs]
    sizes = [(copies, ARMS, ROUNDS // copies) for copies in COPIES[: 2 - quick]]
    groups = [[PeerCase(*pair, "own", *size) for pair in pairs] for size in sizes]
    return [row for cases in groups for row in throughput.measure(cases, 1 if quick else 3)]
