"""Speed of `exaul serve`: decisions one at a time and many at once, start and memory with many keys, a scrape."""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.abstainer import draw, table
from exaul import Abstainers

__all__ = ["draw", "run", "table"]

CLIENTS = 16  # that decide at the same time
QUESTIONS = {False: 5_000, True: 100}  # by ``quick``
KEYS = {False: 5_000, True: 20}
ENTRIES = {False: 20, True: 5}  # decisions of each key before the start
SCRAPES = {False: 5, True: 1}
TARGETS = {  # upper limits; lower limits of rates
    "decision, median": 2e-3,
    "decision, 99% quantile": 10e-3,
    f"decisions a second, {CLIENTS} at a time": 500,
    "start with all keys": 3.0,
    "memory of all keys": 250e6,
    "metrics, median": 0.1,
}


def run(quick: bool) -> list[dict[str, Any]]:
    """Return rows of measurements (seconds, bytes, or decisions per second) and their targets."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.sqlite"
        with _server(path) as (_, port, _):
            scores = rng.random(QUESTIONS[quick]).tolist()
            times = asyncio.run(_decide(port, scores, [""]))[len(scores) // 10 :]
            rate = asyncio.run(_decide_together(port, QUESTIONS[quick]))
        path = Path(folder) / "keys.sqlite"
        keys = [str(key) for key in range(KEYS[quick])]
        with Abstainers(path) as abstainers:
            for key in keys * ENTRIES[quick]:
                decision = abstainers.decide(rng.random(), key)
                abstainers.feedback(decision.id, rng.random() < 0.1)
        with _server(path) as (process, port, started):
            asyncio.run(_decide(port, [0.5] * len(keys), keys))
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            scrapes = asyncio.run(_scrape(port, SCRAPES[quick]))
    values = np.median(times), np.quantile(times, 0.99), rate, started, 4096 * pages, np.median(scrapes)
    return [
        {"what": what, "value": float(value), "target": target}
        for (what, target), value in zip(TARGETS.items(), values, strict=True)
    ]


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


async def _decide(port: int, scores: list[float], keys: list[str]) -> list[float]:
    """Return the seconds of decisions that one client asks for, one after the other."""
    bodies = [json.dumps({"score": score, "key": keys[n % len(keys)]}) for n, score in enumerate(scores)]
    head = "POST /v1/decide HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
    return await _request(port, [f"{head}{len(body)}\r\n\r\n{body}" for body in bodies])


async def _decide_together(port: int, questions: int) -> float:
    """Return the decisions per second of several clients together."""
    scores = [0.5] * (questions // CLIENTS)
    start = perf_counter()
    await asyncio.gather(*(_decide(port, scores, ["a", "b"]) for _ in range(CLIENTS)))
    return CLIENTS * len(scores) / (perf_counter() - start)


async def _scrape(port: int, count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        seconds += await _request(port, ["GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"])
        await asyncio.sleep(1.1)  # else it is the same again
    return seconds


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
