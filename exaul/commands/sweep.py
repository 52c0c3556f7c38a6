"""``exaul sweep``: play a sweep, or go on with one, and print its summary."""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from exaul.commands.flags import of
from exaul.commands.terminal import refuse
from exaul.engine.checks import BadInput, count, known, setting, within
from exaul.engine.machine.clusters import Cluster
from exaul.engine.machine.progress import MODES
from exaul.engine.sweep import Sweep


@dataclass(frozen=True, kw_only=True)
class Running(Cluster):
    """How a sweep is run. Every field is a flag of ``exaul sweep``; none changes its results.

    Raises:
        BadInput: a field is out of its range; the sentence names it.
    """

    resume: str | None = setting(None, "go on with the interrupted sweep of this folder", "DIR")
    save_every: float = setting(60.0, "seconds between saves of the state in --out", "SECONDS")
    parts: int | None = setting(None, "of the trials, on a cluster (default: four for each worker)", "N")
    dry_run: bool = setting(False, "say what the sweep would take in memory and on disk, and play nothing")
    progress: str = setting("bar", "what stderr is told: bar, json (a line now and then) or quiet", "NAME")
    trust: bool = setting(False, "with --resume: import the modules that its manifest names: their code will run")

    def __post_init__(self) -> None:
        super().__post_init__()
        within("save_every", self.save_every, 0 <= self.save_every < math.inf, "a finite number >= 0")
        known("progress", (self.progress,), MODES)
        count("parts", self.parts)
        if self.parts is not None and not self.named:
            raise BadInput("parts: given, but neither ray nor dask is")


CONFIGURATIONS = (Sweep, Running)
EACH = 4  # parts for each worker of a cluster: few are idle at the end, and little is played again


def main(given: Mapping[str, Any]) -> int:
    """Play a sweep, or go on with one, and print its summary."""
    running, fields = Running(**of(Running, given)), of(Sweep, given)
    sweep = Sweep(**fields)
    from exaul.engine import run, traces
    from exaul.engine.machine import cache
    from exaul.engine.play import need
    from exaul.engine.play.prepare import prepare

    cache.use()
    folder, trust = running.resume, running.trust
    over_traces = traces.over_traces(sweep) if folder is None else traces.are_in(folder)
    if running.named and over_traces:
        raise BadInput(f"{running.flag}: given, but a sweep over traces is played on one machine")
    if running.named and not running.dry_run:
        return _on_cluster(running, sweep, fields)
    verbs: tuple[Callable[..., Any], ...] = run.run, run.resume, prepare, run.recall, need.describe
    if over_traces:
        verbs = traces.run_each, traces.resume_each, traces.plan, traces.recall_each, traces.describe
    play, resume, plan, recall, describe = verbs
    if running.dry_run:
        found = plan(sweep) if folder is None else recall(folder, fields, trust=trust)
    else:
        how: dict[str, Any] = {"progress": running.progress, "save_every": running.save_every}
        found = play(sweep, **how) if folder is None else resume(folder, fields, trust=trust, **how)
    if found is None:
        print(f"{folder}: finished; nothing to resume")
        return 0
    if running.dry_run:
        print(describe(found))
        return 0
    out = sweep.out if running.resume is None else running.resume
    return report(found, out)


def _on_cluster(running: Running, sweep: Sweep, given: Mapping[str, Any]) -> int:
    """Play a sweep in parts, or go on with one."""
    from exaul.engine.scatter import Unfinished, rescatter, scatter

    how: dict[str, Any] = {"progress": running.progress, "save_every": running.save_every}
    try:
        with running.workers() as (executor, workers):
            if running.resume is None:
                parts = min(sweep.trials, running.parts or EACH * workers)
                result = scatter(sweep, executor, parts, **how)
            else:
                found = rescatter(running.resume, executor, given, trust=running.trust, **how)
                if found is None:
                    print(f"{running.resume}: finished; nothing to resume")
                    return 0
                result = found
    except Unfinished as error:
        return refuse("exaul", f"{error}{f' {running.flag}' if sweep.out or running.resume else ''}", 1)
    return report(result, running.resume or sweep.out)


def report(result: Any, out: str | None) -> int:
    """Print the summary of a result, and whether its accounting is right: status 1 if it is not."""
    print(result.summary())
    if out is not None:
        print(f"\ntables, figures and manifest: {out}")
    checks = {"Lemma 1": result.lemma_holds, "a bound of R_T": result.risk_holds}
    for what in (what for what, holds in checks.items() if not holds):
        print(f"{what} is broken: the accounting is wrong; please report this", file=sys.stderr)
    return int(not all(checks.values()))
