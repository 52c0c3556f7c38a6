"""What an NVIDIA GPU would be given, and rates where there is one: case by case, the most useful cases first.

    uv run --extra cuda12 python -m benchmarks gpu --minutes 8

Without a device, the programs are compiled for an H100 and an A100 (``launches.py``), and nothing is measured.
The cases run in a separate process, so a kernel that fails or hangs does not stop the others. Each case, failed or
not, appends a line to the results. Cases that do not fit into the time are listed.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, NamedTuple

from benchmarks import launches
from benchmarks.launches import CHIPS
from benchmarks.worker import Worker, WorkerDied

ARMS = 1000
LEARNERS = ("exaul", "ew", "exp3-ix", "aci-rank")
COPIES = 1024, 65_536, 8192  # the most useful numbers first
TRIALS, LONG = 60, 3_000_000  # trials and rounds of a whole sweep
LONGEST = 300.0  # time limit of a case, in seconds
BACKENDS = ("blocks", "rows")
COLUMNS: tuple[str, ...] = ("kind", "learner", "backend", "copies", "order", "holds", "differ")
COLUMNS += ("launches_per_round", "temporary_mib", "compile_seconds", "rounds_per_second", "seconds", "failure")
Row = dict[str, Any]


class GpuCase(NamedTuple):
    """A case; ``kind`` is ``launches`` and a chip, ``certificate``, ``rate`` or ``sweep``."""

    kind: str
    learner: str
    backend: str
    copies: int


def cases() -> list[GpuCase]:
    """List the cases, the most useful one first."""
    from exaul.engine.registry import LEARNERS as TABLE
    from exaul.engine.registry import load_object
    from exaul.engine.simulation.learners import backend_of

    every = [*BACKENDS, "dense"]
    known = [(n, x) for n in LEARNERS for x in every if backend_of(load_object(TABLE[n]), x, "float64")]
    pairs = list({name: (name, backend) for name, backend in reversed(known)}.values())  # the first that has a loop
    found = [GpuCase(f"launches {chip}", *pair, COPIES[0]) for chip in CHIPS for pair in known]
    found += [GpuCase("certificate", *pair, 64) for pair in pairs]
    found += [GpuCase("rate", *pair, copies) for copies in COPIES for pair in pairs]
    return found + [GpuCase("sweep", name, where, TRIALS) for name, where in pairs if name in ("exaul", "ew")]


def measure(case: GpuCase) -> Row:
    """Measure a case. Only this function, in the worker process, uses the device."""
    _begin()
    import jax

    kind, _, chip = case.kind.partition(" ")
    if kind == "launches":
        return launches.measure(chip, case.learner, case.backend, case.copies, ARMS)
    with jax.enable_x64(True):
        return {"certificate": _certificate, "rate": _rate, "sweep": _sweep}[kind](case)


def _begin() -> None:
    """Use stored programs, as a sweep does."""
    from exaul.engine import machine

    machine.use_compilation_cache()


def _certificate(case: GpuCase) -> Row:
    from exaul.commands.verify import certify_all
    from exaul.engine.simulation.prepare import prepare
    from exaul.engine.sweep import Sweep

    small = Sweep(learners=(case.learner,), backend=case.backend, trials=case.copies, horizon=3000, arms=ARMS)
    (found,) = certify_all(prepare(small))
    return {"holds": found.holds("float64"), "differ": found.parted}


def _rate(case: GpuCase) -> Row:
    from benchmarks import peers, throughput

    one = peers.PeerCase(case.learner, case.backend, "own", case.copies, ARMS, "float64")
    (row,) = throughput.measure([one], 0.25, 5.0)
    return {"order": "own", "rounds_per_second": row["rounds_per_second"]}


def _sweep(case: GpuCase) -> Row:
    from exaul.engine.run import run as sweep
    from exaul.engine.sweep import Sweep

    start = perf_counter()
    sweep(Sweep(learners=(case.learner,), backend=case.backend, trials=case.copies, horizon=LONG, arms=ARMS))
    seconds = perf_counter() - start
    return {"order": "own", "seconds": seconds, "rounds_per_second": case.copies * LONG / seconds}


def describe_machine() -> Row:
    """Describe the machine: device, driver, clocks, CUDA, commit and date."""
    _begin()
    from benchmarks import stamp

    return stamp.stamp() | stamp.nvidia()


def run(
    todo: Sequence[Any], measure: Callable[[Any], Row], path: Path, stamp: Row, minutes: float, worker: Worker
) -> tuple[list[Row], list[Any]]:
    """Measure cases in the worker until the time is over. Return the rows, and the cases that were left out.

    ``path`` gets one line for the stamp and one per case, so an interrupted run keeps its finished cases.
    """
    end, rows = monotonic() + 60 * minutes, list[Row]()
    _append(path, stamp)
    for number, case in enumerate(todo):
        left = end - monotonic()
        if left <= 0:
            return rows, list(todo[number:])
        row = case._asdict()
        try:
            found, failure = worker.call(measure, case, seconds=min(left, LONGEST))
        except WorkerDied:
            found, failure = None, "the process that measured it died"
        except TimeoutError:
            if left < LONGEST:
                return rows, list(todo[number:])
            found, failure = None, f"it took longer than {LONGEST:.0f} s"
        row |= found if failure is None else {"failure": failure}
        rows.append(row)
        _append(path, row)
    return rows, []


def table(rows: Sequence[Row]) -> str:
    """Return Markdown of the columns that some row has."""

    def text(x: Any) -> str:
        return f"{x:.3g}" if isinstance(x, float) else str(x)

    names = [name for name in COLUMNS if any(name in row for row in rows)]
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return "\n".join(lines + ["| " + " | ".join(text(row.get(x, "")) for x in names) + " |" for row in rows])


def _append(path: Path, row: Row) -> None:
    line = json.dumps(row)
    print(line, file=sys.stderr)
    with path.open("a") as stream:
        stream.write(line + "\n")


def _asked(worker: Worker, function: Callable[[], Any]) -> tuple[Any, str | None]:
    """Call a function in the worker. Return its result and its failure; one of them is None."""
    try:
        return worker.call(function, seconds=LONGEST)
    except WorkerDied:
        return None, "the process that measures died"
    except TimeoutError:
        return None, f"the process that measures did not answer in {LONGEST:.0f} s"


def main(minutes: float) -> int:
    """Measure and print the table. Return 1 if a case failed or is not certified, else 0."""
    from benchmarks import stamp
    from exaul.engine.checks import BadInput

    if not minutes > 0:
        raise BadInput(f"minutes: {minutes} found; it must be more than 0")
    worker = Worker()
    try:
        machine, failure = _asked(worker, describe_machine)
        has_gpu = failure is None and machine["device"].startswith("gpu")
        if failure is not None or not (has_gpu or find_spec("jax_plugins")):
            found = f"JAX computes on {machine['device']}" if failure is None else failure
            raise BadInput(f"gpu: no GPU is found ({found})")
        path = stamp.path_of("gpu", machine).with_suffix(".jsonl")
        todo, failure = _asked(worker, cases)
        if failure is not None:
            raise BadInput(f"gpu: {failure}")
        if not has_gpu:
            print(f"no GPU is found (JAX computes on {machine['device']}): nothing is measured", file=sys.stderr)
            todo = [case for case in todo if case.kind.startswith("launches")]
            worker.close()
            os.environ["JAX_PLATFORMS"] = "cpu"  # else JAX's plugin looks for a driver, and knows no other chips
            worker = Worker()
        rows, left = run(todo, measure, path, machine, minutes, worker)
    finally:
        worker.close()
    print(table(rows))
    for case in left:
        print("left out, no time:", *case, file=sys.stderr)
    print("written:", path, file=sys.stderr)
    return int(any("failure" in row or row.get("holds") is False for row in rows))
