"""What an NVIDIA GPU would be given, and rates where there is one: case by case, the most useful cases first.

    uv run --extra cuda12 python -m benchmarks gpu --minutes 8

Without a device, the programs are compiled for an H100 and an A100 (``launches.py``), and nothing is measured.
Each case, failed or not, appends a line to the results. Cases that do not fit into the time are listed.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from benchmarks import launches, results
from benchmarks.launches import CHIPS
from benchmarks.results import Row
from exaul.engine import registry
from exaul.engine.checks import BadInput, check_positive, shorten
from exaul.engine.executors import describe_error

ARMS = 1000
LEARNERS = ("exaul", "ew", "exp3-ix", "aci-rank")
COPIES = 1024, 65_536, 8192  # the most useful numbers first
BACKENDS = ("blocks", "rows", "dense")


class GpuCase(NamedTuple):
    """A case; ``kind`` is ``rate``, or the chip whose launches are counted."""

    kind: str
    learner: str
    backend: str
    copies: int


def cases() -> list[GpuCase]:
    """List the cases, the most useful one first."""
    learners = {name: registry.load_object(registry.LEARNERS[name]) for name in LEARNERS}
    known = [
        (n, x) for n, learner in learners.items() for x in BACKENDS if registry.backend_of(learner, x, "float64")
    ]
    pairs = list({name: (name, backend) for name, backend in reversed(known)}.values())  # the first that has a loop
    found = [GpuCase(chip, *pair, COPIES[0]) for chip in CHIPS for pair in known]
    return found + [GpuCase("rate", *pair, copies) for copies in COPIES for pair in pairs]


def measure(case: GpuCase) -> Row:
    """Measure a case."""
    if case.kind in CHIPS:
        return launches.measure(*case, ARMS)
    import jax

    from benchmarks import peers, throughput

    with jax.enable_x64(True):
        (row,) = throughput.measure([peers.PeerCase(case.learner, case.backend, "own", case.copies, ARMS)], 5)
    return {"rounds_per_second": row["value"]}


def run(
    todo: Sequence[Any], measure: Callable[[Any], Row], path: Path, stamp: Row, minutes: float
) -> tuple[list[Row], list[Any]]:
    """Measure cases until the time is over. Return the rows, and the cases that were left out.

    ``path`` gets one line for the stamp and one per case, so an interrupted run keeps its finished cases.
    """
    end, rows = monotonic() + 60 * minutes, list[Row]()

    def write(row: Row) -> None:
        line = json.dumps(row)
        print(line, file=sys.stderr)
        with path.open("a") as stream:
            stream.write(line + "\n")

    write(stamp)
    for number, case in enumerate(todo):
        if monotonic() >= end:
            return rows, list(todo[number:])
        try:
            result = measure(case)
        except Exception as error:  # such as too little memory
            result = {"failure": shorten(describe_error(error))}
        rows.append(case._asdict() | result)
        write(rows[-1])
    return rows, []


def main(minutes: float) -> int:
    """Measure and print the table. Return 1 if a case failed, else 0."""
    check_positive("minutes", minutes)
    driver = results.nvidia()
    if not driver:
        os.environ["JAX_PLATFORMS"] = "cpu"  # else JAX's plugin looks for a driver, and knows no other chips
    from exaul.engine import machine  # imports JAX

    machine.use_compilation_cache()
    stamp, todo = results.stamp() | driver, cases()
    if not stamp["device"].startswith("gpu"):
        found = f"no GPU is found (JAX computes on {stamp['device']})"
        if find_spec("jax_plugins") is None:
            raise BadInput(f"gpu: {found}")
        print(f"{found}: nothing is measured", file=sys.stderr)
        todo = [case for case in todo if case.kind in CHIPS]
    path = results.path_of("gpu", stamp).with_suffix(".jsonl")
    rows, left = run(todo, measure, path, stamp, minutes)
    print(results.table(rows))
    for case in left:
        print("left out, no time:", *case, file=sys.stderr)
    print("written:", path, file=sys.stderr)
    return int(any("failure" in row for row in rows))
