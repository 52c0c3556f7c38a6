"""Reports of a running sweep: a bar, a JSON line now and then, or nothing."""

import json
import sys
import time
from typing import Self

MODES = ("bar", "json", "quiet")
EVERY = 10.0  # seconds between lines


class Progress:
    """Rounds of all copies that were played, on stderr."""

    def __init__(self, mode: str, total: int) -> None:
        """Before the first of ``total`` rounds; ``bar`` shows nothing where stderr is no terminal."""
        self.mode, self.total, self.rounds, self.part = mode, total, 0, dict[str, int]()
        self.start = self.reported = time.monotonic()
        from tqdm import tqdm  # here, so that a command that plays nothing starts at once

        hidden = None if mode == "bar" else True
        self.bar = tqdm(total=total, unit=" rounds", unit_scale=True, disable=hidden, desc="all copies")

    def begin(self, trace: int, traces: int, name: str) -> None:
        """What follows is of a trace, by number from 1, of so many; a line says so where there is no terminal."""
        self.part = {"trace": trace, "traces": traces}
        self.bar.set_description(f"trace {trace} of {traces}")
        if self.mode == "bar" and self.bar.disable:
            print(f"trace {trace} of {traces}: {name}", file=sys.stderr, flush=True)

    def update(self, rounds: int) -> None:
        """Some more rounds."""
        self.rounds += rounds
        self.bar.update(rounds)
        if self.mode == "json" and (time.monotonic() - self.reported >= EVERY or self.rounds == self.total):
            self.reported = time.monotonic()
            seconds = self.reported - self.start
            rate = self.rounds / seconds if seconds > 0 else None
            left = (self.total - self.rounds) / rate if rate else None
            line = {"rounds": self.rounds, "total": self.total, "seconds": seconds, "rate": rate, "left": left}
            print(json.dumps(line | self.part), file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()
