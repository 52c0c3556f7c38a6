"""``exaul sweep``: run a sweep, or continue an interrupted one, and print its summary."""

import math
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from exaul.commands.flags import fields_given
from exaul.commands.terminal import refuse
from exaul.engine.checks import BadInput, check_count, check_holds, check_known, setting
from exaul.engine.machine.clusters import ClusterFlags
from exaul.engine.machine.progress import MODES
from exaul.engine.sweep import Sweep


@dataclass(frozen=True, kw_only=True)
class SweepFlags(ClusterFlags):
    """How a sweep is run. Every field is a flag of ``exaul sweep``; none changes its results."""

    resume: str | None = setting(None, "continue the interrupted sweep in this folder", "DIR")
    save_every: float = setting(60.0, "seconds between saves of the state in --out", "SECONDS")
    parts: int | None = setting(None, "number of parts of the trials on a cluster (default: four per worker)", "N")
    dry_run: bool = setting(False, "print the memory and disk space that the sweep needs, without running it")
    progress: str = setting("bar", "progress on stderr: bar, json (one line at intervals) or quiet", "NAME")
    trust: bool = setting(False, "with --resume: import the modules that its manifest names; this runs their code")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_holds("save_every", self.save_every, 0 <= self.save_every < math.inf, "a finite number >= 0")
        check_known("progress", (self.progress,), MODES)
        check_count("parts", self.parts)
        if self.parts is not None and not self.named:
            raise BadInput("parts: given, but neither ray nor dask is")


CONFIGURATIONS = (Sweep, SweepFlags)
EACH = 4  # parts per worker of a cluster: few workers are idle at the end, and repeating a lost part is cheap


def main(given: Mapping[str, Any]) -> int:
    """Run a sweep, or continue an interrupted one, and print its summary."""
    flags, fields = SweepFlags(**fields_given(SweepFlags, given)), fields_given(Sweep, given)
    sweep, path, trust = Sweep(**fields), flags.resume, flags.trust
    from exaul.engine.job import Job
    from exaul.engine.machine import cache
    from exaul.engine.run import begin_job, resume_job
    from exaul.engine.scatter import PartsFailed
    from exaul.engine.traces import TracesJob, holds_traces, is_over_traces

    cache.use_compilation_cache()
    traces = is_over_traces(sweep) if path is None else holds_traces(path)
    if flags.named and traces:
        raise BadInput(f"{flags.flag}: given, but a sweep over traces runs on one machine")
    local = nullcontext((None, 0))
    try:
        with flags.workers() if flags.named and not flags.dry_run else local as (executor, workers):
            job: Job | None
            if traces:
                job = TracesJob.begin(sweep) if path is None else TracesJob.resume(path, fields, trust=trust)
            elif path is None:
                parts = None if executor is None else min(sweep.trials, flags.parts or EACH * workers)
                job = begin_job(sweep, None, executor, parts)
            else:
                job = resume_job(path, fields, executor, trust)
            if job is None:
                print(f"{path}: finished; nothing to resume")
                return 0
            if flags.dry_run:
                print(job.describe())
                return 0
            result = job.run(progress=flags.progress, save_every=flags.save_every)
    except PartsFailed as error:
        return refuse("exaul", f"{error}{f' {flags.flag}' if sweep.out or path else ''}", 1)
    return report(result, path or sweep.out)


def report(result: Any, out: str | None) -> int:
    """Print the summary of a result. Return 1 if a proven inequality is violated, else 0."""
    print(result.summary())
    if out is not None:
        print(f"\ntables, figures and manifest: {out}")
    checks = {"Lemma 1": result.lemma_holds, "a bound of R_T": result.risk_holds}
    for what in (what for what, holds in checks.items() if not holds):
        print(f"{what} is broken: this is a bug in exaul; please report it", file=sys.stderr)
    return int(not all(checks.values()))
