"""Speed in a user's program, each measurement beside its aim: Abstainer, journal, ``exaul serve``, gateway."""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from time import perf_counter
from timeit import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.results import Row
from exaul import Abstainer, Abstainers
from exaul.serving.replay import replayed

LEARNERS = {"aci-rank": 20e-6, "exaul": 40e-6}  # aims: seconds of a decision and its feedback
# Sizes by ``quick``: questions of a learner, requests, keys, entries of the journal.
SIZES = {False: (20_000, 5_000, 5_000, 1_000_000), True: (500, 100, 20, 2_000)}
CLIENTS = 1, 16, 64  # that decide and rate at the same time
MESSAGE, TOKEN = {"role": "assistant", "content": "Paris"}, {"token": "Paris", "logprob": -0.1}
REPLY = json.dumps({"choices": [{"message": MESSAGE, "logprobs": {"content": [TOKEN]}}]})  # of the model
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

    def add(title: str, value: float, aim: float, unit: str = "seconds") -> None:
        rows.append({"what": title, "value": float(value), "unit": unit, "aim": aim})
        print(title, f"{value:.4g} {unit}", file=sys.stderr)

    for name, aim in LEARNERS.items():
        add(f"{name}: a decision and its feedback", np.median(_decision_times(name, questions)), aim)
    add("import in a new process", _process_seconds("pass"), 0.3)
    add("import and first decision", _process_seconds("Abstainer().decide(0.5)"), 1.0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.sqlite"
        add("decisions and feedback with the journal", _fill_journal(path, keys, entries), 5_000, "a second")
        completed = subprocess.run([sys.executable, "-c", START, path], check=True, capture_output=True, text=True)
        seconds, size = map(float, completed.stdout.split())
        add("start with all keys", seconds, 2.0)
        add("memory of all keys", size / 1e6, 200, "MB")
        start = perf_counter()
        assert all(agrees for _, agrees in replayed(path))
        add("replay of the journal", perf_counter() - start, 10.0)
        with _serving(Path(folder) / "new.sqlite") as (_, port, _):
            times = asyncio.run(_request_times(port, [_post("decide", score=0.5)] * requests))
            add("exaul serve: decision, median", np.median(times), 2e-3)
            add("exaul serve: decision, 99% quantile", np.quantile(times, 0.99), 10e-3)
            for clients in CLIENTS:
                pairs = [_requests(f"{clients}-{client}", -(-requests // clients)) for client in range(clients)]
                start = perf_counter()
                asyncio.run(_request_times(port, *pairs))
                rate = clients * len(pairs[0]) / 2 / (perf_counter() - start)
                add(f"exaul serve: decisions with feedback, {clients} at a time", rate, 250, "a second")
        with ThreadingHTTPServer(("127.0.0.1", 0), Model) as model:
            Thread(target=model.serve_forever, daemon=True).start()
            flags = "--models", "m", "--upstream", f"http://127.0.0.1:{model.server_port}/v1"
            chats = [_post("chat/completions", model="m", messages=[])] * requests
            with _serving(Path(folder) / "gateway.sqlite", *flags) as (_, port, _):
                alone, gated = (asyncio.run(_request_times(x, chats)) for x in (model.server_port, port))
            model.shutdown()
        added = gated - np.median(alone)  # to a model that replies at once
        add("gateway: added latency, median", np.median(added), 5e-3)
        add("gateway: added latency, 99% quantile", np.quantile(added, 0.99), 20e-3)
        path = Path(folder) / "keys.sqlite"
        _fill_journal(path, keys, 20 * keys)
        with _serving(path) as (process, port, started):
            asyncio.run(_request_times(port, [_post("decide", score=0.5, key=str(key)) for key in range(keys)]))
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            (metrics,) = asyncio.run(_request_times(port, ["GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"]))
        add("exaul serve: start with all keys", started, 3.0)
        add("exaul serve: memory of all keys", 4096 * pages / 1e6, 250, "MB")
        add("exaul serve: metrics", metrics, 0.1)
    return rows


def _decision_times(name: str, questions: int) -> list[float]:
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


def _process_seconds(code: str) -> float:
    """Return the seconds of a new process that imports the Abstainer and runs code; the least of three."""
    command = [sys.executable, "-c", f"from exaul import Abstainer; Abstainer; {code}"]
    return min(repeat(lambda: subprocess.run(command, check=True), repeat=3, number=1))


def _fill_journal(path: Path, keys: int, entries: int) -> float:
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
def _serving(path: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], int, float]]:
    """Yield a server's process, its port, and the seconds until it accepted requests."""
    start = perf_counter()
    command = [sys.executable, "-m", "exaul", "serve", "--state", str(path), "--port", "0", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().rsplit(":", 1)[1])
        try:
            yield process, port, perf_counter() - start
        finally:
            process.terminate()


class Model(BaseHTTPRequestHandler):
    """An endpoint that replies at once."""

    protocol_version = "HTTP/1.1"  # connections stay open

    def do_POST(self) -> None:
        """Reply to a chat completion."""
        self.rfile.read(int(self.headers["Content-Length"]))
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
        self.wfile.write(f"{head}{len(REPLY)}\r\n\r\n{REPLY}".encode())


def _requests(client: str, count: int) -> list[str]:
    """Return the requests of a client for some decisions, each followed by its feedback."""
    calls = ("decide", {"score": 0.5}), ("feedback", {"error": 0})
    return [_post(path, id=f"{client}-{n}", **fields) for n in range(count) for path, fields in calls]


def _post(path: str, **body: Any) -> str:
    text = json.dumps(body)
    head = f"POST /v1/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(text)}\r\n\r\n{text}"


async def _request_times(port: int, *clients: list[str]) -> NDArray[np.float64]:
    """Return the seconds of requests of clients that ask at the same time, without the first tenth of each."""
    return np.concatenate(await asyncio.gather(*(_client_times(port, requests) for requests in clients)))


async def _client_times(port: int, requests: list[str]) -> list[float]:
    """Return the seconds of one client's requests, on one connection; a library would take the server's CPU."""
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
    return seconds[len(requests) // 10 :]
