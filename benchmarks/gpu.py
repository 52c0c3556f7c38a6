"""Speed of the engine on an NVIDIA GPU: the rates of ``throughput.py`` there.

uv run --extra cuda12 python -m benchmarks gpu
"""

from benchmarks import throughput
from benchmarks.peers import PeerCase
from benchmarks.results import Row
from benchmarks.throughput import ARMS
from exaul.engine import machine
from exaul.engine.checks import BadInput

ROUNDS = 2**25  # of all copies together
LEARNERS = ("exaul", "ew", "exp3-ix", "aci-rank")
COPIES = 1024, 65_536


def run(quick: bool) -> list[Row]:
    """Return a row for each case; quick: of one learner.

    Raises:
        BadInput: JAX finds no GPU.
    """
    if machine.platform() != "gpu":
        raise BadInput("gpu: JAX finds no GPU; with one, run uv run --extra cuda12 python -m benchmarks gpu")
    names = LEARNERS[:1] if quick else LEARNERS
    pairs = [(name, x) for name in names for x in throughput.backends(name, "own") if x != "native"]
    sizes = [(copies, ARMS, ROUNDS // copies) for copies in COPIES[: 2 - quick]]
    groups = [[PeerCase(*pair, "own", *size) for pair in pairs] for size in sizes]
    return [row for cases in groups for row in throughput.measure(cases, 1 if quick else 3)]
