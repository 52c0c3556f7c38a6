"""The command ``exaul sweep`` in new processes: its first and second start, and its memory."""

import os
import subprocess
import sys
import tempfile
from time import perf_counter

from benchmarks.results import Row

SWEEPS = {  # flags of sweeps whose memory is measured, by ``quick``
    False: {"the default": [], "100,000 trials, T = 3,000": ["--trials", "100000", "--horizon", "3000"]},
    True: {"2 trials, T = 512": ["--trials", "2", "--horizon", "512"]},
}


def run(quick: bool) -> list[Row]:
    """Return the seconds of a sweep without stored programs and with them, and the largest memory of sweeps."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as cache:
        flags = SWEEPS[True]["2 trials, T = 512"]
        for start in ("first start: programs are compiled", "second start: programs are stored"):
            title = f"exaul sweep {' '.join(flags)}, {start}"
            rows.append({"what": title, "value": sweep(flags, cache)[0], "unit": "seconds"})
        for name, flags in SWEEPS[quick].items():
            for value, unit in zip(sweep(flags, cache), ("seconds", "MiB"), strict=True):
                rows.append({"what": f"exaul sweep, {name}", "value": value, "unit": unit})
    return rows


MEASURING = (  # a process begins with the largest memory of the one that started it: a small one starts the sweep
    "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True); "
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)


def sweep(flags: list[str], cache: str) -> tuple[float, float]:
    """Return the seconds and the largest memory in MiB of a sweep in a new process."""
    exaul = [sys.executable, "-m", "exaul", "sweep", "--progress", "quiet", *flags]
    start, env = perf_counter(), os.environ | {"XDG_CACHE_HOME": cache}
    size = subprocess.check_output([sys.executable, "-c", MEASURING, *exaul], env=env)
    return perf_counter() - start, int(size) / (2**20 if sys.platform == "darwin" else 2**10)
