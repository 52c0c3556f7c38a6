"""The command line: results to stdout, all else to stderr; status 0 done, 1 a check failed, 2 bad input."""

import argparse
import math
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from engine import hosts, memory
from engine.environments import ENVIRONMENTS
from engine.errors import BadInput
from engine.flags import Parser, add_flags, known, setting, within
from engine.game import load, prepare
from engine.inspection import Inspect, inspect
from engine.learners import BACKENDS, LEARNERS
from engine.merging import Mismatch, merge
from engine.planner import Plan, plan
from engine.progress import MODES
from engine.sources import PROFILES, load_profile
from engine.sweep import Result, Sweep, rerun, resume, run
from engine.verification import verify


@dataclass(frozen=True, kw_only=True)
class Running:
    """How a sweep is run. Every field is a flag of ``exaul sweep``; none changes its results.

    Raises:
        BadInput: a field is out of its range; the sentence names it.
    """

    resume: str | None = setting(None, "go on with the interrupted sweep of this folder", "DIR")
    save_every: float = setting(60.0, "seconds between saves of the state in --out", "SECONDS")
    distributed: bool = setting(False, "one of several processes of a cluster, which share the trials")
    dry_run: bool = setting(False, "say what the sweep would take in memory and on disk, and play nothing")
    progress: str = setting("bar", "what stderr is told: bar, json (a line now and then) or quiet", "NAME")

    def __post_init__(self) -> None:
        within("save_every", self.save_every, 0 <= self.save_every < math.inf, "a finite number >= 0")
        known("progress", (self.progress,), MODES)


def sweep(config: Sweep, running: Running) -> int:
    """Play a sweep, or go on with one, and print its summary."""
    if running.distributed:
        hosts.begin()
    if running.dry_run:
        print(memory.describe(prepare(config, load(config), config.numbers())))
        return 0
    how: dict[str, Any] = {"progress": running.progress, "save_every": running.save_every}
    if running.resume is None:
        result = run(config, **how)
    else:
        found = resume(running.resume, config, **how)
        if found is None:
            print(f"{running.resume}: finished; nothing to resume")
            return 0
        result = found
    return report(result, config.out if running.resume is None else running.resume) if hosts.number() == 0 else 0


def report(result: Result, out: str | None) -> int:
    """Print the summary of a result, and whether its accounting is right."""
    print(result.summary())
    if out is not None:
        print(f"\ntables, figures and manifest: {out}")
    checks = {"Lemma 1": result.lemma_holds, "a bound of R_T": result.risk_holds}
    for what in (what for what, holds in checks.items() if not holds):
        print(f"{what} is broken: the accounting is wrong; please report this", file=sys.stderr)
    return int(not all(checks.values()))


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """What to run again. Every field is a flag of ``exaul rerun``."""

    manifest: str = setting(MISSING, "manifest.json of a sweep", "DIR/manifest.json")
    out: str | None = setting(None, "folder for tables, figures and manifest: absent or empty", "DIR")


def again(config: Rerun) -> int:
    """Play the sweep of a manifest again, to the same bits."""
    path = Path(config.manifest)
    folder = path.parent if path.name == "manifest.json" else path
    return report(rerun(str(folder), config.out, progress="bar"), config.out)


@dataclass(frozen=True, kw_only=True)
class Merge:
    """What to join. Every field is a flag of ``exaul merge``."""

    parts: tuple[str, ...] = setting(MISSING, "folders of all shards of a sweep, in any order", "DIR")
    out: str | None = setting(None, "folder for tables, figures and manifest: absent or empty", "DIR")


def join(config: Merge) -> int:
    """Join the shards of a sweep."""
    try:
        result = merge(config.parts, config.out)
    except Mismatch as error:
        print(f"exaul: {error}", file=sys.stderr)
        return 1
    return report(result, config.out)


def profiles() -> int:
    """Print the built-in profiles."""
    print(f"{'profile':<22}{'records':>9}{'error rate':>12}{'ties at 1':>11}  what it is")
    for name, profile in PROFILES.items():
        records = load_profile(name)
        rate, ties = records.errors.mean(), (records.scores == 1).mean()
        print(f"{name:<22}{len(records.scores):>9}{rate:>12.3f}{ties:>11.3f}  {profile.description}")
    return 0


def parser() -> Parser:
    """The parser of all commands."""
    root = Parser(
        prog="exaul",
        allow_abbrev=False,
        description="Online conformal abstention: what would a learner that says 'I don't know' have done?",
    )
    commands = root.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)
    names = {
        "environments": ", ".join(ENVIRONMENTS),
        "learners": ", ".join(LEARNERS),
        "backends": ", ".join(BACKENDS),
    }

    def command(name: str, action: Callable, configs: Sequence[type], text: str) -> None:
        sub = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        for config in configs:
            add_flags(sub, config, names)
        sub.set_defaults(action=action, configs=configs)

    command(
        "sweep", sweep, [Sweep, Running], "play learners over a log or a profile; tables, figures and a summary"
    )
    command("merge", join, [Merge], "join the shards of a sweep")
    command("rerun", again, [Rerun], "play the sweep of a manifest again, to the same bits")
    command("profiles", profiles, [], "list the built-in profiles")
    command("verify", verify, [Sweep], "certify a sweep's precision and backends against dense float64")
    command("plan", plan, [Plan], "what each learner promises before anything is played, and from which T on more")
    command("inspect", inspect, [Inspect], "look at a log: error rate, ties, and what fixed thresholds can do")
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    given = argparse.Namespace(action=None)
    try:
        given = parser().parse_args(argv)
        with _terminable():
            return given.action(*_configurations(given))
    except BadInput as error:
        print(f"exaul: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        out = getattr(given, "resume", None) or getattr(given, "out", None)
        kept = f"; go on with: exaul sweep --resume {out}" if given.action is sweep and out else ""
        print(f"exaul: interrupted{kept}", file=sys.stderr)
        return 128 + (stop.args[0] if stop.args else signal.SIGINT)


@contextmanager
def _terminable() -> Iterator[None]:
    """Take SIGTERM as an interrupt, where signals can be taken."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt(number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _configurations(given: argparse.Namespace) -> list:
    return [config(**{f.name: getattr(given, f.name) for f in fields(config)}) for config in given.configs]


def entry() -> None:
    """The installed command."""
    sys.exit(main())
