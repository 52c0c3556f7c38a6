"""``exaul sweep``: play a sweep, or go on with one, and print its summary."""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exaul.engine.checks import Configuration, known, setting, within
from exaul.engine.commands.flags import of
from exaul.engine.machine.progress import MODES
from exaul.engine.sweep import Sweep


@dataclass(frozen=True, kw_only=True)
class Running(Configuration):
    """How a sweep is run. Every field is a flag of ``exaul sweep``; none changes its results.

    Raises:
        BadInput: a field is out of its range; the sentence names it.
    """

    resume: str | None = setting(None, "go on with the interrupted sweep of this folder", "DIR")
    save_every: float = setting(60.0, "seconds between saves of the state in --out", "SECONDS")
    distributed: bool = setting(False, "one of several processes of a cluster, which share the trials")
    dry_run: bool = setting(False, "say what the sweep would take in memory and on disk, and play nothing")
    progress: str = setting("bar", "what stderr is told: bar, json (a line now and then) or quiet", "NAME")
    trust: bool = setting(False, "with --resume: import the modules that its manifest names: their code will run")

    def __post_init__(self) -> None:
        super().__post_init__()
        within("save_every", self.save_every, 0 <= self.save_every < math.inf, "a finite number >= 0")
        known("progress", (self.progress,), MODES)


CONFIGURATIONS = (Sweep, Running)


def main(given: Mapping[str, Any]) -> int:
    """Play a sweep, or go on with one, and print its summary."""
    running, fields = Running(**of(Running, given)), of(Sweep, given)
    sweep = Sweep(**fields)
    from exaul.engine import run
    from exaul.engine.machine import cache, hosts

    cache.use()
    if running.distributed:
        hosts.begin()
    how: dict[str, Any] = {"progress": running.progress, "save_every": running.save_every}
    found: Any
    if running.dry_run:
        from exaul.engine.play import need, prepare

        folder = running.resume
        found = prepare.prepare(sweep) if folder is None else run.recall(folder, fields, trust=running.trust)
    elif running.resume is not None:
        found = run.resume(running.resume, fields, trust=running.trust, **how)
    else:
        found = run.run(sweep, **how)
    if found is None:
        print(f"{running.resume}: finished; nothing to resume")
        return 0
    if running.dry_run:
        print(need.describe(found))
        return 0
    out = sweep.out if running.resume is None else running.resume
    return report(found, out) if hosts.number() == 0 else 0


def report(result: Any, out: str | None) -> int:
    """Print the summary of a result, and whether its accounting is right: status 1 if it is not."""
    print(result.summary())
    if out is not None:
        print(f"\ntables, figures and manifest: {out}")
    checks = {"Lemma 1": result.lemma_holds, "a bound of R_T": result.risk_holds}
    for what in (what for what, holds in checks.items() if not holds):
        print(f"{what} is broken: the accounting is wrong; please report this", file=sys.stderr)
    return int(not all(checks.values()))
