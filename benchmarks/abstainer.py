"""Speed of the Abstainer: decision and feedback alone and with a journal, many keys, a replay."""

import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from exaul import Abstainer, Abstainers
from exaul.serving.abstainers import replayed

LEARNERS = ("aci-rank", "exaul")
QUESTIONS = {False: 20_000, True: 500}  # per learner, by ``quick``
EVENTS = {False: 1_000_000, True: 2_000}  # entries of the journal, by ``quick``
KEYS = {False: 5_000, True: 20}
TARGETS = {  # upper limits; lower limits of rates
    "aci-rank, a decision and its feedback": 20e-6,
    "exaul, a decision and its feedback": 40e-6,
    "import in a new process": 0.3,
    "import and first decision": 1.0,
    "decisions and feedback a second with the journal": 5_000,
    "start with all keys": 2.0,
    "memory of all keys": 200e6,
    "replay of a journal": 10.0,
}


def run(quick: bool) -> list[dict[str, Any]]:
    """Return rows of measurements (seconds, bytes, or events per second) and their targets."""
    rows = []

    def add(what: str, value: float, **more: Any) -> None:
        rows.append({"what": what, "value": value, "target": TARGETS[what]} | more)
        print(what, f"{value:.4g}", file=sys.stderr)

    rng = np.random.default_rng(0)
    scores = rng.random(QUESTIONS[quick])
    for name in LEARNERS:
        times = _alone(name, scores, rng.random(len(scores)) < 0.15)
        more = {"p99": float(np.quantile(times, 0.99))}
        add(f"{name}, a decision and its feedback", float(np.median(times)), **more)
    add("import in a new process", _process("pass"))
    add("import and first decision", _process("Abstainer().decide(0.5)"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.sqlite"
        add("decisions and feedback a second with the journal", _fill(path, KEYS[quick], EVENTS[quick]))
        seconds, size = _started(path)
        add("start with all keys", seconds, keys=KEYS[quick])
        add("memory of all keys", size, keys=KEYS[quick])
        start = perf_counter()
        events = _replayed(path)
        add("replay of a journal", perf_counter() - start, events=events)
    return rows


def _alone(name: str, scores: Any, wrong: Any) -> Any:
    """Return the seconds per decision with feedback, without the first tenth."""
    one = Abstainer(learner=name, alpha=0.1, horizon=len(scores), seed=0)
    times = []
    for score, error in zip(scores.tolist(), wrong.tolist(), strict=True):
        start = perf_counter()
        decision = one.decide(score)
        if decision.answer:
            one.feedback(decision.id, error)
        times.append(perf_counter() - start)
    return np.array(times[len(times) // 10 :])


def _process(code: str) -> float:
    """Return the seconds of a new process that imports the Abstainer and runs code; the least of three."""

    def once() -> float:
        start = perf_counter()
        subprocess.run([sys.executable, "-c", f"from exaul import Abstainer; Abstainer; {code}"], check=True)
        return perf_counter() - start

    return min(once() for _ in range(3))


_START = """
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


def _started(path: Path) -> list[float]:
    """Return seconds and bytes of a new process that asks each key of a file once."""
    done = subprocess.run([sys.executable, "-c", _START, str(path)], check=True, capture_output=True, text=True)
    return [float(word) for word in done.stdout.split()]


def _fill(path: Path, keys: int, events: int) -> float:
    rng = np.random.default_rng(1)
    start, written = perf_counter(), 0
    with Abstainers(path, alpha=0.1, learner="aci-rank") as abstainers:
        for key in range(keys):
            while written < events * (key + 1) / keys:
                decision = abstainers.decide(rng.random(), key=str(key))
                written += 1
                if decision.answer:
                    written += abstainers.feedback(decision.id, rng.random() < 0.1) == "counted"
    return written / (perf_counter() - start)


def _replayed(path: Path) -> int:
    events = 0
    for _, same in replayed(path):
        assert same
        events += 1
    return events


def table(rows: list[dict[str, Any]]) -> str:
    """Return Markdown with one line per measurement."""
    lines = [f"| {row['what']} | {_shown(row, row['value'])} | {_shown(row, row['target'])} |" for row in rows]
    return "\n".join(["| | measured | target |", "|---|--:|--:|", *lines])


def _shown(row: dict[str, Any], value: float) -> str:
    if "memory" in row["what"]:
        return f"{value / 1e6:.0f} MB"
    if "a second" in row["what"]:
        return f"{value:,.0f}"
    if value < 0.1:
        return f"{value * 1e6:.1f} us" if value < 1e-3 else f"{value * 1e3:.1f} ms"
    return f"{value:.2f} s"


def draw(rows: list[dict[str, Any]]) -> Figure:
    """Draw bars: each measurement relative to its target."""
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    names = [row["what"] for row in rows]
    parts = [
        row["target"] / row["value"] if "a second" in row["what"] else row["value"] / row["target"] for row in rows
    ]
    axes.barh(names, parts, color="#08306b")
    axes.axvline(1, color="black", linestyle="--", linewidth=0.9)
    axes.invert_yaxis()
    axes.set(xlabel="ratio to the target (dashed)")
    axes.spines[["top", "right"]].set_visible(False)
    return figure
