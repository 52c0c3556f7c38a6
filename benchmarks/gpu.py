"""Rates on an NVIDIA GPU: a case at a time, the most useful ones first.

    uv run --extra cuda12 python -m benchmarks gpu --minutes 8

The cases run in a separate process, so a kernel that fails or hangs does not stop the others. When a case ends, a
line is appended to the results; a failure is a line, too. Cases for which the time is too short are listed. On a
machine without a GPU, ``python -m benchmarks gpu-model`` computes modelled rates.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, NamedTuple

from benchmarks.worker import Worker, WorkerDied

ARMS = 1000
LEARNERS = ("exaul", "ew", "exp3-ix", "log-price", "threshold", "ranked-threshold")
FEW, MANY, CROSSOVER = 1024, 65_536, (4096, 16_384)  # copies
TRIALS, LONG = 60, 3_000_000  # of a whole sweep
LONGEST = 300.0  # seconds of a case
WARPS, THREADS = "cuda-warps", "cuda"
JAX = {"exaul": "compressed", "exp3-ix": "two-level"}
Row = dict[str, Any]


class GpuCase(NamedTuple):
    """What is measured; ``kind`` is ``certificate``, ``error_rate`` or ``sweep``."""

    kind: str
    learner: str
    backend: str
    copies: int


def cases() -> list[GpuCase]:
    """List the cases, the most useful one first."""
    from exaul.engine.registry import LEARNERS as TABLE
    from exaul.engine.registry import load_object
    from exaul.engine.simulation.backends import backend_of

    pairs = [(n, x) for n in LEARNERS for x in (WARPS, THREADS) if backend_of(load_object(TABLE[n]), x, "float64")]
    found = [GpuCase("certificate", *pair, 64) for pair in pairs]
    found += [GpuCase("rate", name, x, FEW) for name, x in pairs if x == WARPS]
    found += [GpuCase("rate", name, x, MANY) for name, x in pairs if x == THREADS]
    found += [GpuCase("rate", *pair, copies) for copies in CROSSOVER for pair in pairs]
    found += [GpuCase("sweep", name, WARPS, TRIALS) for name in ("exaul", "ew")]
    return found + [GpuCase("rate", name, x, FEW) for name, x in JAX.items()]


def measure(case: GpuCase) -> Row:
    """Measure a case; only here, in the process that measures, is the device used."""
    _begin()
    import jax

    with jax.enable_x64(True):
        return {"certificate": _certificate, "rate": _rate, "sweep": _sweep}[case.kind](case)


def _begin() -> None:
    """Share the device's memory with numba-cuda, and use the stored programs, as a sweep does."""
    from exaul.engine.machine import cache, devices  # noqa: F401  devices sets what JAX reads as it starts

    cache.use_compilation_cache()


def _certificate(case: GpuCase) -> Row:
    import numpy as np

    from exaul.engine.simulation.backends import backend_of
    from exaul.engine.simulation.certify import certify_all, is_certified
    from exaul.engine.simulation.device_check import record_decisions
    from exaul.engine.simulation.prepare import prepare
    from exaul.engine.sweep import Sweep

    small = Sweep(learners=(case.learner,), backend=case.backend, trials=case.copies, horizon=3000, arms=ARMS)
    prepared = prepare(small)
    for found in certify_all(prepared):
        return {"holds": is_certified(found, "float64"), "error": found.largest, "differ": found.differ}
    (player,), oracle = prepared.players, backend_of(prepared.players[0].learner, "dense", "float64")
    assert oracle is not None
    pairs = player.backend, oracle  # it has no weights: decisions alone are compared
    differ = int(np.not_equal(*(record_decisions(player.learner, made) for made in pairs)).sum())
    return {"holds": differ == 0, "differ": differ}


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


def describe_case() -> Row:
    """Describe the machine: device, driver, clocks, CUDA, commit and date."""
    _begin()
    from benchmarks import stamp

    return stamp.stamp() | stamp.nvidia()


def run(
    todo: Sequence[Any], measure: Callable[[Any], Row], path: Path, stamp: Row, minutes: float, worker: Worker
) -> tuple[list[Row], list[Any]]:
    """Measure cases until the time is over.

    Args:
        todo: the cases, named tuples, the most useful one first.
        measure: the function that measures a case; it is called in the worker.
        path: the results file; one line is appended for the stamp and for each case that ends.
        stamp: the description of the machine.
        minutes: the time limit for all cases; a case that has not ended by then is left out.
        worker: the process that measures.

    Returns:
        The rows, and the cases that were left out.
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
        if failure is not None and failure.startswith("DeviceFailure"):
            worker.close()  # the next case gets a process that can use the device
        row |= found if failure is None else {"failure": failure}
        rows.append(row)
        _append(path, row)
    return rows, []


def _append(path: Path, row: Row) -> None:
    line = json.dumps(row)
    print(line, file=sys.stderr)
    with path.open("a") as stream:
        stream.write(line + "\n")


def _asked(worker: Worker, function: Callable[[], Any]) -> tuple[Any, str | None]:
    """Call a function in the worker; what it returned, and what went wrong."""
    try:
        return worker.call(function, seconds=LONGEST)
    except WorkerDied:
        return None, "the process that measures died"
    except TimeoutError:
        return None, f"the process that measures did not answer in {LONGEST:.0f} s"


def main(minutes: float) -> int:
    """Measure, print the table, and return the exit status: 1 where a case failed or is not certified.

    Raises:
        BadInput: there is no GPU, or no time.
    """
    from benchmarks import gpu_model, stamp
    from exaul.engine.checks import BadInput

    if not minutes > 0:
        raise BadInput(f"minutes: {minutes} found; it must be more than 0")
    worker = Worker()
    try:
        here, failure = _asked(worker, describe_case)
        if failure is not None or not here["device"].startswith("gpu"):
            found = f"JAX computes on {here['device']}" if failure is None else failure
            raise BadInput(f"gpu: no GPU is found ({found}); gpu-model computes modelled rates without one")
        path = stamp.path_of("gpu", here).with_suffix(".jsonl")
        todo, failure = _asked(worker, cases)
        if failure is not None:
            raise BadInput(f"gpu: {failure}")
        rows, left = run(todo, measure, path, here, minutes, worker)
    finally:
        worker.close()
    print(gpu_model.table(rows))
    for case in left:
        print("left out, no time:", *case, file=sys.stderr)
    print("written:", path, file=sys.stderr)
    return int(any("failure" in row or row.get("holds") is False for row in rows))
