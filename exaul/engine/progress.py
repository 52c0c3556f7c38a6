"""Progress reports on stderr: a bar, JSON lines or nothing."""

import json
import sys
import time
from typing import Any, Self

MODES = ("bar", "json", "quiet")
INTERVAL = 10.0  # seconds between lines (chosen)


class Progress:
    """A report of finished units: rounds of all copies, or questions."""

    def __init__(self, mode: str, total: int, unit: str = "rounds") -> None:
        """Begin with ``total`` units; ``bar`` shows nothing if stderr is not a terminal."""
        self.mode, self.total, self.unit, self.done, self.part = mode, total, unit, 0, dict[str, Any]()
        self.start = self.reported = time.monotonic()
        from tqdm import tqdm  # imported late, so that other commands start faster

        hidden = None if mode == "bar" else True
        self.bar = tqdm(total=total, unit=f" {unit}", unit_scale=unit == "rounds", disable=hidden)
        if unit == "rounds":
            self.bar.set_description("all copies")

    def begin(self, trace: int, traces: int, name: str) -> None:
        """Begin a trace, by number from 1; if stderr is not a terminal, print a line instead of the bar's title."""
        self.part = {"trace": trace, "traces": traces}
        self.bar.set_description(f"trace {trace} of {traces}")
        if self.mode == "bar" and self.bar.disable:
            print(f"trace {trace} of {traces}: {name}", file=sys.stderr, flush=True)

    def update(self, count: int, **part: Any) -> None:
        """Add finished units, and named values to show beside them."""
        self.done += count
        self.part |= part
        if part:
            self.bar.set_postfix(part, refresh=False)
        self.bar.update(count)
        if self.mode == "json" and (time.monotonic() - self.reported >= INTERVAL or self.done == self.total):
            self.reported = time.monotonic()
            seconds = self.reported - self.start
            rate = self.done / seconds if seconds > 0 else None
            remaining = (self.total - self.done) / rate if rate else None
            line = {self.unit: self.done, "total": self.total, "seconds": seconds, "rate": rate, "left": remaining}
            print(json.dumps(line | self.part), file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()
