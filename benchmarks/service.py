"""Speed in a user's program, each measurement beside its aim: the Abstainer, its journal, and ``exaul serve``."""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.results import Row
from exaul import Abstainer, Abstainers
from exaul.serving.replay import replayed

LEARNERS = {"aci-rank": 20e-6, "exaul": 40e-6}  # seconds of a decision and its feedback that are the aim
# Sizes by ``quick``: questions of a learner, requests, keys, entries of the journal.
SIZES = {False: (20_000, 5_000, 5_000, 1_000_000), True: (500, 100, 20, 2_000)}
CLIENTS = 16  # that decide at the same time
START = """
import sys
from time import perf_counter
from exaul import Abstainer, Abstainers
from exaul.engine.machine import resident_bytes
Abstainer().decide(0.5)
before, start = resident_bytes(), perf_counter()
abstainers = Abstainers(sys.argv[1])
for key in abstainers.all_keys():
    abstainers.decide(0.5, key=key)
print(perf_counter() - start, resident_bytes() - before)
"""


def run(quick: bool) -> list[Row]:
    """Return rows of measurements and their aims: upper limits; lower limits of rates."""
    rows: list[Row] = []
    questions, requests, keys, entries = SIZES[quick]

    def add(what: str, value: float, unit: str, aim: float) -> None:
        rows.append({"what": what, "value": float(value), "unit": unit, "aim": aim})
        print(what, f"{value:.4g} {unit}", file=sys.stderr)

    for name, aim in LEARNERS.items():
        add(f"{name}: a decision and its feedback", np.median(_alone(name, questions)), "seconds", aim)
    add("import in a new process", _process("pass"), "seconds", 0.3)
    add("import and first decision", _process("Abstainer().decide(0.5)"), "seconds", 1.0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.sqlite"
        add("decisions and feedback with the journal", _fill(path, keys, entries), "a second", 5_000)
        start = subprocess.run([sys.executable, "-c", START, path], check=True, capture_output=True, text=True)
        seconds, size = map(float, start.stdout.split())
        add("start with all keys", seconds, "seconds", 2.0)
        add("memory of all keys", size / 1e6, "MB", 200)
        begin = perf_counter()
        assert all(same for _, same in replayed(path))
        add("replay of the journal", perf_counter() - begin, "seconds", 10.0)
        with _server(Path(folder) / "new.sqlite") as (_, port, _):
            times = asyncio.run(_decide(port, requests, [""]))[requests // 10 :]
            begin = perf_counter()
            asyncio.run(_decide_together(port, requests // CLIENTS))
            rate = requests // CLIENTS * CLIENTS / (perf_counter() - begin)
        add("exaul serve: decision, median", np.median(times), "seconds", 2e-3)
        add("exaul serve: decision, 99% quantile", np.quantile(times, 0.99), "seconds", 10e-3)
        add(f"exaul serve: decisions, {CLIENTS} at a time", rate, "a second", 500)
        path = Path(folder) / "keys.sqlite"
        _fill(path, keys, 20 * keys)
        with _server(path) as (process, port, started):
            asyncio.run(_decide(port, keys, [str(key) for key in range(keys)]))
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            begin = perf_counter()
            asyncio.run(_request(port, ["GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"]))
            metrics = perf_counter() - begin
        add("exaul serve: start with all keys", started, "seconds", 3.0)
        add("exaul serve: memory of all keys", 4096 * pages / 1e6, "MB", 250)
        add("exaul serve: metrics", metrics, "seconds", 0.1)
    return rows


def _alone(name: str, questions: int) -> list[float]:
    """Return the seconds per decision with feedback, without the first tenth."""
    rng, times = np.random.default_rng(0), []
    abstainer = Abstainer(learner=name, alpha=0.1, horizon=questions, seed=0)
    scores, errors = rng.random(questions), rng.random(questions) < 0.15
    for score, error in zip(scores.tolist(), errors.tolist(), strict=True):
        start = perf_counter()
        decision = abstainer.decide(score)
        if decision.answer:
            abstainer.feedback(decision.id, error)
        times.append(perf_counter() - start)
    return times[questions // 10 :]


def _process(code: str) -> float:
    """Return the seconds of a new process that imports the Abstainer and runs code; the least of three."""
    times = []
    for _ in range(3):
        start = perf_counter()
        subprocess.run([sys.executable, "-c", f"from exaul import Abstainer; Abstainer; {code}"], check=True)
        times.append(perf_counter() - start)
    return min(times)


def _fill(path: Path, keys: int, entries: int) -> float:
    """Write a journal, one key after the other; return entries per second."""
    rng, start, written = np.random.default_rng(1), perf_counter(), 0
    with Abstainers(path, alpha=0.1, learner="aci-rank") as abstainers:
        for key in range(keys):
            while written < entries * (key + 1) / keys:
                decision = abstainers.decide(rng.random(), key=str(key))
                written += 1
                if decision.answer:
                    written += abstainers.feedback(decision.id, rng.random() < 0.1) == "counted"
    return written / (perf_counter() - start)


@contextmanager
def _server(path: Path) -> Iterator[tuple[subprocess.Popen[str], int, float]]:
    """Yield a server's process, its port, and the seconds until it accepted requests."""
    start = perf_counter()
    command = [sys.executable, "-m", "exaul", "serve", "--state", str(path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().rsplit(":", 1)[1])
        try:
            yield process, port, perf_counter() - start
        finally:
            process.terminate()


async def _decide(port: int, questions: int, keys: list[str]) -> list[float]:
    """Return the seconds of decisions that one client asks for, one after the other."""
    bodies = [json.dumps({"score": 0.5, "key": keys[n % len(keys)]}) for n in range(questions)]
    head = "POST /v1/decide HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
    return await _request(port, [f"{head}{len(body)}\r\n\r\n{body}" for body in bodies])


async def _decide_together(port: int, questions: int) -> None:
    await asyncio.gather(*(_decide(port, questions, ["a", "b"]) for _ in range(CLIENTS)))


async def _request(port: int, requests: list[str]) -> list[float]:
    """Return the seconds of requests over one connection; without a library, which would take the server's CPU."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    seconds = []
    for request in requests:
        start = perf_counter()
        writer.write(request.encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert head.startswith(b"http/1.1 200"), head
        await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
        seconds.append(perf_counter() - start)
    writer.close()
    return seconds
