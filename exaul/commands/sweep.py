"""``exaul sweep``: run a sweep, or continue an interrupted one, and print its summary."""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exaul.commands.flags import fields_given
from exaul.commands.terminal import refuse, terminal_width
from exaul.engine.checks import BadInput, Configuration, check_count, check_holds, check_known, setting
from exaul.engine.machine.clusters import ClusterFlags
from exaul.engine.machine.progress import MODES
from exaul.engine.results.text_table import wrap
from exaul.engine.sweep import Sweep


@dataclass(frozen=True, kw_only=True)
class SummaryFlags(Configuration):
    """What the summary shows. Every field is a flag of all commands that print it."""

    theory: bool = setting(False, "also print regrets, bounds and Lemma 1")


@dataclass(frozen=True, kw_only=True)
class SweepFlags(ClusterFlags, SummaryFlags):
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


def main(given: Mapping[str, Any]) -> int:
    """Run a sweep, or continue an interrupted one, and print its summary."""
    flags, fields = SweepFlags(**fields_given(SweepFlags, given)), fields_given(Sweep, given)
    sweep = Sweep(**fields)
    from exaul.engine.jobs import open_job
    from exaul.engine.machine import cache
    from exaul.engine.parts import PartsFailed
    from exaul.engine.traces import TracesJob

    cache.use_compilation_cache()
    path, connect = flags.resume, not flags.dry_run
    try:
        with open_job(
            sweep, fields, flags, resume=path, parts=flags.parts, trust=flags.trust, connect=connect
        ) as job:
            if job is None:
                print(f"{path}: finished; nothing to resume")
                return 0
            if flags.theory and isinstance(job, TracesJob):
                raise BadInput(
                    "theory: given, but a sweep over traces prints no regrets; `trials.csv` of each has them"
                )
            if flags.dry_run:
                print(wrap(job.describe(), terminal_width()))
                return 0
            result = job.run(progress=flags.progress, save_every=flags.save_every)
    except PartsFailed as error:
        return refuse("exaul", f"{error}{f' {flags.flag}' if sweep.out or path else ''}", 1)
    return report(result, path or sweep.out, flags.theory)


def report(result: Any, out: str | None, theory: bool) -> int:
    """Print the summary of a result. Return 1 if a proven inequality is violated, else 0."""
    width = terminal_width()
    print(result.summary(width, theory) if theory else result.summary(width))
    if out is not None:
        print(f"\ntables, figures and manifest: {out}")
    checks = {"Lemma 1": result.lemma_holds, "a bound of R_T": result.risk_holds}
    for what in (what for what, holds in checks.items() if not holds):
        print(f"{what} is broken: this is a bug in exaul; please report it", file=sys.stderr)
    return int(not all(checks.values()))
