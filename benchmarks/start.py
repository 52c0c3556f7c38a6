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
            what = f"exaul sweep {' '.join(flags)}, {start}"
            rows.append({"what": what, "value": sweep(flags, cache)[0], "unit": "seconds"})
        for name, flags in SWEEPS[quick].items():
            seconds, size = sweep(flags, cache)
            rows.append({"what": f"exaul sweep, {name}", "value": seconds, "unit": "seconds"})
            rows.append({"what": f"exaul sweep, {name}", "value": size / 2**20, "unit": "MiB"})
    return rows


def sweep(flags: list[str], cache: str) -> tuple[float, float]:
    """Return the seconds and the largest memory in bytes of a sweep in a new process."""
    command = [sys.executable, "-m", "exaul", "sweep", "--progress", "quiet", *flags]
    start = perf_counter()
    process = subprocess.Popen(command, env=os.environ | {"XDG_CACHE_HOME": cache}, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit status {process.returncode}")
    return perf_counter() - start, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
